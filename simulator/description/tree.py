"""What a description file holds before it is validated: values that remember where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from simulator.description.faults import Place

DISCRIMINATORS = ("kind", "family")
"""Keys that say which class a mapping is read into."""

ScalarValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. `text` is what was written, `place` where."""

    value: ScalarValue
    place: Place
    text: str = ""
    num_values: int = 1


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    items: tuple[Node, ...]
    place: Place
    num_values: int = 1


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping from keys to values.

    `key_places` has the place of each key. `whole` marks a mapping that stands for a complete description (it
    was read by name or has its own `extends`), so that it replaces, rather than refines, what it overrides;
    `source` is the catalogue name or path it was read by. `num_values` counts all values below it, aliases
    expanded.
    """

    entries: dict[str, Node]
    place: Place
    key_places: dict[str, Place]
    num_values: int = 1
    whole: bool = False
    source: str = ""

    def key_place(self, key: str) -> Place:
        return self.key_places.get(key, self.place)

    def with_entry(self, key: str, value: Node, place: Place) -> Mapping:
        return replace(self, entries={**self.entries, key: value}, key_places={**self.key_places, key: place})

    def without(self, key: str) -> Mapping:
        kept = {name: value for name, value in self.entries.items() if name != key}
        return replace(self, entries=kept)


Node = Scalar | Sequence | Mapping


def plain(node: Node) -> Any:
    """The node as ordinary dicts, lists and scalars."""
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.entries.items()}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return node.value


def from_plain(value: Any, place: Place) -> Node:
    """Ordinary dicts, lists and scalars as a node, every part of it at `place`."""
    if isinstance(value, dict):
        entries = {str(key): from_plain(item, place) for key, item in value.items()}
        return Mapping(entries, place, dict.fromkeys(entries, place))
    if isinstance(value, list | tuple):
        return Sequence(tuple(from_plain(item, place) for item in value), place)
    return Scalar(value, place, str(value))


def merge(base: Node, override: Node) -> Node:
    """`override` laid over `base`: mappings merge key by key, anything else replaces.

    A mapping that names another `kind` or `family` replaces too, for it has other keys.
    """
    if not (isinstance(base, Mapping) and isinstance(override, Mapping)) or override.whole:
        return override
    if any(_differ(base.entries.get(key), override.entries.get(key)) for key in DISCRIMINATORS):
        return override
    entries = dict(base.entries)
    for key, value in override.entries.items():
        entries[key] = merge(entries[key], value) if key in entries else value
    places = {**base.key_places, **override.key_places}
    return replace(base, entries=entries, place=override.place, key_places=places)


def _differ(base: Node | None, override: Node | None) -> bool:
    return isinstance(base, Scalar) and isinstance(override, Scalar) and base.value != override.value


def walk(node: Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Every node below and including `node`, with its key path."""
    yield path, node
    if isinstance(node, Mapping):
        for key, value in node.entries.items():
            yield from walk(value, (*path, key))
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from walk(item, (*path, str(index)))
