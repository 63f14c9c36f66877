"""A design with one of its numbers changed, without reading its files again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from simulator.description.faults import KeyFaults, suggestion
from simulator.description.quantities import Dimension, handy_text

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.workloads.workload import Workload

BEFORE = {"cluster": (), "workload": (), "model": ("model",), "plan": ("plan",)}
"""First part of a key → the path from the cluster or the workload that it stands for."""

Part = TypeVar("Part")


@dataclass(frozen=True)
class Design:
    """A cluster and what runs on it."""

    cluster: Cluster
    workload: Workload

    def with_value(self, key: str, value: Any) -> Design:
        """The design with `key` (as in `--set`) changed; nothing is checked. `gpus` sets the size of the cluster.

        Raises KeyFaults for a key that is not there.
        """
        if key == "gpus":
            return Design(self.cluster.scaled(gpus=round(value)), self.workload)
        head, path = _split(key)
        if head == "cluster":
            return Design(changed(self.cluster, path, value, key), self.workload)
        return Design(self.cluster, changed(self.workload, path, value, key))

    def value(self, key: str) -> Any:
        """What stands at a key. Raises KeyFaults where there is nothing."""
        if key == "gpus":
            return self.cluster.num_gpus
        head, path = _split(key)
        node: Any = self.cluster if head == "cluster" else self.workload
        for part in path:
            node = _child(node, part, key)
        return node

    def dimension(self, key: str) -> Dimension | None:
        """The kind of quantity that stands at a key; None for a plain number."""
        if key == "gpus":
            return None
        head, path = _split(key)
        node: Any = self.cluster if head == "cluster" else self.workload
        for part in path[:-1]:
            node = _child(node, part, key)
        return dimension_of(node, path[-1]) if isinstance(node, BaseModel) else _of_mapping(self, key)

    def written(self, key: str, value: float, digits: int = 6) -> str:
        """A value of `key` as it is typed, rounded to so many digits."""
        dimension = self.dimension(key)
        rounded = float(f"{value:.{digits}g}")
        return f"{rounded:g}" if dimension is None else handy_text(rounded, dimension)


def dimension_of(description: BaseModel, name: str) -> Dimension | None:
    """The kind of quantity of a field; None for a plain number."""
    found = type(description).model_fields[field_name(description, name)]
    candidates = [*found.metadata, *_metadata(found.annotation)]
    return next((one for one in candidates if isinstance(one, Dimension)), None)


def _metadata(annotation: Any) -> list[Any]:
    """Metadata of an annotation and of what it is made of (`Bytes | None`, `dict[str, Bytes]`)."""
    found = list(getattr(annotation, "__metadata__", ()))
    for inner in getattr(annotation, "__args__", ()):
        found += _metadata(inner)
    return found


def _of_mapping(design: Design, key: str) -> Dimension | None:
    """Values of a mapping (`dense_peak.bf16`) have the dimension that its field states."""
    above, _, _ = key.rpartition(".")
    return design.dimension(above)


def changed(node: Part, path: tuple[str, ...], value: Any, key: str) -> Part:
    """The description, mapping or tuple with what stands at the path replaced."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    new = changed(_child(node, part, key), rest, value, key)
    if isinstance(node, BaseModel):
        return node.model_copy(update={field_name(node, part): new})
    if isinstance(node, dict):
        return {**node, part: new}  # type: ignore[return-value]
    items = list(node)  # type: ignore[call-overload]
    items[int(part)] = new
    return tuple(items)  # type: ignore[return-value]


def field_name(description: BaseModel, name: str) -> str:
    """The field that is written as `name`."""
    for field, info in type(description).model_fields.items():
        if name in (field, info.alias):
            return field
    return name


def _split(key: str) -> tuple[str, tuple[str, ...]]:
    head, _, rest = key.partition(".")
    if head not in BEFORE or not rest:
        known = f"keys start with {', '.join(BEFORE)}, or are gpus"
        raise KeyFaults([(key, f"unknown key{suggestion(head, BEFORE)} ({known})")])
    return head, (*BEFORE[head], *rest.split("."))


def _child(node: Any, part: str, key: str) -> Any:
    known: list[str] = []
    if isinstance(node, BaseModel):
        name = field_name(node, part)
        if name in type(node).model_fields:
            return getattr(node, name)
        known = [info.alias or field for field, info in type(node).model_fields.items()]
    elif isinstance(node, dict):
        if part in node:
            return node[part]
        known = list(node)
    elif isinstance(node, tuple) and part.isdecimal() and int(part) < len(node):
        return node[int(part)]
    raise KeyFaults([(key, f"there is no {part!r}{suggestion(part, known)}")])
