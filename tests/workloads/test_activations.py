"""Bytes kept for backward against Korthikanti et al. 2022 (arXiv 2205.05198), equations 1 to 5."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workloads.layers import Shard
from simulator.workloads.models.bert import BERT
from simulator.workloads.models.gpt import GPT
from simulator.workloads.models.llama import Llama

HEADS, HIDDEN, LENGTH = 16, 1024, 512
MODEL = GPT(layers=3, hidden=HIDDEN, heads=HEADS, vocab=2048, max_sequence=LENGTH)
BLOCK = MODEL.layers()[1]


def shard(b=2, tp=1, **others):
    return Shard(micro_batch=b, sequence_length=LENGTH, tp=tp, attention="unfused", dtype="fp16", **others)


degrees = st.sampled_from([1, 2, 4, 8])
batches = st.integers(1, 4)


@given(b=batches)
def test_unsplit_layer_keeps_34_sbh_and_5_scores(b):
    s, h, a = LENGTH, HIDDEN, HEADS
    assert BLOCK.activation_bytes(shard(b)) == s * b * h * (34 + 5 * a * s / h)


@given(b=batches, t=degrees)
def test_tensor_parallelism_leaves_norms_and_residuals_whole(b, t):
    s, h, a = LENGTH, HIDDEN, HEADS
    expected = s * b * h * (10 + 24 / t + 5 * a * s / (h * t))
    assert BLOCK.activation_bytes(shard(b, t)) == pytest.approx(expected, rel=1e-12)


@given(b=batches, t=st.sampled_from([2, 4, 8]))
def test_sequence_parallelism_divides_everything(b, t):
    s, h, a = LENGTH, HIDDEN, HEADS
    expected = s * b * h / t * (34 + 5 * a * s / h)
    assert BLOCK.activation_bytes(shard(b, t, sequence_parallel=True)) == pytest.approx(expected, rel=1e-12)


@given(b=batches, t=st.sampled_from([2, 4, 8]))
def test_selective_recomputation_drops_the_scores(b, t):
    s, h = LENGTH, HIDDEN
    kept = BLOCK.activation_bytes(shard(b, t, sequence_parallel=True, recompute="selective"))
    assert kept == pytest.approx(34 * s * b * h / t, rel=1e-12)
    assert BLOCK.activation_bytes(shard(b, t, recompute="selective")) == pytest.approx(
        s * b * h * (10 + 24 / t)
    )


@given(b=batches, t=degrees)
def test_full_recomputation_keeps_the_layer_input(b, t):
    assert BLOCK.activation_bytes(shard(b, t, recompute="full")) == 2 * LENGTH * b * HIDDEN
    if t > 1:
        kept = BLOCK.activation_bytes(shard(b, t, recompute="full", sequence_parallel=True))
        assert kept == 2 * LENGTH * b * HIDDEN / t


@given(b=batches, t=st.sampled_from([2, 4, 8]))
def test_ends_keep_the_dropout_mask_and_four_sbh_and_fp32_logits(b, t):
    """Section 4.3: sbh/t for the embedding's dropout, 4 sbh/t (1 + v/h) for final norm, projection and loss."""
    s, h, v = LENGTH, HIDDEN, MODEL.vocab
    split = shard(b, t, sequence_parallel=True)
    embedding, head = MODEL.layers()[0], MODEL.layers()[-1]
    assert embedding.activation_bytes(split) == s * b * h / t
    assert head.activation_bytes(split) == pytest.approx(4 * s * b * h / t * (1 + v / h), rel=1e-12)


@given(b=batches, t=degrees)
def test_flash_attention_keeps_log_sum_exp_instead_of_scores(b, t):
    s, h, a = LENGTH, HIDDEN, HEADS
    flash = replace(shard(b, t), attention="flash2")
    assert BLOCK.activation_bytes(flash) == pytest.approx(s * b * (h * (10 + 24 / t) + 4 * a / t), rel=1e-12)


def test_without_dropout_no_masks_are_kept():
    plain = GPT(
        layers=1, hidden=HIDDEN, heads=HEADS, vocab=2048, max_sequence=LENGTH, dropout=False
    ).layers()[1]
    s, h, a = LENGTH, HIDDEN, HEADS
    assert plain.activation_bytes(shard(1)) == s * h * (32 + 2 * a * s / h)


def test_post_norm_bert_block_keeps_as_much_as_a_pre_norm_one():
    block = BERT(layers=1, hidden=HIDDEN, heads=HEADS, vocab=2048, max_sequence=LENGTH).layers()[1]
    assert block.activation_bytes(shard()) == BLOCK.activation_bytes(shard())


def test_llama_block_by_tensor():
    """Inputs of two norms, of two projections; q, k, v; context and log-sum-exp; gate, up and their product."""
    h, kv, f, s = 1024, 256, 2816, 512
    model = Llama(layers=1, hidden=h, heads=16, kv_heads=4, ffn=f, vocab=2048, max_sequence=s)
    fused = Shard(
        micro_batch=1, sequence_length=s, fusions=frozenset({"qkv", "gate_up", "swiglu", "norm", "rope"})
    )
    expected = s * (2 * (4 * h + (h + 2 * kv) + h + 3 * f) + 4 * 16)
    assert model.layers()[1].activation_bytes(fused) == expected
    unfused = replace(fused, fusions=fused.fusions - {"swiglu"})
    assert model.layers()[1].activation_bytes(unfused) == expected + 2 * s * f


def test_recomputing_norms_and_activation_drops_their_outputs_only():
    h, f, s = 1024, 2816, 512
    block = Llama(layers=1, hidden=h, heads=16, ffn=f, vocab=2048, max_sequence=s).layers()[1]
    fused = Shard(
        micro_batch=1, sequence_length=s, fusions=frozenset({"qkv", "gate_up", "swiglu", "norm", "rope"})
    )
    groups = frozenset({"norm", "mlp_activation"})
    selective = replace(fused, recompute="selective", recompute_groups=groups)
    saved = block.activation_bytes(fused) - block.activation_bytes(selective)
    assert saved == 2 * s * (2 * h + f)
    assert {o.label.split(".")[0] for o in block.recompute(selective)} == {"norm_1", "norm_2", "activation"}


@given(b=batches, t=degrees, mode=st.sampled_from(["none", "selective", "full"]))
@settings(deadline=None)
def test_recomputation_never_keeps_more_and_makes_up_for_it_while_it_runs(b, t, mode):
    plain, other = shard(b, t), shard(b, t, recompute=mode)
    assert BLOCK.activation_bytes(other) <= BLOCK.activation_bytes(plain)
    total = BLOCK.activation_bytes(other) + BLOCK.transient_bytes(other)
    assert total == pytest.approx(BLOCK.activation_bytes(plain) + BLOCK.transient_bytes(plain), rel=1e-12)


def test_boundary_is_split_over_tp_only_under_sequence_parallelism():
    assert BLOCK.input_bytes(shard(2, 4)) == BLOCK.output_bytes(shard(2, 4)) == 2 * 2 * LENGTH * HIDDEN
    assert BLOCK.input_bytes(shard(2, 4, sequence_parallel=True)) == 2 * 2 * LENGTH * HIDDEN / 4


@pytest.mark.parametrize("cp", [1, 2, 4])
def test_context_parallelism_divides_the_flash_activations(cp):
    flash = replace(shard(1), attention="flash2", cp=cp)
    assert BLOCK.activation_bytes(flash) * cp == pytest.approx(BLOCK.activation_bytes(replace(flash, cp=1)))


def test_narrow_gemms_keep_narrow_inputs():
    block = Llama(layers=1, hidden=1024, heads=16, ffn=2816, vocab=2048, max_sequence=512).layers()[1]
    wide = Shard(micro_batch=1, sequence_length=512)
    narrow = replace(wide, gemm_dtype="fp8")
    assert block.activation_bytes(narrow) < block.activation_bytes(wide)
    assert any(operation.label == "gate_up.cast_input" for operation in block.forward(narrow))


LLAMA = Llama(layers=1, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, max_sequence=8192)
FUSED = frozenset({"qkv", "gate_up", "swiglu", "norm", "rope"})
PER_OPERATOR = frozenset({"norm", "mlp_activation", "alternate_matmul"})


def test_every_other_product_of_a_block_stays_under_the_policy_by_operator():
    """torchtitan's selective checkpointing: input, q, v, attention with its sums, gate; not k, output, up, down."""
    block, plain = LLAMA.layers()[1], Shard(micro_batch=1, sequence_length=8192, fusions=FUSED)
    policy = replace(plain, recompute="selective", recompute_groups=PER_OPERATOR)
    per_token = 2 * (4096 + 4096 + 1024 + 4096 + 14336) + 4 * 32
    assert block.activation_bytes(policy) == 8192 * per_token
    again = [o.what.n for o in block.recompute(policy) if hasattr(o.what, "n")]
    assert again == [1024, 4096, 14336]
    unknown = replace(policy, gemm_dtype="nvfp4")
    assert block.activation_bytes(unknown) == 8192 * (2 * (4096 + 4096) + 4 * 32)


def test_recomputing_the_feed_forward_layer_keeps_only_what_enters_it():
    f, s = 14336, 8192
    block, plain = LLAMA.layers()[1], Shard(micro_batch=1, sequence_length=s, fusions=FUSED)
    again = replace(plain, recompute="selective", recompute_groups=frozenset({"mlp"}))
    assert block.activation_bytes(plain) - block.activation_bytes(again) == 2 * s * (2 * f + f)
    gpt = replace(again, attention="flash2")
    kept = BLOCK.activation_bytes(replace(gpt, recompute="none")) - BLOCK.activation_bytes(gpt)
    assert kept == 2 * s * 2 * 4 * HIDDEN


def test_attention_that_runs_again_leaves_its_result_as_the_next_product_reads_it():
    narrow = Shard(micro_batch=1, sequence_length=8192, gemm_dtype="fp8", fusions=FUSED)
    again = replace(narrow, recompute="selective")
    saved = LLAMA.layers()[1].activation_bytes(narrow) - LLAMA.layers()[1].activation_bytes(again)
    assert saved == 8192 * (4096 * (2 - 1) + 4 * 32)


@pytest.mark.parametrize(
    ("fusions", "tp", "kept", "working"),
    [
        ({"cross_entropy"}, 1, 2, 2),
        ({"cross_entropy_fp32"}, 2, 4, 2 + 4),
        ({"narrow_log_softmax"}, 1, 2, 2 + 2 + 2),
        (set(), 1, 4, 2),
        (set(), 2, 4, 2),
        ({"log_softmax"}, 1, 4, 2 + 4 + 4),
        ({"log_softmax"}, 2, 4, 2 + 4 + 4 + 4),
    ],
)
def test_bytes_of_the_loss_per_logit(fusions, tp, kept, working):
    head = LLAMA.layers()[-1]
    loss = head.modules[-1]
    one = Shard(micro_batch=1, sequence_length=8192, tp=tp, fusions=frozenset(fusions), vocab_multiple=1)
    logits = 8192 * 128256 / tp
    assert sum(saved.size for saved in loss.saved(one)) == kept * logits
    assert loss.transient_bytes(one) == working * logits
    parts = replace(one, loss_chunks=8)
    assert loss.saved(parts) == []
    assert loss.transient_bytes(parts) == (kept + working) * logits / 8
    grown = head.activation_bytes(parts) - (head.activation_bytes(one) - kept * logits)
    assert grown == 4 * 8192 * 4096  # the gradient of what enters the projection, in fp32
