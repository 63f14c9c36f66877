"""Which layers stand on which virtual stage, told in as few distinct contents as there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simulator.program.schedules.placement import Placement
from simulator.program.stages import chunks
from simulator.workloads.layers import Layer

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Layout:
    """The layers of a model dealt to `stages` x `chunks` places.

    `kinds` are the model's distinct layers, `contents` the distinct chunks as tuples of kinds in order, `content[k]`
    which of them chunk k // stages of stage k % stages is.
    """

    stages: int
    chunks: int
    kinds: tuple[Layer, ...]
    contents: tuple[tuple[int, ...], ...]
    content: Ints

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """How often each kind stands in each content, shape [contents, kinds]."""
        counts = np.zeros((len(self.contents), len(self.kinds)))
        for index, content in enumerate(self.contents):
            np.add.at(counts[index], list(content), 1.0)
        return counts

    @cached_property
    def uses(self) -> NDArray[np.float64]:
        """How many chunks of each content each stage holds, shape [contents, stages]."""
        uses = np.zeros((len(self.contents), self.stages))
        np.add.at(uses, (self.content, np.arange(len(self.content)) % self.stages), 1.0)
        return uses

    @property
    def first_chunk(self) -> Ints:
        """The content of each stage's first chunk, shape [stages]."""
        return self.content[: self.stages]

    @cached_property
    def distinct_stages(self) -> tuple[list[tuple[int, ...]], Ints]:
        """The distinct stages as tuples of contents by chunk, and which of them each stage is."""
        columns = self.content.reshape(self.chunks, self.stages).T
        found = dict.fromkeys(map(tuple, columns.tolist()))
        position = {stage: index for index, stage in enumerate(found)}
        return list(found), np.array([position[tuple(column)] for column in columns.tolist()])

    def layers(self, content: int) -> list[Layer]:
        return [self.kinds[kind] for kind in self.contents[content]]


def layout(
    layers: Sequence[Layer], placement: Placement, layers_per_stage: Sequence[int] | str | None
) -> Layout:
    """The layout of a model's layers where a schedule places its parts (see `simulator.program.stages`)."""
    num_stages, num_chunks = len(placement.parts), len(placement.parts[0])
    placed = chunks(layers, num_stages, num_chunks, layers_per_stage, placement)
    kinds = {id(layer): layer for layer in layers}
    number = {key: index for index, key in enumerate(kinds)}
    places = [
        tuple(number[id(layer)] for layer in placed[k % num_stages][k // num_stages])
        for k in range(num_stages * num_chunks)
    ]
    contents = {content: index for index, content in enumerate(dict.fromkeys(places))}
    return Layout(
        num_stages,
        num_chunks,
        tuple(kinds.values()),
        tuple(contents),
        np.array([contents[content] for content in places]),
    )
