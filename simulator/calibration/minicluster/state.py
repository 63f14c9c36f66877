"""Which miniclusters exist on this machine, and what are they made of?

One JSON file per minicluster, written before the first namespace is made, so that a crash at any later moment
leaves enough to take everything down. The namespaces' names alone suffice too: they carry the minicluster's
name.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from simulator.calibration.minicluster.wiring import Host

PREFIX = "clustersim"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


class UnknownMinicluster(LookupError):
    """No minicluster of that name is up."""


@dataclass(frozen=True)
class Minicluster:
    """A minicluster that is up (or was being brought up): what `exec`, `down` and the validation need to
    know."""

    name: str
    cluster: str  # the description it was built from
    hosts: tuple[Host, ...]
    switches: tuple[str, ...]
    shaper: str
    mtu: int

    @property
    def summary(self) -> str:
        """What measurements made on it must agree in to be comparable; its name is not part of it."""
        rates = sorted({host.rate for host in self.hosts}, reverse=True)
        megabits = "/".join(f"{rate * 8 / 1e6:g}" for rate in rates)
        switches = ", ".join(self.switches)
        return (
            f"{self.cluster}: {len(self.hosts)} nodes at {megabits} Mb/s, switches {switches}, "
            f"{self.shaper} ports, MTU {self.mtu}"
        )

    def namespace(self, short: str) -> str:
        """Full name of the namespace of host or switch `short`."""
        return f"{namespace_prefix(self.name)}{short}"


def namespace_prefix(name: str) -> str:
    """What every namespace of minicluster `name` begins with; `.` ends the name, so no name contains
    another."""
    return f"{PREFIX}.{name}."


def run_directory() -> Path:
    """Where state files live: CLUSTERSIM_RUN_DIR or /run/clustersim (gone after a reboot, as namespaces
    are)."""
    return Path(os.environ.get("CLUSTERSIM_RUN_DIR", "/run/clustersim"))


def check_name(name: str) -> None:
    """Raises ValueError unless `name` can be part of a namespace's and a file's name."""
    if not NAME.fullmatch(name):
        raise ValueError(f"minicluster name {name!r}: use 1 to 32 of a-z, 0-9 and '-', not at the ends")


def claim(minicluster: Minicluster) -> bool:
    """Write the state file; False if there is one of that name already, so that two `up` cannot share a
    name."""
    directory = run_directory()
    directory.mkdir(parents=True, exist_ok=True)
    scratch = directory / f".{minicluster.name}.{os.getpid()}"
    scratch.write_text(json.dumps(asdict(minicluster), indent=1))
    try:
        os.link(scratch, _path(minicluster.name))  # unlike rename, refuses to replace
    except FileExistsError:
        return False
    finally:
        scratch.unlink()
    return True


def read(name: str) -> Minicluster:
    """Raises UnknownMinicluster, naming those that are up."""
    check_name(name)
    try:
        fields = json.loads(_path(name).read_text())
    except FileNotFoundError:
        up = ", ".join(names()) or "none"
        raise UnknownMinicluster(f"minicluster {name} is not up (up: {up})") from None
    hosts = tuple(Host(**host) for host in fields.pop("hosts"))
    return Minicluster(hosts=hosts, switches=tuple(fields.pop("switches")), **fields)


def remove(name: str) -> None:
    _path(name).unlink(missing_ok=True)


def names() -> list[str]:
    """Names of the miniclusters with a state file, ascending."""
    directory = run_directory()
    return sorted(path.stem for path in directory.glob("*.json")) if directory.is_dir() else []


def _path(name: str) -> Path:
    return run_directory() / f"{name}.json"
