"""Random programs: lanes, rendezvous, dependencies, shared and private resources, chains of phases."""

from __future__ import annotations

from math import inf

from hypothesis import strategies as st

from simulator.program.program import (
    CapacityChange,
    Draws,
    Lane,
    MemoryChange,
    Phase,
    Program,
    Resource,
    Task,
)

AMOUNTS = (0.5, 1.0, 1.0, 2.0, 3.7)
WORKS = (0.0, 0.3, 1.0, 1.0, 2.5, 7.0)
LATENCIES = (0.0, 0.0, 0.0, 0.25, 1.1)


@st.composite
def phases(draw: st.DrawFn, num_resources: int) -> Phase:
    drawn = draw(st.lists(st.integers(0, num_resources - 1), unique=True, max_size=3))
    draws: Draws = tuple((r, draw(st.sampled_from(AMOUNTS))) for r in sorted(drawn))
    caps = (0.4, 1.0, 5.0) if not draws else (inf, inf, 0.4, 1.0, 5.0)
    return Phase(
        kind=draw(st.sampled_from(("compute", "tp", "dp"))),
        label="x",
        work=draw(st.sampled_from(WORKS)),
        draws=draws,
        latency=draw(st.sampled_from(LATENCIES)),
        cap=draw(st.sampled_from(caps)),
        weight=draw(st.sampled_from((1.0, 1.0, 2.0, 0.3, 1e-9))),
    )


@st.composite
def programs(draw: st.DrawFn, *, max_tasks: int = 14, changes: bool = True, max_phases: int = 5) -> Program:
    """Executable programs: dependencies and queues follow the task ids, so there is no deadlock."""
    num_resources = draw(st.integers(1, 5))
    num_lanes = draw(st.integers(1, 5))
    resources = [
        Resource(f"link{i}", "link", draw(st.sampled_from((0.7, 1.0, 1.0, 3.0))))
        for i in range(num_resources)
    ]
    pool = [
        tuple(draw(st.lists(phases(num_resources), max_size=max_phases)))
        for _ in range(draw(st.integers(1, 5)))
    ]
    tasks: list[Task] = []
    queues: list[list[int]] = [[] for _ in range(num_lanes)]
    for i in range(draw(st.integers(1, max_tasks))):
        lanes = tuple(draw(st.lists(st.integers(0, num_lanes - 1), unique=True, min_size=1, max_size=3)))
        deps = tuple(draw(st.lists(st.integers(0, i - 1), unique=True, max_size=2))) if i else ()
        held = draw(st.sampled_from((0.0, 0.0, 1.0, 8.0)))
        tasks.append(
            Task(
                phases=draw(st.sampled_from(pool)),
                lanes=lanes,
                deps=deps,
                at_start=(MemoryChange(0, "activations", held),) if held else (),
                at_end=(MemoryChange(0, "activations", -held),) if held else (),
            )
        )
        for lane in lanes:
            queues[lane].append(i)
    capacity_changes = []
    if changes:
        for _ in range(draw(st.integers(0, 3))):
            resource = draw(st.integers(0, num_resources - 1))
            time = draw(st.sampled_from((0.0, 0.5, 1.0, 2.0, 5.3)))
            capacity_changes.append(CapacityChange(time, resource, draw(st.sampled_from((0.0, 0.5, 2.0)))))
        # whatever happens, all is well in the end
        capacity_changes += [CapacityChange(30.0, i, 1.0) for i in {c.resource for c in capacity_changes}]
    return Program(
        resources=resources,
        lanes=[Lane(f"lane{i}", 0) for i in range(num_lanes)],
        tasks=tasks,
        queues=queues,
        capacity_changes=capacity_changes,
        rank_classes=("all",),
        members=(1,),
    )
