"""Every registered schedule runs each forward and each backward once, and never deadlocks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.program.schedules import SCHEDULES, Action
from simulator.program.schedules.play import finish
from simulator.program.steady_state import lengths

NUM_CHUNKS = {name: schedule.chunks for name, schedule in SCHEDULES.items()}


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
def test_each_forward_and_backward_once_in_a_possible_order(
    name: str, stages: int, groups: int, chunks: int
) -> None:
    if SCHEDULES[name].even:
        stages *= 2
    count = groups * stages
    chunks = NUM_CHUNKS[name] or chunks
    schedules = [SCHEDULES[name](stage, stages, count, chunks) for stage in range(stages)]
    copies = SCHEDULES[name].copies  # each sees every so-many-th micro-batch
    everything = [(c, i) for c in range(chunks) for i in range(count) if copies == 1 or i % copies == c]
    for actions in schedules:
        done = {op: sorted((a.chunk, a.micro_batch) for a in actions if a.op == op) for op in "FBIW"}
        assert done["F"] == everything
        assert sorted(done["B"] + done["I"]) == everything
        assert done["I"] == done["W"]
    assert finish(SCHEDULES[name], stages, count, chunks, dict.fromkeys("FBIW", 1.0)) is not None


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_parts_of_the_model_stand_on_all_stages_and_in_a_row(name: str) -> None:
    for stages in (1, 2, 3, 4, 8):
        chunks = NUM_CHUNKS[name] or 2
        placement = SCHEDULES[name].placement(stages, chunks)
        held = sorted(part for stage in placement.parts for part in stage)
        assert set(held) == set(range(placement.num_parts))
        for stage, parts in enumerate(placement.parts):
            for chunk, part in enumerate(parts):
                following = placement.neighbour(stage, chunk, +1)
                if part < placement.num_parts - 1:
                    assert following is not None
                    assert placement.parts[following[0]][following[1]] == part + 1
                    assert placement.neighbour(*following, -1) == (stage, chunk)
                else:
                    assert following is None


@pytest.mark.parametrize(("name", "limit"), [("1f1b", 1), ("zb-h1", 1), ("zb-v", 2)])
@pytest.mark.parametrize(("stages", "count"), [(4, 16), (8, 32), (3, 9), (2, 1)])
def test_no_stage_keeps_more_than_the_first_one_of_1f1b(
    name: str, limit: int, stages: int, count: int
) -> None:
    """In units of a chunk: p micro-batches."""
    for stage in range(stages):
        alive = most = 0
        for action in SCHEDULES[name](stage, stages, count, limit):
            alive += {"F": 1, "I": 0, "B": -1, "W": -1}[action.op]
            most = max(most, alive)
        assert most <= limit * stages
        assert alive == 0


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 10), st.integers(0, 20))
def test_zb_h1_has_a_third_of_the_bubble_of_1f1b(stages: int, more: int) -> None:
    count = stages + more
    ours = finish(SCHEDULES["zb-h1"], stages, count, 1, {"F": 1.0, "I": 1.0, "W": 1.0})
    theirs = finish(SCHEDULES["1f1b"], stages, count, 1, {"F": 1.0, "B": 2.0})
    assert ours is not None and theirs is not None
    assert ours - 3 * count == (stages - 1)
    assert theirs - 3 * count == 3 * (stages - 1)


@pytest.mark.parametrize("stages", [2, 4, 6, 8])
@pytest.mark.parametrize("more", [0, 3])
def test_dualpipe_keeps_no_more_than_p_plus_1_micro_batches(stages: int, more: int) -> None:
    """Of both directions together, in parts of the model that are as large as a stage of 1F1B."""
    for stage in range(stages):
        alive, most = {0: 0, 1: 0}, 0
        for action in SCHEDULES["dualpipe"](stage, stages, 2 * stages + 2 * more, 2):
            alive[action.chunk] += {"F": 1, "I": -1, "B": -1, "W": 0}[action.op]
            most = max(most, sum(alive.values()))
        assert most <= stages + 1
        assert sum(alive.values()) == 0


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("more", [0, 3])
def test_dualpipe_v_keeps_no_more_than_2p_plus_1_chunks(stages: int, more: int) -> None:
    """A stage does what DualPipe's does that is as far from its end, on twice as many stages."""
    for stage in range(stages):
        alive = most = 0
        actions = SCHEDULES["dualpipe-v"](stage, stages, 2 * stages + more, 2)
        for action in actions:
            alive += {"F": 1, "I": -1, "B": -1, "W": 0}[action.op]
            most = max(most, alive)
        assert most <= 2 * stages + 1
        assert alive == 0
        twice = SCHEDULES["dualpipe"](stage, 2 * stages, 2 * (2 * stages + more), 2)
        assert [action.op for action in actions] == [action.op for action in twice]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 10), st.integers(0, 20))
def test_zb_v_waits_only_for_the_skew_between_stages(stages: int, more: int) -> None:
    count = 2 * stages + more
    seconds = finish(SCHEDULES["zb-v"], stages, count, 2, dict.fromkeys("FIW", 0.5))
    assert seconds == 3 * count + (stages - 1) / 2


@pytest.mark.parametrize(("stages", "count"), [(4, 8), (8, 8), (3, 9)])
def test_1f1b_keeps_no_more_micro_batches_than_stages(stages: int, count: int) -> None:
    for stage in range(stages):
        alive = most = 0
        for action in SCHEDULES["1f1b"](stage, stages, count, 1):
            alive += 1 if action.op == "F" else -1
            most = max(most, alive)
        assert most == min(stages - stage, count)


PERIODIC = [name for name, schedule in SCHEDULES.items() if schedule.period and schedule.flushes]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PERIODIC), st.integers(2, 6), st.integers(2, 4), st.integers(1, 3), st.data())
def test_a_longer_step_is_a_shorter_one_with_its_middle_repeated(
    name: str, stages: int, chunks: int, more: int, data: st.DataObject
) -> None:
    """Wherever the short program that shows the steady state is cut (see `steady_state`)."""
    schedule = SCHEDULES[name]
    chunks = schedule.chunks or chunks
    count, period = next(lengths(name, stages, chunks, 60 * stages))
    stage = data.draw(st.integers(0, stages - 1))
    short = schedule(stage, stages, count, chunks)
    long = schedule(stage, stages, count + more * period, chunks)
    size = (len(long) - len(short)) // more
    first = len(short) // 2 - (0 if period == 1 else 3 * size // 8)
    middle = short[first : first + size]
    repeated = [_later(action, k * period) for k in range(1, more + 1) for action in middle]
    rest = [_later(action, more * period) for action in short[first + size :]]
    assert long == [*short[: first + size], *repeated, *rest]


def _later(action: Action, micro_batches: int) -> Action:
    return action._replace(micro_batch=action.micro_batch + micro_batches)
