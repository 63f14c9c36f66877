"""How does this process act inside another network namespace?"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
NETNS_DIRECTORY = "/run/netns"


@contextmanager
def within(namespace: str) -> Iterator[None]:
    """The calling thread (and what it starts) is inside the named namespace for the duration.

    A socket stays in the namespace it was made in. Raises OSError if there is no such namespace or no
    privilege.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(f"{NETNS_DIRECTORY}/{namespace}", os.O_RDONLY)
        try:
            _setns(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _setns(home)
    finally:
        os.close(home)


def free_port(namespace: str, address: str) -> int:
    """A TCP port nobody listens on at `address` inside the namespace."""
    with within(namespace), socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _setns(descriptor: int) -> None:
    # os.setns exists from Python 3.12 on only.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
