"""How far predicted training steps are from published ones (`clustersim validate steps`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.validation.scores import Judgement, Refusal, Row
from simulator.validation.step_data import StepRow, cluster_of, step_rows, workload_of

if TYPE_CHECKING:
    from simulator.results.prediction import Prediction


def judge(sources: Sequence[str] | None = None) -> Judgement:
    """Every row with a measured step time, of the given sources or of all that are meant for judging."""
    for row in step_rows():
        if row.step_time is not None and wanted(row, sources):
            predicted = predict_row(row)
            if isinstance(predicted, Refusal):
                yield predicted
            else:
                step = predicted.step_time_s
                parts = {kind: seconds / step for kind, seconds in predicted.breakdown_s.items() if seconds}
                layout = "/".join(row.layout())
                yield Row(row.source, label(row), row.step_time, step, "s", alternatives(row), parts, layout)


def wanted(row: StepRow, sources: Sequence[str] | None) -> bool:
    """Rows that a software figure was fitted on, or that their source calls unreliable, are not judged."""
    return (sources is None or row.source in sources) and not row.split.startswith(("check-only", "fit"))


def predict_row(row: StepRow) -> Prediction | Refusal:
    """The prediction of one row, or why there is none."""
    from simulator.description.faults import DescriptionError
    from simulator.simulation import simulate

    try:
        return simulate(cluster_of(row), workload_of(row))
    except (DescriptionError, ValueError) as error:
        reason = " ".join(str(error).split())
        return Refusal(row.source, label(row), reason)


def label(row: StepRow) -> str:
    """What tells the row from its neighbours."""
    degrees = " ".join(
        f"{axis}{getattr(row, axis)}"
        for axis in ("tp", "pp", "vpp", "cp", "ep")
        if getattr(row, axis) not in ("", "1")
    )
    return f"{row.row} {row.model} {row.gpus} GPUs {degrees} mb{row.micro_batch} s{row.sequence}".replace(
        "  ", " "
    )


def alternatives(row: StepRow) -> str:
    """Rows with the same key do the same job in different ways."""
    keys = ("model", "layers", "hidden", "heads", "gpus", "global_batch", "sequence", "precision")
    return "/".join((row.source, *(getattr(row, key) for key in keys)))
