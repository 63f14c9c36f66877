"""How long does a step take at least, and how much memory? A closed form over thousands of plans at once.

The same cost models as the engine's, composed by what every execution must respect: a stage computes one chunk at a
time, a first forward passes through all stages before it and a last backward through them again, gradients follow the
last backward, the update follows the norm over all ranks. Collectives run alone, at the ports of their own members; and
links that data parallelism and hosts share are busy for what all put on them. Waiting of any other kind is left out, so
that the engine never answers less (design section 4, two speeds).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from simulator.costs.kernels import calibration_for
from simulator.costs.power import slowdown
from simulator.costs.software import SoftwareProfile
from simulator.sweeps import layer_prices, stage_prices
from simulator.sweeps.flights import moments
from simulator.sweeps.layouts import Layout
from simulator.sweeps.plan_table import PlanTable
from simulator.sweeps.price_book import PriceBook, distinct
from simulator.sweeps.stage_traffic import WINDOWS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1 - 1e-9
"""The engine adds in another order: this keeps the last bits from mattering."""


ENDING_BACKWARD = ("gpipe", "1f1b", "interleaved")
"""Schedules whose stages all end with the backward of their first chunk; of others only the work is counted."""


@dataclass(frozen=True, eq=False)
class Times:
    """Per plan: least step time, and kernel seconds of one GPU (mean over stages)."""

    step_time: Floats
    kernel_seconds: Floats


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
        times = self.times(table)
        return Bounds(times.step_time, self.peak_bytes(table), times.kernel_seconds)

    def times(self, table: PlanTable) -> Times:
        """Least step times and kernel seconds of every plan."""
        found = np.zeros((2, len(table)))
        for members, index in _alike(table):
            found[:, members] = _Time(self.book, table.take(members), table, index).bounds()
        found *= ROUNDING
        return Times(found[0], found[1])

    def peak_bytes(self, table: PlanTable) -> Floats:
        """Least peak bytes of every plan's fullest GPU; costs much less than times."""
        peak = np.zeros(len(table))
        for members, index in _alike(table):
            peak[members] = _peak_bytes(self.book, table.take(members), table, index)
        return peak * ROUNDING


def _alike(table: PlanTable) -> Iterator[tuple[Ints, int]]:
    """(positions, one of them) of the plans that share schedule and layout."""
    if not len(table):
        return
    first, which = distinct([table[key] for key in ("variant", "pp", "vpp", "layout", "schedule")])
    order = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[order], np.arange(len(first)), side="right")
    for number, index in enumerate(first.tolist()):
        yield order[ends[number - 1] if number else 0 : ends[number]], index


class _Time:
    """Step times of plans that share schedule and layout; arrays are [plans, contents] or [plans, stages]."""

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
        self.gathers_behind = setting.plan.zero3.prefetch > 0
        self.overlaps_gradients = setting.overlaps_gradients
        self.overlaps_steps = setting.overlaps_steps
        self.exchanges_behind = setting.exchanges_behind
        self.is_known = (
            self.schedule in ENDING_BACKWARD and not self.overlaps_steps and not self.exchanges_behind
        )
        self.ties = table.workload.model.tied
        self.count = plans.num_micro_batches.astype(float)[:, None]
        self.passes = self.count / setting.schedule.copies  # of each chunk
        rows, which = book.layer_prices(plans)
        self.layer = {key: rows[:, i][which] for i, key in enumerate(layer_prices.QUANTITIES)}
        rows, chunk_rows, which = book.stage_prices(plans)
        self.stage = {key: rows[:, i][which] for i, key in enumerate(stage_prices.QUANTITIES)}
        self.chunk = {key: chunk_rows[:, i][which] for i, key in enumerate(stage_prices.CHUNK_QUANTITIES)}
        rows, which = book.traffic(plans)
        self.links = {key: rows[:, i][which] for i, key in enumerate(WINDOWS)}
        self.slower = self._clocks()
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

    def bounds(self) -> tuple[Floats, Floats]:
        """(step time, kernel seconds of a GPU averaged over stages)."""
        kernels = self._per_content("kernels") @ self.layout.uses
        kernels = self.passes * (kernels + self.slower * (self._per_content("limited") @ self.layout.uses))
        end = self._last_end(kernels) if self.is_known else self._work()
        if not self.overlaps_steps:
            end = np.maximum(end, self._busy("each", "once", "updating"))
        nodes = self.book.cluster.total_nodes
        waiting = self.software.jitter * sqrt(2.0 * log(max(1, nodes)))
        if self.book.cluster.stragglers is not None:
            waiting = self.book.cluster.stragglers.mean  # in whose place they stand
        return end + waiting * kernels.min(axis=1), kernels.mean(axis=1)

    def _work(self) -> Floats:
        """What the busiest stage computes, whatever the order; exchanges too where nothing runs beside them."""
        if self.exchanges_behind:
            kernels = self._per_content("kernels") @ self.layout.uses
            return (self.passes * kernels).max(axis=1)
        seconds = self._chunk_seconds("forward", False) + self._chunk_seconds("backward", False)
        return (self.passes * self._per_stage(seconds)).max(axis=1)

    def _last_end(self, kernels: Floats) -> Floats:
        begun, ended = self._compute_lanes()
        reduced = self._reduced(begun, ended, kernels)
        norm, updates = self.stage["norm"], self.stage["update"]
        norms = reduced + norm
        end: Floats = (norms + updates).max(axis=1)
        # The last reduction that a shared link carries, of whichever stage, is followed by a norm and an update.
        began = ended if not self.overlaps_gradients else self._last_begun
        crowded = began.min(axis=1) + self._busy("ending")
        end = np.maximum(end, crowded + (norm + updates).min(axis=1))
        known = norms.min(axis=1)
        if self.software.optimizer.norm_passes:  # everybody waits for the norm over all stages
            last = updates.max(axis=1)
            barrier = np.where(norm.max(axis=1) > 0.0, self.book.barrier(self.plans), 0.0)
            known = (
                np.maximum(np.where(norm > 0.0, norms, 0.0).max(axis=1), crowded + norm.min(axis=1)) + barrier
            )
            end = np.maximum(end, known + last)
        return np.maximum(end, known + self._busy("updating"))

    def _busy(self, *windows: str) -> Floats:
        """Seconds for which the busiest link must be at work, per plan."""
        total = sum(self.links[window] * (self.passes if window == "each" else 1.0) for window in windows)
        busiest: Floats = np.asarray(total).max(axis=1)
        return busiest

    def _clocks(self) -> Floats:
        """By how much the power limit slows matrix products on each stage at least, [plans, stages]; 0: not at all.

        Time spent waiting for others cools the GPU, so it is overestimated here.
        """
        if len(self.book.gpus) > 1:
            return np.zeros((len(self.plans), self.stages))
        gpu = self.book.gpus[0]
        load = [self._per_content(key) @ self.layout.uses for key in ("multiplying", "streaming", "waiting")]
        total = np.maximum(sum(load), np.finfo(float).tiny)
        factor: Floats = slowdown(gpu, calibration_for(gpu), load[0] / total, load[1] / total)
        return factor - 1.0

    def _per_content(self, quantity: str) -> Floats:
        return self.layer[quantity] @ self.layout.counts.T

    def _per_stage(self, of_chunk: Floats) -> Floats:
        """Sums over the chunks of each stage, from [plans, contents, stages]."""
        summed: Floats = np.einsum("nus,us->ns", of_chunk, self.layout.uses)
        return summed

    def _first(self, of_chunk: Floats) -> Floats:
        """Of the first chunk of each stage, from [plans, contents, stages]."""
        return of_chunk[:, self.layout.first_chunk, np.arange(self.stages)]

    def _chunk_seconds(self, direction: str, with_host: bool) -> Floats:
        """Of one micro-batch of each content on each stage: kernels, exposed communication, a host that is awaited."""
        seconds = self._per_content(direction)[:, :, None]
        growth = self._per_content(f"{direction}_limited")[:, :, None]
        slowed = seconds + growth * self.slower[:, None, :]
        if not with_host:
            return slowed
        at = 0 if direction == "forward" else -1
        lead = self._of_layer(f"{direction}_lead", at)[:, :, None]
        host = self._per_content(f"{direction}_host")[:, :, None]
        launch = min(self.software.launch, self.software.launch_backward)  # of the first kernel at least
        at_full_clock = np.maximum(seconds + lead, host)
        return np.maximum(np.where(host > 0.0, slowed + launch, slowed), at_full_clock)

    def _durations(self, direction: str, computed: Floats, arrival: Floats) -> Floats:
        """Seconds from when a chunk's input is there to the end of its last unit, [plans, contents, stages].

        Kernels take what is `computed`; or longer, if units wait for gathers and reductions. `arrival` are seconds
        in which the input is prepared, which come on top, although gathers may run meanwhile.
        """
        gathers, sums = self.chunk[f"gather_{direction}"], self.chunk["reduce_backward"]
        runs = self._runs(direction)
        beside = np.maximum(np.where(runs, gathers, 0.0) - arrival, 0.0)[:, :, None]
        found: Floats = np.maximum(computed, beside) if self.gathers_behind else computed + beside
        if direction == "forward" or not sums.any():
            return found
        first, last = self._of_layer("backward", -1), self._of_layer("backward", 0)
        awaited = np.where(runs & (sums > 0.0), first + sums + last, 0.0)
        return np.maximum(found, awaited[:, :, None])

    def _runs(self, direction: str) -> NDArray[np.bool_]:
        """Whether every layer has something to run, so that no unit is passed over, [plans, 1]."""
        return self.layer[direction].min(axis=1, keepdims=True) > 0.0

    def _of_layer(self, quantity: str, at: int) -> Floats:
        """Of the first (0) or last (-1) layer of each content, [plans, contents]."""
        columns = [
            self.layer[quantity][:, content[at]] if content else np.zeros(len(self.plans))
            for content in self.layout.contents
        ]
        return np.stack(columns, axis=1)

    def _compute_lanes(self) -> tuple[Floats, Floats]:
        """When each stage begins its first forward and ends its last backward."""
        stages, software = np.arange(self.stages), self.software
        last = self.stages - 1
        overhead = software.p2p_overhead if self.host_waits else 0.0
        arrive_f, arrive_b = self._arrivals()
        kernels = [self._chunk_seconds(direction, self.host_waits) for direction in ("forward", "backward")]
        forward = self._durations("forward", kernels[0], arrive_f + 2 * overhead)
        backward = self._durations("backward", kernels[1], arrive_b + 2 * overhead)
        before_f = np.where(stages > 0, arrive_f + overhead, 0.0)
        first_f = self._first(forward) + before_f
        first_b = self._first(backward) + np.where(stages < last, arrive_b + overhead, 0.0)
        busy = self._per_stage(forward + backward)
        if last:
            received_f = self.chunks - (stages == 0)
            received_b = self.chunks - (stages == last)
            busy = busy + received_f * (arrive_f + overhead) + received_b * (arrive_b + overhead)
            busy = busy + (received_b + received_f) * overhead  # as many are sent
        busy = self.count * busy
        if last:
            busy = busy - np.where(stages > 0, overhead, 0.0)  # the last one sent delays nothing
        begun, first_end = self._first_forward(self._first(kernels[0]) + before_f, first_f)
        ended = computed = first_end + busy - first_f + self._gaps()
        if not self.overlaps_gradients:  # compute waits for sums, and meanwhile for transfers and the host
            bare = self._chunk_seconds("forward", False), self._chunk_seconds("backward", False)
            sums = self.count * self.stage["reduce_each"] - self.stage["reduce_after"]
            later = self.count * self._per_stage(bare[0] + bare[1]) - self._first(bare[0])
            ended = np.maximum(ended, first_end + later + np.maximum(sums, 0.0))
        ended = np.maximum(ended, self._host_lane(self._first(kernels[1])))
        ended = np.maximum(ended, self.count * self.stage["gather_each"])
        begin = self._first_backward(first_end, forward + arrive_f[:, :, None], backward)
        ended = np.maximum(ended, begin + self.count * self._per_stage(backward))
        self._first_summed = begin + self._of_layer("backward", -1)[:, self.layout.content[-self.stages :]]
        sums = self.count * self.stage["reduce_each"] - self.stage["reduce_late"]
        awaited = np.where(self._runs("backward") & (sums > 0.0), self._first_summed + sums, 0.0)
        ended = np.maximum(ended, awaited)
        tail = np.zeros_like(ended)
        tail[:, 1:] = np.cumsum(self.hop_backward[:, 1:] + first_b[:, :-1], axis=1)
        reached = np.maximum.accumulate((ended + tail)[:, ::-1], axis=1)[:, ::-1]
        # What a stage gathers, sums or launches before its last backward ends may happen while that runs.
        handed_on = np.zeros_like(ended)
        handed_on[:, :-1] = reached[:, 1:]
        self._last_begun = np.maximum(computed, handed_on - tail) - first_b
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

    def _first_forward(self, seconds: Floats, durations: Floats) -> tuple[Floats, Floats]:
        """(begin, end) of the first forward of each stage: of its kernels, and in all once its input is there."""
        way = np.cumsum(durations, axis=1)
        way[:, 1:] += np.cumsum(self.hop_forward[:, :-1], axis=1)
        own = np.maximum(self.stage["gather_before"] + seconds, self.stage["gather_chunk"])
        own = np.maximum(own, self.software.step_overhead + seconds)
        end = np.maximum.accumulate(own - way, axis=1) + way
        begin = np.maximum(self.stage["gather_before"], self.software.step_overhead)
        begin[:, 1:] = np.maximum(begin[:, 1:], (end + self.hop_forward)[:, :-1])
        return begin, end  # chunks may be gathered while the first runs

    def _first_backward(self, first_end: Floats, forward: Floats, backward: Floats) -> Floats:
        """When each stage begins its first backward: a micro-batch has been through every chunk forward, and back.

        Given when first forwards end, and how long chunks take.
        """
        content, stages = self.layout.content, self.stages
        place = np.arange(len(content))
        hops = np.where(place < len(content) - 1, self.hop_forward[:, place % stages], 0.0)
        way = np.cumsum(forward[:, content, place % stages], axis=1)
        way[:, 1:] += np.cumsum(hops, axis=1)[:, :-1]
        gathers = self.chunk["gather"][:, content].reshape(
            len(way), self.chunks, stages
        )  # one after the other
        own = np.cumsum(gathers, axis=1).reshape(way.shape)
        own[:, :stages] = np.maximum(own[:, :stages], first_end)
        end = (own - way).max(axis=1) + way[:, -1]
        back = backward[:, content[-stages:], np.arange(stages)] + self.hop_backward
        begin = np.repeat(end[:, None], stages, axis=1)
        begin[:, :-1] += np.cumsum(back[:, :0:-1], axis=1)[:, ::-1]
        return begin

    def _gaps(self) -> Floats:
        """Seconds between chunks for which a stage waits for its own transfers, [plans, stages]."""
        if not self.waits_to_send:
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

    def _host_lane(self, last_backward: Floats) -> Floats:
        """When the last backward ends if the host is late, launching kernel after kernel."""
        if self.host_waits:
            return np.zeros_like(last_backward)
        forward, backward = self._per_content("forward_host"), self._per_content("backward_host")
        launched = self.count * ((forward + backward) @ self.layout.uses)
        stages = np.arange(self.stages)
        if self.stages > 1:
            crossings = 4 * self.chunks - 2 * (stages == 0) - 2 * (stages == self.stages - 1)
            launched = launched + self.software.p2p_overhead * (self.count * crossings - (stages > 0))
        before = launched - backward[:, self.layout.first_chunk]
        return self.software.step_overhead + before + last_backward

    def _forwards_first(self) -> Floats:
        """Forwards of chunks that each stage runs before its first backward, [plans, stages]."""
        later = self.stages - 1 - np.arange(self.stages)
        if self.schedule == "gpipe":
            return np.broadcast_to(self.count * self.chunks, (len(self.plans), self.stages))
        warmup = later if self.chunks == 1 else 2 * later + (self.chunks - 1) * self.stages
        return np.minimum(warmup + 1, self.count * self.chunks)

    def _reduced(self, begun: Floats, ended: Floats, kernels: Floats) -> Floats:
        """When the gradients of each stage are reduced."""
        price, stages = self.stage, np.arange(self.stages)
        reduced = ended + price["reduce_after"]
        reduced = np.maximum(reduced, self._last_begun + price["reduce_chunk"])
        reduced = np.maximum(reduced, self._first_summed + self.count * price["reduce_each"])
        forwards = self._forwards_first()  # before there is anything to reduce
        all_reduced = forwards * price["gather_forward"] + self.count * price["reduce_each"]
        on_link = forwards * price["gather_latency"] + self.count * price["links_each"]
        reduced = np.maximum(
            reduced, np.maximum(all_reduced, np.where(price["links_each"] > 0.0, on_link, 0.0))
        )
        shared = price["shared"] + (self.count - 1) * price["shared_each"]
        reduced = np.maximum(reduced, begun + kernels + shared)
        if self.waits_to_send:
            reduced = np.maximum(reduced, ended + np.where(stages > 0, self.hop_backward, 0.0))
        if self.ties and self.stages > 1:
            tied = self.book.tied(self.plans)
            both = np.maximum(reduced[:, 0], reduced[:, -1]) + tied
            reduced[:, 0], reduced[:, -1] = both, both
        return reduced


def _peak_bytes(book: PriceBook, plans: PlanTable, table: PlanTable, index: int) -> Floats:
    """Of the fullest GPU: what is resident, activations in flight, and what lives beside them in backward."""
    layout, setting = book.layout(table, index), book.setting(table, index)[0]
    rows, which = book.layer_bytes(plans)
    layer = dict(zip(layer_prices.BYTES, rows.transpose(1, 0, 2), strict=True))
    kept = (layer["activations"] @ layout.counts.T)[which]
    working = _working(layer["activations"], layer["transient"], layout)[which]
    rows, which = book.stage_bytes(plans)
    stage_rows = {key: rows[:, i][which] for i, key in enumerate(stage_prices.BYTES)}
    distinct_stages, number_of = layout.distinct_stages
    peak = np.zeros(len(plans))
    slack = 1.0 + setting.software.memory.fragmentation
    for number in np.unique(plans.num_micro_batches).tolist():
        where = plans.num_micro_batches == number
        for kind, contents in enumerate(distinct_stages):
            stage = int(np.argmax(number_of == kind))  # the first of equals holds most
            full = moments(setting.plan.schedule_name, stage, layout.stages, number, contents)
            size = full.held.shape[1]
            held = (kept[where][:, :size] @ full.held.T + working[where][:, full.running]).max(axis=1)
            held += stage_rows["gathered"][where, stage]
            peak[where] = np.maximum(peak[where], stage_rows["resident"][where, stage] + slack * held)
    return peak


def _working(kept: Floats, working: Floats, layout: Layout) -> Floats:
    """As `costs.memory.largest_working`, of each content, [rows, contents]."""
    most = np.zeros((len(kept), len(layout.contents)))
    for column, content in enumerate(layout.contents):
        freed = np.zeros(len(kept))
        for kind, run in groupby(
            reversed(content)
        ):  # of equal layers the one nearest the end has freed least
            most[:, column] = np.maximum(most[:, column], working[:, kind] - freed)
            freed += kept[:, kind] * len(list(run))
    return most
