"""Fits to one's own results: made-up files give back the parameters that made them; other things are left out."""

from __future__ import annotations

import pytest

from simulator import load_cluster
from simulator.calibration.collective_yaml import calibration_yaml
from simulator.calibration.fit_collectives import predicted
from simulator.calibration.measured_collectives import fit_own, measured_collectives
from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.collective import collective_case
from simulator.calibration.microbenchmarks.store import Measurement, Results
from simulator.costs.collectives import load_calibration

PATH = ("gloo_all_reduce", "simple")


def made_by(library, cluster) -> Results:
    """Noise-free all-reduces as `library` would have them."""
    sizes = [1 << exponent for exponent in range(16, 24)]
    cases = [collective_case("all_reduce", size, range(ranks)) for ranks in (2, 4, 8) for size in sizes]
    blank = tuple(Measurement(case, 1, {"all_reduce": [1.0]}) for case in cases)
    rows = measured_collectives(Results({}, blank), cluster)
    timed = zip(cases, rows, strict=True)
    return Results(
        {}, tuple(Measurement(case, 1, {"all_reduce": [predicted(library, row)]}) for case, row in timed)
    )


def with_rates(library, **rates: float):
    algorithm, protocol = PATH
    changed = library.algorithms[algorithm][protocol].model_copy(update=rates)
    return library.model_copy(update={"algorithms": {**library.algorithms, algorithm: {protocol: changed}}})


def test_a_fit_to_a_file_finds_what_made_it_and_leaves_the_rest_alone():
    start, cluster = load_calibration("gloo-tcp"), load_cluster("minicluster", 8)
    truth = with_rates(start, base=9e-4, network_hop=4e-4, nic=0.9)
    found = fit_own(start, measured_collectives(made_by(truth, cluster), cluster), "made up")
    rates = found.calibration.algorithms[PATH[0]][PATH[1]]
    assert rates.nic == pytest.approx(0.9, rel=0.01)
    assert rates.network_hop == pytest.approx(4e-4, rel=0.05)
    assert found.error < 0.002
    assert found.holdout < 0.01
    assert found.calibration.algorithms["gloo_broadcast"] == start.algorithms["gloo_broadcast"]
    assert "made up" in found.calibration.sources["algorithms"]
    assert "threads: 2" in calibration_yaml(found.calibration)


def test_kernels_and_small_messages_are_left_out():
    cluster = load_cluster("minicluster", 2)
    gemm = Measurement(Case("gemm", {"m": 1, "n": 1, "k": 1, "dtype": "fp32"}), 1, {"gemm": [1.0]})
    small = Measurement(collective_case("all_reduce", 64, range(2)), 1, {"all_reduce": [1.0]})
    ping = Case("send_recv", {"pattern": "ping_pong", "size": 1 << 20, "ranks": [0, 1]})
    results = Results({}, (gemm, small, Measurement(ping, 1, {"ping_pong": [0.5, 0.7, 0.6]})))
    (row,) = measured_collectives(results, cluster, smallest=1024)
    assert (row.op, row.size, row.seconds) == ("send_recv", 1 << 20, 0.6)


def test_nothing_to_fit_to_is_an_error():
    with pytest.raises(ValueError, match="no collectives"):
        fit_own(load_calibration("gloo-tcp"), [], "nothing")
