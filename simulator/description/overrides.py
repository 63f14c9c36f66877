"""How `--set plan.tp=8` reaches into a description: laid over the resolved tree before it is validated.

Any key can be set, also one that the YAML leaves out; a value is read as YAML (`8`, `null`, `[4, 4]`, `{kind:
torus, ...}`, a catalogue name where one may stand). An unknown key becomes a fault of validation, placed at
the setting itself.
"""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace
from typing import Any

from simulator.description.faults import DescriptionError, Place, fault_at, shown, suggestion
from simulator.description.fields import keys_of
from simulator.description.kinds import KINDS, Kind
from simulator.description.resolving import Resolver
from simulator.description.tree import Mapping, Node, Scalar, Sequence, from_plain, merge
from simulator.description.yaml_reader import parse_value

HEADS = {"cluster": "cluster", "workload": "workload", "model": "workload", "plan": "workload"}
"""First part of a setting → the description that it belongs to."""

Path = tuple[str, ...]


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
            hint = _where(key) or suggestion(head, HEADS) or f"; one of {', '.join(HEADS)}"
            faults.append(fault_at(place, key, f"unknown key {shown(head)}{hint}"))
        elif head in ("cluster", "workload") and not rest:
            faults.append(fault_at(place, key, f"name the key of the {head}, such as {head}.name"))
        else:
            parts[HEADS[head]][rest if head in ("cluster", "workload") else key] = value
    if faults:
        raise DescriptionError(faults)
    return parts["cluster"], parts["workload"]


def _where(key: str) -> str:
    """`; did you mean plan.tp?`: the key below every description that has its first part. Empty for none."""
    head = key.partition(".")[0]
    owners = [name for name in HEADS if any(head in keys_of(one) for one in KINDS[name].classes())]
    return f"; did you mean {' or '.join(f'{owner}.{key}' for owner in owners)}?" if owners else ""


def apply_overrides(tree: Mapping, kind: Kind, overrides: Dict[str, Any], resolver: Resolver) -> Mapping:
    """The tree with every override laid over it, shorter keys first; faults go to the resolver."""
    for key, value in sorted(overrides.items(), key=lambda item: item[0].count(".")):
        place = Place(f"--set {_full_key(kind, key)}={_written(value)}")
        path = tuple(key.removeprefix("workload.").removeprefix("cluster.").split("."))
        try:
            node = parse_value(value, place) if isinstance(value, str) else from_plain(value, place)
            tree = _Setting(node, place, resolver).in_mapping(tree, path, kind, ())
        except DescriptionError as error:
            resolver.faults += error.faults
    return tree


@dataclass(frozen=True, slots=True)
class _Setting:
    """One value on its way into a tree. `path` is what is left of its key, `above` what was passed."""

    value: Node
    place: Place
    resolver: Resolver

    def in_mapping(self, tree: Mapping, path: Path, kind: Kind, above: Path) -> Mapping:
        key, here = path[0], (*above, path[0])
        old = tree.entries.get(key, Scalar(None, self.place))
        return tree.with_entry(key, self.laid_over(old, path, kind, here), self.place)

    def in_sequence(self, tree: Sequence, path: Path, kind: Kind, above: Path) -> Sequence:
        key, here = path[0], (*above, path[0])
        if not key.isdecimal() or int(key) >= len(tree.items):
            last = len(tree.items) - 1
            raise self.fault(here, f"{shown(key)} is no position in this list (0 to {last})")
        items = list(tree.items)
        items[int(key)] = self.laid_over(items[int(key)], path, kind, here)
        return replace(tree, items=tuple(items))

    def laid_over(self, old: Node, path: Path, kind: Kind, here: Path) -> Node:
        """What stands at `here` afterwards; mappings on the way that are missing or null are made."""
        key, rest = path[0], path[1:]
        if not rest:
            return merge(old, self.resolver.value(key, self.value, kind, here))
        inner = KINDS[dict(kind.references).get(key, kind.name)]
        if isinstance(old, Sequence):
            return self.in_sequence(old, rest, inner, here)
        if isinstance(old, Scalar):
            if old.value is not None:
                raise self.fault(here, f"{shown(old.text)} has no keys below it")
            old = Mapping({}, self.place, {})
        return self.in_mapping(old, rest, inner, here)

    def fault(self, key: Path, message: str) -> DescriptionError:
        return DescriptionError([fault_at(self.place, ".".join(key), message)])


def _full_key(kind: Kind, key: str) -> str:
    """The key as it is typed on the command line."""
    head = key.partition(".")[0]
    return key if head in HEADS or kind.name not in HEADS else f"{kind.name}.{key}"


def _written(value: Any) -> str:
    """A plain value as it would be typed."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
