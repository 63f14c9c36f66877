"""Which process groups exist, and how do all ranks agree on a number?

Agreement runs over a gloo group of its own, so that it neither needs nor disturbs the backend that is
measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch.distributed as dist


AHEAD = 5e-3
"""Seconds until an agreed moment: longer than agreeing takes, and going to sleep again."""


class Groups:
    """The process groups of a session. Every rank must ask for groups in the same order (torch's rule)."""

    def __init__(self, backend: str, *, timeout: float = 600.0) -> None:
        """Join the other ranks; alone (no RANK in the environment) it becomes a world of one."""
        import torch.distributed as dist

        if "RANK" in os.environ:
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._backend = backend
        self._control = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self._made: dict[tuple[tuple[int, ...], int], Any] = {}
        on_one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
        self._one_clock = on_one_machine or "CLUSTERSIM_CLUSTER" in os.environ

    def of(self, ranks: Sequence[int], copy: int = 0) -> dist.ProcessGroup:
        """The group of these ranks; `copy` numbers separate groups of the same ranks (they can run at once)."""
        import torch.distributed as dist

        key = (tuple(ranks), copy)
        if key not in self._made:
            self._made[key] = dist.new_group(list(ranks), backend=self._backend)
        return self._made[key]

    def agree_on_largest(self, value: float) -> float:
        """The largest of all ranks' values, on every rank."""
        import torch
        import torch.distributed as dist

        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._control)
        return float(tensor.item())

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier(group=self._control)

    def moment(self) -> float:
        """When to begin, in seconds of the machine's monotonic clock, after all ranks have come here.

        Ranks of one machine share a clock and a few cores: who takes part waits for the moment, until when the others
        have found out that they do not, and sleep. On several machines the moment is now.
        """
        if not self._one_clock:
            self.barrier()
            return time.monotonic()
        return self.agree_on_largest(time.monotonic()) + AHEAD

    def from_first(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value on rank 0, None on the others."""
        import torch.distributed as dist

        everything: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, everything, dst=0, group=self._control)
        return everything

    def close(self) -> None:
        import torch.distributed as dist

        self.barrier()
        dist.destroy_process_group()
