"""Do the formats of numbers go with one another?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.workloads.operators import DTYPE_BYTES
from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


def check_scaling(workload: Workload) -> Faults:
    """Formats with block scales have no other."""
    scaling, precision = workload.plan.scaling, workload.precision
    if precision in ("mxfp8", "nvfp4") and scaling not in (None, "block"):
        yield "plan.scaling", f"{precision} is scaled by block, not {scaling}"


def check_wide_ends(workload: Workload) -> Faults:
    """No more blocks at the ends than there are."""
    ends, blocks = workload.plan.wide_ends, workload.model.num_blocks
    if ends.first + ends.last > blocks:
        yield (
            "plan.wide_ends",
            f"{ends.first} first and {ends.last} last blocks, but the model has {blocks} blocks",
        )


def check_parameter_type(workload: Workload) -> Faults:
    """Narrow parameters rest where GEMMs read them as they are, which sharded ones do not."""
    plan = workload.plan
    if plan.parameter_dtype != "fp8":
        return
    if DTYPE_BYTES[workload.precision] >= 2:
        yield (
            "plan.parameter_dtype",
            f"fp8 needs GEMMs that read it, but precision is {workload.precision} (fp8, mxfp8 or nvfp4 would be right)",
        )
    if plan.zero == 3:
        yield "plan.parameter_dtype", "fp8 needs zero 0 to 2; for zero 3 see zero3.gather_dtype"
