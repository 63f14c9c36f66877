"""Mixtures of experts: FLOPs do not depend on the plan, all-to-all moves what routing says, load is a distribution."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workloads.layers import Shard
from simulator.workloads.models.moe import LatentAttention, MixtureOfExperts
from simulator.workloads.modules.experts import expert_load
from simulator.workloads.operators import Attention, Collective, GroupedGemm
from simulator.workloads.routing import Routing, distinct_ranks, expert_shares

SHAPES = {
    "layers": 2,
    "hidden": 256,
    "heads": 16,
    "vocab": 1024,
    "max_sequence": 256,
    "experts": 8,
    "top_k": 2,
}
PLAIN = MixtureOfExperts(**SHAPES, kv_heads=8, expert_ffn=128)
SHARED = MixtureOfExperts(**SHAPES, kv_heads=8, expert_ffn=128, shared_ffn=256, dense_layers=1, ffn=512)
LATENT = MixtureOfExperts(
    **SHAPES,
    expert_ffn=128,
    shared_ffn=128,
    prediction_layers=1,
    latent=LatentAttention(query_rank=64, key_value_rank=32, rope=8, plain=16, value=24),
)
MODELS = {"plain": PLAIN, "shared": SHARED, "latent": LATENT}
SHARD = Shard(micro_batch=2, sequence_length=256)
ROUTED = 2.0 * 512 * 2 * 256  # bytes of [tokens, top_k, hidden]


def model_flops(model, shard):
    operations = (o for layer in model.layers() for o in (*layer.forward(shard), *layer.backward(shard)))
    return sum(operation.model_flops for operation in operations)


def collectives(operations, axis):
    """(operation, bytes) along an axis, without what ranks tell beside the rows: how many, for whom, which gates."""
    beside = (".counts", ".choices", "gates")
    return [
        (o.what.op, o.what.size)
        for o in operations
        if isinstance(o.what, Collective) and o.what.axis == axis and not o.label.endswith(beside)
    ]


def sizes(operations, axis):
    """Bytes of the all-to-alls along an axis, without the gates' own."""
    moved = collectives(operations, axis)
    assert {op for op, _ in moved} == {"all_to_all"}
    return [size for _, size in moved]


@given(
    name=st.sampled_from(sorted(MODELS)),
    tp=st.sampled_from([1, 2, 4]),
    etp=st.sampled_from([1, 2, 4]),
    ep=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2]),
    sequence_parallel=st.booleans(),
    load=st.sampled_from(["balanced", "random", "zipf", "dirichlet"]),
    capacity=st.sampled_from([None, 1.0, 1.25]),
)
@settings(max_examples=100, deadline=None)
def test_flops_over_all_ranks_do_not_depend_on_the_plan_nor_on_the_load(
    name, tp, etp, ep, cp, sequence_parallel, load, capacity
):
    sequence_parallel = sequence_parallel and tp > 1
    if tp % etp or (etp < tp and not sequence_parallel):
        return  # refused by the plan's checks
    shard = Shard(
        micro_batch=2,
        sequence_length=256,
        tp=tp,
        expert_tp=etp,
        ep=ep,
        cp=cp,
        sequence_parallel=sequence_parallel,
        routing=Routing(load=load, capacity=capacity),
    )
    expected = 2 * MODELS[name].flops(256)
    assert model_flops(MODELS[name], shard) * tp * cp == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_six_per_active_matrix_parameter_and_token_and_twelve_per_score(name):
    """A prediction layer also meets the head once more; look-ups, norms and biases have no FLOPs."""
    model, s = MODELS[name], 256
    matrices = model.num_active_parameters - model.parameters().vectors - model.vocab * model.hidden
    heads = model.vocab * model.hidden * model.prediction_layers
    core = next(m for m in model.layers()[1].modules if m.name == "core_attention")
    blocks = model.num_layers + model.prediction_layers
    scores = 6 * blocks * model.heads * (core.head_dim + core.head_dim_v) * s**2
    assert model.flops(s) == pytest.approx(6 * s * (matrices + heads) + scores, rel=1e-12)


def test_tokens_go_out_and_come_back_forward_and_again_backward():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=4)
    assert collectives(block.forward(shard), "ep") == [("all_to_all", ROUTED)] * 2
    assert collectives(block.backward(shard), "ep") == [("all_to_all", ROUTED)] * 2
    assert collectives(block.forward(SHARD), "ep") == []
    full = replace(shard, recompute="full")
    assert collectives(block.recompute(full), "ep") == [("all_to_all", ROUTED)] * 2


def test_without_capacity_the_host_waits_once_per_forward_for_the_counts_of_all_ranks():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=4)
    counts = [o.what.size for o in block.forward(shard) if o.label == "dispatch.counts"]
    assert counts == [4 * 8 * 8.0]  # of eight experts from four ranks, 8 bytes each
    assert sum(o.awaited for o in block.forward(shard)) == 1
    assert not any(o.awaited for o in block.backward(shard))
    fixed = replace(shard, routing=Routing(capacity=1.0))
    assert not any(o.awaited or o.label == "dispatch.counts" for o in block.forward(fixed))


def test_experts_take_a_kernel_each_unless_their_gemms_are_one():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=4, gemm_dtype="mxfp8", scaling="block")

    def kernels(shard):
        own = [o.what.kernels for o in block.forward(shard) if o.label.startswith("expert_gate_up")]
        return own, [o.label for o in block.forward(shard) if o.label.endswith("pad")]

    assert kernels(shard) == ([2, 2], ["dispatch.pad", "combine.unpad"])
    one = replace(shard, fusions=shard.fusions | {"grouped_gemm"})
    assert kernels(one)[0] == [1, 1]
    # HybridEP pads as it delivers
    assert kernels(replace(shard, routing=Routing(deduplicated=True)))[1] == []


def test_biases_and_limits_of_gpt_oss_pass_over_every_routed_row():
    """Bytes per row and output: 14 + 14 forward and 24 + 16 backward; per row and input of the activation 8 more."""
    model = MixtureOfExperts(**SHAPES, expert_ffn=128, expert_bias=True, expert_clamp=True)
    block, rows = model.layers()[1], 2 * 512
    moved = {o.label: o.hbm_bytes for o in (*block.forward(SHARD), *block.backward(SHARD))}
    assert moved["expert_down.bias"] == rows * 256 * 28.0
    assert moved["expert_down.bias_backward"] == rows * 256 * 40.0
    assert moved["expert_activation.clamp"] == rows * 128 * 2.0 * 8
    assert moved["expert_activation.clamp_backward"] == rows * 128 * 2.0 * 10
    assert "expert_down.bias_gradient" not in moved


def test_gradients_of_weighed_activations_read_their_inputs_twice_unless_the_software_fuses_all():
    """Per row and input: gradient, gate and up, once for the input's gradient and once for the gates'; two written."""
    block, rows = PLAIN.layers()[1], 2 * 512

    def moved(*fusions):
        shard = replace(SHARD, fusions=SHARD.fusions | set(fusions))
        (found,) = (o.what for o in block.backward(shard) if o.label == "expert_activation.backward")
        return found.bytes_read, found.bytes_written, found.kernels

    size = rows * 128 * 2.0
    assert moved("swiglu") == (6 * size, 2 * size, 2)
    assert moved("swiglu", "weighed_swiglu") == (3 * size, 2 * size, 1)


def test_rotations_with_a_factor_run_apart_where_only_plain_ones_are_fused():
    """Per element of queries and keys: 6.5 reads and 5.5 writes forward, 8.5 of each backward (Megatron-Core)."""
    scaled = MixtureOfExperts(**SHAPES, kv_heads=8, expert_ffn=128, rotary_factor=True)

    def rotations(model, *fusions):
        block, shard = model.layers()[1], replace(SHARD, fusions=SHARD.fusions | set(fusions))
        operations = (*block.forward(shard), *block.backward(shard))
        return [(o.what.bytes_read, o.what.bytes_written) for o in operations if o.label.startswith("rotary")]

    size = 512 * (16 + 8) * 16 * 2.0  # bytes of queries and keys
    assert rotations(scaled, "rope") == [(6.5 * size, 5.5 * size), (8.5 * size, 8.5 * size)]
    assert rotations(scaled, "rope", "scaled_rope") == rotations(PLAIN, "rope") == [(size, size)] * 2


def test_ranks_that_split_an_expert_gather_their_tokens_and_scatter_the_sums():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, tp=4, expert_tp=2, ep=4, sequence_parallel=True)
    own = ROUTED / 4  # sequence parallelism: a quarter of the tokens each
    assert collectives(block.forward(shard), "ep") == [("all_to_all", own)] * 2
    expected = [("all_gather", 2 * own), ("reduce_scatter", 2 * own)]
    assert collectives(block.forward(shard), "etp") == expected
    assert collectives(block.backward(shard), "etp") == expected
    assert collectives(block.forward(replace(shard, expert_tp=1)), "etp") == []


def test_without_sequence_parallelism_partial_results_are_summed_over_tp():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, tp=2, ep=2)
    tokens = 2.0 * 512 * 256
    assert ("all_reduce", tokens) in collectives(block.forward(shard), "tp")
    assert len(collectives(block.forward(shard), "tp")) == 2  # attention, experts
    assert len(collectives(block.backward(shard), "tp")) == 2


@given(
    num_experts=st.sampled_from([4, 6, 8]),
    num_ranks=st.sampled_from([1, 2, 4]),
    top_k=st.integers(1, 4),
)
def test_distinct_ranks_equal_the_count_over_all_choices(num_experts, num_ranks, top_k):
    if num_experts % num_ranks:
        return
    per_rank = num_experts // num_ranks
    choices = list(combinations(range(num_experts), top_k))
    mean = sum(len({expert // per_rank for expert in choice}) for choice in choices) / len(choices)
    assert distinct_ranks(num_experts, num_ranks, top_k) == pytest.approx(mean, rel=1e-12)


def test_deduplicated_dispatch_sends_a_token_once_per_rank():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=2, routing=Routing(deduplicated=True))
    rows = 512 * distinct_ranks(8, 2, 2)
    gates = 8 * 4.0  # of all experts of the rows' domain, with them out, and their gradients back
    out, back = rows * (256 * 2.0 + gates), rows * 256 * 2.0
    assert sizes(block.forward(shard), "ep") == pytest.approx([out, back])
    assert sizes(block.backward(shard), "ep") == pytest.approx([back, out])


def test_deduplicated_dispatch_tells_every_rank_the_choice_of_every_token():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=2, routing=Routing(deduplicated=True))
    told = [(o.what.op, o.what.size) for o in block.forward(shard) if o.label == "dispatch.choices"]
    assert told == [("all_gather", 2 * 512 * 8.0)]  # a byte per expert for the 512 tokens of two ranks
    assert not any(o.label.endswith(("choices", "counts", "gates")) for o in block.backward(shard))


def test_gates_follow_rows_in_an_exchange_of_their_own():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=4)
    for way in (block.forward(shard), block.backward(shard)):
        gates = [(o.what.op, o.what.size) for o in way if o.label.endswith("gates")]
        assert gates == [("all_to_all", 512 * 2 * 4.0)]
    labels = [o.label for o in block.forward(shard)]
    assert labels.index("dispatch.gates") == labels.index("dispatch.all_to_all") + 1
    assert not any(o.label.endswith("gates") for o in block.forward(SHARD))


def test_a_token_crosses_to_another_node_once_and_is_handed_on_inside():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=4, routing=Routing(domain=2))
    token, gates = 256 * 2.0, 4 * 4.0  # the gates of the four experts on a node
    for axis, ranks in (("ep_across", 2), ("ep_inside", 4)):
        rows = 512 * distinct_ranks(8, ranks, 2)
        assert sizes(block.forward(shard), axis) == pytest.approx([rows * (token + gates), rows * token])
    axes = [o.what.axis for o in block.forward(shard) if isinstance(o.what, Collective)]
    assert axes == ["ep", "ep_across", "ep_inside", "ep_inside", "ep_across"]  # the first carries the choices


@given(top_k=st.integers(1, 4), chosen=st.integers(1, 4))
def test_node_limited_routing_reaches_only_the_chosen_groups(top_k, chosen):
    """Eight experts on four ranks, one group each: all choices within every set of `chosen` groups."""
    if top_k > 2 * chosen:
        return
    counts = [
        len({expert // 2 for expert in choice})
        for groups in combinations(range(4), chosen)
        for choice in combinations([e for g in groups for e in (2 * g, 2 * g + 1)], top_k)
    ]
    mean = sum(counts) / len(counts)
    assert distinct_ranks(8, 4, top_k, 4, chosen) == pytest.approx(mean, rel=1e-12)


def test_narrow_dispatch_halves_the_way_out_alone():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, ep=2, routing=Routing(dtype="fp8"))
    assert collectives(block.forward(shard), "ep") == [("all_to_all", ROUTED / 2), ("all_to_all", ROUTED)]


@given(
    load=st.sampled_from(["balanced", "random", "zipf", "dirichlet"]),
    skew=st.floats(0.1, 5.0),
    seed=st.integers(0, 20),
    num_experts=st.sampled_from([8, 64, 128]),
    top_k=st.integers(1, 8),
)
def test_shares_sum_to_one_and_none_exceeds_what_a_token_may_choose(load, skew, seed, num_experts, top_k):
    shares = expert_shares(load, skew, seed, num_experts, top_k, 4096)
    assert shares.sum() == pytest.approx(1.0, rel=1e-9)
    assert shares.min() >= 0.0
    assert shares.max() <= (1 / top_k) * (1 + 1e-9)
    again = expert_shares(load, skew, seed, num_experts, top_k, 4096)
    assert np.array_equal(shares, again)


@given(seed=st.integers(0, 50), load=st.sampled_from(["random", "zipf", "dirichlet"]))
def test_wider_expert_groups_are_never_better_balanced(seed, load):
    """The fullest of four ranks holds at least half of the fullest of two that are made of them."""
    routing = Routing(load=load, seed=seed)
    loads = [routing.fullest(32, ranks, 2, 4096)[0] for ranks in (1, 2, 4, 8)]
    assert loads[0] == pytest.approx(1.0)
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(loads))


def test_everyone_works_like_the_fullest_rank_and_capacity_bounds_it():
    skewed = replace(SHARD, ep=4, routing=Routing(load="zipf", skew=1.0))
    load = expert_load(skewed, 8, 2)
    assert load.rows > load.local and load.useful == load.local / load.rows
    capped = replace(skewed, routing=Routing(load="zipf", skew=1.0, capacity=1.25))
    assert expert_load(capped, 8, 2).rows == pytest.approx(1.25 * load.local, abs=1)
    assert 0.0 < capped.routing.dropped(8, 2, load.local) < 1.0
    assert skewed.routing.dropped(8, 2, load.local) == 0.0


def test_grouped_gemms_cover_the_experts_of_the_rank():
    block = PLAIN.layers()[1]
    shard = replace(SHARD, tp=2, ep=4, sequence_parallel=True)
    gemms = [o.what for o in block.forward(shard) if isinstance(o.what, GroupedGemm)]
    assert [(g.groups, g.m, g.n, g.k) for g in gemms] == [(2, 1024, 128, 256), (2, 1024, 256, 64)]


def test_expert_parameters_are_split_by_ep_and_etp_and_counted_apart():
    block = PLAIN.layers()[1]
    whole = block.parameters(SHARD).experts
    assert whole == 8 * 3 * 256 * 128
    assert block.parameters(replace(SHARD, tp=4, expert_tp=2, ep=4)).experts == whole / 8


def test_latent_attention_keeps_wide_keys_but_narrow_values():
    (core,) = [o.what for o in LATENT.layers()[1].forward(SHARD) if isinstance(o.what, Attention)]
    assert (core.heads, core.kv_heads, core.head_dim, core.head_dim_v) == (16, 16, 24, 24)


def test_recomputing_the_mixture_keeps_its_input_and_reruns_dispatch_and_experts():
    block = SHARED.layers()[2]
    shard = replace(SHARD, ep=2, recompute="selective", recompute_groups=frozenset({"moe"}))
    kept = block.kept_tensors(shard)
    assert "norm_2" in kept
    assert not {"dispatch", "expert_gate_up", "expert_activation", "shared_gate_up"} & set(kept)
    labels = {operation.label.split(".")[0] for operation in block.recompute(shard)}
    assert {"router", "dispatch", "expert_gate_up", "expert_down", "combine", "shared_down"} <= labels
    activation = replace(shard, recompute_groups=frozenset({"moe.activation"}))
    assert {o.label.split(".")[0] for o in block.recompute(activation)} == {"expert_activation"}
    assert "expert_gate_up" in block.kept_tensors(activation)


def test_windows_and_full_attention_alternate():
    model = MixtureOfExperts(
        **{**SHAPES, "layers": 4}, expert_ffn=128, sliding_window=32, full_attention_every=2
    )
    spans = []
    for layer in model.layers()[1:-1]:
        (core,) = [o.what for o in layer.forward(SHARD) if isinstance(o.what, Attention)]
        spans.append(core.seq_kv)
    assert spans == [32, 256, 32, 256]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"top_k": 9}, "top_k"),
        ({"dense_layers": 3, "ffn": 512}, "dense_layers"),
        ({"dense_layers": 1}, "ffn"),
    ],
)
def test_impossible_shapes_are_faults(changes, key):
    model = MixtureOfExperts(**{**SHAPES, "expert_ffn": 128, **changes})
    assert key in [where for where, _ in model.faults()]


def test_degrees_that_do_not_divide_the_experts_are_faults():
    assert ("ep", "3 does not divide 8 experts (divisors: 1 2 4 8)") in PLAIN.sharding_faults(1, 1, 3)
    assert [key for key, _ in PLAIN.sharding_faults(1, 1, 1, 3)] == ["experts.tp"]


def test_unfused_parts_launch_as_many_kernels_as_megatron_core_lists_and_compute_the_same():
    """Its own counts: 13 kernels for a rotation (11 backward), of queries and of the key; 40 and 20 for the choice."""
    block = LATENT.layers()[1]
    fused = replace(SHARD, ep=4, fusions=SHARD.fusions | {"rope", "router"})

    def kernels(shard, module):
        ways = (block.forward(shard), block.backward(shard))
        return [sum(o.what.kernels for o in way if o.label.startswith(module)) for way in ways]

    assert kernels(fused, "rotary") == [2, 2]
    assert kernels(fused, "choice") == [2, 2]
    apart = replace(fused, fusions=SHARD.fusions)
    assert kernels(apart, "rotary") == [2 * 13 + 3, 2 * 11 + 3]
    assert kernels(apart, "choice") == [40, 20]
    assert model_flops(LATENT, apart) == model_flops(LATENT, fused)
