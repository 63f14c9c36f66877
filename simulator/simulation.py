"""One call from a cluster and a workload to a prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from simulator.costs.collectives import library_for
from simulator.costs.software import load_software
from simulator.description.faults import DescriptionError
from simulator.engine.engine import EngineOptions, execute
from simulator.program.builder import BuildOptions, Built, build
from simulator.results.predict import predict
from simulator.results.prediction import Prediction

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.workload import Workload

MODEL_VERSION = "1"
"""Changes whenever the same description may give another number."""


@dataclass(frozen=True)
class SimulationOptions:
    """`trace` keeps rates over time. The others switch exact savings, for tests."""

    trace: bool = False
    build: BuildOptions = field(default_factory=BuildOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)


def simulate(cluster: Cluster, workload: Workload, options: SimulationOptions | None = None) -> Prediction:
    """Predict one training step.

    Raises DescriptionError where the plan cannot run on the cluster (degrees, divisibility, unknown software). A plan
    that does not fit in memory is a result, not an error.
    """
    options = options or SimulationOptions()
    began = perf_counter()
    check_runs(cluster, workload)
    built = assemble(cluster, workload, options.build)
    timeline = execute(built.program, trace=options.trace, options=options.engine)
    meta = {
        "cluster": cluster.name,
        "workload": workload.name,
        "plan": workload.plan.model_dump(mode="json", exclude={"name", "sources", "kind"}),
        "version": MODEL_VERSION,
        "seed": 0,
        "engine": {
            "tasks": len(built.program.tasks),
            "events": timeline.num_events,
            "wall_s": perf_counter() - began,
            "folded_from": built.setting.grid.world,
        },
    }
    return predict(cluster, workload, built, timeline, meta)


def check_runs(cluster: Cluster, workload: Workload) -> None:
    """Raise DescriptionError with every reason why the workload cannot run on the cluster."""
    faults = workload.faults_on(cluster.num_gpus)
    for gpu in dict.fromkeys(group.node.gpu for group in cluster.node_groups):
        if workload.precision not in gpu.dense_peak:
            message = f"{gpu.name or 'the GPU'} has no {workload.precision} peak (it has {', '.join(gpu.dense_peak)})"
            faults.append(("precision", message))
    if faults:
        raise DescriptionError(workload.fault(key, message) for key, message in faults)


def assemble(cluster: Cluster, workload: Workload, options: BuildOptions | None = None) -> Built:
    """The program of one step, with the software and collective library that the descriptions name."""
    software = load_software(workload.plan.software)
    try:
        library = library_for(cluster.node_groups[0].node, cluster.software)
    except ValueError as error:  # nothing measured stands in for this hardware
        raise DescriptionError([cluster.fault("software", str(error))]) from None
    return build(cluster, workload, software, library, options or BuildOptions())
