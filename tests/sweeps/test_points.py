"""The points of a sweep: all combinations in a fixed order, samples that repeat, keys by what a design comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.description import DescriptionError, load
from simulator.sweeps.points import design as resolved
from simulator.sweeps.points import key_of, points
from simulator.sweeps.sweep import Sweep


def sweep(**keys: Any) -> Sweep:
    found: Sweep = load(
        "sweep", {"kind": "sweep", "cluster": "./cluster.yaml", "workload": "./workload.yaml", **keys}
    )
    return found


def test_points_are_all_combinations_with_the_last_key_fastest(design: Path) -> None:
    found = points(sweep(grid={"plan.tp": [1, 2], "gpus": [8, 16]}, list=[{"plan.pp": 1}, {"plan.pp": 2}]))
    assert [point.index for point in found] == list(range(8))
    assert [tuple(point.settings.values()) for point in found[:4]] == [
        (1, 8, 1),
        (1, 8, 2),
        (1, 16, 1),
        (1, 16, 2),
    ]


def test_samples_repeat_with_their_seed_and_stay_within_their_range(design: Path) -> None:
    over = {
        "cluster.node.nic.bandwidth": {"between": ["100 Gb/s", "800 Gb/s"], "scale": "log"},
        "plan.tp": [1, 2],
        "workload.global_batch": {"between": [16, 64], "whole": True},
    }
    one, again = (points(sweep(sample={"count": 20, "seed": 7, "over": over})) for _ in range(2))
    other = points(sweep(sample={"count": 20, "seed": 8, "over": over}))
    assert one == again != other
    for point in one:
        text = point.settings["cluster.node.nic.bandwidth"]
        assert text.endswith(" Gb/s") and 100.0 <= float(text.split()[0]) <= 800.0
        assert point.settings["plan.tp"] in (1, 2)
        assert isinstance(point.settings["workload.global_batch"], int)


def test_a_key_is_what_the_design_comes_to(design: Path) -> None:
    plain = sweep()
    same = [{}, {"plan.tp": 2}, {"cluster.node.nic.bandwidth": "25 GB/s"}, {"workload": "./workload.yaml"}]
    assert len({key_of(plain, settings) for settings in same}) == 1
    others = [{"plan.tp": 1}, {"gpus": 16}, {"cluster.node.nic.bandwidth": "26 GB/s"}, {"model.layers": 8}]
    assert len({key_of(plain, settings) for settings in [{}, *others]}) == 5


def test_a_design_is_as_large_as_its_job_can_use(design: Path) -> None:
    cluster, job = resolved(sweep(), {"workload.global_batch": 16})
    assert cluster.num_gpus == 32 and job.num_micro_batches(32) == 1


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"grid": {"plann.tp": [1]}}, "did you mean plan"),
        ({"grid": {"plan": [1]}}, "unknown key 'plan'"),
        ({"cluster": ""}, "which cluster"),
        ({"sample": {"count": 1, "over": {"gpus": {"between": [8, 8]}}}}, "is not below"),
        ({"sample": {"count": 1, "over": {"gpus": {"between": [0, 8], "scale": "log"}}}}, "above zero"),
        (
            {"sample": {"count": 1, "over": {"gpus": {"between": ["8 apples", "9 apples"]}}}},
            "no number or quantity",
        ),
    ],
)
def test_wrong_sweeps_are_told(design: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        sweep(**keys)
