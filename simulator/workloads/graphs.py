"""Which modules of a layer does the software replay from captured CUDA graphs, which the host launches as one?"""

from __future__ import annotations

from collections.abc import Sequence

EVERYTHING = "all"


def captured(modules: Sequence[str], graphs: frozenset[str]) -> frozenset[str]:
    """Of the modules of a layer, by name and in order, those that the plan's `cuda_graphs` cover.

    attention: up to the residual behind it. mlp: the rest of a block without experts. router: in a block with experts
    the rest up to the dispatch, and the shared expert. Sizes behind the dispatch differ from call to call, so only
    `all`, which needs buffers of fixed capacity, captures them.
    """
    if not graphs:
        return frozenset()
    if EVERYTHING in graphs:
        return frozenset(modules)
    scopes = zip(modules, _scopes(modules), strict=True)
    return frozenset(name for name, scope in scopes if scope in graphs)


def _scopes(names: Sequence[str]) -> list[str]:
    if "residual_1" not in names:
        return [""] * len(names)
    half = names.index("residual_1") + 1
    if "dispatch" not in names:
        return ["attention"] * half + ["mlp"] * (len(names) - half)
    start, end = names.index("dispatch"), names.index("combine")
    shared = ["router" if name.startswith("shared_") else "" for name in names[end + 1 :]]
    return ["attention"] * half + ["router"] * (start - half) + [""] * (end + 1 - start) + shared
