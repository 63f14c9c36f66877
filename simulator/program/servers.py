"""What replicas send to parameter servers and fetch from them, and when.

A bucket of dense gradients is pushed when its backward is done; when all have pushed theirs (asynchronously: at once)
the server has updated the parameters and they are pulled. Rows of tables are fetched before a step and sent after
its backward. Where the GPUs of a node share a stream, what each has goes over its host link first.

Replicas that do not wait for one another spread over time, so that each moves its bytes as if alone, and what servers
and links must do for all of them in a step goes on beside: the step takes the longer of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulator.costs.software import ParameterServers
from simulator.program import server_links
from simulator.program.chains import Chain, Transfer
from simulator.program.program import Phase
from simulator.program.track import chain_of
from simulator.program.units import Placed, Unit
from simulator.workloads.layers import Operation
from simulator.workloads.operators import DTYPE_BYTES, MemoryBound

if TYPE_CHECKING:
    from simulator.program.communicators import Request
    from simulator.program.pricing import ClassPricing
    from simulator.program.rank_builder import RankBuilder
    from simulator.program.setting import Setting


AT_HOST = {"push": "collect", "pull": "spread"}
"""What a host does for the GPUs of its node on either way, where they share a stream."""

OF_ALL = " of all"
"""How lanes end that stand for what all replicas together send in a step."""


@dataclass(slots=True)
class ServerTraffic:
    """The pushes and pulls of one rank class, on lanes of their own; rows and dense gradients queue apart."""

    setting: Setting
    pricing: ClassPricing
    rank: RankBuilder
    arrived: list[tuple[Unit, int]] = field(
        default_factory=list
    )  # rows gathered from all, to be updated with

    # --- dense parameters --------------------------------------------------------------------------------------------

    def sum_dense(self, unit: Unit, deps: Sequence[int], micro_batch: int) -> list[int]:
        """Push the gradients of a unit, pull what became of its parameters; returns what the next forward waits for."""
        setting = self.setting
        if setting.plan.synchronisation.dense != "servers" or not unit.parameters.total:
            return []
        gradients = unit.parameters.total * setting.reduction_size
        needs = self._way(
            "push", gradients, gradients, "push gradients", "push", deps, micro_batch, rows=False
        )
        needs = self._all_there("push", needs)
        parameters = unit.parameters.total * DTYPE_BYTES[setting.workload.parameter_dtype]
        return self._way(
            "pull", parameters, parameters, "pull parameters", "pull", needs, micro_batch, rows=False
        )

    def _all_there(self, purpose: str, deps: list[int]) -> list[int]:
        """When the last replica's gradients have come, unless nobody waits for it."""
        classes = self.setting.communicators.classes("dp", self.pricing.rank_class)
        if self.setting.plan.synchronisation.scheme == "asp" or len(classes) == 1:
            return deps
        key, phase = self.rank.meeting("dp", purpose), Phase("dp", "all gradients there", 0.0)
        return [
            self.setting.draft.meet(key, self.pricing.rank_class, (f"{purpose} barrier",), (phase,), deps)
        ]

    # --- rows of tables ----------------------------------------------------------------------------------------------

    def fetch_rows(self, stage: int, deps: Sequence[int], passes: int) -> list[int]:
        """Before a step: the rows that its micro-batches meet."""
        if self.setting.plan.synchronisation.sparse != "servers":
            return []
        placed = [one for content in self.setting.content[stage] for one in content.layers]
        own, shared = self._touched(placed, passes)
        return self._way("pull", own, shared, "fetch rows", "fetch", deps, -1, rows=True) if own else []

    def sum_rows(self, unit: Unit, deps: Sequence[int], micro_batch: int, passes: int) -> list[int]:
        """After backward: the gradients of the rows that were met, to servers, or to all other replicas."""
        setting, how = self.setting, self.setting.plan.synchronisation.sparse
        own, shared = self._touched(unit.layers, passes)
        if how == "dense" or not own:
            return []
        if how == "servers":
            sent = self._way("push", own, shared, "send rows", "send", deps, micro_batch, rows=True)
            return self._all_there("send", sent)
        task = self._gather(own * setting.grid.dp, own, deps, micro_batch)
        if task is None:
            return []
        self.arrived.append((unit, task))
        return [task]

    def _gather(self, size: float, own: float, deps: Sequence[int], micro_batch: int) -> int | None:
        """The rows of all replicas to all of them: one all-gather, or by every rank from every host."""
        setting, rank_class = self.setting, self.pricing.rank_class
        if not gathers_through_hosts(setting):
            transfer = self.pricing.communicators.transfer("dp", "all_gather", size, rank_class)
            return self.rank.communicate(transfer, "dp", "gather rows", "rows", deps, micro_batch)
        needs = self._move("collect", own, "gather rows", "rows inside", deps, micro_batch, rows=True)
        needs = self._all_there("gather", needs)
        pulled = self._move("pull", size, "gather rows", "rows", needs, micro_batch, rows=False)
        return pulled[-1] if pulled else None

    def update_rows(self, deps: Sequence[int], passes: int) -> list[int]:
        """Add up what all have sent, and update the rows on the GPU."""
        done = list(deps)
        for unit, task in self.arrived:
            own, _ = self._touched(unit.layers, passes)
            ran = self.rank.run(self._row_update(own * self.setting.grid.dp), [*deps, task], name="update")
            done += [] if ran is None else [ran[1]]
        self.arrived = []
        return done

    def _row_update(self, size: float) -> Chain:
        """Gradients are read; rows and their state are read and written."""
        kernel = MemoryBound("embedding_backward", 3.0 * size, 2.0 * size)
        return chain_of([Operation("update rows", kernel)], self.pricing, "optimizer", True)

    def _touched(self, placed: Sequence[Placed], passes: int) -> tuple[float, float]:
        """Bytes of the rows that one GPU meets, and one GPU's part of those that its node meets."""
        gpus = self.setting.gpus_per_node
        own = _touched_bytes(placed, passes)
        return own, _touched_bytes(placed, passes * gpus) / gpus

    # --- ways --------------------------------------------------------------------------------------------------------

    def _way(
        self,
        direction: str,
        own: float,
        shared: float,
        label: str,
        lane: str,
        deps: Iterable[int],
        micro_batch: int,
        rows: bool,
    ) -> list[int]:
        """`own` bytes of a GPU to the servers (push) or from them (pull).

        Where the GPUs of a node share a stream, between GPU and host, and the host's part of what the node moves.
        """
        if not self.setting.plan.synchronisation.local_aggregation:
            return self._move(direction, own, label, lane, deps, micro_batch, rows)
        inside = (AT_HOST[direction], own, f"{lane} inside")
        outside = (direction, self._of_node(shared, rows), lane)
        needs = list(deps)
        for hop, size, queue in (inside, outside) if direction == "push" else (outside, inside):
            needs = self._move(hop, size, label, queue, needs, micro_batch, rows)
        return needs

    def _of_node(self, shared: float, rows: bool) -> float:
        """Bytes of the node's stream: `server_links` deals them out over its GPUs."""
        return shared * self.setting.gpus_per_node if rows else shared

    def _move(
        self,
        direction: str,
        size: float,
        label: str,
        lane: str,
        deps: Iterable[int],
        micro_batch: int,
        rows: bool,
    ) -> list[int]:
        setting, rank_class = self.setting, self.pricing.rank_class
        cost, count = server_cost(setting), server_count(setting, rows)
        shared = setting.plan.synchronisation.local_aggregation
        op = (
            direction
            if direction in server_links.INSIDE
            else server_links.operation(direction, count, shared)
        )
        rate = cost.rows if rows else cost.dense
        communicators = self.pricing.communicators
        transfer = communicators.server_transfer(op, size, rank_class, cost, rate)
        if transfer is None:
            return list(deps)
        if setting.plan.synchronisation.scheme != "asp":
            task = self.rank.communicate(transfer, "dp", label, lane, deps, micro_batch)
            return [] if task is None else [task]
        cap = communicators.server_rate_alone(op, rank_class, cost, rate)
        self._stand(transfer, label)
        alone = Phase("dp", label, size, latency=transfer.latency, cap=cap)
        return [setting.draft.add(rank_class, (lane,), (alone,), deps, micro_batch)]

    def _stand(self, transfer: Transfer, label: str) -> None:
        """The same bytes as a load on links and servers that goes on all the time, whoever sends them."""
        work = transfer.work * self.setting.steps_at_a_time
        phase = Phase("dp", f"{label}{OF_ALL}", work, transfer.draws)
        self.setting.draft.add(self.pricing.rank_class, (f"{label}{OF_ALL}",), (phase,))


def _touched_bytes(placed: Sequence[Placed], passes: float) -> float:
    """Gradients, with their numbers, of the rows of tables that so many micro-batches of the layers meet."""
    return sum(p.layer.touched_bytes(p.shard, passes) for p in placed)


def server_cost(setting: Setting) -> ParameterServers:
    """Of the software. Raises ValueError where it does not say (see `simulation.check_runs`)."""
    cost = setting.software.servers
    if cost is None:
        raise ValueError(f"{setting.software.name} does not say what parameter servers cost")
    return cost


def server_count(setting: Setting, rows: bool) -> int:
    """Servers that hold rows of tables, or dense parameters."""
    synchronisation = setting.plan.synchronisation
    count = min(synchronisation.servers or setting.num_nodes, setting.num_nodes)
    return min(count, synchronisation.table_parts or count) if rows else count


def gathers_through_hosts(setting: Setting) -> bool:
    """Whether rows come to every rank from every host, instead of by an all-gather."""
    return setting.software.servers is not None and setting.software.servers.gather == "hosts"


def server_requests(setting: Setting) -> Iterator[Request]:
    """What of hosts and servers a step uses."""
    synchronisation = setting.plan.synchronisation
    used = [synchronisation.dense == "servers", synchronisation.sparse == "servers"]
    for rows, uses in zip((False, True), used, strict=True):
        for direction in ("push", "pull") if uses else ():
            shared = synchronisation.local_aggregation
            op = server_links.operation(direction, server_count(setting, rows), shared)
            yield server_links.AXIS, op, 1.0
    if any(used) and synchronisation.local_aggregation:
        yield from ((server_links.AXIS, op, 1.0) for op in server_links.INSIDE)
    if synchronisation.sparse == "gathered" and gathers_through_hosts(setting):
        yield server_links.AXIS, server_links.operation("pull", server_count(setting, False), False), 1.0
        yield server_links.AXIS, "collect", 1.0
    elif synchronisation.sparse == "gathered":
        yield "dp", "all_gather", 1e6
    if any(used) or synchronisation.sparse == "gathered":
        yield "dp", "all_reduce", 1e6  # who waits for whom
