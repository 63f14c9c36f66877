"""ZeRO-1 over gloo: every rank gets what it does not own, message by message, in the time the links need."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulator
from simulator.program.builder import BuildOptions
from simulator.program.handing_out import messages, threads_of
from simulator.program.sharding import Share, shares
from simulator.results.prediction import Prediction
from simulator.simulation import SimulationOptions, simulate

GATHER = "gather parameters"


def predicted(ranks: int, fold: bool = False, **changes: object) -> Prediction:
    workload = simulator.load_workload("gpt-mini", {"plan.zero": 1, "global_batch": 48, **changes})
    options = SimulationOptions(periodic=False, build=BuildOptions(fold=fold))
    return simulate(simulator.load_cluster("minicluster", ranks), workload, options)


def gathers(prediction: Prediction) -> list[tuple[float, float, float, str]]:
    """(begin, end, bytes, receiving thread's lane) of every message."""
    program, spans = prediction.built.program, prediction.run.spans
    found = []
    for task, number, begin, end in zip(spans.task, spans.phase, spans.start, spans.end, strict=True):
        phase = program.tasks[task].phases[number]
        if phase.label == GATHER:
            lanes = [program.lanes[lane] for lane in program.tasks[task].lanes]
            (receiver,) = (f"{lane.rank_class} {lane.name}" for lane in lanes if lane.name.startswith("dp"))
            found.append((float(begin), float(end), phase.work, receiver))
    return found


@given(st.integers(2, 40), st.data())
def test_a_share_reaches_every_other_rank_once_and_after_its_sender_has_it(ranks: int, data: st.DataObject):
    owner = data.draw(st.integers(0, ranks - 1))
    have = {owner}
    for pair in messages(Share("dp", owner, 1.0), ranks):
        source, destination = map(int, pair.removeprefix("pair dp ").split(">"))
        assert source in have
        assert destination not in have
        have.add(destination)
    assert have == set(range(ranks))


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_every_rank_receives_what_it_does_not_own(ranks: int):
    prediction = predicted(ranks)
    setting = prediction.built.setting
    owned = Counter({share.owner: share.count for share in shares(setting, 0)})
    whole = sum(unit.parameters.total for unit in (setting.content[0][0].whole,))
    received: Counter[int] = Counter()
    for _, _, size, lane in gathers(prediction):
        received[int(lane.split()[0])] += round(size / 4)
    assert sum(owned.values()) == whole
    assert received == {rank: whole - owned[rank] for rank in range(ranks)}


def test_two_ranks_send_one_after_the_other_over_their_one_connection():
    moved = sorted(gathers(predicted(2)))
    (begin, _, _, _), (_, end, _, _) = moved[0], moved[-1]
    assert len(moved) == 2
    assert end - begin == pytest.approx(sum(size for _, _, size, _ in moved) / 12.5e6, rel=0.01)


def test_the_first_share_reaches_the_owners_children_in_two_message_times_and_their_child_later() -> None:
    """Four ranks: two messages share the owner's link; the third then meets other shares on its way."""
    moved = gathers(predicted(4))
    largest = max(size for _, _, size, _ in moved)
    first = min(begin for begin, *_ in moved)
    arrivals = sorted(end - first for _, end, size, _ in moved if size == largest)
    alone = largest / 12.5e6
    assert arrivals[:2] == pytest.approx([2 * alone, 2 * alone], rel=0.01)
    assert arrivals[2] >= 3 * alone


def test_messages_of_one_connection_follow_each_other():
    prediction = predicted(4)
    program, spans = prediction.built.program, prediction.run.spans
    by_connection: dict[int, list[tuple[float, float]]] = {}
    for task, begin, end in zip(spans.task, spans.start, spans.end, strict=True):
        for lane in program.tasks[task].lanes:
            if program.lanes[lane].name.startswith("connection"):
                by_connection.setdefault(lane, []).append((float(begin), float(end)))
    assert max(map(len, by_connection.values())) > 1
    for times in by_connection.values():
        for (_, end), (begin, _) in zip(sorted(times), sorted(times)[1:], strict=False):
            assert begin >= end


def test_ranks_use_both_threads_and_one_where_there_is_one():
    owned = tuple(Share("dp", owner, 1.0) for owner in range(4))
    assert all(set(threads) == {0, 1} for threads in threads_of(owned, 4, 2))
    assert threads_of(owned, 4, 1) == [[0] * 4] * 4


@pytest.mark.parametrize("changes", [{"plan.tp": 2}, {"plan.pp": 2, "plan.micro_batch": 2}])
def test_folded_equals_unfolded(changes: dict[str, object]):
    folded, whole = predicted(8, True, **changes), predicted(8, False, **changes)
    assert folded.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
