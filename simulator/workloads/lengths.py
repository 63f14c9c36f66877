"""How long are the documents that a model is trained on? A distribution, or a list of lengths.

Every form answers with lengths for numbers drawn evenly from [0, 1), so that a seed fixes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from simulator.description.base import Named
from simulator.description.faults import raise_if_any, shown
from simulator.description.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LENGTHS = Registry("distribution of lengths", "distribution")


class Lengths(Named):
    """Base of all forms."""

    kind: Literal["lengths"] = Field(default="lengths", description="Always `lengths`.")

    def at(self, chances: Floats, seed: int) -> Floats:
        """Tokens of the documents that stand at these numbers from [0, 1), shape [documents]."""
        raise NotImplementedError


@LENGTHS.register("fixed")
class Fixed(Lengths):
    """All documents are equally long."""

    distribution: Literal["fixed"] = Field(default="fixed", description="Always `fixed`.")
    length: int = Field(gt=0, description="Tokens of every document.")

    def at(self, chances: Floats, seed: int) -> Floats:
        return chances * 0.0 + self.length


@LENGTHS.register("lognormal")
class Lognormal(Lengths):
    """The logarithm of the length is normal."""

    distribution: Literal["lognormal"] = Field(default="lognormal", description="Always `lognormal`.")
    median: float = Field(ge=1, description="Tokens that half of the documents exceed.")
    sigma: float = Field(ge=0, description="Standard deviation of the natural logarithm.")

    def at(self, chances: Floats, seed: int) -> Floats:
        import numpy as np

        normal = NormalDist()
        tiny = 1e-12
        deviates = [normal.inv_cdf(min(max(chance, tiny), 1.0 - tiny)) for chance in chances.tolist()]
        found: Floats = self.median * np.exp(self.sigma * np.array(deviates))
        return found


@LENGTHS.register("quantiles")
class Quantiles(Lengths):
    """Known quantiles, between which the share of longer documents falls as a power of the length (Pareto).

    Beyond the last one it goes on falling as it did just before, up to `longest`.
    """

    distribution: Literal["quantiles"] = Field(default="quantiles", description="Always `quantiles`.")
    quantiles: dict[float, float] = Field(
        min_length=2, description="Share of documents that are no longer (0 to below 1) to tokens."
    )
    longest: float = Field(gt=0, description="Tokens that no document exceeds.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise_if_any(list(self._faults()))
        return self

    def _faults(self) -> Iterator[tuple[str, str]]:
        shares, lengths = list(self.quantiles), list(self.quantiles.values())
        if not all(0.0 <= share < 1.0 for share in shares) or shares != sorted(shares):
            yield "quantiles", "shares must rise, from 0 to below 1 (longest stands for 1)"
        elif min(lengths) < 1.0 or lengths != sorted(lengths):
            yield "quantiles", "lengths must be at least 1 token and must not fall as shares rise"
        elif self.longest < lengths[-1]:
            yield "longest", f"{self.longest:g} is less than the last quantile, {lengths[-1]:g}"

    def at(self, chances: Floats, seed: int) -> Floats:
        import numpy as np

        rarity = -np.log1p(-np.array(list(self.quantiles)))
        logs = np.log(np.array(list(self.quantiles.values())))
        drawn = -np.log1p(-chances)
        slope = (logs[-1] - logs[-2]) / (rarity[-1] - rarity[-2])
        beyond = logs[-1] + slope * (drawn - rarity[-1])
        found = np.where(drawn <= rarity[-1], np.interp(drawn, rarity, logs), beyond)
        lengths: Floats = np.minimum(np.exp(found), self.longest)
        return lengths


@LENGTHS.register("file")
class Listed(Lengths):
    """A text file with one length per line, taken in order and from the start again; the seed counts batches."""

    distribution: Literal["file"] = Field(default="file", description="Always `file`.")
    file: str = Field(description="Path; a relative one starts at the current folder.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            read_lengths(self.file)
        except (OSError, ValueError) as error:
            raise_if_any([("file", str(error))])
        return self

    def at(self, chances: Floats, seed: int) -> Floats:
        import numpy as np

        known = np.array(read_lengths(self.file), dtype=float)
        found: Floats = known[(seed * len(chances) + np.arange(len(chances))) % len(known)]
        return found


@lru_cache(maxsize=8)
def read_lengths(path: str) -> tuple[int, ...]:
    """The lengths in a file. Raises OSError where it cannot be read, ValueError for a line that is no length."""
    found = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        if not line.strip().isdecimal() or int(line) == 0:
            raise ValueError(
                f"{path}:{number}: {shown(line)} is no length (a whole number of tokens, at least 1)"
            )
        found.append(int(line))
    if not found:
        raise ValueError(f"{path} holds no lengths")
    return tuple(found)
