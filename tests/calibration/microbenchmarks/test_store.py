"""Results survive interruption, are never measured twice, and never mix two machines."""

from __future__ import annotations

import pytest

from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.store import Measurement, Store, StoreError, read_results

MACHINE = {"device": "cpu", "num_ranks": 2}


def measurement(size: int) -> Measurement:
    case = Case("collective", {"op": "all_reduce", "size": size, "ranks": [0, 1], "dtype": "fp32"})
    return Measurement(case, 3, {"all_reduce": [1.0, 2.0, 3.0]})


def test_what_is_added_is_read_back(tmp_path):
    path = tmp_path / "deep" / "results.jsonl"
    with Store(path, MACHINE) as store:
        store.add(measurement(4))
        store.add(measurement(8))
    results = read_results(path)
    assert results.machine == MACHINE
    assert results.measurements == (measurement(4), measurement(8))


def test_a_reopened_file_knows_what_is_done_whatever_the_order_of_keys(tmp_path):
    path = tmp_path / "results.jsonl"
    with Store(path, MACHINE) as store:
        store.add(measurement(4))
    with Store(path, MACHINE) as store:
        shuffled = Case("collective", dict(reversed(list(measurement(4).case.parameters.items()))))
        assert shuffled.key in store.done
        assert measurement(8).case.key not in store.done


def test_half_a_line_left_by_a_crash_is_dropped_and_measured_again(tmp_path):
    path = tmp_path / "results.jsonl"
    with Store(path, MACHINE) as store:
        store.add(measurement(4))
        store.add(measurement(8))
    path.write_bytes(path.read_bytes()[:-20])
    with Store(path, MACHINE) as store:
        assert store.done == {measurement(4).case.key}
        store.add(measurement(8))
    assert read_results(path).measurements == (measurement(4), measurement(8))


def test_results_of_another_machine_are_not_continued(tmp_path):
    path = tmp_path / "results.jsonl"
    with Store(path, MACHINE):
        pass
    with pytest.raises(StoreError, match="num_ranks: 2 there, 4 here"):
        Store(path, {**MACHINE, "num_ranks": 4})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", ":1:1: not JSON"),
        ("[1]\n", ":1: not a record"),
        ('{"record": "measurement"}\n', "does not begin with the machine"),
        ('{"record": "machine", "version": 99, "machine": {}}\n', "version 99"),
        ('{"record": "machine", "version": 1, "machine": {}}\n{"benchmark": "gemm"}\n', ":2: incomplete"),
    ],
)
def test_files_that_are_no_results_are_refused_with_the_line(tmp_path, text, words):
    path = tmp_path / "results.jsonl"
    path.write_text(text)
    with pytest.raises(StoreError, match=words):
        read_results(path)
