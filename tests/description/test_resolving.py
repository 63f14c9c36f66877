"""References, `extends` and the catalogue: what a description stands for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator import load_cluster, load_workload
from simulator.description import DescriptionError, catalogue, load
from simulator.description.kinds import KINDS
from simulator.description.loading import resolve
from simulator.description.tree import plain


def faults_of(kind: str, name: str) -> list[str]:
    with pytest.raises(DescriptionError) as caught:
        load(kind, name)
    return [str(fault) for fault in caught.value.faults]


def test_names_inside_mappings_are_replaced_by_what_they_name(design: Path) -> None:
    cluster = load_cluster("cluster.yaml")
    assert cluster.num_gpus == 128
    assert (cluster.name, cluster.node.name, cluster.node.gpu.name) == ("cluster", "node", "gpu")
    assert cluster.node.gpu.peak("bf16") == 312e12


def test_paths_start_at_the_file_that_holds_them(design: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert load_cluster(str(design / "cluster.yaml")).num_gpus == 128


def test_extends_refines_key_by_key(design: Path) -> None:
    node = "{num_gpus: 4, gpu: {memory: {capacity: 40 GiB}}}"
    (design / "small.yaml").write_text(f"kind: cluster\nextends: cluster.yaml\nnum_nodes: 2\nnode: {node}\n")
    base, cluster = load_cluster("cluster.yaml"), load_cluster("small.yaml")
    assert (cluster.name, cluster.num_gpus) == ("small", 8)
    assert cluster.node.gpu.memory.capacity == 40 * 2**30
    assert cluster.node.gpu.memory.bandwidth == base.node.gpu.memory.bandwidth
    assert cluster.fabric == base.fabric


def test_a_mapping_that_extends_stands_for_itself(design: Path) -> None:
    (design / "big.yaml").write_text("kind: gpu\nextends: gpu.yaml\nsms: 200\n")
    text = "kind: cluster\nextends: cluster.yaml\nnode: {extends: node.yaml, gpu: ./big.yaml}\n"
    (design / "other.yaml").write_text(text)
    cluster = load_cluster("other.yaml")
    assert (cluster.node.gpu.name, cluster.node.gpu.sms) == ("big", 200)


def test_a_fabric_that_states_its_kind_replaces_the_one_extended(design: Path) -> None:
    torus = "{kind: torus, dimensions: [4, 4], bandwidth: 10 GB/s, hop_latency: 1 us}"
    (design / "torus.yaml").write_text(f"kind: cluster\nextends: cluster.yaml\nfabric: {torus}\n")
    (design / "more.yaml").write_text("kind: cluster\nextends: cluster.yaml\nfabric: {num_spines: 8}\n")
    assert load_cluster("torus.yaml").fabric.kind == "torus"
    assert load_cluster("more.yaml").fabric.num_spines == 8


def test_extends_goes_several_steps(design: Path) -> None:
    for step, base in enumerate(["gpu.yaml", "g0.yaml", "g1.yaml"]):
        (design / f"g{step}.yaml").write_text(f"kind: gpu\nextends: {base}\nsms: {step + 1}\n")
    assert load("gpu", "g2.yaml").sms == 3


def test_extending_in_a_circle_is_found(design: Path) -> None:
    (design / "a.yaml").write_text("kind: gpu\nextends: b.yaml\n")
    (design / "b.yaml").write_text("kind: gpu\nextends: a.yaml\n")
    found = faults_of("gpu", "a.yaml")
    assert any(
        "b.yaml:2:10: extends: a.yaml refers back to itself: a.yaml -> b.yaml -> a.yaml" in f for f in found
    )


def test_many_files_cannot_multiply_without_bound(design: Path) -> None:
    for level in range(12):
        (design / f"n{level}.yaml").write_text(
            f"extends: ./n{level + 1}.yaml\nnode: {{extends: ./n{level + 1}.yaml}}\n"
        )
    (design / "n12.yaml").write_text("groups: []\n")
    assert faults_of("cluster", "n0.yaml")


def test_an_unknown_name_gets_a_suggestion_and_hides_no_other_fault(design: Path) -> None:
    (design / "bad.yaml").write_text("kind: node\ngpu: a100-sxm-81\nnum_gpus: 8\nnum_gpu: 8\n")
    found = faults_of("node", "bad.yaml")
    assert found[1].startswith("bad.yaml:2:6: gpu: unknown gpu a100-sxm-81; did you mean a100-sxm-80?")
    assert any("num_gpu: unknown key" in fault for fault in found)
    assert not any("gpu: needs a mapping" in fault for fault in found)


def test_a_file_of_another_kind_is_refused(design: Path) -> None:
    assert faults_of("cluster", "node.yaml") == ["node.yaml:1:7: kind: is node, where a cluster is needed"]


def test_sources_are_text_and_never_references(design: Path) -> None:
    text = (design / "node.yaml").read_text() + "sources: {gpu: nvidia datasheet, nic: h100}\n"
    (design / "node.yaml").write_text(text)
    assert load("node", "node.yaml").sources == {"gpu": "nvidia datasheet", "nic": "h100"}


def test_reordering_keys_changes_nothing(design: Path) -> None:
    lines = (design / "cluster.yaml").read_text().splitlines()
    (design / "turned.yaml").write_text("\n".join([*reversed(lines), "name: cluster"]) + "\n")
    assert load_cluster("turned.yaml") == load_cluster("cluster.yaml")


def test_a_changed_file_is_read_again(design: Path) -> None:
    assert load_workload("workload.yaml").global_batch == 16
    text = (design / "workload.yaml").read_text()
    (design / "workload.yaml").write_text(text.replace("global_batch: 16", "global_batch: 3200"))
    assert load_workload("workload.yaml").global_batch == 3200


def test_a_description_may_be_given_as_a_mapping() -> None:
    nic = load("nic", {"vendor": "x", "bandwidth": "200 Gb/s", "latency": "1 us"})
    assert nic.bandwidth == 25e9


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].read_by])
def test_every_file_of_the_catalogue_is_valid(kind: str) -> None:
    for name in catalogue.names(kind):
        described = load(kind, name)
        assert getattr(described, "name", name) in (name, Path(name).name)


@pytest.mark.parametrize("kind", ["gpu", "nic", "node"])
def test_every_number_of_the_hardware_has_a_source(kind: str) -> None:
    for name in catalogue.names(kind):
        written = plain(resolve(kind, name)[0])
        sources = {source.split(".")[0] for source in written.pop("sources", {})}
        bare = [key for key in written if key not in ("gpu", "nic", "name") and has_number(written[key])]
        assert set(bare) <= sources, f"{kind} {name}: no source for {sorted(set(bare) - sources)}"


def has_number(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(has_number, value.values()))
    if isinstance(value, list):
        return any(map(has_number, value))
    is_quantity = isinstance(value, str) and re.match(r"[\d.]+ \S+$", value) is not None
    return is_quantity or (isinstance(value, int | float) and not isinstance(value, bool))


def test_resolving_leaves_no_reference_behind(design: Path) -> None:
    tree, faults = resolve("cluster", "cluster.yaml")
    assert not faults
    assert "extends" not in str(plain(tree)) and isinstance(plain(tree)["node"]["gpu"], dict)


def test_keys_of_an_unknown_base_are_not_called_missing(design: Path) -> None:
    (design / "lost.yaml").write_text(
        "kind: cluster\nextends: clouster.yaml\nnode: {gpu: {}}\nnum_nodes: two\n"
    )
    faults = faults_of("cluster", "lost.yaml")
    assert len(faults) == 2
    assert "extends: " in faults[0] and "num_nodes" in faults[1]
