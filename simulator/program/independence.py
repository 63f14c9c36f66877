"""Which rank classes have nothing to do with each other before the end of a step?

Pipelines on different kinds of GPU meet only when gradients are summed. Until then each goes at its own pace, so its
middle repeats itself after its own time. Leaving out as many stretches of each would make each of them early by another
amount where they meet; so those with longer stretches begin later, by what their stretches are longer in all (see
`engine.postponing`). From their meeting on, everything then happens as in the whole step, earlier by the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.program.program import Program


def independent(program: Program) -> list[frozenset[int]]:
    """Sets of rank classes that share no task before the last micro-batch, and no resource but in tasks they share.

    A class waits for tasks of its own only, shared ones among them, so lanes say all about dependencies.
    """
    last = max((task.micro_batch for task in program.tasks), default=-1)
    class_of = [lane.rank_class for lane in program.lanes]
    parts = _Parts()
    for rank_class in class_of:
        parts.find(rank_class)
    for lanes in {task.lanes for task in program.tasks if 0 <= task.micro_batch < last}:
        for lane in lanes[1:]:
            parts.join(class_of[lanes[0]], class_of[lane])
    if parts.count() > 1:
        _join_by_resources(program, class_of, parts)
    return parts.sets()


def _join_by_resources(program: Program, class_of: list[int], parts: _Parts) -> None:
    runs = {(task.lanes, id(task.phases)): task.phases for task in program.tasks}
    users: dict[int, int] = {}
    for (lanes, _), phases in runs.items():
        whose = {parts.find(class_of[lane]) for lane in lanes}
        if len(whose) == 1:
            (part,) = whose
            for resource in {
                r for phase in phases if phase.work > 0.0 for r, amount in phase.draws if amount
            }:
                parts.join(part, users.setdefault(resource, part))


def shared_tasks(program: Program, parts: Sequence[frozenset[int]]) -> list[int]:
    """Tasks that several of the `parts` carry out together."""
    part_of = {rank_class: number for number, classes in enumerate(parts) for rank_class in classes}
    of_lane = [part_of[lane.rank_class] for lane in program.lanes]
    between = {
        lanes for lanes in {task.lanes for task in program.tasks} if len({of_lane[i] for i in lanes}) > 1
    }
    return [i for i, task in enumerate(program.tasks) if task.lanes in between]


class _Parts:
    """Disjoint sets of rank classes."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}

    def find(self, one: int) -> int:
        """The lowest class known to belong to the same set."""
        above = self._above.setdefault(one, one)
        if above != one:
            above = self._above[one] = self.find(above)
        return above

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.find(one), self.find(other)))
        self._above[high] = low

    def count(self) -> int:
        return len({self.find(one) for one in self._above})

    def sets(self) -> list[frozenset[int]]:
        found: dict[int, set[int]] = {}
        for one in sorted(self._above):
            found.setdefault(self.find(one), set()).add(one)
        return [frozenset(classes) for classes in found.values()]
