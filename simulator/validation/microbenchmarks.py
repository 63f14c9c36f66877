"""How far single kernels and collectives are from measured ones, judged on rows that no fit has seen."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.validation.scores import Judgement, Row


def kernels(sources: Sequence[str] | None = None) -> Judgement:
    """Held-out kernels, one source per GPU and kind of kernel."""
    from simulator.validation.kernels import held_out

    for source, name, measured, predicted in held_out():
        if sources is None or source in sources:
            yield Row(source, name, measured, predicted, "s")


def collectives(sources: Sequence[str] | None = None) -> Judgement:
    """Held-out collectives, one source per machine."""
    from simulator.validation.collective_data import measurements
    from simulator.validation.collectives import predicted

    for row in measurements(sources):
        if row.split == "held":
            name = f"{row.op} {row.group.num_ranks} ranks {row.size:.0f} B"
            yield Row(row.system, name, row.seconds, predicted(row), "s")
