"""Each rule of a plan: what breaks it, the key it blames, the equation it prints."""

import pytest
from pydantic import ValidationError

from simulator.description import DescriptionError, load
from simulator.workloads.plan import Plan
from simulator.workloads.plan_checks import CLUSTER_CHECKS, WORKLOAD_CHECKS
from simulator.workloads.workload import Workload

MODEL = {
    "family": "llama",
    "layers": 8,
    "hidden": 256,
    "heads": 8,
    "kv_heads": 4,
    "ffn": 768,
    "vocab": 1000,
    "max_sequence": 512,
}


def workload(model=None, global_batch=64, sequence_length=512, **plan):
    model = {**MODEL, **(model or {})}
    return Workload(
        model=model, global_batch=global_batch, sequence_length=sequence_length, precision="bf16", plan=plan
    )


def faults(num_gpus=None, **given):
    """(key, message) pairs from building the workload, or from placing it on that many GPUs."""
    try:
        built = workload(**given)
    except ValidationError as error:
        (wrapped,) = error.errors()
        return wrapped["ctx"]["error"].faults
    return [] if num_gpus is None else built.faults_on(num_gpus)


GPT = {"family": "gpt", "layers": 8, "hidden": 256, "heads": 8, "vocab": 1000, "max_sequence": 512}


def only(found):
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("given", "key", "parts"),
    [
        ({"tp": 3}, "plan.tp", ["3 does not divide 8 attention heads", "(divisors: 1 2 4 8)"]),
        ({"tp": 8}, "plan.tp", ["8 does not divide 4 key-value heads", "(divisors: 1 2 4)"]),
        ({"tp": 4, "model": {"ffn": 770}}, "plan.tp", ["4 does not divide ffn 770"]),
        ({"ep": 2}, "plan.ep", ["needs a model with experts"]),
        ({"pp": 3}, "plan.pp", ["8 layers are not divisible by pp 3;", "layers_per_stage"]),
        ({"pp": 2, "vpp": 3}, "plan.pp", ["8 layers are not divisible by pp 2 x vpp 3 = 6"]),
        ({"pp": 2, "layers_per_stage": [3, 4]}, "plan.layers_per_stage", ["sums to 7", "8 layers"]),
        ({"pp": 2, "layers_per_stage": [8]}, "plan.layers_per_stage", ["has 1 entries, needs pp = 2"]),
        ({"pp": 2, "layers_per_stage": [9, -1]}, "plan.layers_per_stage", ["-1 is negative"]),
        ({"cp": 3, "sequence_length": 512}, "plan.cp", ["512 is not divisible by 2 x cp = 6"]),
        ({"sequence_parallel": True}, "plan.sequence_parallel", ["needs tp > 1"]),
        (
            {"tp": 4, "sequence_parallel": True, "sequence_length": 510},
            "plan.tp",
            ["4 does not divide the 510 tokens"],
        ),
        ({"cp": 2, "context_exchange": "ring", "attention": "unfused"}, "plan.context_exchange", ["flash"]),
        (
            {"tp": 4, "cp": 4, "context_exchange": "all_to_all"},
            "plan.cp",
            ["heads 8 divisible by tp 4 x cp 4"],
        ),
        ({"schedule": "1f2b"}, "plan.schedule", ["unknown schedule", "did you mean 1f1b?"]),
        ({"vpp": 2, "pp": 2, "schedule": "gpipe"}, "plan.vpp", ["2 chunks per stage", "not gpipe"]),
        ({"vpp": 2}, "plan.vpp", ["need pp > 1"]),
        ({"zero3": {"shard_group": 4}}, "plan.zero3.shard_group", ["needs zero 3, but zero is 0"]),
        (
            {"parameter_dtype": "fp8"},
            "plan.parameter_dtype",
            ["needs GEMMs that read it", "precision is bf16"],
        ),
        ({"order": ["tp", "tp", "dp", "pp"]}, "plan.order", ["tp, cp, dp and pp once each"]),
        (
            {"recompute": "selective", "recompute_modules": ["core_atention"]},
            "plan.recompute_modules",
            ["did you mean core_attention?"],
        ),
        ({"recompute_layers": 2}, "plan.recompute_layers", ["no effect with recompute: none"]),
        ({"model": {"hidden": 257}}, "model.heads", ["8 heads do not divide hidden 257"]),
        ({"model": {"kv_heads": 3}}, "model.kv_heads", ["3 does not divide 8 heads"]),
    ],
)
def test_rule_without_a_cluster(given, key, parts):
    found_key, message = only(faults(**given))
    assert found_key == key
    for part in parts:
        assert part in message


def test_sequence_must_fit_a_learned_position_table_but_not_rotary_positions():
    with pytest.raises(ValidationError, match="1024 is longer than the model's position table of 512"):
        Workload(model=GPT, global_batch=1, sequence_length=1024, precision="bf16")
    assert faults(sequence_length=1024) == []


@pytest.mark.parametrize(
    ("given", "num_gpus", "key", "message"),
    [
        (
            {"tp": 4, "pp": 8, "dp": 3},
            128,
            "plan.dp",
            "tp 4 x pp 8 x cp 1 x dp 3 = 96 ranks, but the cluster has 128 GPUs",
        ),
        (
            {"tp": 4, "pp": 8},
            100,
            "plan.tp",
            "tp 4 x pp 8 x cp 1 = 32 ranks per replica do not divide the 100 GPUs of the cluster",
        ),
        (
            {"micro_batch": 5},
            8,
            "global_batch",
            "64 is not divisible by micro_batch 5 x dp 8 = 40",
        ),
        (
            {"pp": 4, "vpp": 2, "global_batch": 6},
            4,
            "plan.schedule",
            "interleaved needs micro-batches in groups of pp 4, but there are 6: "
            "global_batch 6 / (micro_batch 1 x dp 1)",
        ),
        (
            {"zero": 3, "zero3": {"shard_group": 3}},
            8,
            "plan.zero3.shard_group",
            "3 does not divide dp x cp = 8",
        ),
    ],
)
def test_rule_with_a_cluster(given, num_gpus, key, message):
    assert only(faults(num_gpus, **given)) == (key, message)


def test_all_faults_come_at_once():
    keys = {key for key, _ in faults(tp=3, pp=3, ulysses=2, schedule="none")}
    assert keys == {"plan.tp", "plan.pp", "plan.ulysses", "plan.schedule"}


def test_a_wrong_product_of_degrees_hides_what_would_follow_from_it():
    assert only(faults(128, tp=4, dp=3, micro_batch=7))[0] == "plan.dp"


@pytest.mark.parametrize("check", [*WORKLOAD_CHECKS, *CLUSTER_CHECKS])
def test_every_check_is_named_and_explained_and_passes_a_good_plan(check):
    good = workload(tp=4, pp=2, vpp=2, sequence_parallel=True, recompute="full")
    arguments = (good, 16) if check in CLUSTER_CHECKS else (good,)
    assert check.__name__.startswith("check_") and check.__doc__
    assert list(check(*arguments)) == []


def test_faults_stand_at_the_place_where_the_key_was_written():
    with pytest.raises(DescriptionError) as caught:
        load("workload", "gpt3-175b", {"plan.tp": "5"})
    first = str(caught.value).splitlines()[0]
    assert first.startswith("--set plan.tp=5: plan.tp: 5 does not divide 96 attention heads")
    placed = load("workload", "gpt3-175b")
    (key, message) = only(placed.faults_on(100))
    assert str(placed.fault(key, message)).startswith("workloads/runs/gpt3-175b.yaml:8:")


def test_schedule_follows_from_chunks_when_left_out():
    assert Plan().schedule_name == "1f1b"
    assert Plan(pp=2, vpp=2).schedule_name == "interleaved"
    assert Plan(schedule="gpipe").schedule_name == "gpipe"


def test_every_field_of_a_plan_is_described():
    for name, field in Plan.model_fields.items():
        assert field.description, name


@pytest.mark.parametrize(
    ("given", "flash", "num_gpus", "key"),
    [
        ({}, None, 8, "plan.attention"),
        ({"recompute": "selective"}, "flash2", 8, "plan.recompute_modules"),
        ({"zero": 1, "tp": 4}, "flash2", 4, "plan.zero"),
        ({"zero3": {"prefetch": 3}}, "flash2", 8, "plan.zero3"),
        ({"scatter_gather": True}, "flash2", 8, "plan.scatter_gather"),
        (
            {"scatter_gather": True, "tp": 2, "pp": 2, "sequence_parallel": True},
            "flash2",
            8,
            "plan.scatter_gather",
        ),
        ({"context_exchange": "all_gather"}, "flash2", 8, "plan.context_exchange"),
        ({"overlap": {"tp": True}}, "flash2", 8, "plan.overlap.tp"),
        ({"overlap": {"tp": "pipelined"}, "tp": 2}, "flash2", 8, "plan.overlap.tp"),
    ],
)
def test_options_without_effect_are_pointed_out(given, flash, num_gpus, key):
    assert only(workload(**given).warnings_on(num_gpus, flash))[0] == key


def test_a_plain_plan_gives_no_warning():
    assert workload(tp=2, pp=2, sequence_parallel=True).warnings_on(8, "flash2") == []


@pytest.mark.parametrize(
    ("plan", "key", "message"),
    [
        ({"recompute": "full", "zero3": {"slices": 2}}, "plan.zero3.slices", "needs recompute: none"),
        (
            {"offload": {"activations": 0.5}, "zero3": {"slices": 2}},
            "plan.zero3.slices",
            "does not go with plan.offload",
        ),
        (
            {"zero3": {"fraction": "auto", "unsharded": "auto"}},
            "plan.zero3.unsharded",
            "auto: fraction is auto too",
        ),
        (
            {"zero3": {"memory_limit": 8e9}},
            "plan.zero3.memory_limit",
            "neither fraction nor unsharded is auto",
        ),
    ],
)
def test_what_stays_unsharded_is_one_choice_and_slices_are_of_what_is_computed_once(plan, key, message):
    ((found, text),) = faults(zero=3, **plan)
    assert found == key
    assert message in text


def test_a_plan_does_without_fused_kernels_of_its_software():
    has = frozenset({"rope", "norm", "swiglu"})
    assert workload().shard(has, "flash2").fusions == has
    assert workload(unfused=["rope", "router"]).shard(has, "flash2").fusions == has - {"rope"}
    with pytest.raises(ValidationError, match="unfused"):
        workload(unfused=["ropes"])
