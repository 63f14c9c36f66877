"""What is measured of a collective library on one GPU generation: latencies and rates per algorithm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from simulator.costs.collectives.algorithm import ALGORITHMS, OPERATIONS
from simulator.costs.collectives.tuning import Tuner
from simulator.description.base import Description, Named
from simulator.description.quantities import Bytes, BytesPerSecond, Fraction, Seconds


class Protocol(Description):
    """One way of moving bytes (NCCL: LL, LL128, Simple) under one algorithm."""

    base: Seconds = Field(description="Seconds from the start of the kernel to its end with nothing to do.")
    hop: Seconds = Field(description="Seconds per dependent hop between GPUs of one node.")
    network_base: Seconds = Field(
        default=0.0, description="What a group that spans nodes pays once more (proxies, registration)."
    )
    network_hop: Seconds = Field(
        default=0.0,
        description="Seconds of software per dependent hop between nodes, besides the network's latency.",
    )
    network_trips: float = Field(
        default=1.0,
        ge=0.0,
        description="How often a hop between nodes waits for the network's one-way latency: once where flags "
        "travel with the data, more where the receiver grants buffers and the sender confirms.",
    )
    multi_node_hop: Seconds | None = Field(
        default=None,
        description="The same as hop in a group that spans nodes, if the library runs it otherwise there.",
    )
    scale_up: Fraction = Field(description="Largest achieved rate as a fraction of the scale-up bandwidth.")
    nic: Fraction = Field(
        default=1.0, description="Largest achieved rate as a fraction of the NICs' bandwidth."
    )
    overlap: float = Field(
        default=1.0,
        gt=0.0,
        description="Exponent q of (hops^q + transfer^q)^(1/q) on one node: 1 adds the two, more hides the "
        "shorter one, less lets them hinder each other. Across nodes `network_overlap` counts.",
    )


class OperationFactors(Description):
    """How an operation differs from the plain movement of its bytes."""

    scale_up: float = Field(default=1.0, gt=0.0, description="Factor on the scale-up rate.")
    nic: float = Field(default=1.0, gt=0.0, description="Factor on the NIC rate.")
    local: float | None = Field(
        default=None,
        gt=0.0,
        description="Rate of a rank's copy of its own part, as a fraction of the library's scale_up_bandwidth.",
    )


class CollectiveCalibration(Named):
    """Parameters of one library on one interconnect generation; `algorithms` → protocol → rates."""

    kind: Literal["collectives"] = "collectives"
    description: str = Field(default="", description="What it was measured on.")
    library: str = Field(description="nccl, rccl, gloo, ...")
    architecture: str = Field(description="GPU architecture: volta, ampere, hopper, ...; cpu for gloo.")
    interconnect: str = Field(description="Scale-up kind: nvswitch, nvlink_mesh, pcie, none.")
    gpus: tuple[str, ...] = Field(
        default=(), description="GPUs (catalogue names) it is taken for before others of the architecture."
    )
    nics: tuple[str, ...] = Field(
        default=(),
        description="NICs (catalogue names) whose nodes take it before all others; where any are named, nodes with "
        "other NICs take it last.",
    )
    scale_up_bandwidth: BytesPerSecond | None = Field(
        default=None, description="Per GPU and direction on the measured machine; null where there was none."
    )
    algorithms: dict[str, dict[str, Protocol]] = Field(description="Algorithm → protocol → rates.")
    choices: dict[str, tuple[str, ...]] = Field(
        description="Operation → algorithms the library picks from. One name forces it."
    )
    operations: dict[str, OperationFactors] = Field(
        default_factory=dict, description="Operation → factors; plain where left out."
    )
    tuner: Tuner | None = Field(
        default=None,
        description="What the library's own model goes by when it takes a protocol (on one node) or an algorithm "
        "(across nodes); null: it takes the fastest.",
    )
    in_network_min_ranks: int = Field(
        default=2, ge=1, description="Fewest ranks of a node for in-network reduction."
    )
    crowding: float = Field(
        default=0.0,
        ge=0.0,
        description="A rank's share of the paths inside a node falls with (ranks per node / 2)^-crowding: 0 "
        "behind a switch, above it where ranks share a PCIe root that the node file does not describe.",
    )
    host_cache: Bytes | None = Field(
        default=None,
        description="Where more than two GPUs of a node pass messages on through memory of the host: how much of it "
        "they may use at a time and still find it in the host's caches. null: they do not.",
    )
    host_cached: float = Field(
        default=1.0, ge=1.0, description="Factor on the rate of rings whose buffers stay in `host_cache`."
    )
    network_overlap: float = Field(
        default=1.0,
        gt=0.0,
        description="Exponent q of (hops^q + transfer^q)^(1/q) across nodes: 1 adds the two; more where messages wait "
        "for a receiver to wake while their sender streams on (TCP on the host's cores).",
    )
    network_rings: int | None = Field(
        default=None,
        ge=1,
        description="Most members of one node whose NICs the library's rings and trees use; null for all.",
    )
    gpu_share: Fraction = Field(
        description="Fraction of a GPU's compute rate that a running collective takes from overlapped kernels"
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="Collectives of one group that run at a time, on as many threads of the host; null: one after "
        "the other, as on a stream.",
    )
    request: Seconds | None = Field(
        default=None,
        description="Where a message leaves only when its receiver has asked for it, on the one connection of the "
        "two ranks: how long the request travels, behind whatever its sender has been sending that way. null: "
        "messages leave when they are ready.",
    )
    transferred_from: str | None = Field(
        default=None,
        description="The calibration these parameters were carried over from; null where measured.",
    )

    @model_validator(mode="after")
    def _known_names(self) -> CollectiveCalibration:
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise ValueError(f"unknown algorithm {name!r} (known: {', '.join(sorted(ALGORITHMS))})")
        for op, names in self.choices.items():
            if op not in OPERATIONS:
                raise ValueError(f"unknown operation {op!r} (known: {', '.join(OPERATIONS)})")
            for name in names:
                if name not in self.algorithms:
                    raise ValueError(f"{op} may choose {name!r}, for which there are no rates")
        return self

    def forced(self, op: str, algorithm: str) -> CollectiveCalibration:
        """A copy in which `op` always runs as `algorithm`. ValueError where there are no rates for it."""
        if algorithm not in self.algorithms:
            raise ValueError(
                f"{self.name} has no rates for {algorithm!r} (it has {', '.join(self.algorithms)})"
            )
        return self.model_copy(update={"choices": {**self.choices, op: (algorithm,)}})
