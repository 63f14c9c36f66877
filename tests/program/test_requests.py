"""Messages that wait for a request (gloo): when they move; worker threads; reductions that end a backward."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulator import load_cluster, load_workload
from simulator.costs.collectives import CollectiveCalibration, load_calibration
from simulator.costs.software import load_software
from simulator.engine.engine import execute
from simulator.program.builder import BuildOptions, Built, blueprint
from simulator.program.schedules import SCHEDULES
from simulator.program.schedules.lockstep import asked_after

MICRO_BATCHES = 8


def run(changes: dict[str, object], software: dict[str, object] | None = None, **library: object):
    """(program, timeline) of gpt-mini on two nodes, with changes to the workload, profile and library."""
    cluster = load_cluster("minicluster", 2)
    workload = load_workload("gpt-mini", {"global_batch": MICRO_BATCHES, "plan.micro_batch": 1, **changes})
    profile = load_software("torch-gloo").model_copy(update=software or {})
    calibration: CollectiveCalibration = load_calibration("gloo-tcp").model_copy(update=library)
    built: Built = blueprint(cluster, workload, profile, calibration, BuildOptions(fold=False)).build()
    return built.program, execute(built.program)


def messages(program, timeline) -> list[tuple[str, float, float]]:
    """(label, start, end) of everything that crosses between stages."""
    return [
        (task.label, timeline.start[i], timeline.end[i])
        for i, task in enumerate(program.tasks)
        if task.label in ("activation", "gradient")
    ]


def test_between_two_stages_of_1f1b_one_message_moves_at_a_time():
    program, timeline = run({"plan.pp": 2})
    moved = sorted(messages(program, timeline), key=lambda m: m[1])
    assert len(moved) == 2 * MICRO_BATCHES
    for (_, _, end), (_, start, _) in pairwise(moved):
        assert start >= end - 1e-9


OVERLAPPED = {"overlap": load_software("torch-gloo").overlap.model_copy(update={"pp": True})}
"""No sender waits for its message, no receiver until it is idle."""


def test_without_requests_both_directions_move_at_once():
    program, timeline = run({"plan.pp": 2}, OVERLAPPED, request=None)
    moved = sorted(messages(program, timeline), key=lambda m: m[1])
    assert any(start < end - 1e-9 for (_, _, end), (_, start, _) in pairwise(moved))


def test_no_message_moves_before_its_receiver_has_nothing_left_to_compute():
    program, timeline = run({"plan.pp": 2, "plan.schedule": "gpipe"})
    second = next(
        i for i, lane in enumerate(program.lanes) if lane.name == "compute" and lane.rank_class == 1
    )
    busy = [(timeline.start[task], timeline.end[task]) for task in program.queues[second]]
    for label, start, end in messages(program, timeline):
        if label == "activation":
            assert not any(begin < start - 1e-9 < stop - 2e-9 for begin, stop in busy), (start, end)


def test_requests_only_slow_a_pipeline_down():
    for changes in ({"plan.pp": 2}, {"plan.pp": 2, "plan.schedule": "gpipe"}, {"plan.pp": 2, "plan.vpp": 2}):
        free = run(changes, OVERLAPPED, request=None)[1].makespan
        assert run(changes)[1].makespan > free
        assert run(changes, OVERLAPPED)[1].makespan >= free - 1e-9


def test_a_stage_hears_of_the_last_gradient_after_the_reduction_only_where_backward_awaits_it():
    workload = {"plan.pp": 2, "global_batch": 16}

    def wait(awaits: bool) -> float:
        cluster = load_cluster("minicluster", 4)
        job = load_workload("gpt-mini", workload)
        profile = load_software("torch-gloo").model_copy(update={"backward_awaits_reduction": awaits})
        built = blueprint(
            cluster, job, profile, load_calibration("gloo-tcp"), BuildOptions(fold=False)
        ).build()
        return execute(built.program).makespan

    assert wait(True) > 1.1 * wait(False)


def test_two_threads_run_two_reductions_at_a_time_and_no_more():
    cluster = load_cluster("minicluster", 4)
    workload = load_workload("gpt-mini", {"plan.bucket_size": "100 kB"})
    library = load_calibration("gloo-tcp")
    for threads, most in ((1, 1), (2, 2)):
        profile, used = load_software("torch-gloo"), library.model_copy(update={"threads": threads})
        program = blueprint(cluster, workload, profile, used, BuildOptions(fold=True)).build().program
        timeline = execute(program)
        spans = [(timeline.start[i], timeline.end[i]) for i, t in enumerate(program.tasks) if t.kind == "dp"]
        together = max(sum(a <= start + 1e-9 < b - 1e-9 for a, b in spans) for start, _ in spans)
        assert together == most


@pytest.mark.parametrize(("stages", "chunks", "count"), [(2, 2, 8), (4, 2, 8), (4, 3, 12)])
def test_every_message_is_asked_for_before_the_action_that_needs_it(stages, chunks, count):
    schedules = [SCHEDULES["interleaved"](stage, stages, count, chunks) for stage in range(stages)]
    found = asked_after(schedules, chunks)
    last = stages * chunks - 1
    for stage, schedule in enumerate(schedules):
        for index, action in enumerate(schedule):
            virtual = action.chunk * stages + stage
            if virtual != (0 if action.op == "F" else last):
                assert found[stage].pop((action.op, virtual, action.micro_batch)) <= index
        assert not found[stage]


@pytest.mark.parametrize(
    ("stages", "chunks", "count"), [(2, 2, 4), (2, 2, 8), (4, 2, 8), (2, 3, 6), (4, 3, 8), (8, 2, 16)]
)
def test_receives_stand_where_pytorch_puts_them(stages, chunks, count):
    """Our schedule, with receives put into it by PyTorch's own lowering."""
    lowering = pytest.importorskip("torch.distributed.pipelining.schedules")
    if not hasattr(lowering, "_add_reduce_grad"):
        pytest.skip("a PyTorch whose runtime lists no reductions")
    schedules = [SCHEDULES["interleaved"](stage, stages, count, chunks) for stage in range(stages)]
    kinds = {"F": lowering._ComputationType.FORWARD, "B": lowering._ComputationType.FULL_BACKWARD}
    listed = {
        stage: [lowering._Action(a.chunk * stages + stage, kinds[a.op], a.micro_batch) for a in schedule]
        for stage, schedule in enumerate(schedules)
    }
    lowered = {
        stage: lowering._add_reduce_grad(lowering._add_unshard_reshard(actions), count)
        for stage, actions in listed.items()
    }
    complete = lowering._add_send_recv(lowered, lambda part: part % stages, stages * chunks)
    found = asked_after(schedules, chunks)
    for stage, actions in complete.items():
        done, expected = 0, {}
        for action in actions:
            if action in listed[stage]:
                done += 1
            elif action.computation_type.name.startswith("RECV"):
                kind = action.computation_type.name[-1]
                expected[kind, action.stage_index, action.microbatch_index] = done
        assert found[stage] == expected


def test_ends_of_a_pipeline_sum_a_shared_embedding():
    program, timeline = run({"plan.pp": 2, "model.tied_embeddings": True})
    (sums,) = [i for i, task in enumerate(program.tasks) if task.label == "reduce tied embedding"]
    assert timeline.end[sums] > timeline.start[sums]
