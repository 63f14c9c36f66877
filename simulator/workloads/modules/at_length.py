"""A module that runs on another number of positions per sample than the layer it stands in."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workloads.layers import Module, Operation, Parameters, Saved, Shard


@dataclass(frozen=True)
class AtLength(Module):
    """`inner` on `length` positions of every sample, such as keys and values of what an encoder saw."""

    inner: Module
    length: int

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def source(self) -> str:  # type: ignore[override]
        return self.inner.source

    @property
    def group(self) -> str:  # type: ignore[override]
        return self.inner.group

    @property
    def keeps_output(self) -> bool:  # type: ignore[override]
        return self.inner.keeps_output

    def parameters(self, shard: Shard) -> Parameters:
        return self.inner.parameters(shard)

    def forward(self, shard: Shard) -> list[Operation]:
        return self.inner.forward(shard.at_length(self.length))

    def backward(self, shard: Shard) -> list[Operation]:
        return self.inner.backward(shard.at_length(self.length))

    def recomputed(self, shard: Shard) -> list[Operation]:
        return self.inner.recomputed(shard.at_length(self.length))

    def saved(self, shard: Shard) -> list[Saved]:
        return self.inner.saved(shard.at_length(self.length))

    def kept_of_recomputed(self, shard: Shard) -> list[Saved]:
        return self.inner.kept_of_recomputed(shard.at_length(self.length))

    def transient_bytes(self, shard: Shard) -> float:
        return self.inner.transient_bytes(shard.at_length(self.length))
