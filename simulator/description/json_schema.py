"""Which JSON Schema says what a YAML file of one kind may hold (for editors, and as a second opinion in tests)."""

from __future__ import annotations

import copy
from typing import Any

from simulator.description.kinds import KINDS, Kind
from simulator.description.validation import adapter

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: str) -> dict[str, Any]:
    """The schema of a file of this kind, names and `extends` included. Raises ValueError for kinds without one."""
    known = KINDS[kind]
    owner = known.owner()
    if owner is None:
        raise ValueError(f"there is no schema for {kind}")
    schema = adapter(owner).json_schema(by_alias=True, ref_template="#/$defs/{model}")
    definitions = schema.pop("$defs", {})
    for definition in definitions.values():
        _allow_references(definition, known)
    _allow_references(schema, known)
    _allow_kind(schema, definitions, known)
    partial = {f"Partial{name}": _relaxed(definition) for name, definition in definitions.items()}
    return {
        "$schema": _DIALECT,
        "title": known.what,
        "if": {"required": ["extends"]},
        "then": _relaxed(schema),
        "else": schema,
        "$defs": definitions | partial,
    }


def _allow_references(schema: dict[str, Any], kind: Kind) -> None:
    """Let the keys that may name another description also be text."""
    for key, field in schema.get("properties", {}).items():
        if key in dict(kind.references) or any(key in dict(k.references) for k in KINDS.values()):
            extended = {"type": "object", "required": ["extends"]}
            described = {name: field.pop(name) for name in ("description", "default") if name in field}
            inner = dict(field)
            field.clear()
            field |= {**described, "anyOf": [{"type": "string"}, extended, inner]}


def _allow_kind(schema: dict[str, Any], definitions: dict[str, Any], kind: Kind) -> None:
    """Let the file state its kind and extend another."""
    roots = [schema] if "properties" in schema else [*_members(schema, definitions)]
    for root in roots:
        properties = root.setdefault("properties", {})
        properties.setdefault("kind", {"const": kind.name})
        properties["extends"] = {
            "type": "string",
            "description": f"Name or path of the {kind.name} to start from.",
        }


def _members(schema: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    references = [choice.get("$ref", "") for choice in schema.get("oneOf", [schema])]
    return [definitions[reference.rpartition("/")[2]] for reference in references if reference]


def _relaxed(schema: Any) -> Any:
    """The schema without required keys, as fits what extends something."""
    if isinstance(schema, list):
        return [_relaxed(item) for item in schema]
    if not isinstance(schema, dict):
        return copy.copy(schema)
    relaxed = {}
    for key, value in schema.items():
        if key == "required" and value != ["extends"]:
            continue
        if key == "oneOf":
            key = "anyOf"  # without its discriminator a mapping may fit several
        if key == "discriminator":
            continue
        if key == "$ref":
            value = value.replace("#/$defs/", "#/$defs/Partial")
        relaxed[key] = value if key in ("examples", "const", "enum", "mapping") else _relaxed(value)
    return relaxed
