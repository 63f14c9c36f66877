"""Traces of the PyTorch profiler become measured kernels and collectives."""

from __future__ import annotations

import gzip
import json

import pytest

from simulator.importers.combining import MachineError
from simulator.importers.profiler_trace import TraceError, read_trace, read_traces


def operator(
    name: str, external: int, shapes: list, dtype: str = "c10::BFloat16", concrete: tuple = ()
) -> dict:
    kinds = [dtype if shape else "Scalar" for shape in shapes]
    args = {
        "External id": external,
        "Input Dims": shapes,
        "Input type": kinds,
        "Concrete Inputs": list(concrete),
    }
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": 0.0, "dur": 5.0, "args": args}


def kernel(name: str, microseconds: float, **args) -> dict:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 0.0, "dur": microseconds, "args": args}


def on_gpu(*events: dict) -> dict:
    groups = [{"pg_name": "3", "pg_size": 64, "ranks": list(range(0, 128, 2))}]
    return {
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 128, "pg_config": groups},
        "traceEvents": list(events),
    }


def read(tmp_path, trace: dict):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    return read_trace(path)


def test_a_gemm_takes_its_shape_from_the_operator_and_its_time_from_the_kernels(tmp_path):
    trace = on_gpu(
        operator("aten::addmm", 7, [[1024], [4096, 512], [512, 1024], [], []]),
        kernel("sm90_gemm", 30.0, **{"External id": 7}),
        kernel("splitk_reduce", 2.0, **{"External id": 7}),
        kernel("unlinked", 1.0),
    )
    read_back = read(tmp_path, trace)
    (gemm,) = read_back.results.measurements
    assert gemm.case.parameters == {"m": 4096, "n": 1024, "k": 512, "dtype": "bf16"}
    assert gemm.seconds["gemm"] == [pytest.approx(32e-6)]
    assert read_back.unread == {"unlinked": 1}
    assert read_back.results.machine["gpu"] == "NVIDIA H100 80GB HBM3"


def test_equal_cases_collect_their_repeats(tmp_path):
    events = [operator("aten::mm", i, [[8, 16], [16, 4]]) for i in (1, 2)]
    events += [kernel("k", 10.0 * i, **{"External id": i}) for i in (1, 2)]
    (gemm,) = read(tmp_path, on_gpu(*events)).results.measurements
    assert gemm.seconds["gemm"] == [pytest.approx(1e-5), pytest.approx(2e-5)]


def test_attention_is_told_apart_by_direction_and_mask(tmp_path):
    q, k = [2, 32, 4096, 128], [2, 8, 4096, 128]
    name = "aten::_scaled_dot_product_flash_attention"
    events = [
        operator(name, 1, [q, k, k, [], [], []], concrete=("", "", "", "0.", "True", "False")),
        operator(f"{name}_backward", 2, [q, q, k, k], concrete=("", "", "", "", "True")),
        kernel("fwd", 500.0, **{"External id": 1}),
        kernel("bwd", 1300.0, **{"External id": 2}),
    ]
    (both,) = read(tmp_path, on_gpu(*events)).results.measurements
    assert both.case["causal"] is True
    assert (both.case["heads"], both.case["kv_heads"]) == (32, 8)
    assert both.seconds == {"forward": [pytest.approx(5e-4)], "backward": [pytest.approx(1.3e-3)]}


def test_ranks_of_a_large_group_come_from_the_configuration_not_from_the_cut_list(tmp_path):
    described = {
        "Collective name": "_allgather_base",
        "In msg nelems": 1 << 20,
        "Out msg nelems": 1 << 26,
        "Group size": 64,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Process Group Ranks": "[0, 2, 4, ...]",
    }
    (gather,) = read(tmp_path, on_gpu(kernel("ncclDevKernel", 900.0, **described))).results.measurements
    assert gather.case["op"] == "all_gather"
    assert gather.case["size"] == 2 << 26
    assert gather.case["ranks"] == list(range(0, 128, 2))
    assert gather.seconds["all_gather"] == [pytest.approx(9e-4)]


def test_a_trace_without_a_gpu_yields_operators_and_gloo(tmp_path):
    gloo = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_gather", "ts": 0.0, "dur": 80.0}
    gloo["args"] = {"Input Dims": [[1024]], "Input type": ["float"]}
    trace = {
        "distributedInfo": {
            "backend": "gloo",
            "pg_config": [{"pg_name": "0", "ranks": [0, 1]}],
            "world_size": 2,
        },
        "traceEvents": [gloo, operator("aten::mm", 1, [[8, 16], [16, 4]], dtype="float")],
    }
    gather, gemm = read(tmp_path, trace).results.measurements
    assert gather.case["size"] == 2 * 4 * 1024
    assert gemm.seconds["gemm"] == [pytest.approx(5e-6)]


def test_gzipped_traces_are_read(tmp_path):
    path = tmp_path / "trace.json.gz"
    trace = on_gpu(operator("aten::mm", 1, [[8, 16], [16, 4]]), kernel("k", 1.0, **{"External id": 1}))
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    assert len(read_trace(path).results.measurements) == 1


def of_rank(tmp_path, rank: int, *microseconds: float, gpu: str = "NVIDIA H100 80GB HBM3"):
    """A trace of one GEMM and of all-reduces over two ranks that took so long for this one."""
    described = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20}
    described |= {"Group size": 2, "dtype": "BFloat16", "Process Group Name": "0"}
    events = [kernel("ncclDevKernel", each, **described) for each in microseconds]
    trace = on_gpu(*events, operator("aten::mm", 7, [[8, 8], [8, 8]]), kernel("k", 9.0, **{"External id": 7}))
    trace["distributedInfo"]["rank"] = rank
    trace["deviceProperties"] = [{"id": 0, "name": gpu}]
    path = tmp_path / f"rank{rank}-{len(microseconds)}.json"
    path.write_text(json.dumps(trace))
    return path


def test_of_the_ranks_the_last_to_come_says_how_long_a_collective_takes(tmp_path):
    files = [of_rank(tmp_path, 0, 900.0, 500.0), of_rank(tmp_path, 1, 400.0, 700.0)]
    reduced, gemm = read_traces(files).results.measurements
    assert reduced.seconds["all_reduce"] == [pytest.approx(4e-4), pytest.approx(5e-4)]
    assert gemm.seconds["gemm"] == [pytest.approx(9e-6)] * 2


def test_ranks_that_saw_different_steps_are_refused(tmp_path):
    files = [of_rank(tmp_path, 0, 900.0, 500.0), of_rank(tmp_path, 1, 400.0)]
    with pytest.raises(TraceError, match=r"not seen equally often \(rank 0: 2, rank 1: 1\)"):
        read_traces(files)


def test_traces_of_different_machines_are_refused(tmp_path):
    files = [of_rank(tmp_path, 0, 900.0), of_rank(tmp_path, 1, 900.0, gpu="NVIDIA A100-SXM4-80GB")]
    with pytest.raises(
        MachineError, match=r"rank1-1.json: of another machine than .*gpu: NVIDIA H100.* there"
    ):
        read_traces(files)


def test_an_operator_that_also_casts_or_broadcasts_is_left_out(tmp_path):
    cast = operator("aten::copy_", 1, [[64], [64]])
    cast["args"]["Input type"] = ["c10::BFloat16", "float"]
    events = [cast, operator("aten::add", 2, [[64, 64], [64]]), operator("aten::add", 3, [[64], [64]])]
    trace = {"traceEvents": events}
    read_back = read(tmp_path, trace)
    (added,) = read_back.results.measurements
    assert (added.case["op"], added.case["bytes_read"], added.case["bytes_written"]) == ("add", 256, 128)
    assert read_back.unread == {"aten::copy_": 1, "aten::add": 1}


def test_a_zipped_trace_cut_off_is_refused(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(on_gpu()).encode())[:-12])
    with pytest.raises(TraceError, match="is it cut off"):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", r":1:2: not a JSON trace: .*; is it cut off\?"),
        ('{"traceEvents": [{"ph": "X", "name": "aten::mm"}]}', "an event without name or duration"),
        ("[]", "has no traceEvents"),
        ('{"traceEvents": []}', "recorded without shapes"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        read_trace(path)
