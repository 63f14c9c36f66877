"""How is a minicluster brought up, and how is every trace of it removed?

`up` leaves either a complete minicluster or nothing; `down` removes whatever is left of one, after a crash as
well, and may be repeated.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from simulator.calibration.minicluster import commands, shaping, state
from simulator.calibration.minicluster.namespaces import within
from simulator.calibration.minicluster.privileges import check_possible
from simulator.calibration.minicluster.state import Minicluster
from simulator.calibration.minicluster.wiring import HOST_INTERFACE, Port, Wiring, address_of, wiring_of

GATEWAY = "169.254.0.1"  # stands for "the other end of this cable" on every interface
SUBNET = "10.200.0.0/16"
EXCEPTION_TABLE = 1000  # routing tables of pairs that leave a switch differently from the rest
KILL_AFTER = 2.0  # seconds between SIGTERM and SIGKILL

HOST_SETTINGS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv4/tcp_wmem": "4096 524288 524288",  # the sender, not the receiver, limits what is under way
    "net/ipv4/tcp_rmem": "4096 4194304 4194304",
    "net/ipv4/tcp_autocorking": "0",  # small messages leave at once
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_slow_start_after_idle": "0",
}
SWITCH_SETTINGS = {"net/ipv6/conf/all/disable_ipv6": "1", "net/ipv4/ip_forward": "1"}


class AlreadyUp(RuntimeError):
    """A minicluster of that name exists, or was left by a crash."""


def up(name: str, cluster: Any, *, described_by: str = "", shaper: str = "fair") -> Minicluster:
    """Build the cluster out of namespaces. `described_by` is the catalogue name or path, kept for later
    readers.

    Raises NotPossible without root or iproute2, WiringError for clusters that cannot be built, AlreadyUp.
    """
    state.check_name(name)
    check_possible()
    wiring = wiring_of(cluster)
    mtu = shaping.mtu_for(min(wiring.rates.values()))
    minicluster = Minicluster(name, described_by, wiring.hosts, wiring.switches, shaper, mtu)
    if commands.namespaces(state.namespace_prefix(name)) or not state.claim(minicluster):
        raise AlreadyUp(f"minicluster {name} is up or was left behind: clustersim minicluster down {name}")
    try:
        _build(minicluster, wiring)
    except BaseException:  # Ctrl-C included: half a minicluster is of no use
        down(name)
        raise
    return minicluster


def down(name: str) -> bool:
    """End the minicluster's processes and remove its namespaces; says whether there was anything to
    remove."""
    state.check_name(name)
    check_possible()
    found = commands.namespaces(state.namespace_prefix(name))
    _end_processes(found)
    commands.batch("ip", [f"netns del {namespace}" for namespace in found])
    existed = bool(found) or name in state.names()
    state.remove(name)
    return existed


def down_all() -> list[str]:
    """Take down every minicluster, those of which only namespaces are left included; returns their names."""
    check_possible()
    left = {namespace.split(".")[1] for namespace in commands.namespaces(f"{state.PREFIX}.")}
    everything = sorted(left | set(state.names()))
    return [name for name in everything if down(name)]


def _build(minicluster: Minicluster, wiring: Wiring) -> None:
    ports = wiring.ports()
    mac = {(port.namespace, port.peer): _mac(number) for number, port in enumerate(ports)}
    full, mtu = minicluster.namespace, minicluster.mtu
    interface = {(port.namespace, port.peer): port.interface for port in ports}
    lines = [f"netns add {full(short)}" for short in wiring.namespaces]
    for a, b in wiring.cables():
        first, second = (
            f"name {interface[end]} netns {full(end[0])} address {mac[end]} mtu {mtu}"
            for end in ((a, b), (b, a))
        )
        lines.append(f"link add {first} type veth peer {second}")
    commands.batch("ip", lines)
    hosts = {host.name: host for host in wiring.hosts}
    for short in wiring.namespaces:
        mine = [port for port in ports if port.namespace == short]
        _apply_settings(full(short), HOST_SETTINGS if short in hosts else SWITCH_SETTINGS)
        addressing = [line for port in mine for line in _port_lines(port, mac[port.peer, short], mtu)]
        routing = _host_routes(hosts[short].address) if short in hosts else _switch_routes(mine)
        commands.batch("ip", ["link set lo up", *addressing, *routing], full(short))
        shaped = [line for port in mine for line in shaping.port_lines(port, mtu, minicluster.shaper)]
        commands.batch("tc", shaped, full(short))


def _port_lines(port: Port, peer_mac: str, mtu: int) -> list[str]:
    """Bring an interface up without segmentation offload: bursts of 64 KiB would ride on the shaper's
    credit."""
    frame = mtu + shaping.ETHERNET_HEADER
    return [
        f"link set dev {port.interface} gso_max_segs 1 gso_max_size {frame}",
        f"link set dev {port.interface} up",
        f"neigh add {GATEWAY} lladdr {peer_mac} dev {port.interface} nud permanent",
    ]


def _host_routes(address: str) -> list[str]:
    dev = f"dev {HOST_INTERFACE}"
    return [f"addr add {address}/32 {dev}", f"route add {SUBNET} via {GATEWAY} {dev} onlink src {address}"]


def _switch_routes(ports: list[Port]) -> list[str]:
    """One /32 route per destination, and a rule for each pair that must leave by another port than that
    one."""
    lines: list[str] = []
    main: dict[int, str] = {}
    for number, port in enumerate(ports):
        table = EXCEPTION_TABLE + number
        lines.append(f"route add {SUBNET} via {GATEWAY} dev {port.interface} onlink table {table}")
        for source, destination in port.pairs:
            if destination not in main:
                main[destination] = port.interface
                hop = f"via {GATEWAY} dev {port.interface} onlink"
                lines.append(f"route add {address_of(destination)}/32 {hop}")
            elif main[destination] != port.interface:
                pair = f"from {address_of(source)} to {address_of(destination)}"
                lines.append(f"rule add {pair} lookup {table} priority {table}")
    return lines


def _apply_settings(namespace: str, settings: dict[str, str]) -> None:
    with within(namespace):
        for key, value in settings.items():
            with open(f"/proc/sys/{key}", "w", encoding="ascii") as setting:
                setting.write(value)


def _end_processes(found: list[str]) -> None:
    deadline = time.monotonic() + KILL_AFTER
    number = signal.SIGTERM
    while pids := [pid for namespace in found for pid in commands.processes_in(namespace)]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(0.05)
        if time.monotonic() > deadline:
            number = signal.SIGKILL


def _mac(number: int) -> str:
    """A locally administered address, unique within the minicluster."""
    return f"02:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
