"""How a resolved tree becomes a validated object, or a list of faults that each have a place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from simulator.description.faults import (
    MISSING,
    MOST_FAULTS,
    Fault,
    KeyFaults,
    Place,
    fault_at,
    shown,
    suggestion,
)
from simulator.description.fields import Owner, child, classes_at, keys_of
from simulator.description.quantities import FROM_TEXT
from simulator.description.registry import Registry
from simulator.description.tree import DISCRIMINATORS, Mapping, Node, Scalar, Sequence, plain, walk


def validate(owner: Owner, tree: Mapping) -> tuple[BaseModel | None, list[Fault]]:
    """(the object, no faults) or (None, faults) for a tree in which all references are resolved.

    The object remembers the place of each of its keys (`Description.place_of`).
    """
    try:
        found: BaseModel = adapter(owner).validate_python(plain(tree), context=FROM_TEXT)
    except ValidationError as error:
        return None, list(_placed(error, owner, tree))
    found.__dict__["_places"] = places(tree)
    return found, []


@lru_cache(maxsize=64)
def adapter(owner: Owner) -> TypeAdapter[Any]:
    from typing import Annotated

    return TypeAdapter(Annotated[Any, owner] if isinstance(owner, Registry) else owner)


def places(tree: Node) -> dict[str, Place]:
    """Dotted key → place of its value, for every key of the tree."""
    return {".".join(path): node.place for path, node in walk(tree)}


def _placed(error: ValidationError, owner: Owner, tree: Mapping) -> Iterator[Fault]:
    seen: set[tuple[Place, str]] = set()
    for item in error.errors(include_url=False):
        path, rest = _follow(tree, item["loc"])
        for fault in _faults(item, path, rest, owner, tree):
            place = Place(fault.file, fault.line, fault.column)
            if (place, fault.key) not in seen:  # branches of a union say the same thing several times
                seen.add((place, fault.key))
                yield fault
        if len(seen) >= MOST_FAULTS:
            return


def _follow(tree: Node, loc: tuple[int | str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the key path in the tree, what is left over), the tags of unions stripped."""
    path: list[str] = []
    node: Node | None = tree
    tag_taken = False
    for position, part in enumerate(loc):
        key = str(part)
        if not tag_taken and _is_tag(node, key):
            tag_taken = True
            continue
        below = child(node, key)
        if below is None:
            if isinstance(node, Mapping) and position == len(loc) - 1:
                return tuple(path), (key,)
            continue  # the name of a branch of a union, or a mark such as [key]
        path.append(key)
        node, tag_taken = below, False
    return tuple(path), ()


def _is_tag(node: Node | None, key: str) -> bool:
    if not isinstance(node, Mapping):
        return False
    tags = (node.entries.get(name) for name in DISCRIMINATORS)
    return any(isinstance(tag, Scalar) and tag.value == key for tag in tags)


def _faults(
    item: Any, path: tuple[str, ...], missing: tuple[str, ...], owner: Owner, tree: Mapping
) -> Iterator[Fault]:
    node, key_place = _at(tree, path)
    kind, context = item["type"], item.get("ctx", {})
    key = ".".join(path)
    if kind == "value_error" and isinstance(context.get("error"), KeyFaults):
        for below, message in context["error"].faults:
            full = (*path, *below.split("."))
            yield fault_at(nearest(tree, full), ".".join(full), message)
    elif kind == "missing":
        full_key = ".".join((*path, *missing))
        yield fault_at(node.place, full_key, f"{MISSING}{_purpose(owner, tree, path, missing)}")
    elif kind == "extra_forbidden":
        known = [k for cls in classes_at(owner, tree, path[:-1]) for k in keys_of(cls)]
        hint = suggestion(path[-1], known) or f" (known: {', '.join(dict.fromkeys(known))})"
        yield fault_at(key_place, key, f"unknown key{hint}")
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        yield _union_fault(kind, context, path, node, owner, tree)
    else:
        yield fault_at(node.place, key, message_for(kind, item["msg"], context, _written(node)))


def _at(tree: Mapping, path: tuple[str, ...]) -> tuple[Node, Place]:
    """The node at `path` and the place of its key."""
    node: Node = tree
    key_place = tree.place
    for key in path:
        key_place = node.key_place(key) if isinstance(node, Mapping) else node.place
        below = child(node, key)
        if below is None:
            return node, key_place
        node = below
    return node, key_place


def nearest(tree: Mapping, path: tuple[str, ...]) -> Place:
    """The place of the value at `path`, or of the nearest mapping above it that is there."""
    return _at(tree, path)[0].place


def _purpose(owner: Owner, tree: Mapping, path: tuple[str, ...], missing: tuple[str, ...]) -> str:
    for cls in classes_at(owner, tree, path):
        field = keys_of(cls).get(missing[-1]) if missing else None
        if field is not None and field.description:
            return f": {field.description}"
    return ""


def _union_fault(
    kind: str, context: Any, path: tuple[str, ...], node: Node, owner: Owner, tree: Mapping
) -> Fault:
    name = context["discriminator"].strip("'")
    key = ".".join((*path, name))
    if kind == "union_tag_invalid":
        known = _quoted(context["expected_tags"])
        place = nearest(tree, (*path, name))
        return fault_at(place, key, _not_one_of(context["tag"], known))
    known = [
        str(value)
        for cls in classes_at(owner, tree, path)
        for value in getattr(cls.model_fields[name].annotation, "__args__", ())
    ]
    known.sort()
    return fault_at(node.place, key, f"{MISSING}; one of {', '.join(known)}")


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _not_one_of(value: Any, known: list[str]) -> str:
    hint = suggestion(str(value), known)
    return f"{shown(value)} is not one of {', '.join(known)}{hint}"


_NEEDS = {
    "a mapping (key: value)": ("model_type", "model_attributes_type", "dict_type", "dataclass_type"),
    "a list": ("tuple_type", "list_type", "set_type"),
    "a whole number": ("int_type", "int_parsing", "int_from_float", "int_parsing_size"),
    "a number": ("float_type", "float_parsing", "finite_number"),
    "true or false": ("bool_type", "bool_parsing"),
    "text (put it in quotes)": ("string_type",),
}
_NEEDED = {kind: what for what, kinds in _NEEDS.items() for kind in kinds}


def message_for(kind: str, message: str, context: Any, value: str) -> str:
    """What is wrong with a value, as it is written, in our words where pydantic's are about Python."""
    if kind in ("value_error", "assertion_error"):
        return str(context.get("error", message))
    if kind in ("literal_error", "enum"):
        return _not_one_of(value, _quoted(context["expected"]) or [context["expected"]])
    if kind == "too_short":
        least = context["min_length"]
        return (
            f"needs at least {least} {'entry' if least == 1 else 'entries'}, not {context['actual_length']}"
        )
    if kind in _NEEDED:
        return f"needs {_NEEDED[kind]}, not {value}"
    return f"{message.replace('Input should be', 'must be').replace('Input should', 'should')} (is {value})"


def _written(node: Node) -> str:
    if isinstance(node, Scalar):
        return shown(node.text) if node.text or node.value is not None else "nothing"
    return f"a list of {len(node.items)}" if isinstance(node, Sequence) else "a mapping"
