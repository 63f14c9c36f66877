"""Rank classes are independent that share neither an early task nor a resource."""

from __future__ import annotations

import pytest

from simulator.program.independence import independent, shared_tasks
from simulator.program.program import Lane, Phase, Program, Resource, Task


def two_classes(resources: tuple[int, int], meets_early: bool) -> Program:
    """Two micro-batches on each class, and a sum that both carry out; classes draw on the given resources."""
    tasks, queues = [], [list[int](), list[int]()]
    for batch in (0, 1):
        for rank_class in (0, 1):
            work = Phase("compute", "kernel", 1.0 + rank_class, ((resources[rank_class], 1.0),))
            queues[rank_class].append(len(tasks))
            tasks.append(Task((work,), (rank_class,), micro_batch=batch))
    for queue in queues:
        queue.append(len(tasks))
    tasks.append(Task((Phase("dp", "sum", 0.0, latency=1.0),), (0, 1), micro_batch=0 if meets_early else -1))
    return Program(
        resources=[Resource(f"gpu {i}", "gpu", 1.0) for i in range(2)],
        lanes=[Lane("compute", 0), Lane("compute", 1)],
        tasks=tasks,
        queues=queues,
        rank_classes=("a", "b"),
        members=(1, 1),
    )


def test_classes_that_meet_at_the_end_are_independent() -> None:
    program = two_classes((0, 1), meets_early=False)
    parts = independent(program)
    assert parts == [{0}, {1}]
    assert shared_tasks(program, parts) == [4]


@pytest.mark.parametrize(("resources", "meets_early"), [((0, 0), False), ((0, 1), True)])
def test_classes_that_share_something_before_are_not(resources: tuple[int, int], meets_early: bool) -> None:
    program = two_classes(resources, meets_early)
    assert independent(program) == [{0, 1}]
    assert shared_tasks(program, independent(program)) == []
