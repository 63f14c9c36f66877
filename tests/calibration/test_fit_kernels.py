"""Fits find the parameters that made the data, survive outliers, and their files read back to what was fitted."""

import json

import numpy as np
import pandas as pd
import pytest

from simulator.calibration import fit_attention, fit_gemm, fit_measured, fit_memory
from simulator.calibration.kernel_yaml import calibration_yaml
from simulator.calibration.microbenchmarks import attention, gemm, memory_bound
from simulator.calibration.microbenchmarks.benchmark import Scope
from simulator.calibration.relative_fit import fit_parameters, relative_error
from simulator.costs.kernels import kernel_seconds, load_calibration
from simulator.costs.kernels.calibration import MemoryParameters
from simulator.validation import kernel_data
from simulator.workloads.operators import Attention, Gemm, MemoryBound
from tests.costs.kernels.gpus import CALIBRATED, calibration, chip, gpu


def made_up_gemms(count: int = 400) -> pd.DataFrame:
    """Shapes without times, spread over the sizes that models have."""
    random = np.random.default_rng(1)
    sizes = 2 ** random.uniform(8, 14, (count, 3))
    return pd.DataFrame(np.ceil(sizes / 64) * 64, columns=["m", "n", "k"]).assign(batch=1)


def test_a_line_is_found_through_outliers() -> None:
    x = np.linspace(1, 10, 50)
    measured = 2.0 + 3.0 * x
    measured[::10] *= 4
    found = fit_parameters(
        lambda v: v["base"] + v["slope"] * x,
        measured,
        {"base": (0, 10), "slope": (0, 10)},
        {"base": 5, "slope": 5},
    )
    assert found["base"] == pytest.approx(2.0, rel=0.1)
    assert found["slope"] == pytest.approx(3.0, rel=0.05)


def test_fewer_measurements_than_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="1 measurements cannot settle 2 parameters"):
        fit_parameters(lambda v: np.array([v["a"]]), np.ones(1), {"a": (0, 2), "b": (0, 2)}, {"a": 1, "b": 1})


@pytest.mark.parametrize("name", ["a100-sxm-80", "h100-sxm"])
def test_a_gemm_fit_finds_the_parameters_that_made_the_times(name) -> None:
    true, rows = calibration(name).gemm["bf16"], made_up_gemms()
    noise = np.exp(np.random.default_rng(2).normal(0, 0.02, len(rows)))
    rows = rows.assign(seconds=fit_gemm.predicted(rows, chip(name), "bf16", true) * noise)
    base = true.model_copy(update={"efficiency": 0.6, "latency": 5e-6, "epilogue": 0.1, "throttle": 0.0})
    found = fit_gemm.refit_gemm(rows, chip(name), "bf16", base)
    assert found.efficiency == pytest.approx(true.efficiency, rel=0.02)
    assert found.latency == pytest.approx(true.latency, rel=0.25)
    unseen = made_up_gemms(800).iloc[400:]
    again, truth = (fit_gemm.predicted(unseen, chip(name), "bf16", p) for p in (found, true))
    assert relative_error(again, truth) < 0.02


def test_quantisation_and_product_are_told_apart() -> None:
    """Only their sum is measured, but one goes with m*k and the other with m*n*k."""
    own = calibration("h200")
    rows = made_up_gemms()
    made = own.gemm["fp8"], own.quantize["fp8"]
    rows = rows.assign(seconds=fit_gemm.predicted_quantized(rows, chip("h200"), "fp8", *made))
    product, quantise = fit_gemm.fit_quantized(rows, chip("h200"), "fp8", own.gemm["bf16"])
    assert product.efficiency == pytest.approx(made[0].efficiency, rel=0.03)
    assert quantise.efficiency == pytest.approx(made[1].efficiency, rel=0.1)


def test_an_attention_fit_predicts_what_made_it() -> None:
    true = calibration("h200").attention.backward
    rows = kernel_data.attention("h200", "backward")
    rows = rows.assign(seconds=fit_attention.predicted(rows, chip("h200"), true))
    found = fit_attention.fit_training(rows, chip("h200"), sorted(true))["backward"]
    assert relative_error(fit_attention.predicted(rows, chip("h200"), found), rows.seconds.to_numpy()) < 0.01


def test_linked_head_sizes_do_not_follow_a_single_slow_row() -> None:
    a100 = chip("a100-sxm-80")
    true = {128: calibration("a100-sxm-80").attention.forward[128]}
    shapes = [(4, heads, seq, 128) for heads in (8, 16, 32) for seq in (2048, 3072, 4096)]
    shapes += [(4, 16, 4096, 160), (4, 16, 4096, 192)]
    rows = pd.DataFrame(shapes, columns=["batch", "heads", "seq_q", "head_dim"])
    rows = rows.assign(
        kv_heads=rows.heads,
        seq_kv=rows.seq_q,
        head_dim_v=rows.head_dim,
        causal=False,
        direction="forward",
        dtype="fp16",
    )
    slow = np.where(rows.head_dim == 160, 1.2, 1.0)
    rows = rows.assign(seconds=fit_attention.predicted(rows, a100, true) * slow)
    apart, linked = (
        fit_attention.fit_training(rows, a100, (128, 160, 192), linked)["forward"] for linked in (False, True)
    )
    ratios = [found[160].efficiency / found[128].efficiency for found in (apart, linked)]
    assert ratios[0] < 0.9 < ratios[1] < 1.0
    often = rows[rows.head_dim == 128]
    assert relative_error(fit_attention.predicted(often, a100, linked), often.seconds.to_numpy()) < 0.02


def test_a_memory_fit_finds_latency_and_efficiencies() -> None:
    true = MemoryParameters(latency=4e-6, efficiency={"elementwise": 0.9, "norm": 0.5}, kept_row=1e4)
    rows = pd.DataFrame(
        [(op, 2.0**e, row, 1) for op in true.efficiency for e in range(20, 31) for row in (0.0, 4e4)],
        columns=["op", "bytes", "row", "kernels"],
    )
    rows = rows.assign(seconds=fit_memory.predicted(rows, chip("a100-sxm-80"), true))
    found = fit_memory.fit_memory(rows, chip("a100-sxm-80"), true.model_copy(update={"latency": 1e-6}))
    assert found.latency == pytest.approx(true.latency, rel=0.02)
    assert found.efficiency == pytest.approx(true.efficiency, rel=0.02)
    assert found.kept_row == true.kept_row


def test_every_part_in_turn_is_judged_by_a_fit_that_never_saw_it() -> None:
    true = MemoryParameters(latency=4e-6, efficiency={"elementwise": 0.9, "norm": 0.5})
    rows = pd.DataFrame([(op, 2.0**e, 0.0, 1) for op in true.efficiency for e in range(20, 31)])
    rows.columns = pd.Index(["op", "bytes", "row", "kernels"])
    a100 = chip("a100-sxm-80")
    rows = rows.assign(seconds=fit_memory.predicted(rows, a100, true))
    sizes, ops = np.log2(rows.bytes.to_numpy()).astype(int) % 3, (rows.op == "norm").to_numpy().astype(int)
    assert fit_memory.error_in_turn(rows, sizes, a100, true) < 0.01
    other = MemoryParameters(
        latency=4e-6, efficiency={"elementwise": 0.9, "norm": 1.0}
    )  # of norm it knows this only
    assert 0.15 < fit_memory.error_in_turn(rows, ops, a100, other) < 0.3


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_written_calibration_reads_back(name, tmp_path) -> None:
    path = tmp_path / f"{calibration(name).name}.yaml"
    path.write_text(calibration_yaml(calibration(name)))
    assert load_calibration(str(path)) == calibration(name)


def test_no_held_out_shape_is_in_a_fit() -> None:
    rows = kernel_data.gemms("a100-sxm-80")
    held = kernel_data.held_gemms(rows)
    weights = set(zip(rows[held].n, rows[held].k, strict=True))
    assert not weights & set(zip(rows[~held].n, rows[~held].k, strict=True))
    assert 0.1 < held.mean() < 0.3
    assert calibration("a100-sxm-80").fits["gemm.bf16"].rows == int((~held).sum())


def results_file(path, speed: float, kernels: tuple = (gemm, attention, memory_bound)) -> None:
    """What `calibrate run` writes, with an H100's predicted times divided by `speed`."""
    own, h100 = calibration("h100-sxm"), gpu("h100-sxm")

    def took(kernel) -> list[float]:
        return [kernel_seconds(kernel, h100, own) / speed] * 3

    lines = [{"record": "machine", "version": 1, "machine": {"device": "made up"}}]
    scope = Scope("cuda", 1, smallest=1, largest=2)
    for case in (case for module in kernels for case in module.cases(scope)):
        p = case.parameters
        if case.benchmark == "gemm":
            seconds = {"gemm": took(Gemm(p["m"], p["n"], p["k"], p["dtype"]))}
        elif case.benchmark == "attention":
            length, size = p["sequence"], p["head_dim"]
            shape = p["batch"], p["heads"], p["kv_heads"], length, length, size, size, p["causal"], p["dtype"]
            seconds = {
                direction: took(Attention(*shape, implementation="cudnn", backward=direction == "backward"))
                for direction in ("forward", "backward")
            }
        else:
            seconds = {p["op"]: took(MemoryBound(p["op"], p["bytes_read"], p["bytes_written"]))}
        record = {"record": "measurement", "benchmark": case.benchmark, "parameters": dict(p)}
        lines.append({**record, "times": 1, "seconds": seconds})
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")


def test_ones_own_microbenchmarks_move_a_borrowed_calibration_to_what_was_measured(tmp_path) -> None:
    path = tmp_path / "results.jsonl"
    results_file(path, speed=0.9)
    found = fit_measured.refit(path, gpu("h100-sxm"), calibration("h200"))
    assert {"gemm.bf16", "attention.forward", "attention.backward", "memory"} <= set(found.fits)
    assert max(fit.error for fit in found.fits.values()) < 0.03
    assert found.gpu == "h100-sxm"
    assert found.transferred_from is None
    assert found.sources["gemm.bf16"] == "measured: results.jsonl, made up"
    kernel = Gemm(8192, 8192, 4096, "bf16")
    expected = kernel_seconds(kernel, gpu("h100-sxm"), calibration("h100-sxm")) / 0.9
    assert kernel_seconds(kernel, gpu("h100-sxm"), found) == pytest.approx(expected, rel=0.03)


def test_results_without_kernels_are_refused(tmp_path) -> None:
    path = tmp_path / "empty.jsonl"
    results_file(path, speed=1.0, kernels=())
    with pytest.raises(ValueError, match="no kernels measured"):
        fit_measured.refit(path, gpu("h100-sxm"), calibration("h100-sxm"))
