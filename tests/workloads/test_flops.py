"""FLOPs of a step: closed forms, and the same total however the model is spread."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.description import load
from simulator.workloads.layers import Operation, Shard
from simulator.workloads.models.bert import BERT
from simulator.workloads.models.gpt import GPT
from simulator.workloads.models.llama import Llama
from simulator.workloads.operators import Attention, Gemm, MemoryBound

GPT_SMALL = GPT(layers=2, hidden=256, heads=16, vocab=1000, max_sequence=256)
LLAMA_SMALL = Llama(layers=2, hidden=256, heads=16, kv_heads=8, ffn=768, vocab=1000, max_sequence=256)
BERT_SMALL = BERT(layers=2, hidden=256, heads=16, vocab=1000, max_sequence=256)
MODELS = {"gpt": GPT_SMALL, "llama": LLAMA_SMALL, "bert": BERT_SMALL}


def model_flops(model, shard, backward=True):
    total = 0.0
    for layer in model.layers():
        operations = layer.forward(shard) + (layer.backward(shard) if backward else ())
        total += sum(operation.model_flops for operation in operations)
    return total


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-22b", "megatron-1t"])
def test_gpt_flops_equal_the_formula_of_narayanan_et_al(name):
    model, s = load("model", name), 2048
    layers, h, vocab = model.num_layers, model.hidden, model.vocab
    # 96 B s l h^2 (1 + s/6h + V/16lh) counts recomputation; without it 72 ... V/12lh
    formula = 72 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))
    assert model.flops(s) == pytest.approx(formula, rel=1e-12)


def test_llama_flops_equal_six_per_matrix_parameter_and_twelve_per_score():
    model, s = load("model", "llama3-8b"), 8192
    matrices = sum(
        layer.parameters(Shard(micro_batch=1, sequence_length=s)).matrices for layer in model.layers()
    )
    head = model.hidden * model.vocab
    scores = 12 * model.num_layers * model.heads * model.width_per_head * s**2
    assert model.flops(s) == pytest.approx(6 * s * (matrices + head) + scores, rel=1e-12)


@given(
    family=st.sampled_from(sorted(MODELS)),
    tp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
    sequence_parallel=st.booleans(),
    micro_batch=st.integers(1, 3),
    attention=st.sampled_from(["unfused", "flash2"]),
    exchange=st.sampled_from(["ring", "all_gather", "all_to_all", "usp"]),
    layout=st.sampled_from(["zigzag", "contiguous"]),
    overlap=st.sampled_from(["none", "backward", "pipelined"]),
    fusions=st.sets(st.sampled_from(["qkv", "gate_up", "norm", "gradient_accumulation", "rope", "swiglu"])),
)
@settings(max_examples=150, deadline=None)
def test_flops_over_all_ranks_do_not_depend_on_the_plan(
    family, tp, cp, sequence_parallel, micro_batch, attention, exchange, layout, overlap, fusions
):
    model = MODELS[family]
    if exchange == "all_to_all" and tp * cp > 8:
        return  # more ranks than key-value heads
    shard = Shard(
        micro_batch=micro_batch,
        sequence_length=256,
        tp=tp,
        cp=cp,
        sequence_parallel=sequence_parallel and tp > 1,
        attention=attention,
        context_exchange=exchange,
        context_layout=layout,
        ulysses_ranks=min(2, cp),
        tp_overlap=overlap,
        fusions=frozenset(fusions),
    )
    expected = micro_batch * model.flops(256)
    assert model_flops(model, shard) * tp * cp == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("family", MODELS)
def test_backward_is_twice_forward(family):
    shard = Shard(micro_batch=2, sequence_length=128, vocab_multiple=1)
    forward = model_flops(MODELS[family], shard, backward=False)
    assert model_flops(MODELS[family], shard) == pytest.approx(3 * forward, rel=1e-12)


@pytest.mark.parametrize("family", MODELS)
def test_half_of_backward_matrix_flops_outside_attention_are_weight_gradients(family):
    shard = Shard(micro_batch=2, sequence_length=128)
    block = MODELS[family].layers()[1]
    operations = [o for o in block.backward(shard) if isinstance(o.what, Gemm)]
    weights = sum(o.model_flops for o in operations if o.weight_gradient)
    assert 2 * weights == pytest.approx(sum(o.model_flops for o in operations), rel=1e-12)


def test_full_recomputation_is_one_more_forward_and_selective_only_the_core():
    block = GPT_SMALL.layers()[1]
    shard = Shard(micro_batch=1, sequence_length=256, attention="unfused", recompute="full")
    assert block.recompute(shard) == block.forward(shard)
    selective = replace(shard, recompute="selective")
    labels = {operation.label.split(".")[0] for operation in block.recompute(selective)}
    assert labels == {"core_attention"}
    # Korthikanti et al. 2022: 4 b s^2 h FLOPs are executed again
    assert sum(o.model_flops for o in block.recompute(selective)) == 4 * 256**2 * 256
    assert block.recompute(replace(shard, recompute="none")) == ()


def test_executed_flops_halve_causal_flash_and_charge_its_backward_five_gemms():
    kernel = Attention(1, 4, 4, 128, 128, 32, 32, True, "bf16")
    forward = Operation("forward", kernel)
    assert forward.executed_flops == forward.model_flops / 2
    backward = Operation("backward", replace(kernel, backward=True))
    assert backward.executed_flops == 2.5 * forward.executed_flops
    assert backward.model_flops == 2 * forward.model_flops


def test_memory_bound_operators_count_no_matrix_flops():
    assert Operation("norm", MemoryBound("norm", 10.0, 10.0, flops=1e9)).model_flops == 0.0


def test_padding_of_the_vocabulary_is_executed_but_not_counted():
    model = GPT(layers=1, hidden=256, heads=16, vocab=1000, max_sequence=64)
    head = model.layers()[-1]
    operations = head.forward(Shard(micro_batch=1, sequence_length=64))
    (gemm,) = [o for o in operations if isinstance(o.what, Gemm)]
    assert gemm.what.n == 1024
    assert gemm.model_flops == pytest.approx(2 * 64 * 256 * 1000)


def test_sliding_window_bounds_the_keys():
    model = Llama(layers=1, hidden=256, heads=4, ffn=512, vocab=128, max_sequence=4096, sliding_window=128)
    block = model.layers()[1]
    (kernel,) = [
        o.what
        for o in block.forward(Shard(micro_batch=1, sequence_length=1024))
        if isinstance(o.what, Attention)
    ]
    assert (kernel.seq_q, kernel.seq_kv, kernel.causal) == (1024, 128, False)
