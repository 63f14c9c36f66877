"""Which collectives of a layer may start earlier than where its modules need them?"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.workloads.operation import Operation
from simulator.workloads.operators import Collective


def prefetched(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Each gather of weights moved to where the one before it stood, so that it runs beside the GEMM between them."""
    places = [i for i, op in enumerate(operations) if _is_prefetchable(op)]
    if len(places) < 2:
        return tuple(operations)
    moved = list(operations)
    for here, following in zip(places, [*places[1:], None], strict=True):
        if following is not None:
            moved[here] = operations[following]
    del moved[places[-1]]
    return (operations[places[0]], *moved)


def _is_prefetchable(operation: Operation) -> bool:
    what = operation.what
    return (
        isinstance(what, Collective)
        and what.axis == "tp_z"
        and what.op == "all_gather"
        and operation.asynchronous
    )
