"""What is measured on, and how is a loop on it timed?"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

TORCH_NAMES = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}


@dataclass(frozen=True)
class Device:
    """This rank's device: `kind` is cpu or cuda, `index` the local GPU."""

    kind: str
    index: int = 0

    @property
    def torch_device(self) -> torch.device:
        import torch

        return torch.device(self.kind, self.index) if self.kind == "cuda" else torch.device("cpu")

    @property
    def backend(self) -> str:
        """The torch.distributed backend that moves this device's tensors."""
        return "nccl" if self.kind == "cuda" else "gloo"

    def synchronize(self) -> None:
        if self.kind == "cuda":
            import torch

            torch.cuda.synchronize(self.index)

    def time_loop(self, operation: Callable[[], object], times: int) -> float:
        """Seconds for each of `times` back-to-back runs: device time between events on CUDA, wall time on CPU."""
        if self.kind == "cuda":
            return self._time_on_gpu(operation, times)
        begin = time.perf_counter()
        for _ in range(times):
            operation()
        return (time.perf_counter() - begin) / times

    def _time_on_gpu(self, operation: Callable[[], object], times: int) -> float:
        import torch

        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            operation()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / times

    def own_stream(self) -> AbstractContextManager[object]:
        """What this thread launches inside goes to a stream of its own (CUDA); nothing to do on CPU."""
        if self.kind == "cpu":
            return nullcontext()
        import torch

        torch.cuda.set_device(self.index)
        return torch.cuda.stream(torch.cuda.Stream(self.index))

    def supports(self, dtype: str) -> bool:
        """Whether matrix products in `dtype` are worth measuring here."""
        if self.kind == "cpu":
            return dtype in ("fp32", "bf16")
        import torch

        major, minor = torch.cuda.get_device_capability(self.index)
        needed = {"fp16": (7, 0), "fp32": (3, 0), "tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}
        return (major, minor) >= needed.get(dtype, (99, 0))


def this_device(local_rank: int, kind: str | None = None) -> Device:
    """The device of a rank: the GPU of its local rank if there is one, unless `kind` says otherwise.

    Raises ValueError if cuda is asked for and there is no such GPU.
    """
    import torch

    if kind == "cpu" or (kind is None and not torch.cuda.is_available()):
        return Device("cpu")
    if not torch.cuda.is_available() or local_rank >= torch.cuda.device_count():
        raise ValueError(f"no CUDA device {local_rank}: torch sees {torch.cuda.device_count()}")
    torch.cuda.set_device(local_rank)
    return Device("cuda", local_rank)


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a precision as the simulator names it."""
    import torch

    dtype = getattr(torch, TORCH_NAMES[name])
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name} is no torch dtype")
    return dtype
