"""What a training step reads: documents of unequal length, and how they are laid into rows of tokens."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field

from simulator.description.base import Description
from simulator.workloads.lengths import LENGTHS, Lengths
from simulator.workloads.packing import PACKINGS, Row


class Data(Description):
    """The documents of a step; a workload without it reads samples of `sequence_length` tokens each."""

    lengths: Annotated[Lengths, LENGTHS] = Field(
        description="How long documents are: a catalogue name or a mapping."
    )
    longer: Literal["cut", "drop"] = Field(
        default="cut",
        description="Documents longer than sequence_length: cut there, or left out (others are drawn for them).",
    )
    packing: Literal["none", "concatenate", "first_fit", "best_fit", "dealt"] = Field(
        default="best_fit",
        description="Which documents share a row of sequence_length tokens: none; end to end, cut where a row is full; "
        "in order, each into the first row with room; the longest first, each into the fullest row with room. dealt: "
        "no rows; documents go to groups of GPUs as plan.dealing says.",
    )
    padding: Literal["none", "longest", "full"] = Field(
        default="longest",
        description="How rows of a micro-batch are filled up: not at all (they lie end to end); to its longest row; to "
        "sequence_length.",
    )
    mask: Literal["document", "row"] = Field(
        default="document",
        description="What a token attends to: its own document (block-diagonal mask), or all of its row.",
    )
    seed: int = Field(default=0, ge=0, description="Of the draw.")


@lru_cache(maxsize=64)
def documents_of(data: Data, count: int, longest: int) -> tuple[int, ...]:
    """Lengths of the `count` documents of a step, in the order drawn; none exceeds `longest` tokens."""
    import numpy as np

    generator = np.random.default_rng(data.seed)
    found: list[int] = []
    for attempt in range(DRAWS):
        chances = generator.random(count)
        lengths = np.rint(data.lengths.at(chances, data.seed + attempt)).clip(min=1.0)
        kept = lengths[lengths <= longest] if data.longer == "drop" else lengths.clip(max=longest)
        found += kept.astype(int).tolist()
        if len(found) >= count:
            return tuple(found[:count])
    raise ValueError(
        f"fewer than {count} of {DRAWS * count} documents have at most {longest} tokens; cut longer ones, or raise "
        "sequence_length"
    )


DRAWS = 64
"""Documents drawn for each that is kept, before it is said that hardly any can be kept."""


@lru_cache(maxsize=64)
def rows_of(data: Data, count: int, longest: int) -> tuple[Row, ...]:
    """The documents of a step by row."""
    return tuple(PACKINGS[data.packing](documents_of(data, count, longest), longest))
