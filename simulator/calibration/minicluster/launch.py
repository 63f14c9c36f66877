"""How does a command run as one process per rank of a minicluster, as torchrun would start it?

Every process finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment and talks
through its node's shaped NIC. When one fails the others are ended; Ctrl-C ends them all, and none outlives the
process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from simulator.calibration.minicluster.namespaces import free_port
from simulator.calibration.minicluster.state import Minicluster
from simulator.calibration.minicluster.wiring import HOST_INTERFACE

LIBC = ctypes.CDLL(None)
SIGNAL_WHEN_PARENT_ENDS = 1  # PR_SET_PDEATHSIG of prctl

POLL = 0.02  # seconds
PATIENCE = 3.0  # seconds between asking a process to end and killing it


@dataclass(frozen=True)
class Outcome:
    """Exit code of each rank (negative: ended by that signal) and what each printed."""

    codes: tuple[int, ...]
    outputs: tuple[str, ...]

    @property
    def code(self) -> int:
        """0 if all ranks succeeded, else the first failing code; ranks that were ended because of it come
        last."""
        return next((code for code in self.codes if code > 0), next((code for code in self.codes if code), 0))

    @property
    def first_failed(self) -> int:
        """The rank that `code` comes from; 0 if none failed."""
        return self.codes.index(self.code) if self.code else 0


class Job:
    """A command running on some hosts; rank r of the job is on `hosts[r]`."""

    def __init__(
        self,
        minicluster: Minicluster,
        command: Sequence[str],
        *,
        hosts: Sequence[int] | None = None,
        environment: Mapping[str, str] | None = None,
        echo: IO[str] | None = None,
    ) -> None:
        """Start at once, from a thread that lives as long as the job.

        `echo`: where to copy output while it comes, each line after its rank.
        """
        self.hosts = list(range(len(minicluster.hosts))) if hosts is None else list(hosts)
        _check_hosts(minicluster, self.hosts)
        self._echo = echo
        self._outputs: list[list[str]] = [[] for _ in self.hosts]
        self._processes: list[subprocess.Popen[str]] = []
        base = {**os.environ, **_common_environment(minicluster, self.hosts), **(environment or {})}
        try:
            for rank, host in enumerate(self.hosts):
                namespace = minicluster.namespace(minicluster.hosts[host].name)
                self._processes.append(
                    _start(namespace, command, {**base, "RANK": str(rank), "GROUP_RANK": str(rank)})
                )
        except BaseException:
            self.end()
            raise
        self._readers = [
            threading.Thread(target=self._read, args=(rank,), daemon=True) for rank in range(len(self.hosts))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def running(self) -> bool:
        """Whether any rank still runs."""
        return any(process.poll() is None for process in self._processes)

    def wait(self, timeout: float | None = None) -> Outcome:
        """Outcome of all ranks. Ends them on failure of one, on Ctrl-C, and after `timeout` s
        (TimeoutError)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while None in (codes := [process.poll() for process in self._processes]) and not any(codes):
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"not done after {timeout:g} s:\n{self._tail()}")
                time.sleep(POLL)
        finally:
            self.end()
        for reader in self._readers:
            reader.join(PATIENCE)
        ended = tuple(process.returncode for process in self._processes)
        return Outcome(ended, tuple("".join(lines) for lines in self._outputs))

    def end(self) -> None:
        """End every process that still runs, together with what it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
            deadline = time.monotonic() + PATIENCE
            while any(process.poll() is None for process in self._processes) and time.monotonic() < deadline:
                time.sleep(POLL)

    def _read(self, rank: int) -> None:
        stream = self._processes[rank].stdout
        if stream is None:
            return
        for line in stream:
            self._outputs[rank].append(line)
            if self._echo is not None:
                self._echo.write(f"[{rank}] {line}")
                self._echo.flush()

    def _tail(self) -> str:
        return "\n".join(
            f"[{rank}] {''.join(lines[-5:]).rstrip()}" for rank, lines in enumerate(self._outputs)
        )


def run_job(
    minicluster: Minicluster,
    command: Sequence[str],
    *,
    hosts: Sequence[int] | None = None,
    environment: Mapping[str, str] | None = None,
    echo: IO[str] | None = None,
    timeout: float | None = None,
) -> Outcome:
    """Start the command on `hosts` (default: all) and wait for it. Raises ValueError for hosts that do not
    exist."""
    return Job(minicluster, command, hosts=hosts, environment=environment, echo=echo).wait(timeout)


def _check_hosts(minicluster: Minicluster, hosts: Sequence[int]) -> None:
    wrong = [host for host in hosts if not 0 <= host < len(minicluster.hosts)]
    if wrong or not hosts or len(set(hosts)) < len(hosts):
        raise ValueError(f"hosts {list(hosts)}: name different ones of 0 to {len(minicluster.hosts) - 1}")


def _common_environment(minicluster: Minicluster, hosts: Sequence[int]) -> dict[str, str]:
    master = minicluster.hosts[hosts[0]]
    return {
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": master.address,
        "MASTER_PORT": str(free_port(minicluster.namespace(master.name), master.address)),
        "GLOO_SOCKET_IFNAME": HOST_INTERFACE,
        "TP_SOCKET_IFNAME": HOST_INTERFACE,
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # it warns of every address without a host name
        "CLUSTERSIM_CLUSTER": minicluster.summary,
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
    }


def _start(namespace: str, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_end_with_parent,
        start_new_session=True,  # Ctrl-C reaches the launcher alone, which then ends its ranks in order
    )


def _end_with_parent() -> None:
    """In the new process: be killed when the thread that started it ends."""
    LIBC.prctl(SIGNAL_WHEN_PARENT_ENDS, signal.SIGKILL)


@contextlib.contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM (of `kill`, `timeout`, a cancelled CI job) raises SystemExit, so that everything is cleaned up.

    Only for the main thread, the one that Python handles signals in.
    """

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
