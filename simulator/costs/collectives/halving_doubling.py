"""Recursive halving and doubling: exchange halves, quarters, ... with partners at distance 1, 2, ..."""

from __future__ import annotations

from simulator.costs.collectives.algorithm import Movement, Schedule, Transfer, algorithm
from simulator.costs.collectives.group import GroupShape


def schedule(op: str, layout: tuple[int, ...]) -> Schedule:
    """One chunk per rank of the largest power of two; ranks beyond it fold onto the first ones."""
    n = len(layout)
    power = 1 << (n.bit_length() - 1)
    levels = power.bit_length() - 1
    transfers = [
        Transfer(0, extra, extra - power, chunk, True) for extra in range(power, n) for chunk in range(power)
    ]
    for step in range(levels):
        distance = 1 << step
        for rank in range(power):
            # After step s a rank is left with the chunks whose low s + 1 bits are its own.
            mask = 2 * distance - 1
            partner = rank ^ distance
            kept = [c for c in range(power) if c & mask == partner & mask]
            transfers += [Transfer(1 + step, rank, partner, c, True) for c in kept]
            back = [c for c in range(power) if c & mask == rank & mask]
            transfers += [Transfer(2 * levels - step, rank, partner, c, False) for c in back]
    last = 2 * levels + 1
    transfers += [
        Transfer(last, e - power, e, chunk, False) for e in range(power, n) for chunk in range(power)
    ]
    return Schedule(1.0 / power, tuple(sorted(transfers, key=lambda t: t.round)))


@algorithm("halving_doubling", ("all_reduce",), schedule=schedule)
def movement(op: str, size: float, group: GroupShape) -> Movement:
    """2 log2(n) steps; on other than a power of two of ranks one more at each end (fold).

    The largest exchanges go to the nearest partners, so the fewest bytes leave a node. Thakur,
    Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005).
    """
    n = group.num_ranks
    levels, folded = n.bit_length() - 1, n & (n - 1) != 0
    inside = min(levels, group.ranks_per_node.bit_length() - 1) if group.num_nodes > 1 else levels
    outside = levels - inside
    fold_outside = folded and group.num_nodes > 1
    return Movement(
        "halving_doubling",
        size,
        2 * (inside + (folded and not fold_outside)),
        2 * (outside + fold_outside),
    )
