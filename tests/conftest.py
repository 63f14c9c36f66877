"""A small complete design on disk, for tests of everything that starts from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")  # shared machines are noisy, and a failure must come again

GPU = """\
kind: gpu
vendor: NVIDIA
architecture: ampere
sms: 108
clock: 1.41 GHz
dense_peak: {bf16: 312 TFLOP/s, fp32: 19.5 TFLOP/s}
memory: {capacity: 80 GiB, bandwidth: 2 TB/s}
scale_up: {kind: nvlink3, bandwidth: 300 GB/s, lanes: 12}
host_link: {kind: pcie4-x16, bandwidth: 32 GB/s}
launch: 4.5 us
"""
NODE = """\
kind: node
gpu: ./gpu.yaml
num_gpus: 8
nic: {vendor: NVIDIA, bandwidth: 200 Gb/s, latency: 1.5 us}
num_nics: 8
interconnect: {kind: nvswitch, latency: 1 us}
"""
CLUSTER = """\
kind: cluster
node: ./node.yaml
num_nodes: 16
fabric: {kind: leaf_spine, nodes_per_leaf: 4, num_spines: 2, hop_latency: 0.5 us}
"""
WORKLOAD = """\
kind: workload
model: {family: gpt, layers: 4, hidden: 512, heads: 8, vocab: 1000, max_sequence: 128}
global_batch: 16
sequence_length: 128
precision: bf16
plan: {tp: 2}
"""


@pytest.fixture
def design(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, holding gpu.yaml, node.yaml, cluster.yaml and workload.yaml, free of faults."""
    files = {"gpu": GPU, "node": NODE, "cluster": CLUSTER, "workload": WORKLOAD}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path
