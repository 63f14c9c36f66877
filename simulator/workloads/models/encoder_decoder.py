"""What the layers of an encoder-decoder of speech are (Whisper)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Literal

from pydantic import Field

from simulator.workloads.layers import Layer, Module
from simulator.workloads.model import FAMILIES, Faults, Model
from simulator.workloads.models.dense_transformer import vocabulary_projection
from simulator.workloads.models.stack import Seen, Stack
from simulator.workloads.modules.at_length import AtLength
from simulator.workloads.modules.elementwise import Activation
from simulator.workloads.modules.linear import ReplicatedLinear
from simulator.workloads.modules.norms import Norm
from simulator.workloads.modules.vocabulary import CrossEntropy, Embedding


@FAMILIES.register("encoder_decoder")
class EncoderDecoder(Model):
    """Whisper (Radford et al. 2022): two convolutions and an encoder over audio, a decoder over text that looks at it.

    A sample is `sequence_length` tokens of text beside `positions` of audio. Encoder and decoder may differ in all but
    what joins them.
    """

    family: Literal["encoder_decoder"] = Field(
        default="encoder_decoder", description="Always `encoder_decoder`."
    )
    bins: int = Field(gt=0, description="Frequency bins of a frame of audio.")
    positions: int = Field(gt=0, description="Of a sample's audio in the encoder; half as many as frames.")
    encoder: Stack = Field(description="Blocks over audio.")
    decoder: Stack = Field(
        description="Blocks over text, each of which also attends to the encoder's output."
    )
    vocab: int = Field(gt=0, description="Entries of the vocabulary, before padding.")
    max_sequence: int = Field(gt=0, description="Longest text (rows of its learned position table).")

    @property
    def longest_sequence(self) -> int | None:
        return self.max_sequence

    @property
    def attention_heads(self) -> int | None:
        return self.decoder.heads

    def faults(self) -> Faults:
        return self.encoder.faults("encoder.") + self.decoder.faults("decoder.")

    def sharding_faults(self, tp: int, cp: int, ep: int, expert_tp: int | None = None) -> Faults:
        found = self.encoder.sharding_faults(tp) or self.decoder.sharding_faults(tp)
        for axis, degree in (("cp", cp), ("ep", ep)):
            if degree > 1:
                found.append((axis, f"{axis} {degree}: sequences of two lengths are not split over {axis}"))
        return found

    def layers(self) -> tuple[Layer, ...]:
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        seen = Seen(length=self.positions, width=self.encoder.hidden)
        inner = self.encoder.block("encoder block", causal=False, length=self.positions)
        outer = self.decoder.block("decoder block", causal=True, seen=seen)
        first = replace(
            outer, name="first decoder block", modules=(*self._between(seen), *outer.modules), width=0
        )
        return (
            self._audio(),
            *[inner] * self.encoder.layers,
            first,
            *[outer] * (self.decoder.layers - 1),
            self._head(),
        )

    def _audio(self) -> Layer:
        """Two convolutions of three frames, the second at every other one; fixed positions are added."""
        hidden, frames = self.encoder.hidden, 2 * self.positions
        modules: tuple[Module, ...] = (
            AtLength(
                ReplicatedLinear(name="convolution_1", source="input", inputs=3 * self.bins, outputs=hidden),
                frames,
            ),
            AtLength(
                Activation(
                    name="activation_1", source="convolution_1", width=hidden, bias=False, split=False
                ),
                frames,
            ),
            ReplicatedLinear(name="convolution_2", source="activation_1", inputs=3 * hidden, outputs=hidden),
            Activation(name="activation_2", source="convolution_2", width=hidden, bias=False, split=False),
        )
        return Layer("audio", "embedding", modules, 0, hidden, length=self.positions)

    def _between(self, seen: Seen) -> tuple[Module, ...]:
        """The encoder's last norm, and the decoder's table."""
        norm = Norm(name="encoded", source="encoder_output", width=seen.width, residual=False)
        table = Embedding(
            name="input",
            width=self.decoder.hidden,
            vocab=self.vocab,
            tables=(self.max_sequence,),
            dropout=False,
        )
        return AtLength(norm, seen.length), table

    def _head(self) -> Layer:
        hidden = self.decoder.hidden
        modules = (
            Norm(name="final_norm", source="input", width=hidden, residual=False),
            vocabulary_projection("final_norm", hidden, self.vocab, owner=False),
            CrossEntropy(name="loss", source="logits", vocab=self.vocab),
        )
        return Layer("head", "head", modules, hidden, 0)
