"""The measured collectives that this package carries, and the machines they were measured on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import Field, TypeAdapter

from simulator.costs.collectives.group import GroupShape
from simulator.description.base import Description
from simulator.description.quantities import FROM_TEXT, BytesPerSecond, Seconds

FOLDER = Path(__file__).parent / "data" / "collectives"


class System(Description):
    """One machine whose collectives were measured."""

    calibration: str = Field(description="Catalogue name of the collective calibration that stands for it.")
    scale_up_kind: str = Field(default="nvswitch", description="Interconnect inside a node.")
    scale_up_bandwidth: BytesPerSecond = Field(description="Per GPU and direction.")
    in_network_reduction: bool = Field(default=False, description="The scale-up switch can add.")
    nic_bandwidth: BytesPerSecond | None = Field(default=None, description="Per node and direction.")
    hop_latency: Seconds = Field(default=0.0, description="Node to node, one way.")
    note: str = Field(default="", description="Where its figures come from.")


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


def group_on(system: System, ranks: int, nodes: int, dtype: str = "fp16") -> GroupShape:
    """The shape of `ranks` ranks on `nodes` nodes of a machine. NVLink SHARP cannot add 8-bit integers."""
    return GroupShape(
        num_ranks=ranks,
        num_nodes=nodes,
        scale_up_kind=system.scale_up_kind,
        in_network_reduction=system.in_network_reduction and dtype != "int8",
        scale_up_bandwidth=system.scale_up_bandwidth,
        nic_bandwidth=(system.nic_bandwidth or 0.0) if nodes > 1 else 0.0,
        hop_latency=system.hop_latency if nodes > 1 else 0.0,
    )


def measurements(names: Iterable[str] | None = None) -> list[Measurement]:
    """Every measurement on the machines named (all for None), in file order."""
    import pandas as pd

    wanted = set(systems() if names is None else names)
    rows: list[Measurement] = []
    for path in sorted(FOLDER.glob("*.csv.gz")):
        table = pd.read_csv(path, keep_default_na=False)
        for row in table[table.system.isin(wanted)].itertuples():
            group = group_on(systems()[row.system], int(row.ranks), int(row.nodes), row.dtype)
            rows.append(
                Measurement(
                    row.system,
                    row.op,
                    row.dtype,
                    group,
                    float(row.size_bytes),
                    float(row.seconds),
                    row.split,
                    row.source,
                )
            )
    return rows
