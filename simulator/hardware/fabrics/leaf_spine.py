"""Two layers of switches: nodes on leaves, every leaf on every spine."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from simulator.description.faults import raise_if_any
from simulator.description.quantities import BytesPerSecond, Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric


class TwoLayers(Fabric):
    """What leaf-spine fabrics share: the spines, their uplinks, and how flows are spread over them."""

    num_spines: int = Field(ge=1, description="Spine switches; every leaf has one uplink to each.")
    oversubscription: float = Field(
        1.0, gt=0, description="Leaf downlink over uplink bandwidth; 1 is non-blocking. Sizes the uplinks."
    )
    uplink_bandwidth: BytesPerSecond | None = Field(
        None, description="Of one leaf-to-spine uplink, per direction; null: from oversubscription."
    )
    hop_latency: Seconds = Field(description="Through one switch, one way.")
    ecmp: Literal["even", "hashed"] = Field(
        "even", description="even: flows split over all spines; hashed: each flow takes one, drawn by seed."
    )
    paths_per_flow: int = Field(
        1, ge=1, description="Where ecmp is hashed: how many independent draws one flow is split over."
    )
    seed: int = Field(0, description="Seed of the hash that picks a spine where ecmp is hashed.")

    @model_validator(mode="after")
    def _check_uplinks(self) -> Self:
        given = {"oversubscription", "uplink_bandwidth"} <= self.model_fields_set
        if given and self.uplink_bandwidth is not None:
            message = "give either uplink_bandwidth or oversubscription: each follows from the other"
            raise_if_any([("uplink_bandwidth", message)])
        return self


@FABRICS.register("leaf_spine")
class LeafSpine(TwoLayers):
    """Leaves that hold whole nodes (all NICs of a node on one leaf) under a layer of spines."""

    kind: Literal["leaf_spine"] = Field(
        "leaf_spine", description="All NICs of a node on one leaf, under spines."
    )
    nodes_per_leaf: int = Field(ge=1, description="Nodes under one leaf switch.")
