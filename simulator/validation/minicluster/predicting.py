"""What does the simulator say of each case? The same descriptions, topology and engine as for any other cluster."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from simulator.validation.minicluster.cases import ContentionCase, Network, SharingCase, StepCase

if TYPE_CHECKING:
    from simulator.hardware.cluster import Cluster
    from simulator.program.program import Phase
    from simulator.results.prediction import Prediction
    from simulator.workloads.workload import Workload


def cluster_of(network: Network, gpus: int | None = None) -> Cluster:
    """The described cluster, with another number of GPUs if one is given."""
    import simulator

    return simulator.load_cluster(network.cluster, gpus or network.gpus, dict(network.overrides))


def workload_of(case: StepCase) -> Workload:
    import simulator

    return simulator.load_workload("gpt-mini", dict(case.changes))


def sharing_seconds(case: SharingCase) -> list[float]:
    """When each flow's last byte arrives."""
    from simulator.hardware.topology import build_topology
    from simulator.program.program import Phase

    topology = build_topology(cluster_of(case.network))
    phases = []
    for flow in case.flows:
        routes = topology.routes(np.array([flow.source]), np.array([flow.destination]))
        draws = sorted(zip(routes.link.tolist(), routes.share.tolist(), strict=True))
        phases.append(Phase("pp", "flow", float(flow.size or 0), tuple(draws), latency=flow.start))
    return _ends(topology.capacity.tolist(), phases)


def contention_seconds(case: ContentionCase) -> list[float]:
    """How long the collective of each job takes beside the others."""
    from simulator.costs.collectives import collective_cost, library_for
    from simulator.costs.collectives.patterns import edges
    from simulator.hardware.topology import build_topology
    from simulator.program.group_shapes import group_shapes
    from simulator.program.link_loads import link_loads
    from simulator.program.program import Phase

    cluster = cluster_of(case.network)
    topology, library = build_topology(cluster), library_for(cluster.nodes[0], cluster.software)
    phases = []
    for op, size, ranks in case.jobs:
        members = np.array([sorted(ranks)], dtype=np.int64)  # torch.distributed.new_group puts them in order
        (shape, *_), _ = group_shapes(topology, members)
        cost = collective_cost(op, size, shape, library)
        (_, link, amount), _ = link_loads(
            topology, edges(cost.pattern, members, topology.gpu_node), cost.pattern
        )
        achieved = amount / cost.efficiency["nic"]
        cap = inf if cost.stretch == 1.0 else float((topology.capacity[link] / achieved).min()) / cost.stretch
        draws = tuple(sorted(zip(link.tolist(), achieved.tolist(), strict=True)))
        phases.append(Phase("dp", op, cost.volume, draws, latency=cost.latency, cap=cap))
    return _ends(topology.capacity.tolist(), phases)


def step_prediction(case: StepCase) -> Prediction:
    """The training step, every rank by itself."""
    from simulator.program.builder import BuildOptions
    from simulator.simulation import SimulationOptions, simulate

    options = SimulationOptions(periodic=False, build=BuildOptions(fold=False))
    return simulate(cluster_of(case.network, case.ranks), workload_of(case), options)


def _ends(capacities: Sequence[float], phases: Sequence[Phase]) -> list[float]:
    """Ends of phases that all start at once, on links of these capacities."""
    from simulator.engine.engine import execute
    from simulator.program.program import Lane, Program, Resource, Task

    program = Program(
        resources=[Resource(str(link), "link", capacity) for link, capacity in enumerate(capacities)],
        lanes=[Lane(str(lane), lane) for lane in range(len(phases))],
        tasks=[Task((phase,), (lane,)) for lane, phase in enumerate(phases)],
        queues=[[lane] for lane in range(len(phases))],
        rank_classes=[str(lane) for lane in range(len(phases))],
        members=[1] * len(phases),
    )
    ends: list[float] = execute(program).end.tolist()
    return ends
