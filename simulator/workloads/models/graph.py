"""A user's own operator graph: layers of operators given by shape, each with what its backward does."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.workloads.layers import Layer
from simulator.workloads.model import FAMILIES, Faults, Model
from simulator.workloads.modules.graph_operators import OPERATORS, GraphOperator, LookupOperator


class GraphLayer(Description):
    """Operators in order; a pipeline cuts between layers."""

    name: str = Field(description="Name, for pictures.")
    kind: Literal["embedding", "block", "head"] = Field(
        default="block",
        description="embedding: before the first block; head: after the last; only blocks are dealt.",
    )
    repeat: int = Field(default=1, gt=0, description="How many such layers follow each other.")
    width: int = Field(
        ge=0,
        description="Elements per token (sample) that leave the layer, and enter the next: what a pipeline sends.",
    )
    operators: tuple[Annotated[GraphOperator, OPERATORS], ...] = Field(description="What it runs, in order.")


@FAMILIES.register("graph")
class Graph(Model):
    """Any network as a chain of layers. Shapes are those of one GPU and of one token (one sample where `samples`).

    Degrees of tensor or context parallelism are up to the author: shapes say what one GPU computes, `collective`
    operators what it exchanges.
    """

    family: Literal["graph"] = Field(default="graph", description="Always `graph`.")
    samples: bool = Field(
        default=False,
        description="Whether rates are given in samples (a workload then has sequence_length 1).",
    )
    stack: tuple[GraphLayer, ...] = Field(alias="layers", min_length=1, description="The layers in order.")

    @property
    def counts_tokens(self) -> bool:
        return not self.samples

    @property
    def has_tables(self) -> bool:
        return any(isinstance(one, LookupOperator) for layer in self.stack for one in layer.operators)

    def faults(self) -> Faults:
        kinds = [layer.kind for layer in self.stack]
        order = ["embedding", "block", "head"]
        if kinds != sorted(kinds, key=order.index):
            return [("layers", "embeddings come first, then blocks, then heads")]
        return []

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        found: list[Layer] = []
        width = 0
        for layer in self.stack:
            modules = []
            source = "input"
            for index, operator in enumerate(layer.operators):
                name = operator.name or f"{operator.kind}_{index}"
                modules.append(operator.module(name, source))
                source = name
            inner = Layer(layer.name, layer.kind, tuple(modules), layer.width, layer.width)
            first = Layer(layer.name, layer.kind, tuple(modules), width, layer.width)
            found += [first, *[inner] * (layer.repeat - 1)]
            width = layer.width
        return tuple(found)
