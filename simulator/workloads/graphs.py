"""Which modules of a layer does the software replay from captured CUDA graphs, which the host launches as one?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.workloads.layers import Module

EVERYTHING = "all"


def captured(modules: Sequence[Module], graphs: frozenset[str]) -> frozenset[str]:
    """Names of the modules that the plan's `cuda_graphs` cover.

    attention: up to the residual behind it. mlp: the rest of a block without experts. router: in a block with experts
    the rest up to the dispatch, and the shared expert. Sizes behind the dispatch differ from call to call, so only
    `all`, which needs buffers of fixed capacity, captures them.
    """
    if not graphs:
        return frozenset()
    if EVERYTHING in graphs:
        return frozenset(module.name for module in modules)
    scopes = zip(modules, _scopes(modules), strict=True)
    return frozenset(module.name for module, scope in scopes if scope in graphs)


def _scopes(modules: Sequence[Module]) -> list[str]:
    names = [module.name for module in modules]
    if "residual_1" not in names:
        return [""] * len(names)
    half = names.index("residual_1") + 1
    if "dispatch" not in names:
        return ["attention"] * half + ["mlp"] * (len(names) - half)
    start, end = names.index("dispatch"), names.index("combine")
    shared = ["router" if name.startswith("shared_") else "" for name in names[end + 1 :]]
    return ["attention"] * half + ["router"] * (start - half) + [""] * (end + 1 - start) + shared
