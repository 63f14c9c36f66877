"""Blocks are divided so that the slowest part is as fast as it can be."""

from __future__ import annotations

from itertools import combinations_with_replacement

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.description import load
from simulator.engine.engine import execute
from simulator.program.builder import build
from simulator.program.partition import balanced, cost
from simulator.program.schedules.placement import loop
from simulator.program.stages import parts
from simulator.workloads.layers import Layer
from tests.program.scenarios import LIBRARY, Timed, cluster, software, workload


def layer(kind: str, size: int) -> Layer:
    return Layer(f"{kind}{size}", kind, (Timed(size * 1e6, size * 2e6, 0.0),), 0, 0)


def slowest(
    first: list[Layer], blocks: list[Layer], last: list[Layer], counts: list[int], speeds: list[float]
) -> float:
    loads, start = [], 0
    for count in counts:
        loads.append(sum(cost(one) for one in blocks[start : start + count]))
        start += count
    loads[0] += sum(map(cost, first))
    loads[-1] += sum(map(cost, last))
    return max(load / speed for load, speed in zip(loads, speeds, strict=True))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.sampled_from([1.0, 1.0, 2.0, 2.5]), min_size=1, max_size=4),
)
def test_no_other_division_is_faster(
    sizes: list[int], embedding: int, head: int, speeds: list[float]
) -> None:
    first = [layer("embedding", embedding)] if embedding else []
    last = [layer("head", head)] if head else []
    blocks = [layer("block", size) for size in sizes]
    num_parts = len(speeds)
    found = balanced(first, blocks, last, num_parts, speeds)
    assert sum(found) == len(blocks)
    cuts = combinations_with_replacement(range(len(blocks) + 1), num_parts - 1)
    others = ([b - a for a, b in zip((0, *cut), (*cut, len(blocks)), strict=True)] for cut in cuts)
    best = min(slowest(first, blocks, last, counts, speeds) for counts in others)
    assert slowest(first, blocks, last, found, speeds) <= best * (1 + 1e-9)


def test_a_large_vocabulary_takes_blocks_from_the_last_stage() -> None:
    model = load("model", "llama3-8b")
    dealt = parts(model.layers(), loop(4, 1), "auto")
    blocks = [sum(one.kind == "block" for one in part) for part in dealt]
    assert sum(blocks) == 32
    assert blocks[-1] == min(blocks) < 8


def test_what_the_slowest_part_cannot_help_the_others_share_evenly() -> None:
    blocks = [layer("block", 1)] * 12
    assert balanced([], blocks, [layer("head", 50)], 4) == [4, 4, 4, 0]


def test_balance_makes_the_step_shorter() -> None:
    steps = []
    for split in (None, "auto"):
        shapes = {"layers": 16, "hidden": 2048, "vocab": 131072}
        job = workload(pp=4, sequence_length=1024, global_batch=16, layers_per_stage=split, **shapes)
        steps.append(execute(build(cluster(4, 1, 1), job, software(), LIBRARY).program).makespan)
    assert steps[1] < 0.95 * steps[0]
