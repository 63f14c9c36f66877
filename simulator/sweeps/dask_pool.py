"""The same work on many machines: a pool over the workers of a dask.distributed scheduler (extra `cluster`).

Dask's scheduler unpickles what it receives: let it listen on the loopback device only, or use TLS.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from simulator.description.faults import KeyFaults
from simulator.sweeps.processes import ExecutorPool

CONNECT_SECONDS = 30
WINDOW_PER_THREAD = 2
"""Items under way for every thread of the workers; what comes later is sent to workers as they join."""


@contextmanager
def dask_pool(address: str, wait_for: int = 1) -> Iterator[ExecutorPool]:
    """A pool over the scheduler at `address`, once it has `wait_for` workers.

    A worker that is lost costs what it was working on; dask gives that to another one. Raises KeyFaults where dask is
    not installed or nobody answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise KeyFaults([("--scheduler", "needs dask: pip install 'clustersim[cluster]'")]) from None
    try:
        client: Any = Client(address, timeout=CONNECT_SECONDS)
        client.wait_for_workers(wait_for, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:  # dask's timeout is an OSError
        raise KeyFaults([("--scheduler", f"{address}: {error}")]) from None
    with client:
        threads = sum(client.nthreads().values())
        yield ExecutorPool(client.get_executor(pure=False), max(1, WINDOW_PER_THREAD * threads))
