"""GPipe: all forwards, then all backwards in reverse order (Huang et al. 2019, arXiv 1811.06965)."""

from __future__ import annotations

from simulator.program.schedules.schedule import Action, register


@register("gpipe")
def gpipe(stage: int, num_stages: int, num_micro_batches: int, chunks: int) -> list[Action]:
    """All forwards of all micro-batches chunk by chunk, then the backwards; bubble (p-1)/(m+p-1) of the step."""
    forward = [Action("F", chunk, i) for chunk in range(chunks) for i in range(num_micro_batches)]
    backward = [Action("B", c, i) for c in reversed(range(chunks)) for i in range(num_micro_batches)]
    return forward + backward
