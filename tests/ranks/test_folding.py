"""What counts as the same when ranks are folded."""

import numpy as np
import pytest

from simulator.ranks.folding import GroupLayer, fold


def two_pairs(amounts: tuple[float, float]) -> int:
    """Rank classes of two pairs, each over a link of its own, that draw these amounts on it."""
    zero = np.zeros(2, dtype=np.int64)
    layer = GroupLayer(
        np.array([[0, 1], [2, 3]]), np.array([0, 1]), np.array([0, 1]), np.array(amounts), zero
    )
    return fold(np.zeros(4, dtype=np.int64), zero, {"tp:ring": layer}).num_rank_classes


@pytest.mark.parametrize("amount", [0.1, 0.25, 1.0, 7.0 / 3.0, 4.0])
def test_amounts_that_differ_in_the_last_place_are_the_same(amount: float) -> None:
    """Also where one of them is a power of two, below which the exponent changes."""
    assert two_pairs((amount, float(np.nextafter(amount, 0.0)))) == 1


def test_amounts_that_differ_keep_ranks_apart() -> None:
    assert two_pairs((1.0, 1.0 - 1e-9)) == 2
