"""Why is a step as long as it is, and what would shorten it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.results.waterfall import Loss, waterfall

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.results.prediction import Prediction
    from simulator.sweeps.upgrades import Change
    from simulator.workloads.workload import Workload


@dataclass(frozen=True)
class Explanation:
    """A prediction, where its FLOP/s go, and simulated changes of hardware and plan, best first."""

    prediction: Prediction
    losses: tuple[Loss, ...]
    hardware: tuple[Change, ...]
    plan: tuple[Change, ...]

    def to_dict(self) -> dict[str, Any]:
        """The object of `clustersim explain --json`."""
        prediction = self.prediction
        sensitivity = prediction.sensitivity
        return {
            "step_time_s": prediction.step_time_s,
            "mfu": prediction.mfu,
            "waterfall": [loss.to_dict() for loss in self.losses],
            "binding": next(iter(sensitivity), None),
            "sensitivity": sensitivity,
            "hardware": [change.to_dict() for change in self.hardware],
            "plan": [change.to_dict() for change in self.plan],
        }


def explain(cluster: Cluster, workload: Workload) -> Explanation:
    """Predict a step, and the steps with single changes of hardware and plan.

    Raises DescriptionError where the plan cannot run on the cluster.
    """
    from simulator.simulation import simulate
    from simulator.sweeps.changes import Design
    from simulator.sweeps.upgrades import hardware_changes, plan_changes

    prediction = simulate(cluster, workload)
    design, step = Design(cluster, workload), prediction.step_time_s
    return Explanation(
        prediction,
        tuple(waterfall(prediction)),
        tuple(hardware_changes(design, step)),
        tuple(plan_changes(design, step)),
    )
