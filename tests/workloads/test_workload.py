"""Sizes of a workload that follow from model, batch, precision and plan."""

import pytest

from simulator.description import load
from simulator.description.catalogue import entries
from simulator.workloads.workload import Workload

MODEL = {"family": "gpt", "layers": 4, "hidden": 256, "heads": 8, "vocab": 1000, "max_sequence": 512}


def workload(precision="bf16", **plan):
    return Workload(model=MODEL, global_batch=64, sequence_length=512, precision=precision, plan=plan)


# On how many GPUs each run of the catalogue is meant to start, from its source.
GPUS = {
    "gpt3-175b": 1024,
    "gpt3-175b-full-recompute": 1024,
    "megatron-22b": 8,
    "megatron-530b": 2240,
    "megatron-1t": 512,
    "megatron-1.7b": 32,
    "megatron-3.6b": 64,
    "megatron-7.5b": 128,
    "megatron-18.4b": 256,
    "megatron-39.1b": 512,
    "megatron-76.1b": 1024,
    "megatron-145.6b": 1536,
    "megatron-310.1b": 1920,
    "llama3-405b": 16384,
    "llama3-70b": 256,
    "llama2-70b": 128,
    "bloom-176b": 384,
    "mpt-30b": 64,
    "mpt-30b-two-generations": 64,
    "transformer-1t": 1024,
    "mixtral-8x7b": 32,
    "qwen3-30b-a3b": 16,
    "deepseek-v3": 1024,
    "deepseek-v3-dualpipe": 2048,
    "llama3-8b-long": 16,
    "llama3-8b-mixed-lengths": 64,
    "dlrm-mlperf": 16,
    "llama2-70b-hybrid": 128,
    "llama3-70b-offload": 16,
    "axonn-80b": 1024,
    "resnet-50-backup-workers": 128,
}


@pytest.mark.parametrize("name", entries("workload"))
def test_every_run_of_the_catalogue_fits_its_number_of_gpus(name):
    run = load("workload", name)
    assert run.faults_on(GPUS.get(name, 8)) == []
    assert run.num_micro_batches(GPUS.get(name, 8)) >= 1
    assert run.sources


def test_data_parallel_width_is_what_is_left_over():
    assert workload(tp=4, pp=2).num_micro_batches(32) == 64 // 4
    assert workload(tp=4, pp=2, dp=2).num_micro_batches(16) == 64 // 2


def test_flops_of_a_step_count_every_sample():
    run = workload()
    assert run.flops == 64 * run.model.flops(512)
    assert run.tokens == 64 * 512


@pytest.mark.parametrize(
    ("precision", "activation", "gradient", "parameter", "master"),
    [
        ("fp32", "fp32", "fp32", "fp32", False),
        ("tf32", "fp32", "fp32", "fp32", False),
        ("bf16", "bf16", "fp32", "bf16", True),
        ("fp16", "fp16", "fp16", "fp16", True),
        ("fp8", "bf16", "fp32", "bf16", True),
        ("nvfp4", "bf16", "fp32", "bf16", True),
    ],
)
def test_types_that_follow_from_the_precision(precision, activation, gradient, parameter, master):
    run = workload(precision)
    assert run.activation_dtype == activation
    assert run.gradient_dtype == gradient
    assert run.parameter_dtype == parameter
    assert run.master_weights is master


def test_fully_sharded_parameters_rest_in_fp32_and_need_no_master_copy():
    run = workload(zero=3)
    assert run.parameter_dtype == "fp32" and not run.master_weights
    deepspeed = workload(zero=3, parameter_dtype="bf16")
    assert deepspeed.master_weights


def test_plan_chooses_the_attention_and_software_its_implementation():
    fusions = frozenset({"norm"})
    assert workload().shard(fusions, "flash3").attention == "flash3"
    assert workload().shard(fusions, None).attention == "unfused"
    assert workload(attention="unfused").shard(fusions, "flash3").attention == "unfused"


def test_overlap_of_the_plan_goes_before_that_of_the_software():
    fusions = frozenset()
    assert workload().shard(fusions, None, tp_overlap=True).tp_overlap == "backward"
    assert workload().shard(fusions, None, tp_overlap=False).tp_overlap == "none"
    assert workload(overlap={"tp": False}).shard(fusions, None).tp_overlap == "none"
    assert workload(overlap={"tp": "pipelined"}).shard(fusions, None).tp_overlap == "pipelined"


def test_narrow_precision_is_for_gemms_of_blocks_only():
    shard = workload("fp8").shard(frozenset({"qkv"}), "flash3")
    block, head = workload("fp8").model.layers()[1], workload("fp8").model.layers()[-1]
    assert {o.what.dtype for o in block.forward(shard) if "qkv.forward" in o.label} == {"fp8"}
    assert {o.what.dtype for o in head.forward(shard) if "logits.forward" in o.label} == {"bf16"}


def test_reordering_keys_changes_nothing():
    forward = Workload(
        model=MODEL, global_batch=8, sequence_length=512, precision="bf16", plan={"tp": 2, "pp": 2}
    )
    reordered = {key: MODEL[key] for key in reversed(MODEL)}
    backward = Workload(
        plan={"pp": 2, "tp": 2}, precision="bf16", sequence_length=512, global_batch=8, model=reordered
    )
    assert forward == backward and hash(forward) == hash(backward)
