"""Runs of the catalogue that show a way of spreading a model simulate, and fit or do not fit as they say."""

from __future__ import annotations

import pytest

from simulator import load_cluster, load_workload, simulate

RUNS = {
    "mixtral-8x7b": ("hgx-h100-cluster", 32, True, "ep"),
    "qwen3-30b-a3b": ("hgx-h100-cluster", 16, True, "ep"),
    "llama3-8b-long": ("hgx-h100-cluster", 16, True, "cp"),
    "llama3-8b-documents": ("hgx-h100-cluster", 8, True, "dp"),
    "llama3-8b-mixed-lengths": ("hgx-h100-cluster", 64, True, "cp"),
    "llama2-70b-hybrid": ("hgx-h100-cluster", 128, True, "dp"),
    "llama3-70b-offload": ("hgx-h100-cluster", 16, True, "offload"),
    "resnet-50-groups": ("ethernet-64-oversubscribed", 128, True, "dp"),
    "resnet-50-local-sgd": ("ethernet-64", 128, True, "dp"),
    "resnet-50-compressed": ("ethernet-64", 128, True, "dp"),
    "dlrm-mlperf": ("hgx-h100-cluster", 16, True, "ep"),
    "vit-l16": ("hgx-h100-cluster", 16, True, "compute"),
    "whisper-large-v3": ("hgx-h100-cluster", 16, True, "dp"),
    "lm1b-lstm": ("titan-xp-cluster", 48, True, "dp"),
    "mpt-30b-two-generations": ("mixed-a100-v100", 64, True, "pp"),
    "llama3-8b-float8": ("hgx-h100-cluster", 8, True, "dp"),
    "llama3-8b-nvfp4": ("hgx-b200-cluster", 8, True, "launch"),
    "llama3-70b-async-tp": ("hgx-h100-cluster", 256, True, "tp"),
    "llama3-8b-zero-bubble": ("hgx-h100-cluster", 8, True, "pp"),
    "llama3-8b-asynchronous": ("hgx-h100-cluster", 8, True, "dp"),
    "llama3-8b-activation-offload": ("hgx-h100-cluster", 8, True, "offload"),
    "llama3-70b-nvme": ("hgx-h100-cluster", 8, True, "offload"),
    "llama3-8b-fraction": ("hgx-h100-cluster", 8, True, "dp"),
    "llama2-70b-second-copy": ("hgx-h100-cluster", 128, True, "dp"),
    "llama2-13b-unequal-shards": ("mixed-a100-v100", 64, True, "dp"),
    "axonn-80b": ("perlmutter", 1024, True, "tp"),
    "resnet-50-unequal-batches": ("mixed-a100-v100", 64, True, "dp"),
    "resnet-50-gossip": ("ethernet-64", 128, True, "compute"),
    "resnet-50-backup-workers": ("ethernet-64", 128, True, "dp"),
    "lm1b-lstm-asynchronous": ("titan-xp-cluster", 48, True, "dp"),
    "transformer-1t": ("dgx-a100-superpod", 1024, False, "tp"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_takes_time_for_what_it_shows(name: str) -> None:
    cluster, gpus, fits, kind = RUNS[name]
    answer = simulate(load_cluster(cluster, gpus=gpus), load_workload(name))
    assert answer.memory.fits == fits
    assert answer.breakdown_s[kind] > 0.0 or kind == "cp"  # a ring may hide behind its kernels
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-9)
    assert 0.0 < answer.mfu < 0.7


def test_deepseek_v3_with_dualpipe_agrees_with_its_authors() -> None:
    """180,000 GPU hours per 10^12 tokens on 2,048 H800 (DeepSeek-AI 2024, section 1): 19.9 s for 15,360 sequences.

    Nothing was fitted to it; the authors' own kernels are not ours.
    """
    answer = simulate(load_cluster("h800-cluster"), load_workload("deepseek-v3-dualpipe"))
    tokens = 15360 * 4096
    assert answer.step_time_s == pytest.approx(180e3 * 3600 / 2048 * tokens / 1e12, rel=0.15)


def test_deepseek_v3_agrees_with_its_published_step() -> None:
    """25.3 s on 1,024 H100 (Megatron-Bridge, performance summary 25.09); nothing was fitted to it."""
    answer = simulate(load_cluster("hgx-h100-cluster", gpus=1024), load_workload("deepseek-v3"))
    assert answer.memory.fits
    assert answer.step_time_s == pytest.approx(25.26, rel=0.2)
    assert max(answer.breakdown_s, key=lambda kind: answer.breakdown_s[kind]) == "compute"
