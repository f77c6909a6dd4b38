"""Products with weights of few bits, and rows of tables of few bits, which stay as stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import work
from tactix_ops.layers.common import Array, Specs, optional, pick, required, wide
from tactix_ops.layers.index import constant_in_range, in_range, random_indices

WIDTHS = (2, 4, 8)
"""Bits that a number of weights may have."""


@dataclass(frozen=True)
class FewBitsMatMulAttrs:
    """``bits`` of a number of the weights; ``block_size``: numbers along k that share a scale;
    ``int8_activations``: kernels may round ``a`` to int8, with a scale for each block of a row, or
    both sides to bfloat16, which departs less.
    """

    bits: int = 4
    block_size: int = 32
    int8_activations: bool = False


class FewBitsMatMul(Layer):
    """``a`` (..., k) times the transpose of n rows of k numbers; y (..., n).

    Inputs: a; the rows as bytes (n, blocks, block_size bits / 8), the lowest bits first; scales (n,
    blocks) of floats; zero points (n, blocks) of u8 or floats, mid-range if absent. A number of the
    weights is ``(q - zero) scale``. The reference rounds nothing, whatever is permitted.
    """

    key = "tactix.FewBitsMatMul@1"
    takes_epilogue = True
    Attrs = FewBitsMatMulAttrs

    def infer(self, attrs: FewBitsMatMulAttrs, inputs: Specs) -> list[TensorSpec]:
        a, w, scale = required(self, inputs, 3)
        if attrs.bits not in WIDTHS or attrs.block_size < 1 or attrs.block_size * attrs.bits % 8:
            raise InvalidArgument(
                f"{self.key}: blocks of {attrs.block_size} numbers of {attrs.bits} bits",
                do="Give 2, 4 or 8 bits, and blocks of whole bytes",
            )
        if not a.rank or not isinstance(a.shape[-1], int) or w.rank != 3:
            raise ShapeError(f"{self.key} takes rows of known length and bytes (n, ., .): {a}, {w}")
        blocks = -(-a.shape[-1] // attrs.block_size)
        rows: tuple[Dim, ...] = (w.shape[0], blocks)
        zero = optional(inputs, 3)
        if w.shape[1:] != (blocks, attrs.block_size * attrs.bits // 8) or any(
            s.shape != rows for s in (scale, zero) if s is not None
        ):
            raise ShapeError(
                f"{self.key}: weights {w}, scales {scale} and zero points {zero} for {a}, "
                f"of which a row has {blocks} blocks"
            )
        if not (a.dtype.is_float and scale.dtype.is_float and w.dtype is DType.UINT8):
            raise DTypeError(f"{self.key} takes floats, bytes and scales of floats: {inputs}")
        return [TensorSpec(a.dtype, (*a.shape[:-1], w.shape[0]))]

    def operations(
        self, attrs: FewBitsMatMulAttrs, inputs: Specs, outputs: list[TensorSpec]
    ) -> Dim:
        return work.product(inputs, outputs)

    def reference(self, attrs: FewBitsMatMulAttrs, *inputs: Array) -> tuple[Array, ...]:
        a = wide(inputs[0])
        weights = written_out(attrs, a.shape[-1], inputs[1], inputs[2], pick(inputs, 3))
        with np.errstate(invalid="ignore"):  # infinities of different signs
            return (np.matmul(a, weights.T).astype(inputs[0].dtype, copy=False),)


def written_out(
    attrs: FewBitsMatMulAttrs, k: int, raw: Array, scale: Array, zero: Array | None
) -> Array:
    """The rows (n, k) as float32."""
    n, blocks = scale.shape
    numbers = fields(raw.reshape(n, -1), attrs.bits).reshape(n, blocks, attrs.block_size)
    middle = np.float32(1 << attrs.bits - 1) if zero is None else wide(zero)[:, :, None]
    weights = (numbers.astype(np.float32) - middle) * wide(scale)[:, :, None]
    return weights.astype(np.float32).reshape(n, -1)[:, :k]


def fields(raw: Array, bits: int) -> Array:
    """Numbers of so many bits from bytes (rows, bytes), the lowest bits first."""
    parts = [raw >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(len(raw), raw.shape[1] * 8 // bits)


@dataclass(frozen=True)
class FewBitsGatherAttrs:
    """``bits`` of a number of the table; ``block_size``: numbers of a row that share a scale;
    ``columns``: numbers of a row.
    """

    columns: int
    bits: int = 4
    block_size: int = 32


class FewBitsGather(Layer):
    """Rows of a table of few bits, as floats; y (indices..., columns), float32.

    Inputs: the table as bytes (n, columns bits / 8), the lowest bits first; indices of integers,
    negative ones count from the end; scales (n, blocks) of floats; zero points (n, blocks) of u8 or
    floats, mid-range if absent. A number of the table is ``(q - zero) scale``.
    """

    key = "tactix.FewBitsGather@1"
    Attrs = FewBitsGatherAttrs
    tables = (0, 2, 3)

    def infer(self, attrs: FewBitsGatherAttrs, inputs: Specs) -> list[TensorSpec]:
        table, indices, scale = required(self, inputs, 3)
        if attrs.bits not in WIDTHS or attrs.block_size < 1 or attrs.columns < 1:
            raise InvalidArgument(
                f"{self.key}: {attrs.columns} columns of {attrs.bits} bits in blocks of "
                f"{attrs.block_size}",
                do="Give 2, 4 or 8 bits, and a column and a block of one number or more",
            )
        if table.rank != 2 or table.shape[1] != -(-attrs.columns * attrs.bits // 8):
            raise ShapeError(
                f"{self.key}: the table {table} has no rows of {attrs.columns} numbers"
            )
        rows: tuple[Dim, ...] = (table.shape[0], -(-attrs.columns // attrs.block_size))
        zero = optional(inputs, 3)
        if any(s.shape != rows for s in (scale, zero) if s is not None):
            raise ShapeError(f"{self.key}: scales {scale} and zero points {zero} for {table}")
        if table.dtype is not DType.UINT8 or not (indices.dtype.is_int and scale.dtype.is_float):
            raise DTypeError(f"{self.key} takes bytes, integers and scales of floats: {inputs}")
        constant_in_range(indices, table, 0, self.key)
        return [TensorSpec(DType.FP32, (*indices.shape, attrs.columns))]

    def reference(self, attrs: FewBitsGatherAttrs, *inputs: Array) -> tuple[Array, ...]:
        table, indices, scale = inputs[:3]
        at, zero = in_range(indices, len(table)).reshape(-1), pick(inputs, 3)
        rows = table_rows(attrs, table[at], scale[at], None if zero is None else zero[at])
        return (rows.reshape(*indices.shape, attrs.columns),)

    def sample(self, attrs: FewBitsGatherAttrs, inputs: Specs, rng: Any) -> list[Any]:
        made = super().sample(attrs, inputs, rng)
        table, indices = required(self, inputs, 2)
        return [made[0], random_indices(rng, indices, table.at({})[0]), *made[2:]]


def table_rows(attrs: FewBitsGatherAttrs, raw: Array, scale: Array, zero: Array | None) -> Array:
    """Rows (n, columns) of a table as float32."""
    numbers = fields(raw, attrs.bits)[:, : attrs.columns].astype(np.float32)
    block = np.arange(attrs.columns) // attrs.block_size
    middle = np.float32(1 << attrs.bits - 1) if zero is None else wide(zero)[:, block]
    rows: Array = (numbers - middle) * wide(scale)[:, block]
    return rows


LAYERS: tuple[Layer, ...] = (FewBitsMatMul(), FewBitsGather())
