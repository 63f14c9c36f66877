"""Which ranks, groups and links are interchangeable, so that one of each can stand for all (design §4, folding).

Colour refinement on the structure rank - process group - link: two ranks keep one colour while their hardware, their
place in the program and the colours of their groups agree; two groups while their members and the links they draw on
agree (with amounts); two links while their capacity and the groups that draw on them agree. The stable colouring is
equitable, so every member of a colour sees the same rates at all times and simulating one of them is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class GroupLayer:
    """All groups of one kind with the links they draw on: rows (group, link, amount) and members [groups, size].

    Groups of different `colour` [groups] are never interchangeable (their collectives cost differently).
    """

    members: Ints
    group: Ints
    link: Ints
    amount: NDArray[np.float64]
    colour: Ints


@dataclass(frozen=True)
class Folding:
    """The classes: arrays giving each rank, group (per layer) and link its class id, numbered by first member."""

    rank_class: Ints
    group_class: Mapping[str, Ints]
    link_class: Ints
    layers: Mapping[str, GroupLayer]

    @property
    def num_rank_classes(self) -> int:
        return int(self.rank_class.max()) + 1

    def representatives(self) -> Ints:
        """The lowest rank of each class."""
        return np.unique(self.rank_class, return_index=True)[1]

    def draws(self, layer: str) -> dict[int, list[tuple[int, float]]]:
        """Per group class: (link class, amount that all groups of the class together draw on one link of it)."""
        rows = self.layers[layer]
        if not len(rows.group):
            return {}
        num_links = int(self.link_class.max()) + 1
        pair = self.group_class[layer][rows.group] * num_links + self.link_class[rows.link]
        keys, inverse = np.unique(pair, return_inverse=True)
        totals = np.bincount(inverse, weights=rows.amount)
        sizes = np.bincount(self.link_class, minlength=num_links)
        out: dict[int, list[tuple[int, float]]] = {}
        for key, total in zip(keys.tolist(), totals.tolist(), strict=True):
            group, link = divmod(key, num_links)
            out.setdefault(group, []).append((link, total / float(sizes[link])))
        return out


def fold(
    rank_colour: Ints, link_colour: Ints, layers: Mapping[str, GroupLayer], enabled: bool = True
) -> Folding:
    """Coarsest exact folding that respects the given rank and link colours; the identity when not `enabled`."""
    if not enabled:
        identity = {name: np.arange(len(layer.members)) for name, layer in layers.items()}
        return Folding(np.arange(len(rank_colour)), identity, np.arange(len(link_colour)), layers)
    state = _Refinement(rank_colour, link_colour, layers)
    count = state.count()
    while True:
        state.step()
        refined = state.count()
        if refined == count:
            break
        count = refined
    groups = {name: _number(colour) for name, colour in state.groups.items()}
    return Folding(_number(state.ranks), groups, _number(state.links), layers)


class _Refinement:
    """The colours as 64-bit hashes; a step adds to each what its neighbours' colours say."""

    def __init__(self, rank_colour: Ints, link_colour: Ints, layers: Mapping[str, GroupLayer]) -> None:
        self.layers = layers
        self.ranks = _mix(rank_colour.astype(np.uint64))
        self.links = _mix(link_colour.astype(np.uint64) + np.uint64(1 << 32))
        self.groups: dict[str, Hashes] = {
            name: _mix(layer.colour.astype(np.uint64) + np.uint64((index + 1) << 40))
            for index, (name, layer) in enumerate(sorted(layers.items()))
        }
        # Rounded so that sums taken in another order do not split a class.
        self.amounts = {n: _mix(_rounded_bits(layer.amount)) for n, layer in layers.items()}

    def count(self) -> int:
        colours = [self.ranks, self.links, *self.groups.values()]
        return sum(len(np.unique(c)) for c in colours)

    def step(self) -> None:
        for name, layer in self.layers.items():
            place = _mix(
                np.arange(layer.members.shape[1], dtype=np.uint64) * np.uint64(name.startswith("pair"))
            )
            members = _mix(self.ranks[layer.members] ^ place).sum(axis=1, dtype=np.uint64)
            links = np.zeros(len(layer.members), dtype=np.uint64)
            np.add.at(links, layer.group, _mix(self.links[layer.link] ^ self.amounts[name]))
            self.groups[name] = _mix(self.groups[name] ^ _mix(members) ^ _mix(links + np.uint64(7)))
        rank_news = np.zeros_like(self.ranks)
        link_news = np.zeros_like(self.links)
        for name, layer in self.layers.items():
            colour = self.groups[name]
            place = _mix(
                np.arange(layer.members.shape[1], dtype=np.uint64) * np.uint64(name.startswith("pair"))
            )
            np.add.at(rank_news, layer.members, _mix(colour[:, None] ^ place))
            np.add.at(link_news, layer.link, _mix(colour[layer.group] ^ self.amounts[name]))
        self.ranks = _mix(self.ranks ^ _mix(rank_news))
        self.links = _mix(self.links ^ _mix(link_news))


def _mix(x: Hashes) -> Hashes:
    """Splitmix64's finaliser: an even spread of 64-bit values, equal in, equal out."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _rounded_bits(amount: NDArray[np.float64]) -> Hashes:
    """The bits of each amount rounded to 36 binary digits."""
    mantissa, exponent = np.frexp(amount)
    return np.ldexp(np.round(mantissa * 2**36), exponent - 36).view(np.uint64)


def _number(colour: Hashes) -> Ints:
    """Class ids in order of first appearance."""
    _, first, inverse = np.unique(colour, return_index=True, return_inverse=True)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    return order[inverse]
