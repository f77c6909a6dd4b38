"""Sums over numbers of a dtype: in vectors of float32 up to 32-bit floats, else one by one in
float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import int_range
from tactix_codegen.c.text import block, loop

FLOATS = (DType.FP32, DType.FP16, DType.BF16)
"""What is computed in vectors of float32."""
WIDE = (DType.FP64, DType.INT32, DType.INT16, DType.INT8, DType.UINT32, DType.UINT16, DType.UINT8)
"""What is computed in float64, element by element."""


@dataclass(frozen=True)
class CpuSums:
    """How to write sums over elements of ``dtype``: ``number`` is what they are kept in, ``kind``
    the C type of one, or of a vector of them, of ``lanes``.
    """

    dtype: DType

    @property
    def vector(self) -> bool:
        return self.dtype in FLOATS

    @property
    def number(self) -> DType:
        return DType.FP32 if self.vector else DType.FP64

    @property
    def kind(self) -> str:
        return "vf" if self.vector else "double"

    @property
    def lanes(self) -> str:
        return "TX_LANES" if self.vector else "1"

    @property
    def zero(self) -> str:
        return "tx_zero()" if self.vector else "0.0"

    def swept(self, length: str, body: Callable[[str], list[str]], begin: str = "0") -> str:
        """``body`` for each vector from ``i`` on, of which the last has a count."""
        if not self.vector:
            return loop("i", begin, length, *body(""))
        return block(
            "",
            f"int64_t i = {begin};",
            block(f"for (; i + TX_LANES <= {length}; i += TX_LANES)", *body("")),
            block(f"if (i < {length})", *body(f"{length} - i")),
        )

    def loaded(self, dtype: DType, pointer: str, count: str = "") -> str:
        """The elements at a pointer."""
        if self.vector:
            return c_text.load(dtype, pointer, count)
        return f"(double)*({pointer})"

    def splat(self, value: str) -> str:
        """One number in all lanes."""
        return f"tx_splat({value})" if self.vector else value

    def repeated(self, dtype: DType, pointer: str) -> str:
        """The element at a pointer in all lanes."""
        return c_text.splat(dtype, pointer) if self.vector else self.loaded(dtype, pointer)

    def stored(self, dtype: DType, pointer: str, value: str, count: str = "") -> str:
        """The statement that stores sums; integers are rounded and stay in their range."""
        if self.vector:
            return c_text.store(dtype, pointer, value, count)
        if dtype.is_float:
            return f"*({pointer}) = {value};"
        low, high = (f"{v}.0" for v in int_range(dtype))
        return (
            f"*({pointer}) = ({c_text.ctype(dtype)})tx_between(tx_whole({value}), {low}, {high});"
        )
