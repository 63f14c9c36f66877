"""What the layers of a deep learning recommendation model are."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES, Faults, Model
from simulator.workloads.modules.images import Pointwise, relu
from simulator.workloads.modules.linear import ReplicatedLinear
from simulator.workloads.modules.tables import Interaction, Table, Tables


class TableDescription(Description):
    """One embedding table, or several equal ones."""

    rows: int = Field(gt=0, description="Rows.")
    count: int = Field(default=1, gt=0, description="How many such tables.")
    lookups: int = Field(default=1, gt=0, description="Rows per sample, which are added up (pooling factor).")
    skew: float = Field(
        default=1.0, ge=0, description="Which rows: the i-th with probability ~ 1/i^skew; 0: all alike."
    )


@FAMILIES.register("dlrm")
class DLRM(Model):
    """DLRM (Naumov et al. 2019): tables and a perceptron, products of all pairs, another perceptron."""

    family: Literal["dlrm"] = Field(default="dlrm", description="Always `dlrm`.")
    dense_features: int = Field(gt=0, description="Numbers of a sample beside its categories.")
    width: int = Field(gt=0, description="Of every table's rows, and of the bottom perceptron's output.")
    bottom: tuple[int, ...] = Field(min_length=1, description="Widths of the bottom perceptron's layers.")
    top: tuple[int, ...] = Field(min_length=1, description="Widths of the top perceptron's layers.")
    tables: tuple[TableDescription, ...] = Field(min_length=1, description="The embedding tables.")

    @property
    def counts_tokens(self) -> bool:
        return False

    @property
    def has_tables(self) -> bool:
        return True

    @property
    def deals_tables(self) -> bool:
        return True

    @property
    def all_tables(self) -> tuple[Table, ...]:
        """Every table by itself."""
        return tuple(
            Table(one.rows, self.width, one.lookups, one.skew)
            for one in self.tables
            for _ in range(one.count)
        )

    def faults(self) -> Faults:
        if self.bottom[-1] != self.width:
            return [("bottom", f"ends with {self.bottom[-1]}, but rows have width {self.width}")]
        return []

    def sharding_faults(self, tp: int, cp: int, ep: int, expert_tp: int | None = None) -> Faults:
        found = [
            (axis, f"{axis} {degree}: perceptrons stand whole on every GPU")
            for axis, degree in (("tp", tp), ("cp", cp))
            if degree > 1
        ]
        most = len(self.all_tables) * self.width
        if ep > most:
            found.append(("ep", f"{ep} is more than the {most} columns of all tables"))
        return found

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        bottom = tuple(perceptron("bottom", "input", (self.dense_features, *self.bottom)))
        tables = Tables(name="tables", source="categories", tables=self.all_tables, beside=bottom)
        pairs = Interaction(
            name="interaction", source="tables", vectors=len(self.all_tables) + 1, width=self.width
        )
        widths = (pairs.outputs, *self.top)
        found = [Layer("features", "embedding", (tables, pairs), 0, pairs.outputs)]
        for index, (inputs, outputs) in enumerate(pairwise(widths[:-1])):
            modules = tuple(perceptron(f"top_{index}", "input", (inputs, outputs)))
            found.append(Layer(f"top {index}", "block", modules, inputs, outputs))
        return (*found, self._head(widths[-2], widths[-1]))

    def _head(self, inputs: int, outputs: int) -> Layer:
        modules = (
            ReplicatedLinear(name="click", source="input", inputs=inputs, outputs=outputs),
            Pointwise(
                name="loss", source="click", op="softmax", elements=outputs, passes=(1.0, 1.0, 1.0, 1.0)
            ),
        )
        return Layer("head", "head", modules, inputs, 0)


def perceptron(name: str, source: str, widths: tuple[int, ...]) -> list[Module]:
    """Linear layers, each with a ReLU."""
    found: list[Module] = []
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        label = f"{name}_{index}"
        found.append(ReplicatedLinear(name=label, source=source, inputs=inputs, outputs=outputs, narrow=True))
        found.append(relu(f"{label}.relu", label, outputs))
        source = f"{label}.relu"
    return found
