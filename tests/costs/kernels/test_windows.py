"""Attention over a window of keys: measured on a GB200, and on an H200 that nothing was fitted to."""

import pytest

from simulator.costs.kernels import kernel_seconds
from simulator.workloads.layers import Shard
from simulator.workloads.models.moe import MixtureOfExperts
from simulator.workloads.operators import Attention
from tests.costs.kernels.gpus import calibration, gpu

# microseconds of cuDNN, heads of 64, two sequences (NVIDIA/cudnn-frontend, benchmark results of sdpa, gpt_oss)
GB200 = {2048: (109, 237), 4096: (210, 465), 8192: (414, 911), 16384: (822, 1818)}
H200 = {2048: (166, 488), 4096: (358, 1042), 8192: (738, 2149), 16384: (1499, 4392)}


@pytest.mark.parametrize(
    ("name", "heads", "kv_heads", "window", "measured", "within"),
    [("gb200", 128, 128, 128, GB200, 0.12), ("h200", 64, 8, 1024, H200, 0.17)],
)
def test_windows_take_what_was_measured(name, heads, kv_heads, window, measured, within) -> None:
    for length, ways in measured.items():
        for backward, microseconds in zip((False, True), ways, strict=True):
            shape = (2, heads, kv_heads, length, window, 64, 64, False, "bf16", "cudnn", backward)
            took = kernel_seconds(Attention(*shape, windowed=True), gpu(name), calibration(name))
            assert took == pytest.approx(microseconds * 1e-6, rel=within), (length, backward)


def test_only_layers_with_a_shorter_window_are_windowed() -> None:
    model = MixtureOfExperts(
        layers=2, hidden=256, heads=8, kv_heads=4, vocab=1024, max_sequence=1024, experts=4, top_k=2,
        expert_ffn=128, sliding_window=128, full_attention_every=2,
    )  # fmt: skip
    for length, expected in ((1024, [True, False]), (128, [False, False])):
        shard = Shard(micro_batch=1, sequence_length=length)
        kernels = [
            o.what
            for layer in model.layers()[1:3]
            for o in layer.forward(shard)
            if isinstance(o.what, Attention)
        ]
        assert [kernel.windowed for kernel in kernels] == expected
        assert [kernel.causal for kernel in kernels] == [not windowed for windowed in expected]
