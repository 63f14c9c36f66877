"""Logs of nccl-tests, as text and as JSON, become measurements; contradictions are named with their line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.importers.nccl_tests import LogError, bus_factor, read_nccl_tests

# Layout and columns as nccl-tests prints them; the figures are made up.
TEXT = """\
# nccl-tests version 2.17.6 nccl-headers=22707 nccl-library=22707
# Collective test starting: all_gather_perf
# nThread 1 nGpus 1 minBytes 1024 maxBytes 4294967296 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   6899 on     node-a device  0 [0000:04:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   6900 on     node-a device  1 [0000:05:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid   6733 on     node-b device  0 [0000:04:00] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid   6734 on     node-b device  1 [0000:05:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float    none      -1     0.10    0.00    0.00      0     0.10    0.00    0.00      0
        1024           256     float    none      -1    20.48    0.05    0.04      0    20.00    0.05    0.04      0
   536870912     134217728  bfloat16    none      -1   5368.7  100.00   75.00      0   5300.0  101.30   75.97    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 25.0
"""


def write(tmp_path, text: str):
    path = tmp_path / "log.txt"
    path.write_text(text)
    return path


def test_a_text_log_yields_its_rows_with_operation_ranks_and_machine(tmp_path):
    results = read_nccl_tests(write(tmp_path, TEXT))
    assert results.machine["num_ranks"] == 4
    assert results.machine["num_nodes"] == 2
    assert results.machine["gpu"] == "NVIDIA H100 80GB HBM3"
    first, last = results.measurements
    assert first.case.parameters == {"op": "all_gather", "size": 1024, "ranks": [0, 1, 2, 3], "dtype": "fp32"}
    assert first.seconds["all_gather"] == [pytest.approx(20.48e-6)]
    assert (last.case["size"], last.case["dtype"]) == (536870912, "bf16")


def test_in_place_results_are_read_on_request(tmp_path):
    results = read_nccl_tests(write(tmp_path, TEXT), placement="in_place")
    assert results.measurements[0].seconds["all_gather"] == [pytest.approx(20e-6)]


def test_a_json_log_says_the_same(tmp_path):
    def body(microseconds: float, algorithm: float, bus: float):
        return {"time": microseconds, "alg_bw": algorithm, "bus_bw": bus, "nwrong": 0.0}

    devices = [
        {
            "rank": r,
            "group": 0,
            "pid": r,
            "hostname": f"node-{'ab'[r // 2]}",
            "device": r % 2,
            "device_info": "H100",
        }
        for r in range(4)
    ]
    row = {"size": 1024, "count": 256, "type": "float", "redop": "none", "root": "    -1"}
    log = {
        "version": 1,
        "args": ["./build/all_gather_perf", "-J", "out.json"],
        "nccl_version": 22707,
        "config": {"devices": devices},
        "results": [{**row, "out_of_place": body(20.48, 0.05, 0.04), "in_place": body(20.0, 0.05, 0.04)}],
    }
    results = read_nccl_tests(write(tmp_path, json.dumps(log)))
    text = read_nccl_tests(write(tmp_path, TEXT))
    assert results.measurements[0] == text.measurements[0]
    assert results.machine["nccl"] == 22707


def test_older_logs_need_the_operation_and_get_it_checked(tmp_path):
    path = write(tmp_path, TEXT.replace("# Collective test starting: all_gather_perf\n", ""))
    with pytest.raises(LogError, match="does not say which operation"):
        read_nccl_tests(path)
    assert len(read_nccl_tests(path, op="all_gather").measurements) == 2
    with pytest.raises(
        LogError, match=r":15: busbw / algbw is 0\.750, but all_reduce over 4 ranks has 1\.500"
    ):
        read_nccl_tests(path, op="all_reduce")


def test_wrong_results_are_not_measurements(tmp_path):
    broken = TEXT.replace("75.00      0", "75.00     17")
    with pytest.raises(LogError, match=":16: 17 wrong results"):
        read_nccl_tests(write(tmp_path, broken))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing here\n", "holds no results"),
        ('{"results": [', "not JSON"),
        ('{"results": [{"size": 4}]}', "not as nccl-tests -J writes it"),
        ("\n".join(line for line in TEXT.splitlines() if "Rank" not in line), "does not list its ranks"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    with pytest.raises(LogError, match=words):
        read_nccl_tests(write(tmp_path, text))


@given(st.integers(2, 4096))
def test_bus_factors_are_those_of_rings(ranks):
    assert bus_factor("all_reduce", ranks) == pytest.approx(
        bus_factor("reduce_scatter", ranks) + bus_factor("all_gather", ranks)
    )
