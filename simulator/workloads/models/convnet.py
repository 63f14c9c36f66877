"""What the layers of ResNet and VGG are: convolutions by shape, with the operators between them."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES, Model
from simulator.workloads.modules.graph_operators import Linear
from simulator.workloads.modules.images import (
    Convolution,
    Pointwise,
    add,
    average_pool,
    batch_norm,
    max_pool,
    relu,
)


class Stem(Description):
    """The convolution before the first stage, and its max pool."""

    channels: int = Field(gt=0, description="Output channels.")
    kernel: int = Field(gt=0, description="Window of the convolution.")
    stride: int = Field(gt=0, description="Stride of the convolution.")
    pool: int = Field(default=1, gt=0, description="Stride of the max pool (window 3); 1: none.")


class Stage(Description):
    """Equal blocks; the first one may shrink the image and widen the channels."""

    block: Literal["bottleneck", "basic", "plain"] = Field(
        description="bottleneck: 1x1, 3x3, 1x1 and a shortcut; basic: 3x3, 3x3 and a shortcut; plain: one 3x3."
    )
    blocks: int = Field(gt=0, description="How many.")
    channels: int = Field(
        gt=0, description="Of the 3x3 convolutions; a bottleneck's output has four times as many."
    )
    stride: int = Field(default=1, gt=0, description="Of the first block's 3x3 convolution and its shortcut.")
    pool: int = Field(default=1, gt=0, description="Stride of a max pool after the stage; 1: none.")


@FAMILIES.register("convnet")
class ConvNet(Model):
    """ResNet (He et al. 2015, stride on the 3x3 convolution) and VGG (Simonyan and Zisserman 2014)."""

    family: Literal["convnet"] = Field(default="convnet", description="Always `convnet`.")
    image: int = Field(gt=0, description="Height and width of the input in pixels.")
    stem: Stem | None = Field(default=None, description="What comes before the stages; null: nothing.")
    stages: tuple[Stage, ...] = Field(min_length=1, description="In order.")
    batch_norm: bool = Field(
        default=True, description="A batch norm after each convolution; else it has a bias."
    )
    hidden: tuple[int, ...] = Field(
        default=(), description="Widths of fully connected layers before the classes."
    )
    classes: int = Field(gt=0, description="Outputs of the last layer.")

    @property
    def counts_tokens(self) -> bool:
        return False

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        image = _Image(self.image, 3, self.batch_norm)
        found: list[Layer] = []
        if self.stem is not None:
            stem = self.stem
            modules = image.convolution("stem", stem.channels, stem.kernel, stem.stride)
            modules += image.pooled("stem.pool", stem.pool)
            found.append(Layer("stem", "embedding", tuple(modules), 0, image.elements))
        for stage in self.stages:
            for index in range(stage.blocks):
                before = image.elements if found else 0
                modules = image.block(stage, stage.stride if index == 0 else 1)
                if index == stage.blocks - 1:
                    modules += image.pooled("pool", stage.pool)
                found.append(Layer(stage.block, "block", tuple(modules), before, image.elements))
        return (*found, self._head(image))

    def _head(self, image: _Image) -> Layer:
        width = image.elements
        modules: list[Module] = []
        if not self.hidden:
            modules.append(average_pool("average", "input", image.channels, image.size**2))
            width = image.channels
        source = "average" if not self.hidden else "input"
        for index, outputs in enumerate((*self.hidden, self.classes)):
            name = f"fc{index + 1}"
            modules.append(Linear(name=name, source=source, rows=1, inputs=width, outputs=outputs, bias=True))
            if index < len(self.hidden):
                modules.append(relu(f"{name}.relu", name, outputs))
            source, width = (f"{name}.relu", outputs) if index < len(self.hidden) else (name, outputs)
        loss = Pointwise(
            name="loss", source=source, op="softmax", elements=self.classes, passes=(1.0, 1.0, 1.0, 1.0)
        )
        return Layer("head", "head", (*modules, loss), image.elements, 0)


class _Image:
    """Size and channels of what flows through the network while it is built."""

    def __init__(self, size: int, channels: int, normed: bool) -> None:
        self.size = size
        self.channels = channels
        self.normed = normed
        self.is_first = True

    @property
    def elements(self) -> int:
        return self.channels * self.size**2

    def convolution(
        self,
        name: str,
        outputs: int,
        kernel: int,
        stride: int = 1,
        source: str = "input",
        activate: bool = True,
    ) -> list[Module]:
        """Convolution, batch norm and activation, after which the image has another shape."""
        one = Convolution(
            name=name,
            source=source,
            inputs=self.channels,
            outputs=outputs,
            kernel=kernel,
            stride=stride,
            height=self.size,
            width=self.size,
            bias=not self.normed,
            first=self.is_first,
        )
        self.size, self.channels, self.is_first = -(-self.size // stride), outputs, False
        modules: list[Module] = [one]
        if self.normed:
            modules.append(batch_norm(f"{name}.norm", name, outputs, self.size**2))
        if activate:
            modules.append(relu(f"{name}.relu", modules[-1].name, self.elements))
        return modules

    def pooled(self, name: str, stride: int) -> list[Module]:
        if stride == 1:
            return []
        pool = max_pool(name, "", self.channels, self.size**2, stride**2)
        self.size //= stride
        return [pool]

    def block(self, stage: Stage, stride: int) -> list[Module]:
        """A block of the stage; its shortcut has a convolution of its own where shapes differ."""
        if stage.block == "plain":
            return self.convolution("conv", stage.channels, 3, stride)
        outputs = 4 * stage.channels if stage.block == "bottleneck" else stage.channels
        size, channels = self.size, self.channels
        if stage.block == "bottleneck":
            modules = self.convolution("conv_1", stage.channels, 1)
            modules += self.convolution("conv_2", stage.channels, 3, stride, modules[-1].name)
            modules += self.convolution("conv_3", outputs, 1, 1, modules[-1].name, activate=False)
        else:
            modules = self.convolution("conv_1", stage.channels, 3, stride)
            modules += self.convolution("conv_2", outputs, 3, 1, modules[-1].name, activate=False)
        last = modules[-1].name
        if stride > 1 or channels != outputs:
            after = (self.size, self.channels)
            self.size, self.channels = size, channels
            modules += self.convolution("shortcut", outputs, 1, stride, activate=False)
            self.size, self.channels = after
        return [*modules, add("add", last, self.elements), relu("relu", "add", self.elements)]
