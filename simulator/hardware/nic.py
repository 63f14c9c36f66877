"""What one NIC is (`hardware/nics/*.yaml`)."""

from __future__ import annotations

from pydantic import Field

from simulator.description.base import Named
from simulator.description.quantities import BytesPerSecond, Dollars, Seconds, Watts


class NIC(Named):
    """One network port of a node, whatever number of physical ports it bonds."""

    vendor: str = Field(description="Who makes it.")
    bandwidth: BytesPerSecond = Field(description="Line rate per direction.")
    latency: Seconds = Field(description="One way, NIC and host together, without switches.")
    power: Watts | None = Field(default=None, description="Power draw; null when unknown.")
    price: Dollars | None = Field(default=None, description="Price of one; null when not public.")
