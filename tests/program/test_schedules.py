"""Every registered schedule runs each forward and each backward once, and never deadlocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.program.schedules import SCHEDULES


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_each_forward_and_backward_once_in_a_possible_order(name: str, stages: int, groups: int, chunks: int) -> None:
    count = groups * stages
    chunks = chunks if name in ("interleaved", "gpipe") else 1
    schedules = [SCHEDULES[name](stage, stages, count, chunks) for stage in range(stages)]
    for actions in schedules:
        for op in ("F", "B"):
            units = [(a.chunk, a.micro_batch) for a in actions if a.op == op]
            assert sorted(units) == [(c, i) for c in range(chunks) for i in range(count)]
    assert _runs_to_the_end(schedules, stages, chunks)


def _runs_to_the_end(schedules: list, stages: int, chunks: int) -> bool:  # type: ignore[type-arg]
    """Play the stages against each other: an action runs once what it needs is done."""
    done: set[tuple[str, int, int]] = set()
    position = [0] * stages
    moved = True
    while moved:
        moved = False
        for stage, actions in enumerate(schedules):
            while position[stage] < len(actions):
                action = actions[position[stage]]
                virtual = action.chunk * stages + stage
                needs = []
                if action.op == "F" and virtual > 0:
                    needs.append(("F", virtual - 1, action.micro_batch))
                if action.op == "B":
                    needs.append(("F", virtual, action.micro_batch))
                    if virtual < stages * chunks - 1:
                        needs.append(("B", virtual + 1, action.micro_batch))
                if any(need not in done for need in needs):
                    break
                done.add((action.op, virtual, action.micro_batch))
                position[stage] += 1
                moved = True
    return all(p == len(a) for p, a in zip(position, schedules, strict=True))


@pytest.mark.parametrize(("stages", "count"), [(4, 8), (8, 8), (3, 9)])
def test_1f1b_keeps_no_more_micro_batches_than_stages(stages: int, count: int) -> None:
    for stage in range(stages):
        alive = most = 0
        for action in SCHEDULES["1f1b"](stage, stages, count, 1):
            alive += 1 if action.op == "F" else -1
            most = max(most, alive)
        assert most == min(stages - stage, count)
