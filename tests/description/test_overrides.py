"""`--set` reaches every key, also those that the YAML leaves out, and says what is wrong with the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from simulator import load_cluster, load_workload
from simulator.description import DescriptionError
from simulator.description.fields import chosen, keys_of, owners
from simulator.description.overrides import split_settings


def message(call: object, *arguments: object, **named: object) -> str:
    with pytest.raises(DescriptionError) as caught:
        call(*arguments, **named)  # type: ignore[operator]
    return str(caught.value)


def test_settings_go_to_the_description_that_they_name() -> None:
    settings = [
        "plan.tp=8",
        "cluster.node.nic.bandwidth=400 Gb/s",
        "workload.global_batch=64",
        "model.layers=2",
    ]
    cluster, workload = split_settings(settings)
    assert cluster == {"node.nic.bandwidth": "400 Gb/s"}
    assert workload == {"plan.tp": "8", "global_batch": "64", "model.layers": "2"}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("plan.tp", "--set plan.tp: plan.tp: needs the form KEY=VALUE"),
        ("plann.tp=3", "--set plann.tp=3: plann.tp: unknown key plann; did you mean plan?"),
        ("tp=3", "tp: unknown key tp; did you mean plan.tp?"),
        ("layers=3", "did you mean model.layers?"),
        ("node.nic.bandwidth=3", "did you mean cluster.node.nic.bandwidth?"),
        ("=3", "needs the form KEY=VALUE"),
        ("cluster=selene", "name the key of the cluster"),
    ],
)
def test_a_setting_that_belongs_nowhere_is_a_fault(setting: str, expected: str) -> None:
    assert expected in message(split_settings, [setting])


def test_values_are_yaml(design: Path) -> None:
    changes = {"plan.dp": "null", "plan.sequence_parallel": "true", "plan.order": "[tp, dp, cp, pp]"}
    plan = load_workload("workload.yaml", changes).plan
    assert (plan.dp, plan.sequence_parallel, plan.order) == (None, True, ("tp", "dp", "cp", "pp"))


def test_plain_python_values_do_too(design: Path) -> None:
    plan = load_workload("workload.yaml", {"plan.tp": 4, "plan.overlap": {"tp": False}}).plan
    assert (plan.tp, plan.overlap.tp) == (4, False)


def test_mappings_that_the_file_leaves_out_are_made(design: Path) -> None:
    plan = load_workload("workload.yaml", {"plan.zero3.prefetch": "3", "plan.overlap.pp": "false"}).plan
    assert (plan.zero3.prefetch, plan.zero3.reshard_after_forward, plan.overlap.pp) == (3, True, False)


def test_names_and_whole_mappings_can_be_set(design: Path) -> None:
    torus = "{kind: torus, dimensions: [4, 4], bandwidth: 10 GB/s, hop_latency: 1 us}"
    changes = {"node.nic.bandwidth": "400 Gb/s", "node": "./node.yaml", "fabric": torus}
    cluster = load_cluster("cluster.yaml", overrides=changes)
    assert cluster.node.nic.bandwidth == 50e9  # the shorter key first, whatever the order
    assert cluster.fabric.kind == "torus"


def test_items_of_lists_are_reached_by_number(design: Path) -> None:
    (design / "mixed.yaml").write_text(
        "kind: cluster\ngroups: [{node: ./node.yaml, num_nodes: 1}, {node: ./node.yaml, num_nodes: 1}]\n"
        "fabric: {kind: single_switch, hop_latency: 1 us}\n"
    )
    cluster = load_cluster("mixed.yaml", overrides={"groups.1.num_nodes": "3", "groups.0.node.gpu.sms": "80"})
    assert [group.num_nodes for group in cluster.groups] == [1, 3]
    assert [group.node.gpu.sms for group in cluster.groups] == [80, 108]
    assert "is no position in this list (0 to 1)" in message(
        load_cluster, "mixed.yaml", overrides={"groups.2.num_nodes": "3"}
    )


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("plan.tpp", "8", "--set plan.tpp=8: plan.tpp: unknown key; did you mean tp?"),
        ("plan.tp", "eight", "--set plan.tp=eight: plan.tp: needs a whole number, not eight"),
        ("plan.tp.x", "1", "--set plan.tp.x=1: plan.tp: 2 has no keys below it"),
        ("plan.tp", "3", "--set plan.tp=3: plan.tp: 3 does not divide 8 attention heads"),
        ("plan.recompute", "ful", "did you mean full?"),
        (
            "model",
            "gpt3-175c",
            "--set model=gpt3-175c: model: unknown model gpt3-175c; did you mean gpt3-175b?",
        ),
        ("plan.order", "[tp", "is not valid YAML"),
        ("global_batch", "true", "--set workload.global_batch=true: global_batch: true is not a number"),
    ],
)
def test_faults_are_placed_at_the_setting(design: Path, key: str, value: str, expected: str) -> None:
    assert expected in message(load_workload, "workload.yaml", {key: value})


def leaves(cls: type[BaseModel], prefix: str = "", depth: int = 4) -> Iterator[str]:
    """Every dotted key that a description of this class can have."""
    for key, field in keys_of(cls).items():
        yield prefix + key
        for owner in owners(field.annotation, field.metadata):
            for inner in chosen(owner, None) if depth else []:
                yield from leaves(inner, f"{prefix}{key}.", depth - 1)


def test_every_key_of_the_classes_can_be_set(design: Path) -> None:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.workload import Workload

    for cls, load_it in ((Cluster, load_cluster), (Workload, load_workload)):
        for key in sorted(set(leaves(cls))):
            try:
                load_it(f"{cls.__name__.lower()}.yaml", overrides={key: "~nonsense~"})
            except DescriptionError as error:
                # reached: the only complaints are about the value, or a sibling or union branch it makes necessary
                own = [f for f in error.faults if f.key == key and f.message.startswith("unknown key")]
                branch = any(part in key for part in ("fabric.", "model.", "groups."))
                assert branch or not own, f"{key}: {own[0]}"
