"""How much longer than on an undisturbed node a step takes on each node, from one step to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simulator.description.base import Description
from simulator.description.faults import raise_if_any

Floats = NDArray[np.float64]


class Stragglers(Description):
    """Delays of the nodes, drawn anew and independently for every node and step; relative to its compute."""

    distribution: Literal["normal", "exponential", "samples"] = Field(
        description="normal around no delay; exponential delays on top; or values drawn from `samples`."
    )
    spread: float | None = Field(
        default=None, ge=0, description="Standard deviation (normal), mean (exponential): 0.1 is a tenth."
    )
    samples: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(), description="Delays as they were observed, as fractions of the compute time."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_if_any(self._check_shape())
        return self

    def _check_shape(self) -> Iterator[tuple[str, str]]:
        if self.distribution == "samples":
            if not self.samples:
                yield "samples", "which? distribution: samples draws from them"
            if self.spread is not None:
                yield "spread", "samples have their own"
            return
        if self.spread is None:
            yield "spread", f"how wide is the {self.distribution} distribution?"
        if self.samples:
            yield "samples", f"are for distribution: samples, which is {self.distribution}"

    @property
    def mean(self) -> float:
        """Mean delay."""
        if self.distribution == "samples":
            return sum(self.samples) / len(self.samples)
        return 0.0 if self.distribution == "normal" else self.spread or 0.0

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Delays, an array of `shape`; uniform numbers are all it takes from the generator."""
        uniform = generator.random(shape)
        if self.distribution == "samples":
            return np.array(self.samples)[(uniform * len(self.samples)).astype(np.int64)]
        spread = self.spread or 0.0
        if self.distribution == "exponential":
            return np.asarray(-spread * np.log1p(-uniform))
        angle = 2.0 * np.pi * generator.random(shape)  # Box and Muller
        return np.asarray(spread * np.sqrt(-2.0 * np.log1p(-uniform)) * np.cos(angle))
