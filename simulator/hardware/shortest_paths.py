"""Which links lie on the shortest paths of an arbitrary network, and how flows split over them."""

from __future__ import annotations

from collections import deque
from functools import lru_cache

import numpy as np

from simulator.hardware.links import FloatArray, IntArray
from simulator.hardware.wiring import Block, hashed_choice

NO_PATH = -1


class ShortestPaths:
    """Paths of fewest links over directed links tail[i] → head[i] with ids link[i]; results are kept."""

    def __init__(self, tail: IntArray, head: IntArray, link: IntArray, num_vertices: int) -> None:
        self.tail, self.head, self.link = tail, head, link
        self.entering: list[list[int]] = [[] for _ in range(num_vertices)]
        self.leaving: list[list[int]] = [[] for _ in range(num_vertices)]
        for edge, (a, b) in enumerate(zip(tail.tolist(), head.tolist(), strict=True)):
            self.leaving[a].append(edge)
            self.entering[b].append(edge)
        self.distances_to = lru_cache(maxsize=4096)(self._distances_to)
        self.even_shares = lru_cache(maxsize=65536)(self._even_shares)

    def _distances_to(self, goal: int) -> list[int]:
        """Links from every vertex to `goal`, breadth first; NO_PATH where there is none."""
        distance = [NO_PATH] * len(self.entering)
        distance[goal] = 0
        queue = deque([goal])
        while queue:
            here = queue.popleft()
            for edge in self.entering[here]:
                before = int(self.tail[edge])
                if distance[before] == NO_PATH:
                    distance[before] = distance[here] + 1
                    queue.append(before)
        return distance

    def _next_edges(self, here: int, distance: list[int]) -> list[int]:
        nearer = [edge for edge in self.leaving[here] if distance[self.head[edge]] == distance[here] - 1]
        if distance[here] == NO_PATH or not nearer:
            raise ValueError("the links given leave two nodes without a path between them")
        return nearer

    def _even_shares(self, start: int, goal: int) -> tuple[IntArray, FloatArray]:
        """(link, share) when every vertex splits what it passes on evenly over its next links (ECMP)."""
        distance = self.distances_to(goal)
        carried, links = {start: 1.0}, {}
        for _ in range(max(distance[start], 0 if start == goal else 1)):
            passed: dict[int, float] = {}
            for here, amount in carried.items():
                nearer = self._next_edges(here, distance)
                for edge in nearer:
                    links[edge] = amount / len(nearer)
                    there = int(self.head[edge])
                    passed[there] = passed.get(there, 0.0) + amount / len(nearer)
            carried = passed
        return self.link[list(links)], np.array(list(links.values()))

    def split_evenly(self, source: IntArray, destination: IntArray) -> list[Block]:
        """Blocks for flows between vertices, each split over all its shortest paths."""
        pairs, which = np.unique(np.stack([source, destination]), axis=1, return_inverse=True)
        which = which.ravel()
        blocks: list[Block] = []
        for number, (start, goal) in enumerate(pairs.T.tolist()):
            flow = np.nonzero(which == number)[0]
            links, shares = self.even_shares(start, goal)
            blocks.append(
                (np.repeat(flow, len(links)), np.tile(links, len(flow)), np.tile(shares, len(flow)))
            )
        return blocks

    def hashed(self, source: IntArray, destination: IntArray, key: IntArray, seed: int) -> list[Block]:
        """Blocks for flows that at every vertex take the next link that their hash picks."""
        blocks: list[Block] = []
        for flow, (start, goal) in enumerate(zip(source.tolist(), destination.tolist(), strict=True)):
            distance, here, taken = self.distances_to(goal), start, []
            while here != goal:
                nearer = self._next_edges(here, distance)
                pick = hashed_choice(key[flow : flow + 1] + here, len(nearer), seed)
                edge = nearer[int(pick[0])]
                taken.append(edge)
                here = int(self.head[edge])
            blocks.append((np.full(len(taken), flow), self.link[taken], np.ones(len(taken))))
        return blocks
