"""The prices that a bound needs, each found once: per kind of layer, per stage, and per transfer between stages."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives import (
    CollectiveCalibration,
    CollectiveCost,
    GroupShape,
    collective_cost,
    library_for,
)
from simulator.costs.software import SoftwareProfile, load_software
from simulator.hardware.topology import build_topology
from simulator.program.schedules import SCHEDULES
from simulator.program.setting import Setting
from simulator.ranks.grid import Grid
from simulator.sweeps.alone import AloneCommunicators, GridTransfers
from simulator.sweeps.layer_prices import LayerPrices, layer_bytes
from simulator.sweeps.layouts import Layout, layout
from simulator.sweeps.plan_table import LAYOUTS, PlanTable
from simulator.sweeps.stage_prices import CHUNK_QUANTITIES, QUANTITIES, StagePrices, stage_bytes
from simulator.sweeps.stage_traffic import copies, data_axes, stage_traffic
from simulator.sweeps.traffic import Crowd
from simulator.workloads.modules.vocabulary import shareable
from simulator.workloads.operators import DTYPE_BYTES

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
from simulator.workloads.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PriceBook:
    """Prices of plans of one workload on one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        library: CollectiveCalibration | None = None,
        software: Callable[[str], SoftwareProfile] = load_software,
    ) -> None:
        found = library or library_for(cluster.node_groups[0].node, cluster.software)
        self.software, self.threads = software, found.threads or 1

        def cost(op: str, size: float, shape: GroupShape) -> CollectiveCost:
            return collective_cost(op, size, shape, found)

        self.cluster, self.workload = cluster, workload
        self.narrow = DTYPE_BYTES[workload.precision] < DTYPE_BYTES[workload.activation_dtype]
        self.gpus = tuple(dict.fromkeys(group.node.gpu for group in cluster.node_groups))
        self.capacity = min(gpu.memory.total for gpu in self.gpus)
        self.communicators = AloneCommunicators(build_topology(cluster), cost)
        self._layouts: dict[tuple[int, int, int, int, int], Layout] = {}
        self._rows: dict[Hashable, Floats] = {}
        self._crowds: dict[tuple[Grid, tuple[str, ...], tuple[str, ...]], Crowd] = {}

    # --- columns of indices into arrays of prices ---------------------------------------------------------------------

    def layer_prices(self, table: PlanTable) -> tuple[Floats, Ints]:
        """Distinct rows [n, quantities, kinds] of LayerPrices, and which of them each plan has."""
        keys = self._shard_keys(table)
        groups = self._group_numbers(table, ("tp", "cp", "ep", "etp"))
        keys |= {f"group {axis}": numbers for axis, numbers in groups.items()}
        return self._gathered("layer", table, keys, self._layer_prices)

    def _layer_prices(self, table: PlanTable, index: int) -> Floats:
        setting, transfers = self.setting(table, index)
        return LayerPrices.of(setting, self.layout(table, index).kinds, self.gpus, transfers).values

    def layer_bytes(self, table: PlanTable) -> tuple[Floats, Ints]:
        """Distinct rows [n, quantities, kinds] of bytes of layers, and which of them each plan has."""

        def price(part: PlanTable, index: int) -> Floats:
            return layer_bytes(self.setting(part, index)[0], self.layout(part, index).kinds)

        return self._gathered("layer bytes", table, self._shard_keys(table), price)

    def _shard_keys(self, table: PlanTable) -> dict[str, Ints]:
        """What a GPU's share of a layer depends on."""
        names = ("variant", "tp", "cp", "ep", "sequence_parallel", "recompute", "micro_batch")
        keys = {key: table[key] for key in names} | {"piped": (table["pp"] > 1).astype(np.int64)}
        keys["casts"] = (table["zero"] == 3).astype(np.int64) * self.narrow  # which gathers make unnecessary
        return keys | {"accumulates": (table.num_micro_batches > 1).astype(np.int64)}

    def stage_bytes(self, table: PlanTable) -> tuple[Floats, Ints]:
        """Distinct rows [n, quantities, stages] of bytes of stages; the plans must share their layout."""

        def price(part: PlanTable, index: int) -> Floats:
            return stage_bytes(self.setting(part, index)[0], self.layout(part, index))

        names = ("variant", "tp", "cp", "ep", "pp", "vpp", "layout", "zero")
        return self._gathered("stage bytes", table, {key: table[key] for key in names} | _order(table), price)

    def stage_prices(self, table: PlanTable) -> tuple[Floats, Floats, Ints]:
        """Distinct rows [n, quantities, stages] and [n, quantities, contents] of StagePrices, and each plan's.

        The plans must share their layout.
        """
        names = ("variant", "tp", "ep", "pp", "vpp", "layout", "zero")
        keys = {key: table[key] for key in names} | _order(table)
        groups = self._group_numbers(table, ("dp_cp", "edp"))
        keys |= {f"group {axis}": numbers for axis, numbers in groups.items()}
        rows, which = self._gathered("stage", table, keys, self._stage_prices)
        stages, contents = table["pp"][0] * len(QUANTITIES), len(CHUNK_QUANTITIES)
        per_stage = rows[:, :stages].reshape(len(rows), len(QUANTITIES), -1)
        return per_stage, rows[:, stages:].reshape(len(rows), contents, -1), which

    def _stage_prices(self, table: PlanTable, index: int) -> Floats:
        setting, transfers = self.setting(table, index)
        found = StagePrices.of(setting, self.layout(table, index), self.gpus, transfers)
        return np.concatenate([found.values.ravel(), found.chunks.ravel()])

    def traffic(self, table: PlanTable) -> tuple[Floats, Ints]:
        """Distinct rows [n, WINDOWS, MOST_LINKS] of busy seconds of links; the plans must share their layout."""
        names = ["variant", "tp", "cp", "ep", "pp", "vpp", "layout", "zero"]
        if any(variant.offload.activations for variant in table.variants):
            names += ["sequence_parallel", "recompute", "micro_batch"]

        def price(part: PlanTable, index: int) -> Floats:
            setting, transfers = self.setting(part, index)
            key = (transfers.grid, data_axes(setting), copies(setting))
            if key not in self._crowds:
                self._crowds[key] = Crowd(self.communicators, *key)
            return stage_traffic(setting, self.layout(part, index), self._crowds[key])

        return self._gathered("traffic", table, {key: table[key] for key in names} | _order(table), price)

    def hops(self, table: PlanTable, size: Floats) -> tuple[Floats, Ints]:
        """Distinct rows [n, 2, stages]: seconds of a transfer of `size` bytes to the next and to the last stage."""
        sizes, size_index = np.unique(size, return_inverse=True)

        def price(part: PlanTable, index: int) -> Floats:
            _, transfers = self.setting(part, index)
            bytes_sent = float(size[index])
            return np.stack([transfers.hops(+1, bytes_sent), transfers.hops(-1, bytes_sent)])

        keys = {"tp": table["tp"], "cp": table["cp"], "pp": table["pp"], "variant": table["variant"]}
        return self._gathered("hop", table, keys | {"size": size_index.ravel()}, price, sizes)

    def barrier(self, table: PlanTable) -> Floats:
        """Seconds in which every rank of a replica learns a number, per plan."""

        def price(part: PlanTable, index: int) -> Floats:
            _, transfers = self.setting(part, index)
            return np.array(transfers.latency("model", "all_reduce", 4.0))

        keys = {key: table[key] for key in ("tp", "cp", "pp", "variant")}
        rows, which = self._gathered("barrier", table, keys, price)
        found: Floats = rows[which]
        return found

    def tied(self, table: PlanTable) -> Floats:
        """Seconds in which first and last stage add up their gradients of a shared embedding, per plan."""

        def price(part: PlanTable, index: int) -> Floats:
            setting, transfers = self.setting(part, index)
            size = shareable(self.workload.model.layers()[0], setting.shard) * setting.reduction_size
            return np.array(transfers.seconds("tied", "all_reduce", size))

        keys = {key: table[key] for key in ("tp", "cp", "ep", "pp", "variant")}
        rows, which = self._gathered("tied", table, keys, price)
        found: Floats = rows[which]
        return found

    def _gathered(
        self,
        what: str,
        table: PlanTable,
        keys: dict[str, Ints],
        price: Callable[[PlanTable, int], Floats],
        labels: Floats | None = None,
    ) -> tuple[Floats, Ints]:
        """The prices of the distinct combinations of `keys`, and which of them each plan has."""
        first, which = distinct(list(keys.values()))
        rows = []
        columns = [column[first].tolist() for column in keys.values()]
        for index, key in zip(first.tolist(), zip(*columns, strict=True), strict=True):
            full = (what, key if labels is None else (*key[:-1], float(labels[key[-1]])))
            if full not in self._rows:
                self._rows[full] = price(table, index)
            rows.append(self._rows[full])
        return np.stack(rows), which

    # --- what prices are made from ---

    def setting(self, table: PlanTable, index: int) -> tuple[Setting, GridTransfers]:
        job = table.job(index)
        grid = self.grid(table, index)
        count = job.num_micro_batches(table.num_gpus)
        setting = Setting(job, self.software(job.plan.software), grid, count, threads=self.threads)
        return setting, GridTransfers(self.communicators, grid)

    def grid(self, table: PlanTable, index: int) -> Grid:
        return Grid.of(table.plan(index), table.num_gpus)

    def layout(self, table: PlanTable, index: int) -> Layout:
        names = ("pp", "vpp", "layout", "schedule", "variant")
        pp, vpp, dealt, schedule, variant = (int(table[name][index]) for name in names)
        key = (pp, vpp, dealt, schedule, variant if LAYOUTS[dealt] == "own" else 0)
        if key not in self._layouts:
            placement = SCHEDULES[table.schedules[schedule]].placement(pp, vpp)
            split = table.plan(index).layers_per_stage
            self._layouts[key] = layout(self.workload.layers(), placement, split)
        return self._layouts[key]

    def _group_numbers(self, table: PlanTable, axes: tuple[str, ...]) -> dict[str, Ints]:
        """A number per plan and axis, equal where the process groups are the same."""
        first, which = distinct([table[key] for key in ("tp", "cp", "ep", "pp", "variant")])
        numbers = np.zeros((len(axes), len(first)), dtype=np.int64)
        for position, index in enumerate(first.tolist()):
            grid = self.grid(table, index)
            for row, axis in enumerate(axes):
                numbers[row, position] = self.communicators.groups(grid, axis).number
        return {axis: numbers[row][which] for row, axis in enumerate(axes)}


def _order(table: PlanTable) -> dict[str, Ints]:
    """The schedule as data parallelism sees it: in pipelines, GPipe's stages hold and send what those of 1F1B do."""
    known, codes = table.schedules, table["schedule"]
    if "gpipe" in known and "1f1b" in known:
        gpipe = (codes == known.index("gpipe")) & (table["pp"] > 1)
        codes = np.where(gpipe, known.index("1f1b"), codes)
    return {"schedule": codes}


def distinct(columns: list[Ints]) -> tuple[Ints, Ints]:
    """First position of each distinct combination of the columns' values, and which of them each row has."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        code = code * (high - low + 1) + (column - low)
        if code.max() > 1 << 40:  # keep the code small enough for the next column
            code = np.unique(code, return_inverse=True)[1].ravel()
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which.ravel()
