"""Real torch.distributed microbenchmarks: what is measured, how, and where the raw numbers go.

case            what one measurement is of, and the key it is stored under
benchmark       what a benchmark module offers, and the table of them
device          the device measured on: timing, dtypes, what it is called
groups          process groups and agreement between ranks
measuring       warm-ups and repeats
summary         medians, intervals and outliers of repeats
store           raw results as JSON lines, resumable
machine         what is measured on: processor, GPUs, versions
session         all cases of a session, one after another, on every rank

gemm, attention, memory_bound, optimizer, launch, copies         one rank
collective, send_recv, concurrent, overlap                       several ranks
"""

from __future__ import annotations

BENCHMARK_MODULES = (
    "gemm",
    "attention",
    "memory_bound",
    "optimizer",
    "launch",
    "copies",
    "collective",
    "send_recv",
    "concurrent",
    "overlap",
)
