"""Which `tc` lines make the sending end of a link behave as a switch port of a given rate?

Two ports are offered. `fair` (the default) is a fair-queueing port: an HTB ceiling at the link's rate over
one leaf class per (source, destination) pair with equal quanta, so that TCP shares follow max-min fairness.
`fifo` is a plain token bucket before one queue: the dumb switch on which TCP shares come out as they may.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.calibration.minicluster.wiring import Port, address_of

ETHERNET_HEADER = 14
QUEUE_LIMIT = 4 << 20  # bytes; above any window used, so nothing is dropped
SHAPERS = ("fair", "fifo")


@dataclass(frozen=True)
class Tuning:
    """Settings that follow from a link's rate (bytes/s): chosen so that 50 Mb/s to 1 Gb/s are faithful."""

    mtu: int
    burst: int
    """Bytes a port may send at once after a pause; what fits in it passes at CPU speed."""


def tuning_for(rate: float) -> Tuning:
    """Small frames and burst at low rates; at 1 Gb/s a burst below ~40 kB under-delivers (timer
    granularity)."""
    mtu = 4000 if rate < 100e6 / 8 else 9000
    frame = mtu + ETHERNET_HEADER
    return Tuning(mtu=mtu, burst=max(2 * frame, round(rate * 320e-6)))


def port_lines(port: Port, mtu: int, shaper: str = "fair") -> list[str]:
    """`tc -batch` lines for one port. Raises ValueError for an unknown shaper."""
    if shaper not in SHAPERS:
        raise ValueError(f"shaper {shaper}: use one of {', '.join(SHAPERS)}")
    burst = max(tuning_for(port.rate).burst, 2 * (mtu + ETHERNET_HEADER))
    rate = _tc_rate(port.rate)
    if shaper == "fifo":
        return [f"qdisc add dev {port.interface} root tbf rate {rate} burst {burst} limit {QUEUE_LIMIT}"]
    return _fair_lines(port, rate, burst, mtu + ETHERNET_HEADER)


def _fair_lines(port: Port, rate: str, burst: int, quantum: int) -> list[str]:
    dev = f"dev {port.interface}"
    share = f"{math.floor(port.rate * 8 / (len(port.pairs) + 1))}bit"
    leaf = f"rate {share} ceil {rate} burst {burst} cburst {burst} quantum {quantum}"
    # Class ffff takes what no filter names, so that nothing ever passes unshaped.
    lines = [
        f"qdisc add {dev} root handle 1: htb default ffff",
        f"class add {dev} parent 1: classid 1:fffe htb rate {rate} ceil {rate} burst {burst} cburst {burst}",
        f"class add {dev} parent 1:fffe classid 1:ffff htb {leaf}",
    ]
    for number, (source, destination) in enumerate(port.pairs, start=1):
        lines += [
            f"class add {dev} parent 1:fffe classid 1:{number:x} htb {leaf}",
            f"qdisc add {dev} parent 1:{number:x} bfifo limit {QUEUE_LIMIT}",
            f"filter add {dev} parent 1: protocol ip prio 1 u32 match ip src {address_of(source)}/32 "
            f"match ip dst {address_of(destination)}/32 flowid 1:{number:x}",
        ]
    return lines


def _tc_rate(rate: float) -> str:
    return f"{round(rate * 8)}bit"
