"""Which part of the model stands on which pipeline stage, and where a micro-batch goes next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Placement:
    """`parts[stage][chunk]` is the part of the model (0 nearest the input) that this chunk of the stage holds."""

    parts: tuple[tuple[int, ...], ...]

    @property
    def num_parts(self) -> int:
        """Parts into which the model is cut."""
        return 1 + max(part for stage in self.parts for part in stage)

    @property
    def ends_meet(self) -> bool:
        """Whether every stage with the first part also has the last one (tied embeddings then exist once)."""
        ends = [{0, self.num_parts - 1} & set(stage) for stage in self.parts]
        return all(len(found) != 1 for found in ends) or self.num_parts == 1

    def neighbour(self, stage: int, chunk: int, step: int) -> tuple[int, int] | None:
        """(stage, chunk) of the part before (`step` -1) or after (+1) this one; None at the ends of the model.

        Where a part exists twice (pipelines that run both ways), a micro-batch stays with the chunk it began in.
        """
        return _neighbour(self, stage, chunk, step)


@lru_cache(maxsize=1 << 14)  # every transfer of a step asks
def _neighbour(placement: Placement, stage: int, chunk: int, step: int) -> tuple[int, int] | None:
    part = placement.parts[stage][chunk] + step
    found = [
        (s, c) for s, held in enumerate(placement.parts) for c, other in enumerate(held) if other == part
    ]
    return next((place for place in found if place[1] == chunk), found[0] if found else None)


def loop(num_stages: int, chunks: int) -> Placement:
    """Part k on stage k % p: the model goes round the stages once per chunk (Narayanan et al. 2021)."""
    return Placement(tuple(tuple(c * num_stages + s for c in range(chunks)) for s in range(num_stages)))


def both_ways(num_stages: int, chunks: int) -> Placement:
    """The model twice, down the stages and up: stage s holds parts s and p-1-s (DeepSeek-AI 2024, DualPipe)."""
    return Placement(tuple((s, num_stages - 1 - s) for s in range(num_stages)))


def vee(num_stages: int, chunks: int) -> Placement:
    """Down the stages and back up: stage s holds parts s and 2p-1-s (Qi et al. 2024, ZB-V)."""
    return Placement(tuple((s, 2 * num_stages - 1 - s) for s in range(num_stages)))
