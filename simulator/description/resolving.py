"""What a description stands for once its names, paths and `extends` are replaced by what they refer to.

All of it happens on trees, before validation, so that a fault keeps the place where the faulty value was
written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from simulator.description import catalogue
from simulator.description.faults import DescriptionError, Fault, Place, fault_at, shown
from simulator.description.kinds import KINDS, Kind
from simulator.description.registry import Registry
from simulator.description.tree import Mapping, Node, Scalar, Sequence, merge
from simulator.description.yaml_reader import MOST_VALUES

UNREFERENCED = ("sources", "origins")
"""Mappings of free text, whose keys may be called like references."""


class Resolver:
    """Resolves trees and collects the faults met: an unknown name leaves the name in place and the walk goes
    on.
    """

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.being_read: list[Path] = []
        self.num_values = 0

    def read(self, kind: Kind, path: Path, name: str) -> Mapping:
        """The complete description in a file. Raises DescriptionError where it cannot be read at all."""
        tree, faults = catalogue.read(path)
        self.faults += faults
        self.num_values += tree.num_values
        if self.num_values > MOST_VALUES:
            message = f"refers to more than {MOST_VALUES:,} values in all"
            raise DescriptionError([fault_at(tree.place, "", message)])
        self.being_read.append(path.resolve())
        try:
            tree = self.mapping(tree, kind, ())
        finally:
            self.being_read.pop()
        if kind.has_field("name") and not _is_named(tree):
            tree = replace(tree, entries={"name": Scalar(_file_name(path), tree.place), **tree.entries})
        return replace(tree, whole=True, source=name)

    def mapping(self, tree: Mapping, kind: Kind, path: tuple[str, ...]) -> Mapping:
        """A mapping of this kind with everything in it resolved and its `extends` laid under it."""
        tree = self._without_kind(tree, kind, path)
        base_name = tree.entries.get("extends")
        tree = self._children(tree.without("extends"), kind, path)
        if base_name is None:
            return replace(tree, whole=tree.whole or _names_its_class(tree, kind))
        base = self.named(base_name, kind, (*path, "extends"))
        if not isinstance(base, Mapping):
            return tree
        base = base.without("name") if not path else base
        return replace(_as_mapping(merge(replace(base, whole=False), tree)), whole=True)

    def value(self, key: str, node: Node, kind: Kind, path: tuple[str, ...]) -> Node:
        """The value of `key` inside a description of `kind`, resolved."""
        target = dict(kind.references).get(key)
        if target is not None and isinstance(node, Scalar) and isinstance(node.value, str):
            return self.named(node, KINDS[target], path)
        if target is not None and isinstance(node, Mapping):
            return self.mapping(node, KINDS[target], path)
        if key in UNREFERENCED:
            return node
        if isinstance(node, Mapping):
            return self._children(node, kind, path)
        if isinstance(node, Sequence):
            items = (self.value(str(i), item, kind, (*path, str(i))) for i, item in enumerate(node.items))
            return replace(node, items=tuple(items))
        return node

    def named(self, node: Node, kind: Kind, path: tuple[str, ...]) -> Node:
        """The description that a name or path stands for; the node itself where that has a fault."""
        key = ".".join(path)
        if not (isinstance(node, Scalar) and isinstance(node.value, str)):
            self.faults.append(fault_at(node.place, key, f"needs the name or path of a {kind.name}"))
            return node
        try:
            file = catalogue.find(kind.name, node.value, at=node.place, key=key, beside=_folder(node.place))
            self._check_not_recursive(file, node, key)
            return self.read(kind, file, node.value)
        except DescriptionError as error:
            self.faults += error.faults
            return node

    def _check_not_recursive(self, file: Path, node: Scalar, key: str) -> None:
        if file.resolve() in self.being_read:
            start = self.being_read.index(file.resolve())
            circle = [p.name for p in self.being_read[start:]] + [file.name]
            message = f"{shown(node.text)} refers back to itself: {' -> '.join(circle)}"
            raise DescriptionError([fault_at(node.place, key, message)])

    def _children(self, tree: Mapping, kind: Kind, path: tuple[str, ...]) -> Mapping:
        entries = {key: self.value(key, node, kind, (*path, key)) for key, node in tree.entries.items()}
        return replace(tree, entries=entries)

    def _without_kind(self, tree: Mapping, kind: Kind, path: tuple[str, ...]) -> Mapping:
        """Check the `kind` key and drop it where the class does not have it."""
        node = tree.entries.get("kind")
        if node is None or kind.name == "fabric":
            return tree
        if not (isinstance(node, Scalar) and node.value == kind.name):
            text = node.text if isinstance(node, Scalar) else "something else"
            message = f"is {shown(text)}, where a {kind.name} is needed"
            raise DescriptionError([fault_at(node.place, ".".join((*path, "kind")), message)])
        return tree if kind.has_field("kind") else tree.without("kind")


def _names_its_class(tree: Mapping, kind: Kind) -> bool:
    """Whether the mapping says which fabric (model, ...) it is: then it shares no keys with what it overrides."""
    registry = kind.owner()
    return isinstance(registry, Registry) and registry.discriminator in tree.entries


def _file_name(path: Path) -> str:
    """The file's name without .yaml; other dots belong to the name (gpt3-1.3b)."""
    return path.name.removesuffix(".yaml").removesuffix(".yml")


def _is_named(tree: Mapping) -> bool:
    return "name" in tree.entries


def _as_mapping(node: Node) -> Mapping:
    if not isinstance(node, Mapping):
        raise TypeError("two mappings merge into a mapping")
    return node


def _folder(place: Place) -> Path | None:
    """The folder that relative paths written at this place start from; None for the command line."""
    return Path(place.file).parent if place.line else None
