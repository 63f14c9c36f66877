"""Which calibration a node gets, and what the calibrations on board state."""

import pytest

from simulator.costs.collectives import (
    GroupShape,
    collective_cost,
    collective_seconds,
    library_for,
    load_calibration,
)
from simulator.description import catalogue
from simulator.description.faults import DescriptionError
from simulator.description.loading import load

NAMES = catalogue.names("collectives")
MEASURED = ("measured", "cited", "datasheet", "transferred", "assumed", "fitted", "gloo")


@pytest.mark.parametrize("name", NAMES)
def test_every_group_of_parameters_says_where_it_comes_from(name: str) -> None:
    calibration = load_calibration(name)
    needed = {"algorithms", "gpu_share"}
    needed |= {"operations"} if calibration.operations else set()
    needed |= {"scale_up_bandwidth"} if calibration.scale_up_bandwidth else set()
    assert needed <= set(calibration.sources)
    for key, text in calibration.sources.items():
        assert any(word in text for word in MEASURED) or "node file" in text, f"{name}: {key}: {text}"


@pytest.mark.parametrize("name", NAMES)
def test_every_calibration_prices_every_operation(name: str) -> None:
    calibration = load_calibration(name)
    for nodes, ranks in ((1, 8), (4, 32)):
        shape = GroupShape(
            num_ranks=ranks, num_nodes=nodes, scale_up_bandwidth=1e11, nic_bandwidth=1e11 * (nodes > 1)
        )
        for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"):
            assert 0 < collective_seconds(collective_cost(op, 1e6, shape, calibration), shape) < 1, op
    pair = GroupShape(num_ranks=2, num_nodes=2, nic_bandwidth=1e10)
    assert collective_seconds(collective_cost("send_recv", 1e6, pair, calibration), pair) > 1e-4


@pytest.mark.parametrize("name", catalogue.names("node"))
def test_every_node_of_the_catalogue_gets_a_calibration_that_says_if_it_was_measured_there(name: str) -> None:
    node = load("node", name)
    calibration = library_for(node)
    assert calibration.architecture == node.gpu.architecture
    if calibration.transferred_from is None:
        assert calibration.name in NAMES
    else:
        assert calibration.transferred_from in NAMES


@pytest.mark.parametrize(
    ("node", "calibration", "origin"),
    [
        ("dgx-a100", "nccl-a100-nvswitch", None),
        ("dgx-h100", "nccl-h100-nvswitch", None),
        ("gcp-a3-mega", "nccl-h100-nvswitch", None),
        ("gcp-a3-high", "nccl-h100-tcpx", None),  # its NIC is named there
        ("hgx-h200", "nccl-h100-nvswitch", None),
        ("hgx-b200", "nccl-b200-nvswitch", None),
        ("gb200-nvl72", "nccl-gb200-nvl", None),
        ("dgx-1v", "nccl-v100-nvlink-mesh", None),
        ("perlmutter-node", "nccl-a100-nvswitch for a100-sxm-40", "nccl-a100-nvswitch"),
        ("dgx-2", "nccl-v100-nvlink-mesh for v100-sxm3-32", "nccl-v100-nvlink-mesh"),
        ("h100-pcie8", "nccl-l40s-pcie for h100-pcie", "nccl-l40s-pcie"),
        ("mi300x-8", "rccl-mi300x-mesh", "nccl-h100-nvswitch"),
    ],
)
def test_the_nearest_generation_is_taken(node: str, calibration: str, origin: str | None) -> None:
    found = library_for(load("node", node))
    assert (found.name, found.transferred_from) == (calibration, origin)


def test_a_transferred_calibration_scales_with_the_datasheet() -> None:
    calibration = library_for(load("node", "dgx-2"))
    size = 4e9
    times = []
    for bandwidth in (150e9, 300e9):
        shape = GroupShape(num_ranks=8, scale_up_bandwidth=bandwidth)
        times.append(collective_seconds(collective_cost("all_reduce", size, shape, calibration), shape))
    assert 1.7 < times[0] / times[1] < 2.0  # all but the copies within a GPU and the latency


def test_a_name_is_taken_as_it_is_and_a_misspelt_one_gets_a_hint() -> None:
    assert library_for(load("node", "dgx-a100"), "gloo-tcp").library == "gloo"
    with pytest.raises(DescriptionError, match="nccl-h100-nvswitch"):
        library_for(load("node", "dgx-a100"), "nccl-h100-nvswitsh")


def test_overlapped_compute_slows_by_the_measured_coefficient() -> None:
    assert 1 / (1 - load_calibration("nccl-a100-nvswitch").gpu_share) == pytest.approx(1.126, abs=1e-3)
