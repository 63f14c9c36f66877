"""Stages of unequal degrees: equal ones change nothing, closed forms, bytes and FLOPs keep their books."""

from __future__ import annotations

import re
from math import lcm
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from simulator.description import DescriptionError
from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, Built, blueprint, build
from simulator.simulation import SimulationOptions
from simulator.simulation import run as run_blueprint
from simulator.sweeps.objectives import objective
from simulator.sweeps.search import search
from simulator.workloads.layers import Layer, Module, Operation, Parameters, Shard
from simulator.workloads.model import FAMILIES, Model
from simulator.workloads.operators import MemoryBound
from simulator.workloads.workload import Workload
from tests.program.scenarios import FABRICS, LIBRARY, cluster, mixed_cluster, software, workload
from tests.program.test_closed_forms import ALL, FREE
from tests.program.test_folding_is_exact import SOFTWARE

QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FABRIC = {"kind": "single_switch", "hop_latency": 5e-7}
DEGREES = [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (1, 4), (1, 3), (2, 3)]


def stages(*degrees: tuple[int, int]) -> list[dict[str, int]]:
    return [{"tp": tp, "dp": dp} for tp, dp in degrees]


@st.composite
def settings_beside(draw: st.DrawFn, pp: int) -> dict[str, Any]:
    """What goes with stages of any degrees."""
    vpp = draw(st.sampled_from([1, 1, 2]))
    plan: dict[str, Any] = {"pp": pp, "vpp": vpp, "layers": pp * vpp * 2}
    plan["schedule"] = draw(st.sampled_from(["interleaved"] if vpp == 2 else ["gpipe", "1f1b", "zb-h1"]))
    plan["sequence_parallel"] = draw(st.booleans())
    plan["scatter_gather"] = draw(st.booleans())
    plan["zero"] = draw(st.sampled_from([0, 1, 3]))
    plan["recompute"] = draw(st.sampled_from(["none", "full"]))
    plan["overlap"] = {"dp_parameters": draw(st.booleans()), "pp": draw(st.booleans())}
    plan["cp"] = draw(st.sampled_from([1, 1, 2]))
    if draw(st.integers(0, 3)) == 0:
        plan["offload"] = {"optimizer": draw(st.sampled_from(["cpu", "swap"]))}
        plan["overlap"]["dp_parameters"] = False
    return plan


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Random stages on GPUs of one kind or two; nodes may hold parts of several stages."""
    pp = draw(st.sampled_from([2, 2, 3]))
    degrees = draw(st.lists(st.sampled_from(DEGREES), min_size=pp, max_size=pp))
    plan = draw(settings_beside(pp))
    plan["sequence_parallel"] &= any(tp > 1 for tp, _ in degrees)
    world = plan["cp"] * sum(tp * dp for tp, dp in degrees)
    per_node = draw(st.sampled_from([n for n in (1, 2, 4) if world % n == 0]))
    num_nodes, fabric = world // per_node, dict(draw(st.sampled_from(FABRICS)))
    mixed = num_nodes > 1 and draw(st.booleans())
    machine = (
        mixed_cluster(num_nodes // 2, num_nodes - num_nodes // 2, per_node, fabric)
        if mixed
        else cluster(num_nodes, per_node, per_node, fabric)
    )
    most = max(dp for _, dp in degrees)
    plan["micro_batch"] = lcm(*(dp for _, dp in degrees)) // most
    batch = plan["micro_batch"] * most * pp * draw(st.sampled_from([1, 2]))
    job = workload(global_batch=batch, stages=stages(*degrees), **plan)
    return machine, job, draw(st.sampled_from(SOFTWARE))


def makespan(scenario: tuple[Any, Any, Any], **options: bool) -> tuple[float, Built]:
    machine, job, profile = scenario
    built = build(machine, job, profile, LIBRARY, BuildOptions(**options))
    return execute(built.program).makespan, built


@QUICK
@given(st.data(), st.sampled_from([2, 3]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]))
def test_equal_degrees_are_the_uniform_plan_to_the_bit(
    data: st.DataObject, pp: int, tp: int, dp: int
) -> None:
    plan, profile = data.draw(settings_beside(pp)), data.draw(st.sampled_from(SOFTWARE))
    plan["sequence_parallel"] &= tp > 1
    batch = {"global_batch": 2 * pp * dp}
    machine = cluster(pp, tp * dp * plan["cp"], tp * dp * plan["cp"])
    uniform = makespan((machine, workload(tp=tp, dp=dp, **plan, **batch), profile))
    given_each = makespan((machine, workload(stages=stages(*[(tp, dp)] * pp), **plan, **batch), profile))
    assert given_each[0] == uniform[0]
    for one, other in ((given_each[1].program, uniform[1].program),):
        assert len(one.tasks) == len(other.tasks) and one.members == other.members
        assert one.initial_memory == other.initial_memory


@QUICK
@given(scenarios())
def test_folded_equals_unfolded_and_task_by_task(scenario: tuple[Any, Any, Any]) -> None:
    folded, built = makespan(scenario)
    assert folded == pytest.approx(makespan(scenario, fold=False)[0], rel=1e-9)
    assert folded == pytest.approx(makespan(scenario, collapse=False)[0], rel=1e-9)
    assert sum(built.program.members) == scenario[0].num_gpus


def repeated(scenario: tuple[Any, Any, Any], count: int) -> list[tuple[int, float]]:
    """(tasks, step) of so many micro-batches per stage, with most of them left out and with all."""
    machine, job, profile = scenario
    batch = count * job.plan.pp * job.plan.micro_batch * max(stage.dp for stage in job.plan.stages)
    design = blueprint(machine, job.model_copy(update={"global_batch": batch}), profile, LIBRARY)
    ran = [run_blueprint(design, SimulationOptions(periodic=periodic)) for periodic in (True, False)]
    return [(len(built.program.tasks), timeline.makespan) for built, timeline in ran]


@settings(QUICK, max_examples=5)
@given(scenarios(), st.integers(10, 20))
def test_micro_batches_that_are_left_out_change_nothing(scenario: tuple[Any, Any, Any], count: int) -> None:
    (_, short), (_, whole) = repeated(scenario, count)
    assert short == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("degrees", [((2, 1), (1, 2)), ((1, 4), (2, 1)), ((4, 1), (2, 2), (1, 2))])
def test_unequal_stages_repeat_themselves(degrees: tuple[tuple[int, int], ...]) -> None:
    machine = cluster(sum(tp * dp for tp, dp in degrees), 1, 1)
    job = workload(pp=len(degrees), layers=6, stages=stages(*degrees), sequence_parallel=True)
    (few, short), (many, whole) = repeated((machine, job, software()), 40)
    assert few < many / 2
    assert short == pytest.approx(whole, rel=1e-9)


@QUICK
@given(scenarios())
def test_flops_sum_to_the_count_of_the_model(scenario: tuple[Any, Any, Any]) -> None:
    machine, job, profile = scenario
    program = build(machine, job, profile, LIBRARY).program
    computed = 0.0
    for task in program.tasks:
        lanes = (program.lanes[lane] for lane in task.lanes)
        ranks = sum(program.members[lane.rank_class] for lane in lanes if lane.name == "compute")
        computed += ranks * sum(phase.flops for phase in task.phases if phase.kind == "compute")
    assert computed == pytest.approx(job.flops, rel=1e-9)


@pytest.mark.parametrize("degrees", [((4, 1), (2, 2)), ((1, 4), (2, 2)), ((1, 4), (4, 1))])
@pytest.mark.parametrize("cut", ["sequence_parallel", "scatter_gather", "zero"])
def test_messages_that_wait_for_requests_fold_too(degrees: tuple[tuple[int, int], ...], cut: str) -> None:
    library = LIBRARY.model_copy(update={"request": 20e-6})
    job = workload(pp=2, global_batch=8, stages=stages(*degrees), **{cut: True if cut != "zero" else 1})
    folded, unfolded = (
        execute(build(cluster(2, 4, 4), job, software(), library, BuildOptions(fold=fold)).program).makespan
        for fold in (True, False)
    )
    assert folded == pytest.approx(unfolded, rel=1e-9)


def crossed(job: Workload, machine: Any, label: str) -> float:
    """Bytes of all messages of that name in a step."""
    program = build(machine, job, software(), LIBRARY, BuildOptions(fold=False)).program
    return sum(task.phases[0].work for task in program.tasks if task.label == label)


@pytest.mark.parametrize("degrees", [((4, 1), (2, 2)), ((2, 2), (4, 1)), ((1, 3), (1, 1)), ((2, 3), (1, 2))])
@pytest.mark.parametrize(("cut", "copies"), [("sequence_parallel", 1), ("scatter_gather", 1), ("", 0)])
def test_boundary_tensors_cross_once_or_once_for_each_copy(
    degrees: tuple[tuple[int, int], ...], cut: str, copies: int
) -> None:
    if cut == "sequence_parallel" and max(tp for tp, _ in degrees) == 1:
        return
    machine = cluster(sum(tp * dp for tp, dp in degrees), 1, 1)
    size = 12 * 256 * 256 * 2.0  # samples x tokens x hidden x bytes
    plan = {cut: True} if cut else {"scatter_gather": False}
    micro = {((2, 3), (1, 2)): 2}.get(degrees, 1)  # samples that both numbers of replicas divide
    job = workload(pp=2, global_batch=12, micro_batch=micro, stages=stages(*degrees), **plan)
    assert crossed(job, machine, "activation") == pytest.approx(size * (copies or degrees[1][0]), rel=1e-12)
    assert crossed(job, machine, "gradient") == pytest.approx(size * (copies or degrees[0][0]), rel=1e-12)


def test_ends_of_unequal_degrees_send_each_other_the_rows_that_each_lacks() -> None:
    """Every replica of either end gets the other's sum: (2 + 3) tables of 1,024 x 256 elements of 4 bytes."""
    job = workload(pp=2, global_batch=6, micro_batch=2, stages=stages((4, 2), (1, 3)))
    machine = cluster(11, 1, 1)
    assert crossed(job, machine, "reduce tied embedding") == pytest.approx(5 * 1024 * 256 * 4.0, rel=1e-12)


class SharedOut(Module):
    """Kernels, one forward and two backward, that read `sample_bytes` of each sample over tp ranks."""

    def __init__(self, sample_bytes: float) -> None:
        self.name, self.source, self.sample_bytes = "shared", "input", sample_bytes

    def parameters(self, shard: Shard) -> Parameters:
        return Parameters()

    def _kernels(self, shard: Shard, label: str, count: int) -> list[Operation]:
        size = self.sample_bytes * shard.micro_batch / shard.tp
        return [Operation(label, MemoryBound("elementwise", size, 0.0))] * count

    def forward(self, shard: Shard) -> list[Operation]:
        return self._kernels(shard, "forward", 1)

    def backward(self, shard: Shard) -> list[Operation]:
        return self._kernels(shard, "input gradient", 2)


@FAMILIES.register("shared_out_blocks")
class SharedOutBlocks(Model):
    """Blocks whose time is that of their samples over the GPUs of a replica, and that send nothing."""

    family: Literal["shared_out_blocks"] = Field("shared_out_blocks", description="Always this.")
    num_layers: int = Field(alias="layers", description="Blocks.")

    def layers(self) -> tuple[Layer, ...]:
        return (Layer("block", "block", (SharedOut(8e9),), 0, 0),) * self.num_layers


def shared_out(layers: list[int], samples: int, **plan: Any) -> Workload:
    return Workload.model_validate(
        {
            "name": "shared out",
            "model": {"family": "shared_out_blocks", "layers": sum(layers)},
            "global_batch": samples,
            "sequence_length": 1,
            "precision": "bf16",
            "plan": {"optimizer": "sgd", "pp": len(layers), "layers_per_stage": layers, **plan},
        }
    )


def seconds(job: Workload, world: int) -> float:
    return execute(build(cluster(world, 1, 1), job, software(overlap=ALL), FREE).program).makespan


def forward(layers: int, samples: int, tp: int, dp: int) -> float:
    """Of a stage by itself, whose backward takes twice that."""
    return seconds(shared_out([layers], samples, tp=tp, dp=dp, micro_batch=samples // dp), tp * dp) / 3


@QUICK
@given(
    st.lists(st.sampled_from(DEGREES), min_size=2, max_size=2),
    st.lists(st.integers(1, 4), min_size=2, max_size=2),
    st.integers(1, 6),
)
def test_two_stages_that_only_compute_take_what_the_closed_form_says(
    degrees: list[tuple[int, int]], layers: list[int], count: int
) -> None:
    """GPipe: all through the slower stage and one through the other, there and back, whichever comes first.

    1F1B takes no longer.
    """
    together = lcm(*(dp for _, dp in degrees))
    plan = {"stages": stages(*degrees), "micro_batch": together // max(dp for _, dp in degrees)}
    world = sum(tp * dp for tp, dp in degrees)
    times = [forward(n, together, *degree) for n, degree in zip(layers, degrees, strict=True)]
    expected = 3 * (sum(times) + (count - 1) * max(times))
    gpipe = seconds(shared_out(layers, count * together, schedule="gpipe", **plan), world)
    assert gpipe == pytest.approx(expected, rel=1e-9)
    back = {**plan, "stages": plan["stages"][::-1]}
    turned = seconds(shared_out(layers[::-1], count * together, schedule="gpipe", **back), world)
    assert turned == pytest.approx(gpipe, rel=1e-9)
    assert seconds(shared_out(layers, count * together, **plan), world) <= expected * (1 + 1e-9)


def test_every_stage_holds_what_a_uniform_plan_of_its_degrees_does() -> None:
    degrees, plan = ((4, 1), (1, 2)), {"pp": 2, "zero": 1, "global_batch": 8}
    mixed = build(cluster(6, 1, 1), workload(stages=stages(*degrees), **plan), software(), LIBRARY)
    for stage, (tp, dp) in enumerate(degrees):
        own = workload(tp=tp, dp=dp, **plan, micro_batch=2 // dp)
        uniform = build(cluster(2 * tp * dp, 1, 1), own, software(), LIBRARY)
        held, expected = (
            {
                change.kind: change.amount
                for change in built.program.initial_memory
                if built.stage_of_class[change.rank_class] == stage
            }
            for built in (mixed, uniform)
        )
        assert held == expected


def test_auto_gives_a_stage_blocks_by_the_peaks_of_its_gpus() -> None:
    """312 TFLOP/s on each of 4 GPUs and 125 on each of 2: five blocks to one, where nothing but blocks costs."""
    machine = mixed_cluster(2, 1, 2, FABRIC)
    job = shared_out([6, 6], 4, stages=stages((1, 4), (2, 1)))
    plan = job.plan.model_copy(update={"layers_per_stage": "auto"})
    built = build(machine, job.model_copy(update={"plan": plan}), software(), FREE)
    blocks = [len(setting.content[stage][0].layers) for stage, setting in enumerate(built.settings)]
    assert blocks == [10, 2]


TWO = {"pp": 2, "stages": stages((2, 1), (1, 2))}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"pp": 4}, r"plan\.stages: has 2 entries, needs pp = 4"),
        ({"tp": 2}, r"plan\.tp: is given for each stage by plan\.stages"),
        ({"dp": 2}, r"plan\.dp: is given for each stage by plan\.stages"),
        ({"stages": stages((2, 2), (1, 3))}, r"plan\.stages\.0\.dp: 2 does not divide the 3 samples"),
        ({"stages": stages((3, 1), (1, 2))}, r"plan\.stages\.0\.tp: 3 does not divide 8 attention heads"),
        (
            {"stages": stages((1, 1), (1, 2)), "sequence_parallel": True},
            r"plan\.sequence_parallel: needs a stage with tp > 1",
        ),
        ({"order": ["pp", "tp", "cp", "dp"]}, r"plan\.order: pp must be the last"),
        ({"replica_batches": "balanced"}, r"plan\.replica_batches: does not go with"),
        ({"schedule": "dualpipe", "vpp": 2}, r"plan\.schedule: does not go with"),
        ({"synchronisation": {"scheme": "gossip"}}, r"plan\.synchronisation: does not go with"),
        ({"tp_z": 2, "micro_batch": 2}, r"plan\.tp_z: does not go with"),
    ],
)
def test_what_does_not_go_together_is_said_at_its_key(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError) as caught:
        workload(**{**TWO, **changes})
    faults = caught.value.errors()[0]["ctx"]["error"].faults
    assert any(re.match(fault, f"{key}: {message}") for key, message in faults), faults


def test_ranks_and_batch_are_counted_over_all_stages() -> None:
    job = workload(global_batch=7, **TWO)
    ((key, message),) = job.faults_on(8)
    assert key == "plan.stages" and message.startswith("tp x dp of the stages: 2 x 1 + 1 x 2 = 4 ranks")
    ((key, message),) = job.faults_on(4)
    assert key == "global_batch" and message == "on stage 0: 7 is not divisible by micro_batch 2 x dp 1 = 2"


def test_degrees_as_lists_and_search_lead_to_stages() -> None:
    with pytest.raises(ValidationError, match=r"differ by pipeline stage are plan\.stages"):
        workload(tp=[2, 1])
    machine = cluster(4, 1, 1)
    with pytest.raises(
        DescriptionError, match=r"plan\.stages: stages of unequal degrees have no lower bound"
    ):
        search(machine, workload(**TWO), objective("step_time", machine))
