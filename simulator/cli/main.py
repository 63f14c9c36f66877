"""What `clustersim` does with its arguments: picks the command, imports it only then, turns faults into exit codes.

Exit codes: 0 done, 1 the design does not fit or a check failed, 2 bad input. A command is a module of this package,
entered in COMMANDS, with either a function `command` or a Typer `app` (for a command that has commands).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

DONE, FAILED, BAD_INPUT = 0, 1, 2


class Entry(NamedTuple):
    """A command: its module in this package and what it says in `clustersim --help`."""

    module: str
    help: str


COMMANDS = {
    "run": Entry("run", "Predict one training step of a workload on a cluster."),
    "explain": Entry("explain", "From peak FLOP/s down to MFU, and what each upgrade would buy."),
    "search": Entry("search", "Find the best plans that fit."),
    "solve": Entry("solve", "Find the value of one number at which a condition begins to hold."),
    "sweep": Entry("sweep", "Run every point of a sweep file."),
    "calibrate": Entry("calibrate", "Measure this machine and fit what the cost models need."),
    "minicluster": Entry("minicluster", "A real cluster of network namespaces on this machine."),
    "validate": Entry("validate", "Predicted against measured."),
    "study": Entry("study", "A published system's what-if; ours beside its numbers."),
    "import": Entry("import_", "Read measurements of other tools: nccl-tests, torch.profiler."),
    "list": Entry("list_", "Names in the catalogue."),
    "show": Entry("show", "A description with all that it refers to."),
    "check": Entry("check", "Find every fault of description files."),
    "schema": Entry("schema", "JSON Schema of a kind of description."),
}


def available() -> dict[str, Entry]:
    """The commands whose module is there, in the order in which help lists them."""
    return {
        name: entry
        for name, entry in COMMANDS.items()
        if find_spec(f"simulator.cli.{entry.module}") is not None
    }


class LazyGroup(TyperGroup):
    """The commands of COMMANDS, each imported only when it is called: `--help` imports none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(available())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = available().get(cmd_name)
        if entry is None:
            return None
        module = import_module(f"simulator.cli.{entry.module}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(name=cmd_name)(module.command)
        loaded = typer.main.get_command(app)
        loaded.name = cmd_name
        return loaded

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in available():
            from simulator.description.faults import shown, suggestion

            hint = suggestion(name, available()) or f" (commands: {', '.join(available())})"
            ctx.fail(f"there is no command {shown(name)}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in available().items()])


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from simulator import __version__

        typer.echo(f"clustersim {__version__}")
        raise typer.Exit


@app.callback()
def clustersim(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say which."),
) -> None:
    """Predict a training step on a GPU cluster, say what limits it, and find what would do better.

    CLUSTER, WORKLOAD and other descriptions are names in the catalogue (clustersim list) or paths of YAML files.
    """


def main() -> None:
    """Run the command line; never ends in a traceback for what a user typed or wrote."""
    try:
        app(prog_name="clustersim")
    except Exception as error:
        sys.exit(exit_code(error))


def exit_code(error: Exception) -> int:
    """The exit code that an exception stands for, once it is told; one that is no fault of input is raised again."""
    from simulator.description.faults import DescriptionError, KeyFaults  # here: `--help` needs no pydantic

    if isinstance(error, DescriptionError):
        lines = [str(fault) for fault in error.faults]
    elif isinstance(error, KeyFaults):
        lines = [f"clustersim: {key}: {message}" for key, message in error.faults]
    elif isinstance(error, BrokenPipeError):  # `clustersim list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    elif isinstance(error, OSError):
        lines = [f"clustersim: {error.filename or 'file'}: {error.strerror or error}"]
    else:
        raise error
    print("\n".join(lines), file=sys.stderr)
    return BAD_INPUT


if __name__ == "__main__":
    main()
