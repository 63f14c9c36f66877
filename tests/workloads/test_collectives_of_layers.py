"""What tensor and context parallelism send per layer: closed forms of Shoeybi 2019 and Korthikanti 2022."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workloads.layers import Layer, Module, Operation, Shard, _joined
from simulator.workloads.models.gpt import GPT
from simulator.workloads.operators import Collective, MemoryBound

MODEL = GPT(layers=2, hidden=256, heads=16, vocab=1024, max_sequence=256)
BLOCK = MODEL.layers()[1]
FULL = 2.0 * 3 * 256 * 256  # bytes of [s, b, h]
PARALLEL = Shard(micro_batch=3, sequence_length=256, tp=4, attention="unfused")


def collectives(operations, axis="tp"):
    return [o.what for o in operations if isinstance(o.what, Collective) and o.what.axis == axis]


def counted(operations, axis="tp"):
    return Counter((c.op, c.size) for c in collectives(operations, axis))


def test_no_collectives_without_parallelism():
    shard = Shard(micro_batch=3, sequence_length=256)
    for layer in MODEL.layers():
        assert collectives(layer.forward(shard) + layer.backward(shard)) == []


def test_tensor_parallel_block_reduces_twice_forward_and_twice_backward():
    assert counted(BLOCK.forward(PARALLEL)) == {("all_reduce", FULL): 2}
    assert counted(BLOCK.backward(PARALLEL)) == {("all_reduce", FULL): 2}


def test_sequence_parallel_block_gathers_and_scatters_and_gathers_the_saved_input_again():
    shard = replace(PARALLEL, sequence_parallel=True)
    assert counted(BLOCK.forward(shard)) == {("all_gather", FULL): 2, ("reduce_scatter", FULL): 2}
    assert counted(BLOCK.backward(shard)) == {("all_gather", FULL): 4, ("reduce_scatter", FULL): 2}


def test_embedding_and_head_collectives():
    shard = PARALLEL
    embedding, head = MODEL.layers()[0], MODEL.layers()[-1]
    assert counted(embedding.forward(shard)) == {("all_reduce", FULL): 1}
    assert counted(embedding.backward(shard)) == {}
    assert counted(head.forward(shard)) == {("all_reduce", 4.0 * 3 * 256): 3}
    assert counted(head.backward(shard)) == {("all_reduce", FULL): 1}
    split = replace(shard, sequence_parallel=True)
    assert counted(embedding.forward(split)) == {("reduce_scatter", FULL): 1}
    assert counted(embedding.backward(split)) == {("all_gather", FULL): 1}


def ring_bytes(collective, ranks):
    """Bytes that one rank sends in a ring (all_gather, reduce_scatter: one pass; all_reduce: two)."""
    passes = 2 if collective.op == "all_reduce" else 1
    if collective.op == "shift":
        return collective.size
    return passes * collective.size * (ranks - 1) / ranks


@pytest.mark.parametrize("layer", [0, 1, 3])
def test_sequence_parallelism_sends_no_more_forward_than_tensor_parallelism(layer):
    """Korthikanti et al. 2022, section 4.2.2: reduce-scatter and all-gather make up the all-reduce."""
    model_layer = MODEL.layers()[layer]
    plain = sum(ring_bytes(c, 4) for c in collectives(model_layer.forward(PARALLEL)))
    split = replace(PARALLEL, sequence_parallel=True)
    sent = sum(ring_bytes(c, 4) for c in collectives(model_layer.forward(split)))
    # the reduce-scatter half stays with the embedding, the all-gather half moves to the head
    moved = {0: -FULL * 3 / 4, 1: 0.0, 3: FULL * 3 / 4}[layer]
    assert sent == pytest.approx(plain + moved)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_pipelined_overlap_sends_the_same_bytes(sequence_parallel):
    shard = replace(PARALLEL, sequence_parallel=sequence_parallel)
    pieces = replace(shard, tp_overlap="pipelined")
    for run in (BLOCK.forward, BLOCK.backward):
        plain = sum(ring_bytes(c, 4) for c in collectives(run(shard)))
        assert sum(ring_bytes(c, 4) for c in collectives(run(pieces))) == pytest.approx(plain)


def test_pieces_that_came_from_every_rank_are_added_by_a_kernel():
    """It reads every rank's part of its own tokens, tp times what it writes, once all pieces are there."""
    shard = replace(PARALLEL, sequence_parallel=True, tp_overlap="pipelined")
    sums = [o for o in BLOCK.forward(shard) if o.label.endswith("reduce_scatter.sum")]
    size = shard.tokens * 256 * 2.0  # of what both row-parallel projections put out
    assert [(o.what.bytes_read, o.what.bytes_written) for o in sums] == [(size, size / 4)] * 2
    assert all(o.waits_for == (o.label.replace("sum", "2"),) for o in sums)


def test_backward_overlap_puts_collectives_beside_gemms_and_makes_the_next_module_wait():
    operations = BLOCK.backward(PARALLEL)
    position = {operation.label: i for i, operation in enumerate(operations)}
    reduction = operations[position["fc1.input_gradient.all_reduce"]]
    assert reduction.asynchronous
    assert operations[position["fc1.weight_gradient"]].waits_for == ()
    assert operations[position["norm_2.backward"]].waits_for == ("fc1.input_gradient.all_reduce",)
    serial = BLOCK.backward(replace(PARALLEL, tp_overlap="none"))
    assert not any(operation.asynchronous for operation in serial)


def test_weight_gradient_waits_for_the_regathered_input():
    operations = {o.label: o for o in BLOCK.backward(replace(PARALLEL, sequence_parallel=True))}
    assert "fc1.regather" in operations["fc1.weight_gradient"].waits_for
    assert operations["fc1.input_gradient"].waits_for == ()


@given(
    tp=st.sampled_from([1, 2, 4]),
    cp=st.sampled_from([1, 2, 4]),
    sequence_parallel=st.booleans(),
    overlap=st.sampled_from(["none", "backward", "pipelined"]),
    exchange=st.sampled_from(["ring", "all_gather", "all_to_all"]),
)
@settings(max_examples=60, deadline=None)
def test_every_awaited_collective_was_started_before(tp, cp, sequence_parallel, overlap, exchange):
    shard = Shard(
        micro_batch=2,
        sequence_length=256,
        tp=tp,
        cp=cp,
        sequence_parallel=sequence_parallel and tp > 1,
        tp_overlap=overlap,
        context_exchange=exchange,
    )
    for layer in MODEL.layers():
        for operations in (layer.forward(shard), layer.backward(shard)):
            started = set()
            for operation in operations:
                assert set(operation.waits_for) <= started, operation
                if operation.is_collective:
                    started.add(operation.label)


def test_an_open_collective_is_awaited_by_the_first_kernel_of_the_next_module():
    class Sender(Module):
        name, source = "a", "input"

        def forward(self, shard):
            return [Operation("send", Collective("shift", "tp", 1.0), asynchronous=True)]

    class Worker(Module):
        name, source = "b", "a"

        def forward(self, shard):
            kernel = MemoryBound("x", 1.0, 1.0)
            return [Operation("w", kernel, weight_gradient=True), Operation("k", kernel)]

    layer = Layer("x", "block", (Sender(), Worker()), 1, 1)
    send, weight, kernel = _joined(m.forward(PARALLEL) for m in layer.modules)
    assert weight.waits_for == () and kernel.waits_for == (send.label,)
