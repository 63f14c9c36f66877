"""Work on many processes: in order, complete, and unharmed by processes that are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import sleep

import pytest

from simulator.sweeps.processes import LocalPool, LostWorkError, Task, serial


def square(shared: int, item: int) -> int:
    return shared + item * item


def die_once(folder: str, item: int) -> int:
    """Item 5 kills its process the first time that it is tried."""
    mark = Path(folder) / "tried"
    if item == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def always_die(shared: None, item: int) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_processes_give_what_one_gives() -> None:
    task = Task(square, 3)
    assert list(LocalPool(2).stream(task, iter(range(20)))) == list(serial(task, iter(range(20))))


def test_unordered_results_are_complete() -> None:
    found = LocalPool(2).stream(Task(square, 0), iter(range(20)), ordered=False)
    assert sorted(found) == [(i, i * i) for i in range(20)]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_killed_process_is_replaced_and_its_work_done_again(tmp_path: Path, ordered: bool) -> None:
    found = LocalPool(2).stream(Task(die_once, str(tmp_path)), iter(range(12)), ordered=ordered)
    assert sorted(found) == [(i, i) for i in range(12)]


def test_an_item_that_always_kills_its_process_is_given_up() -> None:
    found = dict(LocalPool(1).stream(Task(always_die, None), iter(range(4)), ordered=False))
    assert isinstance(found[1], LostWorkError)
    assert [found[i] for i in (0, 2, 3)] == [0, 2, 3]


def slow_or_deadly(shared: None, item: int) -> int:
    if item == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    sleep(0.2)
    return item


@pytest.mark.parametrize("ordered", [True, False])
def test_what_runs_beside_a_killer_is_not_blamed(ordered: bool) -> None:
    found = dict(LocalPool(2).stream(Task(slow_or_deadly, None), iter(range(4)), ordered=ordered))
    assert isinstance(found[1], LostWorkError)
    assert [found[i] for i in (0, 2, 3)] == [0, 2, 3]
