"""Image networks have the parameters and products that are published for them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator.description import load
from simulator.workloads.layers import Shard
from simulator.workloads.modules.images import Convolution

PUBLISHED = {
    "resnet-18": (11_689_512, 1.814),
    "resnet-34": (21_797_672, 3.664),
    "resnet-50": (25_557_032, 4.089),
    "resnet-101": (44_549_160, 7.801),
    "resnet-152": (60_192_808, 11.514),
    "vgg-16": (138_357_544, 15.470),
}
"""torchvision's models: parameters, and multiply-adds of a 224 x 224 image in units of 1e9."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_products_are_those_published(name: str) -> None:
    model = load("model", name)
    parameters, products = PUBLISHED[name]
    assert model.num_parameters == parameters
    assert model.forward_flops(1) / 2e9 == pytest.approx(products, abs=5e-4)


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_backward_of_a_convolution_is_twice_forward(kernel: int, stride: int) -> None:
    one = Convolution(
        name="c", source="x", inputs=64, outputs=128, kernel=kernel, stride=stride, height=56, width=56
    )
    shard = Shard(micro_batch=4, sequence_length=1)
    forward = sum(op.executed_flops for op in one.forward(shard))
    assert sum(op.executed_flops for op in one.backward(shard)) == 2 * forward
    assert forward == 2 * 4 * (56 // stride) ** 2 * 64 * 128 * kernel**2


def test_memory_sees_each_pixel_once_however_many_windows_it_lies_in() -> None:
    shard = Shard(micro_batch=4, sequence_length=1, dtype="fp16", gemm_dtype="fp16")
    one = Convolution(name="c", source="x", inputs=64, outputs=64, kernel=3, stride=1, height=56, width=56)
    pixels, weights = 4 * 56 * 56 * 64, 9 * 64 * 64
    assert one.forward(shard)[0].hbm_bytes == 2 * (2 * pixels + weights)
    assert one.backward(shard)[0].hbm_bytes == 2 * (2 * pixels + weights)


def test_what_a_stage_sends_is_the_image_at_its_end() -> None:
    layers = load("model", "resnet-50").layers()
    shard = Shard(micro_batch=2, sequence_length=1, dtype="fp32")
    assert layers[3].out_width == 256 * 56 * 56
    assert layers[-2].output_bytes(shard) == 2 * 2048 * 7 * 7 * 4
    for before, after in pairwise(layers):
        assert before.out_width == after.width
