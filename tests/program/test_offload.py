"""What is kept off the GPU moves the bytes that it must, and leaves the GPU's memory."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.description import load
from simulator.engine.engine import execute
from simulator.engine.timeline import Timeline
from simulator.hardware.cluster import Cluster
from simulator.hardware.node import Node
from simulator.program import host_copies
from simulator.program.builder import Built, build
from simulator.results.memory import memory_report
from simulator.results.predict import predict
from simulator.simulation import simulate
from tests.program.scenarios import LIBRARY, cluster, node, software, workload

LINK = 32e9 * host_copies.HOST_LINK


def run(nodes: int = 1, gpus: int = 2, batches: int = 1, **plan: Any) -> tuple[Built, Timeline]:
    dp = nodes * gpus // plan.get("pp", 1)
    job = workload(layers=4, global_batch=batches * dp, **plan)
    built = build(cluster(nodes, gpus, 1), job, software(), LIBRARY)
    return built, execute(built.program)


def used(built: Built, timeline: Timeline, kind: str) -> float:
    """What was drawn on one resource of a kind."""
    found = [u for r, u in zip(built.program.resources, timeline.use.tolist(), strict=True) if r.kind == kind]
    return sum(found) / max(1, len(found))


def parameters(built: Built) -> float:
    return float(sum(unit.parameters.total for unit in built.setting.content[0][0].units))


def peak(built: Built, timeline: Timeline, kind: str) -> float:
    return max(one.by_kind.get(kind, 0.0) for one in timeline.memory)


@pytest.mark.parametrize("batches", [1, 3])
def test_activations_go_out_and_come_back_once_per_micro_batch(batches: int) -> None:
    built, timeline = run(batches=batches, offload={"activations": 1.0})
    (content,) = built.setting.content[0]
    kept = sum(p.layer.offloaded_bytes(p.shard) for p in content.layers)
    assert kept > 0.0
    for kind in ("host_out", "host_in"):
        assert used(built, timeline, kind) * host_copies.HOST_LINK == pytest.approx(batches * kept, rel=1e-9)


def test_a_swap_bound_step_follows_the_host_link() -> None:
    """LMS (arXiv 1811.12174): NVLink of 75 GB/s against PCIe of 16 GB/s, 4.7 times as fast where swapping is all."""
    steps = []
    for bandwidth in (75e9, 16e9):
        fast = {"dense_peak": {"fp32": 1e18, "bf16": 1e19}, "memory": {"capacity": 80e9, "bandwidth": 1e16}}
        host_link = {"kind": "host", "bandwidth": bandwidth}
        machine = Cluster.model_validate(
            {
                "node": node(1, 1, **fast, host_link=host_link),
                "num_nodes": 1,
                "fabric": {"kind": "single_switch", "hop_latency": 5e-7},
            }
        )
        job = workload(sequence_length=4096, offload={"activations": 1.0, "prefetch": 9}, micro_batch=16)
        steps.append(execute(build(machine, job, software(), LIBRARY).program).makespan)
    assert steps[1] / steps[0] == pytest.approx(75 / 16, rel=0.05)


def test_state_that_rests_on_the_host_is_counted_against_its_memory() -> None:
    built, timeline = run(gpus=2, zero=2, offload={"optimizer": "cpu", "activations": 1.0})
    report = memory_report(built, timeline)
    (content,) = built.setting.content[0]
    kept = sum(p.layer.offloaded_bytes(p.shard) for p in content.layers)
    assert report.host.peak_bytes == pytest.approx((12.0 + 4.0) * parameters(built) + 2 * kept, rel=1e-9)
    assert report.host.capacity_bytes == 1e12 and report.fits


def test_activations_on_the_host_leave_only_a_window_on_the_gpu() -> None:
    plain, moved = run(), run(offload={"activations": 1.0, "prefetch": 0})
    assert peak(*moved, "activations") < 0.6 * peak(*plain, "activations")
    part = run(offload={"activations": 0.5, "prefetch": 0})
    assert peak(*moved, "activations") < peak(*part, "activations") < peak(*plain, "activations")


def test_zero_offload_sends_gradients_out_and_parameters_in() -> None:
    """Rajbhandari et al. 2021: each rank moves its share of gradients and parameters once per step."""
    built, timeline = run(gpus=2, zero=2, offload={"optimizer": "cpu"})
    mine = parameters(built) / 2
    assert used(built, timeline, "host_out") * host_copies.HOST_LINK == pytest.approx(4.0 * mine, rel=1e-9)
    assert used(built, timeline, "host_in") * host_copies.HOST_LINK == pytest.approx(2.0 * mine, rel=1e-9)
    moved = 2 * mine * (2 * 12.0 + 4.0 + 2.0)  # both ranks: state read and written, gradients, parameters
    assert used(built, timeline, "cpu") == pytest.approx(moved * host_copies.CPU_ADAM_CORE_SECONDS, rel=1e-9)
    kinds = timeline.memory[0].by_kind
    assert "optimizer" not in kinds and "gradients" not in kinds


def test_swapped_state_comes_and_goes_and_the_gpu_updates() -> None:
    built, timeline = run(gpus=2, zero=2, offload={"optimizer": "swap"})
    state = 12.0 * parameters(built) / 2
    for kind in ("host_out", "host_in"):
        assert used(built, timeline, kind) * host_copies.HOST_LINK == pytest.approx(state, rel=1e-9)
    assert [t.label for t in built.program.tasks].count("update") > 1


def test_state_on_disk_passes_through_host_memory() -> None:
    built, timeline = run(gpus=2, zero=2, offload={"optimizer": "cpu", "optimizer_tier": "nvme"})
    state = 12.0 * parameters(built)  # of both ranks, whose disks are the node's
    for kind in ("disk_read", "disk_write"):
        assert used(built, timeline, kind) == pytest.approx(state, rel=1e-9)
    assert timeline.makespan >= state / 4e9


def test_parameters_at_rest_on_the_host_come_in_before_each_gather() -> None:
    built, timeline = run(gpus=2, zero=3, offload={"parameters": "host"})
    gathered = 2 * parameters(built) - built.setting.content[0][0].units[-1].parameters.total
    assert used(built, timeline, "host_in") * host_copies.HOST_LINK == pytest.approx(gathered, rel=1e-9)
    assert "parameters" not in timeline.memory[0].by_kind


def test_gpus_of_a_node_share_its_cores() -> None:
    """Twice the ranks on a node: half the state each, the same work for the CPU."""
    few, many = (run(gpus=gpus, zero=2, offload={"optimizer": "cpu"}) for gpus in (2, 4))
    seconds = [
        max(t.end[i] - t.start[i] for i, task in enumerate(b.program.tasks) if "cpu" in lanes_of(b, task))
        for b, t in (few, many)
    ]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.05)


def lanes_of(built: Built, task: Any) -> set[str]:
    return {built.program.lanes[lane].name for lane in task.lanes}


def test_pipelines_evict_and_fetch_every_micro_batch() -> None:
    built, timeline = run(gpus=2, batches=4, pp=2, offload={"activations": 1.0})
    out = [t for t in built.program.tasks if t.label == "evict activations"]
    assert len(out) == 2 * 2 * 4  # two blocks on each of two stages, four micro-batches
    assert timeline.makespan > 0.0


def test_a_node_without_a_described_host_cannot_offload() -> None:
    machine = cluster(1, 2, 1)
    bare = machine.model_copy(update={"node": machine.node_groups[0].node.model_copy(update={"cpu": None})})
    job = workload(global_batch=2, offload={"activations": 1.0}, software="megatron-2022")
    with pytest.raises(Exception, match="does not describe its host"):
        simulate(bare, job)


@pytest.mark.parametrize(("optimizer", "published"), [("cpu", (23.6, 25.9, 26.1))])
def test_cpu_adam_takes_as_long_as_published_for_70b_on_two_nodes(
    optimizer: str, published: tuple[float, ...]
) -> None:
    """DeepCompile (arXiv 2504.09983), 16 H100; the rate of CPU Adam is from the same source, the rest is not."""
    from simulator import load_cluster
    from simulator.workloads.workload import Workload

    for length, seconds in zip((512, 1024, 2048), published, strict=True):
        job = Workload.model_validate(
            {
                "model": load("model", "llama3-70b"),
                "global_batch": 16,
                "sequence_length": length,
                "precision": "bf16",
                "plan": {
                    "zero": 3,
                    "recompute": "full",
                    "software": "fsdp2-2024",
                    "parameter_dtype": "bf16",
                    "offload": {"optimizer": optimizer},
                },
            }
        )
        answer = simulate(load_cluster("hgx-h100-cluster", gpus=16), job)
        assert answer.step_time_s == pytest.approx(seconds, rel=0.12)
        assert answer.breakdown_s["offload"] > 0.8 * answer.step_time_s


def test_the_breakdown_shows_what_waits_for_the_host() -> None:
    built, timeline = run(gpus=1, offload={"optimizer": "cpu"})
    job = built.setting.workload
    answer = predict(cluster(1, 1, 1), job, built, timeline, {})
    assert answer.breakdown_s["offload"] > 0.0
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-9)


@pytest.mark.parametrize("part", [0.25, 0.5, 0.6])
def test_what_is_kept_longest_goes_out_of_the_first_blocks(part: float) -> None:
    each = run(offload={"activations": part})
    longest = run(offload={"activations": part, "choice": "longest"})
    for kind in ("host_out", "host_in"):
        assert used(*longest, kind) == pytest.approx(used(*each, kind), rel=1e-9)
    (content,) = longest[0].setting.content[0]
    blocks = [p for p in content.layers if p.layer.kind == "block"]
    whole = blocks[0].layer.activation_bytes(blocks[0].shard) + blocks[0].layer.offloaded_bytes(
        blocks[0].shard
    )
    shares = [p.layer.offloaded_bytes(p.shard) / whole for p in blocks]
    left = [min(1.0, max(0.0, part * len(blocks) - place)) for place in range(len(blocks))]
    assert shares == pytest.approx(left, abs=1e-9)


def test_activations_kept_longest_have_time_to_come_back() -> None:
    """The last blocks' are needed at once: sent out all the same, they are waited for."""
    times = {}
    for choice in ("each", "longest"):
        offload = {"activations": 0.5, "choice": choice, "prefetch": 4}
        job = workload(
            layers=8, hidden=1024, sequence_length=2048, micro_batch=4, global_batch=4, offload=offload
        )
        timeline = execute(build(cluster(1, 1, 1), job, software(), LIBRARY).program)
        times[choice] = timeline.makespan
    assert times["longest"] < times["each"]


@pytest.mark.parametrize("uplinks", [1, 2, 4])
def test_gpus_behind_one_uplink_share_it(uplinks: int) -> None:
    """Swap-bound: four GPUs over so many links to the host take 4 / links times as long as each over its own."""
    fast = {"dense_peak": {"fp32": 1e18, "bf16": 1e19}, "memory": {"capacity": 80e9, "bandwidth": 1e16}}
    job = workload(
        sequence_length=4096, micro_batch=16, global_batch=64, offload={"activations": 1.0, "prefetch": 9}
    )
    steps = []
    for shared in (None, uplinks):
        described = node(4, 4, **fast) | {"host_uplinks": shared}
        described["cpu"] = {"cores": 32, "memory": 1e12, "memory_bandwidth": 1e13}
        fabric = {"kind": "single_switch", "hop_latency": 5e-7}
        machine = Cluster.model_validate(
            {"name": "shared", "node": described, "num_nodes": 1, "fabric": fabric}
        )
        steps.append(execute(build(machine, job, software(), LIBRARY).program).makespan)
    assert steps[1] / steps[0] == pytest.approx(4 / uplinks, rel=0.02)


def test_more_uplinks_than_gpus_are_refused() -> None:
    with pytest.raises(ValueError, match="3 for 2 GPUs; at most one each"):
        Node.model_validate(node(2, 1) | {"host_uplinks": 3})
