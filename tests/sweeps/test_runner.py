"""A sweep: every point once, whatever the processes; failures are results; files do not depend on the order."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from simulator.description import load
from simulator.description.faults import KeyFaults
from simulator.sweeps import runner
from simulator.sweeps.export import rows, write_csv, write_parquet
from simulator.sweeps.points import points
from simulator.sweeps.processes import LocalPool
from simulator.sweeps.runner import run
from simulator.sweeps.store import DONE, FAILED, Outcome, Store
from simulator.sweeps.sweep import Sweep

GRID = {"plan.tp": [1, 2, 3], "workload.global_batch": [16, 32], "plan.recompute": ["none", "full"]}


def sweep(**keys: Any) -> Sweep:
    base = {"kind": "sweep", "cluster": "./cluster.yaml", "workload": "./workload.yaml", "gpus": 16}
    found: Sweep = load("sweep", {**base, "grid": GRID, **keys})
    return found


def csv_of(described: Sweep, path: Path, pool: Any = None) -> bytes:
    every = points(described)
    with Store(path / "results.sqlite") as store:
        run(described, every, store, pool)
        write_csv(rows(described, every, store), path / "results.csv")
    return (path / "results.csv").read_bytes()


def test_eight_processes_write_what_one_writes(
    design: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    one, eight = (csv_of(sweep(), tmp_path_factory.mktemp("out"), pool) for pool in (None, LocalPool(8)))
    assert one == eight
    assert one.count(b"\n") == 13


def test_what_cannot_run_is_a_result(design: Path) -> None:
    described = sweep()
    every = points(described)
    with Store(design / "results.sqlite") as store:
        summary = run(described, every, store)
        assert summary.added == {"done": 8, "invalid": 4}
        table = rows(described, every, store)
    assert all("3" in row["error"] for row in table if row["plan.tp"] == 3)
    assert all(row["step_time_s"] > 0.0 for row in table if row["plan.tp"] != 3)


@pytest.mark.parametrize("name", ["step_time", "memory.peak", "best.tp"])
def test_a_number_that_no_prediction_has_is_told_with_the_first(design: Path, name: str) -> None:
    described = sweep(pareto={"minimize": ["step_time_s", name]})
    every = points(described)
    with Store(design / "results.sqlite") as store:
        with pytest.raises(KeyFaults, match=f"no prediction has '{name}'"):
            run(described, every, store)
        assert 0 < len(store) < len(every)
        kept = len(store)
        with pytest.raises(KeyFaults, match=f"no prediction has '{name}'"):
            run(described, every, store)
        assert len(store) == kept


def test_settings_and_parts_that_points_need_not_have_may_be_traded_off(design: Path) -> None:
    described = sweep(pareto={"minimize": ["plan.tp", "breakdown_s.tp"], "maximize": ["utilization.hbm"]})
    with Store(design / "results.sqlite") as store:
        assert run(described, points(described), store).added["done"] == 8


def test_points_with_results_are_not_run_again(design: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described = sweep()
    every = points(described)
    with Store(design / "results.sqlite") as store:
        run(described, every[:5], store)
        seen: list[Any] = []
        monkeypatch.setattr(
            runner, "outcome_of", lambda sweep, settings: seen.append(settings) or Outcome(DONE, {})
        )
        summary = run(described, every, store)
    assert summary.before == 5 and len(seen) == 7


def test_errors_of_ours_are_recorded_and_tried_again(design: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import simulator.simulation

    described = sweep(grid={"plan.tp": [1, 2]})
    every = points(described)
    real = simulator.simulation.simulate

    def fails_for_two(cluster: Any, job: Any) -> Any:
        if job.plan.tp == 2:
            raise RuntimeError("boom")
        return real(cluster, job)

    with Store(design / "results.sqlite") as store:
        monkeypatch.setattr(simulator.simulation, "simulate", fails_for_two)
        assert run(described, every, store).added == {"done": 1, "failed": 1}
        assert rows(described, every, store)[1]["error"] == "RuntimeError: boom"
        monkeypatch.setattr(simulator.simulation, "simulate", real)
        assert run(described, every, store).added == {"done": 1}


def test_a_point_that_kills_its_process_is_the_only_one_lost(
    design: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = runner.outcome_of

    def deadly(sweep: Sweep, settings: Any) -> Outcome:
        if settings["plan.tp"] == 2 and settings["workload.global_batch"] == 32:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(sweep, settings)

    monkeypatch.setattr(runner, "outcome_of", deadly)
    described = sweep(grid={"plan.tp": [1, 2], "workload.global_batch": [16, 32, 64]})
    every = points(described)
    with Store(design / "results.sqlite") as store:
        assert run(described, every, store, LocalPool(2)).added == {"done": 5, "failed": 1}


def test_equal_designs_are_run_once(design: Path) -> None:
    described = sweep(grid={"plan.tp": [2], "cluster.node.nic.bandwidth": ["200 Gb/s", "25 GB/s"]})
    every = points(described)
    with Store(design / "results.sqlite") as store:
        assert run(described, every, store).total == 1
        table = rows(described, every, store)
    assert len(table) == 2 and table[0]["step_time_s"] == table[1]["step_time_s"]


def test_best_plans_are_searched_at_each_point(design: Path) -> None:
    values = {"tp": [1, 2], "pp": [1], "cp": [1], "zero": [0], "micro_batch": [1]}
    described = sweep(grid={"workload.global_batch": [16, 64]}, best={"values": values})
    every = points(described)
    with Store(design / "results.sqlite") as store:
        assert run(described, every, store).added == {"done": 2}
        table = rows(described, every, store)
    assert {row["best.tp"] for row in table} <= {1, 2}
    assert all(row["certificate.plans"] > 0 for row in table)


def test_a_store_keeps_all_rows_of_a_transaction_or_none(tmp_path: Path) -> None:
    with Store(tmp_path / "results.sqlite") as store:
        store.add([("a", {}, Outcome(DONE, {"x": 1.0}))])
        with pytest.raises(TypeError):
            store.add([("b", {}, Outcome(DONE, {})), ("c", {}, Outcome(DONE, {"x": object()}))])
        store.add([("d", {}, Outcome(FAILED, {"error": "x"}))])
        assert set(store.outcomes()) == {"a", "d"}
        assert store.keys() == {"a"}


def test_parquet_holds_the_same_table(design: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    described = sweep()
    every = points(described)
    with Store(design / "results.sqlite") as store:
        run(described, every, store)
        table = rows(described, every, store)
    for name in ("one", "two"):
        write_parquet(table, design / f"{name}.parquet")
    assert (design / "one.parquet").read_bytes() == (design / "two.parquet").read_bytes()
    back = parquet.read_table(design / "one.parquet").to_pylist()
    assert [row["step_time_s"] for row in back] == [row.get("step_time_s") for row in table]
