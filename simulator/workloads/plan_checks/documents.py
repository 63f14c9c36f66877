"""Can documents be drawn and packed, and do model and plan tell them apart?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.description.faults import listing
from simulator.workloads.data import documents_of
from simulator.workloads.plan import Dealing
from simulator.workloads.plan_checks.faults import Faults

if TYPE_CHECKING:
    from simulator.workloads.workload import Workload


_DEALT = ("1f1b", "zb-h1")
"""Schedules that hold as many micro-batches at a time, and take any number of them, whatever it is."""


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
    """Groups that documents are dealt to: widths that halve down to one; a schedule of any number of micro-batches."""
    plan, data = workload.plan, workload.data
    dealing = plan.dealing
    if not workload.deals or data is None:
        if dealing != Dealing():
            yield "plan.dealing", "is for documents (data with packing: dealt)"
        return
    if (
        plan.pp > 1
        and plan.schedule_name not in _DEALT
        and (plan.schedule_name != "gpipe" or dealing.tokens_per_gpu is None)
    ):
        message = (
            f"{plan.schedule_name} does not go with dealt documents, which decide their number of micro-batches: "
            f"use {listing(list(_DEALT))}, or gpipe, which holds all of them, with dealing.tokens_per_gpu"
        )
        yield "plan.schedule", message
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
