"""Fits of collective calibrations: they find what made the data, and print as they read."""

import dataclasses

import pytest

from simulator.calibration.collective_yaml import calibration_yaml
from simulator.calibration.fit_collectives import (
    between_nodes,
    fit,
    fit_calibration,
    inside_a_node,
    predicted,
    residuals,
    with_parameters,
)
from simulator.costs.collectives import CollectiveCalibration, GroupShape, load_calibration
from simulator.description import catalogue
from simulator.description.yaml_reader import parse_yaml
from simulator.validation.collective_data import Measurement


def made_by(truth: CollectiveCalibration, nodes: int = 1) -> list[Measurement]:
    """Noise-free measurements of ring all-gathers as `truth` would have them."""
    rows = []
    for ranks in (2, 4, 8):
        group = GroupShape(
            num_ranks=ranks * nodes,
            num_nodes=nodes,
            scale_up_bandwidth=300e9,
            nic_bandwidth=100e9 * (nodes > 1),
        )
        for exponent in range(10, 30):
            row = Measurement("made up", "all_gather", "fp16", group, 2.0**exponent, 1.0, "tune", "")
            rows.append(dataclasses.replace(row, seconds=predicted(truth, row)))
    return rows


def test_a_fit_finds_the_parameters_that_made_the_data() -> None:
    start = load_calibration("nccl-a100-nvswitch")
    ring = ("algorithms", "ring")
    truth = with_parameters(start, {(*ring, "ll", "hop"): 2e-6, (*ring, "simple", "scale_up"): 0.6})
    found = fit(start, made_by(truth), lambda path: path[:2] == ring and inside_a_node(path)).calibration
    assert abs(residuals(found, made_by(truth))).max() < 0.02
    assert found.algorithms["ring"]["ll"].hop == pytest.approx(2e-6, rel=0.03)
    assert found.algorithms["ring"]["simple"].scale_up == pytest.approx(0.6, rel=0.03)


def test_rows_inside_a_node_leave_the_network_alone_and_the_other_way_round() -> None:
    assert inside_a_node(("algorithms", "ring", "ll", "hop"))
    assert not inside_a_node(("algorithms", "ring", "ll", "network_base"))
    assert not inside_a_node(("algorithms", "tree", "ll", "hop"))
    assert between_nodes(("algorithms", "tree", "simple", "network_trips"))
    assert not between_nodes(("algorithms", "tree", "simple", "scale_up"))
    assert not between_nodes(("algorithms", "direct", "simple", "network_trips"))


@pytest.mark.parametrize("name", catalogue.names("collectives"))
def test_a_calibration_prints_as_it_reads(name: str, tmp_path) -> None:
    calibration = load_calibration(name)
    path = tmp_path / f"{name}.yaml"
    path.write_text(calibration_yaml(calibration))
    assert parse_yaml(path.read_text(), str(path))
    again = load_calibration(str(path))
    assert again == calibration.model_copy(update={"name": again.name})


def test_what_nobody_measured_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match="nothing was measured for rccl-mi300x-mesh"):
        fit_calibration(load_calibration("rccl-mi300x-mesh"))


def test_fitting_again_changes_little() -> None:
    shipped = load_calibration("nccl-v100-nvlink-mesh")
    again = fit_calibration(shipped).calibration
    for protocol, rates in again.algorithms["ring"].items():
        assert rates.scale_up == pytest.approx(shipped.algorithms["ring"][protocol].scale_up, rel=0.05)
