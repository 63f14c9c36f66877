"""How data-parallel replicas agree: who exchanges what with whom, how often, and in which form gradients travel."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.description.quantities import BytesPerSecond, Fraction


class Compression(Description):
    """How gradients are made smaller before they are summed."""

    ratio: Fraction = Field(
        default=1.0, gt=0, description="Bytes sent per byte of gradient, indices included."
    )
    reducible: bool = Field(
        default=True,
        description="Compressed gradients can be added up as they are (sketches, low rank, homomorphic codecs): the "
        "all-reduce carries them. Else everybody gathers everybody's and adds up after decoding (top-k).",
    )
    encode: BytesPerSecond | None = Field(
        default=None, description="Gradient bytes per second of the GPU's encoder; null: it costs nothing."
    )
    decode: BytesPerSecond | None = Field(
        default=None,
        description="Gradient bytes per second of the decoder, one rank's gradients at a time; null: it costs nothing.",
    )
    error_feedback: bool = Field(
        default=False,
        description="What was not sent stays for the next step: one more copy of the gradients.",
    )


class Synchronisation(Description):
    """When replicas agree on parameters, and what they exchange for it."""

    scheme: Literal["bsp", "local", "groups", "gossip", "backup", "asp"] = Field(
        default="bsp",
        description="bsp: all sum up gradients in every step; local: each updates alone, parameters are averaged every "
        "`every` steps (local SGD); groups: parameters are averaged in small groups that shift from step to step "
        "(DS-Sync); gossip: parameters go to `neighbours` others (D-PSGD); backup: as bsp, but the last `backup` "
        "replicas are not waited for (Chen et al. 2016); asp: each replica sends its gradients to servers and goes on "
        "with whatever parameters it finds there.",
    )
    dense: Literal["collectives", "servers"] = Field(
        default="collectives",
        description="How gradients are summed: by collectives; or by servers on the hosts, which also update them.",
    )
    sparse: Literal["dense", "gathered", "servers"] = Field(
        default="dense",
        description="Gradients of tables: as any others, whole tables of mostly zeros; gathered: the rows that were "
        "met, from all replicas; servers: tables are on servers, which rows come from and go to.",
    )
    servers: int | None = Field(
        default=None, gt=0, description="Nodes whose hosts hold parameters, the first ones; all if left out."
    )
    table_parts: int | None = Field(
        default=None,
        gt=0,
        description="Pieces that tables are cut into: no more servers than that hold rows. As many as servers if left "
        "out.",
    )
    local_aggregation: bool = Field(
        default=False,
        description="GPUs of a node add up what they send to servers, and share what comes back (Parallax).",
    )
    every: int = Field(default=1, gt=0, description="local: steps from one average to the next.")
    group: int | None = Field(default=None, gt=1, description="groups: replicas in a group.")
    shuffle: Literal["rotate", "stride"] = Field(
        default="rotate",
        description="groups: neighbours, in every second step shifted by half a group; or neighbours, then every "
        "`group`-th, then every `group`^2-th, ..., so that all have met after as many steps.",
    )
    neighbours: int = Field(
        default=2, gt=0, description="gossip: replicas on both sides that parameters go to in every step."
    )
    backup: int = Field(
        default=0, ge=0, description="backup: replicas whose gradients are dropped, the slowest of each step."
    )
    wire_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8"] | None = Field(
        default=None,
        description="Type in which gradients are sent and added up; that in which they are summed if left out.",
    )
    compression: Compression = Field(
        default=Compression(), description="How gradients are made smaller before they are summed."
    )

    @property
    def averages_parameters(self) -> bool:
        """Replicas take steps of their own and mix parameters, instead of gradients."""
        return self.scheme in ("local", "groups", "gossip")

    @property
    def uses_servers(self) -> bool:
        return "servers" in (self.dense, self.sparse)

    @property
    def what(self) -> str:
        """The scheme, and servers or rows where there are any, for messages."""
        others = (f"{key}: {value}" for key, value in (("dense", self.dense), ("sparse", self.sparse)))
        return ", ".join(
            [self.scheme, *(one for one in others if not one.endswith(("collectives", "dense")))]
        )

    @property
    def has_bound(self) -> bool:
        """Whether the closed-form lower bound of a step knows the scheme."""
        return self.scheme == "bsp" and self.dense == "collectives" and self.sparse == "dense"

    @property
    def encodes(self) -> bool:
        """Whether gradients travel in another form than they are summed in, for all that is known without types."""
        return self.wire_dtype is not None or self.compression != Compression()

    def num_shuffles(self, replicas: int) -> int:
        """Steps after which the groups are the first again."""
        if self.group is None or self.group >= replicas:
            return 1
        if self.shuffle == "rotate":
            return 2
        return len(strides(replicas, self.group))


def strides(replicas: int, group: int) -> list[tuple[int, int]]:
    """(distance between members, size) of the groups of each step under `stride`; the last may be smaller.

    Raises ValueError where the sizes do not multiply to the replicas.
    """
    found, distance = [], 1
    while distance < replicas:
        rest = replicas // distance
        size = min(group, rest)
        if rest % size:
            raise ValueError(f"{replicas} replicas are not divided by groups of {group} again and again")
        found.append((distance, size))
        distance *= size
    return found


def offsets(neighbours: int, replicas: int) -> list[int]:
    """How far along the ring of replicas each neighbour is: 1, -1, 2, -2, ..., everybody once."""
    found: dict[int, int] = {}
    for distance in range(1, replicas):
        for offset in (distance, -distance):
            found.setdefault(offset % replicas, offset)
    return list(found.values())[:neighbours]
