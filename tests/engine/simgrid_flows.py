"""Finish times of flows on links according to SimGrid. Run by the Python for which SimGrid is installed.

Reads {capacities, flows: [{links, start, sizes, cap}], changes: [[time, link, capacity]]} from standard input and
writes the time at which each flow's last message arrived. Written for SimGrid 3.32 (Debian's python3-simgrid).
"""

import json
import sys

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, this_actor

PURE_MAX_MIN = [
    "--cfg=network/model:CM02",
    "--cfg=network/bandwidth-factor:1",
    "--cfg=network/latency-factor:1",
    "--cfg=network/weight-S:0",
    "--cfg=network/TCP-gamma:0",
    "--cfg=network/crosstraffic:0",
    "--cfg=maxmin/precision:1e-12",
    "--log=root.threshold:error",
]


def send(flow, mailbox):
    if flow["start"] > 0:
        this_actor.sleep_for(flow["start"])
    for size in flow["sizes"]:
        comm = Mailbox.by_name(mailbox).put_init(size, size)
        if flow["cap"] is not None:
            comm.set_rate(flow["cap"])
        comm.start().wait()


def receive(flow, mailbox, arrivals, place):
    for _ in flow["sizes"]:
        Mailbox.by_name(mailbox).get()
    arrivals[place] = Engine.clock


def change(link, time, capacity):
    this_actor.sleep_until(time)
    link.set_bandwidth(capacity)


def main():
    case = json.load(sys.stdin)
    engine = Engine(["flows", *PURE_MAX_MIN])
    zone = NetZone.create_full_zone("zone")
    links = [zone.create_link(f"link{i}", capacity) for i, capacity in enumerate(case["capacities"])]
    for link in links:
        link.set_latency(0.0)
        link.seal()
    ends = []
    for i, flow in enumerate(case["flows"]):
        source, destination = (zone.create_host(f"{side}{i}", 1e9).seal() for side in ("source", "sink"))
        route = [LinkInRoute(links[link]) for link in flow["links"]]
        zone.add_route(source.netpoint, destination.netpoint, None, None, route, False)
        ends.append((source, destination))
    keeper = zone.create_host("keeper", 1e9).seal()
    zone.seal()
    arrivals = [None] * len(ends)
    for i, flow in enumerate(case["flows"]):
        Actor.create(f"source{i}", ends[i][0], send, flow, f"box{i}")
        Actor.create(f"sink{i}", ends[i][1], receive, flow, f"box{i}", arrivals, i)
    for time, link, capacity in case["changes"]:
        Actor.create("change", keeper, change, links[link], time, capacity)
    engine.run()
    json.dump(arrivals, sys.stdout)


main()
