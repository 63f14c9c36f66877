"""How long does a step take at least, and how much memory? A closed form over thousands of plans at once.

The same cost models as the engine's, composed by what every execution must respect: a stage computes one chunk at a
time, a first forward passes through all stages before it and a last backward through them again, gradients follow the
last backward, the update follows the norm over all ranks. Waiting of any other kind is left out, and so is all sharing
of links, so that the engine never answers less (design section 4, two speeds).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from simulator.costs.software import SoftwareProfile
from simulator.sweeps import layer_prices, stage_prices
from simulator.sweeps.flights import moments
from simulator.sweeps.layouts import Layout
from simulator.sweeps.plan_table import PlanTable
from simulator.sweeps.price_book import PriceBook, distinct

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1 - 1e-9
"""The engine adds in another order: this keeps the last bits from mattering."""


ENDING_BACKWARD = ("gpipe", "1f1b", "interleaved")
"""Schedules whose stages all end with the backward of their first chunk; of others only the work is counted."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Per plan: least step time, peak bytes of the fullest GPU, and kernel seconds of one GPU (mean over stages)."""

    step_time: Floats
    peak_bytes: Floats
    kernel_seconds: Floats


class Bound:
    """Lower bounds for plans of one workload on one cluster; prices are kept from call to call."""

    def __init__(self, book: PriceBook) -> None:
        self.book = book

    def of(self, table: PlanTable) -> Bounds:
        """The bounds of every plan, which must be able to run (see `space`)."""
        total = len(table)
        step, peak, kernels = np.zeros(total), np.zeros(total), np.zeros(total)
        first, which = distinct([table[key] for key in ("variant", "pp", "vpp", "layout", "schedule")])
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(first)), side="right")
        for number, index in enumerate(first.tolist()):
            members = order[ends[number - 1] if number else 0 : ends[number]]
            alike = _Alike(self.book, table.take(members), table, index)
            step[members], kernels[members] = alike.step_time()
            peak[members] = alike.peak_bytes()
        return Bounds(step * ROUNDING, peak * ROUNDING, kernels * ROUNDING)


class _Alike:
    """Plans that share schedule and layout; arrays are [plans, contents] or [plans, stages]."""

    def __init__(self, book: PriceBook, plans: PlanTable, table: PlanTable, index: int) -> None:
        self.book, self.plans = book, plans
        self.layout: Layout = book.layout(table, index)
        self.stages, self.chunks = self.layout.stages, self.layout.chunks
        setting, _ = book.setting(table, index)
        self.software: SoftwareProfile = setting.software
        self.schedule = setting.plan.schedule_name
        self.host_waits = setting.host_waits
        self.waits_to_receive = setting.receives_late and self.stages > 1
        self.waits_to_send = not setting.overlaps_pipeline and self.stages > 1
        self.overlaps_gradients = setting.overlaps_gradients
        self.ties = table.workload.model.tied
        self.count = plans.num_micro_batches.astype(float)[:, None]
        rows, which = book.layer_prices(plans)
        self.layer = {key: rows[:, i][which] for i, key in enumerate(layer_prices.QUANTITIES)}
        rows, which = book.stage_prices(plans)
        self.stage = {key: rows[:, i][which] for i, key in enumerate(stage_prices.QUANTITIES)}
        sent = self._sent()
        rows, which = book.hops(plans, sent)
        self.hop_forward, self.hop_backward = rows[:, 0][which], rows[:, 1][which]

    def _sent(self) -> Floats:
        """The smallest tensor that crosses a boundary, per plan."""
        if self.stages == 1:
            return np.zeros(len(self.plans))
        last = [content[-1] for content in self.layout.contents if content]
        senders = sorted(
            {self.layout.contents[c][-1] for c in self.layout.content[:-1] if self.layout.contents[c]}
        )
        found: Floats = self.layer["sent"][:, senders or last].min(axis=1)
        return found

    # --- time ---

    def step_time(self) -> tuple[Floats, Floats]:
        """(step time, kernel seconds of a GPU averaged over stages)."""
        kernels = self.count * (self._per_content("kernels") @ self.layout.uses)
        begun, ended = self._compute_lanes()
        reduced = self._reduced(begun, ended, kernels)
        norms = reduced + self.stage["norm"]
        updates = self.stage["update"]
        end = (norms + updates).max(axis=1)
        if self.software.optimizer.norm_passes:  # everybody waits for the norm over all stages
            last = updates.max(axis=1)
            barrier = np.where(last > 0.0, self.book.barrier(self.plans), 0.0)
            end = np.maximum(end, np.where(updates > 0.0, norms, 0.0).max(axis=1) + barrier + last)
        nodes = self.book.cluster.total_nodes
        waiting = self.software.jitter * sqrt(2.0 * log(max(1, nodes)))
        return end + waiting * kernels.min(axis=1), kernels.mean(axis=1)

    def _per_content(self, quantity: str) -> Floats:
        return self.layer[quantity] @ self.layout.counts.T

    def _chunk_seconds(self, direction: str) -> Floats:
        """Of one micro-batch in each content: kernels and exposed communication, and the host where it is awaited."""
        seconds = self._per_content(direction)
        if not self.host_waits:
            return seconds
        behind = self._per_content(f"{direction}_host") - seconds
        at = 0 if direction == "forward" else -1
        leads = [
            self.layer[f"{direction}_lead"][:, content[at]] if content else np.zeros(len(self.plans))
            for content in self.layout.contents
        ]
        lead = np.maximum(np.stack(leads, axis=1), behind)
        return seconds + np.maximum(lead, 0.0)

    def _compute_lanes(self) -> tuple[Floats, Floats]:
        """When each stage begins its first forward and ends its last backward."""
        stages, software = np.arange(self.stages), self.software
        forward, backward = self._chunk_seconds("forward"), self._chunk_seconds("backward")
        last = self.stages - 1
        inner = self.stages * self.chunks - 1
        overhead = software.p2p_overhead if self.host_waits else 0.0
        arrive_f, arrive_b = self._arrivals()
        first = self.layout.first_chunk
        first_f = forward[:, first] + np.where(stages > 0, arrive_f + overhead, 0.0)
        first_b = backward[:, first] + np.where(stages < last, arrive_b + overhead, 0.0)
        received_f = self.chunks - (stages == 0)
        received_b = self.chunks - (stages == last)
        busy = (forward + backward) @ self.layout.uses
        if inner:
            busy = busy + received_f * (arrive_f + overhead) + received_b * (arrive_b + overhead)
            busy = busy + (received_b + received_f) * overhead  # as many are sent
        busy = self.count * busy
        if inner:
            busy = busy - np.where(stages > 0, overhead, 0.0)  # the last one sent delays nothing
        begun, first_end = self._first_forward(first_f)
        ended = first_end + busy - first_f + self._gaps()
        if not self.overlaps_gradients:
            ended = ended + np.maximum(
                self.count * self.stage["reduce_each"] - self.stage["reduce_after"], 0.0
            )
        ended = np.maximum(ended, self._host_lane(begun, backward[:, first]))
        ended = np.maximum(ended, self.count * self.stage["gather_each"])
        self._last_backward = first_b
        tail = np.zeros_like(ended)
        if self.schedule not in ENDING_BACKWARD:
            return begun, ended
        tail[:, 1:] = np.cumsum(self.hop_backward[:, 1:] + first_b[:, :-1], axis=1)
        reached = np.maximum.accumulate((ended + tail)[:, ::-1], axis=1)[:, ::-1]
        return begun, reached - tail

    def _arrivals(self) -> tuple[Floats, Floats]:
        """Seconds in which a tensor that was cut over tp for the way is gathered: forward, backward, [plans, 1]."""
        contents, content = self.layout.contents, self.layout.content
        first = sorted({contents[c][0] for c in content[1:] if contents[c]})
        last = sorted({contents[c][-1] for c in content[:-1] if contents[c]})
        if not first or not last:
            return np.zeros((len(self.plans), 1)), np.zeros((len(self.plans), 1))
        return (
            self.layer["forward_arrival"][:, first].min(axis=1)[:, None],
            self.layer["backward_arrival"][:, last].min(axis=1)[:, None],
        )

    def _first_forward(self, seconds: Floats) -> tuple[Floats, Floats]:
        """(begin, end) of the first forward of each stage."""
        way = np.cumsum(seconds, axis=1)
        way[:, 1:] += np.cumsum(self.hop_forward[:, :-1], axis=1)
        own = np.maximum(self.stage["gather_before"] + seconds, self.stage["gather_chunk"])
        own = np.maximum(own, self.software.step_overhead + seconds)
        end = np.maximum.accumulate(own - way, axis=1) + way
        return end - seconds, end

    def _gaps(self) -> Floats:
        """Seconds between chunks for which a stage waits for its own transfers, [plans, stages]."""
        if not self.waits_to_send or self.schedule not in ENDING_BACKWARD:
            return np.zeros((len(self.plans), self.stages))
        stages, m = np.arange(self.stages), self.count
        send_f = np.where(stages < self.stages - 1, self.hop_forward, 0.0)
        send_b = np.where(stages > 0, self.hop_backward, 0.0)
        if self.chunks > 1 or not self.waits_to_receive:
            # Every chunk that is handed on delays the next one; the last backward is followed by none.
            wrap_f, wrap_b = self.hop_forward, self.hop_backward
            forwards = send_f + (self.chunks - 1) * wrap_f
            backwards = send_b + (self.chunks - 1) * wrap_b
            return m * (forwards + backwards) - send_b
        receive_f = np.where(stages > 0, np.roll(self.hop_forward, 1, axis=1), 0.0)
        receive_b = np.where(stages < self.stages - 1, np.roll(self.hop_backward, -1, axis=1), 0.0)
        forward_forward, forward_backward = np.maximum(send_f, receive_f), np.maximum(send_f, receive_b)
        backward_forward, backward_backward = np.maximum(send_b, receive_f), np.maximum(send_b, receive_b)
        if self.schedule == "gpipe":
            return (m - 1) * (forward_forward + backward_backward) + forward_backward
        warmup = np.minimum(self.stages - stages - 1, m)
        steady = m - warmup
        within = np.where(steady > 0, warmup, warmup - 1)
        turns = np.where(steady > 0, steady, 1)
        return (
            within * (forward_forward + backward_backward)
            + turns * forward_backward
            + np.maximum(steady - 1, 0) * backward_forward
        )

    def _host_lane(self, begun: Floats, last_backward: Floats) -> Floats:
        """When the last backward ends if the host is late, launching kernel after kernel."""
        if self.host_waits:
            return np.zeros_like(begun)
        forward, backward = self._per_content("forward_host"), self._per_content("backward_host")
        launched = self.count * ((forward + backward) @ self.layout.uses)
        stages = np.arange(self.stages)
        if self.stages > 1:
            crossings = 4 * self.chunks - 2 * (stages == 0) - 2 * (stages == self.stages - 1)
            launched = launched + self.software.p2p_overhead * (self.count * crossings - (stages > 0))
        before = launched - backward[:, self.layout.first_chunk]
        leads = [
            self.layer["backward_lead"][:, content[-1]] if content else np.zeros(len(self.plans))
            for content in self.layout.contents
        ]
        lead = np.stack(leads, axis=1)[:, self.layout.first_chunk]
        return self.software.step_overhead + before + lead + last_backward

    def _reduced(self, begun: Floats, ended: Floats, kernels: Floats) -> Floats:
        """When the gradients of each stage are reduced."""
        price, stages = self.stage, np.arange(self.stages)
        reduced = ended + price["reduce_after"]
        if self.schedule in ENDING_BACKWARD:
            reduced = np.maximum(reduced, ended - self._last_backward + price["reduce_chunk"])
        reduced = np.maximum(reduced, begun + self.count * price["reduce_each"])
        reduced = np.maximum(reduced, self.count * price["links_each"])
        shared = price["shared"] + (self.count - 1) * price["shared_each"]
        reduced = np.maximum(reduced, begun + kernels + shared)
        if self.waits_to_send:
            reduced = np.maximum(reduced, ended + np.where(stages > 0, self.hop_backward, 0.0))
        if self.ties and self.stages > 1:
            tied = self.book.tied(self.plans)
            both = np.maximum(reduced[:, 0], reduced[:, -1]) + tied
            reduced[:, 0], reduced[:, -1] = both, both
        return reduced

    # --- memory ---

    def peak_bytes(self) -> Floats:
        """Of the fullest GPU: what is resident, activations in flight, and what lives beside them in backward."""
        kept, working = self._per_content("activations"), self._largest("transient")
        distinct_stages, which = self.layout.distinct_stages
        peak = np.zeros(len(self.plans))
        slack = 1.0 + self.software.memory.fragmentation
        for number in np.unique(self.plans.num_micro_batches).tolist():
            where = self.plans.num_micro_batches == number
            for index, contents in enumerate(distinct_stages):
                stage = int(np.argmax(which == index))  # the first of equals holds most
                full = moments(self.schedule, stage, self.stages, number, contents)
                size = full.held.shape[1]
                held = (kept[where][:, :size] @ full.held.T + working[where][:, full.running]).max(axis=1)
                held += self.stage["gathered"][where, stage]
                peak[where] = np.maximum(peak[where], self.stage["resident"][where, stage] + slack * held)
        return peak

    def _largest(self, quantity: str) -> Floats:
        """The largest among the layers of each content, [plans, contents]."""
        per_kind = self.layer[quantity]
        columns = [
            per_kind[:, sorted(set(content))].max(axis=1) if content else np.zeros(len(self.plans))
            for content in self.layout.contents
        ]
        return np.stack(columns, axis=1)
