"""Memory that expands over a slower tier: COMET's table of what needs it, and what it costs in bandwidth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import load_cluster, simulate
from simulator.costs.memory import StateRule, state_bytes
from simulator.hardware.cluster import Cluster
from simulator.hardware.gpu import Memory, MemoryTier
from simulator.workloads.workload import Workload
from tests.program.scenarios import node, workload

# COMET (arXiv 2211.16648): 1e12 parameters on 1024 GPUs, ZeRO-2; GB per GPU of the state alone, (MP, DP) → GB.
COMET = {(8, 128): 264, (16, 64): 139, (32, 32): 76, (64, 16): 45, (128, 8): 29}
TRANSFORMER_1T = {
    "family": "gpt",
    "layers": 128,
    "hidden": 25600,
    "heads": 128,
    "vocab": 51200,
    "max_sequence": 2048,
}


@pytest.mark.parametrize(("degrees", "gigabytes"), COMET.items())
def test_state_of_a_trillion_parameters_is_that_of_comet(degrees: tuple[int, int], gigabytes: int) -> None:
    """16-bit weights and gradients, 12 bytes of optimizer state per parameter."""
    parallel, data = degrees
    rule = StateRule(parameters=2.0, gradients=2.0, master=4.0, moments=8.0, zero=2)
    assert round(state_bytes(1e12 / parallel, rule, data).total / 1e9) == gigabytes


def run(parallel: int, expansion: str | None, **plan: Any) -> Any:
    where = "node.gpu.memory.expansion"
    overrides = {} if expansion is None else {f"{where}.capacity": "512 GB", f"{where}.bandwidth": expansion}
    cluster = load_cluster("dgx-a100-superpod", gpus=1024, overrides=overrides)
    settings = {"zero": 2, "micro_batch": parallel, "sequence_parallel": True, "recompute": "selective"}
    job = Workload.model_validate(
        {
            "model": TRANSFORMER_1T,
            "global_batch": 1024,
            "sequence_length": 2048,
            "precision": "fp16",
            "plan": {"tp": parallel, "software": "megatron-2022", **settings, **plan},
        }
    )
    return simulate(cluster, job)


@pytest.mark.parametrize("degrees", COMET)
def test_the_program_holds_the_state_of_comet(degrees: tuple[int, int]) -> None:
    """Within 2 %: the model has 1.008e12 parameters, and positions and norms whole on every GPU."""
    parallel, data = degrees
    kinds = run(parallel, None, micro_batch=1, recompute="full").memory.by_kind
    state = sum(kinds[kind] for kind in ("parameters", "gradients", "optimizer"))
    assert state == pytest.approx(1e12 / parallel * (2 + 14 / data), rel=0.02)


def test_what_does_not_fit_says_how_much_expansion_it_needs() -> None:
    without = run(16, None)
    assert not without.memory.fits
    needed = without.memory.shortfall_bytes
    assert 200e9 < needed < 512e9
    assert run(16, "500 GB/s").memory.fits


def test_the_best_with_expansion_beats_the_best_without_as_published() -> None:
    """COMET: 1.4 times; the fastest plan that fits 80 GB splits layers over eight nodes."""
    without = run(64, None, zero=1, micro_batch=2)
    assert without.memory.peak_bytes <= without.memory.capacity_bytes
    with_expansion = run(16, "1 TB/s")
    assert with_expansion.memory.fits
    assert 1.2 < without.step_time_s / with_expansion.step_time_s < 1.6


def test_a_faster_expansion_never_slows_a_step_and_a_spill_never_speeds_it_up() -> None:
    times = [run(16, bandwidth).step_time_s for bandwidth in ("250 GB/s", "1 TB/s", "2039 GB/s")]
    assert times[0] > times[1] > times[2]
    assert times[2] == pytest.approx(run(16, None).step_time_s, rel=1e-6)  # as fast as HBM: nothing to see


def test_a_job_that_fits_the_first_tier_does_not_feel_the_second() -> None:
    plan = {"zero": 1, "micro_batch": 1, "recompute": "full"}
    fits = run(128, None, **plan)
    assert fits.memory.fits
    assert run(128, "100 GB/s", **plan).step_time_s == pytest.approx(fits.step_time_s, rel=1e-12)


@given(needed=st.floats(1e9, 1e13), slow=st.floats(1e9, 2e12))
def test_blended_bandwidth_lies_between_the_tiers(needed: float, slow: float) -> None:
    tier = MemoryTier(capacity=1e13, bandwidth=slow)
    memory = Memory(capacity=80e9, bandwidth=2e12, expansion=tier)
    blended = memory.bandwidth_for(needed)
    assert min(slow, 2e12) * (1 - 1e-9) <= blended <= 2e12 * (1 + 1e-9)
    inside = min(1.0, 80e9 / needed)
    assert 1 / blended == pytest.approx(inside / 2e12 + (1 - inside) / slow)


def test_state_that_only_the_update_uses_slows_the_update_alone() -> None:
    """Where it fills the expansion alone, everything else runs as with ample memory."""
    plan = {"zero": 0, "parameter_dtype": "bf16", "micro_batch": 1, "recompute": "full"}
    job = workload(layers=4, hidden=1024, global_batch=8, **plan)
    state = simulate(tiered("alike", 80e9), job).memory
    fits = state.peak_bytes - 0.5 * state.by_kind["optimizer"]
    ample, alike, placed = (
        simulate(tiered(placement, capacity), job)
        for placement, capacity in (("alike", 80e9), ("alike", fits), ("update_first", fits))
    )
    for kind in ("compute", "recompute"):
        assert placed.breakdown_s[kind] == pytest.approx(ample.breakdown_s[kind], rel=1e-9)
        assert alike.breakdown_s[kind] > ample.breakdown_s[kind]
    assert placed.breakdown_s["optimizer"] > alike.breakdown_s["optimizer"] > ample.breakdown_s["optimizer"]


def tiered(placement: str, capacity: float) -> Cluster:
    expansion = {"capacity": 80e9, "bandwidth": 100e9, "placement": placement}
    memory = {"capacity": capacity, "bandwidth": 2e12, "expansion": expansion}
    fabric = {"kind": "single_switch", "hop_latency": 5e-7}
    return Cluster.model_validate(
        {"name": "tiered", "node": node(8, 8, memory=memory), "num_nodes": 1, "fabric": fabric}
    )


@given(needed=st.floats(1e9, 1e13), part=st.floats(0.0, 1.0), slow=st.floats(1e9, 2e12))
def test_setting_state_aside_never_slows_what_is_not_the_update(
    needed: float, part: float, slow: float
) -> None:
    def memory(placement: str) -> Memory:
        tier = MemoryTier.model_validate({"capacity": 1e13, "bandwidth": slow, "placement": placement})
        return Memory(capacity=80e9, bandwidth=2e12, expansion=tier)

    alike, placed = memory("alike"), memory("update_first")
    state = part * needed
    assert placed.bandwidth_for(needed, state) >= alike.bandwidth_for(needed, state) * (1 - 1e-9)
    assert placed.update_bandwidth(needed, state) <= placed.bandwidth_for(needed, state) * (1 + 1e-9)
