"""How many blocks does each part of a pipeline get so that the slowest part is as fast as possible?

The costs are nominal, so that the answer depends on the model alone: products, and memory traffic weighed by what a
GPU multiplies while it reads a byte. Embedding and head count with the parts that hold them. Stages of unequal degrees
are as fast as the peaks of their GPUs add up to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.workloads.layers import Layer, Shard

FLOPS_PER_BYTE = 200.0
"""Products per byte of memory traffic at which the two take equally long: 156 on an A100, 295 on an H100."""

NOMINAL = Shard(micro_batch=1, sequence_length=2048)
Floats = NDArray[np.float64]


@lru_cache(maxsize=1024)
def cost(layer: Layer) -> float:
    """Forward and backward of a layer, in products."""
    operations = (*layer.forward(NOMINAL), *layer.backward(NOMINAL))
    return sum(max(op.executed_flops, FLOPS_PER_BYTE * op.hbm_bytes) for op in operations)


def balanced(
    first: Sequence[Layer],
    blocks: Sequence[Layer],
    last: Sequence[Layer],
    num_parts: int,
    speeds: Sequence[float] = (),
) -> list[int]:
    """Blocks of each part in order: the slowest part as fast as can be, then the parts as even as can be.

    `speeds` of the parts, in any unit; all equal if left out.
    """
    ends = np.concatenate([[0.0], np.cumsum([cost(layer) for layer in blocks])])
    before = [sum(map(cost, first)), *[0.0] * (num_parts - 1)]
    after = [*[0.0] * (num_parts - 1), sum(map(cost, last))]
    extra = [a + b for a, b in zip(before, after, strict=True)]
    speeds = speeds or (1.0,) * num_parts
    limit = _divide(ends, extra, speeds, np.maximum, lambda load: load)[0]
    squares = _divide(
        ends, extra, speeds, np.add, lambda load: np.where(load <= limit * (1 + 1e-12), load**2, np.inf)
    )
    return squares[1]


def _divide(
    ends: Floats,
    extra: Sequence[float],
    speeds: Sequence[float],
    join: np.ufunc,
    penalty: Callable[[Floats], Floats],
) -> tuple[float, list[int]]:
    """The division with the least penalty on the parts' times, joined over the parts, and that penalty.

    `ends[i]` is what the first i blocks cost, `extra[k]` what part k costs besides. Dynamic programming over parts.
    """
    count = len(ends)
    best = penalty((ends + extra[0]) / speeds[0])
    cuts = []
    loads = ends[None, :] - ends[:, None]  # [where the part begins, where it ends]
    possible = np.tri(count, dtype=bool).T
    for more, speed in zip(extra[1:], speeds[1:], strict=True):
        joined = np.where(possible, join(best[:, None], penalty((loads + more) / speed)), np.inf)
        cuts.append(joined.argmin(axis=0))
        best = joined.min(axis=0)
    counts, end = [], count - 1
    for cut in reversed(cuts):
        counts.append(end - int(cut[end]))
        end = int(cut[end])
    return float(best[-1]), [end, *reversed(counts)]
