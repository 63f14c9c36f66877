"""How fast do raw TCP flows between hosts of a minicluster run, alone and against each other?

All flows are driven by this one process: a socket belongs to the namespace it was made in, so both ends of a
flow can be held here, on one clock and with one event loop.
"""

from __future__ import annotations

import gc
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.calibration.minicluster.namespaces import within
from simulator.calibration.minicluster.state import Minicluster

CHUNK = bytes(64 << 10)


@dataclass(frozen=True)
class Flow:
    """`size` bytes (None: without end) from host `source` to host `destination`, beginning `start` s after
    the rest."""

    source: int
    destination: int
    size: int | None = None
    start: float = 0.0


@dataclass
class Arrivals:
    """When a flow's bytes arrived: pairs (seconds since the common start, bytes so far)."""

    flow: Flow
    points: list[tuple[float, int]] = field(default_factory=list)

    @property
    def end(self) -> float:
        """Arrival of the last byte, in seconds after the common start."""
        return self.points[-1][0] if self.points else float("nan")

    def rate(self, begin: float, end: float) -> float:
        """Mean arrival rate in bytes/s between two moments; NaN if fewer than two arrivals lie between
        them."""
        inside = [point for point in self.points if begin <= point[0] <= end]
        if len(inside) < 2 or inside[-1][0] == inside[0][0]:
            return float("nan")
        (first, low), (last, high) = inside[0], inside[-1]
        return (high - low) / (last - first)


@dataclass
class _Sender:
    """The sending end: waits for its start, then pushes until `left` is used up (None: until the run
    ends)."""

    socket: socket.socket
    start: float
    left: int | None

    def push(self) -> bool:
        """Send what the socket takes now; False when there is nothing more to send."""
        size = len(CHUNK) if self.left is None else min(len(CHUNK), self.left)
        try:
            sent = self.socket.send(memoryview(CHUNK)[:size])
        except BlockingIOError:
            return True
        if self.left is not None:
            self.left -= sent
        return self.left is None or self.left > 0


def run_flows(minicluster: Minicluster, flows: Sequence[Flow], *, seconds: float = 60.0) -> list[Arrivals]:
    """Run the flows together until all sized ones have arrived, or for `seconds` if one has no end.

    Returns arrivals in the order of `flows`. Raises TimeoutError if a sized flow is not through within
    `seconds`.
    """
    opened = [_connect(minicluster, flow) for flow in flows]
    gc.disable()  # a full collection stops the event loop, and with it every flow, for tens of milliseconds
    try:
        return _drive(flows, opened, seconds)
    finally:
        gc.enable()
        for pair in opened:
            for end in pair:
                end.close()


def _connect(minicluster: Minicluster, flow: Flow) -> tuple[socket.socket, socket.socket]:
    """(sending, receiving) sockets of one flow, connected through the minicluster and non-blocking."""
    source, destination = minicluster.hosts[flow.source], minicluster.hosts[flow.destination]
    with within(minicluster.namespace(destination.name)):
        listener = socket.create_server((destination.address, 0))
    with listener, within(minicluster.namespace(source.name)):
        sending = socket.create_connection(listener.getsockname(), timeout=10)
        receiving, _ = listener.accept()
    for end in (sending, receiving):
        end.setblocking(False)
    return sending, receiving


def _drive(
    flows: Sequence[Flow], opened: Sequence[tuple[socket.socket, socket.socket]], seconds: float
) -> list[Arrivals]:
    arrivals = [Arrivals(flow) for flow in flows]
    endless = any(flow.size is None for flow in flows)
    unfinished = {i for i, flow in enumerate(flows) if flow.size is not None}
    waiting = sorted(
        (_Sender(sending, flow.start, flow.size) for flow, (sending, _) in zip(flows, opened, strict=True)),
        key=lambda sender: sender.start,
    )
    with selectors.DefaultSelector() as selector:
        for index, (_, receiving) in enumerate(opened):
            selector.register(receiving, selectors.EVENT_READ, index)
        begin = time.monotonic()
        while (now := time.monotonic() - begin) < seconds and (unfinished or endless):
            while waiting and waiting[0].start <= now:
                sender = waiting.pop(0)
                selector.register(sender.socket, selectors.EVENT_WRITE, sender)
            pause = min(0.1, waiting[0].start - now) if waiting else 0.1
            for key, _ in selector.select(pause):
                if isinstance(key.data, _Sender):
                    if not key.data.push():
                        selector.unregister(key.fileobj)
                    continue
                if _take(opened[key.data][1], arrivals[key.data], begin):
                    unfinished.discard(key.data)
    if unfinished and not endless:
        raise TimeoutError(f"flows {sorted(unfinished)} had not arrived after {seconds:g} s")
    return arrivals


def _take(receiving: socket.socket, arrived: Arrivals, begin: float) -> bool:
    """Receive what is there and note when; True when a sized flow is complete."""
    try:
        got = len(receiving.recv(1 << 20))
    except BlockingIOError:
        return False
    before = arrived.points[-1][1] if arrived.points else 0
    arrived.points.append((time.monotonic() - begin, before + got))
    return arrived.flow.size is not None and before + got >= arrived.flow.size
