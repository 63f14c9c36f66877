"""The page on the accuracy of collectives says what the suite finds."""

import re
from pathlib import Path

import pytest

from simulator.validation.collectives import scores

PAGE = (Path(__file__).parents[2] / "docs" / "accuracy-collectives.md").read_text(encoding="utf-8")
ROWS = {
    match[1]: [cell.strip() for cell in match[2].split("|")]
    for match in re.finditer(r"^\| `([\w.-]+)` \|(.*)\|$", PAGE, re.M)
}


def test_the_page_has_every_machine_and_its_errors() -> None:
    found = scores(split="held")
    assert set(ROWS) == set(found)
    for system, score in found.items():
        _, _, rows, mean, bias, p90, worst, *_ = ROWS[system]
        assert int(rows) == score.rows
        for shown, value in ((mean, score.mape), (bias, score.bias), (p90, score.p90), (worst, score.worst)):
            assert float(shown) == pytest.approx(100 * value, abs=0.6), system


def test_the_mean_over_machines_is_current() -> None:
    match = re.search(r"Mean over machines: ([\d.]+) %", PAGE)
    assert match
    means = [score.mape for score in scores(split="held").values()]
    assert float(match[1]) == pytest.approx(100 * sum(means) / len(means), abs=0.3)
