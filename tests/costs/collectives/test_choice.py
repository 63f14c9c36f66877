"""Times and choices of collectives: closed forms, monotony, exact bytes, refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.costs.collectives import (
    CollectiveCalibration,
    GroupShape,
    collective_cost,
    collective_seconds,
    load_calibration,
)
from simulator.costs.collectives.library import OperationFactors, Protocol
from simulator.costs.collectives.tuning import Tuner
from simulator.description import catalogue

ALPHA, BANDWIDTH = 3e-6, 200e9
ALL = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")


def plain(**changes: object) -> CollectiveCalibration:
    """A library of pure alpha and beta: no base, every hop ALPHA, links used in full."""
    rates = {"simple": Protocol(base=0.0, hop=ALPHA, network_hop=ALPHA, scale_up=1.0)}
    names = ("ring", "tree", "halving_doubling", "hierarchical", "in_network", "direct", "point_to_point")
    choices = dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"), ("ring",))
    fields: dict[str, object] = {
        "library": "nccl",
        "architecture": "ampere",
        "interconnect": "nvswitch",
        "algorithms": dict.fromkeys(names, rates),
        "choices": {**choices, "all_to_all": ("direct",), "send_recv": ("point_to_point",)},
        "gpu_share": 0.1,
    }
    return CollectiveCalibration.model_validate({**fields, **changes})


def group(n: int, nodes: int = 1, **changes: float | bool) -> GroupShape:
    fields = {
        "scale_up_bandwidth": BANDWIDTH,
        "nic_bandwidth": BANDWIDTH / 4 if nodes > 1 else 0.0,
        **changes,
    }
    return GroupShape(num_ranks=n, num_nodes=nodes, **fields)


def seconds(op: str, size: float, shape: GroupShape, library: CollectiveCalibration) -> float:
    return collective_seconds(collective_cost(op, size, shape, library), shape)


@given(n=st.integers(2, 72), size=st.floats(1.0, 1e10))
def test_ring_all_reduce_alone_takes_exactly_its_closed_form(n: int, size: float) -> None:
    expected = 2 * (n - 1) / n * size / BANDWIDTH + 2 * (n - 1) * ALPHA
    assert seconds("all_reduce", size, group(n), plain()) == pytest.approx(expected, rel=1e-12)


@given(n=st.integers(2, 72), size=st.floats(1.0, 1e10))
def test_gather_scatter_and_all_to_all_take_their_closed_forms(n: int, size: float) -> None:
    expected = (n - 1) / n * size / BANDWIDTH + (n - 1) * ALPHA
    for op in ("all_gather", "reduce_scatter", "all_to_all"):
        assert seconds(op, size, group(n), plain()) == pytest.approx(expected, rel=1e-12), op


@given(nodes=st.integers(2, 64), per_node=st.integers(1, 8), size=st.floats(1e3, 1e10))
def test_a_ring_across_nodes_is_held_up_by_the_nics_of_a_node(nodes: int, per_node: int, size: float) -> None:
    n, shape = nodes * per_node, group(nodes * per_node, nodes)
    expected = 2 * (n - 1) / n * size / (BANDWIDTH / 4) + 2 * (n - 1) * ALPHA
    assert seconds("all_reduce", size, shape, plain()) == pytest.approx(expected, rel=1e-12)


@given(nodes=st.integers(2, 64), per_node=st.integers(1, 8), size=st.floats(1e3, 1e10))
def test_messages_of_an_all_to_all_wait_for_the_network_once(nodes: int, per_node: int, size: float) -> None:
    n, latency = nodes * per_node, 5e-6
    shape = group(n, nodes, hop_latency=latency)
    through_nics = per_node * (n - per_node) * size / n / (BANDWIDTH / 4)
    expected = through_nics + (n - 1) * ALPHA + ALPHA + latency
    assert seconds("all_to_all", size, shape, plain()) == pytest.approx(expected, rel=1e-12)


@given(nodes=st.sampled_from([2, 4, 8, 16]), size=st.floats(1e3, 1e10))
def test_halving_doubling_across_nodes_is_as_wide_as_a_ring_in_logarithmic_steps(
    nodes: int, size: float
) -> None:
    library = plain().forced("all_reduce", "halving_doubling")
    steps = nodes.bit_length() - 1
    expected = 2 * (nodes - 1) / nodes * size / (BANDWIDTH / 4) + 2 * steps * ALPHA
    assert seconds("all_reduce", size, group(nodes, nodes), library) == pytest.approx(expected, rel=1e-12)


def test_a_wait_that_streaming_hides_costs_what_is_longer_of_the_two() -> None:
    shape, wait = group(16, 2, hop_latency=1e-3), 1e-3 + 15 * ALPHA  # 14 hops within nodes, one between
    for size in (1e6, 1e8, 1e10):
        transfer = 15 / 16 * size / (BANDWIDTH / 4)
        hidden = seconds("all_gather", size, shape, plain(network_overlap=2.0))
        assert hidden == pytest.approx((wait**2 + transfer**2) ** 0.5, rel=1e-9)
        assert seconds("all_gather", size, shape, plain()) == pytest.approx(wait + transfer, rel=1e-9)


def test_halving_doubling_on_twelve_ranks_folds_and_ends() -> None:
    library = plain().forced("all_reduce", "halving_doubling")
    size = 1e9
    # Ranks 0-3 also receive and return a whole buffer for ranks 8-11; eight exchange 2 x 7/8 of it.
    expected = (2 * 7 / 8 + 1) * size / BANDWIDTH + 2 * (3 + 1) * ALPHA
    assert seconds("all_reduce", size, group(12), library) == pytest.approx(expected, rel=1e-12)


def test_a_tree_over_two_nodes_sends_half_of_what_a_ring_sends_between_them() -> None:
    shape = group(2, 2)
    tree = plain().forced("all_reduce", "tree")
    wide = 1e12
    assert seconds("all_reduce", wide, shape, tree) == pytest.approx(wide / (BANDWIDTH / 4), rel=1e-6)


@pytest.mark.parametrize("nodes", [3, 4, 5, 8, 16, 33])
def test_no_node_of_a_double_tree_sends_more_than_twice_the_buffer(nodes: int) -> None:
    tree = plain().forced("all_reduce", "tree")
    size = 1e12
    time = seconds("all_reduce", size, group(nodes, nodes), tree)
    assert time <= 2.5 * size / (BANDWIDTH / 4) * (1 + 1e-6)
    assert nodes % 2 or time <= 2.0 * size / (BANDWIDTH / 4) * (1 + 1e-6)


@given(
    size=st.integers(1, 2**33),
    n=st.integers(2, 12),
    op=st.sampled_from(ALL),
)
def test_a_size_that_does_not_divide_changes_nothing_in_the_bytes(size: int, n: int, op: str) -> None:
    one = collective_cost(op, 1.0, group(n), plain())
    assert collective_cost(op, float(size), group(n), plain()).volume == pytest.approx(
        size * one.volume, rel=1e-12
    )


CALIBRATIONS = catalogue.names("collectives")


def shaped(n: int, nodes: int, library: CollectiveCalibration, scale: float = 1.0) -> GroupShape:
    return GroupShape(
        num_ranks=n * nodes,
        num_nodes=nodes,
        in_network_reduction="in_network" in library.algorithms,
        scale_up_bandwidth=(library.scale_up_bandwidth or 10e9) * scale,
        nic_bandwidth=50e9 * n * scale if nodes > 1 else 0.0,
        hop_latency=3e-6,
    )


@pytest.mark.parametrize("name", CALIBRATIONS)
@given(
    sizes=st.tuples(st.floats(1.0, 1e10), st.floats(1.0, 1e10)),
    n=st.sampled_from([1, 2, 3, 4, 8]),
    nodes=st.sampled_from([1, 2, 5, 64]),
    op=st.sampled_from(ALL),
)
def test_a_larger_collective_never_takes_less_time(
    name: str, sizes: tuple[float, float], n: int, nodes: int, op: str
) -> None:
    library = load_calibration(name)
    shape = shaped(n, nodes, library)
    small, large = sorted(sizes)
    assert seconds(op, small, shape, library) <= seconds(op, large, shape, library) * (1 + 1e-9)


@pytest.mark.parametrize("name", CALIBRATIONS)
@given(
    size=st.floats(1.0, 1e10),
    faster=st.floats(1.0, 10.0),
    n=st.sampled_from([2, 4, 8]),
    nodes=st.sampled_from([1, 2, 64]),
    op=st.sampled_from(ALL),
)
def test_more_bandwidth_never_makes_a_collective_slower(
    name: str, size: float, faster: float, n: int, nodes: int, op: str
) -> None:
    library = load_calibration(name)
    slow, fast = shaped(n, nodes, library), shaped(n, nodes, library, faster)
    assert seconds(op, size, fast, library) <= seconds(op, size, slow, library) * (1 + 1e-9)


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_no_collective_beats_the_ports_it_crosses(name: str) -> None:
    library, size = load_calibration(name), 1e9
    inside = shaped(8, 1, library)
    for op, bytes_sent in {"all_reduce": 1.0, "broadcast": 1 / 8, "reduce": 1 / 8}.items():
        assert seconds(op, size, inside, library) >= bytes_sent * size / inside.scale_up_bandwidth, op
    for op in ("all_gather", "reduce_scatter", "all_to_all"):
        assert seconds(op, size, inside, library) >= 7 / 8 * size / inside.scale_up_bandwidth, op
    across = shaped(8, 4, library)
    for op in ("all_reduce", "all_gather", "reduce_scatter"):  # what three nodes hold has to enter the fourth
        assert seconds(op, size, across, library) >= 3 / 4 * size / across.nic_bandwidth, op
    assert seconds("all_to_all", size, across, library) >= 8 * 24 / 32 * size / across.nic_bandwidth


def test_one_rank_or_no_bytes_cost_nothing() -> None:
    for cost in (
        collective_cost("all_reduce", 1e9, group(1), plain()),
        collective_cost("all_gather", 0.0, group(8), plain()),
    ):
        assert (cost.latency, cost.volume, cost.pattern, cost.gpu_share) == (0.0, 0.0, "none", 0.0)
        assert collective_seconds(cost, group(8)) == 0.0


def test_a_library_takes_the_fastest_of_its_algorithms() -> None:
    library = plain(choices={**plain().choices, "all_reduce": ("ring", "tree")})
    shape = group(128, 16)
    assert collective_cost("all_reduce", 1e4, shape, library).algorithm == "tree"  # few steps
    assert collective_cost("all_reduce", 1e11, shape, library).algorithm == "ring"  # (n-1)/n of the bytes


def test_where_the_tuner_errs_it_is_followed_not_the_stopwatch() -> None:
    fast = Protocol(base=1e-6, hop=1e-6, scale_up=0.5)
    slow = Protocol(base=50e-6, hop=1e-6, scale_up=0.9)
    library = plain(
        algorithms={**plain().algorithms, "ring": {"ll": fast, "simple": slow}},
        tuner=Tuner(ring=240e9, ll=80e9, ll128=1e9),
    )
    # LL: 7.2 us and 160 GB/s, simple: 11.8 us and 480 GB/s by its tables
    change = 4.6e-6 / (1 / 160e9 - 1 / 480e9)
    assert collective_cost("all_gather", 0.99 * change, group(2), library).protocol == "ll"
    assert collective_cost("all_gather", 1.01 * change, group(2), library).protocol == "simple"
    assert (
        collective_cost("all_gather", 1.01 * change, group(16, 8), library).protocol == "ll"
    )  # not its model


def test_the_copy_of_a_rank_s_own_part_costs_time_but_no_link_bytes() -> None:
    size, shape = 8e8, group(8)
    factors = {"all_gather": OperationFactors(scale_up=1.0, nic=1.0, local=2.0)}
    library = plain(operations=factors, scale_up_bandwidth=BANDWIDTH)
    extra = seconds("all_gather", size, shape, library) - seconds("all_gather", size, shape, plain())
    assert extra == pytest.approx(size / 8 / (2.0 * BANDWIDTH), rel=1e-9)
    assert collective_cost("all_gather", size, shape, library).volume == pytest.approx(7 / 8 * size)


@pytest.mark.parametrize(
    ("op", "size", "shape", "message"),
    [
        ("all_shuffle", 1.0, group(4), "unknown collective 'all_shuffle'"),
        ("all_reduce", -1.0, group(4), "cannot be -1.0 bytes"),
        ("all_reduce", float("nan"), group(4), "cannot be nan bytes"),
        ("send_recv", 1.0, group(3), "between 2 ranks, not 3"),
        ("all_reduce", 1.0, GroupShape(num_ranks=4), "over scale_up links, but the group has none"),
        ("all_reduce", 1.0, GroupShape(num_ranks=4, num_nodes=4), "over nic links, but the group has none"),
    ],
)
def test_what_cannot_be_done_is_an_error(op: str, size: float, shape: GroupShape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collective_cost(op, size, shape, plain())


def test_refusals_name_every_algorithm_and_its_reason() -> None:
    uneven = group(5, 2, ranks_per_node=3)
    with pytest.raises(ValueError, match="equally many ranks on every node, got 5 ranks on 2 nodes"):
        collective_cost("all_reduce", 1e6, uneven, plain().forced("all_reduce", "hierarchical"))
    with pytest.raises(ValueError, match="needs a scale-up switch that reduces"):
        collective_cost("all_reduce", 1e6, group(8), plain().forced("all_reduce", "in_network"))


@pytest.mark.parametrize(("n", "nodes", "fullest"), [(4, 5, 0), (4, 0, 0), (9, 2, 4), (9, 2, 9), (4, 4, 2)])
def test_members_that_cannot_be_laid_out_are_refused(n: int, nodes: int, fullest: int) -> None:
    with pytest.raises(ValueError, match="cannot lie on"):
        GroupShape(num_ranks=n, num_nodes=nodes, ranks_per_node=fullest)


def test_rings_through_the_host_are_faster_while_their_buffers_stay_in_its_caches() -> None:
    direct, staged = plain(), plain(host_cache=2.0**20, host_cached=2.0)

    def gain(op: str, size: float, ranks: int, nodes: int = 1) -> float:
        at = group(ranks, nodes)
        moving = [
            collective_seconds(cost, at) - cost.latency
            for cost in (collective_cost(op, size, at, library) for library in (direct, staged))
        ]
        return moving[0] / moving[1]

    fits = 2.0**20 / 8  # eight chunks lie between neighbours at a time
    assert [gain("all_reduce", fits, 4), gain("all_gather", fits, 8)] == pytest.approx([2.0, 2.0])
    assert [gain("all_reduce", fits + 1, 4), gain("all_to_all", fits, 4)] == pytest.approx([1.0, 1.0])
    pair, nodes = gain("all_reduce", fits, 2), gain("all_reduce", fits, 8, 2)  # a pair needs no host
    assert [pair, nodes] == pytest.approx([1.0, 1.0])
