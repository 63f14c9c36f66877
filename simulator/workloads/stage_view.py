"""A plan whose pipeline stages have unequal degrees, as one of them sees it."""

from __future__ import annotations

from simulator.workloads.plan import Plan


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
