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
    assert results.machine["nccl"] == text.machine["nccl"] == "22707"


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
        (TEXT[: TEXT.index("  5300.0")], r":16: 9 of 13 columns; is the line cut off\?"),
        (
            TEXT.replace("5368.7", "53,8.7"),
            ":16: could not convert string to float: '53,8.7'; is the line dam",
        ),
        (TEXT.replace("#       size", "# "), ":14: a result before the line that names its columns"),
        (TEXT.replace(" time ", " cputime "), ":12: times of the host"),
        (TEXT.replace("values : 0 OK", "values : 3 FAILED"), ":17: 3 values out of bounds"),
        (TEXT.replace("all_gather_perf", "hypercube_perf"), "hypercube_perf is no operation that is read"),
        ('{"results": [', r":1:14: not JSON: .*; is it cut off\?"),
        ('{"results": [{"size": 4}]}', "not as nccl-tests -J writes it"),
        ("\n".join(line for line in TEXT.splitlines() if "Rank" not in line), "does not list its ranks"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    with pytest.raises(LogError, match=words):
        read_nccl_tests(write(tmp_path, text))


GPU = "NVIDIA A100-SXM4-80GB"
RANKS = "".join(
    f"#   Rank {r:2d} Pid  {900 + r} on     node-a device  {r} [0x0{r}] {GPU}\n" for r in range(2)
)
# Layouts: (lines that name the columns, a row), from the print statements of nccl-tests of that year.
LAYOUTS = {
    "2019, all_gather: neither redop nor root, deviations": (
        "#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n",
        "     8388608       1048576   float   100.00   83.89   41.94  1e-07    99.00   84.73   42.37  0e+00",
    ),
    "2021, broadcast: root only": (
        "#       size         count      type    root     time   algbw   busbw  error     time   algbw   busbw"
        "  error\n",
        "     8388608       2097152     float       0   100.00   83.89   83.89  0e+00    99.00   84.73   84.73    N/A",
    ),
    "2022": (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw"
        " #wrong\n",
        "     8388608       2097152     float     sum      -1   100.00   83.89   83.89      0    99.00   84.73   84.73"
        "      0",
    ),
    "2025, with time stamps": (
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw"
        "  #wrong           timestamp\n",
        "     8388608       2097152     float     sum      -1   100.00   83.89   83.89       0    99.00   84.73   84.73"
        "       0  2025-07-09 16:03:21",
    ),
    "2026, with times of single iterations": (
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong    i_min    i_max"
        "    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    i_cv%\n",
        "     8388608       2097152     float     sum      -1   100.00   83.89   83.89       0    98.00   103.00"
        "   103.00     1.20    99.00   84.73   84.73       0    98.00   103.00   103.00     1.20",
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_are_found_by_their_names(tmp_path, layout):
    op = next((op for op in ("all_gather", "broadcast") if op in layout), "all_reduce")
    names, row = LAYOUTS[layout]
    path = write(tmp_path, RANKS + names + row + "\n")
    for placement, microseconds in (("out_of_place", 100.0), ("in_place", 99.0)):
        (one,) = read_nccl_tests(path, op=op, placement=placement).measurements
        assert (one.case["size"], one.case["dtype"]) == (8388608, "fp32")
        assert one.seconds[op] == [pytest.approx(microseconds * 1e-6)]


@given(st.sampled_from(sorted(LAYOUTS)), st.data())
def test_a_line_cut_off_anywhere_before_its_last_column_is_an_error(tmp_path_factory, layout, data):
    names, row = LAYOUTS[layout]
    needed = row.split("  2025-")[0]
    cut = data.draw(st.integers(needed.index("float") + 6, needed.rindex(" ") - 1))
    path = write(tmp_path_factory.mktemp("cut"), RANKS + names + row[:cut])
    with pytest.raises(LogError, match=r"log.txt:(4|5): \d+ of \d+ columns; is the line cut off"):
        read_nccl_tests(path, op="all_reduce")


def test_a_replayed_trace_has_in_place_results_only(tmp_path):
    names, row = LAYOUTS["2022"]
    blank = row.replace("   100.00   83.89   83.89      0", " " * 32)
    path = write(tmp_path, RANKS + names + blank + "\n")
    assert read_nccl_tests(path, op="all_reduce").measurements == ()
    (one,) = read_nccl_tests(path, op="all_reduce", placement="in_place").measurements
    assert one.seconds["all_reduce"] == [pytest.approx(99e-6)]


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: "])
def test_what_a_launcher_puts_before_the_lines_is_taken_off(tmp_path, prefix):
    tagged = "".join(f"{prefix}{line}\n" for line in TEXT.splitlines())
    noisy = tagged.replace(f"{prefix}#\n", "node-a:6899:6899 [0] NCCL INFO Bootstrap: using eth0\n", 1)
    assert read_nccl_tests(write(tmp_path, noisy)) == read_nccl_tests(write(tmp_path, TEXT))


def test_a_file_may_hold_several_runs(tmp_path):
    names, row = LAYOUTS["2022"]
    head = "# nThread 1 nGpus 1 minBytes 8\n"
    text = f"$ ./build/all_reduce_perf -b 8M\n{head}{RANKS}{names}{row}\n" + TEXT
    results = read_nccl_tests(write(tmp_path, text))
    assert [m.case["op"] for m in results.measurements] == ["all_reduce", "all_gather", "all_gather"]
    assert [len(m.case["ranks"]) for m in results.measurements] == [2, 4, 4]


def test_the_name_of_the_file_may_say_the_operation(tmp_path):
    names, row = LAYOUTS["2022"]
    path = tmp_path / "2-nodes-reduce_perf.log"
    path.write_text(RANKS + names + row + "\n")
    assert read_nccl_tests(path).measurements[0].case["op"] == "reduce"
    assert read_nccl_tests(path, op="broadcast").measurements[0].case["op"] == "broadcast"


def test_ranks_are_gpus_of_a_cluster_node_after_node(tmp_path):
    def ranks(text: str, gpus_per_node: int | None = None) -> list[int]:
        results = read_nccl_tests(write(tmp_path, text), gpus_per_node=gpus_per_node)
        return results.measurements[0].case["ranks"]

    assert ranks(TEXT) == [0, 1, 2, 3]
    assert ranks(TEXT, gpus_per_node=8) == [0, 1, 8, 9]
    others = TEXT.replace("device  0", "device  4").replace("device  1", "device  6")
    assert ranks(others) == [0, 1, 2, 3]
    assert ranks(others, gpus_per_node=8) == [4, 6, 12, 14]
    with pytest.raises(LogError, match="on more than 4 GPUs of a node"):
        ranks(others, gpus_per_node=4)
    interleaved = TEXT.replace("on     node-a device  1", "on     node-b device  0", 1).replace(
        "6733 on     node-b device  0", "6733 on     node-a device  1"
    )
    assert ranks(interleaved) == [0, 2, 1, 3]
    with pytest.raises(LogError, match="lists 4 ranks, not 8"):
        read_nccl_tests(write(tmp_path, TEXT), num_ranks=8)


def test_groups_side_by_side_count_as_one(tmp_path):
    split = TEXT.replace("Rank  2 Group  0", "Rank  0 Group  1").replace(
        "Rank  3 Group  0", "Rank  1 Group  1"
    )
    split = split.replace("100.00   75.00", "100.00   50.00").replace("75.97", "50.65")
    assert read_nccl_tests(write(tmp_path, split)).machine["num_ranks"] == 2


def test_sendrecv_is_an_exchange(tmp_path):
    names, row = LAYOUTS["2022"]
    (one,) = read_nccl_tests(write(tmp_path, RANKS + names + row + "\n"), op="send_recv").measurements
    assert (one.case.benchmark, one.case["pattern"], list(one.seconds)) == (
        "send_recv",
        "exchange",
        ["exchange"],
    )


@given(st.integers(2, 4096))
def test_bus_factors_are_those_of_rings(ranks):
    assert bus_factor("all_reduce", ranks) == pytest.approx(
        bus_factor("reduce_scatter", ranks) + bus_factor("all_gather", ranks)
    )
