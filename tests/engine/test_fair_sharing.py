"""Max-min rates against a linear-programming oracle, and the properties that define them."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from simulator.engine import max_min

Instance = tuple[list[float], list[tuple[tuple[int, float], ...]], list[float], list[float]]


@st.composite
def instances(draw: st.DrawFn, max_tasks: int = 8) -> Instance:
    num_resources = draw(st.integers(1, 5))
    capacities = draw(st.lists(st.floats(0.1, 10.0), min_size=num_resources, max_size=num_resources))
    demands, weights, caps = [], [], []
    for _ in range(draw(st.integers(1, max_tasks))):
        used = draw(st.lists(st.integers(0, num_resources - 1), unique=True, min_size=1, max_size=4))
        demands.append(tuple((r, draw(st.floats(0.1, 5.0))) for r in sorted(used)))
        weights.append(draw(st.floats(0.2, 5.0)))
        caps.append(draw(st.one_of(st.just(inf), st.floats(0.05, 5.0))))
    return capacities, demands, weights, caps


def lexicographic_rates(instance: Instance) -> list[float]:
    """Raises the lowest rate/weight as far as a linear program can, fixes those that can rise no further, repeats."""
    capacities, demands, weights, caps = instance
    n = len(demands)
    matrix = np.zeros((len(capacities), n))
    for i, draws in enumerate(demands):
        for resource, amount in draws:
            matrix[resource, i] = amount
    fixed: dict[int, float] = {}
    while len(fixed) < n:
        growing = [i for i in range(n) if i not in fixed]
        theta = _optimum(matrix, capacities, caps, weights, fixed, growing, None, 0.0)
        for i in growing:
            best = _optimum(matrix, capacities, caps, weights, fixed, growing, i, theta)
            if best <= weights[i] * theta * (1 + 1e-6):
                fixed[i] = weights[i] * theta
    return [fixed[i] for i in range(n)]


def _optimum(matrix, capacities, caps, weights, fixed, growing, raised, theta):
    """The largest common theta (`raised` None), or the largest rate of `raised` with all others at theta or more."""
    n = matrix.shape[1]
    rows = np.hstack([matrix, np.zeros((len(capacities), 1))])
    limits = list(capacities)
    for i in growing:  # weight x theta - rate <= 0
        row = np.zeros(n + 1)
        row[i], row[n] = -1.0, weights[i]
        rows = np.vstack([rows, row])
        limits.append(0.0)
    bounds = [(fixed[i], fixed[i]) if i in fixed else (0.0, caps[i]) for i in range(n)]
    bounds.append((0.0, None) if raised is None else (theta * (1 - 1e-9), theta * (1 - 1e-9)))
    cost = np.zeros(n + 1)
    cost[n if raised is None else raised] = -1.0
    limits = [limit * (1 + 1e-9) + 1e-12 for limit in limits]
    result = linprog(cost, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    assert result.status == 0, result.message
    return -result.fun


@settings(max_examples=60, deadline=None)
@given(instance=instances())
def test_rates_are_those_of_the_lexicographic_linear_program(instance: Instance) -> None:
    np.testing.assert_allclose(max_min(*instance), lexicographic_rates(instance), rtol=2e-6)


@given(instance=instances(max_tasks=20))
def test_no_resource_is_drawn_above_its_capacity(instance: Instance) -> None:
    capacities, demands, _, _ = instance
    use = np.zeros(len(capacities))
    for rate, draws in zip(max_min(*instance), demands, strict=True):
        for resource, amount in draws:
            use[resource] += rate * amount
    assert np.all(use <= np.array(capacities) * (1 + 1e-12))


@given(instance=instances(max_tasks=20))
def test_every_task_is_at_its_cap_or_the_fastest_for_its_weight_on_a_full_resource(
    instance: Instance,
) -> None:
    capacities, demands, weights, caps = instance
    rates = max_min(*instance)
    for i, draws in enumerate(demands):
        assert rates[i] <= caps[i]
        if rates[i] == caps[i]:
            continue
        bottlenecks = []
        for resource, _ in draws:
            users = [(j, dict(d)[resource]) for j, d in enumerate(demands) if resource in dict(d)]
            is_full = sum(rates[j] * amount for j, amount in users) >= capacities[resource] * (1 - 1e-9)
            fastest = max(rates[j] / weights[j] for j, _ in users)
            bottlenecks.append(is_full and rates[i] / weights[i] >= fastest * (1 - 1e-9))
        assert any(bottlenecks)


@given(instance=instances(max_tasks=12), factor=st.sampled_from((2.0**-40, 0.125, 64.0, 2.0**50)))
def test_rates_scale_with_capacities_and_caps(instance: Instance, factor: float) -> None:
    capacities, demands, weights, caps = instance
    scaled = max_min([c * factor for c in capacities], demands, weights, [c * factor for c in caps])
    assert scaled == [rate * factor for rate in max_min(*instance)]  # a power of two: bit for bit


@given(instance=instances(max_tasks=12), factor=st.sampled_from((0.25, 1024.0)))
def test_only_ratios_of_weights_matter(instance: Instance, factor: float) -> None:
    capacities, demands, weights, caps = instance
    assert max_min(capacities, demands, [w * factor for w in weights], caps) == max_min(*instance)


@given(instance=instances(max_tasks=12), unit=st.floats(1e-12, 1e12))
def test_the_unit_in_which_a_task_counts_its_work_does_not_matter(instance: Instance, unit: float) -> None:
    """A kernel counts seconds, a collective bytes: 1e11 apart, and still no digit is lost."""
    capacities, demands, weights, caps = instance
    other = max_min(
        capacities,
        [tuple((r, a / unit) for r, a in demands[0]), *demands[1:]],
        [weights[0] * unit, *weights[1:]],
        [caps[0] * unit, *caps[1:]],
    )
    other[0] /= unit
    np.testing.assert_allclose(other, max_min(*instance), rtol=1e-9)


@given(instance=instances(max_tasks=12), order=st.randoms(use_true_random=False))
def test_the_order_of_tasks_does_not_matter(instance: Instance, order) -> None:
    capacities, demands, weights, caps = instance
    places = list(range(len(demands)))
    order.shuffle(places)
    shuffled = max_min(
        capacities, [demands[i] for i in places], [weights[i] for i in places], [caps[i] for i in places]
    )
    np.testing.assert_allclose(shuffled, np.array(max_min(*instance))[places], rtol=1e-11)


@given(instance=instances(max_tasks=12), resource=st.integers(0, 4), factor=st.floats(1.0, 3.0))
def test_more_capacity_never_lowers_the_lowest_rate(instance: Instance, resource: int, factor: float) -> None:
    """The lowest rate/weight only: with several resources, others may lose."""
    capacities, demands, weights, caps = instance
    more = list(capacities)
    more[resource % len(more)] *= factor

    def lowest(rates: list[float]) -> float:
        return min(rate / weight for rate, weight in zip(rates, weights, strict=True))

    before, after = lowest(max_min(*instance)), lowest(max_min(more, demands, weights, caps))
    assert after >= before * (1 - 1e-12)


@given(
    capacity=st.floats(0.1, 10.0),
    weights=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=9),
)
def test_one_link_is_divided_in_proportion_to_weight(capacity: float, weights: list[float]) -> None:
    rates = max_min([capacity], [((0, 1.0),)] * len(weights), weights, [inf] * len(weights))
    np.testing.assert_allclose(rates, capacity * np.array(weights) / sum(weights), rtol=1e-12)


def test_three_flows_on_two_links_in_line() -> None:
    """The textbook instance: one flow crosses both links, each link has one flow of its own."""
    both, first, second = ((0, 1.0), (1, 1.0)), ((0, 1.0),), ((1, 1.0),)
    assert max_min([1.0, 3.0], [both, first, second], [1.0] * 3, [inf] * 3) == [0.5, 0.5, 2.5]


def test_what_a_capped_task_leaves_goes_to_the_others() -> None:
    assert max_min([10.0], [((0, 1.0),)] * 3, [1.0] * 3, [1.0, inf, inf]) == [1.0, 4.5, 4.5]


@pytest.mark.parametrize(
    ("capacities", "demands", "caps", "rates"),
    [
        ([0.0, 1.0], [((0, 1.0),), ((1, 1.0),)], [inf, inf], [0.0, 1.0]),
        ([inf], [((0, 1.0),), ((0, 2.0),)], [inf, 3.0], [inf, 3.0]),
        ([1.0], [(), ((0, 1.0),)], [inf, inf], [inf, 1.0]),
        ([1.0], [], [], []),
    ],
    ids=["no capacity", "endless capacity", "no draws", "no tasks"],
)
def test_limits_of_the_instance(capacities, demands, caps, rates) -> None:
    assert max_min(capacities, demands, [1.0] * len(demands), caps) == rates


def test_weights_that_differ_by_eleven_orders_of_magnitude_lose_no_digits() -> None:
    """The heavy task freezes at its cap first; what is left of the sum of weights is that of the light ones."""
    weights = [1e11 / 3, 1 / 3, 0.7]
    rates = max_min([1.0], [((0, 1.0),)] * 3, weights, [0.3, inf, inf])
    light = weights[1] + weights[2]
    np.testing.assert_allclose(rates, [0.3, 0.7 * weights[1] / light, 0.7 * weights[2] / light], rtol=1e-13)
