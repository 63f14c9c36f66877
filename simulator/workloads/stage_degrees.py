"""Pipeline stages of unequal degrees: how many GPUs split the layers of each, and how many replicas each has."""

from __future__ import annotations

from pydantic import Field

from simulator.description.base import Description


class StageDegrees(Description):
    """Degrees of one pipeline stage, which takes tp x cp x dp GPUs after those of the stages before."""

    tp: int = Field(default=1, gt=0, description="GPUs that split every layer of the stage.")
    dp: int = Field(
        default=1, gt=0, description="Replicas of the stage, which share out the samples of a micro-batch."
    )
