"""Every part of a prediction names its description, and whether its numbers were measured on other hardware."""

from __future__ import annotations

import simulator
from simulator.results.origins import origins

UNMEASURED = {"node.gpu.calibration": "null", "node.gpu.name": "unheard-of"}


def test_measured_hardware_borrows_nothing() -> None:
    found = origins(simulator.load_cluster("selene"), simulator.load_workload("gpt3-175b"))
    names = {one.part: one.name for one in found}
    assert names["gpu"] == "a100-sxm-80" and names["software"] == "megatron-2022"
    assert set(names) == {"gpu", "kernels", "node", "nic", "fabric", "collectives", "software"}
    assert not [one for one in found if one.transferred_from]
    assert all(one.sources for one in found if one.part in ("gpu", "node", "nic", "kernels"))


def test_hardware_that_nobody_measured_says_whose_numbers_it_borrows() -> None:
    cluster = simulator.load_cluster("selene", overrides=UNMEASURED)
    (kernels,) = [
        one for one in origins(cluster, simulator.load_workload("gpt3-175b")) if one.part == "kernels"
    ]
    assert kernels.transferred_from is not None and "a100" in kernels.transferred_from


def test_each_kind_of_node_of_a_mixed_cluster_is_listed_once() -> None:
    found = origins(simulator.load_cluster("mixed-a100-v100"), simulator.load_workload("gpt3-175b"))
    gpus = [one.name for one in found if one.part == "gpu"]
    assert len(gpus) == len(set(gpus)) == 2
