"""Lengths of documents follow their distribution, and a seed fixes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.description import DescriptionError, load
from simulator.workloads.data import Data, documents_of

WORKLOAD = {
    "model": "llama3-8b",
    "global_batch": 64,
    "sequence_length": 4096,
    "precision": "bf16",
    "plan": {},
}


def lengths(distribution: str, **values: Any) -> Any:
    return load("lengths", {"kind": "lengths", "distribution": distribution, **values})


def evenly(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


def test_quantiles_are_met_and_the_tail_ends_at_the_longest() -> None:
    wikipedia = load("lengths", "wikipedia")
    found = wikipedia.at(np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999]), 0)
    assert found == pytest.approx([87, 146, 347, 862, 2112, 3720, 10919, 37353], rel=1e-9)
    assert wikipedia.at(np.array([1.0 - 1e-16]), 0)[0] == 1_820_000


def test_the_mean_of_wikipedia_is_the_published_one_though_it_was_not_used() -> None:
    assert load("lengths", "wikipedia").at(evenly(2_000_000), 0).mean() == pytest.approx(1014, rel=0.01)


def test_between_two_quantiles_longer_documents_fall_off_as_a_power() -> None:
    pareto = lengths("quantiles", quantiles={0.0: 10, 0.75: 40}, longest=1e9)  # P(longer) = 10 / length
    assert pareto.at(np.array([0.5, 0.9]), 0) == pytest.approx([20, 100], rel=1e-9)


def test_lognormal_has_its_median_and_mean() -> None:
    found = lengths("lognormal", median=500, sigma=0.8).at(evenly(200_000), 0)
    assert np.median(found) == pytest.approx(500, rel=1e-3)
    assert found.mean() == pytest.approx(500 * np.exp(0.8**2 / 2), rel=1e-3)


def test_a_file_is_read_in_order_and_the_seed_counts_batches(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("10\n20\n\n30\n40\n50\n")
    given = {"lengths": {"distribution": "file", "file": str(path)}}
    batches = [documents_of(Data.model_validate({**given, "seed": seed}), 3, 100) for seed in range(3)]
    assert batches == [(10, 20, 30), (40, 50, 10), (20, 30, 40)]


def test_a_seed_fixes_the_draw_and_another_gives_another() -> None:
    drawn = [
        load("workload", {**WORKLOAD, "data": {"lengths": "wikipedia", "seed": s}}).documents
        for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("longer", ["cut", "drop"])
def test_what_is_too_long_is_cut_or_left_out(longer: str) -> None:
    data = {"lengths": {"distribution": "lognormal", "median": 3000, "sigma": 1.0}, "longer": longer}
    found = load("workload", {**WORKLOAD, "data": data}).documents
    assert len(found) == 64 and max(found) <= 4096
    assert (found.count(4096) > 5) == (longer == "cut")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"lengths": "wikipedai"}, "did you mean wikipedia"),
        ({"lengths": {"distribution": "quantiles", "quantiles": {0.5: 10, 0.2: 5}, "longest": 20}}, "rise"),
        ({"lengths": {"distribution": "quantiles", "quantiles": {0: 5, 0.5: 2}, "longest": 20}}, "not fall"),
        (
            {"lengths": {"distribution": "quantiles", "quantiles": {0: 5, 0.5: 50}, "longest": 20}},
            "less than",
        ),
        ({"lengths": {"distribution": "file", "file": "/nowhere.txt"}}, "No such file"),
        ({"lengths": {"distribution": "fixed", "length": 8192}, "longer": "drop"}, "fewer than 64"),
        ({"lengths": "wikipedia", "packing": "bestfit"}, "best_fit"),
        ({"lengths": "wikipedia", "pack": "none"}, "pack"),
    ],
)
def test_faults_say_what_would_be_right(data: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load("workload", {**WORKLOAD, "data": data})


def test_a_line_that_is_no_length_is_named(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("10\nten\n")
    with pytest.raises(DescriptionError, match=r"lengths\.txt:2: .?ten.? is no length"):
        lengths("file", file=str(tmp_path / "lengths.txt"))
