"""The shared expert of a mixture beside the exchange of tokens with the routed ones (`overlap.shared_expert`).

Megatron-Core's `moe_shared_expert_overlap`: the first projection and the activation run while tokens travel to their
experts, the second projection while they come back; backward the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from simulator.workloads.operation import Operation
from simulator.workloads.operators import Collective

BEHIND = {
    "dispatch": ("shared_gate_up", "shared_activation"),
    "combine": ("shared_down",),
}
"""Forward: which modules run behind the exchange of which."""

BEHIND_BACKWARD = {
    "combine": ("shared_down", "shared_activation"),
    "dispatch": ("shared_gate_up",),
}


def beside_exchanges(
    operations: Iterable[Operation], behind: dict[str, tuple[str, ...]]
) -> tuple[Operation, ...]:
    """The operations of a layer, with those of the shared expert moved behind the exchanges, where there are any."""
    listed = list(operations)
    if not any(map(_is_exchange, listed)):
        return tuple(listed)
    moved = {name: [one for one in listed if _module(one) in names] for name, names in behind.items()}
    names = {name for group in behind.values() for name in group}
    found: list[Operation] = []
    pending: tuple[str, ...] = ()
    rest = [one for one in listed if _module(one) not in names]
    for index, one in enumerate(rest):
        if not _is_exchange(one):
            if pending and not one.is_collective:
                one, pending = replace(one, waits_for=pending + one.waits_for), ()
            found.append(one)
            continue
        found.append(replace(one, asynchronous=True))
        pending += (one.label,)
        if not _is_exchange_of(rest[index + 1 : index + 2], _module(one)):
            found += moved.pop(_module(one), [])
    return tuple(found)


def _module(operation: Operation) -> str:
    return operation.label.split(".")[0]


def _is_exchange(operation: Operation) -> bool:
    what = operation.what
    return isinstance(what, Collective) and what.op == "all_to_all" and what.axis.startswith("ep")


def _is_exchange_of(operations: Sequence[Operation], module: str) -> bool:
    return any(_is_exchange(one) and _module(one) == module for one in operations)
