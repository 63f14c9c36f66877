"""Flows end when SimGrid, with pure max-min sharing, says they do."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from math import inf
from pathlib import Path

import numpy as np
import pytest

from simulator.engine import execute
from simulator.program.program import CapacityChange, Lane, Phase, Program, Resource, Task

SYSTEM_PYTHON = "/usr/bin/python3"
SCRIPT = Path(__file__).with_name("simgrid_flows.py")


@cache
def missing() -> str:
    """Why SimGrid cannot be asked here; empty if it can."""
    if not Path(SYSTEM_PYTHON).exists():
        return f"there is no {SYSTEM_PYTHON}"
    try:
        tried = subprocess.run([SYSTEM_PYTHON, "-c", "import simgrid"], capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return f"{SYSTEM_PYTHON} did not import simgrid within a minute"
    return "" if tried.returncode == 0 else f"simgrid is not installed for {SYSTEM_PYTHON} (python3-simgrid)"


def simgrid_ends(case: dict) -> list[float]:
    asked = subprocess.run(
        [SYSTEM_PYTHON, str(SCRIPT)], input=json.dumps(case), capture_output=True, text=True, timeout=120
    )
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def our_ends(case: dict) -> np.ndarray:
    """Each flow is a lane; each of its messages a task, the first after a latency of `start`."""
    tasks: list[Task] = []
    queues: list[list[int]] = []
    last: list[int] = []
    for lane, flow in enumerate(case["flows"]):
        draws = tuple((link, 1.0) for link in sorted(flow["links"]))
        cap = flow["cap"] or inf
        queues.append([])
        for k, size in enumerate(flow["sizes"]):
            latency = flow["start"] if k == 0 else 0.0
            queues[lane].append(len(tasks))
            tasks.append(Task((Phase("dp", "send", size, draws, latency, cap),), (lane,)))
        last.append(len(tasks) - 1)
    program = Program(
        resources=[Resource(f"link{i}", "link", c) for i, c in enumerate(case["capacities"])],
        lanes=[Lane(f"flow{i}", i) for i in range(len(queues))],
        tasks=tasks,
        queues=queues,
        capacity_changes=[CapacityChange(*change) for change in case["changes"]],
    )
    return execute(program).end[last]


def random_case(seed: int, *, num_links: int, num_flows: int, num_changes: int) -> dict:
    rng = np.random.default_rng(seed)
    flows = [
        {
            "links": rng.choice(
                num_links, size=rng.integers(1, min(4, num_links) + 1), replace=False
            ).tolist(),
            "start": float(rng.choice([0.0, rng.uniform(0.0, 3.0)])),
            "sizes": rng.integers(10**9, 10**11, size=rng.integers(1, 4)).tolist(),
            "cap": float(rng.uniform(1e9, 2e10)) if rng.random() < 0.3 else None,
        }
        for _ in range(num_flows)
    ]
    capacities = rng.uniform(5e9, 5e10, size=num_links).tolist()
    present, changes = list(capacities), []
    for time in np.sort(rng.uniform(0.5, 20.0, size=num_changes)).tolist():
        # Falls only: SimGrid never lets a message exceed the lowest bandwidth its route had when it was sent.
        link = int(rng.integers(num_links))
        present[link] *= float(rng.uniform(0.3, 0.9))
        changes.append((time, link, present[link]))
    return {"capacities": capacities, "flows": flows, "changes": changes}


@pytest.mark.parametrize(
    ("seed", "num_links", "num_flows", "num_changes"),
    [(1, 1, 5, 0), (2, 4, 10, 0), (3, 8, 30, 0), (4, 20, 60, 0), (5, 6, 20, 4), (6, 10, 40, 8)],
)
def test_flows_end_when_simgrid_says(seed: int, num_links: int, num_flows: int, num_changes: int) -> None:
    if missing():
        pytest.skip(missing())
    case = random_case(seed, num_links=num_links, num_flows=num_flows, num_changes=num_changes)
    np.testing.assert_allclose(our_ends(case), simgrid_ends(case), rtol=1e-6)
