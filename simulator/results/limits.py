"""Which resource sets the rate of some work when it runs alone?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.results.utilization import name_of

if TYPE_CHECKING:
    from simulator.program.program import Phase, Program


def limiting_resource(program: Program, phase: Phase) -> int | None:
    """The id of the resource that the phase fills; of equals the first, so that kernels go before links."""
    longest, found = 0.0, None
    for number, amount in phase.draws:
        capacity = program.resources[number].capacity
        if capacity and amount / capacity > longest * (1 + 1e-9):
            longest, found = amount / capacity, number
    return found


def is_gpu(program: Program, resource: int) -> bool:
    return program.resources[resource].kind == "gpu"


def limiting(program: Program, phase: Phase) -> str:
    """The name of that resource: `tensor_core` of kernels with matrix products, `hbm` of others."""
    resource = limiting_resource(program, phase)
    if resource is None:
        return "cap"
    if is_gpu(program, resource):
        return "tensor_core" if phase.flops else "hbm"
    return name_of(program.resources[resource].kind)
