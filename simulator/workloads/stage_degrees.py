"""Pipeline stages of unequal degrees: how many GPUs split the layers of each, and how many replicas each has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from simulator.description.base import Description

if TYPE_CHECKING:
    from simulator.workloads.plan import Plan


class StageDegrees(Description):
    """Degrees of one pipeline stage, which takes tp x cp x dp GPUs after those of the stages before."""

    tp: int = Field(default=1, gt=0, description="GPUs that split every layer of the stage.")
    dp: int = Field(
        default=1, gt=0, description="Replicas of the stage, which share out the samples of a micro-batch."
    )


def samples(plan: Plan) -> int:
    """Samples of a micro-batch over all replicas of a stage: the same at every stage."""
    return plan.micro_batch * max(stage.dp for stage in plan.stages)


def seen_from(plan: Plan, stage: int) -> Plan:
    """The plan as one of its stages sees it: as though all had its degrees.

    A stage that no two GPUs split has no sequence parallelism.
    """
    degrees = plan.stages[stage]
    return plan.model_copy(
        update={
            "tp": degrees.tp,
            "dp": degrees.dp,
            "micro_batch": samples(plan) // degrees.dp,
            "sequence_parallel": plan.sequence_parallel and degrees.tp > 1,
            "stages": (),
        }
    )
