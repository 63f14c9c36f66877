"""What do the ranks of each stage send for data parallelism, and move to and from their hosts, and when in a step?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.program import host_copies, sharding
from simulator.program.contents import units_of
from simulator.program.exchange import exchanges
from simulator.program.offload import offload_requests, state_size
from simulator.program.setting import Setting
from simulator.program.sharding import owned_parameters
from simulator.program.units import Placed, Unit, content_of, one_unit
from simulator.sweeps.layouts import Layout
from simulator.sweeps.traffic import MOST_LINKS, Crowd, Sent
from simulator.sweeps.unit_costs import gathered_each
from simulator.workloads.layers import Layer
from simulator.workloads.operators import DTYPE_BYTES

Floats = NDArray[np.float64]
WINDOWS = (
    "each",  # in every micro-batch
    "once",  # besides, in every step
    "ending",  # ... of that, after the first stage that is through has begun its last backward; or ended it
    "updating",  # after the norm
)


def data_axes(setting: Setting) -> tuple[str, ...]:
    """The axes of collectives of data parallelism."""
    groups = setting.plan.zero3
    names = ["dp_cp", "edp"]
    if setting.shards_parameters and groups.shard_group is not None:
        names += ["shard", "replicate", "eshard", "ereplicate"]
    if setting.shards_parameters and groups.secondary_group is not None:
        names.append("secondary")
    return tuple(names)


def copies(setting: Setting) -> tuple[str, ...]:
    """The operations of hosts in a step."""
    return tuple(op for _, op, _ in offload_requests(setting))


def stage_traffic(setting: Setting, layout: Layout, crowd: Crowd) -> Floats:
    """Busy seconds of links, shape [WINDOWS, MOST_LINKS]."""
    if not len(crowd.links):
        return np.zeros((len(WINDOWS), MOST_LINKS))
    windows: dict[str, dict[Sent, Floats]] = {window: {} for window in WINDOWS}
    for content, is_first in sorted(set(zip(*_places(layout), strict=True))):
        here = [one == (content, is_first) for one in zip(*_places(layout), strict=True)]
        times = np.bincount(np.flatnonzero(here) % layout.stages, minlength=layout.stages).astype(float)
        for window, counts in _Chunk(setting, layout.layers(content), is_first).sent().items():
            for sent, count in counts.items():
                windows[window][sent] = windows[window].get(sent, 0.0) + count * times
    return np.stack([crowd.seconds(windows[window]) for window in WINDOWS])


def _places(layout: Layout) -> tuple[list[int], list[bool]]:
    """By chunk and stage: the content there, and whether it is the stage's first chunk."""
    return layout.content.tolist(), [place < layout.stages for place in range(len(layout.content))]


@dataclass
class _Chunk:
    """What a rank that holds a chunk sends for it, by window; `is_first`: it is the first of its stage."""

    setting: Setting
    layers: Sequence[Layer]
    is_first: bool
    found: dict[str, Counter[Sent]] = field(default_factory=lambda: {window: Counter() for window in WINDOWS})

    def sent(self) -> dict[str, Counter[Sent]]:
        setting = self.setting
        placed = [Placed(layer, setting.shard) for layer in self.layers]
        units, whole = units_of(setting, placed), one_unit(placed)
        if setting.gathers_ahead:
            self._add("once", units, lambda unit: self._gather(unit, "forward"))
        if setting.shards_parameters:
            self._gathers_each(units)
        self._reductions(units, whole)
        if setting.plan.zero in (1, 2) and not setting.gathers_ahead and not setting.gathers_by_broadcast:
            self._add("updating", whole, lambda unit: self._gather(unit, "forward"))
        self._host(placed)
        return self.found

    def _add(self, window: str, units: Sequence[Unit], sent: Callable[[Unit], Iterator[Sent]]) -> None:
        alike = Counter(map(content_of, units))
        kinds = {content_of(unit): unit for unit in units}
        for key, times in alike.items():
            for one in sent(kinds[key]):
                self.found[window][one] += times

    def _gather(self, unit: Unit, direction: str) -> Iterator[Sent]:
        for axis, count in sharding.gathers(self.setting, unit, direction):
            yield axis, "all_gather", count * self.setting.parameter_size

    def _gathers_each(self, units: Sequence[Unit]) -> None:
        """Gathers of parameters in every micro-batch, and what comes from the hosts for them."""
        setting, tier = self.setting, self.setting.plan.offload.parameters
        places = gathered_each(setting, units, self.is_first)
        forward, backward = ([units[position] for position in each] for each in places)
        self._add("each", forward, lambda unit: self._gather(unit, "forward"))
        self._add("each", backward, lambda unit: self._gather(unit, "backward"))
        if tier != "none":
            gathered = [*forward, *backward]
            size = sum(owned_parameters(setting, u.layers) for u in gathered) * setting.parameter_size
            self._copy("each", "from_host", size)
            self._copy("each", "from_disk", size if tier == "nvme" else 0.0)

    def _reductions(self, units: Sequence[Unit], whole: Sequence[Unit]) -> None:
        setting = self.setting
        if setting.reduces_each_micro_batch:
            self._add("each", units, lambda unit: self._reduce(unit, False))
            return
        reduced = units if setting.overlaps_gradients else whole
        self._add("once", reduced, lambda unit: self._reduce(unit, True))
        if self.is_first or not setting.overlaps_gradients:
            self._add("ending", reduced, lambda unit: self._reduce(unit, True))

    def _reduce(self, unit: Unit, is_last: bool) -> Iterator[Sent]:
        for chain in exchanges(self.setting, unit, is_last):
            for one in chain:
                yield one.axis, one.op, one.size

    # --- host ---

    def _copy(self, window: str, op: str, size: float) -> None:
        if size > 0.0:
            self.found[window][host_copies.AXIS, op, size] += 1

    def _host(self, placed: Sequence[Placed]) -> None:
        """Activations that wait in host memory, gradients for a CPU that updates, and the update's state."""
        setting, plan = self.setting, self.setting.plan.offload
        waiting = sum(one.layer.offloaded_bytes(one.shard) for one in placed)
        self._copy("each", "to_host", waiting)
        self._copy("each", "from_host", waiting)
        owned = owned_parameters(setting, placed)
        if plan.optimizer == "none" or not owned:
            return
        states, on_disk = owned * state_size(setting), plan.optimizer_tier == "nvme"
        self._copy("updating", "from_disk", states if on_disk else 0.0)
        self._copy("updating", "to_disk", states if on_disk else 0.0)
        if plan.optimizer == "swap":
            self._copy("updating", "from_host", states)
            self._copy("updating", "to_host", states)
            return
        self._copy("once", "to_host", owned * setting.reduction_size)
        moved = 2 * states + owned * (setting.reduction_size + setting.parameter_size)
        self._copy("updating", "cpu_adam", moved)
        if plan.parameters == "none":
            self._copy("updating", "from_host", owned * DTYPE_BYTES[setting.workload.parameter_dtype])
