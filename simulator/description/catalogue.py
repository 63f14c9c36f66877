"""Where a description named in a file or on the command line is found: in the catalogue by name, or by path.

The catalogue is `hardware/` and `workloads/`: inside the installed package, or beside it in a checkout. A
name is a file's path below the folder of its kind, without `.yaml`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from simulator.description.faults import (
    MISSING,
    DescriptionError,
    Fault,
    Place,
    fault_at,
    listing,
    shown,
    suggestion,
)
from simulator.description.kinds import CALIBRATIONS, KINDS
from simulator.description.tree import Mapping
from simulator.description.yaml_reader import parse_tree, read_text

_PACKAGE = Path(__file__).resolve().parent.parent
SUFFIXES = (".yaml", ".yml")


def folders(kind: str) -> list[Path]:
    """The folders that hold descriptions of this kind, the first one wins."""
    if kind == "calibration":
        return [folder for name in CALIBRATIONS for folder in folders(name)]
    roots = (_PACKAGE / "_catalogue", _PACKAGE.parent)
    return [root / KINDS[kind].folder for root in roots if (root / KINDS[kind].folder).is_dir()]


def entries(kind: str) -> dict[str, Path]:
    """name → file of every description of this kind in the catalogue, by name."""
    found: dict[str, Path] = {}
    for folder in folders(kind):
        for path in folder.rglob("*.yaml"):
            found.setdefault(path.relative_to(folder).as_posix().removesuffix(".yaml"), path)
    return dict(sorted(found.items()))


def names(kind: str) -> list[str]:
    return list(entries(kind))


def is_path(text: str) -> bool:
    """Whether `text` is meant as a path rather than as a catalogue name."""
    # os.path answers False where pathlib raises: for text too long, or with a NUL in it
    return text.endswith(SUFFIXES) or text.startswith(("/", "./", "../", "~")) or os.path.isfile(Path(text))


def find(
    kind: str, name_or_path: str, *, at: Place | None = None, key: str = "", beside: Path | None = None
) -> Path:
    """The file that describes `name_or_path`; a relative path starts at folder `beside` (else: here).

    Raises DescriptionError, placed at `at` (where the name was written), for a name that is not in the
    catalogue.
    """
    for folder in folders(kind):
        if ".." not in name_or_path and os.path.isfile(folder / f"{name_or_path}.yaml"):
            return folder / f"{name_or_path}.yaml"
    path = Path(os.path.expanduser(name_or_path))
    if beside is not None and not path.is_absolute():
        path = beside / path
    if is_path(name_or_path) or os.path.isfile(path):
        if at is not None and not os.path.isfile(path) and not os.path.isdir(path):
            raise DescriptionError([fault_at(at, key, f"there is no file {shown(str(path))}")])
        return path
    known = entries(kind)
    hint = suggestion(name_or_path, known) or (f" (known: {listing(list(known))})" if known else "")
    message = f"unknown {kind} {shown(name_or_path)}{_other_kind(name_or_path)}{hint}"
    raise DescriptionError([fault_at(at or Place(name_or_path), key, message)])


def _other_kind(name: str) -> str:
    """What the catalogue has under a name that is none of the wanted kind."""
    others = [kind for kind in KINDS if name in entries(kind)]
    return f": that is a {others[0]}" if others else ""


def kind_of(path: Path, tree: Mapping) -> str:
    """The kind of the description in a file: its `kind` key, else by folder. Raises DescriptionError."""
    from simulator.hardware.fabrics import FABRICS

    node = tree.entries.get("kind")
    written = getattr(node, "value", None)
    if written in KINDS:
        return str(written)
    if written in FABRICS:
        return "fabric"
    parent = path.resolve().parent.as_posix()
    for kind in KINDS.values():
        if parent.endswith("/" + kind.folder) or f"/{kind.folder}/" in parent + "/":
            return kind.name
    known = [*KINDS, *FABRICS.names()]
    if node is None:
        raise DescriptionError([fault_at(tree.place, "kind", f"{MISSING}; one of {', '.join(known)}")])
    hint = suggestion(str(written), known) or f" (known: {', '.join(known)})"
    raise DescriptionError([fault_at(node.place, "kind", f"unknown kind {shown(written)}{hint}")])


def read(path: Path) -> tuple[Mapping, list[Fault]]:
    """The tree of one file and the faults it can be read with; read again only when the file has changed.

    Raises DescriptionError where nothing can be made of the file.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        return parse_tree(read_text(path), str(path))
    return _read(display(path), path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=512)
def _read(file: str, path: Path, changed: int, size: int) -> tuple[Mapping, list[Fault]]:
    return parse_tree(read_text(path), file)


def display(path: Path) -> str:
    """The path as faults show it: relative to where we are, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def find_any(text: str) -> list[tuple[str, Path]]:
    """(kind, file) of everything called `text`: a path, `KIND/NAME`, or a name that kinds may share.

    Raises DescriptionError where there is nothing.
    """
    kind, slash, name = text.partition("/")
    if slash and kind in KINDS and name in (known := entries(kind)):
        return [(kind, known[name])]
    found = [(kind, known[text]) for kind in KINDS if text in (known := entries(kind))]
    if found:
        return found
    path = Path(os.path.expanduser(text))
    if is_path(text) or os.path.lexists(path):
        tree, _ = read(path)
        return [(kind_of(path, tree), path)]
    every = sorted({name for kind in KINDS for name in entries(kind)})
    message = f"unknown name{suggestion(text, every)}; clustersim list shows what there is"
    raise DescriptionError([fault_at(Place("catalogue"), shown(text), message)])
