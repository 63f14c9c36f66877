"""The measured collectives that this package carries, and the machines they were measured on."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import Field, TypeAdapter

from simulator.costs.collectives.group import GroupShape
from simulator.costs.collectives.library import CollectiveCalibration
from simulator.description.base import Description
from simulator.description.quantities import FROM_TEXT, BytesPerSecond, Fraction, Seconds
from simulator.hardware.rings import ring_usage

FOLDER = Path(__file__).parent / "data" / "collectives"


class System(Description):
    """One machine whose collectives were measured."""

    calibration: str = Field(description="Catalogue name of the collective calibration that stands for it.")
    scale_up_kind: str = Field(default="nvswitch", description="Interconnect inside a node.")
    scale_up_bandwidth: BytesPerSecond = Field(description="Per GPU and direction.")
    links: tuple[tuple[int, int, int], ...] = Field(
        default=(), description="nvlink_mesh: [GPU, GPU, lanes]; measured groups are its first GPUs."
    )
    in_network_reduction: bool = Field(default=False, description="The scale-up switch can add.")
    nic_bandwidth: BytesPerSecond | None = Field(default=None, description="Per node and direction.")
    nic_efficiency: Fraction = Field(
        default=1.0, description="What this machine's network stack achieves of its line rate (1: as usual)."
    )
    hop_latency: Seconds = Field(default=0.0, description="Node to node, one way.")
    all_reduce: str | None = Field(
        default=None, description="The algorithm that all-reduce was forced to (NCCL_ALGO)."
    )
    fit_network: bool = Field(
        default=False, description="Its tune rows calibrate what a library pays between nodes."
    )
    fit_hop_latency: bool = Field(
        default=False, description="hop_latency was fitted along with them: nobody states it."
    )
    note: str = Field(default="", description="Where its figures come from.")

    def library(self, calibration: CollectiveCalibration) -> CollectiveCalibration:
        """The calibration with what was forced on this machine."""
        return calibration.forced("all_reduce", self.all_reduce) if self.all_reduce else calibration


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured collective: `size` in bytes by the conventions of operators.Collective, `seconds` per call.

    `split` is tune (parameters may be fitted on it), held (only judged on) or check (looked at, not scored).
    """

    system: str
    op: str
    dtype: str
    group: GroupShape
    size: float
    seconds: float
    split: str
    source: str


@lru_cache(maxsize=1)
def systems() -> dict[str, System]:
    """Machine name → machine, from `systems.yaml`."""
    import yaml

    tree = yaml.safe_load((FOLDER / "systems.yaml").read_text())
    return TypeAdapter(dict[str, System]).validate_python(tree, context=FROM_TEXT)


def _mesh_lanes(links: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, ...], ...]:
    """[GPU][GPU] lanes between each pair."""
    num_gpus = 1 + max(max(a, b) for a, b, _ in links)
    between = {(a, b): lanes for a, b, lanes in links} | {(b, a): lanes for a, b, lanes in links}
    return tuple(tuple(between.get((a, b), 0) for b in range(num_gpus)) for a in range(num_gpus))


def group_on(system: System, ranks: int, nodes: int, dtype: str = "fp16") -> GroupShape:
    """The shape of `ranks` ranks on `nodes` nodes of a machine. NVLink SHARP cannot add 8-bit integers."""
    scale_up = system.scale_up_bandwidth
    if system.links and nodes == 1:
        lanes = _mesh_lanes(system.links)
        scale_up *= ring_usage(tuple(row[:ranks] for row in lanes[:ranks]))[0] / sum(lanes[0])
    return GroupShape(
        num_ranks=ranks,
        num_nodes=nodes,
        scale_up_kind=system.scale_up_kind,
        in_network_reduction=system.in_network_reduction and dtype != "int8",
        scale_up_bandwidth=scale_up,
        nic_bandwidth=(system.nic_bandwidth or 0.0) * system.nic_efficiency if nodes > 1 else 0.0,
        hop_latency=system.hop_latency if nodes > 1 else 0.0,
    )


def measurements(names: Iterable[str] | None = None) -> list[Measurement]:
    """Every measurement on the machines named (all for None), in file order."""
    wanted = set(systems() if names is None else names)
    rows: list[Measurement] = []
    for path in sorted(FOLDER.glob("*.csv.gz")):
        with gzip.open(path, "rt", newline="") as text:
            rows += [_measurement(row) for row in csv.DictReader(text) if row["system"] in wanted]
    return rows


def _measurement(row: dict[str, str]) -> Measurement:
    return Measurement(
        system=row["system"],
        op=row["op"],
        dtype=row["dtype"],
        group=group_on(systems()[row["system"]], int(row["ranks"]), int(row["nodes"]), row["dtype"]),
        size=float(row["size_bytes"]),
        seconds=float(row["seconds"]),
        split=row["split"],
        source=row["source"],
    )
