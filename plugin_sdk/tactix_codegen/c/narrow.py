"""Elements of every width in C, those of 8 bits and less among them (``c/lib/narrow.h``)."""

from __future__ import annotations

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.artifact import Packed
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args

SMALL_FLOATS = (
    DType.FP8,
    DType.FP8E5M2,
    DType.FP8FNUZ,
    DType.FP8E5M2FNUZ,
    DType.FP4,
)
"""Those that numbers can be rounded to."""
POWERS = DType.FP8E8M0
SMALL_INTS = (DType.INT4, DType.UINT4, DType.INT2, DType.UINT2)
HIGHEST = {
    DType.FP8: 448.0,
    DType.FP8E5M2: 57344.0,
    DType.FP8FNUZ: 240.0,
    DType.FP8E5M2FNUZ: 57344.0,
    DType.FP4: 6.0,
}
"""What is beyond becomes this, where a cast saturates."""


def preludes() -> tuple[str, ...]:
    """Preludes of kernels with such elements."""
    return (*c_text.vector_preludes(), c_text.prelude("narrow.h"))


def is_small(dtype: DType) -> bool:
    """Whether it has no C type of its own, but one here."""
    return dtype in (*SMALL_FLOATS, *SMALL_INTS, POWERS)


def ctype(dtype: DType) -> str:
    """The C type of a stored element."""
    return "uint8_t" if is_small(dtype) else c_text.ctype(dtype)


def pointer_in(args: Args, index: int) -> str:
    """C expression: the given input ``index`` as a typed pointer."""
    kind = ctype(args.node.given[index].spec.dtype)
    return f"((const {kind}*){args.bytes_in(index)})"


def pointer_out(args: Args, index: int = 0) -> str:
    """C expression: output ``index`` as a typed pointer."""
    return f"(({ctype(args.node.outputs[index].spec.dtype)}*){args.bytes_out(index)})"


def number(args: Args, dtype: DType, element: str) -> str:
    """A stored element as a C number: ``float`` for floats up to 32 bits, ``int32_t`` for small
    integers.
    """
    if dtype in SMALL_INTS:
        return f"tx_from_{dtype.value}({element})"
    if dtype in SMALL_FLOATS or dtype is POWERS:
        codes = np.arange(256, dtype=np.uint8) & np.uint8(15 if dtype is DType.FP4 else 255)
        table = Packed(-1, array=codes.view(dtype.numpy).astype(np.float32))
        return f"{args.constant(f'all_{dtype.value}', table)}[{element}]"
    return c_scalar.element(dtype, element)


def stored(dtype: DType, value: str, saturate: bool = True) -> str:
    """A C number as a stored element; integers keep their low bits."""
    if dtype in SMALL_INTS:
        return f"tx_to_{dtype.value}((int32_t)({value}))"
    if dtype not in SMALL_FLOATS:
        return c_scalar.stored(dtype, value)
    if not saturate:
        return f"tx_to_{dtype.value}({value})"
    high = c_scalar.float_literal(HIGHEST[dtype])
    return f"tx_to_{dtype.value}(tx_within({value}, -{high}, {high}))"
