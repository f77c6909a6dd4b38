"""Floats that are rounded to bytes, as Quantize does, in few instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.contracts.expr import Scalar, cast, maximum, minimum, rebuilt, round_
from tactix_codegen.c.scalar import float_literal, int_range


@dataclass(frozen=True)
class Rounded:
    """The end of a Quantize layer: ``x`` rounded, kept within a range, ``zero`` added."""

    x: Scalar
    zero: int
    dtype: DType

    def text(self, name: str) -> str:
        """C for the bytes, as int32; needs the prelude ``int8.h``."""
        low, high = int_range(self.dtype)
        return (
            f"tx_rounded({name}, {float_literal(high - self.zero)}, {low - self.zero}, {self.zero})"
        )

    def whole(self, name: str) -> str:
        """C for whole numbers that are yet to be kept within the range."""
        high = float_literal(int_range(self.dtype)[1] - self.zero)
        return f"tx_nearest(tx_min_c({name}, tx_splat({high})))" + f" + {self.zero}" * (
            self.zero != 0
        )


def rounded_part(s: Scalar) -> Rounded | None:
    """What a result rounds to bytes, if it ends as Quantize does: one instruction each instead of
    several.
    """
    if s.op != "cast" or s.dtype not in (DType.UINT8, DType.INT8):
        return None
    names: list[str] = []
    ends: list[float] = []
    node = s.args[0]
    while node.op in ("max", "min", "add") and node.args[1].op == "const" and len(names) < 3:
        names.append(node.op)
        ends.append(float(node.args[1].number))
        node = node.args[0]
    low, high = int_range(s.dtype)
    if (
        names != ["max", "min", "add"]
        or ends[:2] != [low, high]
        or node.op != "round"
        or not ends[2].is_integer()
    ):
        return None
    return Rounded(node.args[0], int(ends[2]), s.dtype)


def in_floats(results: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Expressions with what is rounded to bytes and read again kept as whole floats, which is the
    same.
    """
    return rebuilt(results, _in_floats)


def _in_floats(s: Scalar) -> Scalar | None:
    if s.op == "cast" and s.dtype is DType.FP32 and (b := rounded_part(s.args[0])):
        low, high = int_range(b.dtype)
        whole = maximum(minimum(round_(b.x), float(high - b.zero)), float(low - b.zero))
        whole = cast(whole, DType.FP32)
        return whole + float(b.zero) if b.zero else whole
    shifted = s.op == "sub" and s.args[0].op == "add" and s.args[0].args[1] is s.args[1]
    if shifted and _is_whole(s.args[0].args[0]) and s.args[1].op == "const":
        return s.args[0].args[0]
    return None


def _is_whole(s: Scalar) -> bool:
    """Whether it is a rounded number that is kept within a range, as ``_in_floats`` makes it."""
    s = s.args[0] if s.op == "cast" else s
    return s.op == "max" and s.args[0].op == "min" and s.args[0].args[0].op == "round"
