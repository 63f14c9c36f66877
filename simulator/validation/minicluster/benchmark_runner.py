"""`python -m simulator.validation.minicluster.benchmark_runner CASES RESULTS`: listed microbenchmarks, on one rank.

CASES holds one [benchmark, parameters] per line; rank 0 writes RESULTS as `calibrate run` does.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from simulator.calibration.microbenchmarks.case import Case
from simulator.calibration.microbenchmarks.device import this_device
from simulator.calibration.microbenchmarks.groups import Groups
from simulator.calibration.microbenchmarks.measuring import Effort
from simulator.calibration.microbenchmarks.session import prefer_this_process, run_cases


def main(cases: Path, results: Path, repeats: int) -> None:
    """Run on the rank that the environment (RANK, MASTER_ADDR, ...) says."""
    prefer_this_process()
    import torch

    torch.set_num_threads(1)
    listed = [Case(*json.loads(line)) for line in cases.read_text(encoding="utf-8").splitlines()]
    groups = Groups("gloo")
    effort = Effort(repeats=repeats, fewest=min(3, repeats), warmups=1, budget=2.0)
    run_cases(listed, results, this_device(0, "cpu"), groups, effort=effort)
    groups.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(os.environ.get("CLUSTERSIM_REPEATS", "5")))
