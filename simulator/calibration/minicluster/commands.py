"""How are `ip` and `tc` asked to do many things at once, and what is said when they refuse?"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class CommandError(RuntimeError):
    """A command of iproute2 failed; the message carries its own words."""


def run(command: Sequence[str], *, stdin: str | None = None) -> str:
    """Standard output of the command. Raises CommandError with its standard error if it fails."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def batch(tool: str, lines: Sequence[str], namespace: str | None = None) -> None:
    """Run `lines` through one `ip -batch` or `tc -batch`, inside `namespace` if given: a process per line is
    slow."""
    if not lines:
        return
    inside = [] if namespace is None else ["-n", namespace]
    run([tool, *inside, "-batch", "-"], stdin="\n".join(lines) + "\n")


def namespaces(prefix: str) -> list[str]:
    """Names of the network namespaces that begin with `prefix`."""
    names = [line.split()[0] for line in run(["ip", "netns", "list"]).splitlines() if line.strip()]
    return sorted(name for name in names if name.startswith(prefix))


def processes_in(namespace: str) -> list[int]:
    """Ids of the processes that run inside the namespace."""
    return [int(pid) for pid in run(["ip", "netns", "pids", namespace]).split()]
