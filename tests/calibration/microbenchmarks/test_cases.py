"""Every benchmark lists cases that are unique, storable and stay within the scope."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.calibration.microbenchmarks import BENCHMARK_MODULES
from simulator.calibration.microbenchmarks.benchmark import Scope, benchmarks, cases_of
from simulator.calibration.microbenchmarks.collective import collective_case

scopes = st.builds(
    Scope, st.sampled_from(["cpu", "cuda"]), st.integers(1, 16), largest=st.sampled_from([1 << 20, 1 << 26])
)


@given(scopes)
def test_keys_are_unique_and_cases_survive_json(scope):
    cases = cases_of(scope)
    assert len({case.key for case in cases}) == len(cases)
    for case in cases:
        assert json.loads(case.key) == [case.benchmark, json.loads(json.dumps(case.parameters))]


@given(scopes)
def test_ranks_exist_and_groups_hold_at_least_two(scope):
    for case in cases_of(scope):
        assert set(case.ranks) <= set(range(scope.num_ranks))
        assert all(len(set(ranks)) == len(ranks) >= 2 for ranks, _ in case.groups)


def test_one_rank_has_kernels_and_copies_but_nothing_to_talk_to():
    names = {case.benchmark for case in cases_of(Scope("cpu", 1))}
    assert names == {"gemm", "attention", "memory_bound", "optimizer", "launch", "copies"}


def test_a_quick_session_is_about_half_as_long():
    for device in ("cpu", "cuda"):
        assert len(cases_of(Scope(device, 4, quick=True))) < 0.6 * len(cases_of(Scope(device, 4)))


@given(st.integers(1, 10**9), st.integers(2, 9))
def test_collective_sizes_give_every_rank_whole_elements(size, ranks):
    rounded = collective_case("all_to_all", size, range(ranks))["size"]
    assert rounded % (4 * ranks) == 0
    assert abs(rounded - size) <= 4 * ranks


def test_the_table_of_contents_and_the_registry_agree():
    assert tuple(benchmarks()) == BENCHMARK_MODULES


def test_an_unknown_benchmark_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no benchmark gem \(there are: gemm, "):
        cases_of(Scope("cpu", 1), ["gem"])
