"""Elements seen as another type, and random drops with a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs, pick, required, wide


@dataclass(frozen=True)
class BitCastAttrs:
    """``to``: a dtype as wide as the input's."""

    to: DType = DType.FP32


class BitCast(Layer):
    """The same bits as another dtype of the same width."""

    key = "tactix.BitCast@1"
    Attrs = BitCastAttrs
    imports = ("onnx:ai.onnx::BitCast",)

    def infer(self, attrs: BitCastAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if x.dtype.bits != attrs.to.bits:
            raise DTypeError(f"{self.key}: {x.dtype.value} and {attrs.to.value} differ in width")
        return [TensorSpec(attrs.to, x.shape)]

    def reference(self, attrs: BitCastAttrs, *inputs: Array) -> tuple[Array, ...]:
        return (np.ascontiguousarray(inputs[0]).view(attrs.to.numpy).reshape(inputs[0].shape),)


@dataclass(frozen=True)
class CastToExponentAttrs:
    """``rounding``: ``up``, ``down`` or ``nearest``. ``saturate``: what is too large becomes the
    largest, not NaN.
    """

    rounding: str = "up"
    saturate: bool = True


class CastToExponent(Layer):
    """The powers of two next to the magnitudes of x, as float8 e8m0 (OCP Microscaling Formats, 1.0,
    section 5.4.1).
    """

    key = "tactix.CastToExponent@1"
    Attrs = CastToExponentAttrs

    def infer(self, attrs: CastToExponentAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        if attrs.rounding not in ("up", "down", "nearest"):
            raise InvalidArgument(
                f"{self.key}: rounding {attrs.rounding!r}", do="Use up, down or nearest"
            )
        return [TensorSpec(DType.FP8E8M0, x.shape)]

    def reference(self, attrs: CastToExponentAttrs, *inputs: Array) -> tuple[Array, ...]:
        bits = inputs[0].astype(np.float32).view(np.uint32)
        exponent, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
        # between two powers, half way goes up, but for the subnormal: it goes to its even neighbour
        half = (fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0))
        up = {"up": fraction > 0, "down": np.zeros_like(half), "nearest": half}[attrs.rounding] & (
            exponent < 0xFF
        )
        if attrs.saturate:
            up &= exponent < 0xFE
        return ((exponent + up).astype(np.uint8).view(DType.FP8E8M0.numpy),)


@dataclass(frozen=True)
class TrainingDropoutAttrs:
    """``seed``: of numpy's Mersenne twister, so that runs are the same."""

    seed: int = 0


class TrainingDropout(Layer):
    """x scaled by 1 / (1 - ratio) where a random number is at least ``ratio``, else 0; and where
    that is (booleans).

    Inputs: x, ratio (0.5), training: a boolean; without it, or if it is false, all is kept as it
    is.
    """

    key = "tactix.TrainingDropout@1"
    Attrs = TrainingDropoutAttrs

    def infer(self, attrs: TrainingDropoutAttrs, inputs: Specs) -> list[TensorSpec]:
        (x,) = required(self, inputs, 1)
        return [x.plain(), TensorSpec(DType.BOOL, x.shape)]

    def reference(self, attrs: TrainingDropoutAttrs, *inputs: Array) -> tuple[Array, ...]:
        x, ratio, training = inputs[0], pick(inputs, 1), pick(inputs, 2)
        drop = 0.5 if ratio is None else float(ratio.reshape(()))
        if training is None or not training.item() or drop == 0:
            return x, np.ones(x.shape, bool)
        kept = np.random.RandomState(attrs.seed).uniform(0, 1, x.shape) >= drop
        return (np.where(kept, wide(x) / (1 - drop), 0).astype(x.dtype), kept)

    def sample(self, attrs: TrainingDropoutAttrs, inputs: Specs, rng: Any) -> list[Any]:
        out = super().sample(attrs, inputs, rng)
        return [
            out[0],
            *(
                x if x is None else np.full_like(x, v)
                for x, v in zip(out[1:], (0.25, True), strict=False)
            ),
        ]


LAYERS: tuple[Layer, ...] = (BitCast(), CastToExponent(), TrainingDropout())
