"""Casts and scaling traffic of narrow GEMMs, by recipe; wide types need none."""

from dataclasses import replace

import pytest

from simulator.workloads.layers import Shard
from simulator.workloads.models.llama import Llama
from simulator.workloads.models.moe import MixtureOfExperts
from simulator.workloads.modules.elementwise import GatedActivation
from simulator.workloads.operators import Collective, Gemm, MemoryBound
from simulator.workloads.workload import Workload

SHAPES = {"layers": 1, "hidden": 256, "heads": 16, "vocab": 1024, "max_sequence": 256}
BLOCK = Llama(**SHAPES, kv_heads=16, ffn=512).layers()[1]
TOKENS = 512
WIDE = Shard(micro_batch=2, sequence_length=256)
NARROW = replace(WIDE, gemm_dtype="fp8")
# inputs of qkv, projection, gate-up, down; gradients of their outputs
INPUTS, GRADIENTS = 256 + 256 + 256 + 512, 768 + 256 + 1024 + 256


def casts(operations):
    return [o.what for o in operations if isinstance(o.what, MemoryBound) and ".cast_" in o.label]


def bytes_of(kernels):
    return sum(k.bytes_read for k in kernels), sum(k.bytes_written for k in kernels)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "tf32"])
def test_types_as_wide_as_activations_need_no_casts(dtype):
    shard = replace(WIDE, gemm_dtype=dtype, dtype="fp32" if dtype in ("fp32", "tf32") else dtype)
    assert casts(BLOCK.forward(shard) + BLOCK.backward(shard)) == []


def test_delayed_scaling_reads_wide_once_and_writes_both_orders_narrow():
    """Inputs in forward, output gradients in backward: two bytes in, one byte for each of two copies out."""
    assert bytes_of(casts(BLOCK.forward(NARROW))) == (2.0 * TOKENS * INPUTS, 2.0 * TOKENS * INPUTS)
    assert bytes_of(casts(BLOCK.backward(NARROW))) == (2.0 * TOKENS * GRADIENTS, 2.0 * TOKENS * GRADIENTS)


def test_current_scaling_reads_once_more_to_find_the_largest_value():
    operations = BLOCK.forward(replace(NARROW, scaling="current"))
    largest = [o.what for o in operations if ".largest_" in o.label]
    assert bytes_of(largest) == (2.0 * TOKENS * INPUTS, 0.0)
    assert bytes_of(casts(operations)) == bytes_of(casts(BLOCK.forward(NARROW)))


def test_ranks_with_different_tokens_agree_on_the_largest_value():
    """The inputs of both column-parallel projections forward, the gradients of both row-parallel ones backward."""
    shard = replace(NARROW, scaling="current", tp=4, sequence_parallel=True)
    for operations in (BLOCK.forward(shard), BLOCK.backward(shard)):
        agreed = [o for o in operations if o.is_collective and ".largest_" in o.label]
        assert [(o.what.op, o.what.axis, o.what.size) for o in agreed] == [("all_reduce", "tp", 4.0)] * 2


@pytest.mark.parametrize(("dtype", "narrow", "block"), [("mxfp8", 1.0, 32), ("nvfp4", 0.5, 16)])
def test_block_formats_write_a_scale_per_block(dtype, narrow, block):
    kernels = casts(BLOCK.forward(replace(NARROW, gemm_dtype=dtype, scaling="block")))
    passes = 2 if dtype == "nvfp4" else 1  # rotated for the copy that the weight gradient reads
    read, written = bytes_of(kernels)
    assert read == passes * 2.0 * TOKENS * INPUTS
    assert written == pytest.approx(2 * TOKENS * INPUTS * (narrow + 1 / block))


def test_a_kernel_for_each_order_reads_the_wide_tensor_twice():
    together = replace(NARROW, gemm_dtype="mxfp8", scaling="block")
    apart = replace(together, fusions=together.fusions - {"cast_transpose"})
    read, written = bytes_of(casts(BLOCK.backward(together)))
    assert bytes_of(casts(BLOCK.backward(apart))) == (2 * read, written)


def test_scales_by_row_need_the_wide_tensor_transposed_too():
    """Read twice, written narrow both ways and wide the other way; by every projection for itself."""
    shard = replace(NARROW, scaling="row", fusions=NARROW.fusions - {"qkv", "gate_up"})
    every = 3 * 256 + 256 + 2 * 256 + 512
    assert bytes_of(casts(BLOCK.forward(shard))) == (4.0 * TOKENS * every, 4.0 * TOKENS * every)
    assert bytes_of(casts(BLOCK.backward(shard))) == (4.0 * TOKENS * GRADIENTS, 4.0 * TOKENS * GRADIENTS)


def test_tensors_scaled_by_row_travel_wide():
    shard = replace(NARROW, tp=4, sequence_parallel=True, fusions=NARROW.fusions | {"narrow_gather"})
    wide = gathered(replace(shard, scaling="row"), "forward")
    assert wide == [2 * size for size in gathered(replace(shard, scaling="current"), "forward")]


def gathered(shard, run):
    operations = getattr(BLOCK, run)(shard)
    return [o.what.size for o in operations if isinstance(o.what, Collective) and o.what.op == "all_gather"]


def test_software_that_gathers_narrow_casts_its_own_tokens_and_sends_half():
    wide, narrow = (replace(s, tp=4, sequence_parallel=True) for s in (WIDE, NARROW))
    fused = replace(narrow, fusions=narrow.fusions | {"narrow_gather"})
    for run in ("forward", "backward"):
        assert [2 * size for size in gathered(fused, run)] == gathered(wide, run)
        assert gathered(narrow, run) == gathered(wide, run)
    own, _ = bytes_of(casts(BLOCK.forward(fused)))
    everything, _ = bytes_of(casts(BLOCK.forward(narrow)))
    assert own == 2.0 * TOKENS * (256 / 4 + 256 / 4 + 256 / 4 + 512 / 4)
    assert everything == 2.0 * TOKENS * (256 + 256 / 4 + 256 + 512 / 4)


def test_weights_gathered_wide_are_cast_before_every_use():
    fsdp = replace(NARROW, casts_weights=True)
    matrices = BLOCK.parameters(NARROW).matrices
    for run in ("forward", "backward"):
        extra = (
            bytes_of(casts(getattr(BLOCK, run)(fsdp)))[0] - bytes_of(casts(getattr(BLOCK, run)(NARROW)))[0]
        )
        assert extra == 2.0 * matrices


def test_experts_are_cast_like_other_projections():
    block = MixtureOfExperts(**SHAPES, experts=8, top_k=2, expert_ffn=128).layers()[1]
    kernels = {o.label: o.what for o in block.forward(NARROW) if ".cast_" in o.label}
    assert kernels["expert_gate_up.cast_input"].bytes_read == 2.0 * TOKENS * 2 * 256
    assert kernels["expert_down.cast_input"].bytes_read == 2.0 * TOKENS * 2 * 128


def test_only_products_of_blocks_run_narrow():
    model = Llama(**SHAPES, ffn=512)
    head = model.layers()[-1]
    assert {o.what.dtype for o in head.forward(NARROW) if isinstance(o.what, Gemm)} == {"bf16"}
    assert {o.what.dtype for o in BLOCK.forward(NARROW) if isinstance(o.what, Gemm)} == {"fp8"}


@pytest.mark.parametrize(
    ("precision", "asked", "expected"),
    [
        ("fp8", None, "delayed"),
        ("fp8", "current", "current"),
        ("mxfp8", None, "block"),
        ("nvfp4", None, "block"),
    ],
)
def test_scaling_follows_the_format_unless_the_plan_says_otherwise(precision, asked, expected):
    plan = {} if asked is None else {"scaling": asked}
    model = {"family": "llama", **SHAPES, "ffn": 512}
    job = Workload(model=model, global_batch=8, sequence_length=256, precision=precision, plan=plan)
    assert job.scaling == expected


def test_block_formats_refuse_scales_of_tensors():
    model = {"family": "llama", **SHAPES, "ffn": 512}
    with pytest.raises(Exception, match="mxfp8 is scaled by block, not current"):
        Workload(
            model=model, global_batch=8, sequence_length=256, precision="mxfp8", plan={"scaling": "current"}
        )


@pytest.mark.parametrize("fused", [True, False])
def test_inputs_of_gated_activations_kept_narrow_take_half_and_cost_two_casts(fused: bool) -> None:
    """Only where the activation is one kernel; what recomputes it does not keep its input once more."""
    module = GatedActivation(name="activation", source="gate_up", width=1024)
    wide = Shard(
        micro_batch=2, sequence_length=512, fusions=frozenset({"swiglu"} if fused else ()), dtype="bf16"
    )
    narrow = replace(wide, gated_input_dtype="fp8")
    kept = [module.saved(shard)[0].size for shard in (wide, narrow)]
    assert kept[0] == 2 * 512 * 2 * 1024 * 2
    assert kept[1] == (kept[0] / 2 if fused else kept[0])
    for work in (module.forward, module.backward):
        extra = [op for op in work(narrow) if op.what.op == "cast"]
        assert len(work(narrow)) - len(work(wide)) == len(extra) == (1 if fused else 0)
        assert [op.what.bytes_read + op.what.bytes_written for op in extra] == [1.5 * kept[0]] * len(extra)
    assert module.recomputed(narrow) == module.forward(wide)


def test_tf32_replaces_fp32_in_every_product() -> None:
    """Also in those of attention and of the vocabulary, which stay in the activations' type beside narrower formats."""
    model = Llama(**SHAPES, kv_heads=16, ffn=512)
    for dtype, gemm_dtype, expected in (("fp32", "tf32", {"tf32"}), ("bf16", "fp8", {"fp8", "bf16"})):
        shard = replace(WIDE, dtype=dtype, gemm_dtype=gemm_dtype, attention="unfused")
        operations = [o for layer in model.layers() for o in layer.forward(shard) + layer.backward(shard)]
        assert {o.what.dtype for o in operations if isinstance(o.what, Gemm)} == expected


@pytest.mark.parametrize(
    ("dtype", "fusions", "read_and_written"),
    [
        ("fp16", set(), 30),
        ("fp16", {"narrow_softmax"}, 12),
        ("fp32", set(), 24),
        ("fp16", {"masked_softmax"}, 4),
    ],
)
def test_only_16_bit_scores_take_a_detour_to_fp32(
    dtype: str, fusions: set[str], read_and_written: int
) -> None:
    """Bytes per score of scaling, masking and softmax; Megatron's casts there and back, Hugging Face's does not."""
    shard = replace(WIDE, dtype=dtype, gemm_dtype=dtype, attention="unfused", fusions=frozenset(fusions))
    softmax = next(o.what for o in BLOCK.forward(shard) if o.label.endswith(".softmax"))
    scores = 2 * 16 * 256 * 256
    assert softmax.bytes_read + softmax.bytes_written == read_and_written * scores
