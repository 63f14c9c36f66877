"""Which points does no other point beat in every respect?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pareto_front(values: ArrayLike) -> NDArray[np.bool_]:
    """Mask of the rows [points, numbers to be small] that no other row is as small as everywhere and smaller somewhere.

    Equal rows stand or fall together; rows with a NaN are never on the front.
    """
    table = np.asarray(values, dtype=float)
    kept = np.zeros(len(table), dtype=bool)
    candidates = np.flatnonzero(~np.isnan(table).any(axis=1))
    order = candidates[np.lexsort(table[candidates].T[::-1])] if len(candidates) else candidates
    front = np.empty((0, table.shape[1] if table.ndim == 2 else 0))
    for index in order.tolist():  # sorted by the first number: only rows before can beat a row
        row = table[index]
        beaten = ((front <= row).all(axis=1) & (front < row).any(axis=1)).any()
        if not beaten:
            kept[index] = True
            front = np.vstack([front, row])
    return kept
