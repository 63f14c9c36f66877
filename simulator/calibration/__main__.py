"""`torchrun --nproc-per-node 8 -m simulator.calibration --out results.jsonl`: microbenchmarks on every rank."""

from __future__ import annotations

from simulator.cli.calibrate_run import main

if __name__ == "__main__":
    main()
