"""What makes a plan impossible: one function per rule, each yielding (key, message) faults with the numbers.

Keys are relative to the workload (`plan.tp`, `global_batch`). Rules that need no cluster are
`WORKLOAD_CHECKS`; `check_ranks` and `check_batch` also need the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from simulator.description.faults import listing, suggestion
from simulator.workloads.data import documents_of
from simulator.workloads.operators import DTYPE_BYTES
from simulator.workloads.plan import Dealing
from simulator.workloads.synchronisation import Synchronisation, strides

if TYPE_CHECKING:
    from simulator.workloads.plan import Plan
    from simulator.workloads.workload import Workload

Faults = Iterator[tuple[str, str]]
Check = Callable[["Workload"], Faults]


def check_ranks(workload: Workload, num_gpus: int) -> Faults:
    """The degrees multiply to the number of GPUs."""
    plan = workload.plan
    if plan.dp is None:
        if num_gpus % plan.model_ranks:
            equation = f"tp {_tensor(plan)} x pp {plan.pp} x cp {plan.cp} = {plan.model_ranks}"
            yield "plan.tp", f"{equation} ranks per replica do not divide the {num_gpus} GPUs of the cluster"
        return
    ranks = plan.model_ranks * plan.dp
    if ranks != num_gpus:
        equation = f"tp {_tensor(plan)} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp} = {ranks} ranks"
        key = next(
            (f"plan.{axis}" for axis in ("dp", "pp", "tp", "cp") if getattr(plan, axis) != 1), "plan.dp"
        )
        yield key, f"{equation}, but the cluster has {num_gpus} GPUs"


def _tensor(plan: Plan) -> str:
    if plan.tensor_ranks == plan.tp:
        return str(plan.tp)
    return f"{plan.tp} x tp_x {plan.tp_x} x tp_z {plan.tp_z}"


def check_batch(workload: Workload, num_gpus: int) -> Faults:
    """The global batch is whole micro-batches on every replica, and enough of them for the schedule."""
    plan = workload.plan
    dp = plan.contributing(num_gpus)
    step = plan.micro_batch * dp
    if plan.replica_batches != "even":
        yield from _check_uneven_batches(workload, dp)
        return
    if workload.deals:
        return  # check_dealing says what does not go with it
    samples = f"global_batch {workload.global_batch}"
    if workload.data is not None:
        samples = f"{len(workload.rows)} rows of documents"
    elif workload.global_batch % step:
        message = (
            f"{workload.global_batch} is not divisible by micro_batch {plan.micro_batch} x dp {dp} = {step}"
        )
        yield "global_batch", message
        return
    count = workload.num_micro_batches(num_gpus)
    fixed = _fixed_micro_batches(plan)
    if fixed not in (None, count):
        yield "plan.schedule", f"{plan.schedule_name} is for {fixed} micro-batches, but there are {count}"
    if _needs_even(plan) and count % 2:
        message = f"{plan.schedule_name} sends half of the micro-batches each way, but there are {count}"
        yield "plan.schedule", message
    if plan.schedule_name == "interleaved" and plan.pp > 1 and count % plan.pp:
        message = (
            f"interleaved needs micro-batches in groups of pp {plan.pp}, but there are {count}: "
            f"{samples} / (micro_batch {plan.micro_batch} x dp {dp})"
        )
        yield "plan.schedule", message


def _check_uneven_batches(workload: Workload, dp: int) -> Faults:
    """Uneven replicas: whole micro-batches in all, at least one each; and nothing that every micro-batch shares."""
    plan = workload.plan
    total, rest = divmod(workload.global_batch, plan.micro_batch)
    given = plan.replica_batches
    if rest:
        yield "global_batch", f"{workload.global_batch} is not divisible by micro_batch {plan.micro_batch}"
    elif total < dp:
        yield "global_batch", f"{total} micro-batches do not give one to each of {dp} replicas"
    elif not isinstance(given, str) and (len(given) != dp or sum(given) != total or min(given) < 1):
        wanted = f"{dp} numbers of at least 1 that add up to {total}"
        yield "plan.replica_batches", f"{list(given)}: needs {wanted} (global_batch / micro_batch)"
    if plan.zero > 1:
        yield (
            "plan.zero",
            f"zero {plan.zero} meets after every micro-batch, of which replicas have unequal numbers",
        )
    if _needs_even(plan):
        yield "plan.schedule", f"{plan.schedule_name} needs equal and even numbers of micro-batches"
    if plan.schedule_name == "interleaved" and plan.pp > 1:
        yield (
            "plan.schedule",
            "interleaved needs equal numbers of micro-batches, but replica_batches are uneven",
        )


def _needs_even(plan: Plan) -> bool:
    from simulator.program.schedules import SCHEDULES

    schedule = SCHEDULES.get(plan.schedule_name)
    return schedule is not None and schedule.even


def _fixed_micro_batches(plan: Plan) -> int | None:
    from simulator.program.schedules import find_schedule

    schedule = find_schedule(plan.schedule_name)
    return None if schedule is None else schedule.num_micro_batches


def check_replicas(workload: Workload, num_gpus: int) -> Faults:
    """There are replicas to spare, or as many as groups and neighbours need."""
    plan, synchronisation = workload.plan, workload.plan.synchronisation
    dp, key = plan.data_parallel(num_gpus), "plan.synchronisation"
    if synchronisation.scheme == "backup" and synchronisation.backup >= dp:
        yield f"{key}.backup", f"{synchronisation.backup} of dp {dp} replicas leaves none to wait for"
    if synchronisation.scheme == "gossip" and synchronisation.neighbours >= dp > 1:
        yield f"{key}.neighbours", f"{synchronisation.neighbours} is more than the other {dp - 1} of dp {dp}"
    group = synchronisation.group
    if synchronisation.scheme != "groups" or group is None or group >= dp:
        return
    if synchronisation.shuffle == "rotate" and dp % group:
        yield f"{key}.group", f"{group} does not divide dp {dp}"
    if synchronisation.shuffle == "stride":
        try:
            strides(dp, group)
        except ValueError as error:
            yield f"{key}.group", str(error)


def check_expert_group(workload: Workload, num_gpus: int) -> Faults:
    """Expert groups divide the plane of data, context and the tensor parallelism that experts do not use."""
    plan = workload.plan
    if plan.tp % plan.expert_tp:
        return  # check_experts says so
    over = plan.tp // plan.expert_tp
    plane = plan.data_parallel(num_gpus) * plan.cp * over
    if plane % plan.ep:
        rest = f" x tp / experts.tp {over}" if over > 1 else ""
        yield "plan.ep", f"{plan.ep} does not divide dp x cp{rest} = {plane}"


def check_dealt_tables(workload: Workload, num_gpus: int) -> Faults:
    """Tables that are dealt out are there once: their rows are never summed over copies."""
    plan = workload.plan
    dp = plan.data_parallel(num_gpus)
    if plan.ep == dp or (plan.ep == 1 and plan.table_memory == "hbm"):
        return
    if workload.model.deals_tables:
        yield (
            "plan.ep",
            f"{plan.ep}: tables are dealt out over all replicas (dp {dp}), or stand on each GPU (1)",
        )


def check_shard_group(workload: Workload, num_gpus: int) -> Faults:
    """Groups that share one copy divide the data-parallel ranks, and hold whole copies of the experts."""
    plan = workload.plan
    groups, ranks = plan.zero3, plan.data_parallel(num_gpus) * plan.cp
    group = groups.shard_group
    if group is not None and ranks % group:
        yield "plan.zero3.shard_group", f"{group} does not divide dp x cp = {ranks}"
    elif group is not None and plan.ep > 1:
        wide, experts = group * plan.tp, plan.ep * plan.expert_tp
        if wide % experts and experts % wide:
            message = (
                f"{group} x tp {plan.tp} = {wide} and ep x experts.tp = {experts} do not divide one another"
            )
            yield "plan.zero3.shard_group", message
    shared, name = (ranks, "dp x cp") if group is None else (group, "shard_group")
    if groups.secondary_group is not None and shared % groups.secondary_group:
        yield "plan.zero3.secondary_group", f"{groups.secondary_group} does not divide {name} = {shared}"


def check_shard_parts(workload: Workload, num_gpus: int) -> Faults:
    """Unequal shards: one ratio per rank of dp x cp, and nothing that divides or leaves shards once more."""
    plan = workload.plan
    groups, ranks = plan.zero3, plan.data_parallel(num_gpus) * plan.cp
    if groups.parts == "even":
        return
    parts = groups.parts
    if not isinstance(parts, str) and (len(parts) != ranks or min(parts) < 0 or sum(parts) <= 0):
        yield (
            "plan.zero3.parts",
            f"{list(parts)}: needs {ranks} numbers (dp x cp), none below 0 and one above",
        )
    others = {
        "plan.zero3.shard_group": groups.shard_group is not None,
        "plan.zero3.secondary_group": groups.secondary_group is not None,
        "plan.zero3.fraction": groups.fraction < 1.0 or bool(groups.fractions),
        "plan.offload": plan.offload.optimizer != "none" or plan.offload.parameters != "none",
        "plan.ep": plan.ep > 1,
    }
    for key, used in others.items():
        if used:
            yield key, "does not go with unequal shards (zero3.parts)"


def check_model_sharding(workload: Workload) -> Faults:
    """Heads, feed-forward width, experts divide by the degrees."""
    plan = workload.plan
    for key, message in workload.model.sharding_faults(plan.tp, plan.cp, plan.ep, plan.experts.tp):
        yield f"plan.{key}", message


def check_tensor_grid(workload: Workload) -> Faults:
    """More dimensions of tensor parallelism: widths and samples divide, and nothing else splits tokens."""
    plan, model = workload.plan, workload.model
    if plan.tp_x * plan.tp_z == 1:
        return
    key = "plan.tp_x" if plan.tp_x > 1 else "plan.tp_z"
    if not model.splits_over_grid:
        yield key, f"{model.name or 'this model'} splits over tp alone"
    for other, used in (("sequence_parallel", plan.sequence_parallel), ("cp", plan.cp > 1)):
        if used:
            yield key, f"does not go with {other}"
    if plan.micro_batch % plan.tp_z:
        yield "plan.tp_z", f"{plan.tp_z} does not divide micro_batch {plan.micro_batch}"
    hidden = getattr(model, "hidden", plan.tp_x)
    if hidden % plan.tp_x:
        yield "plan.tp_x", f"{plan.tp_x} does not divide hidden {hidden}"


def check_experts(workload: Workload) -> Faults:
    """GPUs that split an expert are among those that split other layers, and route different tokens if fewer."""
    plan = workload.plan
    if plan.experts.domain is not None and plan.ep % plan.experts.domain:
        yield "plan.experts.domain", f"{plan.experts.domain} does not divide ep {plan.ep}"
    if plan.tp % plan.expert_tp:
        yield "plan.experts.tp", f"{plan.expert_tp} does not divide tp {plan.tp}"
    elif plan.expert_tp < plan.tp and not plan.sequence_parallel:
        yield (
            "plan.experts.tp",
            f"{plan.expert_tp} below tp {plan.tp} needs sequence_parallel: tp ranks hold the same tokens without it",
        )


def check_sequence(workload: Workload) -> Faults:
    """The sequence fits the model and divides over cp (two halves each, for balance) and tp."""
    plan, length = workload.plan, workload.sequence_length
    longest = workload.model.longest_sequence
    if longest is not None and length > longest:
        yield "sequence_length", f"{length} is longer than the model's position table of {longest}"
    if workload.data is not None and workload.data.padding != "full":
        return  # rows are filled up to what divides
    zigzag = plan.cp > 1 and plan.context_layout == "zigzag"
    parts = 2 * plan.cp if zigzag else plan.cp
    if length % parts:
        yield "plan.cp", f"sequence_length {length} is not divisible by {'2 x ' * zigzag}cp = {parts}"
    elif plan.sequence_parallel and (length // plan.cp) % plan.tp:
        yield (
            "plan.tp",
            f"{plan.tp} does not divide the {length // plan.cp} tokens of a sequence (sequence_parallel)",
        )


def check_data(workload: Workload) -> Faults:
    """Documents can be drawn, and model and plan can tell them apart."""
    data, plan, model = workload.data, workload.plan, workload.model
    if data is None:
        return
    try:
        documents_of(data, workload.global_batch, workload.sequence_length)
    except ValueError as error:
        yield "data.longer", str(error)
    other_lengths = any(layer.length is not None for layer in model.layers())
    if model.attention_heads is None or other_lengths:
        yield "data", f"{model.name or 'this model'} has no attention that tells documents apart"
    if plan.tensor_ranks > plan.tp:
        yield "data", "does not go with tp_x or tp_z, which split the samples of a micro-batch"
    if plan.replica_batches != "even":
        yield "plan.replica_batches", "must be even with data, whose rows are dealt in turn"
    if plan.attention == "unfused" and data.padding == "none":
        yield "data.padding", "none needs attention: flash; unfused attention computes whole rows"
    rings = plan.cp > 1 and plan.context_exchange in ("ring", "usp") and plan.cp > (plan.ulysses or 1)
    windows = any(getattr(module, "window", None) for layer in model.layers() for module in layer.modules)
    if rings and windows:
        yield (
            "plan.context_exchange",
            f"{plan.context_exchange} does not go with a sliding window over documents of unequal length; use "
            "all_to_all or all_gather",
        )


def check_dealing(workload: Workload) -> Faults:
    """Groups that documents are dealt to: widths that halve down to one, and no pipeline through them."""
    plan, data = workload.plan, workload.data
    dealing = plan.dealing
    if not workload.deals or data is None:
        if dealing != Dealing():
            yield "plan.dealing", "is for documents (data with packing: dealt)"
        return
    if plan.pp > 1:
        yield "plan.pp", "must be 1 where documents are dealt to groups"
    if plan.micro_batch > 1:
        yield "plan.micro_batch", "must be 1 where documents are dealt: groups hold tokens, not samples"
    if data.mask == "row" or data.padding == "full":
        yield "data.packing", "dealt has no rows, which mask: row and padding: full are about"
    if plan.attention == "unfused":
        yield "plan.attention", "unfused attention computes rows, of which dealt documents have none"
    if plan.context_exchange == "usp":
        yield "plan.context_exchange", "usp has groups of one width; use all_to_all or ring"
    if dealing.groups == "mixed" and dealing.rule == "best_fit":
        yield "plan.dealing.rule", "best_fit fills groups of one width; mixed ones are balanced"
    if dealing.groups != "static" and plan.cp & (plan.cp - 1):
        yield "plan.cp", f"{plan.cp} is no power of two, which the widths of {dealing.groups} groups are"
    widths = [2**i for i in range(1, plan.cp.bit_length())] if dealing.groups != "static" else [plan.cp]
    if dealing.costs is not None:
        missing = [width for width in widths if width > 1 and width not in dealing.costs.bandwidth]
        if missing:
            yield (
                "plan.dealing.costs.bandwidth",
                f"has no rate for groups of {listing(list(map(str, missing)))} GPUs",
            )


def check_context_exchange(workload: Workload) -> Faults:
    """An exchange of heads divides them; a ring needs a fused kernel."""
    plan = workload.plan
    exchange, heads = plan.context_exchange, workload.model.attention_heads
    if plan.ulysses is not None and exchange != "usp":
        yield "plan.ulysses", f"is for context_exchange: usp, which is {exchange}"
    if plan.cp == 1 or heads is None:
        return
    if exchange == "usp" and plan.ulysses is None:
        yield "plan.ulysses", "usp needs it: GPUs of cp that exchange heads for tokens"
    elif exchange == "usp" and plan.cp % (plan.ulysses or 1):
        yield "plan.ulysses", f"{plan.ulysses} does not divide cp {plan.cp}"
    ways, name = {"all_to_all": (plan.cp, "cp"), "usp": (plan.ulysses or 1, "ulysses")}.get(exchange, (1, ""))
    if heads % (plan.tp * ways):
        yield f"plan.{name}", f"{exchange} needs heads {heads} divisible by tp {plan.tp} x {name} {ways}"
    if exchange in ("ring", "usp") and plan.attention == "unfused":
        yield (
            "plan.context_exchange",
            f"{exchange} needs attention: flash; unfused attention can use all_gather",
        )


def check_layers(workload: Workload) -> Faults:
    """Blocks divide over stages and chunks, or are laid out by hand."""
    plan, blocks = workload.plan, workload.model.num_blocks
    stages = _num_parts(plan)
    if plan.layers_per_stage is None:
        if blocks % stages:
            cut = "" if stages == plan.pp else f" x vpp {plan.vpp} = {stages}"
            message = f"{blocks} layers are not divisible by pp {plan.pp}{cut}"
            yield "plan.pp", f"{message}; give layers_per_stage to divide them unevenly"
        return
    layout = plan.layers_per_stage
    if layout == "auto":
        return
    if len(layout) not in (plan.pp, stages):
        wanted = f"pp = {plan.pp}" + (f" or pp x vpp = {stages}" if stages > plan.pp else "")
        yield "plan.layers_per_stage", f"has {len(layout)} entries, needs {wanted}"
    elif sum(layout) != blocks:
        yield "plan.layers_per_stage", f"sums to {sum(layout)}, but the model has {blocks} layers"
    elif min(layout) < 0:
        yield "plan.layers_per_stage", f"{min(layout)} is negative"


def _num_parts(plan: Plan) -> int:
    """Parts into which the schedule cuts the model."""
    from simulator.importers.pipeline_csv import ScheduleError
    from simulator.program.schedules import find_schedule

    try:
        schedule = find_schedule(plan.schedule_name)
    except (ScheduleError, OSError):
        schedule = None  # check_schedule says so
    if schedule is None or schedule.copies == 1:
        return plan.pp * plan.vpp
    return schedule.placement(plan.pp, plan.vpp).num_parts


def check_side_by_side(workload: Workload) -> Faults:
    """What `overlap.ep` runs side by side is there, and nothing else happens between its layers."""
    from simulator.program.schedules import SCHEDULES

    plan = workload.plan
    if plan.overlap.shared_expert and plan.overlap.ep:
        yield (
            "plan.overlap.shared_expert",
            "computes with the other micro-batch under overlap.ep; give one of them",
        )
    if not plan.overlap.ep:
        return
    schedule = SCHEDULES.get(plan.schedule_name)
    doubled = schedule is not None and schedule.copies > 1
    if plan.pp > 1 and plan.vpp == 1 and not doubled:
        yield "plan.overlap.ep", "needs a pipeline with vpp > 1 or schedule: dualpipe, or pp: 1"
    elif plan.schedule_name not in ("1f1b", "interleaved") and not doubled:
        yield (
            "plan.overlap.ep",
            f"{plan.schedule_name} runs no forward beside a backward; use dualpipe or interleaved",
        )
    if plan.zero >= 2:
        yield (
            "plan.overlap.ep",
            f"zero {plan.zero} shares out layer by layer, which is not modelled beside another",
        )
    if plan.offload.activations:
        yield (
            "plan.overlap.ep",
            "activations that leave the GPU layer by layer are not modelled beside another",
        )


def check_schedule(workload: Workload) -> Faults:
    """The schedule exists and agrees with the numbers of stages and chunks."""
    from simulator.importers.pipeline_csv import ScheduleError
    from simulator.program.schedules import SCHEDULES, find_schedule

    plan, name = workload.plan, workload.plan.schedule_name
    try:
        schedule = find_schedule(name)
    except (ScheduleError, OSError) as error:
        yield "plan.schedule", f"{name}: {error}"
        return
    if schedule is None:
        known = sorted(SCHEDULES)
        missing = f"there is no file {name!r}" if name.endswith(".csv") else f"unknown schedule {name!r}"
        yield "plan.schedule", f"{missing}{suggestion(name, known)} (known: {listing(known)}, or a file.csv)"
    elif schedule.num_stages not in (None, plan.pp):
        yield "plan.pp", f"{name} is for {schedule.num_stages} stages, but pp is {plan.pp}"
    elif plan.vpp > 1 and schedule.chunks == 1:
        yield "plan.vpp", f"{plan.vpp} chunks per stage need an interleaved schedule, not {name}"
    elif schedule.chunks not in (None, plan.vpp):
        yield "plan.vpp", f"{name} needs {schedule.chunks} chunks per stage, but vpp is {plan.vpp}"
    elif plan.vpp > 1 and plan.pp == 1:
        yield "plan.vpp", f"{plan.vpp} chunks per stage need pp > 1"
    elif schedule.even and plan.pp % 2:
        yield "plan.pp", f"{name} needs an even number of stages, but pp is {plan.pp}"
    elif schedule.copies > 1 and plan.zero >= 2:
        yield "plan.zero", f"{name} keeps every part of the model twice; use zero 0 or 1, not {plan.zero}"


def check_sequence_parallel(workload: Workload) -> Faults:
    """Sequence parallelism splits over the tensor-parallel group."""
    if workload.plan.sequence_parallel and workload.plan.tp == 1:
        yield "plan.sequence_parallel", "needs tp > 1, but tp is 1"


def check_zero(workload: Workload) -> Faults:
    """ZeRO 2 and 3 reduce gradients after every micro-batch, which a pipeline's accumulation defeats."""
    plan = workload.plan
    if plan.zero == 2 and plan.pp > 1:
        yield (
            "plan.zero",
            f"zero 2 cannot accumulate over the micro-batches of pp {plan.pp}; use zero 1 (or 3)",
        )
    kinds = dict.fromkeys(layer.kind for layer in workload.model.layers())
    for kind in plan.zero3.fractions:
        if kind not in kinds:
            hint = suggestion(kind, kinds)
            yield (
                "plan.zero3.fractions",
                f"unknown kind of layer {kind!r}{hint} (this model has: {listing(list(kinds))})",
            )
    if plan.zero == 3:
        return
    given = plan.zero3.model_dump(exclude={"prefetch", "reshard_after_forward"}, exclude_defaults=True)
    for key in given:
        yield f"plan.zero3.{key}", f"needs zero 3, but zero is {plan.zero}"


def check_offload(workload: Workload) -> Faults:
    """What leaves the GPU is there to leave it."""
    plan = workload.plan
    if plan.offload.parameters != "none" and plan.zero != 3:
        yield "plan.offload.parameters", f"needs zero 3, but zero is {plan.zero}"
    if plan.offload.optimizer != "none" and plan.overlap.dp_parameters and plan.zero in (1, 2):
        yield (
            "plan.offload.optimizer",
            "updates that come from the host cannot be gathered behind the next forward (overlap.dp_parameters)",
        )


def check_synchronisation(workload: Workload) -> Faults:
    """Options go with their scheme; replicas that differ in parameters share out nothing and flush."""
    plan, synchronisation = workload.plan, workload.plan.synchronisation
    key, scheme = "plan.synchronisation", synchronisation.scheme
    owners = {
        "every": "local",
        "group": "groups",
        "shuffle": "groups",
        "neighbours": "gossip",
        "backup": "backup",
    }
    for option, owner in owners.items():
        if _is_set(synchronisation, option) and scheme != owner:
            yield f"{key}.{option}", f"is for scheme: {owner}, which is {scheme}"
    if scheme == "groups" and synchronisation.group is None:
        yield f"{key}.group", "groups needs it: how many replicas average together"
    if synchronisation.averages_parameters and synchronisation.encodes:
        yield f"{key}.compression", f"is for gradients, but {scheme} exchanges parameters"
    yield from _check_servers(workload)
    if scheme == "bsp":
        return
    if scheme not in ("backup", "asp") and plan.zero:
        yield (
            "plan.zero",
            f"zero {plan.zero} shares out what replicas have in common, but under {scheme} they differ",
        )
    for axis in ("cp", "ep"):
        if getattr(plan, axis) > 1:
            yield (
                f"plan.{axis}",
                f"{axis} {getattr(plan, axis)} does not go with synchronisation scheme {scheme}",
            )
    from simulator.program.schedules import find_schedule

    schedule = find_schedule(plan.schedule_name) if not plan.schedule_name.endswith(".csv") else None
    if plan.overlap.steps or (schedule is not None and not schedule.flushes):
        yield key + ".scheme", f"{scheme} needs steps that end (no overlap.steps, a schedule that flushes)"
    if plan.replica_batches != "even" and scheme == "backup":
        yield "plan.replica_batches", "backup replicas stand in for one another: even batches only"


def _is_set(synchronisation: Synchronisation, option: str) -> bool:
    return bool(getattr(synchronisation, option) != type(synchronisation).model_fields[option].default)


def _check_servers(workload: Workload) -> Faults:
    """What servers hold is not shared out too, and sparse gradients need tables."""
    plan, synchronisation, key = workload.plan, workload.plan.synchronisation, "plan.synchronisation"
    if synchronisation.sparse != "dense" and not workload.model.has_tables:
        yield f"{key}.sparse", f"{synchronisation.sparse} needs a model with tables; this one has none"
    if synchronisation.scheme == "asp" and (
        synchronisation.dense != "servers" or synchronisation.sparse == "gathered"
    ):
        yield f"{key}.scheme", "asp needs servers (dense: servers, and sparse: servers for tables)"
    for option in ("servers", "table_parts", "local_aggregation"):
        if _is_set(synchronisation, option) and not synchronisation.uses_servers:
            yield f"{key}.{option}", "is for dense or sparse: servers"
    if synchronisation.dense == "collectives" and synchronisation.sparse == "dense":
        return
    if plan.zero:
        yield "plan.zero", f"zero {plan.zero} does not go with parameters on servers, or sparse gradients"
    for axis in ("cp", "ep"):
        if getattr(plan, axis) > 1:
            yield f"plan.{axis}", f"{axis} {getattr(plan, axis)} does not go with servers or sparse gradients"
    if synchronisation.averages_parameters:
        yield f"{key}.scheme", f"{synchronisation.scheme} exchanges parameters, not gradients"
    if synchronisation.dense == "servers" and synchronisation.encodes:
        yield f"{key}.dense", "servers take gradients as they are summed, neither narrower nor compressed"


def check_tables(workload: Workload) -> Faults:
    """What rests off the GPU is dealt out, and there."""
    plan = workload.plan
    if plan.table_memory == "hbm":
        return
    if not workload.model.deals_tables:
        yield (
            "plan.table_memory",
            f"{plan.table_memory}: {workload.model.name or 'the model'} has no tables to deal out",
        )
    if plan.synchronisation.sparse != "dense":
        yield "plan.synchronisation.sparse", f"rows in {plan.table_memory} memory are updated where they are"
    if plan.offload != type(plan.offload)():
        yield "plan.offload", f"does not go with tables in {plan.table_memory} memory"


def check_scaling(workload: Workload) -> Faults:
    """Formats with block scales have no other."""
    scaling, precision = workload.plan.scaling, workload.precision
    if precision in ("mxfp8", "nvfp4") and scaling not in (None, "block"):
        yield "plan.scaling", f"{precision} is scaled by block, not {scaling}"


def check_parameter_type(workload: Workload) -> Faults:
    """Narrow parameters rest where GEMMs read them as they are, which sharded ones do not."""
    plan = workload.plan
    if plan.parameter_dtype != "fp8":
        return
    if DTYPE_BYTES[workload.precision] >= 2:
        yield (
            "plan.parameter_dtype",
            f"fp8 needs GEMMs that read it, but precision is {workload.precision} (fp8, mxfp8 or nvfp4 would be right)",
        )
    if plan.zero == 3:
        yield "plan.parameter_dtype", "fp8 needs zero 0 to 2; for zero 3 see zero3.gather_dtype"


def check_order(workload: Workload) -> Faults:
    """Each axis stands once in the order."""
    order = workload.plan.order
    if sorted(order) != ["cp", "dp", "pp", "tp"]:
        yield "plan.order", f"must have tp, cp, dp and pp once each, has {', '.join(order)}"


def check_recompute(workload: Workload) -> Faults:
    """Modules to recompute are among those of the model."""
    plan, known = workload.plan, workload.model.recomputable
    if plan.recompute == "selective":
        for module in plan.recompute_modules:
            if module not in known:
                hint = suggestion(module, known)
                yield (
                    "plan.recompute_modules",
                    f"unknown module {module!r}{hint} (this model has: {listing(known)})",
                )
    if plan.recompute == "none" and plan.recompute_layers:
        yield "plan.recompute_layers", "has no effect with recompute: none"


WORKLOAD_CHECKS: tuple[Check, ...] = (
    check_model_sharding,
    check_tensor_grid,
    check_experts,
    check_sequence,
    check_data,
    check_dealing,
    check_context_exchange,
    check_layers,
    check_schedule,
    check_side_by_side,
    check_sequence_parallel,
    check_zero,
    check_offload,
    check_synchronisation,
    check_tables,
    check_scaling,
    check_parameter_type,
    check_order,
    check_recompute,
)
CLUSTER_CHECKS: tuple[Callable[[Workload, int], Faults], ...] = (
    check_ranks,
    check_replicas,
    check_batch,
    check_expert_group,
    check_shard_group,
    check_shard_parts,
    check_dealt_tables,
)


def cluster_faults(workload: Workload, num_gpus: int) -> list[tuple[str, str]]:
    """All faults of the plan on that many GPUs; a wrong product of degrees hides what follows from it."""
    wrong = list(check_ranks(workload, num_gpus))
    return wrong or [fault for check in CLUSTER_CHECKS[1:] for fault in check(workload, num_gpus)]
