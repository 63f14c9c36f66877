"""What context parallelism sends and computes: closed forms of ring attention, all-gather, Ulysses and USP."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workloads.layers import Shard
from simulator.workloads.models.llama import Llama
from simulator.workloads.operators import Attention, Collective

SHAPES = {"layers": 1, "hidden": 256, "heads": 16, "ffn": 512, "vocab": 1024, "max_sequence": 256}
BLOCK = Llama(**SHAPES, kv_heads=8).layers()[1]
WINDOWED = Llama(**SHAPES, kv_heads=8, sliding_window=96).layers()[1]
FOUR = Shard(micro_batch=3, sequence_length=256, cp=4)
KV = 2.0 * 2 * 8 * 16 * 3 * 64  # bytes of keys and values of a quarter of the tokens
QUERIES = 2.0 * 16 * 16 * 3 * 64


def sent(operations, axes=("cp", "ring", "ulysses")):
    return [(o.what.axis, o.what.op, o.what.size) for o in operations if is_on(o, axes)]


def is_on(operation, axes):
    return isinstance(operation.what, Collective) and operation.what.axis in axes


def kernels(operations):
    return [o.what for o in operations if isinstance(o.what, Attention)]


def test_a_ring_passes_keys_and_values_round_and_their_gradients_one_step_later():
    assert sent(BLOCK.forward(FOUR)) == [("cp", "shift", KV)] * 3
    assert [size for _, _, size in sent(BLOCK.backward(FOUR))] == [KV, 2 * KV, 2 * KV, KV]


def test_keys_travel_beside_the_kernel_before_the_one_that_needs_them():
    operations = [o for o in BLOCK.forward(FOUR) if is_on(o, ("cp",)) or isinstance(o.what, Attention)]
    labels = [o.label.split(".", 1)[1] for o in operations]
    assert labels == ["ring.0", "forward", "ring.1", "forward", "ring.2", "forward", "forward"]
    assert all(o.asynchronous for o in operations if o.is_collective)
    waits = [o.waits_for for o in operations if not o.is_collective]
    assert waits[1:] == [(f"core_attention.ring.{step}",) for step in range(3)]


def test_gathered_context_gathers_again_in_backward_and_scatters_gradients():
    shard = replace(FOUR, context_exchange="all_gather")
    assert sent(BLOCK.forward(shard)) == [("cp", "all_gather", 4 * KV)]
    assert sent(BLOCK.backward(shard)) == [("cp", "all_gather", 4 * KV), ("cp", "reduce_scatter", 4 * KV)]


def test_ulysses_exchanges_queries_keys_values_and_outputs():
    shard = replace(FOUR, context_exchange="all_to_all")
    there, back = ("cp", "all_to_all", QUERIES + KV), ("cp", "all_to_all", QUERIES)
    assert sent(BLOCK.forward(shard)) == [there, back]
    assert sent(BLOCK.backward(shard)) == [back, there]


def test_fewer_key_value_heads_than_ranks_are_sent_to_several():
    block = Llama(**SHAPES, kv_heads=2).layers()[1]
    shard = replace(FOUR, context_exchange="all_to_all")
    ((_, _, size), _) = sent(block.forward(shard))
    assert size == QUERIES + KV / 4 * 2  # each of two heads goes to two ranks


@given(
    cp=st.sampled_from([2, 4, 8]),
    micro_batch=st.integers(1, 3),
    layout=st.sampled_from(["zigzag", "contiguous"]),
    block=st.sampled_from([BLOCK, WINDOWED]),
)
@settings(max_examples=30, deadline=None)
def test_usp_is_the_ring_at_one_end_and_ulysses_at_the_other(cp, micro_batch, layout, block):
    shard = Shard(micro_batch=micro_batch, sequence_length=256, cp=cp, context_layout=layout)
    for ulysses, exchange in ((1, "ring"), (cp, "all_to_all")):
        usp = replace(shard, context_exchange="usp", ulysses_ranks=ulysses)
        pure = replace(shard, context_exchange=exchange)
        assert block.forward(usp) == block.forward(pure)
        assert block.backward(usp) == block.backward(pure)
        assert block.activation_bytes(usp) == block.activation_bytes(pure)


@given(ulysses=st.sampled_from([1, 2, 4, 8]), cp=st.sampled_from([1, 2, 4, 8]))
def test_volumes_of_usp_follow_from_its_two_degrees(ulysses, cp):
    """Per rank and pass: ring (cp/u - 1) x keys and values; all-to-all (u - 1)/u x (queries + outputs + keys)."""
    if cp % ulysses or cp == 1:
        return
    shard = Shard(micro_batch=3, sequence_length=256, cp=cp, context_exchange="usp", ulysses_ranks=ulysses)
    width, kv = 2.0 * 3 * 256 / cp * 256, 2.0 * 3 * 256 / cp * 2 * 128
    volume = Counter()
    for axis, op, size in sent(BLOCK.forward(shard)):
        volume[op] += size * (ulysses - 1) / ulysses if op == "all_to_all" else size
        assert axis == ("cp" if ulysses in (1, cp) else "ulysses" if op == "all_to_all" else "ring")
    assert volume["shift"] == pytest.approx((cp / ulysses - 1) * kv, rel=1e-9)
    assert volume["all_to_all"] == pytest.approx((ulysses - 1) / ulysses * (2 * width + kv), rel=1e-9)
    backward = Counter()
    for _, op, size in sent(BLOCK.backward(shard)):
        backward[op] += size * (ulysses - 1) / ulysses if op == "all_to_all" else size
    assert backward["shift"] == pytest.approx(2 * volume["shift"], rel=1e-9)
    assert backward["all_to_all"] == pytest.approx(volume["all_to_all"], rel=1e-9)


@pytest.mark.parametrize("exchange", ["ring", "all_gather", "all_to_all", "usp"])
@pytest.mark.parametrize("cp", [2, 4, 8])
def test_zigzag_makes_every_rank_execute_its_share_of_the_causal_half(exchange, cp):
    shard = Shard(micro_batch=1, sequence_length=256, cp=cp, context_exchange=exchange, ulysses_ranks=2)
    (whole,) = kernels(BLOCK.forward(replace(shard, cp=1)))
    assert sum(k.flops for k in kernels(BLOCK.forward(shard))) * cp == pytest.approx(whole.flops)


@pytest.mark.parametrize("exchange", ["ring", "all_gather"])
def test_contiguous_blocks_make_the_last_rank_work_nearly_twice_as_long(exchange):
    """The last of n ranks meets n - 1 whole blocks and half of its own: (2n - 1)/n of an even share."""
    shard = Shard(micro_batch=1, sequence_length=256, cp=8, context_exchange=exchange)
    even = sum(k.flops for k in kernels(BLOCK.forward(shard)))
    last = sum(k.flops for k in kernels(BLOCK.forward(replace(shard, context_layout="contiguous"))))
    assert last / even == pytest.approx(15 / 8)


def test_a_window_needs_only_the_keys_just_before():
    """96 keys over ranks of 64 tokens: all of the rank before and half of the one before that."""
    assert [size for _, _, size in sent(WINDOWED.forward(FOUR))] == [KV, KV / 2]
    assert [size for _, _, size in sent(WINDOWED.backward(FOUR))] == [2 * KV, KV]
    (kernel,) = kernels(WINDOWED.forward(FOUR))
    assert (kernel.seq_q, kernel.seq_kv) == (64, 96)


@pytest.mark.parametrize("exchange", ["ring", "all_gather", "all_to_all"])
def test_context_parallelism_divides_what_is_kept(exchange):
    shard = replace(FOUR, context_exchange=exchange)
    assert BLOCK.activation_bytes(shard) * 4 == pytest.approx(BLOCK.activation_bytes(replace(FOUR, cp=1)))


DOCUMENTS = ((128, 1), (64, 3), (8, 16))  # 448 tokens
PACKED = Shard(micro_batch=1, sequence_length=448, documents=DOCUMENTS)


@pytest.mark.parametrize("exchange", ["ring", "all_gather", "all_to_all", "usp"])
@pytest.mark.parametrize("backward", [False, True])
def test_packed_documents_cost_the_sum_of_their_squares_however_they_are_shared(exchange, backward):
    shard = replace(PACKED, cp=4, context_exchange=exchange, ulysses_ranks=2)
    operations = BLOCK.backward(shard) if backward else BLOCK.forward(shard)
    squares = sum(count * length**2 for length, count in DOCUMENTS)
    dense = 2.0 * 16 * 2 * 16 * squares  # 16 heads of width 16, two products
    assert sum(k.flops for k in kernels(operations)) * 4 == pytest.approx(
        dense / 2 * (2.5 if backward else 1)
    )
    of_attention = [o for o in operations if isinstance(o.what, Attention)]
    assert sum(o.model_flops for o in of_attention) * 4 == pytest.approx(dense * (2 if backward else 1))


@pytest.mark.parametrize("exchange", ["ring", "all_gather", "all_to_all"])
def test_what_travels_depends_on_tokens_alone(exchange):
    packed = replace(PACKED, cp=4, context_exchange=exchange)
    whole = replace(packed, documents=())
    assert sent(BLOCK.forward(packed)) == sent(BLOCK.forward(whole))
    assert sent(BLOCK.backward(packed)) == sent(BLOCK.backward(whole))


def test_documents_shorter_than_the_window_are_causal_and_longer_ones_meet_the_window():
    causal, windowed = sorted(kernels(WINDOWED.forward(PACKED)), key=lambda k: not k.causal)
    assert set(causal.sequences) == {(3, 64, 64), (16, 8, 8)} and causal.causal
    assert windowed.sequences == ((1, 128, 96),) and not windowed.causal


def test_one_kernel_over_equal_documents_takes_as_long_as_a_batch_of_them():
    (batch,) = kernels(BLOCK.forward(Shard(micro_batch=6, sequence_length=64)))
    (packed,) = kernels(BLOCK.forward(replace(PACKED, sequence_length=384, documents=((64, 6),))))
    assert packed == batch
