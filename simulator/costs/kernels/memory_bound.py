"""How long does an operator limited by memory take? Bytes over achieved bandwidth, plus a ramp and a latency per kernel.

    time = kernels * (latency + ramp) + bytes / (efficiency[class of operator] * bandwidth)

The class tells plain streaming from operators that reduce (norms, softmax), gather (embedding) or update (optimizer).
"""

from __future__ import annotations

from simulator.costs.kernels.calibration import MemoryParameters
from simulator.costs.kernels.chip import Chip
from simulator.workloads.operators import MemoryBound

# Words in an operator's name -> its class; the first that matches decides, everything else streams.
CLASSES = (
    ("optimizer", ("optim", "adam", "sgd")),
    ("norm", ("norm",)),
    ("softmax", ("softmax", "cross_entropy", "loss")),
    ("gather", ("embed", "gather", "scatter", "permute")),
    ("copy", ("copy", "memset", "cast")),
)


def class_of(op: str) -> str:
    """The class of an operator: one of `CLASSES`, or `elementwise`; a trailing `_backward` makes it `<class>_backward`."""
    name = op.lower()
    base = next((label for label, words in CLASSES if any(word in name for word in words)), "elementwise")
    return f"{base}_backward" if name.endswith("backward") else base


def memory_bound_seconds(kernel: MemoryBound, chip: Chip, parameters: MemoryParameters) -> float:
    """Seconds on the GPU, host launches not included; never below bytes/bandwidth."""
    label = class_of(kernel.op)
    table = parameters.efficiency
    efficiency = table.get(label) or table.get(label.removesuffix("_backward")) or table["elementwise"]
    size = kernel.bytes_read + kernel.bytes_written
    return kernel.kernels * (parameters.latency + parameters.ramp) + size / (efficiency * chip.bandwidth)
