"""May this process build network namespaces here, and if not, what is missing?"""

from __future__ import annotations

import os
import shutil
import sys

CAP_SYS_ADMIN, CAP_NET_ADMIN = 21, 12


class NotPossible(RuntimeError):
    """A minicluster cannot be built here; the message says what to change."""


def reason_against() -> str | None:
    """Why no minicluster can be built here, or None if one can."""
    if sys.platform != "linux":
        return f"a minicluster needs Linux network namespaces; this is {sys.platform}"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found: install iproute2 (on Debian: apt-get install iproute2)"
    if not _has_capabilities(CAP_SYS_ADMIN, CAP_NET_ADMIN):
        return "a minicluster needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN): use sudo or a privileged container"
    return None


def check_possible() -> None:
    """Raises NotPossible with the reason."""
    reason = reason_against()
    if reason is not None:
        raise NotPossible(reason)


def _has_capabilities(*numbers: int) -> bool:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    mask = int(effective, 16)
    return all(mask >> number & 1 for number in numbers)
