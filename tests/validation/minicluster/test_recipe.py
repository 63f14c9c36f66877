"""What ranks are asked to run is what the simulator prices: no kernel, collective or parameter more or less."""

from __future__ import annotations

import pytest

from simulator import load_cluster, load_workload, simulate
from simulator.description import DescriptionError
from simulator.validation.minicluster.recipe import Recipe, from_json, recipes

CASES = {
    "dp": (4, {}),
    "tp x dp": (4, {"plan.tp": 2}),
    "pipeline": (4, {"plan.pp": 4}),
    "interleaved": (2, {"plan.pp": 2, "plan.vpp": 2}),
    "context": (2, {"plan.cp": 2}),
    "fsdp": (4, {"plan.zero": 3}),
}


@pytest.fixture(params=CASES)
def case(request) -> tuple[list[Recipe], object, object]:
    ranks, changes = CASES[request.param]
    cluster, workload = load_cluster("minicluster", ranks), load_workload("gpt-mini", changes)
    return recipes(cluster, workload), cluster, workload


def computed(recipe: Recipe) -> float:
    """Seconds of one rank's kernels in a step."""
    actions = [
        a for chunk in recipe.chunks for layer in chunk.layers for a in (*layer.forward, *layer.backward)
    ]
    return recipe.num_micro_batches * sum(action.seconds for action in actions)


def test_recipes_survive_the_way_to_the_ranks(case):
    assert [from_json(recipe.to_json()) for recipe in case[0]] == case[0]


def test_micro_batches_of_unequal_documents_have_no_recipe():
    workload = load_workload("gpt-mini", {"workload.data.lengths": "wikipedia"})
    with pytest.raises(DescriptionError, match="recipes are of equal micro-batches"):
        recipes(load_cluster("minicluster", 4), workload)


def test_the_busiest_rank_computes_as_long_as_predicted(case):
    every, cluster, workload = case
    predicted = simulate(cluster, workload).breakdown_s
    assert max(map(computed, every)) == pytest.approx(predicted["compute"] + predicted["recompute"], rel=1e-6)


def test_stages_and_tensor_ranks_together_hold_every_parameter_once(case):
    every, _, workload = case
    plan = workload.plan
    replicas = len(every) // (plan.pp * plan.tp)
    held = sum(layer.num_parameters for recipe in every for chunk in recipe.chunks for layer in chunk.layers)
    split = sum(
        layer.parameters(workload.shard(frozenset(), "flash")).total for layer in workload.model.layers()
    )
    assert held == replicas * plan.tp * split


def test_what_one_stage_sends_the_next_receives(case):
    sent = {chunk.virtual: chunk.output_size for recipe in case[0] for chunk in recipe.chunks}
    received = {chunk.virtual: chunk.input_size for recipe in case[0] for chunk in recipe.chunks}
    for virtual in sent:
        assert received.get(virtual + 1, 0.0) == sent[virtual]


def test_groups_partition_the_ranks(case):
    for recipe in case[0]:
        for axis, groups in recipe.all_groups.items():
            assert sorted(rank for group in groups for rank in group) == list(range(recipe.num_ranks))
            assert recipe.rank in recipe.groups[axis]


def test_a_slower_node_is_asked_to_sleep_longer():
    every = recipes(load_cluster("minicluster-uneven"), load_workload("gpt-mini"))
    gemms = [computed(recipe) for recipe in every]
    assert gemms[0] == gemms[1] == gemms[2]
    assert 1.2 < gemms[3] / gemms[0] < 1 / 0.7 + 1e-9
