"""`python -m simulator.validation.minicluster.runner CASES RESULTS`: some training steps of each case, on one rank.

CASES has one line per case: the recipes of all ranks (JSON). Rank 0 adds a line per case to RESULTS: for every step
its duration, and for every rank when it computed (seconds after the step began). All ranks share the machine, so
their clocks agree.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from simulator.calibration.microbenchmarks.session import prefer_this_process
from simulator.validation.minicluster.recipe import Recipe, from_json

SKEW = 2e-4
"""Seconds between ranks at the beginning of a step: a barrier releases them within microseconds of each other, which
no training does and which some collectives reward."""


def main(cases: Path, results: Path, *, num_steps: int = 10, num_warmups: int = 3) -> None:
    """Run on the rank that the environment (RANK, MASTER_ADDR, ...) says."""
    prefer_this_process()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for line in cases.read_text(encoding="utf-8").splitlines():
        recipe = from_json(json.loads(line)[rank])
        steps = run_steps(recipe, num_steps, num_warmups)
        everything: list[Any] | None = [None] * world if rank == 0 else None
        dist.gather_object(steps, everything)
        if everything is not None:
            with results.open("a", encoding="utf-8") as out:
                out.write(json.dumps(merge(everything)) + "\n")
    dist.barrier()
    dist.destroy_process_group()


def run_steps(recipe: Recipe, num_steps: int, num_warmups: int) -> list[dict[str, Any]]:
    """Begin, end and spans of every timed step of this rank; all ranks start each step together."""
    import torch.distributed as dist

    from simulator.validation.minicluster.emulated import Communicator, EmulatedChunk
    from simulator.validation.minicluster.strategies import build_step, make_groups
    from simulator.validation.minicluster.virtual_device import VirtualDevice

    groups = make_groups(recipe)
    device = VirtualDevice()
    communicator = Communicator(recipe.rank, {axis: (recipe.groups[axis], groups[axis]) for axis in groups})
    replicated = "dp_cp" in recipe.degrees
    chunks = [EmulatedChunk(chunk, device, communicator, replicated) for chunk in recipe.chunks]
    step = build_step(recipe, chunks, device, groups)
    gc.disable()
    steps = []
    for number in range(-num_warmups, num_steps):
        dist.barrier()  # who is done first must not collect garbage while others still run: that takes a core
        gc.collect()
        dist.barrier()
        time.sleep(SKEW * recipe.rank)
        device.waited()
        device.take_spans()
        begin = time.monotonic()
        step()
        end = time.monotonic()
        if number >= 0:
            steps.append({"begin": begin, "end": end, "spans": device.take_spans()})
    gc.enable()
    return steps


def merge(per_rank: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Steps with their duration (last begin to last end of any rank) and each rank's spans, relative to the begin."""
    steps = []
    for ranks in zip(*per_rank, strict=True):
        begin = max(rank["begin"] for rank in ranks)
        spans = [[(s - begin, e - begin, label) for s, e, label in rank["spans"]] for rank in ranks]
        steps.append({"seconds": max(rank["end"] for rank in ranks) - begin, "spans": spans})
    return {"steps": steps}


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        num_steps=int(os.environ.get("CLUSTERSIM_STEPS", "10")),
        num_warmups=int(os.environ.get("CLUSTERSIM_WARMUPS", "3")),
    )
