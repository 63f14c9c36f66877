"""Kept activations and peak memory against measurements of other people's runs.

Rows are facts from two public repositories: per-layer memory profiles of PKU-DAIR/Hetu-Galvatron
(galvatron/models/*/configs/memory_profiling_bf16_*.json, difference between two and one layers, MiB) and the peak
memory that Megatron-LM's continuous-integration runs log (tests/functional_tests/test_cases/gpt/*/golden_values*).
"""

import pytest

from simulator.costs.memory import stage_memory
from simulator.program.stages import chunks
from simulator.workloads.layers import MEGATRON_FUSIONS, Shard
from simulator.workloads.models.gpt import GPT
from simulator.workloads.models.llama import Llama
from simulator.workloads.workload import Workload

MIB, GIB = 2.0**20, 2.0**30
FUSIONS = MEGATRON_FUSIONS | {"swiglu", "rope"}


def gpt(hidden, heads, length):
    return GPT(layers=1, hidden=hidden, heads=heads, vocab=50257, max_sequence=length).layers()[1]


LLAMA2 = Llama(layers=1, hidden=4096, heads=32, ffn=11008, vocab=32000, max_sequence=4096).layers()[1]


@pytest.mark.parametrize(
    ("layer", "length", "tp", "sequence_parallel", "recompute", "mebibytes"),
    [
        (gpt(4096, 32, 2048), 2048, 1, False, "none", 780.9204 - 508.6387),
        (gpt(4096, 32, 2048), 2048, 1, False, "full", 268.3569 - 252.3569),
        (gpt(4096, 32, 2048), 2048, 2, False, "none", 940.9829 - 588.6699),
        (gpt(4096, 32, 2048), 2048, 2, True, "none", 805.1216 - 532.8398),
        (gpt(2560, 32, 2048), 2048, 1, False, "none", 561.9204 - 391.6387),
        (gpt(2560, 32, 2048), 2048, 8, False, "none", 1263.3579 - 742.8574),
        (gpt(2560, 32, 2048), 2048, 8, False, "full", 381.3569 - 301.3569),
        (LLAMA2, 4096, 1, False, "none", 1343.1709 - 828.6074),
        (LLAMA2, 4096, 1, False, "full", 378.0439 - 346.0439),
    ],
)
def test_one_layer_keeps_what_was_measured_within_a_percent(
    layer, length, tp, sequence_parallel, recompute, mebibytes
):
    """Batch 8 on 8 GPUs, so that a tensor-parallel rank runs as many samples as its group has ranks."""
    shard = Shard(
        micro_batch=tp,
        sequence_length=length,
        tp=tp,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
        attention="flash2",
        fusions=FUSIONS,
    )
    assert layer.activation_bytes(shard) / MIB == pytest.approx(mebibytes, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "plan", "num_gpus", "stage", "gibibytes"),
    [
        ("bf16", {"zero": 1, "attention": "unfused"}, 8, 0, 4.3795),
        ("bf16", {"zero": 1}, 8, 0, 2.5059),
        ("bf16", {"recompute": "full"}, 8, 0, 2.3620),
        ("bf16", {"pp": 2}, 8, 1, 2.4198),
        ("bf16", {"pp": 4}, 8, 3, 2.0444),
        ("bf16", {"tp": 4, "attention": "unfused"}, 8, 0, 1.5302),
        ("fp16", {"tp": 4, "attention": "unfused"}, 8, 0, 1.4874),
        ("bf16", {"tp": 4, "zero": 1, "attention": "unfused"}, 8, 0, 1.4096),
    ],
)
def test_peak_of_a_small_gpt_is_within_a_tenth_of_a_gibibyte_and_five_percent(
    precision, plan, num_gpus, stage, gibibytes
):
    """12 layers of 512, batch 32 in micro-batches of 4, 1,024 tokens; a workspace of 0.1 GiB is not modelled."""
    run = Workload(
        model={
            "family": "gpt",
            "layers": 12,
            "hidden": 512,
            "heads": 8,
            "vocab": 50257,
            "max_sequence": 1024,
        },
        global_batch=32,
        sequence_length=1024,
        precision=precision,
        plan={"micro_batch": 4, **plan},
    )
    stages = chunks(run.model.layers(), run.plan.pp, 1, None)
    predicted = sum(stage_memory(stages[stage], stage, run, run.shard(FUSIONS, "flash2"), num_gpus).values())
    assert predicted / GIB == pytest.approx(gibibytes - 0.1, rel=0.05)
