"""How queries meet the keys of tokens on other GPUs: ring, all-gather, heads for tokens, or two of them at once.

Ring (Liu et al. 2023): keys and values go round while the previous block is computed. All-gather (Llama 3): every rank
brings all keys and values together first. All-to-all (Ulysses, Jacobs et al. 2023): each rank gets all tokens of some
heads. USP (Fang and Zhao 2024): all-to-all inside groups of `ulysses` ranks, a ring between them; with one rank per
group it is the ring, with all in one group it is Ulysses.
"""

from __future__ import annotations

from math import ceil

from simulator.workloads.modules.heads import Heads
from simulator.workloads.operation import Operation
from simulator.workloads.operators import DTYPE_BYTES, Attention, Collective, MemoryBound
from simulator.workloads.shard import Shard


def exchanged(core: Heads, shard: Shard, backward: bool) -> list[Operation]:
    """The fused core with what its context-parallel group sends."""
    if shard.cp == 1:
        return _whole(core, shard, 1, backward)
    if shard.context_exchange == "all_gather":
        return _gathered(core, shard, backward)
    if shard.ulysses == 1:
        return _around(core, shard, backward)
    before = core.qkv_elements(shard) * shard.bytes + (_copies(core, shard) - 1.0) * core.kv_bytes(shard)
    first, last = before, core.output_bytes(shard)
    if backward:
        first, last = last, first
    axis = shard.context_axis if shard.ulysses == shard.cp else "ulysses"
    return [
        Operation(f"{core.name}.to_heads", Collective("all_to_all", axis, first, shard.dtype)),
        *_around(core, shard, backward),
        Operation(f"{core.name}.to_tokens", Collective("all_to_all", axis, last, shard.dtype)),
    ]


def gather_keys(core: Heads, shard: Shard, backward: bool) -> list[Operation]:
    """All-gather of keys and values over cp; backward sums their gradients back to the owners."""
    if shard.cp == 1:
        return []
    op = "reduce_scatter" if backward else "all_gather"
    collective = Collective(op, shard.context_axis, core.kv_bytes(shard) * shard.cp, shard.dtype)
    return [Operation(f"{core.name}.{op}", collective)]


def context_buffers(core: Heads, shard: Shard) -> float:
    """Bytes of keys and values of other ranks at the fullest moment, with their gradients."""
    if shard.cp == 1:
        return 0.0
    if shard.context_exchange == "all_gather" or shard.attention == "unfused":
        return 2 * core.kv_bytes(shard) * shard.cp
    exchanged_heads = core.qkv_elements(shard) * shard.bytes if shard.ulysses > 1 else 0.0
    if (
        shard.dtensor and shard.ulysses < shard.cp
    ):  # gathered, and sums of gradients: old, new, and one that arrives
        gathered = shard.cp / shard.ulysses * shard.bytes
        return exchanged_heads + _repeated_elements(core, shard) * (gathered + 3 * DTYPE_BYTES["fp32"])
    blocks = (
        4 if shard.ulysses < shard.cp else 0
    )  # the one in use and the one that arrives, and their gradients
    return exchanged_heads + blocks * core.kv_bytes(shard)


def _keys(core: Heads, length: int) -> tuple[int, bool]:
    """Keys each query meets and whether the causal half applies: a window bounds both."""
    if core.window is not None and core.window < length:
        return core.window, False
    return length, core.causal


def _copies(core: Heads, shard: Shard) -> float:
    """How many ranks need the same keys: several where there are fewer key-value heads than ranks that share heads."""
    return max(1.0, shard.ulysses / core.num_kv_heads(shard))


def _whole(core: Heads, shard: Shard, ranks: int, backward: bool, cut: int = 1) -> list[Operation]:
    """One of `ranks` equal parts of each sequence's queries meets all keys that it may, the causal half of them.

    Where a window is shorter than some sequences and longer than others, these are two kernels.
    """
    operations = []
    for causal, sequences in _by_window(core, shard).items():
        sizes = [(count, length // ranks, keys) for count, length, keys in sequences]
        operations.append(core.kernel(shard, sizes, causal, backward, cut))
    return operations


def _by_window(core: Heads, shard: Shard) -> dict[bool, list[tuple[int, int, int]]]:
    """(how many, length, keys that a query meets) of each length, by whether the causal half applies."""
    found: dict[bool, list[tuple[int, int, int]]] = {}
    for length, count in shard.sequences:
        keys, causal = _keys(core, length)
        found.setdefault(causal, []).append((count, length, keys))
    return found


def _gathered(core: Heads, shard: Shard, backward: bool) -> list[Operation]:
    """All keys first. Zigzag: every rank's queries meet half of them; contiguous: the last rank's meet nearly all."""
    kernels = _whole(core, shard, shard.cp, backward)
    causal = _by_window(core, shard).get(True, [])
    if causal and shard.context_layout == "contiguous":
        own = [(count, length // shard.cp, length // shard.cp) for count, length, _ in causal]
        earlier = [(count, queries, keys * (shard.cp - 1)) for count, queries, keys in own]
        kernels = [core.kernel(shard, earlier, False, backward), core.kernel(shard, own, True, backward)] + [
            one for one in kernels if not _is_causal(one)
        ]
    scatter = gather_keys(core, shard, backward=True) if backward else []
    return [*gather_keys(core, shard, backward=False), *kernels, *scatter]


def _is_causal(operation: Operation) -> bool:
    return isinstance(operation.what, Attention) and operation.what.causal


def _around(core: Heads, shard: Shard, backward: bool) -> list[Operation]:
    """The kernels of the ranks of a ring, each after the block that it needs has come."""
    ranks = shard.cp // shard.ulysses
    if ranks == 1:
        return _whole(core, shard, 1, backward, cut=shard.ulysses)
    longest = max(length for length, _ in shard.sequences)
    if core.window is not None and core.window < longest:
        return _halo(core, shard, core.window, backward)
    if shard.dtensor:
        return _gathered_ring(core, shard, ranks, core.causal, backward)
    return _ring(core, shard, ranks, core.causal, backward)


def _ring(core: Heads, shard: Shard, ranks: int, causal: bool, backward: bool) -> list[Operation]:
    """Step 0 meets the causal diagonal. Zigzag: every other step meets half of the block; contiguous: the last rank
    meets whole blocks, and the others wait for it.

    Backward also passes the sums of key and value gradients on: they set out one step later and need one more, so
    that both travel ranks - 1 times.
    """
    name = core.name
    steps = ranks if shard.ring_steps is None else min(ranks, shard.ring_steps)
    message, merged = _copies(core, shard) * core.kv_bytes(shard), core.output_bytes(shard)
    halved = causal and shard.context_layout == "zigzag"
    operations: list[Operation] = []
    for step in range(steps):
        blocks = int(step + 1 < steps) + int(backward and step > 0)
        if blocks:
            send = Collective("shift", _ring_axis(shard), blocks * message, shard.dtype)
            operations.append(Operation(f"{name}.ring.{step}", send, asynchronous=True))
        part = 2 if step and halved else 1
        sizes = [(count, length // ranks, length // ranks // part) for length, count in shard.sequences]
        kernel = core.kernel(shard, sizes, causal and step == 0, backward, cut=shard.ulysses)
        waits = (f"{name}.ring.{step - 1}",) if step else ()
        operations.append(Operation(kernel.label, kernel.what, waits_for=waits, useful=float(part)))
        if step and not backward:
            operations.append(Operation(f"{name}.merge", MemoryBound("add", 2 * merged, merged)))
    if backward:
        add = MemoryBound("add", 2 * message, message)
        operations.append(Operation(f"{name}.sum_gradients", add, waits_for=(f"{name}.ring.{steps - 1}",)))
    return operations


def _gathered_ring(core: Heads, shard: Shard, ranks: int, causal: bool, backward: bool) -> list[Operation]:
    """PyTorch's ring (torch.distributed.tensor.experimental): blocks are met one by one, but all come at once.

    Keys and values, of every head (torchtitan repeats them before), are gathered first. Results are merged in fp32;
    backward adds up gradients in fp32 and passes those of keys and values on after every block. In compiled code a
    collective is awaited where it starts.
    """
    name, steps = core.name, ranks if shard.ring_steps is None else min(ranks, shard.ring_steps)
    wide = DTYPE_BYTES["fp32"] / shard.bytes
    keys = _repeated_elements(core, shard) * shard.bytes
    result = core.output_bytes(shard)
    gather = Collective("all_gather", _ring_axis(shard), ranks * keys, shard.dtype)
    operations = [Operation(f"{name}.gather", gather)]
    halved = causal and shard.context_layout == "zigzag"
    for step in range(steps):
        part = 2 if step and halved else 1
        sizes = [(count, length // ranks, length // ranks // part) for length, count in shard.sequences]
        kernel = core.kernel(shard, sizes, causal and step == 0, backward, cut=shard.ulysses)
        operations.append(Operation(kernel.label, kernel.what, useful=float(part)))
        if backward:
            sums, rows = (
                keys + result,
                result + keys / part,
            )  # gradients of queries are as large as the result
            add = MemoryBound("add", wide * sums + rows, wide * sums, kernels=3)
            send = Collective("shift", _ring_axis(shard), wide * keys, "fp32")
            operations += [Operation(f"{name}.sum_gradients", add), Operation(f"{name}.ring.{step}", send)]
        elif step:
            merge = MemoryBound("add", (1 + wide) * result, wide * result)
            operations.append(Operation(f"{name}.merge", merge))
    narrow = (keys + result) if backward else result
    operations.append(Operation(f"{name}.narrow", MemoryBound("copy", wide * narrow, narrow)))
    return operations


def _repeated_elements(core: Heads, shard: Shard) -> float:
    """Keys and values of the tokens on this GPU, one for each query head."""
    return float(shard.tokens * core.num_heads(shard) * (core.head_dim + core.head_dim_v))


def _halo(core: Heads, shard: Shard, window: int, backward: bool) -> list[Operation]:
    """A window reaches only into the ranks just before: their last keys come, and backward returns gradients."""
    queries = shard.sequence_length * shard.ulysses // shard.cp
    block = _copies(core, shard) * core.kv_bytes(shard)
    label = f"{core.name}.{'halo_gradient' if backward else 'halo'}"
    sends = []
    for step in range(ceil(window / queries)):
        part = min(1.0, (window - step * queries) / queries)
        blocks = 2 if backward else 1  # keys again, and their gradients back
        send = Collective("shift", _ring_axis(shard), blocks * part * block, shard.dtype)
        sends.append(Operation(f"{label}.{step}", send))
    sizes = [(shard.micro_batch, queries, window)]
    return [*sends, core.kernel(shard, sizes, False, backward, cut=shard.ulysses)]


def _ring_axis(shard: Shard) -> str:
    return shard.context_axis if shard.ulysses == 1 else "ring"
