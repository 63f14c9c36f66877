"""How many tasks does the engine execute per second? Four kinds of program, with and without sharing.

Run with `pytest benchmarks/test_engine.py`; `tasks_per_s` stands in the extra info of each (`--benchmark-json`).
The limits are an order of magnitude above what an idle machine takes: they catch a lost saving, not a busy machine.
"""

from __future__ import annotations

import random

import pytest

from simulator.engine import execute
from simulator.program.program import Lane, Phase, Program, Resource, Task


class Draft:
    """A program under construction."""

    def __init__(self, capacities: list[float], num_lanes: int) -> None:
        self.program = Program(
            resources=[Resource(f"resource{i}", "any", capacity) for i, capacity in enumerate(capacities)],
            lanes=[Lane(f"lane{i}", i) for i in range(num_lanes)],
            queues=[[] for _ in range(num_lanes)],
        )

    def add(self, phases: tuple[Phase, ...], lanes: tuple[int, ...], deps: tuple[int, ...] = ()) -> int:
        place = len(self.program.tasks)
        self.program.tasks.append(Task(phases, lanes, deps))
        for lane in lanes:
            self.program.queues[lane].append(place)
        return place


def kernels(num_tasks: int = 6000, num_lanes: int = 16) -> Program:
    """Kernels of one phase each, all different, on private GPUs, with dependencies across lanes."""
    draft, rng = Draft([1.0] * num_lanes, num_lanes), random.Random(0)
    for i in range(num_tasks):
        gpu = i % num_lanes
        phase = Phase("compute", "kernel", 1e-3 * (1 + rng.random()), ((gpu, 1.0),), 1e-6)
        draft.add((phase,), (gpu,), (i - num_lanes - 1,) if i > num_lanes else ())
    return draft.program


def pipeline(num_stages: int = 8, num_micro_batches: int = 64, num_layers: int = 12) -> Program:
    """Chains of 132 kernels and collectives per stage and micro-batch, passed on over NICs; gradients at the end."""
    draft = Draft([1.0, 3e11, 2.5e10] * num_stages, 3 * num_stages)

    def layer(stage: int, scale: float) -> tuple[Phase, ...]:
        gpu, scale_up = ((3 * stage, 1.0),), ((3 * stage + 1, 1.0),)
        parts = [Phase("compute", f"k{k}", scale * 1e-3 * (k + 1), gpu, 2e-6) for k in range(10)]
        return (*parts, Phase("tp", "all_reduce", 5e7, scale_up, 1e-5))

    chains = {
        (stage, scale): layer(stage, scale) * num_layers
        for stage in range(num_stages)
        for scale in (1.0, 2.0)
    }
    sends = {
        (a, b): (Phase("pp", "send", 2e7, tuple(sorted(((3 * a + 2, 1.0), (3 * b + 2, 1.0)))), 1e-5),)
        for a in range(num_stages)
        for b in (a - 1, a + 1)
    }
    last: dict[tuple[int, int], int] = {}
    for scale, stages in ((1.0, range(num_stages)), (2.0, range(num_stages - 1, -1, -1))):
        for micro_batch in range(num_micro_batches):
            previous = -1
            for stage in stages:
                deps = (last[stage, micro_batch],) if scale == 2.0 else ()
                if previous >= 0:
                    lanes = (3 * previous + 1, 3 * stage + 2)
                    deps += (draft.add(sends[previous, stage], lanes, (last[previous, micro_batch],)),)
                last[stage, micro_batch] = draft.add(chains[stage, scale], (3 * stage,), deps)
                previous = stage
    for stage in range(num_stages):
        reduce = (Phase("dp", "all_reduce", 1e9, ((3 * stage, 1e-12), (3 * stage + 2, 1.0)), weight=1e10),)
        draft.add(reduce, (3 * stage + 1,), (last[stage, num_micro_batches - 2],))
    return draft.program


def overlap(num_ranks: int = 4, num_layers: int = 600, num_kernels: int = 20) -> Program:
    """Chains of kernels slowed, all along, by collectives that draw on their GPUs: every phase is an event."""
    draft = Draft([1.0, 2e12, 2.5e10] * num_ranks, 2 * num_ranks)
    chains = [
        tuple(
            Phase(
                "compute", f"k{k}", 1e-4 * (1 + k % 5), ((3 * r, 1.0), (3 * r + 1, 1e11 * (1 + k))), 2e-6, 1.0
            )
            for k in range(num_kernels)
        )
        for r in range(num_ranks)
    ]
    draws = tuple(
        draw for r in range(num_ranks) for draw in ((3 * r, 0.1 / 2.4e10), (3 * r + 1, 2.0), (3 * r + 2, 1.0))
    )
    gather = (Phase("dp", "all_gather", 1.2e8, draws, 2e-5, weight=2.4e10),)
    for _ in range(num_layers):
        gathered = draft.add(gather, tuple(2 * r + 1 for r in range(num_ranks)))
        for r in range(num_ranks):
            draft.add(chains[r], (2 * r,), (gathered,))
    return draft.program


def flows(num_flows: int = 200, num_links: int = 60, num_rounds: int = 3) -> Program:
    """200 flows at a time, each over three of 60 links, all different."""
    rng = random.Random(1)
    draft = Draft([1e10 * (1 + rng.random()) for _ in range(num_links)], num_flows)
    for _ in range(num_rounds):
        for lane in range(num_flows):
            draws = tuple((link, 1.0) for link in sorted(rng.sample(range(num_links), 3)))
            draft.add((Phase("dp", "flow", 1e8 * (0.5 + rng.random()), draws),), (lane,))
    return draft.program


@pytest.mark.parametrize(
    ("make", "limit"), [(kernels, 100e-6), (pipeline, 100e-6), (overlap, 1e-3), (flows, 5e-3)]
)
def test_seconds_per_task(benchmark, make, limit: float) -> None:
    program = make()
    benchmark.pedantic(execute, args=(program,), rounds=5, warmup_rounds=1)
    seconds = benchmark.stats.stats.min
    benchmark.extra_info["tasks_per_s"] = round(len(program.tasks) / seconds)
    assert seconds / len(program.tasks) < limit
