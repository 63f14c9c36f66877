"""`clustersim import`: what other tools wrote, as measurements for `calibrate fit` or as a model description."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from simulator.calibration.microbenchmarks.store import Results

BAD_INPUT = 2
NAMED = 5  # names of what was left out, the most frequent first

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help=__doc__)

Out = Annotated[Path | None, typer.Option(help="Results file to write (JSON lines); printed if left out.")]


@app.callback()
def import_() -> None:
    """Turn what other tools wrote into measurements for `calibrate fit`, or into a model description."""


@app.command("nccl-tests")
def nccl_tests(
    files: Annotated[
        list[Path],
        typer.Argument(help="Logs of nccl-tests or rccl-tests, text or JSON (-J).", metavar="FILE..."),
    ],
    out: Out = None,
    op: Annotated[
        str,
        typer.Option(
            help="Operation, such as all_reduce, where neither the log nor the file's name says it."
        ),
    ] = "",
    ranks: Annotated[
        int | None, typer.Option(help="Number of ranks, where the log does not list them.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Take the in-place results instead of the out-of-place ones.")
    ] = False,
    gpus_per_node: Annotated[
        int | None, typer.Option(help="GPUs of a node, where only some of them took part.")
    ] = None,
) -> None:
    """Read logs of nccl-tests, for `calibrate fit collectives NAME --results OUT --cluster CLUSTER`.

    Several files must be of one machine; they may have different operations and numbers of ranks.
    """
    from simulator.importers.combining import combined
    from simulator.importers.nccl_tests import read_nccl_tests

    try:
        read = {
            path: read_nccl_tests(
                path,
                op=op or None,
                num_ranks=ranks,
                placement="in_place" if in_place else "out_of_place",
                gpus_per_node=gpus_per_node,
            )
            for path in files
        }
        results = combined(read)
    except ValueError as fault:
        raise _refused(fault) from None
    _hand_over(results, out, {})


@app.command("torch-profiler")
def torch_profiler(
    files: Annotated[
        list[Path],
        typer.Argument(help="Chrome traces of torch.profiler, .json or .json.gz.", metavar="FILE..."),
    ],
    out: Out = None,
) -> None:
    """Read traces of torch.profiler (record_shapes=True), for `calibrate fit kernels --gpu GPU --data OUT`.

    Traces of several ranks of one job tell a collective's time from waiting for the ranks that come later.
    """
    from simulator.importers.profiler_trace import read_traces

    try:
        trace = read_traces(files)
    except ValueError as fault:
        raise _refused(fault) from None
    _hand_over(trace.results, out, trace.unread)


@app.command("huggingface")
def huggingface(
    file: Annotated[Path, typer.Argument(help="config.json of a transformers model.", metavar="FILE")],
    out: Annotated[
        Path | None, typer.Option(help="Model description to write (YAML); printed if left out.")
    ] = None,
) -> None:
    """Read the config.json of a model as a model description, for `model:` of a workload."""
    import yaml

    from simulator.importers.huggingface import read_config

    try:
        model = read_config(file)
    except ValueError as fault:
        raise _refused(fault) from None
    sources = {"sources": {"shape": f"{file.name} of the model, read by clustersim import huggingface"}}
    _write(yaml.safe_dump(model | sources, sort_keys=False, default_flow_style=None, width=110), out)


def _refused(fault: ValueError) -> typer.Exit:
    typer.echo(f"clustersim: {fault}", err=True)
    return typer.Exit(BAD_INPUT)


def _hand_over(results: Results, out: Path | None, unread: Mapping[str, int]) -> None:
    """Write or print the results, and say on standard error what they hold and what was left out."""
    from simulator.calibration.microbenchmarks.store import results_text

    _write(results_text(results), out)
    typer.echo(f"{out or 'standard output'}: {_content(results)}", err=True)
    if unread:
        counted = Counter(unread)
        named = ", ".join(f"{name} {count}x" for name, count in counted.most_common(NAMED))
        rest = f" and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
        typer.echo(f"left out, as no cost model is fitted to them: {named}{rest}", err=True)


def _write(text: str, out: Path | None) -> None:
    """To the file, or to standard output where none is named."""
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")


def _content(results: Results) -> str:
    """`12 cases on 8 ranks (10 all_reduce, 2 gemm)`."""
    kinds: Sequence[str] = [
        measurement.case.parameters.get("op", measurement.case.benchmark)
        for measurement in results.measurements
    ]
    counted = ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items())
    return f"{len(kinds)} cases on {results.machine['num_ranks']} ranks ({counted or 'nothing to fit to'})"
