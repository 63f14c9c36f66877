"""What a collective of each process group costs and which links it draws on, folded.

Between the plan (which axis, which operation, how many bytes) and the program (latency, work, draws): chooses the
algorithm for the group's shape, routes its pattern over the topology and folds the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.costs.collectives import CollectiveCost, GroupShape, collective_cost
from simulator.costs.collectives.calibration import CollectiveCalibration
from simulator.costs.collectives.patterns import edges
from simulator.hardware.topology import Topology
from simulator.program.chains import Transfer
from simulator.ranks.folding import Folding, GroupLayer, fold
from simulator.ranks.grid import Grid
