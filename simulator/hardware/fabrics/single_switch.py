"""One switch, to which every NIC of every node is attached."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from simulator.description.quantities import Seconds
from simulator.hardware.fabrics.fabric import FABRICS, Fabric
from simulator.hardware.links import LinkTable
from simulator.hardware.wiring import Ports, Wiring


@FABRICS.register("single_switch")
class SingleSwitch(Fabric):
    """One non-blocking switch between all nodes."""

    kind: Literal["single_switch"] = Field("single_switch", description="One switch for all nodes.")
    hop_latency: Seconds = Field(description="Through the switch, one way.")

    def wire(self, ports: Ports, table: LinkTable) -> Wiring:
        """A crossbar: one hop between any two NICs. The bisection is half of the NICs' bandwidth."""
        switch = table.add_vertices("switch")
        return Wiring(
            attachment=np.full(len(ports), int(switch), dtype=np.int64),
            entry_latency=self.hop_latency,
            paths=lambda source, destination, key: [],
            bisection=min(ports.halves()),
        )
