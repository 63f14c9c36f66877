"""What does the minicluster suite measure? Tables of cases, none of which any parameter was fitted on.

Fitted were collectives of 2, 4 and 8 ranks of 128 KiB, 512 KiB and 2 MiB at 100 Mb/s (`gloo-tcp`); no flow, no
concurrent collective and no training step ever was. The model of gloo's progress and of the strategies was developed
while looking at some of the steps, though: `StepCase.developed_on` tells which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.calibration.minicluster.flows import Flow

MIB = 1 << 20


@dataclass(frozen=True)
class Network:
    """A cluster of the catalogue with changes; what is measured on equal ones shares one minicluster."""

    cluster: str = "minicluster"
    gpus: int | None = None
    overrides: tuple[tuple[str, Any], ...] = ()


def switch(rate: int, gpus: int = 8) -> Network:
    """Nodes behind one switch at `rate` Mb/s."""
    return Network("minicluster", gpus, (("node.nic.bandwidth", f"{rate} Mb/s"),))


@dataclass(frozen=True)
class SharingCase:
    """Raw flows that meet on links."""

    name: str
    network: Network
    flows: tuple[Flow, ...]


@dataclass(frozen=True)
class CollectiveCases:
    """Collectives of these operations, group sizes and sizes (bytes), one at a time."""

    network: Network
    ops: tuple[str, ...]
    ranks: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class ContentionCase:
    """Jobs that start a collective each at the same time: (op, bytes, ranks)."""

    name: str
    network: Network
    jobs: tuple[tuple[str, int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class StepCase:
    """Training steps of gpt-mini with `changes`. Cases of one `group` are alternatives, whose order is judged."""

    strategy: str
    ranks: int
    network: Network
    changes: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""

    @property
    def developed_on(self) -> bool:
        """Whether its measured time was looked at while the model was made."""
        rate = dict(self.network.overrides).get("node.nic.bandwidth", "")
        fast = rate == "400 Mb/s" and self.strategy in ("DDP, buckets of 1 MiB", "FSDP2, prefetch")
        return rate == "100 Mb/s" or fast

    @property
    def name(self) -> str:
        rate = dict(self.network.overrides).get("node.nic.bandwidth", "")
        where = rate if self.network.cluster == "minicluster" else self.network.cluster.partition("-")[2]
        return f"{self.strategy}, {self.ranks} ranks, {where}"


@dataclass(frozen=True)
class Suite:
    sharing: tuple[SharingCase, ...]
    collectives: tuple[CollectiveCases, ...]
    contention: tuple[ContentionCase, ...]
    steps: tuple[StepCase, ...]
    num_steps: int
    num_warmups: int
    launches: int


FSDP = {"plan.zero": 3, "plan.overlap.dp_gradients": False}  # on CPUs FSDP2 waits for its reduce-scatters
STRATEGIES: dict[str, dict[str, Any]] = {
    "DDP": {},
    "DDP, buckets of 1 MiB": {"plan.bucket_size": "1 MiB"},
    "DDP, buckets of 300 kB": {"plan.bucket_size": "300 kB"},
    "FSDP2": {**FSDP, "plan.zero3.prefetch": 0},
    "FSDP2, prefetch": {**FSDP, "plan.zero3.prefetch": 1},
    "FSDP2, not resharded": {**FSDP, "plan.zero3.prefetch": 0, "plan.zero3.reshard_after_forward": False},
    "ZeRO-1": {"plan.zero": 1},
    "TP": {"plan.tp": "ranks"},
    "GPipe": {"plan.pp": "ranks", "plan.schedule": "gpipe", "plan.micro_batch": 2},
    "1F1B": {"plan.pp": "ranks", "plan.micro_batch": 2},
    "interleaved 1F1B": {"plan.pp": "ranks", "plan.vpp": 2, "plan.micro_batch": 2, "model.layers": 8},
    "CP, ring": {"plan.cp": "ranks"},
    "CP, all-gather": {"plan.cp": "ranks", "plan.context_exchange": "all_gather"},
    "CP, all-to-all": {"plan.cp": "ranks", "plan.context_exchange": "all_to_all"},
    "TP 2 x DP": {"plan.tp": 2},
    "1F1B 2 x DP": {"plan.pp": 2, "plan.micro_batch": 2},
    "CP 2 x DP": {"plan.cp": 2},
    "TP 2 x 1F1B 2": {"plan.tp": 2, "plan.pp": 2, "plan.micro_batch": 2},
}


def step(strategy: str, ranks: int, network: Network, group: str = "") -> StepCase:
    """The strategy over so many ranks; 8 ranks have twice the samples, so that each has some."""
    own = {key: ranks if value == "ranks" else value for key, value in STRATEGIES[strategy].items()}
    comparable = "model.layers" not in own
    return StepCase(
        strategy, ranks, network, {"global_batch": 4 * max(4, ranks), **own}, group if comparable else ""
    )


def steps(rate: int, ranks: int, strategies: tuple[str, ...]) -> tuple[StepCase, ...]:
    return tuple(step(name, ranks, switch(rate), f"{ranks} ranks, {rate} Mb/s") for name in strategies)


def _flows(*pairs: tuple[int, int], size: int = 6 * MIB) -> tuple[Flow, ...]:
    return tuple(Flow(source, destination, size) for source, destination in pairs)


FABRIC = Network("minicluster-leaf-spine", 8)
SPINES = Network("minicluster-two-spines", 8)
UNEVEN = Network("minicluster-uneven")

SHARING = (
    SharingCase("one flow", switch(100), _flows((0, 1))),
    SharingCase("two into one node", switch(100), _flows((0, 2), (1, 2))),
    SharingCase("three into one node", switch(100), _flows((0, 3), (1, 3), (2, 3))),
    SharingCase("two out of one node", switch(100), _flows((0, 1), (0, 2))),
    SharingCase("both ways", switch(100), _flows((0, 1), (1, 0))),
    SharingCase("chain of bottlenecks", switch(100), _flows((0, 2), (1, 2), (1, 3), (4, 3))),
    SharingCase("one into a slow node", UNEVEN, _flows((0, 3), (0, 1))),
    SharingCase("three over the spine", FABRIC, _flows((0, 4), (1, 5), (2, 6))),
    SharingCase("four over the spine", FABRIC, _flows((0, 4), (1, 5), (2, 6), (3, 7))),
    SharingCase("spine and a full port", FABRIC, _flows((0, 4), (1, 4), (2, 6), (3, 2))),
    SharingCase("hashed over two spines", SPINES, _flows((0, 4), (1, 5), (2, 6), (3, 7))),
)

ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")
COLLECTIVES = (
    CollectiveCases(switch(100), ALL, (2, 4, 8), (256 << 10, MIB)),
    CollectiveCases(switch(100), ALL, (3, 6), (384 << 10,)),
    CollectiveCases(switch(200), ALL, (2, 4, 8), (768 << 10,)),
)

FAR = ((0, 4), (1, 5), (2, 6), (3, 7))


def _all_reduces(size: int, *groups: tuple[int, ...]) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    return tuple(("all_reduce", size, group) for group in groups)


CONTENTION = (
    ContentionCase("two pairs", FABRIC, _all_reduces(MIB, *FAR[:2])),
    ContentionCase("three pairs", FABRIC, _all_reduces(MIB, *FAR[:3])),
    ContentionCase("two rings of four", FABRIC, _all_reduces(MIB, (0, 1, 4, 5), (2, 3, 6, 7))),
    ContentionCase(
        "two rings, ranks given out of order", FABRIC, _all_reduces(MIB, (0, 4, 1, 5), (2, 6, 3, 7))
    ),
    ContentionCase(
        "three jobs of two operations",
        FABRIC,
        (("all_reduce", MIB, (0, 4, 1)), ("all_gather", 2 * MIB, (2, 6, 5)), ("all_reduce", MIB, (3, 7))),
    ),
    ContentionCase(
        "a long and a short job", FABRIC, (("all_reduce", 2 * MIB, (0, 4)), ("all_reduce", MIB, (1, 5, 2)))
    ),
    ContentionCase("three pairs, two spines", SPINES, _all_reduces(MIB, *FAR[:3])),
    ContentionCase("two rings, two spines", SPINES, _all_reduces(MIB, (0, 4, 1, 5), (2, 6, 3, 7))),
)

BOTH = ("DDP", "ZeRO-1", "TP", "GPipe", "1F1B", "CP, ring")
STEPS = (
    *steps(100, 2, (*BOTH, "DDP, buckets of 300 kB", "FSDP2, prefetch", "interleaved 1F1B")),
    *steps(
        100,
        4,
        (
            *("DDP", "DDP, buckets of 1 MiB", "FSDP2", "FSDP2, prefetch", "ZeRO-1", "GPipe", "1F1B"),
            *("TP 2 x DP", "1F1B 2 x DP", "CP 2 x DP", "TP 2 x 1F1B 2"),
        ),
    ),
    *steps(
        200,
        4,
        (
            *("DDP, buckets of 300 kB", "FSDP2, not resharded", "ZeRO-1", "TP", "GPipe", "1F1B"),
            *("interleaved 1F1B", "CP, ring", "CP, all-gather", "CP, all-to-all"),
        ),
    ),
    *steps(400, 4, ("DDP, buckets of 1 MiB", "FSDP2, prefetch", "1F1B", "CP 2 x DP")),
    *steps(200, 8, ("DDP, buckets of 1 MiB", "FSDP2", "ZeRO-1", "TP 2 x DP", "1F1B 2 x DP")),
    step("DDP", 4, UNEVEN),
    step("1F1B", 4, UNEVEN),
    step("FSDP2", 4, UNEVEN),
)

FULL = Suite(SHARING, COLLECTIVES, CONTENTION, STEPS, num_steps=6, num_warmups=2, launches=2)
QUICK = Suite(
    sharing=SHARING[:3],
    collectives=(CollectiveCases(switch(200, 4), ("all_reduce", "all_gather", "broadcast"), (4,), (MIB,)),),
    contention=CONTENTION[:1],
    steps=tuple(
        step(name, 4, switch(200, 4), "4 ranks, 200 Mb/s")
        for name in ("DDP, buckets of 1 MiB", "FSDP2", "ZeRO-1", "TP", "1F1B", "1F1B 2 x DP")
    ),
    num_steps=3,
    num_warmups=1,
    launches=1,
)
