"""Which keys a description may have at a given place (for suggestions, reference pages and settings)."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from simulator.description.registry import Registry
from simulator.description.tree import Mapping, Node, Scalar, Sequence

Owner = type[BaseModel] | Registry


def key_of(name: str, field: FieldInfo) -> str:
    """The key of a field in YAML."""
    return field.alias or name


def keys_of(cls: type[BaseModel]) -> dict[str, FieldInfo]:
    """key → field, in the order of declaration."""
    return {key_of(name, field): field for name, field in cls.model_fields.items()}


def owners(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> Iterator[Owner]:
    """The description classes and registries that a field's type can hold, inside lists and unions too."""
    for item in metadata:
        if isinstance(item, Registry):
            yield item
            return
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        yield from owners(inner, extra)
    elif origin in (Union, UnionType, tuple, list, dict):
        for argument in get_args(annotation):
            yield from owners(argument)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def chosen(owner: Owner, node: Node | None) -> list[type[BaseModel]]:
    """The classes that a mapping may be read into: the one its discriminator picks, else all."""
    if not isinstance(owner, Registry):
        return [owner]
    picked = node.entries.get(owner.discriminator) if isinstance(node, Mapping) else None
    if isinstance(picked, Scalar) and picked.value in owner:
        return [owner[str(picked.value)]]
    return list(owner.classes.values())


def classes_at(owner: Owner, tree: Node, path: tuple[str, ...]) -> list[type[BaseModel]]:
    """The classes that describe the mapping at `path` of `tree`."""
    found = chosen(owner, tree)
    node: Node | None = tree
    inside_dict = False
    for key in path:
        node = child(node, key)
        if key.isdecimal() or inside_dict:
            inside_dict = False
            continue  # an item: the field's owners were already taken from inside the list or mapping
        fields = [field for cls in found if (field := keys_of(cls).get(key))]
        inside_dict = any(_is_dict(field.annotation) for field in fields)
        found = [
            cls
            for field in fields
            for owner in owners(field.annotation, field.metadata)
            for cls in (chosen(owner, node) if not isinstance(node, Sequence) else chosen(owner, None))
        ]
    return found


def _is_dict(annotation: Any) -> bool:
    if get_origin(annotation) is dict:
        return True
    return get_origin(annotation) in (Union, UnionType) and any(map(_is_dict, get_args(annotation)))


def child(node: Node | None, key: str) -> Node | None:
    if isinstance(node, Mapping):
        return node.entries.get(key)
    if isinstance(node, Sequence) and key.isdecimal() and int(key) < len(node.items):
        return node.items[int(key)]
    return None
