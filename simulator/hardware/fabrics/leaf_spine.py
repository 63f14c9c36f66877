"""Layers of switches: nodes on leaves, every leaf on every spine; with pods, spines of pods under a core."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.description.faults import raise_if_any
from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.clos import Layering, Splitting, wire_clos
from simulator.hardware.fabrics.fabric import FABRICS, Fabric
from simulator.hardware.links import IntArray, LinkTable
from simulator.hardware.wiring import Ports, Wiring


class Layers(Fabric):
    """What leaf-spine fabrics share: the spines, their uplinks, and how flows are spread over them."""

    num_spines: int = Field(ge=1, description="Spine switches; every leaf has one uplink to each.")
    oversubscription: float | None = Field(
        None,
        gt=0,
        description="Leaf downlink over uplink bandwidth; sizes the uplinks. null: from uplink_bandwidth, or 1 "
        "(non-blocking).",
    )
    uplink_bandwidth: BytesPerSecond | None = Field(
        None, description="Of one leaf-to-spine uplink, per direction; null: from oversubscription."
    )
    nodes_per_pod: int | None = Field(
        None, ge=1, description="Nodes under one set of spines, pods joined by a core; null: one pod."
    )
    core_oversubscription: float = Field(
        1.0, gt=0, description="Leaf-to-spine over spine-to-core bandwidth of a pod; 1 is non-blocking."
    )
    hop_latency: Seconds = Field(description="Through one switch, one way.")
    ecmp: Literal["even", "hashed"] = Field(
        "even", description="even: flows split over all spines; hashed: each flow takes one, drawn by seed."
    )
    paths_per_flow: int = Field(
        1, ge=1, description="hashed: connections (queue pairs) per flow, each hashed on its own."
    )
    seed: int = Field(0, description="Seed of the hash that picks a spine where ecmp is hashed.")

    @model_validator(mode="after")
    def _check_uplinks(self) -> Self:
        if self.oversubscription is not None and self.uplink_bandwidth is not None:
            message = "oversubscription is given as well, and each follows from the other; set that to null"
            raise_if_any([("uplink_bandwidth", message)])
        return self

    def layers(self, leaf_of_port: IntArray, pod_of_leaf: IntArray | None) -> Layering:
        """The sizes of the switch layers over the given leaves."""
        uplinks = None if self.uplink_bandwidth is None else self.uplink_bandwidth * self.num_spines
        hashed = self.ecmp == "hashed"
        return Layering(
            leaf_of_port=leaf_of_port,
            pod_of_leaf=pod_of_leaf,
            leaf_uplinks=uplinks,
            oversubscription=1.0 if self.oversubscription is None else self.oversubscription,
            core_oversubscription=self.core_oversubscription,
            hop_latency=self.hop_latency,
            splitting=Splitting(self.num_spines, self.paths_per_flow, self.seed) if hashed else Splitting(),
        )


@FABRICS.register("leaf_spine")
class LeafSpine(Layers):
    """Leaves that hold whole nodes (all NICs of a node on one leaf) under a layer of spines."""

    kind: Literal["leaf_spine"] = Field(
        "leaf_spine", description="All NICs of a node on one leaf, under spines."
    )
    nodes_per_leaf: int = Field(ge=1, description="Nodes under one leaf switch.")

    @property
    def nodes_per_neighbourhood(self) -> int:
        return self.nodes_per_leaf

    def wire(self, ports: Ports, table: LinkTable) -> Wiring:
        """One hop under a leaf, three across leaves, five across pods; a leaf is in its first place's pod."""
        leaf_of_port = ports.place // self.nodes_per_leaf
        pod_of_leaf = None
        if self.nodes_per_pod is not None:
            pod_of_leaf = np.arange(int(leaf_of_port.max()) + 1) * self.nodes_per_leaf // self.nodes_per_pod
        return wire_clos(ports, table, self.layers(leaf_of_port, pod_of_leaf))
