"""One call from a cluster and a workload to a prediction."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from simulator.costs.collectives import library_for
from simulator.costs.kernels import SERVING, calibration_for
from simulator.costs.software import load_software
from simulator.description import catalogue
from simulator.description.faults import DescriptionError, Fault, KeyFaults
from simulator.engine.engine import EngineOptions, execute, execute_apart
from simulator.engine.postponing import Meeting
from simulator.engine.timeline import Repetition, Timeline
from simulator.hardware.topology import build_topology
from simulator.program.asynchrony import replica_paces, task_paces
from simulator.program.builder import Blueprint, BuildOptions, Built, blueprint
from simulator.program.host_copies import lacking
from simulator.program.independence import independent, shared_tasks
from simulator.program.server_links import lacking as no_servers
from simulator.program.steady_state import (
    LOCAL_STEPS,
    endless,
    lateness,
    lengths,
    local_step,
    num_steps_to_try,
    postponed,
    repetitions,
)
from simulator.results.data_use import data_use
from simulator.results.predict import predict
from simulator.results.prediction import Prediction

if TYPE_CHECKING:
    from simulator.description.base import Description
    from simulator.hardware.cluster import Cluster
    from simulator.hardware.gpu import GPU
    from simulator.workloads.workload import Workload

MODEL_VERSION = "1"
"""Changes whenever the same description may give another number."""


@dataclass(frozen=True)
class SimulationOptions:
    """`trace` keeps rates over time, and runs every micro-batch. The others switch exact savings, for tests."""

    trace: bool = False
    periodic: bool = True
    build: BuildOptions = field(default_factory=BuildOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)


def simulate(cluster: Cluster, workload: Workload, options: SimulationOptions | None = None) -> Prediction:
    """Predict one training step.

    Raises DescriptionError where the plan cannot run on the cluster (degrees, divisibility, unknown software). A plan
    that does not fit in memory is a result, not an error.
    """
    options = options or SimulationOptions()
    with _collector_paused():
        return _simulate(cluster, workload, options)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Nothing that a step makes is garbage before it ends, or afterwards: no object of it refers to itself.

    Looking for some costs a quarter of the time, half of it once the step is done. So what was made is put with what
    is old (frozen and released again), unless the process has frozen objects of its own.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _simulate(cluster: Cluster, workload: Workload, options: SimulationOptions) -> Prediction:
    began = perf_counter()
    check_runs(cluster, workload)
    plan, unsharding = assemble(cluster, workload, options.build), None
    if workload.plan.zero3.undecided is None:
        built, timeline = run(plan, options)
    else:
        from simulator.sweeps.unsharding import unshard

        found = unshard(
            cluster,
            workload,
            plan.setting,
            lambda decided: run(assemble(cluster, decided, options.build), options),
        )
        built, timeline, unsharding = found.taken.built, found.taken.timeline, found.meta
        workload = found.taken.workload
    meta = {
        "cluster": cluster.name,
        "workload": workload.name,
        "plan": workload.plan.model_dump(mode="json", exclude={"name", "sources", "kind"}),
        "version": MODEL_VERSION,
        "seed": 0,
        "engine": {
            "tasks": len(built.program.tasks),
            "events": timeline.num_events,
            "wall_s": perf_counter() - began,
            "folded_from": built.setting.layout.world,
        },
    }
    if unsharding is not None:
        meta["unsharding"] = unsharding
    if workload.data is not None:
        meta["data"] = data_use(built.setting)
    return predict(cluster, workload, built, timeline, meta)


def check_runs(cluster: Cluster, workload: Workload) -> None:
    """Raise DescriptionError with every reason why the workload cannot run on the cluster."""
    gpus = list(dict.fromkeys(group.node.gpu for group in cluster.node_groups))
    found = workload.faults_on(cluster.num_gpus)
    for gpu in gpus:
        if workload.precision not in gpu.dense_peak:
            message = f"{gpu.name or 'the GPU'} has no {workload.precision} peak (it has {', '.join(gpu.dense_peak)})"
            found.append(("precision", message))
    for node in dict.fromkeys(group.node for group in cluster.node_groups):
        found += [("plan.offload", message) for message in lacking(node, workload.plan)]
        found += [
            ("plan.synchronisation", message) for message in no_servers(node, workload.plan.synchronisation)
        ]
    faults = [workload.fault(key, message) for key, message in found]
    try:
        build_topology(cluster)
    except KeyFaults as error:
        faults += [cluster.fault(key, message) for key, message in error.faults]
    unknown = _unknown("software", workload.plan.software, workload, "plan.software")
    faults += unknown
    if not unknown and workload.plan.synchronisation.uses_servers:
        software = load_software(workload.plan.software)
        if software.servers is None:
            message = (
                f"{software.name} does not say what parameter servers cost (servers: network, dense, rows)"
            )
            faults.append(workload.fault("plan.software", message))
    faults += _unknown("collectives", cluster.software, cluster, "software")
    faults += [fault for gpu in gpus for fault in _unknown("kernels", gpu.calibration, gpu, "calibration")]
    faults += [
        workload.fault("plan.software", message) for message in _without_attention(workload, gpus, faults)
    ]
    if faults:
        raise DescriptionError(faults)


def _without_attention(workload: Workload, gpus: Sequence[GPU], faults: Sequence[Fault]) -> Iterator[str]:
    """Per GPU whose calibration has no speed for the attention of the software; nothing where names are unknown."""
    if faults or workload.plan.attention != "flash" or workload.model.attention_heads is None:
        return
    software = load_software(workload.plan.software)
    for gpu in gpus:
        known = sorted({SERVING, *calibration_for(gpu).attention.implementations})
        if software.flash_attention and software.flash_attention not in known:
            yield (
                f"{software.name} runs attention as {software.flash_attention!r}, which is not known of "
                f"{gpu.name or 'the GPU'} (known: {', '.join(known)}); "
                "take software made for it, or plan.attention: unfused"
            )


def _unknown(kind: str, name: str | None, owner: Description, key: str) -> list[Fault]:
    """The fault at `key` of the description that names a calibration which does not exist."""
    if name is None:
        return []
    try:
        catalogue.find(kind, name, at=owner.place_of(key), key=key)
    except DescriptionError as error:
        return error.faults
    return []


def run(plan: Blueprint, options: SimulationOptions) -> tuple[Built, Timeline]:
    """Execute the step; of a pipeline that repeats itself, as few micro-batches as show it."""
    setting = plan.setting
    if setting.overlaps_steps:
        return _run_endlessly(plan, options)
    if setting.plan.synchronisation.scheme == "asp":
        return _run_apart(plan, options)
    if setting.cycle > 1:
        return _run_cycle(plan, options)
    # Requests overtake each other; replicas or micro-batches that differ never repeat themselves.
    regular = setting.request is None and not setting.replica_counts and not setting.varies
    if options.periodic and not options.trace and regular:
        schedule = setting.plan.schedule_name
        shorter = lengths(schedule, setting.plan.pp, setting.plan.vpp, setting.num_micro_batches)
        for count, period in shorter:
            found = _run_shorter(plan.build(count), period, setting.num_micro_batches - count, options.engine)
            if found is not None:
                return found
    built = plan.build()
    return built, execute(built.program, trace=options.trace, options=options.engine)


def _run_shorter(
    built: Built, period: int, missing: int, options: EngineOptions
) -> tuple[Built, Timeline] | None:
    """Execute a step that `missing` micro-batches were left out of; None unless it shows what they would do."""
    program, parts = built.program, independent(built.program)
    if len(parts) == 1:
        timeline = execute(program, options=options)
        timeline.repetitions = repetitions(program, timeline, parts, period, missing)
        return (built, timeline) if timeline.repetitions else None
    found: list[Repetition] = []

    def late(so_far: Timeline) -> dict[int, float] | None:
        found.extend(repetitions(program, so_far, parts, period, missing))
        return lateness(found) if found else None

    apart = execute_apart(program, Meeting(frozenset(shared_tasks(program, parts)), late), options=options)
    if apart is None:
        return None
    apart.late = lateness(found)
    apart.repetitions = tuple(postponed(found, apart.late))
    return built, apart


def _run_endlessly(plan: Blueprint, options: SimulationOptions) -> tuple[Built, Timeline]:
    """Steps that run into one another, more and more of them until one in the middle is like the next."""
    setting = plan.setting
    for num_steps in num_steps_to_try(setting.plan.pp, setting.num_micro_batches):
        built = plan.build(num_steps=num_steps)
        timeline = execute(built.program, trace=options.trace, options=options.engine)
        found, exact = endless(built.program, timeline, setting.num_micro_batches)
        if exact:
            break
    timeline.repetitions = (found,)
    return built, timeline


def _run_cycle(plan: Blueprint, options: SimulationOptions) -> tuple[Built, Timeline]:
    """All steps until replicas meet as in the first one again; of many that are equal, as few as show it."""
    setting, cycle = plan.setting, plan.setting.cycle
    alike = setting.communicators.num_classes == setting.plan.pp and not setting.varies
    local = setting.plan.synchronisation.scheme == "local"
    shortens = options.periodic and not options.trace and alike and local and cycle > LOCAL_STEPS
    built = plan.build(num_steps=LOCAL_STEPS if shortens else cycle)
    timeline = execute(built.program, trace=options.trace, options=options.engine)
    if shortens:
        missing = cycle - LOCAL_STEPS
        left_out = local_step(built.program, timeline, setting.num_micro_batches, missing)
        timeline.repetitions = (left_out,)
    timeline.num_steps = cycle
    return built, timeline


def _run_apart(plan: Blueprint, options: SimulationOptions) -> tuple[Built, Timeline]:
    """Replicas that do not wait for one another: until the slowest has made its step, others have made several."""
    setting, folded = plan.setting, plan.communicators
    setting.steps_at_a_time = 1.0
    built = plan.build()
    timeline = execute(built.program, trace=options.trace, options=options.engine)
    pace = replica_paces(built.program, timeline, setting.grid, folded.folding.rank_class)
    steps = float((pace * built.program.members).sum() / sum(built.program.members))
    if steps > 1.0 + 1e-12:
        setting.steps_at_a_time = steps
        built = plan.build()
        timeline = execute(built.program, trace=options.trace, options=options.engine)
        timeline.times_run = task_paces(built.program, pace)
    timeline.num_steps = steps
    return built, timeline


def assemble(cluster: Cluster, workload: Workload, options: BuildOptions | None = None) -> Blueprint:
    """All of a step but its number of micro-batches, with the software and library that the descriptions name."""
    software = load_software(workload.plan.software)
    try:
        library = library_for(cluster.node_groups[0].node, cluster.software)
    except ValueError as error:  # nothing measured stands in for this hardware
        raise DescriptionError([cluster.fault("software", str(error))]) from None
    return blueprint(cluster, workload, software, library, options or BuildOptions())
