"""Vision transformers and encoder-decoders: counts, products, and what crosses between the two sides."""

from __future__ import annotations

import pytest

from simulator import load_cluster, simulate
from simulator.description import load
from simulator.description.faults import DescriptionError
from simulator.workloads.layers import Shard
from simulator.workloads.operators import Attention, Gemm

# Released checkpoints: torchvision's vit_b_16 and vit_l_16; Whisper's safetensors without the encoder's table of fixed
# sinusoids, which is no parameter (1500 x width).
PUBLISHED = {
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "whisper-small": 241_734_912 - 1500 * 768,
    "whisper-large-v3": 1_543_490_560 - 1500 * 1280,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_count_equals_the_released_checkpoint(name: str) -> None:
    assert load("model", name).num_parameters == PUBLISHED[name]


@pytest.mark.parametrize(("name", "giga"), [("vit-b16", 17.56), ("vit-l16", 61.55)])
def test_products_of_an_image_are_the_published_ones(name: str, giga: float) -> None:
    """GMAC of torchvision's table, which leaves nothing out."""
    assert load("model", name).forward_flops(1) / 2e9 == pytest.approx(giga, rel=2e-3)


def test_the_two_sides_of_whisper_add_up() -> None:
    """24 h^2 FLOPs per position and block, 4 h per pair of positions, 8 h^2 for what the cross attention adds."""
    model, tokens = load("model", "whisper-large-v3"), 448
    hidden, audio, blocks, vocab = 1280, 1500, 32, 51866
    encoder = audio * (24 * hidden**2 + 4 * hidden * audio)
    decoder = tokens * (24 * hidden**2 + 4 * hidden * tokens)
    cross = tokens * (4 * hidden**2 + 4 * hidden * audio) + audio * 4 * hidden**2
    convolutions = 2 * audio * 2 * 3 * 128 * hidden + audio * 2 * 3 * hidden**2
    head = tokens * 2 * hidden * vocab
    expected = blocks * (encoder + decoder + cross) + convolutions + head
    assert model.forward_flops(tokens) == pytest.approx(expected, rel=1e-12)


def test_encoder_and_decoder_run_at_their_own_lengths() -> None:
    layers = load("model", "whisper-small").layers()
    shard = Shard(micro_batch=2, sequence_length=100)
    inner, outer = layers[1], layers[-2]
    kernels = {
        layer.name: [op.what for op in layer.forward(shard) if isinstance(op.what, Attention)]
        for layer in (inner, outer)
    }
    assert [(k.seq_q, k.seq_kv, k.causal) for k in kernels["encoder block"]] == [(1500, 1500, False)]
    assert [(k.seq_q, k.seq_kv, k.causal) for k in kernels["decoder block"]] == [
        (100, 100, True),
        (100, 1500, False),
    ]
    rows = {op.label: op.what.m for op in outer.forward(shard) if isinstance(op.what, Gemm)}
    assert rows["cross_query.forward"] == 200
    assert rows["cross_key.forward"] == 3000


def test_what_the_encoder_saw_goes_past_every_decoder_block() -> None:
    layers = load("model", "whisper-small").layers()
    shard = Shard(micro_batch=2, sequence_length=100)
    assert layers[1].output_bytes(shard) == 2 * 1500 * 768 * 2.0
    assert layers[-2].output_bytes(shard) == (2 * 100 + 2 * 1500) * 768 * 2.0


def test_sides_may_differ_in_width() -> None:
    changed = {"model.encoder.hidden": 1024, "model.encoder.heads": 16}
    model = load("workload", "whisper-large-v3", changed).model
    wide = load("model", "whisper-large-v3")
    block = 12 * (1280**2 - 1024**2) + 12 * (1280 - 1024)  # weights; biases and norms of a block
    cross = 2 * 1280 * (1280 - 1024)
    convolutions = 3 * 128 * 256 + 256 + 3 * (1280**2 - 1024**2) + 256
    expected = 32 * (block + cross) + convolutions + 2 * 256
    assert wide.num_parameters - model.num_parameters == expected


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vit-l16", {}),
        ("vit-l16", {"plan.tp": 4, "plan.pp": 2, "plan.recompute": "full"}),
        ("whisper-large-v3", {}),
        ("whisper-large-v3", {"plan.tp": 4, "plan.pp": 2, "plan.sequence_parallel": True}),
        ("whisper-large-v3", {"plan.zero": 3, "plan.recompute": "selective"}),
    ],
)
def test_runs_execute_the_products_of_the_model(name: str, settings: dict[str, object]) -> None:
    workload = load("workload", name, settings)
    answer = simulate(load_cluster("hgx-h100-cluster", gpus=16), workload)
    again = {"none": 0.0, "full": 1 / 3, "selective": 0.2}[workload.plan.recompute]
    assert answer.memory.fits
    assert 1.0 - 1e-9 <= answer.hfu / answer.mfu <= 1.0 + again + 0.01
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-9)
    assert 0.05 < answer.mfu < 0.7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plan.cp": 2}, "sequences of two lengths are not split over cp"),
        ({"plan.tp": 8}, "8 does not divide 20 attention heads"),
        ({"sequence_length": 512}, "longer than the model's position table of 448"),
    ],
)
def test_what_cannot_be_split_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        load("workload", "whisper-large-v3", settings)
