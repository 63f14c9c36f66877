"""Every registered algorithm, played transfer by transfer, does what its operation promises and no more."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from simulator.costs.collectives import ALGORITHMS, GroupShape
from simulator.costs.collectives.algorithm import Schedule, refusal
from simulator.costs.collectives.patterns import REDUCER, layout_edges, loads

LAYOUTS = [
    *(tuple([0] * n) for n in range(2, 13)),
    *(
        tuple(i // per_node for i in range(nodes * per_node))
        for nodes, per_node in ((2, 1), (3, 1), (5, 1), (2, 2))
    ),
    *(
        tuple(i // per_node for i in range(nodes * per_node))
        for nodes, per_node in ((2, 4), (3, 2), (4, 3), (6, 2))
    ),
    (0, 0, 1),
    (0, 0, 0, 1, 1),
    (0, 0, 0, 0, 1, 1, 1, 2),
    (0, 0, 0, 1, 2),
]


def group_of(layout: tuple[int, ...]) -> GroupShape:
    return GroupShape(
        num_ranks=len(layout),
        num_nodes=max(layout) + 1,
        ranks_per_node=max(Counter(layout).values()),
        in_network_reduction=True,
        scale_up_bandwidth=1e9,
        nic_bandwidth=1e9,
    )


CASES = [
    pytest.param(name, op, layout, id=f"{name}-{op}-{''.join(map(str, layout))}")
    for name, algorithm in sorted(ALGORITHMS.items())
    for op in algorithm.operations
    for layout in LAYOUTS
    if refusal(name, op, group_of(layout)) is None
]


def play(schedule: Schedule, start: dict[tuple[int, int], Counter]) -> dict[tuple[int, int], Counter]:
    """State per (endpoint, chunk): how often each rank is in it. Transfers of a round are simultaneous."""
    state: dict[tuple[int, int], Counter] = defaultdict(Counter, start)
    rounds: dict[int, list] = defaultdict(list)
    for transfer in schedule.transfers:
        rounds[transfer.round].append(transfer)
    for number in sorted(rounds):
        sent = [(t, Counter(state[t.source, t.chunk])) for t in rounds[number]]
        for transfer, content in sent:
            assert content, f"{transfer} sends what its source does not have"
            place = transfer.destination, transfer.chunk
            state[place] = state[place] + content if transfer.reduce else content
    return state


def chunks_of(schedule: Schedule) -> list[int]:
    return sorted({t.chunk for t in schedule.transfers})


def starting_state(op: str, schedule: Schedule, n: int) -> dict[tuple[int, int], Counter]:
    chunks = chunks_of(schedule)
    if op in ("all_reduce", "reduce_scatter", "reduce"):
        return {(r, c): Counter([r]) for r in range(n) for c in chunks}
    if op in ("all_gather", "broadcast_each"):
        return {(c % n, c): Counter([c % n]) for c in chunks}
    if op == "all_to_all":
        return {(c // n, c): Counter([c // n]) for c in chunks}
    if op == "shift":
        return {(c, c): Counter([c]) for c in chunks}
    return {(0, c): Counter([0]) for c in chunks}  # broadcast, send_recv


def promised(op: str, schedule: Schedule, n: int) -> dict[tuple[int, int], Counter]:
    chunks, everyone = chunks_of(schedule), Counter(range(n))
    if op == "all_reduce":
        return {(r, c): everyone for r in range(n) for c in chunks}
    if op == "reduce_scatter":
        return {(c % n, c): everyone for c in chunks}
    if op == "reduce":
        return {(0, c): everyone for c in chunks}
    if op in ("all_gather", "broadcast_each"):
        return {(r, c): Counter([c % n]) for r in range(n) for c in chunks}
    if op == "all_to_all":
        return {(c % n, c): Counter([c // n]) for c in chunks}
    if op == "shift":
        return {((c + 1) % n, c): Counter([c]) for c in chunks}
    return {(r, c): Counter([0]) for r in range(n) for c in chunks}


@pytest.mark.parametrize(("name", "op", "layout"), CASES)
def test_every_rank_ends_with_exactly_what_the_operation_promises(name, op, layout):
    schedule = ALGORITHMS[name].schedule(op, layout)
    state = play(schedule, starting_state(op, schedule, len(layout)))
    for place, content in promised(op, schedule, len(layout)).items():
        assert state[place] == content, place


@pytest.mark.parametrize(("name", "op", "layout"), CASES)
def test_the_chunks_make_up_the_whole_buffer(name, op, layout):
    schedule = ALGORITHMS[name].schedule(op, layout)
    n = len(layout)
    buffers = n if op in ("all_to_all", "shift") else 1  # one per sender; its own part never travels
    own = n * schedule.fraction if op == "all_to_all" else 0.0
    assert len(chunks_of(schedule)) * schedule.fraction + own == pytest.approx(buffers, rel=1e-12)


def traffic(schedule: Schedule, layout: tuple[int, ...]) -> tuple[np.ndarray, Counter]:
    """(bytes out of and into every rank's scale-up port and NIC [4, n], bytes per ordered pair of nodes)."""
    per_rank, per_nodes = np.zeros((4, len(layout))), Counter()
    for t in schedule.transfers:
        inside = t.source < 0 or t.destination < 0 or layout[t.source] == layout[t.destination]
        for row, end in ((0, t.source), (1, t.destination)):
            if end >= 0:
                per_rank[row + (0 if inside else 2), end] += schedule.fraction
        if not inside:
            per_nodes[layout[t.source], layout[t.destination]] += schedule.fraction
    return per_rank, per_nodes


def drawn(pattern: str, volume: float, layout: tuple[int, ...]) -> tuple[np.ndarray, Counter]:
    per_rank, per_nodes = np.zeros((4, len(layout))), Counter()
    for source, destination, share in zip(*layout_edges(pattern, layout), strict=True):
        inside = REDUCER in (source, destination) or layout[source] == layout[destination]
        for row, end in ((0, source), (1, destination)):
            if end != REDUCER:
                per_rank[row + (0 if inside else 2), end] += share * volume
        if not inside:
            per_nodes[layout[source], layout[destination]] += share * volume
    return per_rank, per_nodes


@pytest.mark.parametrize(("name", "op", "layout"), CASES)
def test_the_pattern_draws_the_bytes_that_the_transfers_move(name, op, layout):
    movement = ALGORITHMS[name].movement(op, 1.0, group_of(layout))
    moved, between = traffic(ALGORITHMS[name].schedule(op, layout), layout)
    drawn_here, drawn_between = drawn(movement.pattern, movement.volume, layout)
    assert set(between) == set(drawn_between)
    for nodes, amount in between.items():
        assert drawn_between[nodes] == pytest.approx(amount, rel=1e-12), nodes
    np.testing.assert_allclose(drawn_here[:2], moved[:2], rtol=1e-12, atol=1e-12)
    if movement.pattern not in ("chain", "chain_to_first"):  # whose NICs are those of rotated counterparts
        np.testing.assert_allclose(drawn_here[2:], moved[2:], rtol=1e-12, atol=1e-12)


LOWER_BOUND = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "broadcast_each": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}


@pytest.mark.parametrize(("name", "op", "layout"), CASES)
def test_no_fewer_bytes_move_than_the_lower_bound(name, op, layout):
    moved, _ = traffic(ALGORITHMS[name].schedule(op, layout), layout)
    n, received = len(layout), moved[1] + moved[3]
    if op == "shift":
        assert (received >= 1.0 - 1e-12).all()
    elif op in ("broadcast", "send_recv"):
        assert (received[1:] >= 1.0 - 1e-12).all()
    elif op == "reduce":
        assert (moved[0] + moved[2])[1:].min() >= 1.0 - 1e-12
    elif name == "in_network":  # the switch adds: one buffer out of and into every rank is enough
        assert received.mean() >= 1.0
    else:
        assert received.sum() >= n * LOWER_BOUND[op](n) - 1e-12


@pytest.mark.parametrize(("name", "op", "layout"), CASES)
def test_the_busiest_port_is_the_one_that_the_closed_form_uses(name, op, layout):
    movement = ALGORITHMS[name].movement(op, 1.0, group_of(layout))
    moved, between = traffic(ALGORITHMS[name].schedule(op, layout), layout)
    scale_up, nic = loads(movement.pattern, group_of(layout))
    nodes = max(layout) + 1
    out = [sum(v for (a, _), v in between.items() if a == node) for node in range(nodes)]
    into = [sum(v for (_, b), v in between.items() if b == node) for node in range(nodes)]
    assert scale_up * movement.volume == pytest.approx(moved[:2].max(), abs=1e-12)
    assert nic * movement.volume == pytest.approx(max(out + into), abs=1e-12)
