"""Blocks at the ends of a model whose products stay in 16 bits beside narrower ones."""

from itertools import pairwise

import pytest

from simulator import load_cluster, simulate
from simulator.costs.memory import stage_state
from simulator.workloads.layers import Shard
from simulator.workloads.operators import Gemm
from simulator.workloads.workload import Workload

MODEL = {
    "family": "llama",
    "layers": 6,
    "hidden": 1024,
    "heads": 8,
    "kv_heads": 8,
    "ffn": 2048,
    "vocab": 1024,
}
NARROW = Shard(micro_batch=2, sequence_length=256, gemm_dtype="fp8")


def job(first=0, last=0, precision="fp8", **plan):
    return Workload(
        model={**MODEL, "max_sequence": 256},
        global_batch=16,
        sequence_length=256,
        precision=precision,
        plan={"wide_ends": {"first": first, "last": last}, "micro_batch": 2, **plan},
    )


def types(layer):
    operations = layer.forward(NARROW) + layer.backward(NARROW)
    return {o.what.dtype for o in operations if isinstance(o.what, Gemm)}


def test_blocks_at_the_ends_multiply_in_the_activation_type_and_cast_nothing():
    layers = job(first=1, last=2).layers()
    assert [types(layer) for layer in layers[1:-1]] == [{"bf16"}] + 3 * [{"fp8"}] + 2 * [{"bf16"}]
    assert not [o for o in layers[1].forward(NARROW) if ".cast" in o.label]
    assert layers[1] is layers[-2] and layers[2] is layers[4]  # so that they are priced once
    assert job().layers() == job().model.layers()


def test_the_step_goes_from_that_of_narrow_blocks_to_that_of_wide_ones_block_by_block():
    cluster = load_cluster("hgx-h100-cluster", gpus=8)
    steps = [simulate(cluster, job(last=count)).step_time_s for count in range(7)]
    gaps = [after - before for before, after in pairwise(steps)]
    assert gaps == pytest.approx(
        [gaps[0]] * 6, rel=0.15
    )  # the power limit slows one type more than the other
    assert gaps[0] != 0
    assert simulate(cluster, job(first=6)).step_time_s == steps[-1]


def test_wide_blocks_hold_no_narrow_copies():
    def held(**changed):
        workload = job(zero=1, **changed)
        return stage_state(workload.layers(), workload, NARROW, 8).parameters

    block = 4 * 1024**2 + 3 * 1024 * 2048
    assert held() - held(first=2) == 2 * 2 * block  # two copies of a byte each
    whole, ends = ({"parameter_dtype": "fp8", "first": first} for first in (0, 2))
    assert held(**ends) == held(**whole)  # two bytes wide, or a byte and its turned copy


@pytest.mark.parametrize(("pp", "layers"), [(2, None), (3, [1, 2, 3])])
def test_stages_with_the_ends_have_the_wide_blocks(pp, layers):
    plan = {"pp": pp, **({"layers_per_stage": layers} if layers else {})}
    cluster = load_cluster("hgx-h100-cluster", gpus=2 * pp)
    plain, ends = (simulate(cluster, job(first=1, last=1, precision=p, **plan)) for p in ("bf16", "fp8"))
    assert ends.step_time_s != plain.step_time_s


def test_more_ends_than_blocks_are_refused():
    with pytest.raises(ValueError, match="4 first and 3 last blocks, but the model has 6 blocks"):
        job(first=4, last=3)


def test_ends_of_a_wide_model_are_warned_of():
    assert ("plan.wide_ends", "has no effect with precision bf16") in job(
        last=1, precision="bf16"
    ).warnings_on(8, "flash2")
    assert not [key for key, _ in job(last=1).warnings_on(8, "flash2") if key == "plan.wide_ends"]
