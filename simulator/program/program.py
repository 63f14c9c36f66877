"""What is executed: tasks on in-order lanes, drawing on shared resources (the narrow waist).

Builders above only create programs; the engine below only executes them. A task is a run of phases carried out
back to back while the task holds its lanes; nearly every task has one phase, and a chain of kernels that nothing
can interleave with is one task with many.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Draws = tuple[tuple[int, float], ...]
"""(resource id, amount drawn per unit of work) pairs, resource ids ascending and unique."""


Due = tuple[tuple[Hashable, float], ...]
"""(what was priced, part of a phase's seconds that changes as its own do) pairs; see `Phase`."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Something shared with a capacity per second: a link direction, a NIC, a GPU's SMs, CPU cores, a disk.

    `capacity` is in units per second (bytes/s for links, seconds-of-GPU per second, i.e. 1.0, for a GPU). `kind`
    groups resources for utilisation ("gpu", "scale_up", "nic", "leaf_spine", ...). `members` is how many identical
    physical resources this one stands for.
    """

    name: str
    kind: str
    capacity: float
    members: int = 1


@dataclass(frozen=True, slots=True)
class Lane:
    """A queue of one rank class: in order (CUDA-stream semantics), or `first_come`: in the order of becoming ready.

    A task stands in one first-come lane at most.
    """

    name: str
    rank_class: int
    first_come: bool = False


class Phase(NamedTuple):
    """A stretch of uniform work: `latency` seconds in which nothing is drawn, then `work` units.

    While working at rate r (units/s, at most `cap`), it draws r x amount from each resource in `draws`.
    `kind` attributes time (compute, recompute, tp, cp, ep, pp, dp, optimizer, launch, data, checkpoint, offload,
    other); `weight` is its max-min weight, relative to its own nominal rate: rates grow as weight x theta.
    `flops`, `hbm_bytes` and `due_to` are for accounting only: the last says what of the builder's sets how long the
    work takes (nothing: what it draws on). `lane` is the index into the task's lanes it is shown on.
    """

    kind: str
    label: str
    work: float
    draws: Draws = ()
    latency: float = 0.0
    cap: float = float("inf")
    weight: float = 1.0
    flops: float = 0.0
    hbm_bytes: float = 0.0
    lane: int = 0
    due_to: Due = ()


class MemoryChange(NamedTuple):
    """`amount` bytes of `kind` (parameters, gradients, activations, ...) on one rank class; negative frees."""

    rank_class: int
    kind: str
    amount: float


@dataclass(slots=True)  # not frozen: that would double the cost of making one, and steps have thousands
class Task:
    """One thing that runs. It starts when it heads all its `lanes` and all `deps` (task ids) have ended.

    `name` is what a picture calls it (forward, backward, ...); nothing depends on it.
    """

    phases: tuple[Phase, ...]
    lanes: tuple[int, ...]
    deps: tuple[int, ...] = ()
    at_start: tuple[MemoryChange, ...] = ()
    at_end: tuple[MemoryChange, ...] = ()
    micro_batch: int = -1
    name: str = ""

    @property
    def kind(self) -> str:
        return self.phases[0].kind if self.phases else "other"

    @property
    def label(self) -> str:
        return self.phases[0].label if self.phases else "barrier"


@dataclass(frozen=True, slots=True)
class CapacityChange:
    """At `time` the capacity of `resource` becomes `capacity` (straggler, background traffic, power cap)."""

    time: float
    resource: int
    capacity: float


@dataclass(slots=True)
class Program:
    """Tasks (the id is the index), the lanes they queue on and the resources they share.

    `queues[lane]` lists task ids in the order in which the lane runs them (a first-come lane: of equals); a task
    stands in the queue of each of its lanes. `initial_memory` is what is resident before the first task.
    """

    resources: list[Resource] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    queues: list[list[int]] = field(default_factory=list)
    capacity_changes: list[CapacityChange] = field(default_factory=list)
    initial_memory: list[MemoryChange] = field(default_factory=list)
    rank_classes: Sequence[str] = ()
    members: Sequence[int] = ()
    """How many ranks each rank class stands for."""
