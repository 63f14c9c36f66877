"""What stretches of a compute stream are due to is how the stream's length changes with each kernel and collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.program.chains import Chain, Latency, Transfer
from simulator.program.program import Phase
from simulator.program.track import chain_of
from simulator.workloads.layers import Operation
from simulator.workloads.operators import Collective, Kernel, MemoryBound

SLIGHTLY = 1e-7
SHARE = 0.2

Key = tuple[str, int]
"""(kernel, latency or work, number of the operation)."""


@dataclass
class Given:
    """Prices that are given: a kernel takes its bytes in seconds, a transfer so many seconds of latency and of work."""

    latencies: Sequence[float]
    longer: Mapping[Key, float] = field(default_factory=dict)
    gpu_resource: int = 0
    awaits_counts: bool = False
    blocking: bool = False

    def kernel_seconds(self, kernel: Kernel) -> float:
        assert isinstance(kernel, MemoryBound)
        return kernel.bytes_read * self.longer.get(("kernel", int(kernel.bytes_written)), 1.0)

    def transfer(self, collective: Collective) -> Transfer:
        number = int(collective.dtype)
        latency = self.latencies[number] * self.longer.get(("latency", number), 1.0)
        work = collective.size * self.longer.get(("work", number), 1.0)
        return Transfer("tp", latency, work, ((1, 1.0),), 1.0, SHARE, op=str(number), size=collective.size)

    def launch(self, kernels: int, calls: int, backward: bool) -> float:
        return 0.0


def operation(number: int, is_kernel: bool, asynchronous: bool, waits: bool, seconds: float) -> Operation:
    awaited = (f"{number - 1}",) if waits else ()
    if is_kernel:
        return Operation(f"{number}", MemoryBound("k", seconds, float(number)), waits_for=awaited)
    collective = Collective("all_gather", "tp", seconds, dtype=str(number))
    return Operation(f"{number}", collective, asynchronous=asynchronous, waits_for=awaited)


def laid(operations: Sequence[Operation], prices: Given) -> Chain:
    return chain_of(operations, prices, "compute", False)


def due(chain: Chain) -> dict[Key, float]:
    """Seconds of the chain by what they are due to."""
    found: dict[Key, float] = {}

    def add(what: object, phase: Phase, seconds: float) -> None:
        if isinstance(what, MemoryBound):
            key = ("kernel", int(what.bytes_written))
        elif isinstance(what, Latency):
            key = ("latency", int(what.transfer.op))
        else:
            assert isinstance(what, Transfer)
            key = ("work", int(what.op))
        found[key] = found.get(key, 0.0) + seconds

    for phase in chain.phases:
        if phase.latency:
            ((transfer, _),) = phase.due_to
            assert isinstance(transfer, Transfer)
            add(Latency(transfer), phase, phase.latency)
        for what, part in phase.due_to:
            add(what, phase, part * phase.work)  # every rate is 1
    return found


SECONDS = st.floats(0.1, 2.0, allow_subnormal=False)
OPERATIONS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.booleans(), SECONDS, SECONDS), min_size=1, max_size=8
)


@given(OPERATIONS)
def test_seconds_are_due_to_what_changes_them(drawn: list[tuple[bool, bool, bool, float, float]]) -> None:
    operations = [operation(number, *one[:4]) for number, one in enumerate(drawn)]
    latencies = [one[4] for one in drawn]
    chain = laid(operations, Given(latencies))
    claimed = due(chain)
    assert sum(claimed.values()) == pytest.approx(chain.seconds)
    for number, one in enumerate(operations):
        for name in ("latency", "work") if one.is_collective else ("kernel",):
            key = (name, number)
            longer, shorter = (
                laid(operations, Given(latencies, {key: factor})).seconds
                for factor in (1.0 + SLIGHTLY, 1.0 - SLIGHTLY)
            )
            rising, falling = (longer - chain.seconds) / SLIGHTLY, (chain.seconds - shorter) / SLIGHTLY
            assume(rising == pytest.approx(falling, abs=1e-6))  # not where two paths are equally long
            assert claimed.get(key, 0.0) == pytest.approx(rising, abs=1e-6)


def test_a_hidden_collective_costs_its_share_of_the_gpu_and_an_exposed_one_all_of_its_time() -> None:
    sends, computes = operation(0, False, True, False, 1.0), operation(1, True, False, False, 4.0)
    hidden = laid([sends, computes], Given([0.5, 0.0]))
    assert hidden.seconds == pytest.approx(4.0 + SHARE)
    assert due(hidden) == pytest.approx({("kernel", 1): 4.0, ("work", 0): SHARE})
    exposed = laid([sends, operation(1, True, False, False, 0.7)], Given([0.5, 0.0]))
    assert exposed.seconds == pytest.approx(1.5)
    assert due(exposed) == pytest.approx({("latency", 0): 0.5, ("work", 0): 1.0})
