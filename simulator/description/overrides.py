"""How `--set plan.tp=8` reaches into a description: laid over the resolved tree before it is validated.

Any key can be set, also one that the YAML leaves out; a value is read as YAML (`8`, `null`, `[4, 4]`, `{kind:
torus, ...}`, a catalogue name where one may stand). An unknown key becomes a fault of validation, placed at
the setting itself.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import replace
from typing import Any

from simulator.description.faults import DescriptionError, Place, fault_at, shown, suggestion
from simulator.description.kinds import KINDS, Kind
from simulator.description.resolving import Resolver
from simulator.description.tree import Mapping, Node, Scalar, Sequence, from_plain, merge
from simulator.description.yaml_reader import parse_value

HEADS = {"cluster": "cluster", "workload": "workload", "model": "workload", "plan": "workload"}
"""First part of a setting → the description that it belongs to."""


def split_settings(settings: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`KEY=VALUE` settings → (overrides of the cluster, overrides of the workload), keys relative to each.

    Raises DescriptionError for a setting without `=` or with an unknown first part.
    """
    parts: dict[str, dict[str, Any]] = {"cluster": {}, "workload": {}}
    faults = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        head, _, rest = key.partition(".")
        place = Place(f"--set {setting}")
        if not equals or not key:
            faults.append(fault_at(place, key, "needs the form KEY=VALUE, such as plan.tp=8"))
        elif head not in HEADS:
            hint = suggestion(head, HEADS) or f"; one of {', '.join(HEADS)}"
            faults.append(fault_at(place, key, f"unknown key {shown(head)}{hint}"))
        elif head in ("cluster", "workload") and not rest:
            faults.append(fault_at(place, key, f"name the key of the {head}, such as {head}.name"))
        else:
            parts[HEADS[head]][rest if head in ("cluster", "workload") else key] = value
    if faults:
        raise DescriptionError(faults)
    return parts["cluster"], parts["workload"]


def apply_overrides(tree: Mapping, kind: Kind, overrides: Dict[str, Any], resolver: Resolver) -> Mapping:
    """The tree with every override laid over it, shorter keys first; faults go to the resolver."""
    for key, value in sorted(overrides.items(), key=lambda item: item[0].count(".")):
        place = Place(f"--set {_full_key(kind, key)}={_written(value)}")
        try:
            node = parse_value(value, place) if isinstance(value, str) else None
            node = node if node is not None else from_plain(value, place)
            path = tuple(key.removeprefix("workload.").removeprefix("cluster.").split("."))
            changed = _set(tree, path, node, kind, place, resolver, ())
            if isinstance(changed, Mapping):
                tree = changed
        except DescriptionError as error:
            resolver.faults += error.faults
    return tree


def _set(
    tree: Node,
    path: tuple[str, ...],
    value: Node,
    kind: Kind,
    place: Place,
    resolver: Resolver,
    above: tuple[str, ...],
) -> Node:
    """`tree` with `value` at `path`; mappings on the way that are missing or null are made."""
    if not path:
        raise DescriptionError([fault_at(place, "", "names no key")])
    key, rest = path[0], path[1:]
    here = (*above, key)
    if isinstance(tree, Sequence):
        return _set_item(tree, path, value, kind, place, resolver, above)
    if isinstance(tree, Scalar):
        if tree.value is not None:
            message = f"{shown(tree.text)} has no keys below it"
            raise DescriptionError([fault_at(place, ".".join(above), message)])
        tree = Mapping({}, place, {})
    inner = KINDS[dict(kind.references).get(key, kind.name)]
    old = tree.entries.get(key, Scalar(None, place))
    if rest:
        new = _set(old, rest, value, inner, place, resolver, here)
    else:
        new = merge(old, resolver.value(key, value, kind, here))
    return tree.with_entry(key, new, place)


def _set_item(
    tree: Sequence,
    path: tuple[str, ...],
    value: Node,
    kind: Kind,
    place: Place,
    resolver: Resolver,
    above: tuple[str, ...],
) -> Sequence:
    """As _set, inside a list: the key is a number from 0."""
    key, rest, here = path[0], path[1:], (*above, path[0])
    if not key.isdecimal() or int(key) >= len(tree.items):
        message = f"{shown(key)} is no position in this list (0 to {len(tree.items) - 1})"
        raise DescriptionError([fault_at(place, ".".join(here), message)])
    items = list(tree.items)
    index = int(key)
    if rest:
        items[index] = _set(items[index], rest, value, kind, place, resolver, here)
    else:
        items[index] = merge(items[index], resolver.value(key, value, kind, here))
    return replace(tree, items=tuple(items))


def _full_key(kind: Kind, key: str) -> str:
    """The key as it is typed on the command line."""
    head = key.partition(".")[0]
    return key if head in HEADS or kind.name not in HEADS else f"{kind.name}.{key}"


def _written(value: Any) -> str:
    """A plain value as it would be typed."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
