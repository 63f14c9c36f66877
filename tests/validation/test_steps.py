"""Published training steps stay predicted as well as the accuracy page says."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from simulator.validation import steps
from simulator.validation.page import _first_sight, mechanism, one_line_formula
from simulator.validation.scores import Refusal, Row, score
from simulator.validation.step_data import plan_of, rows_of, sources, step_rows, uneven, workload_of


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "most"),
    [
        ("korthikanti2022", 0.036),
        ("megatron_sc21_t1", 0.06),
        ("megatron_sc21_t2", 0.04),
        ("llmfoundry", 0.08),
        ("flash_attention", 0.03),
        ("ibm_fsdp", 0.05),
        ("nemo_megatron_2208", 0.07),
        ("oneflow_megatron", 0.08),
        ("ultrascale_playbook", 0.09),
    ],
)
def test_mean_error_of_a_source(source: str, most: float) -> None:
    rows = [row for row in steps.judge([source]) if isinstance(row, Row)]
    assert score(rows).mape <= most


def test_tensor_parallelism_across_two_nodes_runs_at_the_pace_of_a_ring() -> None:
    """vTrain's rows with tp 16 on nodes of eight A100 and four NICs: 17 to 26 % too short if they were trees."""
    rows = [row for row in rows_of("vtrain") if row.tp == "16"]
    assert len(rows) == 6
    for row in rows:
        predicted = steps.predict_row(row)
        assert not isinstance(predicted, Refusal)
        assert predicted.step_time_s == pytest.approx(row.step_time, rel=0.09)


def test_rows_that_were_fitted_on_are_not_judged() -> None:
    fitted = [row for row in step_rows() if row.split == "fit"]
    assert fitted
    assert not any(steps.wanted(row, None) for row in fitted)


def test_every_row_names_its_place_in_the_source() -> None:
    assert all(row.locator and row.source in sources() for row in step_rows())


def test_fully_sharded_fp8_of_megatron_gathers_what_its_products_read() -> None:
    """`fp8_param_gather` of the recipes of Megatron-Bridge; one of them shards within a rack (T00777)."""
    rows = [row for row in rows_of("megatron_bridge") if row.zero == "3"]
    assert len(rows) == 29
    assert {plan_of(row)["zero3"]["gather_dtype"] for row in rows} == {"fp8"}
    assert [row.row for row in rows if plan_of(row)["zero3"]["shard_group"] == 32] == ["T00777"]


@pytest.mark.parametrize(("layers", "stages"), [(70, 12), (79, 10), (126, 64)])
def test_uneven_stages_hold_every_layer(layers: int, stages: int) -> None:
    counts = uneven(layers, stages)
    assert sum(counts) == layers
    assert len(counts) == stages
    assert min(counts) >= 0


def test_the_formula_is_near_what_its_authors_report() -> None:
    """11.5 % on Korthikanti et al. 2022, table 5."""
    rows = [row for row in rows_of("korthikanti2022") if "dp8" not in row.row]
    errors = [abs(one_line_formula(row) / row.step_time - 1) for row in rows if row.step_time]
    assert sum(errors) / len(errors) == pytest.approx(0.115, abs=0.04)


def test_sources_added_last_show_their_errors_at_first_sight() -> None:
    section = _first_sight({"mt_nlg": [Row("mt_nlg", "MT1", 60.1, 54.09, "s")]})
    assert next(line for line in section if line.startswith("| mt_nlg |")).endswith(
        "| 3 | 21.0% | -21.0% | 10.0% |"
    )
    shown = [line.split(" | ")[0].removeprefix("| ") for line in section if line.startswith("| ")][2:]
    assert shown
    assert set(shown) <= set(sources())


def test_what_few_rows_say_reaches_the_workload() -> None:
    """Half the blocks recomputed, replicas of eight GPUs, no fp32 copy, heads wider than width over their number."""
    rows = {row.row: row for row in step_rows()}
    half = workload_of(rows["IB02"]).plan
    assert half.recompute_layers == 20
    assert half.zero3.shard_group == 8
    assert not workload_of(rows["KF01"]).master_weights
    assert workload_of(rows["MX3"]).model.head_dim == 128


def test_a_miss_without_a_known_reason_says_so() -> None:
    (row,) = [row for row in step_rows() if row.row == "kor22_22B_full"]
    assert mechanism(row, 0.5) == "not explained"
    assert plan_of(row)["tp"] == 8


def test_validate_prints_scores_as_json() -> None:
    from simulator.cli.validate import command

    app = __import__("typer").Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["megatron_sc21_t2", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert set(found) == {"sources", "mape"}
    assert set(found["sources"]["megatron_sc21_t2"]) >= {"rows", "mape", "bias", "p90", "regret", "unit"}
