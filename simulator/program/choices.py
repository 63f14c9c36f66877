"""How does the software carry out the plan: what it shares out and overlaps, in which types, on which schedule?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simulator.costs.software import SoftwareProfile
from simulator.program.schedules import Schedule, find_schedule
from simulator.program.schedules.placement import Placement
from simulator.workloads.operators import DTYPE_BYTES
from simulator.workloads.plan import Plan
from simulator.workloads.workload import Workload


@dataclass
class Choices:
    """The plan, with what it leaves open as the software decides it."""

    workload: Workload
    software: SoftwareProfile

    @cached_property
    def plan(self) -> Plan:
        return self.workload.plan

    @cached_property
    def shards_parameters(self) -> bool:
        return self.plan.zero == 3

    @cached_property
    def num_slices(self) -> int:
        """Units that a layer is cut into."""
        return self.plan.zero3.slices if self.shards_parameters else 1

    @cached_property
    def gathers_ahead(self) -> bool:
        """Updated parameters are gathered behind the next forward (ZeRO-1 and 2)."""
        at_home = self.plan.offload.optimizer == "none"
        return self.plan.zero in (1, 2) and at_home and self._overlaps("dp_parameters")

    @cached_property
    def gathers_by_broadcast(self) -> bool:
        by_broadcast = self.plan.zero in (1, 2) and self.software.zero1_gather == "broadcast"
        return by_broadcast and not self.gathers_ahead

    @cached_property
    def overlaps_gradients(self) -> bool:
        return self._overlaps("dp_gradients")

    @cached_property
    def reduces_each_micro_batch(self) -> bool:
        """Sharded gradients cannot be accumulated locally."""
        return self.plan.zero >= 2

    @cached_property
    def exchanges_behind(self) -> bool:
        """Tokens of one micro-batch travel to and from experts while another's are computed on."""
        return self.plan.overlap.ep

    @cached_property
    def overlaps_pipeline(self) -> bool:
        return self._overlaps("pp")

    def _overlaps(self, what: str) -> bool:
        asked = getattr(self.plan.overlap, what)
        return bool(getattr(self.software.overlap, what) if asked is None else asked)

    @cached_property
    def offloads_activations(self) -> bool:
        return self.plan.offload.activations > 0.0

    @cached_property
    def reduction(self) -> str:
        plain = self.plan.zero == 0 or (self.plan.zero == 1 and self.software.zero1 == "all_reduce")
        return "all_reduce" if plain else "reduce_scatter"

    @cached_property
    def host_waits(self) -> bool:
        """The host waits for every pipeline transfer before it launches more."""
        return self.software.synchronous_p2p and self.plan.pp > 1

    @cached_property
    def host_gathers(self) -> bool:
        """The host takes part in gathers and reductions of sharded parameters, and computes nothing meanwhile."""
        return self.shards_parameters and self.software.zero3_overhead > 0.0

    @cached_property
    def cuts_boundaries(self) -> bool:
        """Whether boundary tensors of which tensor-parallel ranks have copies are cut for the way."""
        asked = self.plan.scatter_gather
        return self.software.scatter_gather if asked is None else asked

    @cached_property
    def scatter(self) -> int:
        """Ways in which a boundary tensor is cut before it is sent and gathered after (Narayanan et al. 2021)."""
        return (
            self.plan.tp
            if self.cuts_boundaries and self.plan.tp > 1 and not self.plan.sequence_parallel
            else 1
        )

    # --- bytes per element -------------------------------------------------------------------------------------------

    @cached_property
    def reduction_size(self) -> float:
        """Bytes per gradient element where it is summed."""
        return DTYPE_BYTES[self.workload.gradient_dtype]

    @cached_property
    def wire_size(self) -> float:
        """Bytes per gradient element on the wire, before compression."""
        return DTYPE_BYTES[self.plan.synchronisation.wire_dtype or self.workload.gradient_dtype]

    @cached_property
    def encodes_gradients(self) -> bool:
        """Whether kernels prepare gradients for the wire."""
        codec = self.plan.synchronisation.compression
        coded = (
            codec.ratio < 1.0 or codec.encode is not None or codec.decode is not None or not codec.reducible
        )
        return coded or self.wire_size != self.reduction_size

    @cached_property
    def averaged_size(self) -> float:
        """Bytes per parameter that replicas average."""
        return 4.0 if self.workload.master_weights else DTYPE_BYTES[self.workload.parameter_dtype]

    @cached_property
    def parameter_size(self) -> float:
        """Bytes per parameter element on the wire: gathered in the type that compute uses."""
        if self.shards_parameters:
            return DTYPE_BYTES[self.plan.zero3.gather_dtype or self.workload.activation_dtype]
        return DTYPE_BYTES[self.workload.parameter_dtype]

    @cached_property
    def gathered_size(self) -> float:
        """Bytes per gathered parameter in memory."""
        widened = self.plan.zero3.gather_dtype == "int8"  # which no kernel computes in
        return DTYPE_BYTES[self.workload.activation_dtype] if widened else self.parameter_size

    # --- pipeline ----------------------------------------------------------------------------------------------------

    @cached_property
    def schedule(self) -> Schedule:
        found = find_schedule(self.plan.schedule_name)
        if found is None:
            raise KeyError(self.plan.schedule_name)  # the plan was not checked
        return found

    @cached_property
    def placement(self) -> Placement:
        """Which part of the model stands where."""
        return self.schedule.placement(self.plan.pp, self.plan.vpp)

    @cached_property
    def num_chunks(self) -> int:
        """Model chunks on every stage."""
        return len(self.placement.parts[0])

    @cached_property
    def receives_late(self) -> bool:
        """A stage asks for its input only when it has nothing left to compute.

        Interleaved schedules exchange in lockstep with the sender, ahead of need.
        """
        return not self.overlaps_pipeline and self.num_chunks == 1

    @cached_property
    def overlaps_steps(self) -> bool:
        """A stage goes on to the next step while others are still in this one."""
        return self.plan.overlap.steps or not self.schedule.flushes
