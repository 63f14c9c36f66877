"""When does everything happen? Executes a program: SimPy clock, in-order lanes, fluid sharing, timeline."""

from simulator.engine.engine import PLAIN, EngineOptions, execute
from simulator.engine.fair_sharing import max_min
from simulator.engine.faults import DeadlockError, ProgramError
from simulator.engine.memory import MemoryPeak
from simulator.engine.spans import Spans
from simulator.engine.timeline import Timeline

__all__ = [
    "PLAIN",
    "DeadlockError",
    "EngineOptions",
    "MemoryPeak",
    "ProgramError",
    "Spans",
    "Timeline",
    "execute",
    "max_min",
]
