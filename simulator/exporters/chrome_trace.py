"""The timeline as a Chrome trace: opens in ui.perfetto.dev and chrome://tracing.

A process is a rank class, a thread one of its lanes; links are counters of one more process. Times are µs with
three decimals. Every task is a slice on each of its lanes, its kernels are slices within it. Arrows lead from a
send to its receive, and through the ranks of a collective. Equal predictions give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.exporters.counters import link_counters, memory_counters

if TYPE_CHECKING:
    import numpy as np

    from simulator.engine.spans import Spans
    from simulator.program.program import Program, Task
    from simulator.results.prediction import Prediction

Event = dict[str, Any]

MOST_KERNELS = 200_000
"""Slices within tasks, from the start of the step on; a whole step may have millions, which no viewer opens."""

LANE_ORDER = ("host", "compute", "tp", "cp", "ep", "dp", "dp-gather", "pp-")


def write_trace(prediction: Prediction, path: Path, most_kernels: int = MOST_KERNELS) -> None:
    """Write the trace of a prediction that was simulated with `trace=True`.

    Raises ValueError for one that was not, OSError where the file cannot be written.
    """
    events = trace_events(prediction, most_kernels)
    first = next(events)
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n' + _line(first))
        for event in events:
            file.write(",\n" + _line(event))
        file.write("\n]}\n")


def trace_events(prediction: Prediction, most_kernels: int = MOST_KERNELS) -> Iterator[Event]:
    """The events in the order in which they are written: names, then tasks by start, then counters."""
    program, timeline = prediction.built.program, prediction.run
    spans, start, end = timeline.spans, timeline.start, timeline.end
    threads = thread_ids(program)
    yield from _names(program, threads)
    firsts = spans.task.searchsorted(range(len(program.tasks) + 1)).tolist()
    kernels_left = most_kernels
    for task_id in _by_start(start):
        task = program.tasks[task_id]
        begin, over = _ticks(start[task_id]), _ticks(end[task_id])
        yield from _slices(program, threads, task_id, begin, over)
        yield from _arrows(program, threads, task_id, begin, over)
        if len(task.phases) > 1 and kernels_left >= len(task.phases):
            kernels_left -= len(task.phases)
            yield from _kernels(program, threads, task, spans, firsts[task_id])
    yield from memory_counters(program, timeline)
    yield from link_counters(program, timeline)


def thread_ids(program: Program) -> list[int]:
    """The thread id of each lane: its place among the lanes of its rank class, host first."""

    def rank(lane: int) -> tuple[int, int, int]:
        name = program.lanes[lane].name
        place = next((i for i, known in enumerate(LANE_ORDER) if name == known), len(LANE_ORDER))
        return program.lanes[lane].rank_class, place, lane

    threads = [0] * len(program.lanes)
    count: dict[int, int] = {}
    for lane in sorted(range(len(program.lanes)), key=rank):
        rank_class = program.lanes[lane].rank_class
        threads[lane] = count[rank_class] = count.get(rank_class, -1) + 1
    return threads


def _names(program: Program, threads: list[int]) -> Iterator[Event]:
    names = [
        f"{name} × {members:,}" if members > 1 else name
        for name, members in zip(program.rank_classes, program.members, strict=True)
    ]
    for pid, name in enumerate([*names, "links"]):
        yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
    for lane, tid in sorted(zip(program.lanes, threads, strict=True), key=lambda p: (p[0].rank_class, p[1])):
        where = {"ph": "M", "pid": lane.rank_class, "tid": tid}
        yield {**where, "name": "thread_name", "args": {"name": lane.name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _slices(program: Program, threads: list[int], task_id: int, begin: int, over: int) -> Iterator[Event]:
    """The task on each of its lanes."""
    task = program.tasks[task_id]
    name = task.name or task.label
    args: dict[str, Any] = {"task": task_id}
    if task.micro_batch >= 0:
        name += f" {task.micro_batch}"
        args["micro_batch"] = task.micro_batch
    for lane in task.lanes:
        yield _slice(name, task.kind, program.lanes[lane].rank_class, threads[lane], begin, over, args)


def _kernels(program: Program, threads: list[int], task: Task, spans: Spans, first: int) -> Iterator[Event]:
    """The phases of a task, within its slice on the lane each is shown on."""
    for number, phase in enumerate(task.phases):
        lane = task.lanes[phase.lane]
        begin, over = _ticks(spans.start[first + number]), _ticks(spans.end[first + number])
        yield _slice(phase.label, phase.kind, program.lanes[lane].rank_class, threads[lane], begin, over, {})


def _slice(name: str, kind: str, pid: int, tid: int, begin: int, over: int, args: dict[str, Any]) -> Event:
    event: Event = {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": begin / 1000.0,
        "dur": (over - begin) / 1000.0,
        "name": name,
        "cat": kind,
    }
    return {**event, "args": args} if args else event


def _arrows(program: Program, threads: list[int], task_id: int, begin: int, over: int) -> Iterator[Event]:
    """From the first rank class of a shared task through the others to the last; a send's sender is first."""
    task = program.tasks[task_id]
    classes: dict[int, int] = {}
    for lane in sorted(
        task.lanes, key=lambda lane: (not program.lanes[lane].name.startswith("pp-send"), lane)
    ):
        classes.setdefault(program.lanes[lane].rank_class, lane)
    if len(classes) < 2:
        return
    last = len(classes) - 1
    for position, (rank_class, lane) in enumerate(classes.items()):
        step = "s" if position == 0 else "f" if position == last else "t"
        at = begin + (over - begin) * position // (2 * last)
        event = {"ph": step, "pid": rank_class, "tid": threads[lane], "ts": at / 1000.0, "id": task_id}
        yield {**event, "name": task.label, "cat": task.kind, **({"bp": "e"} if step == "f" else {})}


def _by_start(start: np.ndarray) -> list[int]:
    found: list[int] = start.argsort(kind="stable").tolist()
    return found


def _ticks(time: float) -> int:
    """Nanoseconds: rounded once, so that neighbours stay neighbours and nothing sticks out of its task."""
    return round(float(time) * 1e9)


def _line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)
