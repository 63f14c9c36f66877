"""How a name or path becomes a validated description, overrides included."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from pathlib import Path
from typing import Any

from simulator.description import catalogue
from simulator.description.faults import DescriptionError, Fault, Place
from simulator.description.kinds import KINDS
from simulator.description.overrides import apply_overrides
from simulator.description.resolving import Resolver
from simulator.description.tree import Mapping, from_plain


def load(
    kind: str, name_or_path: str | Path | Dict[str, Any], overrides: Dict[str, Any] | None = None
) -> Any:
    """The validated description of this kind.

    `overrides` maps dotted keys of the description to YAML text or plain values. Raises DescriptionError with
    every fault found. The class of the result is the one that `KINDS[kind]` names.
    """
    tree, faults = resolve(kind, name_or_path, overrides)
    owner = KINDS[kind].owner()
    if owner is None:
        if faults:
            raise DescriptionError(faults)
        return tree
    from simulator.description.validation import validate

    found, more = validate(owner, tree)
    if faults or more:
        raise DescriptionError([*faults, *_not_yet_said(more, faults)])
    return found


def resolve(
    kind: str, name_or_path: str | Path | Dict[str, Any], overrides: Dict[str, Any] | None = None
) -> tuple[Mapping, list[Fault]]:
    """The complete tree of a description, overrides laid over it, and the faults met so far.

    Raises DescriptionError where nothing can be read at all.
    """
    resolver = Resolver()
    known = KINDS[kind]
    if isinstance(name_or_path, Dict):
        given = from_plain(dict(name_or_path), Place(f"the {kind} given"))
        tree = (
            resolver.mapping(given, known, ()) if isinstance(given, Mapping) else Mapping({}, Place(""), {})
        )
    else:
        path = catalogue.find(kind, str(name_or_path))
        tree = resolver.read(known, path, str(name_or_path))
    tree = apply_overrides(tree, known, overrides or {}, resolver)
    return tree, resolver.faults


def _not_yet_said(faults: list[Fault], said: list[Fault]) -> list[Fault]:
    """Without the faults that only follow from earlier ones: at the same place (an unknown name is no mapping), or
    keys missing where what they would come from could not be read.
    """
    before = {(fault.file, fault.line, fault.column) for fault in said}
    unread = [fault.key.removesuffix("extends") for fault in said if fault.key.split(".")[-1] == "extends"]

    def follows(fault: Fault) -> bool:
        at_the_same_place = (fault.file, fault.line, fault.column) in before
        return at_the_same_place or (fault.is_missing and any(fault.key.startswith(base) for base in unread))

    return [fault for fault in faults if not follows(fault)]
