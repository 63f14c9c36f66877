"""When does the device wait for its host? Chains against a host and a device followed kernel by kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.description import load
from simulator.program.chains import Chain, Transfer, joined
from simulator.program.track import chain_of
from simulator.workloads.layers import Shard
from simulator.workloads.operation import Operation
from simulator.workloads.operators import Collective, Kernel, MemoryBound

MOVE = "all_to_all"


@dataclass(frozen=True)
class Prices:
    """A second per byte, `each` seconds per launch and `call` per module."""

    each: float = 1.0
    call: float = 0.0
    gpu_resource: int = 0
    awaits_counts: bool = True
    blocking: bool = False

    def kernel_seconds(self, kernel: Kernel) -> float:
        assert isinstance(kernel, MemoryBound)
        return kernel.bytes_read

    def transfer(self, collective: Collective) -> Transfer | None:
        return Transfer(collective.axis, collective.size, 0.0, (), 1.0, 0.0)

    def launch(self, kernels: int, calls: int, backward: bool) -> float:
        return kernels * self.each + calls * self.call


def kernel(seconds: float, awaited: bool = False) -> Operation:
    return Operation("kernel", MemoryBound("add", seconds, 0.0), awaited=awaited)


def followed(operations: list[Operation], each: float) -> float:
    """When the device is done: the host launches one after the other, and waits where it must know a result."""
    host = device = 0.0
    for operation in operations:
        assert isinstance(operation.what, MemoryBound)
        if operation.awaited:
            host = max(host, device)
        host += each
        device = max(device, host) + operation.what.bytes_read
    return device


work = st.lists(st.builds(kernel, st.floats(0.01, 5.0), st.booleans()), min_size=1, max_size=12)


def total(chain: Chain) -> float:
    return chain.lead + chain.seconds


@given(work, st.floats(0.0, 3.0))
def test_a_chain_lasts_as_long_as_host_and_device_take(operations: list[Operation], each: float) -> None:
    chain = chain_of(operations, Prices(each), "compute", False)
    assert total(chain) == pytest.approx(followed(operations, each), rel=1e-12)
    assert chain.host == pytest.approx(each * len(operations))


@given(work, work, work, st.floats(0.0, 3.0))
def test_chains_join_as_if_their_work_had_been_one_list(
    first: list[Operation], second: list[Operation], third: list[Operation], each: float
) -> None:
    parts = [chain_of(part, Prices(each), "compute", False) for part in (first, second, third)]
    together = followed([*first, *second, *third], each)
    assert total(joined(parts)) == pytest.approx(together, rel=1e-12)
    assert total(parts[0] + (parts[1] + parts[2])) == pytest.approx(together, rel=1e-12)


def test_a_host_that_waits_for_counts_leaves_the_device_idle_once_per_exchange() -> None:
    operations = [
        kernel(10.0),
        Operation("exchange", Collective(MOVE, "ep", 4.0), awaited=True),
        kernel(10.0),
    ]
    chain = chain_of(operations, Prices(1.0), "compute", False)
    assert total(chain) == 1.0 + 10.0 + 1.0 + 4.0 + 10.0
    knows = chain_of(operations, Prices(1.0, awaits_counts=False), "compute", False)
    assert total(knows) == 1.0 + 10.0 + 4.0 + 10.0


def test_a_captured_graph_is_one_launch_and_no_call() -> None:
    operations = [replace(kernel(1.0), graphed=True)] * 5
    called = [replace(kernel(1.0), calls=1)] * 5
    assert chain_of(operations, Prices(2.0, 7.0), "compute", False).host == 2.0
    assert chain_of(called, Prices(2.0, 7.0), "compute", False).host == 5 * 9.0


def test_each_scope_of_a_mixture_is_captured_on_its_own() -> None:
    model = load("model", "deepseek-v3")
    block = next(layer for layer in model.layers() if layer.name == "expert block")
    shard = Shard(micro_batch=1, sequence_length=4096, ep=8, attention="flash2")

    def graphed(*scopes: str) -> set[str]:
        seen = replace(shard, graphs=frozenset(scopes))
        operations = [*block.forward(seen), *block.backward(seen)]
        return {operation.label.split(".")[0] for operation in operations if operation.graphed}

    attention, router = graphed("attention"), graphed("router")
    assert {"norm_1", "core_attention", "projection"} <= attention
    assert {"norm_2", "router", "choice", "shared_down"} <= router
    assert not attention & router
    assert {"dispatch", "expert_gate_up", "combine"} <= graphed("all") - attention - router
