"""Which `tc` lines make the sending end of a link behave as a switch port of a given rate?

Two ports are offered. `fair` (the default) is a fair-queueing port: an HTB ceiling at the link's rate over
one leaf class per (source, destination) pair with equal quanta, so that TCP shares follow max-min fairness.
`fifo` is a plain token bucket before one queue: the dumb switch on which TCP shares come out as they may.
"""

from __future__ import annotations

import math

from simulator.calibration.minicluster.wiring import HOST_INTERFACE, Port, address_of

HEADERS = 52  # bytes of IP and TCP headers (with timestamps) in every frame
ETHERNET_HEADER = 14
QUEUE_LIMIT = 4 << 20  # bytes; above any window used, so nothing is dropped
SHAPERS = ("fair", "fifo")


def mtu_for(rate: float) -> int:
    """Frame size for links of `rate` bytes/s: small frames where they are slow, so that little passes as a burst,
    large ones where they are fast, so that timers and processors keep up (tried from 50 Mb/s to 1 Gb/s)."""
    megabits = rate * 8e-6
    return 1500 if megabits <= 60 else 4000 if megabits <= 250 else 9000


def burst_for(mtu: int, *, at_host: bool) -> int:
    """Bytes a port may send at once after a pause: half a frame where a message enters the network.

    That is what a message that follows a pause gets for nothing, besides the frame that is under way while the bucket
    is empty. A switch's port has 4 frames: what the jitter of the port before it cost, it must be able to make up for.
    """
    return (1 if at_host else 8) * (mtu + ETHERNET_HEADER) // 2


def wire_rate(rate: float, mtu: int) -> float:
    """The rate to shape frames to so that full frames deliver `rate` bytes/s of payload.

    A description's bandwidth is what messages get; how much framing a real network adds is not its subject.
    """
    return rate * (mtu + ETHERNET_HEADER) / (mtu - HEADERS)


def port_lines(port: Port, mtu: int, shaper: str = "fair") -> list[str]:
    """`tc -batch` lines for one port. Raises ValueError for an unknown shaper."""
    if shaper not in SHAPERS:
        raise ValueError(f"shaper {shaper}: use one of {', '.join(SHAPERS)}")
    bits = wire_rate(port.rate, mtu) * 8
    if shaper == "fifo":
        burst = burst_for(mtu, at_host=port.interface == HOST_INTERFACE)
        return [
            f"qdisc add dev {port.interface} root tbf rate {bits:.0f}bit burst {burst} limit {QUEUE_LIMIT}"
        ]
    return _fair_lines(port, bits, mtu)


def _fair_lines(port: Port, bits: float, mtu: int) -> list[str]:
    dev, quantum = f"dev {port.interface}", mtu + ETHERNET_HEADER
    burst = burst_for(mtu, at_host=port.interface == HOST_INTERFACE)
    rate, share = f"{bits:.0f}bit", f"{math.floor(bits / (len(port.pairs) + 1))}bit"
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
