"""What the layers of a vision transformer are."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from simulator.workloads.layers import Layer
from simulator.workloads.model import FAMILIES, Faults, Model
from simulator.workloads.models.stack import Stack
from simulator.workloads.modules.images import Pointwise
from simulator.workloads.modules.linear import ReplicatedLinear
from simulator.workloads.modules.norms import Norm


@FAMILIES.register("vit")
class ViT(Model):
    """Vision transformer (Dosovitskiy et al. 2020): patches, a class token, a learned table of positions, a linear."""

    family: Literal["vit"] = Field(default="vit", description="Always `vit`.")
    image: int = Field(gt=0, description="Height and width of the input in pixels.")
    patch: int = Field(gt=0, description="Height and width of a patch in pixels.")
    channels: int = Field(default=3, gt=0, description="Of the image.")
    encoder: Stack = Field(description="The blocks.")
    classes: int = Field(gt=0, description="Outputs of the last layer.")

    @property
    def num_patches(self) -> int:
        return (self.image // self.patch) ** 2

    @property
    def counts_tokens(self) -> bool:
        return False

    @property
    def attention_heads(self) -> int | None:
        return self.encoder.heads

    def faults(self) -> Faults:
        found = self.encoder.faults("encoder.")
        if self.image % self.patch:
            found.append(("patch", f"{self.patch} does not divide image {self.image}"))
        return found

    def sharding_faults(self, tp: int, cp: int, ep: int, expert_tp: int | None = None) -> Faults:
        found = self.encoder.sharding_faults(tp)
        for axis, degree in (("cp", cp), ("ep", ep)):
            if degree > 1:
                found.append((axis, f"{axis} {degree}: images are not split over {axis}"))
        return found

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        length = self.num_patches + 1
        block = self.encoder.block("block", causal=False, length=length)
        return (self._patches(), *[block] * self.encoder.layers, self._head(length))

    def _patches(self) -> Layer:
        hidden, area = self.encoder.hidden, self.channels * self.patch**2
        table = (self.num_patches + 2) * hidden  # positions, and the class token
        modules = (
            ReplicatedLinear(name="patches", source="input", inputs=area, outputs=hidden),
            Pointwise(
                name="positions",
                source="patches",
                op="add",
                elements=hidden,
                passes=(1.0, 1.0, 1.0, 0.0),
                vectors=table,
            ),
        )
        return Layer("patches", "embedding", modules, 0, hidden, length=self.num_patches)

    def _head(self, length: int) -> Layer:
        hidden = self.encoder.hidden
        modules = (
            Norm(name="final_norm", source="input", width=hidden, residual=False),
            ReplicatedLinear(
                name="classes", source="final_norm", inputs=hidden, outputs=self.classes, first_token=True
            ),
        )
        return Layer("head", "head", modules, hidden, 0, length=length)
