"""A forward and a backward of different micro-batches side by side: each computes while the other's tokens travel.

Megatron-Core's overlap of expert-parallel communication, and the overlapped chunks of DualPipe (DeepSeek-AI 2024). The
compute stream runs a piece of one, up to its next exchange of tokens, then a piece of the other; exchanges follow one
another on a lane of their own, and a piece waits for the exchange before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simulator.program.chains import Chain, Transfer, joined
from simulator.program.rank_builder import RankBuilder
from simulator.program.track import Pricing, chain_of
from simulator.program.units import Placed
from simulator.workloads.operation import Operation
from simulator.workloads.operators import Collective


@dataclass(frozen=True, slots=True)
class Piece:
    """Computation up to an exchange, and the exchange (in steps, one after the other); `awaited` by the host."""

    chain: Chain
    exchange: tuple[tuple[str, Transfer], ...] = ()
    awaited: bool = False


@dataclass(slots=True)
class Stream:
    """What is left of one of the two, and what its next piece waits for."""

    pieces: list[Piece]
    micro_batch: int
    name: str
    needs: list[int]
    first: int = -1
    last: int = -1
    position: int = field(default=0)

    @property
    def done(self) -> bool:
        return self.position == len(self.pieces)


def forward_pieces(layers: Sequence[Placed], pricing: Pricing) -> list[Piece]:
    """A forward cut at its exchanges."""
    return _pieces(
        ((placed.layer.forward(placed.shard), "compute", False) for placed in layers),
        pricing,
    )


def backward_pieces(layers: Sequence[Placed], pricing: Pricing) -> list[Piece]:
    """A backward, with what is computed again, cut at its exchanges."""
    return _pieces(
        (
            part
            for placed in reversed(layers)
            for part in (
                (placed.layer.recompute(placed.shard), "recompute", False),
                (placed.layer.backward(placed.shard), "compute", True),
            )
        ),
        pricing,
    )


def run_side_by_side(rank: RankBuilder, first: Stream, second: Stream) -> None:
    """Run a piece of each in turn, and what is left of the longer one; fills in their first and last tasks."""
    turn, other = first, second
    while not (first.done and second.done):
        if not turn.done:
            _run_piece(rank, turn)
        turn, other = other, turn


def _run_piece(rank: RankBuilder, stream: Stream) -> None:
    piece = stream.pieces[stream.position]
    stream.position += 1
    ran = rank.run(piece.chain, stream.needs, stream.micro_batch, stream.name)
    if ran is not None:
        stream.first = ran[0] if stream.first < 0 else stream.first
        stream.last = ran[1]
        stream.needs = [ran[1]]
        if piece.awaited:
            rank.follow(ran[1])
    for label, transfer in piece.exchange:
        task = rank.communicate(transfer, "ep", label, "ep", stream.needs, stream.micro_batch)
        stream.needs = stream.needs if task is None else [task]


def _pieces(parts: Iterable[tuple[Sequence[Operation], str, bool]], pricing: Pricing) -> list[Piece]:
    found: list[Piece] = []
    chains: list[Chain] = []
    exchange: list[tuple[str, Transfer]] = []
    awaited = False

    def close() -> None:
        nonlocal awaited
        if chains or exchange:
            found.append(Piece(joined(chains), tuple(exchange), awaited))
        chains.clear()
        exchange.clear()
        awaited = False

    for operations, kind, backward in parts:
        run: list[Operation] = []
        for operation in operations:
            what = operation.what
            transfer = pricing.transfer(what) if isinstance(what, Collective) and _is_exchange(what) else None
            if transfer is None:
                if exchange:
                    close()
                run.append(operation)
                continue
            if run:
                chains.append(chain_of(run, pricing, kind, backward))
                run = []
            awaited = awaited or (operation.awaited and pricing.awaits_counts)
            exchange.append((operation.label, transfer))
        if run:
            if exchange:
                close()
            chains.append(chain_of(run, pricing, kind, backward))
    close()
    return found


def _is_exchange(collective: Collective) -> bool:
    return collective.op == "all_to_all" and collective.axis.startswith("ep")
