"""Three-dimensional tensor parallelism sends what AxoNN's formulas say, whatever its degrees."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.workloads.layers import Operation, Shard
from simulator.workloads.models.gpt import GPT
from simulator.workloads.models.llama import Llama
from simulator.workloads.modules.linear import ColumnLinear, RowLinear
from simulator.workloads.operators import Collective, Gemm, MemoryBound
from simulator.workloads.prefetch import prefetched
from simulator.workloads.workload import Workload

SHAPES = {"layers": 2, "hidden": 256, "heads": 16, "vocab": 1024, "max_sequence": 256}
MODELS = {"gpt": GPT(**SHAPES), "llama": Llama(**SHAPES, kv_heads=8, ffn=512)}
H1, H2, BATCH, SEQUENCE = 256, 1024, 8, 128
DEGREES = st.sampled_from([1, 2, 4])


def shard(x, y, z, **changes):
    return Shard(micro_batch=BATCH // z, sequence_length=SEQUENCE, tp=y, tp_x=x, tp_z=z, **changes)


def sent(operations, axis, op, ranks):
    """Bytes that one rank sends in rings: once round for gathers and scatters, twice for all-reduces."""
    rounds = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
    return sum(
        rounds[op] * (ranks - 1) / ranks * o.what.size
        for o in operations
        if isinstance(o.what, Collective) and o.what.axis == axis and o.what.op == op
    )


@given(x=DEGREES, y=DEGREES, z=DEGREES)
def test_a_projection_sends_the_volumes_of_singh_et_al(x, y, z):
    """SC'24, section 4 (one way): depth 3(Gz-1)/Gz H1 H2/(Gx Gy), row and column 2(G-1)/G of their activations."""
    layer = ColumnLinear(name="fc", source="input", inputs=H1, parts=(H2,), bias=False)
    grid = shard(x, y, z)
    if not grid.on_grid:
        return
    operations = layer.forward(grid) + layer.backward(grid)
    depth = sum(sent(operations, "tp_z", op, z) for op in ("all_gather", "reduce_scatter"))
    rows = BATCH / z * SEQUENCE
    assert depth == pytest.approx(3 * (z - 1) / z * H1 * H2 / (x * y) * 2.0, rel=1e-9)
    row, column = (sent(operations, axis, "all_reduce", ranks) for axis, ranks in (("tp", y), ("tp_x", x)))
    assert row == pytest.approx(2 * (y - 1) / y * rows * H1 / x * 2.0, rel=1e-9)
    assert column == pytest.approx(2 * (x - 1) / x * rows * H2 / y * 2.0, rel=1e-9)
    assert layer.parameters(grid).matrices == H1 * H2 / (x * y * z)  # what data parallelism then reduces


@given(x=DEGREES, y=DEGREES, z=DEGREES)
def test_the_next_projection_swaps_the_roles(x, y, z):
    grid = shard(x, y, z)
    if not grid.on_grid:
        return
    column = ColumnLinear(name="fc", source="input", inputs=H1, parts=(H2,), bias=False)
    row = RowLinear(name="fc", source="input", inputs=H1, outputs=H2, bias=False)
    swapped = shard(y, x, z)
    for run in ("forward", "backward"):
        one, other = getattr(column, run)(grid), getattr(row, run)(swapped)
        names = {"tp": "tp_x", "tp_x": "tp"}
        seen = [(names.get(o.what.axis, o.what.axis), o.what.op, o.what.size) for o in one if o.is_collective]
        assert seen == [(o.what.axis, o.what.op, o.what.size) for o in other if o.is_collective]


@given(
    name=st.sampled_from(sorted(MODELS)),
    x=DEGREES,
    y=DEGREES,
    z=DEGREES,
    attention=st.sampled_from(["unfused", "flash2"]),
    overlap=st.sampled_from(["none", "backward"]),
)
@settings(max_examples=60, deadline=None)
def test_flops_over_all_ranks_do_not_depend_on_the_grid(name, x, y, z, attention, overlap):
    model, grid = MODELS[name], shard(x, y, z, attention=attention, tp_overlap=overlap)
    total = sum(o.model_flops for layer in model.layers() for o in layer.forward(grid) + layer.backward(grid))
    assert total * x * y * z == pytest.approx(BATCH * model.flops(SEQUENCE), rel=1e-12)


@given(name=st.sampled_from(sorted(MODELS)), x=DEGREES, y=DEGREES, z=DEGREES)
def test_weights_are_divided_by_all_three_degrees(name, x, y, z):
    model = MODELS[name]
    whole = [layer.parameters(shard(1, 1, 1)) for layer in model.layers()]
    parts = [layer.parameters(shard(x, y, z)) for layer in model.layers()]
    assert sum(p.matrices for p in parts) * x * y * z == sum(p.matrices for p in whole)


def test_one_dimension_alone_is_megatrons_scheme():
    block = MODELS["gpt"].layers()[1]
    plain = shard(1, 4, 1)
    along_x = block.forward(shard(4, 1, 1))
    sizes = [o.what.size for o in along_x if o.is_collective]
    # over X outputs of the wide projections are summed instead of those of the narrow ones
    assert [o.what.size for o in block.forward(plain) if o.is_collective] == [2.0 * 1024 * 256] * 2
    assert sizes == [2.0 * 1024 * 3 * 256, 2.0 * 1024 * 1024]


def test_full_recomputation_gathers_weights_twice_and_sums_forward_twice():
    """AxoNN: the depth term stays threefold, the forward-direction all-reduce doubles."""
    block = MODELS["gpt"].layers()[1]
    grid = shard(2, 2, 2, recompute="full")
    again, plain = replace(grid), replace(grid, recompute="none")
    everything = block.forward(again) + block.recompute(again) + block.backward(again)
    once = block.forward(plain) + block.backward(plain)
    for op in ("all_gather", "reduce_scatter"):
        assert sent(everything, "tp_z", op, 2) == sent(once, "tp_z", op, 2)
    forward = sum(sent(block.forward(plain), axis, "all_reduce", 2) for axis in ("tp", "tp_x"))
    reduced = [sum(sent(ops, axis, "all_reduce", 2) for axis in ("tp", "tp_x")) for ops in (everything, once)]
    assert reduced[0] - reduced[1] == forward


def test_weights_of_the_next_projection_are_gathered_beside_this_one():
    operations = MODELS["gpt"].layers()[1].forward(shard(1, 2, 2))
    order = [
        o.label
        for o in operations
        if o.label.endswith(".weights") or (isinstance(o.what, Gemm) and o.label.endswith(".forward"))
    ]
    names = ["qkv", "projection", "fc1", "fc2"]
    expected = ["qkv.weights"]
    for name, following in zip(names, [*names[1:], None], strict=True):
        expected += ([f"{following}.weights"] if following else []) + [f"{name}.forward"]
    assert order == expected
    started = set()
    for operation in operations:
        assert set(operation.waits_for) <= started
        started |= {operation.label} if operation.is_collective else set()


def test_moving_gathers_ahead_keeps_every_operation():
    gather = [
        Operation(f"{i}.weights", Collective("all_gather", "tp_z", 1.0), asynchronous=True) for i in range(3)
    ]
    kernels = [Operation(f"{i}", MemoryBound("x", 1.0, 1.0), waits_for=(f"{i}.weights",)) for i in range(3)]
    mixed = [op for pair in zip(gather, kernels, strict=True) for op in pair]
    moved = prefetched(mixed)
    assert sorted(o.label for o in moved) == sorted(o.label for o in mixed)
    assert [o.label for o in moved] == ["0.weights", "1.weights", "0", "2.weights", "1", "2"]
    assert prefetched(kernels) == tuple(kernels)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"tp": 2, "tp_x": 2, "sequence_parallel": True}, "does not go with sequence_parallel"),
        ({"tp_x": 2, "cp": 2}, "does not go with cp"),
        ({"tp_z": 3, "micro_batch": 4}, "3 does not divide micro_batch 4"),
        ({"tp_x": 3}, "3 does not divide hidden 256"),
    ],
)
def test_grids_that_do_not_divide_are_faults(plan, message):
    with pytest.raises(Exception, match=message):
        Workload(
            model={"family": "gpt", **SHAPES},
            global_batch=64,
            sequence_length=256,
            precision="bf16",
            plan=plan,
        )
