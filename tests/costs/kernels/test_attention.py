"""The attention model keeps to physics, and to what distinguishes forward, backward and masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.costs.kernels.attention import attention_seconds, for_head_size
from tests.costs.kernels.gpus import calibration, chip

NAMES = st.sampled_from(("a100-sxm-80", "h100-sxm", "h200", "b200", "gb200"))
HEADS = st.sampled_from((1, 2, 8, 12, 32, 96))
LENGTHS = st.integers(128, 32768)
HEAD_SIZES = st.sampled_from((32, 64, 96, 128, 192, 256))


def seconds(
    name: str, batch, heads, length, head_dim: int, *, causal: bool = True, backward: bool = False
) -> np.ndarray:
    table = calibration(name).attention
    return attention_seconds(
        batch=batch,
        heads=heads,
        kv_heads=heads,
        seq_q=length,
        seq_kv=length,
        head_dim=head_dim,
        head_dim_v=head_dim,
        causal=causal,
        backward=backward,
        dtype="bf16",
        chip=chip(name),
        parameters=for_head_size(table.backward if backward else table.forward, head_dim),
    )


@given(NAMES, HEADS, LENGTHS, HEAD_SIZES, st.booleans(), st.booleans())
def test_no_faster_than_peak_and_bandwidth_allow(name, heads, length, head_dim, causal, backward) -> None:
    took = float(seconds(name, 1, heads, length, head_dim, causal=causal, backward=backward))
    flops = 4.0 * heads * length**2 * head_dim * (0.5 if causal else 1.0) * (2.5 if backward else 1.0)
    moved = 2.0 * 4 * heads * length * head_dim * (2 if backward else 1)
    assert took >= flops / chip(name).peak("bf16")
    assert took >= moved / chip(name).bandwidth


@given(NAMES, HEADS, st.integers(128, 16384), HEAD_SIZES)
def test_backward_takes_longer_and_a_causal_mask_less(name, heads, length, head_dim) -> None:
    forward = float(seconds(name, 1, heads, length, head_dim))
    assert float(seconds(name, 1, heads, length, head_dim, backward=True)) > forward
    assert float(seconds(name, 1, heads, length, head_dim, causal=False)) >= forward


@given(NAMES, HEADS, st.integers(128, 16384), HEAD_SIZES, st.booleans())
def test_doubling_batch_or_length_never_makes_it_faster(name, heads, length, head_dim, backward) -> None:
    once, twice, longer = seconds(
        name, [1, 2, 1], heads, [length, length, 2 * length], head_dim, backward=backward
    )
    assert min(twice, longer) >= once


@given(NAMES, st.integers(32, 512), HEADS)
def test_enough_work_is_shared_evenly(name, batch, heads) -> None:
    """Many blocks per SM: twice the batch takes about twice as long."""
    once, twice = seconds(name, [batch, 2 * batch], heads, 4096, 128)
    assert 1.8 <= twice / once <= 2.3


def test_a_head_size_between_takes_the_nearest_in_ratio() -> None:
    table = calibration("a100-sxm-80").attention.forward
    assert for_head_size(table, 120) is table[128]
    assert for_head_size(table, 512) is table[256]
    assert for_head_size({64: table[64], 256: table[256]}, 128) is table[256]


def test_long_sequences_reach_what_training_libraries_publish() -> None:
    """cuDNN on H200: 690 TFLOP/s forward, 570 backward without mask; FlashAttention-2 on A100 near 200 forward."""
    flops = 4.0 * 32 * 16384**2 * 128
    assert flops / float(seconds("h200", 1, 32, 16384, 128, causal=False)) == pytest.approx(690e12, rel=0.1)
    backward = float(seconds("h200", 1, 32, 16384, 128, causal=False, backward=True))
    assert 2.5 * flops / backward == pytest.approx(570e12, rel=0.1)
    assert flops / float(seconds("a100-sxm-80", 1, 32, 16384, 128, causal=False)) == pytest.approx(
        200e12, rel=0.15
    )


@given(HEADS, LENGTHS, st.integers(1, 256), st.booleans())
def test_a_head_costs_no_less_than_the_same_padded(heads, length, head_dim, backward) -> None:
    padded = 32 * -(-head_dim // 32)
    table = calibration("a100-sxm-80").attention
    parameters = for_head_size(table.backward if backward else table.forward, padded)
    own, whole = (
        attention_seconds(
            batch=1, heads=heads, kv_heads=heads, seq_q=length, seq_kv=length, head_dim=size, head_dim_v=size,
            causal=True, backward=backward, dtype="bf16", chip=chip("a100-sxm-80"), parameters=parameters,
        )
        for size in (head_dim, padded)
    )  # fmt: skip
    products = parameters.uneven if head_dim % 32 else 1.0
    moved = 4 * 2.0 * heads * length * (padded - head_dim) * (2 if backward else 1)
    assert (
        float(whole) - parameters.extra_traffic * moved / chip("a100-sxm-80").bandwidth <= float(own) * 1.0001
    )
    assert float(own) <= float(whole) * products * 1.0001
