"""`clustersim show`: one description with everything that it refers to."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simulator.description import catalogue
from simulator.description.faults import DescriptionError
from simulator.description.kinds import KINDS
from simulator.description.loading import load, resolve
from simulator.description.tree import Mapping, Node, Sequence


def command(
    name: Annotated[str, typer.Argument(help="Catalogue name or path; KIND/NAME where kinds share a name.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE, keys as in the file shown.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="As validated: SI units, defaults filled in.")
    ] = False,
) -> None:
    """Show a description as YAML, with names and extends replaced by what they stand for."""
    overrides = dict(setting.partition("=")[::2] for setting in settings or [])
    for position, (kind, path) in enumerate(catalogue.find_any(name)):
        described = load(kind, str(path), overrides)
        if as_json:
            typer.echo(_as_json(described))
            continue
        tree, faults = resolve(kind, str(path), overrides)
        if faults:
            raise DescriptionError(faults)
        separator = "---\n" if position else ""
        typer.echo(f"{separator}# {kind}: {catalogue.display(path)}\n{as_yaml(tree, kind)}", nl=False)


def as_yaml(tree: Mapping, kind: str) -> str:
    """The tree as YAML that reads back to the same description."""
    import yaml

    plain = _written(tree)
    if "kind" not in plain and not KINDS[kind].has_field("kind"):
        plain = {"kind": kind, **plain}
    return yaml.dump(plain, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100)


def _written(node: Node) -> Any:
    """As `plain`, with numbers kept as they were written."""
    if isinstance(node, Mapping):
        return {key: _written(value) for key, value in node.entries.items()}
    if isinstance(node, Sequence):
        return [_written(item) for item in node.items]
    return _Digits(node.text) if isinstance(node.value, float) and node.text else node.value


class _Digits(str):
    """Digits that are printed as they are, without quotes."""


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Short lists on one line, digits as written, no aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def digits(dumper: Any, data: _Digits) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:float", str(data))

    def short(dumper: Any, data: list[Any]) -> Any:
        flow = all(not isinstance(item, dict) for item in data)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flow)

    Dumper.add_representer(_Digits, digits)
    Dumper.add_representer(list, short)
    return Dumper


def _as_json(described: Any) -> str:
    import json

    if isinstance(described, Mapping):
        from simulator.description.tree import plain

        return json.dumps(plain(described), indent=2)
    text: str = described.model_dump_json(by_alias=True, indent=2)
    return text
