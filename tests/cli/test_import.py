"""`clustersim import`, and on from there: what other tools measured becomes a calibration."""

from __future__ import annotations

import json

import pytest

from simulator import load_cluster
from simulator.calibration.fit_collectives import predicted
from simulator.calibration.measured_collectives import measured_collectives
from simulator.calibration.microbenchmarks.collective import collective_case
from simulator.calibration.microbenchmarks.store import Measurement, Results, read_results
from simulator.costs.collectives import load_calibration
from simulator.importers.nccl_tests import bus_factor

NAMES = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"


def a_log(folder, op: str, num_ranks: int, per_node: int = 8):
    """A log of nccl-tests whose times are those of a calibration with a slower network card."""
    start, cluster = load_calibration("nccl-h100-nvswitch"), load_cluster("dgx-h100-superpod", num_ranks)
    sizes = [1 << exponent for exponent in range(18, 31, 2)]
    cases = [collective_case(op, size, range(num_ranks)) for size in sizes]
    blank = tuple(Measurement(case, 1, {op: [1.0]}) for case in cases)
    times = [predicted(start, row) * 1.25 for row in measured_collectives(Results({}, blank), cluster)]
    lines = [f"# Collective test starting: {op}_perf\n", "# nccl-tests version 2.17.6 nccl-library=22707\n"]
    for rank in range(num_ranks):
        host, device = f"node-{rank // per_node}", rank % per_node
        lines.append(
            f"#  Rank {rank} Group 0 Pid {rank} on {host} device {device} [0:0{device}:00] NVIDIA H100\n"
        )
    lines.append(NAMES)
    for size, seconds in zip(sizes, times, strict=True):
        rate = size / seconds / 1e9
        quad = f"{seconds * 1e6:.2f} {rate:.2f} {rate * bus_factor(op, num_ranks):.2f} 0"
        lines.append(f"{size} {size // 4} float none -1 {quad} {quad}\n")
    path = folder / f"{op}-{num_ranks}.log"
    path.write_text("".join(lines))
    return path


def test_logs_of_nccl_tests_become_a_calibration(clustersim, tmp_path):
    logs = [a_log(tmp_path, op, ranks) for op in ("all_reduce", "all_gather") for ranks in (16, 32)]
    out, fitted = tmp_path / "mine.jsonl", tmp_path / "mine.yaml"
    code, printed, said = clustersim("import", "nccl-tests", *map(str, logs), "--out", str(out))
    assert (code, printed) == (0, "")
    assert "28 cases on 32 ranks (14 all_reduce, 14 all_gather)" in said
    fit = ("calibrate", "fit", "collectives", "nccl-h100-nvswitch", "--results", str(out))
    where = ("--cluster", "dgx-h100-superpod", "--gpus", "32", "--json", "--out", str(fitted))
    code, printed, said = clustersim(*fit, *where)
    assert (code, said) == (0, "")
    assert json.loads(printed)["rows"] == 28
    assert (
        json.loads(printed)["mape"] < 0.12
    )  # 0.2 without a fit; a latency and a bandwidth cannot be 1.25 times both
    assert "nccl, NCCL 22707, 32 ranks; NVIDIA H100" in fitted.read_text()
    assert clustersim("check", str(fitted))[0] == 0


def test_without_out_the_measurements_are_printed(clustersim, tmp_path):
    log = a_log(tmp_path, "all_reduce", 16)
    code, printed, said = clustersim("import", "nccl-tests", str(log))
    assert code == 0
    assert said.startswith("standard output: 7 cases")
    path = tmp_path / "copy.jsonl"
    path.write_text(printed)
    assert read_results(path).machine["num_nodes"] == 2


def test_ranks_that_the_cluster_places_otherwise_are_refused(clustersim, tmp_path):
    """Two nodes with four ranks each are not the eight GPUs of one node."""
    log, out = a_log(tmp_path, "all_reduce", 8, per_node=4), tmp_path / "mine.jsonl"
    fit = ("calibrate", "fit", "collectives", "nccl-h100-nvswitch", "--results", str(out))
    where = ("--cluster", "dgx-h100-superpod", "--gpus", "16")
    assert clustersim("import", "nccl-tests", str(log), "--out", str(out))[0] == 0
    code, _, said = clustersim(*fit, *where)
    assert code == 2
    assert "all_reduce over 8 ranks was measured on 2 nodes, but these GPUs of the cluster are on 1" in said
    assert clustersim("import", "nccl-tests", str(log), "--gpus-per-node", "8", "--out", str(out))[0] == 0
    assert clustersim(*fit, *where)[0] == 0


def test_a_trace_of_the_profiler_becomes_a_calibration(clustersim, tmp_path):
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, profile

    shapes = [(64, 64, 128), (128, 64, 64), (64, 256, 64), (256, 128, 64), (192, 192, 192), (64, 512, 128)]
    shapes += [(n, n, n) for n in (32, 96, 160, 320)]
    q = torch.zeros(1, 2, 64, 32, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(3):
            for m, n, k in shapes:
                torch.zeros(m, k) @ torch.zeros(k, n)
            for elements in (1 << 12, 1 << 14, 1 << 16):
                torch.zeros(elements) + torch.zeros(elements)
            torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    trace, out, fitted = tmp_path / "t.json.gz", tmp_path / "t.jsonl", tmp_path / "mine.yaml"
    recorded.export_chrome_trace(str(trace))
    code, printed, said = clustersim("import", "torch-profiler", str(trace), "--out", str(out))
    assert (code, printed) == (0, "")
    assert "10 gemm" in said and "3 add" in said and "1 attention" in said
    assert "left out" in said
    gemm = next(m for m in read_results(out).measurements if m.case.benchmark == "gemm")
    assert gemm.case.parameters == {"m": 64, "n": 64, "k": 128, "dtype": "fp32"}
    assert len(gemm.seconds["gemm"]) == 3
    fit = ("calibrate", "fit", "kernels", "--gpu", "emulated-accelerator", "--data", str(out))
    code, printed, _ = clustersim(*fit, "--json", "--out", str(fitted))
    assert code == 0
    assert {"gemm.fp32", "memory"} <= set(json.loads(printed)["fits"])
    assert clustersim("check", str(fitted))[0] == 0


@pytest.mark.parametrize("kind", ["nccl-tests", "torch-profiler"])
def test_other_files_end_with_the_reason(clustersim, tmp_path, kind):
    path = tmp_path / "other.json"
    path.write_text('{"results": 3, "traceEvents": [')
    code, printed, said = clustersim("import", kind, str(path))
    assert (code, printed) == (2, "")
    assert said.startswith(f"clustersim: {path}:1:")
    assert clustersim("import", kind, str(tmp_path / "none"))[0] == 2


def test_help_lists_the_kinds(clustersim):
    code, printed, _ = clustersim("import", "--help")
    assert code == 0
    assert "nccl-tests" in printed and "torch-profiler" in printed
