"""How YAML text becomes a tree of placed values: one safe document of bounded size, depth and expansion.

Scalars follow YAML 1.2's core schema, not 1.1: `5e-6` is a number, `no`, `010` and `12:30` are strings. Keys
are always strings. Refused: duplicate keys, explicit tags, merge keys, tabs as indentation, more than one
document.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator.description.faults import MOST_FAULTS, DescriptionError, Fault, Place, fault_at, shown
from simulator.description.tree import Mapping, Node, Scalar, ScalarValue, Sequence

LARGEST_FILE = 1_000_000  # bytes
DEEPEST = 40  # levels; the deepest description of ours has 8
MOST_VALUES = 30_000  # after alias expansion; read in about half a second

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL: dict[str, ScalarValue] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def read_yaml(path: str | Path) -> Mapping:
    """The mapping in the file. Raises DescriptionError with every fault of the text that can be found."""
    return parse_yaml(read_text(path), str(path))


def read_text(path: str | Path) -> str:
    """The text of a description file. Raises DescriptionError where it is no readable UTF-8 text file."""
    start = Place(str(path), 1, 1)
    try:
        status = Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise _stop(start, "is a folder, not a YAML file")
        if not stat.S_ISREG(status.st_mode):
            raise _stop(start, "is not an ordinary file")
        if status.st_size > LARGEST_FILE:
            raise _stop(start, f"is too large: {status.st_size:,} bytes; at most {LARGEST_FILE:,} are read")
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _stop(start, f"cannot be read: {reason}") from None
    return _decode(data, str(path))


def _decode(data: bytes, file: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig")
        place = Place(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        what = "is a binary file, not YAML" if b"\0" in data else "is not UTF-8 text"
        raise _stop(place, f"{what} (byte 0x{data[error.start]:02x})") from None
    if "\0" in text:
        raise _stop(Place(file, 1, 1), "is a binary file, not YAML")
    return text


def parse_yaml(text: str, file: str) -> Mapping:
    """The mapping that `text` holds; `file` is the name used in places. Raises DescriptionError."""
    tree, faults = parse_tree(text, file)
    if faults:
        raise DescriptionError(faults)
    return tree


def parse_tree(text: str, file: str) -> tuple[Mapping, list[Fault]]:
    """(the mapping, faults in spite of which it can be read, such as duplicate keys). Raises DescriptionError."""
    node, faults = _compose(text, file, None)
    if not isinstance(node, Mapping):
        empty = isinstance(node, Scalar) and node.value is None
        message = "is empty" if empty else f"holds {_what(node)} where a mapping (key: value) is needed"
        raise _stop(Place(file, 1, 1), message)
    return node, faults


def parse_value(text: str, at: Place) -> Node:
    """Any one YAML value, every part of it placed at `at`. Raises DescriptionError."""
    node, faults = _compose(text, at.file, at)
    if faults:
        raise DescriptionError(faults)
    return node


def _compose(text: str, file: str, at: Place | None) -> tuple[Node, list[Fault]]:
    import yaml

    # Only the event parser of the loader is used: it constructs no objects.
    loader = getattr(yaml, "CLoader", yaml.Loader)
    composer = _Composer(file, at)
    try:
        composer.check_tabs(text)
        node = composer.document(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        raise _stop(at or _error_place(error, file), _yaml_message(error)) from None
    except RecursionError:
        raise _stop(at or Place(file, 1, 1), "is nested too deeply") from None
    return node, composer.faults


class _Composer:
    """Builds the tree from parser events and collects faults on the way."""

    def __init__(self, file: str, at: Place | None) -> None:
        self.file = file
        self.at = at
        self.faults: list[Fault] = []
        self.anchors: dict[str, Node | None] = {}
        self.events: Iterator[Any] = iter(())
        self.num_read = 0

    def check_tabs(self, text: str) -> None:
        if "\t" not in text:
            return
        for number, line in enumerate(text.splitlines(), 1):
            indentation = line[: len(line) - len(line.lstrip())]
            if "\t" in indentation and line.strip() and not line.lstrip().startswith("#"):
                place = self.at or Place(self.file, number, indentation.index("\t") + 1)
                raise _stop(place, "a tab is used as indentation; YAML wants spaces")

    def document(self, events: Iterator[Any]) -> Node:
        self.events = events
        node: Node | None = None
        for event in events:
            name = type(event).__name__
            if name == "DocumentStartEvent":
                if node is not None:
                    raise _stop(self.place(event), "a second document (---) starts here; one file holds one")
                node = self.node(next(events), 1, ())
        del self.faults[MOST_FAULTS:]
        return node if node is not None else Scalar(None, self.at or Place(self.file, 1, 1))

    def place(self, event: Any) -> Place:
        mark = event.start_mark
        return self.at or Place(self.file, mark.line + 1, mark.column + 1)

    def node(self, event: Any, depth: int, path: tuple[str, ...]) -> Node:
        place, key = self.place(event), ".".join(path)
        if depth > DEEPEST:
            raise _stop(place, f"is nested too deeply: more than {DEEPEST} levels")
        self.num_read += 1
        if self.num_read > 2 * MOST_VALUES:  # keys are read like values
            raise _stop(place, f"holds more than {MOST_VALUES:,} values", key)
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self.alias(event.anchor, place, key)
        if event.tag is not None:
            self.faults.append(fault_at(place, key, f"explicit tags are not allowed ({shown(event.tag)})"))
        if event.anchor is not None:
            self.anchors[event.anchor] = None  # being built: an alias to it now would contain itself
        node: Node
        if kind == "ScalarEvent":
            quoted = event.style in ("'", '"', "|", ">")
            node = Scalar(event.value if quoted else plain_scalar(event.value), place, event.value)
        elif kind == "SequenceStartEvent":
            node = self.sequence(place, depth, path)
        else:
            node = self.mapping(place, depth, path)
        if node.num_values > MOST_VALUES:
            raise _stop(place, f"holds more than {MOST_VALUES:,} values once aliases are expanded", key)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def alias(self, name: str, place: Place, key: str) -> Node:
        if name not in self.anchors:
            raise _stop(place, f"alias *{shown(name)} is not defined", key)
        node = self.anchors[name]
        if node is None:
            raise _stop(place, f"alias *{shown(name)} contains itself", key)
        return replace(node, place=place)

    def sequence(self, place: Place, depth: int, path: tuple[str, ...]) -> Sequence:
        items: list[Node] = []
        while type(event := next(self.events)).__name__ != "SequenceEndEvent":
            items.append(self.node(event, depth + 1, (*path, str(len(items)))))
        return Sequence(tuple(items), place, 1 + sum(item.num_values for item in items))

    def mapping(self, place: Place, depth: int, path: tuple[str, ...]) -> Mapping:
        entries: dict[str, Node] = {}
        places: dict[str, Place] = {}
        while type(event := next(self.events)).__name__ != "MappingEndEvent":
            key_place = self.place(event)
            key = self.key(event, depth, path)
            value = self.node(next(self.events), depth + 1, (*path, key))
            if key in entries:
                first = places[key]
                where = f" (first on line {first.line})" if first.line else ""
                self.faults.append(fault_at(key_place, ".".join((*path, key)), f"duplicate key{where}"))
                continue
            entries[key], places[key] = value, key_place
        return Mapping(entries, place, places, 1 + sum(value.num_values for value in entries.values()))

    def key(self, event: Any, depth: int, path: tuple[str, ...]) -> str:
        place = self.place(event)
        node = self.node(event, depth + 1, path)
        if not isinstance(node, Scalar):
            self.faults.append(fault_at(place, ".".join(path), f"a key must be a word, not {_what(node)}"))
            return "?"
        if node.text == "<<" and not event.style:
            self.faults.append(fault_at(place, ".".join(path), "merge keys (<<) are not read; use extends:"))
        return node.text


def plain_scalar(text: str) -> ScalarValue:
    """The value of an unquoted scalar under YAML 1.2's core schema (beyond 19 digits a float)."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _what(node: Node) -> str:
    if isinstance(node, Scalar):
        return f"the single value {shown(node.text)}"
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _stop(place: Place, message: str, key: str = "") -> DescriptionError:
    return DescriptionError([fault_at(place, key, message)])


def _error_place(error: Any, file: str) -> Place:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)


def _yaml_message(error: Any) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    if "\\t" in repr(problem):
        return "a tab is used as indentation; YAML wants spaces"
    return f"is not valid YAML: {problem}" + (f" ({context})" if context else "")
