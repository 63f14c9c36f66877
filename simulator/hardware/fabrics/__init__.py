"""Fabrics: how nodes are connected. One file each; this is the table of contents."""

from __future__ import annotations

from simulator.hardware.fabrics.dragonfly import Dragonfly
from simulator.hardware.fabrics.fabric import FABRICS, Fabric
from simulator.hardware.fabrics.leaf_spine import LeafSpine
from simulator.hardware.fabrics.links import Link, Links
from simulator.hardware.fabrics.rail_optimized import RailOptimized
from simulator.hardware.fabrics.single_switch import SingleSwitch
from simulator.hardware.fabrics.torus import Torus

__all__ = [
    "FABRICS",
    "Dragonfly",
    "Fabric",
    "LeafSpine",
    "Link",
    "Links",
    "RailOptimized",
    "SingleSwitch",
    "Torus",
]
