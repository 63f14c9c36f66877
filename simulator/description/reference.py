"""What may be written in every description file: one page for each kind, made from the classes themselves.

`python -m simulator.description.reference docs/reference` writes the pages; a test checks that they are current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from simulator.description.fields import keys_of, owners
from simulator.description.kinds import KINDS, Kind
from simulator.description.quantities import BYTES, Dimension, quantity_text
from simulator.description.registry import Registry

_NOTE = "<!-- Made by `python -m simulator.description.reference docs/reference`; do not edit. -->"


def pages() -> dict[str, str]:
    """File name → text of every reference page."""
    described = [kind for kind in KINDS.values() if kind.read_by]
    index = ["# Reference: description files", "", _NOTE, ""]
    index += [f"- [{kind.name}]({kind.name}.md): {kind.what} (`{kind.folder}/`)" for kind in described]
    index += ["", *_UNITS]
    return {"index.md": "\n".join(index) + "\n"} | {f"{kind.name}.md": page(kind) for kind in described}


_UNITS = [
    "A quantity is a number and a unit: `400 Gb/s` or `50 GB/s`, `80 GiB` or `80 GB`, `312 TFLOP/s`, `2 us`,",
    "`1.41 GHz`, `700 W`, `15000 USD`. A bare number is refused: bits and bytes, decimal and binary prefixes are",
    "never guessed. `b` is bit, `B` is byte; `k M G T P E` are powers of 1000, `Ki Mi Gi Ti Pi` of 1024.",
    "",
    "Any file, and any mapping that may be a catalogue name, can start with `extends: NAME_OR_PATH` and then give",
    "only what differs. `--set KEY=VALUE` on the command line does the same to one key.",
]


def page(kind: Kind) -> str:
    """The page of one kind: a table for its class, or for each class of its registry, and those inside them."""
    lines = [
        f"# {kind.name}",
        "",
        _NOTE,
        "",
        f"{kind.what[0].upper()}{kind.what[1:]}: `{kind.folder}/*.yaml`.",
        "",
    ]
    owner = kind.owner()
    if isinstance(owner, Registry):
        names = ", ".join(f"`{name}`" for name in owner if _is_ours(owner[name]))
        lines += [f"`{owner.discriminator}` says which: {names}.", ""]
    for cls in _with_parts(tuple(filter(_is_ours, kind.classes()))):
        lines += _section(cls, kind)
    return "\n".join(lines).rstrip() + "\n"


def _with_parts(classes: tuple[type[BaseModel], ...]) -> Iterator[type[BaseModel]]:
    """The classes and those of their fields, outermost first, without those that have a page of their own."""
    elsewhere = {cls for kind in KINDS.values() for cls in kind.classes()} - set(classes)
    waiting, seen = list(classes), set(classes)
    while waiting:
        cls = waiting.pop(0)
        yield cls
        for field in cls.model_fields.values():
            for owner in owners(field.annotation, field.metadata):
                parts = owner.classes.values() if isinstance(owner, Registry) else (owner,)
                for part in parts:
                    if part not in seen | elsewhere:
                        seen.add(part)
                        waiting.append(part)


def _is_ours(cls: type[BaseModel]) -> bool:
    """Whether the class comes with the package: a family that a test or a user has registered is not documented."""
    return cls.__module__.partition(".")[0] == Registry.__module__.partition(".")[0]


def _section(cls: type[BaseModel], kind: Kind) -> list[str]:
    summary = (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    lines = [f"## {cls.__name__}", "", " ".join(summary.split()), ""]
    lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for key, field in keys_of(cls).items():
        cells = (f"`{key}`", type_text(field, key, kind), default_text(field), _meaning(field))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def _meaning(field: FieldInfo) -> str:
    only = get_args(field.annotation)
    constant = get_origin(field.annotation) is Literal and len(only) == 1
    return field.description or (f"Always `{only[0]}`." if constant else "")


def type_text(field: FieldInfo, key: str, kind: Kind) -> str:
    """What a field holds, in words: a unit, a set of words, another table."""
    text = _type(field.annotation, field.metadata)
    return f"name or {text}" if key in dict(kind.references) else text


def _type(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    for item in metadata:
        if isinstance(item, Dimension):
            return f"{item.name.removeprefix('a ').removeprefix('an ')}, e.g. `{item.example}`"
        if isinstance(item, Registry):
            return item.what
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is Literal:
        return ", ".join(f"`{_yaml(value)}`" for value in arguments)
    if origin in (tuple, list):
        inner = [argument for argument in arguments if argument is not Ellipsis]
        if len(inner) > 1:
            return f"[{', '.join(map(_type, inner))}]"
        return f"list of {_type(inner[0])}"
    if origin is dict:
        return f"{_type(arguments[0])} → {_type(arguments[1])}"
    return _plain_type(annotation)


_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text", NoneType: "null"}


def _plain_type(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation.__name__
    return _WORDS.get(annotation, getattr(annotation, "__name__", str(annotation)))


def default_text(field: FieldInfo) -> str:
    """The default as it would be written, or `required`."""
    if field.is_required():
        return "required"
    default: Any = {} if field.default_factory is not None else field.get_default()
    if default is PydanticUndefined or default == "":
        return ""
    if default in ({}, ()):
        return "none"
    if isinstance(default, BaseModel):
        return "its defaults"
    for item in field.metadata:
        if isinstance(item, Dimension) and default is not None:
            unit = "MiB" if item is BYTES and default % 2**20 == 0 else None
            return f"`{quantity_text(default, item, unit)}`"
    return f"`{_yaml(default)}`"


def _yaml(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower() if value is not None else "null"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value)


def write(folder: Path) -> None:
    """Write all pages into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
