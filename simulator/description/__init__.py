"""Text → validated objects: YAML with places, units, catalogue, overrides, faults.

`load("cluster", "selene", {"node.nic.bandwidth": "400 Gb/s"})` is the whole of it; the parts in reading
order: yaml_reader, tree, kinds, catalogue, resolving, overrides, validation, loading; quantities, registry
and base are what description classes are made of; json_schema and reference say what may be written.
"""

from simulator.description.faults import DescriptionError, Fault, KeyFaults, raise_if_any
from simulator.description.loading import load

__all__ = ["DescriptionError", "Fault", "KeyFaults", "load", "raise_if_any"]
