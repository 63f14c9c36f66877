"""What copies parameters out of the buffer they are gathered in, and gradients into the one they are summed from?

FSDP2 gathers all parameters of a unit into one buffer and copies each out of it before the unit computes; after its
backward it writes whole gradients, in the type that is summed, into the buffer that is reduced. Both copies run among
the kernels of the unit (torch.distributed.fsdp: foreach_all_gather_copy_out, foreach_reduce_scatter_copy_in).
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.program.setting import Setting
from simulator.program.sharding import gathers
from simulator.program.units import Unit
from simulator.workloads.operation import Operation
from simulator.workloads.operators import DTYPE_BYTES, MemoryBound


class Copies(NamedTuple):
    """Bytes that are read and written before and after the kernels of a unit; 0 where nothing is copied."""

    parameters: float = 0.0
    gradients_read: float = 0.0
    gradients_written: float = 0.0

    def before(self) -> list[Operation]:
        if not self.parameters:
            return []
        return [Operation("copy parameters", MemoryBound("copy", self.parameters, self.parameters))]

    def after(self) -> list[Operation]:
        if not self.gradients_read:
            return []
        return [Operation("copy gradients", MemoryBound("copy", self.gradients_read, self.gradients_written))]


NOTHING = Copies()


def copies_of(setting: Setting, unit: Unit, gathered: bool, reduced: bool) -> Copies:
    """The copies of a unit whose parameters were `gathered` for it, or whose gradients are `reduced` behind it."""
    if not setting.software.zero3_copies or not setting.shards_parameters or not (gathered or reduced):
        return NOTHING
    shared = gathers(setting, unit, "forward")
    count = sum(count for axis, count in shared if setting.grid.size(axis) > 1)
    made = DTYPE_BYTES[setting.workload.activation_dtype]
    return Copies(
        parameters=count * setting.gathered_size if gathered else 0.0,
        gradients_read=count * made if reduced else 0.0,
        gradients_written=count * setting.reduction_size if reduced else 0.0,
    )
