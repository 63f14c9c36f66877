"""How is one function applied to many items at once? In order or as they finish, over processes that may die."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from threading import Thread
from time import sleep
from types import TracebackType
from typing import Any, Protocol, Self

MOST_RETRIES = 3
"""Times an item is tried again after the process that had it died."""


ORPHAN_SECONDS = 1.0
"""How often a process looks whether it still has a parent."""


@dataclass(frozen=True)
class Task:
    """`function(shared, item)`; `shared` reaches every process once."""

    function: Callable[[Any, Any], Any]
    shared: Any


class LostWorkError(RuntimeError):
    """An item whose process died again and again."""


class Pool(Protocol):
    """Where items are worked on."""

    def stream(self, task: Task, items: Iterator[Any], ordered: bool = True) -> Iterator[tuple[Any, Any]]:
        """(item, result) pairs; `items` is read only as far ahead as there is room. A result that is a LostWorkError
        stands for an item that could not be finished."""
        ...


def serial(task: Task, items: Iterator[Any], ordered: bool = True) -> Iterator[tuple[Any, Any]]:
    """In this process, one after the other."""
    for item in items:
        yield item, task.function(task.shared, item)


def available_jobs() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalPool:
    """Processes on this machine. One that is killed is replaced, and what it had is done again."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def stream(self, task: Task, items: Iterator[Any], ordered: bool = True) -> Iterator[tuple[Any, Any]]:
        runner = _Runner(lambda: self._executor(task), _in_process, 2 * self.jobs)
        try:
            yield from runner.stream(items, ordered)
        finally:
            runner.close()

    def _executor(self, task: Task) -> Executor:
        # Forked children start with every price that is already known here.
        context = get_context("fork" if sys.platform.startswith("linux") else "spawn")
        return ProcessPoolExecutor(
            self.jobs, mp_context=context, initializer=_begin, initargs=(task, os.getpid())
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class ExecutorPool:
    """Any `concurrent.futures` executor that survives the loss of its workers, such as dask.distributed's."""

    def __init__(self, executor: Executor, window: int) -> None:
        self.executor, self.window = executor, window

    def stream(self, task: Task, items: Iterator[Any], ordered: bool = True) -> Iterator[tuple[Any, Any]]:
        runner = _Runner(lambda: self.executor, lambda item: (task.function, task.shared, item), self.window)
        yield from runner.stream(items, ordered)


_task: Task | None = None


def _begin(task: Task, parent: int) -> None:
    """`parent` is the pool's own process: asked here, it may be dead already and another in its place."""
    global _task
    _task = task
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A process whose parent was killed would wait for work for ever."""
    while os.getppid() == parent:
        sleep(ORPHAN_SECONDS)
    os._exit(1)


def _apply(item: Any) -> Any:
    if _task is None:
        raise RuntimeError("this process was not started by a pool")
    return _task.function(_task.shared, item)


def _in_process(item: Any) -> tuple[Any, ...]:
    return (_apply, item)


class _Runner:
    """Keeps `window` items under way on an executor that is made anew whenever it breaks.

    A process that dies takes all that is under way with it, and does not say whose fault it was. So these are tried
    again one at a time: who is alone when it happens once more is to blame.
    """

    def __init__(
        self, make: Callable[[], Executor], call: Callable[[Any], tuple[Any, ...]], window: int
    ) -> None:
        self.make, self.call, self.window = make, call, window
        self.executor: Executor | None = None
        self.pending: deque[tuple[Any, Future[Any], int]] = deque()
        self.suspects: deque[tuple[Any, int]] = deque()

    def stream(self, items: Iterator[Any], ordered: bool) -> Iterator[tuple[Any, Any]]:
        exhausted = False
        while True:
            if self.suspects and not self.pending:
                self._submit(*self.suspects.popleft())
            while not (exhausted or self.suspects) and len(self.pending) < self.window:
                item = next(items, _NOTHING)
                exhausted = item is _NOTHING
                if not exhausted:
                    self._submit(item, 0)
            if not self.pending:
                return
            item, future, tries = self._next(ordered)
            try:
                result = future.result()
            except BrokenProcessPool:
                alone = not self.pending
                if alone and tries == MOST_RETRIES:
                    self.close()
                    yield item, LostWorkError(f"its process died {tries + 1} times")
                    continue
                again = [(item, tries + alone), *((other, count) for other, _, count in self.pending)]
                self.suspects.extendleft(reversed(again))
                self.pending.clear()
                self.close()
                continue
            yield item, result

    def _next(self, ordered: bool) -> tuple[Any, Future[Any], int]:
        if ordered:
            return self.pending.popleft()
        done, _ = wait([future for _, future, _ in self.pending], return_when=FIRST_COMPLETED)
        position = next(i for i, (_, future, _) in enumerate(self.pending) if future in done)
        found = self.pending[position]
        del self.pending[position]
        return found

    def _submit(self, item: Any, tries: int) -> None:
        if self.executor is None:
            self.executor = self.make()
        try:
            future = self.executor.submit(*self.call(item))
        except BrokenProcessPool as broken:
            future = Future()
            future.set_exception(broken)
        self.pending.append((item, future, tries))

    def close(self) -> None:
        if isinstance(self.executor, ProcessPoolExecutor):
            self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = None


_NOTHING: Any = object()
