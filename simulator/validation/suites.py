"""Which suites there are: a name, and a function from source names to the judged rows of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.validation import memory, microbenchmarks, step_data, steps
from simulator.validation.scores import Judgement

Suite = Callable[[Sequence[str] | None], Judgement]


def suites() -> dict[str, Suite]:
    """Name → suite, in the order in which help lists them."""
    return {
        "kernels": microbenchmarks.kernels,
        "collectives": microbenchmarks.collectives,
        "steps": steps.judge,
        "memory": memory.judge,
    }


def sources_of(suite: str) -> list[str]:
    """The sources of a suite, each of which can be validated on its own; those with step times are of the steps."""
    timed = [source for source in step_data.sources() if any(r.step_time for r in step_data.rows_of(source))]
    if suite == "memory":
        return [source for source in step_data.sources() if source not in timed]
    return timed if suite == "steps" else []
