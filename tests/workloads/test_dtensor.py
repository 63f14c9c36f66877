"""Tensor parallelism as PyTorch's DTensor has it: what is gathered once, what is copied, what waits."""

from dataclasses import replace

import pytest

from simulator.workloads.layers import Shard
from simulator.workloads.models.llama import Llama
from simulator.workloads.operators import Collective, MemoryBound

SHAPES = {"layers": 1, "hidden": 256, "heads": 16, "vocab": 1024, "max_sequence": 256}
BLOCK, HEAD = Llama(**SHAPES, kv_heads=16, ffn=512).layers()[1:]
FULL = 2.0 * 2 * 256 * 256  # bytes of [sequences, tokens, hidden]
MEGATRON = Shard(micro_batch=2, sequence_length=256, tp=4, sequence_parallel=True, tp_overlap="none")
TORCH = replace(MEGATRON, dtensor=True)
PIPELINED = replace(TORCH, tp_overlap="pipelined")


def sent(operations, op):
    return [o for o in operations if isinstance(o.what, Collective) and o.what.op == op and o.what.size > 4]


def labelled(operations, ending):
    return [o for o in operations if o.label.endswith(ending)]


def test_autograd_keeps_what_was_gathered_instead_of_gathering_it_again():
    assert len(sent(BLOCK.backward(MEGATRON), "all_gather")) == 4
    assert len(sent(BLOCK.backward(TORCH), "all_gather")) == 2  # of output gradients
    kept, others = BLOCK.kept_tensors(TORCH), BLOCK.kept_tensors(MEGATRON)
    assert kept["qkv.gathered"] == kept["gate_up.gathered"] == FULL == 4 * others["norm_1"]


def test_what_is_gathered_again_with_the_repeated_forward_pass_is_not_kept():
    shard = replace(TORCH, recompute="selective", recompute_groups=frozenset({"norm", "alternate_matmul"}))
    kept = BLOCK.kept_tensors(shard)
    assert "qkv.gathered" not in kept
    assert len(sent(BLOCK.recompute(shard), "all_gather")) == 2


def test_the_policy_that_keeps_every_other_product_keeps_what_was_scattered():
    shard = replace(TORCH, recompute="selective", recompute_groups=frozenset({"alternate_matmul"}))
    again = BLOCK.recompute(shard)
    assert not sent(again, "reduce_scatter") and not labelled(again, "projection.forward")
    assert BLOCK.kept_tensors(shard)["projection_kept"] == FULL / 4
    alone = replace(shard, tp=1, sequence_parallel=False)
    assert labelled(BLOCK.recompute(alone), "projection.forward")
    whole = replace(shard, recompute_groups=frozenset({"alternate_matmul", "mlp"}))
    assert sent(
        BLOCK.recompute(whole), "reduce_scatter"
    )  # of the feed-forward layer, asked for by its own name


def test_tokens_are_copied_after_a_gather_and_before_a_reduction():
    assert not labelled(BLOCK.forward(MEGATRON), ".sort_tokens")
    copies = labelled(BLOCK.forward(TORCH), ".sort_tokens")
    assert [(o.what.bytes_read, o.what.bytes_written) for o in copies] == [(FULL, FULL)] * 4
    # two gathers of output gradients; sums of input gradients are written as the reduction wants them
    assert len(labelled(BLOCK.backward(TORCH), ".sort_tokens")) == 2 + 2  # one packed product each has no sum
    unpacked = replace(TORCH, fusions=TORCH.fusions - {"qkv", "gate_up"})
    assert len(labelled(BLOCK.backward(unpacked), ".sort_tokens")) == 2
    assert not labelled(BLOCK.forward(replace(TORCH, tp=1, sequence_parallel=False)), ".sort_tokens")


def test_nothing_runs_beside_the_sum_of_input_gradients():
    for overlap in ("backward", "pipelined"):
        assert all(
            o.asynchronous
            for o in sent(BLOCK.backward(replace(MEGATRON, tp_overlap=overlap)), "reduce_scatter")
        )
        sums = sent(BLOCK.backward(replace(TORCH, tp_overlap=overlap)), "reduce_scatter")
        assert len(sums) == 2 and not any(o.asynchronous for o in sums)


def test_pieces_travel_through_memory_that_all_ranks_see():
    """A rank copies its own piece there and to its place: a quarter of the tensor, twice."""
    copies = labelled(BLOCK.forward(PIPELINED), ".gather.copy")
    assert [(o.what.bytes_read, o.what.bytes_written, o.what.kernels) for o in copies] == [
        (FULL / 2, FULL / 2, 2)
    ] * 2
    assert not labelled(BLOCK.forward(PIPELINED), ".sort_tokens")
    assert not labelled(BLOCK.forward(replace(MEGATRON, tp_overlap="pipelined")), ".copy")


def test_a_cast_behind_the_gather_keeps_it_from_being_cut_into_pieces():
    rows = replace(PIPELINED, gemm_dtype="fp8", scaling="row")
    assert len(sent(BLOCK.forward(rows), "all_gather")) == 2
    assert not sent(BLOCK.forward(replace(rows, scaling="current")), "all_gather")
    assert not sent(HEAD.forward(rows), "all_gather")  # the logits are a product in bf16


@pytest.mark.parametrize("fused", [True, False])
def test_what_was_gathered_narrow_is_written_by_rows_and_turned_later(fused):
    names = TORCH.fusions | {"narrow_gather"} if fused else TORCH.fusions - {"narrow_gather"}
    shard = replace(TORCH, gemm_dtype="fp8", scaling="current", fusions=frozenset(names))
    turned = labelled(BLOCK.backward(shard), "transpose_input")
    turned += labelled(BLOCK.backward(shard), "transpose_output_gradient")
    assert [(o.what.bytes_read, o.what.bytes_written) for o in turned] == [(FULL / 2, FULL / 2)] * 4 * fused
    assert all(o.weight_gradient for o in turned)
    (cast,) = labelled(BLOCK.forward(shard), "qkv.cast_input")
    tokens, orders = (512 // 4, 1.0) if fused else (512, 2.0)
    assert (cast.what.bytes_read, cast.what.bytes_written) == (2.0 * tokens * 256, orders * tokens * 256)


def test_scales_by_row_are_multiplied_in_by_kernels_of_backward():
    shard = Shard(micro_batch=2, sequence_length=256, gemm_dtype="fp8", scaling="row")
    assert not labelled(BLOCK.forward(shard), ".rescale_weight_gradient")
    backward = BLOCK.backward(shard)
    weights = sum(o.what.bytes_read for o in labelled(backward, ".rescale_weight_gradient"))
    assert weights == 2.0 * (4 * 256 * 256 + 3 * 256 * 512)
    inputs = labelled(backward, ".rescale_input_gradient")  # others are added up, which multiplies too
    assert [o.what.bytes_read for o in inputs] == [2.0 * 512 * 512, 2.0 * 512 * 256]
    assert all(isinstance(o.what, MemoryBound) for o in inputs)
    wide = replace(shard, gemm_dtype="bf16")
    assert not labelled(BLOCK.backward(wide), ".rescale_weight_gradient")


RING = Shard(micro_batch=2, sequence_length=256, cp=4, dtensor=True)
QUERIES = 2.0 * 2 * 64 * 256  # bytes of the queries of a rank's tokens, of all heads


LOSS = Shard(
    micro_batch=2,
    sequence_length=256,
    tp=4,
    sequence_parallel=True,
    dtensor=True,
    fusions=frozenset({"narrow_log_softmax"}),
)


def core(operations):
    return [o for o in operations if o.label.startswith("core_attention")]


def test_ring_attention_gathers_keys_of_every_query_head_once_and_merges_in_fp32():
    grouped = Llama(**SHAPES, kv_heads=4, ffn=512).layers()[1]  # torchtitan repeats keys before
    operations = core(grouped.forward(RING))
    assert counted(operations) == ["gather"] + ["forward"] + 3 * ["forward", "merge"] + ["narrow"]
    assert operations[0].what.size == 4 * 2 * QUERIES and not operations[0].asynchronous
    (merge,) = {o.what for o in labelled(operations, ".merge")}
    assert (merge.bytes_read, merge.bytes_written) == (3 * QUERIES, 2 * QUERIES)
    flops = sum(o.what.flops for o in labelled(operations, ".forward"))
    assert flops == sum(
        o.what.flops for o in labelled(grouped.forward(replace(RING, dtensor=False)), "attention.forward")
    )


def test_sums_of_key_gradients_go_all_the_way_round_in_fp32():
    operations = core(BLOCK.backward(RING))
    steps = [what for step in range(4) for what in ("backward", "sum_gradients", str(step))]
    assert counted(operations) == ["gather", *steps, "narrow"]
    sent = [o for o in operations if isinstance(o.what, Collective) and o.what.op == "shift"]
    assert {(o.what.size, o.what.dtype, o.asynchronous) for o in sent} == {(2 * 2 * QUERIES, "fp32", False)}


def test_a_loss_of_whole_logits_is_the_same_on_every_rank_once_they_are_gathered_and_joined():
    head = Llama(**SHAPES, ffn=512).layers()[-1].modules[-1]
    narrow = replace(LOSS, whole_logits=True)
    gather, join, softmax = (o.what for o in head.forward(narrow))
    whole = 2 * 2 * 256 * 1024  # bytes of the logits of all tokens
    assert (gather.op, gather.axis, gather.size) == ("all_gather", "tp", whole)
    assert (join.bytes_read, join.bytes_written) == (whole, whole)
    assert softmax == head.forward(replace(narrow, tp=1))[0].what  # and nothing is summed over tp
    assert head.backward(narrow) == head.backward(replace(narrow, tp=1))
    assert softmax.bytes_read == 4 * head.forward(LOSS)[0].what.bytes_read
    assert not labelled(head.forward(LOSS), ".gather")


def counted(operations):
    return [o.label.rpartition(".")[2] for o in operations]
