"""Are the modules to recompute those of the model?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.description.faults import listing, suggestion
from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


def check_recompute(workload: Workload) -> Faults:
    """Modules to recompute are among those of the model."""
    plan, known = workload.plan, workload.model.recomputable
    if plan.recompute == "selective":
        for module in plan.recompute_modules:
            if module not in known:
                hint = suggestion(module, known)
                yield (
                    "plan.recompute_modules",
                    f"unknown module {module!r}{hint} (this model has: {listing(known)})",
                )
    if plan.recompute == "none" and plan.recompute_layers:
        yield "plan.recompute_layers", "has no effect with recompute: none"
