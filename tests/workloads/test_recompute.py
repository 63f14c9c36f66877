"""What full recomputation runs again, and the metrics of a training loop."""

from dataclasses import replace

import pytest

from simulator.workloads.layers import Shard
from simulator.workloads.models.gpt import GPT
from simulator.workloads.models.llama import Llama
from simulator.workloads.operators import Collective, MemoryBound

HIDDEN, TOKENS = 1024, 2 * 512
SIZES = {"layers": 1, "hidden": HIDDEN, "heads": 16, "vocab": 2048, "max_sequence": 512}
GPT_BLOCK = GPT(**SIZES, dropout=False).layers()[1]
LLAMA_BLOCK = Llama(**SIZES, ffn=2816).layers()[1]
FULL = Shard(micro_batch=2, sequence_length=512, recompute="full", fusions=frozenset({"norm", "bias"}))
EARLY = replace(FULL, recompute_stops_early=True)


def names(operations):
    return [operation.label for operation in operations]


@pytest.mark.parametrize(("block", "width"), [(GPT_BLOCK, 4 * HIDDEN), (LLAMA_BLOCK, 2816)])
def test_recomputation_that_stops_early_leaves_out_the_last_projection_and_its_sum(block, width):
    whole, early = block.recompute(FULL), block.recompute(EARLY)
    assert whole == block.forward(FULL)
    assert names(early) == names(whole)[:-2]
    flops = [sum(op.what.flops for op in some if hasattr(op.what, "flops")) for some in (whole, early)]
    assert flops[0] - flops[1] == 2 * TOKENS * HIDDEN * width


def test_a_dropout_mask_has_to_be_made_again():
    block = GPT(**SIZES, dropout=True).layers()[1]
    assert block.recompute(EARLY) == block.forward(EARLY)


def test_the_sum_over_tensor_ranks_is_left_out_with_its_projection():
    split = replace(EARLY, tp=4)
    collectives = [
        sum(isinstance(op.what, Collective) for op in some)
        for some in (LLAMA_BLOCK.forward(split), LLAMA_BLOCK.recompute(split))
    ]
    assert collectives == [2, 1]


def test_every_metric_reads_the_logits_and_makes_two_fp32_tensors_of_their_size():
    head, logits = GPT(**SIZES).layers()[-1], TOKENS * 2048
    plain = head.backward(FULL)
    measured = head.backward(replace(FULL, loss_metrics=2))
    added = [op.what for op in measured if op not in plain]
    assert len(measured) == len(plain) + 2
    assert added == [MemoryBound("cross_entropy", logits * 6, logits * 8, kernels=3)] * 2


def test_a_bias_that_the_projection_adds_is_not_added_again():
    biased, plain = (GPT(**SIZES, dropout=False, biases=biases).layers()[1] for biases in (True, False))
    assert names(biased.forward(FULL)) == names(plain.forward(FULL))
