"""Memory rules: bytes per parameter, ZeRO closed forms, activations in flight, published totals."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.costs.memory import (
    NO_OVERHEADS,
    StateRule,
    chunk_activation_bytes,
    chunks_in_flight,
    gathered_bytes,
    gradient_copies,
    largest_working,
    recomputed_blocks,
    stage_memory,
    stage_state,
    state_bytes,
    state_rule,
    update_bytes,
)
from simulator.costs.software import MemoryOverheads
from simulator.program.schedules import SCHEDULES
from simulator.program.stages import chunks
from simulator.workloads.workload import Workload

MODEL = {"family": "gpt", "layers": 8, "hidden": 256, "heads": 8, "vocab": 1024, "max_sequence": 512}


def workload(precision="bf16", model=MODEL, global_batch=64, sequence_length=512, **plan):
    return Workload(
        model=model,
        global_batch=global_batch,
        sequence_length=sequence_length,
        precision=precision,
        plan=plan,
    )


def shard_of(run):
    return run.shard(frozenset({"qkv", "norm"}), "flash2")


@pytest.mark.parametrize(
    ("precision", "plan", "total"),
    [
        ("fp16", {}, 2 + 2 + 4 + 8),  # Rajbhandari et al. 2020: 16 bytes
        ("bf16", {}, 2 + 4 + 4 + 8),  # Megatron with fp32 gradient accumulation: 18 bytes
        ("bf16", {"gradient_dtype": "bf16"}, 16),
        ("fp32", {}, 4 + 4 + 8),
        ("bf16", {"zero": 3}, 4 + 4 + 8),
        ("bf16", {"zero": 3, "parameter_dtype": "bf16"}, 18),
        ("bf16", {"zero": 3, "gradient_dtype": "bf16"}, 4 + 4 + 8),  # a .grad has its parameter's type
        ("bf16", {"optimizer": "sgd"}, 2 + 4 + 4),
        ("bf16", {"optimizer": "momentum"}, 2 + 4 + 4 + 4),
        ("bf16", {"optimizer_dtype": "bf16"}, 2 + 4 + 4 + 4),
        ("bf16", {"optimizer_dtype": "int8", "master_weights": False}, 2 + 4 + 2),
    ],
)
def test_bytes_per_parameter(precision, plan, total):
    assert state_rule(workload(precision, **plan)).total == total


@given(count=st.integers(1, 10**12), ranks=st.integers(1, 4096))
def test_zero_divides_one_more_kind_with_each_stage(count, ranks):
    """Rajbhandari et al. 2020, figure 1: 2 + 2 + K = 12 bytes."""
    totals = [state_bytes(count, StateRule(2.0, 2.0, 4.0, 8.0, zero), ranks).total for zero in range(4)]
    expected = [16 * count, (4 + 12 / ranks) * count, (2 + 14 / ranks) * count, 16 * count / ranks]
    assert totals == pytest.approx(expected)


def test_zero_figure_for_7_5_billion_parameters_on_64_gpus():
    """Same figure: 120, 31.4, 16.6 and 1.9 GB."""
    totals = [state_bytes(7_500_000_000, StateRule(2.0, 2.0, 4.0, 8.0, z), 64).total / 1e9 for z in range(4)]
    assert [round(total, 1) for total in totals] == [120.0, 31.4, 16.6, 1.9]


def test_zero_2_states_of_a_trillion_parameters():
    """COMET (arXiv 2211.16648): GB per GPU at MP x DP = 8x128, 16x64, 32x32, 64x16, 128x8."""
    rule = StateRule(2.0, 2.0, 4.0, 8.0, 2)
    found = [
        state_bytes(10**12 // mp, rule, dp).total / 1e9
        for mp, dp in ((8, 128), (16, 64), (32, 32), (64, 16), (128, 8))
    ]
    assert [round(value) for value in found] == [264, 139, 76, 45, 29]


@given(
    name=st.sampled_from(["gpipe", "1f1b", "interleaved"]),
    num_stages=st.integers(1, 6),
    groups=st.integers(1, 4),
    num_chunks=st.integers(1, 4),
    data=st.data(),
)
def test_chunks_in_flight_are_what_the_schedule_holds_at_its_peak(name, num_stages, groups, num_chunks, data):
    num_chunks = num_chunks if name == "interleaved" and num_stages > 1 else 1
    micro_batches = groups * num_stages
    stage = data.draw(st.integers(0, num_stages - 1))
    held = peak = 0
    for action in SCHEDULES[name](stage, num_stages, micro_batches, num_chunks):
        held += {"F": 1, "B": -1}.get(action.op, 0)
        peak = max(peak, held)
    assert chunks_in_flight(name, stage, num_stages, micro_batches, num_chunks) == peak


def test_first_stage_activations_of_interleaved_schedule():
    """Korthikanti et al. 2022, section 4.2.3: L layers in flight, times 1 + (p - 1)/(p v) when interleaved."""
    p, v, layers = 4, 2, 8
    whole = chunks_in_flight("interleaved", 0, p, 16, v) * layers / (p * v)
    assert whole == pytest.approx(layers * (1 + (p - 1) / (p * v)))
    assert chunks_in_flight("1f1b", 0, p, 16, 1) * layers / p == layers


def test_the_loss_of_an_interleaved_schedule_is_in_flight_once():
    """The last stage holds (v - 1) p + 1 chunks, of which one ends in the loss, however many micro-batches come."""
    for micro_batches in (4, 8, 32):
        run = workload(pp=4, vpp=2, global_batch=micro_batches, micro_batch=1)
        shard, placed = shard_of(run), chunks(run.model.layers(), 4, 2, None)
        block, last = (chunk_activation_bytes(chunk, shard) for chunk in placed[3])
        kept = stage_memory(placed[3], 3, run, shard, 4)["activations"]
        assert kept == pytest.approx(4 * block + last)
        assert last > block


def test_recomputed_blocks_fill_the_stage_from_its_first_chunk():
    assert recomputed_blocks([2, 2, 2], None) == [2, 2, 2]
    assert recomputed_blocks([2, 2, 2], 3) == [2, 1, 0]
    assert recomputed_blocks([2, 2], 9) == [2, 2]


def test_partly_recomputed_chunk_keeps_between_none_and_all():
    run = workload(recompute="full")
    shard, layers = shard_of(run), run.model.layers()
    kept = [chunk_activation_bytes(layers, shard, count) for count in range(9)]
    assert kept == sorted(kept, reverse=True)
    assert kept[8] == chunk_activation_bytes(layers, shard)
    steps = {round(a - b) for a, b in pairwise(kept)}
    assert len(steps) == 1  # every block saves the same


def test_states_of_all_stages_add_up_to_the_model():
    run = workload(tp=2, pp=4)
    shard = shard_of(run)
    placed = chunks(run.model.layers(), 4, 1, None)
    total = sum(stage_state(stage[0], run, shard, 8).total for stage in placed)
    matrices = sum(layer.parameters(shard).total for layer in run.model.layers())
    assert total == pytest.approx(18 * matrices)


def test_gathers_hold_the_running_and_the_prefetched_layers():
    run = workload(zero=3)
    shard, block = shard_of(run), run.model.layers()[1]
    size = block.parameters(shard).total
    blocks = [block] * 4
    gradients = size * (2 + 4)
    assert gathered_bytes(blocks, run, shard) == 2 * size * 2 + gradients
    ahead = workload(zero=3, zero3={"prefetch": 0})
    assert gathered_bytes(blocks, ahead, shard) == size * 2 + gradients
    kept = workload(zero=3, zero3={"reshard_after_forward": False})
    assert gathered_bytes(blocks, kept, shard) == 4 * size * 2 + gradients
    assert gathered_bytes(blocks, workload(), shard) == 0.0


def test_update_copies_16_bit_gradients_to_fp32_once():
    layers = workload("fp16").model.layers()
    count = sum(layer.parameters(shard_of(workload("fp16"))).total for layer in layers)
    assert update_bytes(layers, workload("fp16"), shard_of(workload("fp16")), 8) == 4 * count
    assert update_bytes(layers, workload("fp16", zero=1), shard_of(workload("fp16")), 8) == 4 * count / 8
    assert update_bytes(layers, workload("bf16"), shard_of(workload("bf16")), 8) == 0.0


def test_stage_memory_names_every_kind_and_charges_overheads():
    run = workload("fp16", tp=2, pp=4, recompute="full")
    shard = shard_of(run)
    placed = chunks(run.model.layers(), 4, 1, None)
    plain = stage_memory(placed[0], 0, run, shard, 8)
    loaded = stage_memory(placed[0], 0, run, shard, 8, MemoryOverheads(context=1e9, fragmentation=0.1))
    dynamic = plain["activations"] + plain["transient"] + plain["buffers"]
    assert sum(loaded.values()) == pytest.approx(sum(plain.values()) + 1e9 + 0.1 * dynamic)
    assert plain["activations"] == 4 * chunk_activation_bytes(placed[0][0], shard)
    last = stage_memory(placed[3], 3, run, shard, 8)
    assert last["activations"] == chunk_activation_bytes(placed[3][0], shard)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), max_size=8))
def test_backward_is_fullest_at_one_of_its_layers(layers):
    """Kept bytes up to each layer and its working ones: the fullest such moment, less all that is kept."""
    whole = sum(kept for kept, _ in layers)
    moments = [sum(k for k, _ in layers[: i + 1]) + working for i, (_, working) in enumerate(layers)]
    assert whole + largest_working(layers) == pytest.approx(max([whole, *moments]))


def test_fp8_parameters_rest_in_one_byte_with_a_copy_the_other_way_round():
    def parameters(**plan):
        run = workload("fp8", {**MODEL, "tied_embeddings": False}, **plan)
        layers, shard = run.model.layers(), shard_of(run)
        counts = [layer.parameters(shard) for layer in layers]
        matrices = sum(count.matrices for count in counts)
        rest = sum(count.total for count in counts) - matrices
        return (stage_state(layers, run, shard, 8).parameters - 2 * rest) / matrices

    assert parameters() == 2 + 2
    assert parameters(transposed_weights=False) == 2 + 1
    assert parameters(parameter_dtype="fp8") == 2
    assert parameters(parameter_dtype="fp8", transposed_weights=False) == 1


def test_gradients_that_software_keeps_twice():
    def copies(precision, overheads, **plan):
        run = workload(precision, **plan)
        layers = run.model.layers()
        count = sum(layer.parameters(shard_of(run)).total for layer in layers)
        return gradient_copies(layers, run, shard_of(run), 8, overheads) / count

    deepspeed = MemoryOverheads(context=0.0, fragmentation=0.0, narrow_gradients=True, flat_update=True)
    assert copies("bf16", deepspeed, zero=1) == 2  # .grad beside fp32 sums
    assert copies("fp16", deepspeed, zero=1) == 4 / 8  # this rank's part, flat and in fp32
    assert copies("fp16", deepspeed) == 4
    assert copies("fp16", deepspeed, optimizer_dtype="bf16") == 0  # which takes gradients as they are
    assert copies("bf16", NO_OVERHEADS) == copies("fp16", NO_OVERHEADS) == 0


@given(tp=st.sampled_from([1, 2, 4]), zero=st.sampled_from([0, 1, 3]), dp=st.sampled_from([2, 4, 8]))
def test_more_sharding_never_needs_more_state(tp, zero, dp):
    def total(tp, zero, dp):
        run = workload(tp=tp, zero=zero, global_batch=64, parameter_dtype="bf16")
        return stage_state(run.model.layers(), run, shard_of(run), tp * dp).total

    assert total(2 * tp, zero, dp) <= total(tp, zero, dp)
    assert total(tp, zero, 2 * dp) <= total(tp, zero, dp)
    assert total(tp, 3, dp) <= total(tp, zero, dp) * (1 + 1e-12)
