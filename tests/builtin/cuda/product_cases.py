"""Nodes for matrix products, convolutions and attention on a GPU: odd sizes, every way of lying,
every epilogue kind.

``TABLE``: groups of cases by name, made when asked, in three parts; the same are compiled, run on the
host, and run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import asked
import harness as h
import numpy as np
import simt

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject, Tactic, Variant
from tactix_cuda.tactics import (
    attention,
    attention_f32,
    conv,
    direct_conv,
    few_bits,
    few_bits_gemv,
    few_channels,
    gemm,
    gemv,
    halo_conv,
    pooled_conv,
)

GEMM, TF32_GEMM, BYTE_GEMM = gemm.tactics()
(GEMV,) = gemv.tactics()
(FEW_BITS,), (FEW_BITS_GEMV,) = few_bits.tactics(), few_bits_gemv.tactics()
CONV, TF32_CONV, BYTE_CONV = conv.tactics()
(DIRECT,) = direct_conv.tactics()
(FEW_CHANNELS,) = few_channels.tactics()
HALO_CONV, BYTE_HALO_CONV = halo_conv.tactics()
(POOLED_CONV,) = pooled_conv.tactics()
(ATTENTION,), (PLAIN_ATTENTION,) = attention.tactics(), attention_f32.tactics()
DTYPES = ("f16", "bf16", "f32")
BYTES = ("i8", "u8")
TF32_BUDGET = 200.0
"""float32's budget is for exact products: 2e-5 of the largest result. Ten bits of mantissa give
about 1e-3.
"""
SIZES: tuple[dict[str, int], ...] = ({"n": 1, "s": 1}, {"n": 3, "s": 37}, {"n": 0, "s": 4})
"""Of symbols."""
Table = dict[str, Callable[[], list[simt.Case]]]
_RNG = np.random.default_rng(11)


def real(dtype: str, *shape: int) -> Any:
    """Normal numbers."""
    return _RNG.standard_normal(shape, dtype=np.float32).astype(DType(dtype).numpy)


def whole(dtype: str, *shape: int) -> Any:
    """Bytes over their whole range."""
    limits = np.iinfo(DType(dtype).numpy)
    return _RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(DType(dtype).numpy)


def plain(
    tactic: Tactic, layer: str, arrays: Sequence[Any], constants: Sequence[int] = (), **attrs: Any
) -> simt.Case:
    budget = TF32_BUDGET if tactic in (TF32_GEMM, TF32_CONV) else 1.0
    return simt.Case(h.node(layer, arrays, constants, **attrs), tactic, list(arrays), budget=budget)


def group(
    tactic: Tactic, arrays: Sequence[Any], nodes: Any, constants: Sequence[int], **more: Any
) -> simt.Case:
    return simt.Case(
        h.fused(arrays, nodes, constants=constants, anchor=0, **more), tactic, list(arrays)
    )


def turned(tactic: Tactic, dtype: str, m: int, k: int, n: int) -> list[simt.Case]:
    """Gemm with a and b as they are and transposed, b given and constant."""
    out = []
    for ta in (False, True):
        for tb in (False, True):
            a, b = (
                real(dtype, *((k, m) if ta else (m, k))),
                real(dtype, *((n, k) if tb else (k, n))),
            )
            for constants in ((), (1,)):
                attrs = {"transA": ta, "transB": tb, "alpha": 0.5, "beta": 2.0}
                out.append(plain(tactic, "Gemm", [a, b, real(dtype, n)], constants, **attrs))
    return out


def batches(tactic: Tactic, dtype: str) -> list[simt.Case]:
    """Matrices that repeat along the batch axes, vectors, scalars of one element."""
    matrices = [((2, 3, 20, 24), (3, 24, 17)), ((3, 20, 24), (2, 1, 24, 8))]
    shapes = [*matrices, ((2, 20, 24), (24,)), ((24,), (2, 24, 5))]
    pairs = [(real(dtype, *a), real(dtype, *b)) for a, b in shapes]
    pairs.append(
        (abs(real(dtype, 7)), abs(real(dtype, 7)))
    )  # a result alone is what errors are relative to
    return [plain(tactic, "MatMul", [a, b], c) for a, b in pairs for c in ((), (1,))]


def epilogues(tactic: Tactic, dtype: str, m: int, k: int, n: int) -> list[simt.Case]:
    """Bias, factor of a row, residual, activation, a comparison, a rounded second result."""
    a, b, bias, row, rest = (real(dtype, *s) for s in ((m, k), (k, n), (n,), (m, 1), (m, n)))
    long: list[Any] = [
        ("MatMul", (0, 1), {}),
        ("Add", (5, 2), {}),
        ("Mul", (6, 3), {}),
        ("Gelu", (7,), {}),
        ("Add", (8, 4), {}),
    ]
    arrays = [a, b, bias, row, rest]
    two = [*long, ("Cast", (9,), {"to": DType.BF16}), ("Greater", (4, 3), {})]
    wide = [real("bf16", m, k), real("bf16", k, n), real("f32", n)]
    return [
        group(tactic, arrays, long, [1, 2]),
        group(tactic, arrays, two, [1], results=[9, 10, 11]),
        plain(tactic, "WideMatMul", wide, [1, 2]),
    ]


def symbolic(
    tactic: Tactic, dtype: str, sizes: Sequence[dict[str, int]] = SIZES
) -> list[simt.Case]:
    """Rows, batch, and both matrices of symbolic sizes."""
    s, n = dims.sym("s"), dims.sym("n")
    t = DType(dtype)
    const = TensorSpec(t, (40, 24), const=real(dtype, 40, 24))
    rows = h.node("MatMul", [TensorSpec(t, (n, s, 40)), const])
    all_of_it = h.node("MatMul", [TensorSpec(t, (n, 2, s, 33)), TensorSpec(t, (n, 2, 33, s))])
    return [simt.Case(x, tactic, env=e) for x in (rows, all_of_it) for e in sizes]


def gemms(dtype: str) -> list[simt.Case]:
    sizes = [(17, 33, 19), (5, 2, 3), (40, 24, 72)]
    turns = [c for size in sizes for c in turned(GEMM, dtype, *size)]
    return [
        *turns,
        *batches(GEMM, dtype),
        *epilogues(GEMM, dtype, 37, 300, 50),
        *symbolic(GEMM, dtype),
    ]


def tf32_gemms() -> list[simt.Case]:
    return [*turned(TF32_GEMM, "f32", 40, 36, 72), *batches(TF32_GEMM, "f32")]


def gemvs(dtype: str) -> list[simt.Case]:
    sizes = [(1, 520, 30), (3, 33, 19), (8, 64, 9), (16, 96, 40)]
    out = [c for size in sizes for c in epilogues(GEMV, dtype, *size)]
    gemm_attrs = {"transA": True, "transB": True, "alpha": 0.5}
    out.append(
        plain(
            GEMV,
            "Gemm",
            [real(dtype, 70, 1), real(dtype, 20, 70), real(dtype, 20)],
            [1],
            **gemm_attrs,
        )
    )
    return [*out, plain(GEMV, "MatMul", [real(dtype, 70), real(dtype, 70, 20)], [1])]


def bits_arrays(
    dtype: str, m: int, k: int, n: int, bits: int, block: int, zeros: str = "", scales: str = "f32"
) -> list[Any]:
    """Rows, weights as stored, scales, and zero points of a dtype, or none."""
    blocks, limit = -(-k // block), 1 << bits
    raw = _RNG.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    scale = _RNG.uniform(0.01, 0.1, (n, blocks)).astype(DType(scales).numpy)
    points = _RNG.integers(0, limit, (n, blocks)) + (0.5 if zeros.startswith("f") else 0)
    return [real(dtype, m, k), raw, scale, *([points.astype(DType(zeros).numpy)] if zeros else [])]


def bits_of(arrays: Sequence[Any], bits: int, block: int, tactic: Tactic = FEW_BITS) -> simt.Case:
    constants = range(1, len(arrays))
    return plain(tactic, "FewBitsMatMul", arrays, constants, bits=bits, block_size=block)


def few_bits_products(dtype: str) -> list[simt.Case]:
    """Rows that fill no tile, columns that fill no panel, depths that end within a chunk and a
    block; with and without zero points; an epilogue; open sizes.
    """
    sizes = [
        (1, 520, 40, 4, 32, "", "f16"), (2, 96, 33, 4, 64, "u8", "f32"), (5, 131, 70, 8, 32, "", "f32"),
        (16, 300, 24, 4, 128, "u8", "f16"), (1, 45, 9, 8, 45, "", "f32"), (3, 1, 1, 4, 32, "f32", "bf16"),
        (2, 160, 8, 8, 64, "f16", "f16"), (7, 64, 100, 8, 32, "u8", "f16"), (33, 70, 17, 4, 32, "", "f32"),
    ]  # fmt: skip
    out = []
    for m, k, n, bits, block, zeros, scales in sizes:
        out.append(bits_of(bits_arrays(dtype, m, k, n, bits, block, zeros, scales), bits, block))
    for bits, tiles in ((4, 4), (8, 2)):  # x in the ring, of several tiles
        large = bits_of(bits_arrays(dtype, 19, 1030, 40, bits, 32, "u8"), bits, 32)
        only = [Variant.of(tiles=tiles, slices=s, step=4, stages=3) for s in (8, 2)]
        out.append(replace(large, only=only))
    arrays = bits_arrays(dtype, 6, 64, 44, 4, 32)
    const = [TensorSpec(DType.of(a.dtype), a.shape, const=a) for a in arrays[1:]]
    free = TensorSpec(DType(dtype), (dims.sym("n"), dims.sym("s"), 64))
    node = h.node("FewBitsMatMul", [free, *const], bits=4, block_size=32)
    open_sizes = [simt.Case(node, FEW_BITS, env=e) for e in SIZES]
    return [*out, bits_with_more(FEW_BITS, dtype, arrays), *open_sizes]


def bits_with_more(tactic: Tactic, dtype: str, arrays: Sequence[Any]) -> simt.Case:
    """With an epilogue."""
    shape = (len(arrays[0]), len(arrays[1]))
    body: list[Any] = [("FewBitsMatMul", (0, 1, 2), {"bits": 4, "block_size": 32})]
    body += [("Add", (5, 3), {}), ("Gelu", (6,), {}), ("Add", (7, 4), {})]
    more = [*arrays, real(dtype, shape[1]), real(dtype, *shape)]
    return group(tactic, more, body, [1, 2, 3])


def few_bits_gemvs(dtype: str) -> list[simt.Case]:
    """Columns that fill no panel, panels that fill no block, depths that end within a chunk, a part
    and a word; blocks of less than a chunk, a chunk, several chunks and all of k; rings that are
    shorter than what a warp does; every kind of scales and zero points.
    """
    sizes = [
        (1300, 40, 4, 32, "", "f16"), (777, 70, 4, 64, "u8", "f32"), (300, 9, 4, 128, "f32", "bf16"),
        (2048, 33, 4, 512, "f16", "f16"), (46, 1, 4, 46, "", "f32"), (2060, 20, 4, 256, "u8", "f16"),
        (1111, 40, 8, 32, "u8", "f16"), (520, 24, 8, 520, "", "f32"), (1000, 32, 4, 32, "", "f16"),
        (700, 16, 4, 512, "", "f16"),
    ]  # fmt: skip
    out = []
    for k, n, bits, block, zeros, scales in sizes:
        if dtype == "f16" or bits == 4:
            arrays = bits_arrays(dtype, 1, k, n, bits, block, zeros, scales)
            out.append(bits_of(arrays, bits, block, FEW_BITS_GEMV))
    large, even = (
        bits_of(bits_arrays(dtype, 1, k, n, 4, 32, "u8"), 4, 32, FEW_BITS_GEMV)
        for k, n in ((2080, 168), (2048, 64))
    )
    knobs = [(p, s, t) for p in (1, 2, 4) for s in (4, 8) for t in (1, 2, 3)]
    only = [Variant.of(panels=p, slices=s, stages=t) for p, s, t in knobs if p < 4 or t < 3]
    out += [replace(large, only=only), replace(even, only=only[::2])]
    arrays = bits_arrays(dtype, 1, 64, 44, 4, 32)
    return [*out, bits_with_more(FEW_BITS_GEMV, dtype, arrays)]


def requantized(first: tuple[str, tuple[int, ...], dict[str, Any]], scale: int) -> list[Any]:
    """Layers of a quantized network behind a product: its given inputs are x, w, a bias of int32,
    scales of channels, and a residual in bytes; the results are bytes again, and floats.
    """
    return [
        first, ("Cast", (5,), {"to": DType.FP32}), ("Mul", (6, scale), {}), ("Cast", (4,), {"to": DType.FP32}),
        ("Add", (7, 8), {}), ("Relu", (9,), {}), ("Quantize", (10,), {"zero": 3, "dtype": DType.UINT8}),
    ]  # fmt: skip


def byte_gemms(tactic: Tactic, dtype: str) -> list[simt.Case]:
    """Depths that no copy divides, vectors, sums that wrap nowhere near, and all that follows in a
    quantized network.
    """
    out = []
    for m, k, n in ((17, 33, 19), (5, 2, 3), (40, 24, 72), (70, 516, 130), (3, 1030, 9)):
        arrays = [whole(dtype, m, k), whole("i8", k, n)]
        c = _RNG.integers(-(1 << 20), 1 << 20, n).astype(np.int32)
        out += [
            plain(tactic, "IntegerMatMul", arrays, [1]),
            plain(tactic, "IntegerMatMul", [*arrays, c], [1, 2]),
        ]
        rest = [c, real("f32", n) * 1e-3, whole("u8", m, n)]
        body = requantized(("IntegerMatMul", (0, 1, 2), {}), 3)
        out.append(group(tactic, [*arrays, *rest], body, [1, 2, 3], results=[11, 10]))
    out.append(plain(tactic, "IntegerMatMul", [whole(dtype, 2, 3, 5, 40), whole("i8", 40, 7)], [1]))
    free = TensorSpec(DType(dtype), (dims.sym("n"), dims.sym("s"), 48))
    node = h.node(
        "IntegerMatMul", [free, TensorSpec(DType.INT8, (48, 9), const=whole("i8", 48, 9))]
    )
    return [*out, *(simt.Case(node, tactic, env=e) for e in SIZES)]


Image = tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]
"""Shape, output channels, kernel, attributes."""
IMAGES: list[Image] = [
    ((2, 3, 17, 15), 20, (7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    ((2, 16, 9, 7), 24, (3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 24, 8, 8), 9, (1, 1), {}),
    ((2, 12, 8, 9), 16, (1, 1), {"strides": (2, 2)}),
    ((1, 40, 10, 9), 33, (3, 2), {"strides": (2, 1), "dilations": (2, 3), "pads": (1, 0, 2, 3)}),
    ((1, 1, 9, 9), 8, (5, 5), {}),
    ((1, 4, 9, 9), 8, (3, 3), {}),
    ((2, 8, 20), 12, (5,), {"strides": (2,), "pads": (2, 2)}),
    ((2, 16, 3, 6, 5), 24, (1, 3, 3), {"strides": (1, 2, 1), "pads": (0, 1, 1, 0, 1, 0)}),
    ((1, 24, 7, 4, 6), 16, (3, 1, 1), {"strides": (2, 1, 1), "pads": (1, 0, 0, 2, 0, 0)}),
    ((2, 16, 3, 4, 4), 8, (1, 1, 1), {}),
    ((2, 48, 7, 9), 48, (3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    ((1, 32, 8, 6), 64, (3, 3), {"group": 8, "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 12, 6, 6), 12, (1, 1), {"group": 3}),
    ((2, 40, 5, 4), 80, (3, 1), {"group": 2, "pads": (1, 0, 1, 0)}),
    ((1, 96, 40), 96, (16,), {"group": 2, "pads": (8, 7)}),
]
GROUPED: list[Image] = [
    ((2, 16, 9, 7), 16, (3, 3), {"group": 16, "pads": (1, 1, 1, 1)}),
    ((1, 12, 8, 9), 12, (3, 5), {"group": 12, "strides": (2, 2), "dilations": (1, 2), "pads": (0, 3, 1, 1)}),
    ((2, 8, 5, 6), 12, (3, 3), {"group": 4}),
    ((1, 6, 6, 6), 18, (2, 2), {"group": 6}),
    ((1, 7, 6, 6), 7, (3, 3), {"group": 7}),
    ((2, 16, 3, 5, 4), 16, (1, 3, 3), {"group": 16, "pads": (0, 1, 1, 0, 1, 1)}),
    ((1, 8, 5, 3, 4), 16, (3, 1, 1), {"group": 4, "dilations": (2, 1, 1), "pads": (1, 0, 0, 1, 0, 0)}),
]  # fmt: skip


FEW: list[Image] = [
    ((2, 3, 17, 15), 32, (7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    ((3, 1, 9, 9), 8, (5, 5), {"pads": (2, 2, 2, 2)}),
    ((1, 4, 9, 10), 40, (3, 3), {"strides": (1, 2), "pads": (0, 1, 1, 0), "dilations": (2, 1)}),
    ((2, 3, 33), 16, (4,), {"strides": (4,), "pads": (1, 2)}),
]


def few_channels_of(dtype: str) -> list[simt.Case]:
    """Every strip of pixels and channels; an activation and a sum behind, symbols."""
    body = [
        ("Convolution", (0, 1), {"pads": (1, 1, 1, 1)}),
        ("Relu", (3,), {}),
        ("Add", (4, 2), {}),
    ]
    arrays = [real(dtype, 2, 3, 6, 7), real(dtype, 16, 3, 3, 3), real(dtype, 2, 16, 6, 7)]
    free = [replace(c, tactic=FEW_CHANNELS) for c in symbolic_images(dtype, into=16)[:2]]
    fused = group(FEW_CHANNELS, arrays, body, [1])
    out = []
    for case in (*images(FEW_CHANNELS, dtype, FEW), fused, *free):
        offered = asked.variants(case.tactic, case.node, simt.DEVICE)
        assert not isinstance(offered, Reject)
        out += [replace(case, only=[v]) for v in offered]
    return out


HALOS: list[Image] = [
    ((2, 8, 9, 40), 8, (3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 24, 17, 33), 24, (3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 16, 19, 35), 32, (3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((1, 32, 12, 20), 40, (5, 3), {"strides": (1, 3), "pads": (2, 0, 1, 2), "dilations": (1, 2)}),
    ((2, 48, 5, 7), 64, (2, 2), {"strides": (2, 1)}),
    ((1, 64, 9, 9), 16, (1, 3), {"pads": (0, 1, 0, 1)}),
    ((3, 16, 150), 32, (7,), {"pads": (3, 3)}),
]


def halo_convolutions(dtype: str) -> list[simt.Case]:
    """Every tile; several tiles of a block, an activation and a sum behind, symbols."""
    body = [
        ("Convolution", (0, 1), {"pads": (1, 1, 1, 1)}),
        ("Relu", (3,), {}),
        ("Add", (4, 2), {}),
    ]
    arrays = [real(dtype, 2, 8, 6, 20), real(dtype, 16, 8, 3, 3), real(dtype, 2, 16, 6, 20)]
    many = plain(
        HALO_CONV, "Convolution", [real(dtype, 40, 8, 20, 20), real(dtype, 8, 8, 2, 2)], [1]
    )
    fused = group(HALO_CONV, arrays, body, [1])
    free = [replace(c, tactic=HALO_CONV) for c in symbolic_images(dtype, into=16)]
    out = []
    for case in (*images(HALO_CONV, dtype, HALOS), fused, many, *free):
        offered = asked.variants(case.tactic, case.node, simt.DEVICE)
        if isinstance(offered, Reject):
            assert case in free
            continue
        out += [replace(case, only=[v]) for v in offered]
    return out


BYTE_HALOS: list[Image] = [
    ((2, 16, 9, 40), 8, (3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 48, 17, 33), 24, (3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 32, 12, 20), 40, (5, 3), {"strides": (1, 3), "pads": (2, 0, 1, 2), "dilations": (1, 2)}),
    ((2, 64, 9, 7), 64, (3, 3), {"strides": (2, 1), "pads": (1, 1, 1, 1)}),
]


def in_turns(cases: Sequence[simt.Case], times: int = 1) -> list[simt.Case]:
    """Each case with so many of the tiles that it is offered, the next one's with those that follow:
    all tiles together.
    """
    out = []
    for i, case in enumerate(cases):
        offered = asked.variants(case.tactic, case.node, simt.DEVICE)
        assert not isinstance(offered, Reject), offered.reason
        own = {(i * times + k) % len(offered) for k in range(times)}
        out += [replace(case, only=[offered[k]]) for k in sorted(own)]
    return out


def byte_halo_convolutions(dtype: str) -> list[simt.Case]:
    """All that follows in a quantized network, symbols."""
    n, s = dims.sym("n"), dims.sym("s")
    rest = [byte_residual(BYTE_HALO_CONV, dtype, zero) for zero in (0, 7)]
    w = TensorSpec(DType.INT8, (16, 16, 3, 3), const=whole("i8", 16, 16, 3, 3))
    given = [TensorSpec(DType(dtype), (n, 16, s, 8)), w]
    node = h.node("IntegerConvolution", given, strides=(2, 2), pads=(1, 1, 1, 1), pad_value=9)
    free = [simt.Case(node, BYTE_HALO_CONV, env=e) for e in ({"n": 3, "s": 16}, {"n": 0, "s": 8})]
    return in_turns([*byte_images(BYTE_HALO_CONV, dtype, BYTE_HALOS), *rest, *free])


@dataclass(frozen=True)
class Pooled:
    """An image, outputs, and attributes of a convolution and of what pools its results."""

    size: tuple[int, ...]
    co: int
    kernel: tuple[int, int]
    conv: dict[str, Any]
    pool: dict[str, Any]


STEM = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
HALF_SIZE = {"kernel_shape": (2, 2), "strides": (2, 2)}
POOLED: list[Pooled] = [
    Pooled((2, 3, 38, 61), 64, (7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}, STEM),
    Pooled((1, 3, 19, 22), 32, (3, 3), {"pads": (1, 1, 1, 1)}, HALF_SIZE),
    Pooled((1, 1, 15, 33), 16, (5, 5), {"pads": (2, 0, 1, 2)}, {**STEM, "ceil_mode": True}),
    Pooled((2, 4, 9, 12), 48, (2, 4), {"strides": (1, 3)}, {**STEM, "kernel_shape": (4, 3)}),
    Pooled((1, 2, 13, 9), 16, (1, 6), {"pads": (0, 5, 0, 5)}, {"kernel_shape": (3, 1)}),
]


def pooled_convolution(shape: Any, arrays: Sequence[Any], dtype: str, of: Pooled) -> simt.Case:
    """In floats a bias and Relu stand between; of bytes all of a quantized network does.

    ``shape``: of the image, as the node knows it.
    """
    if dtype in BYTES:
        attrs = {**of.conv, "pad_value": (-3, 200)[dtype == "u8"]}
        parts = [
            ("IntegerConvolution", (0, 1, 2), attrs), ("Cast", (4,), {"to": DType.FP32}), ("Mul", (5, 3), {}),
            ("Relu", (6,), {}), ("Quantize", (7,), {"zero": 3, "dtype": DType(dtype)}),
        ]  # fmt: skip
    else:
        parts = [("Convolution", (0, 1, 2), dict(of.conv)), ("Relu", (3,), {})]
    parts.append(("MaxPool", (len(arrays) + len(parts) - 1,), of.pool))
    given = [TensorSpec(DType(dtype), shape), *arrays[1:]]
    node = h.fused(given, parts, anchor=len(parts) - 1, constants=range(1, len(arrays)))
    return simt.Case(node, POOLED_CONV, list(arrays))


def pooled_arrays(dtype: str, of: Pooled) -> list[Any]:
    weights = (of.co, of.size[1], *of.kernel)
    if dtype not in BYTES:
        return [real(dtype, *of.size), real(dtype, *weights), real(dtype, of.co)]
    bias = _RNG.integers(-(1 << 15), 1 << 15, of.co).astype(np.int32)
    scale = real("f32", of.co, 1, 1) * 1e-3
    return [whole(dtype, *of.size), whole("i8", *weights), bias, scale]


def pooled_convolutions(dtype: str) -> list[simt.Case]:
    """Two tiles of most; several tiles of a block, symbols, an infinite pixel."""
    n, high, wide = map(dims.sym, ("n", "high", "wide"))
    out = in_turns(
        [pooled_convolution(of.size, pooled_arrays(dtype, of), dtype, of) for of in POOLED], 2
    )
    many = replace(POOLED[1], size=(70, 3, 18, 22))
    odd = replace(POOLED[0], size=(1, 3, 21, 17))
    for of, shape in ((many, many.size), (odd, (n, 3, high, wide)), (odd, odd.size)):
        arrays = pooled_arrays(dtype, of)
        if shape is odd.size and dtype not in BYTES:
            arrays[0][0, 1, 9, 8] = np.inf
        found = pooled_convolution(shape, arrays, dtype, of)
        out.append(replace(found, env=dict(zip(("n", "high", "wide"), (1, 21, 17), strict=True))))
    none = [x[:0] if i == 0 else x for i, x in enumerate(pooled_arrays(dtype, odd))]
    free = pooled_convolution((n, 3, high, wide), none, dtype, odd)
    return [*out, replace(free, env={"n": 0, "high": 21, "wide": 17})]


def images(tactic: Tactic, dtype: str, table: Any) -> list[simt.Case]:
    out = []
    for size, co, kernel, attrs in table:
        w = real(dtype, co, size[1] // attrs.get("group", 1), *kernel)
        out.append(
            plain(tactic, "Convolution", [real(dtype, *size), w, real(dtype, co)], [1, 2], **attrs)
        )
    return out


def byte_images(tactic: Tactic, dtype: str, table: Sequence[Image]) -> list[simt.Case]:
    """Without a bias and with one; around the image zeros and other zero points."""
    out = []
    for i, (size, co, kernel, attrs) in enumerate(table):
        arrays = [whole(dtype, *size), whole("i8", co, size[1] // attrs.get("group", 1), *kernel)]
        bias = _RNG.integers(-(1 << 20), 1 << 20, co).astype(np.int32)
        for more, value in (((), 0), ((bias,), (-3, 200)[dtype == "u8"] + i)):
            out.append(
                plain(
                    tactic,
                    "IntegerConvolution",
                    [*arrays, *more],
                    [1, 2][: 1 + len(more)],
                    pad_value=value,
                    **attrs,
                )
            )
    return out


def byte_residual(tactic: Tactic, dtype: str, zero: int) -> simt.Case:
    """A convolution of a quantized network and all that follows."""
    scale, rest = real("f32", 24, 1, 1) * 1e-3, whole("u8", 2, 24, 9, 7)
    bias = _RNG.integers(-(1 << 15), 1 << 15, 24).astype(np.int32)
    arrays = [whole(dtype, 2, 16, 9, 7), whole("i8", 24, 16, 3, 3), bias, scale, rest]
    attrs = {"pads": (1, 1, 1, 1), "pad_value": zero}
    body = requantized(("IntegerConvolution", (0, 1, 2), attrs), 3)
    return group(tactic, arrays, body, [1, 2, 3], results=[11, 10])


def byte_convs(tactic: Tactic, dtype: str) -> list[simt.Case]:
    t, n, s = DType(dtype), dims.sym("n"), dims.sym("s")
    out = [*byte_images(tactic, dtype, IMAGES)]
    out += [byte_residual(tactic, dtype, zero) for zero in (0, 7)]
    for c in (3, 16):
        w = TensorSpec(DType.INT8, (12, c, 3, 3), const=whole("i8", 12, c, 3, 3))
        given = [TensorSpec(t, (n, c, s, 8)), w]
        node = h.node("IntegerConvolution", given, strides=(2, 2), pads=(1, 1, 1, 1), pad_value=9)
        out += [
            simt.Case(node, tactic, env=e)
            for e in ({"n": 1, "s": 5}, {"n": 3, "s": 16}, {"n": 0, "s": 8})
        ]
    return out


def residual(dtype: str) -> simt.Case:
    """Gates of channels, a residual image, a constant image, and two results."""
    shapes = [(2, 16, 9, 7), (24, 16, 3, 3), (24,), (2, 24, 9, 7), (2, 24, 1, 1), (24, 9, 7)]
    nodes = [
        ("Convolution", (0, 1, 2), {"pads": (1, 1, 1, 1)}), ("Mul", (6, 4), {}), ("Add", (7, 3), {}),
        ("Add", (8, 5), {}), ("Relu", (9,), {}),
    ]  # fmt: skip
    return group(CONV, [real(dtype, *s) for s in shapes], nodes, [1, 2, 5], results=[9, 10])


def symbolic_images(dtype: str, into: int = 12) -> list[simt.Case]:
    t, n, s = DType(dtype), dims.sym("n"), dims.sym("s")
    out = []
    for c in (3, 16):
        w = TensorSpec(t, (into, c, 3, 3), const=real(dtype, into, c, 3, 3))
        node = h.node(
            "Convolution", [TensorSpec(t, (n, c, s, 8)), w], strides=(2, 2), pads=(1, 1, 1, 1)
        )
        out += [simt.Case(node, CONV, env=e) for e in ({"n": 1, "s": 5}, {"n": 3, "s": 16})]
    return out


def convs(dtype: str) -> list[simt.Case]:
    return [*images(CONV, dtype, IMAGES), residual(dtype), *symbolic_images(dtype)]


def causal(dtype: str, n: int) -> Any:
    """A mask that hides what comes later."""
    return np.triu(np.full((n, n), -np.inf, np.float32), 1).astype(DType(dtype).numpy)


def attentions(dtype: str) -> list[simt.Case]:
    """Lengths and dims that fill no tile, masks along each axis, causal ones, rows that see
    nothing.
    """

    def make(
        q: Any, k: Any, e: int, *mask: Any, constants: Sequence[int] = (), **attrs: Any
    ) -> simt.Case:
        arrays = [real(dtype, *q), real(dtype, *k), real(dtype, *k[:3], e), *mask]
        return plain(tactic, "Attention", arrays, constants, scale=0.2, **attrs)

    tactic = PLAIN_ATTENTION if dtype == "f32" else ATTENTION

    def tokens(
        arrays: Sequence[Any], heads: int, dim: int, value_dim: int, *columns: int, own: Any = None
    ) -> simt.Case:
        attrs = {
            "heads": heads,
            "key_heads": own,
            "dim": dim,
            "value_dim": value_dim,
            "columns": columns or (0, 0, 0),
            "scale": 0.2,
        }
        return plain(tactic, "TokenAttention", list(arrays), (), **attrs)

    blind, nearly = real(dtype, 1, 1, 20, 30), causal(dtype, 70)
    blind[0, 0, 3], nearly[66, 3] = -np.inf, 1
    s, t, n = (dims.sym(x) for x in "stn")
    specs = [TensorSpec(DType(dtype), (n, c, x, 64)) for c, x in ((6, s), (2, t), (2, t))]
    free = h.node("Attention", specs, scale=0.125)
    wide = real(dtype, 2, 21, 5 * 32 + 2 * 16)
    return [
        make((2, 2, 70, 64), (2, 2, 90, 64), 64),
        make((1, 2, 33, 40), (1, 1, 150, 40), 24, real(dtype, 1, 1, 1, 150)),
        make((2, 6, 21, 32), (2, 2, 40, 32), 24, real(dtype, 2, 6, 1, 40)),
        tokens([wide] * 3, 4, 32, 16, 0, 128, 160, own=1),
        tokens([real(dtype, 2, 21, 192), *[real(dtype, 2, 35, 64)] * 2], 6, 32, 32, own=2),
        make((1, 1, 5, 128), (1, 1, 200, 128), 96, real(dtype, 5, 200)),
        make((2, 1, 20, 33), (2, 1, 20, 33), 7, real(dtype, 2, 1, 20, 1)),
        make((1, 2, 140, 32), (1, 2, 140, 32), 32, causal(dtype, 140), constants=[3]),
        make((2, 2, 70, 64), (2, 1, 150, 64), 64, causal(dtype, 150)[80:], constants=[3]),
        make((1, 2, 70, 32), (1, 2, 70, 32), 32, nearly, constants=[3]),
        make((1, 2, 20, 32), (1, 2, 30, 32), 32, blind),
        make((1, 2, 20, 32), (1, 2, 30, 32), 32, blind, nan_to_zero=True),
        tokens([real(dtype, 2, 70, 192)] * 3, 2, 32, 32, 0, 64, 128),
        tokens(
            [real(dtype, 2, 20, 66), real(dtype, 2, 90, 70), real(dtype, 2, 90, 50)],
            2,
            33,
            24,
            0,
            3,
            2,
        ),
        *(
            tokens([real(dtype, 2, 21, 3 * d)] * 2 + [real(dtype, 2, 21, 3 * e)], 3, d, e)
            for d, e in ((12, 12), (9, 21))
        ),
        *(
            simt.Case(free, tactic, env=e)
            for e in ({"n": 1, "s": 1, "t": 1}, {"n": 2, "s": 17, "t": 70})
        ),
    ]


def large_heads(dtype: str) -> list[simt.Case]:
    """Heads that are too large for tensor cores' registers."""
    parts = [
        [real(dtype, 1, 2, s, n) for s, n in ((21, d), (40, d), (40, e))]
        for d, e in ((160, 136), (500, 504))
    ]
    causes = [*[real(dtype, 1, 2, n, 144) for n in (37, 37, 37)], causal(dtype, 37)]
    cases = [plain(PLAIN_ATTENTION, "Attention", arrays, scale=0.1) for arrays in parts]
    return [*cases, plain(PLAIN_ATTENTION, "Attention", causes, [3], scale=0.1)]


def drawn(make: Callable[[], list[simt.Case]]) -> list[simt.Case]:
    """Cases with numbers that do not depend on which others were made before."""
    global _RNG
    _RNG = np.random.default_rng(11)
    return make()


def _table(groups: Table) -> Table:
    return {name: partial(drawn, make) for name, make in groups.items()}


GEMMS = _table(
    {
        **{f"gemm {t}": partial(gemms, t) for t in DTYPES},
        "gemm tf32": tf32_gemms,
        **{f"gemm {t}": partial(byte_gemms, BYTE_GEMM, t) for t in BYTES},
        **{f"gemv {t}": partial(gemvs, t) for t in DTYPES},
        **{f"few bits {t}": partial(few_bits_products, t) for t in DTYPES},
        **{f"few bits gemv {t}": partial(few_bits_gemvs, t) for t in DTYPES[:2]},
    }
)
CONVOLUTIONS = _table(
    {
        **{f"conv {t}": partial(convs, t) for t in DTYPES},
        **{f"conv {t}": partial(byte_convs, BYTE_CONV, t) for t in BYTES},
        "conv tf32": lambda: images(TF32_CONV, "f32", IMAGES[:3]),
        **{f"direct {t}": partial(images, DIRECT, t, GROUPED) for t in DTYPES},
        **{f"few channels {t}": partial(few_channels_of, t) for t in DTYPES},
        **{f"halos {t}": partial(halo_convolutions, t) for t in ("f16", "bf16")},
        **{f"halos {t}": partial(byte_halo_convolutions, t) for t in BYTES},
        **{f"pooled {t}": partial(pooled_convolutions, t) for t in ("f16", "bf16", *BYTES)},
    }
)
ATTENTIONS = _table(
    {
        **{f"attention {t}": partial(attentions, t) for t in DTYPES},
        **{f"attention of large heads {t}": partial(large_heads, t) for t in DTYPES},
    }
)
TABLE = {**GEMMS, **CONVOLUTIONS, **ATTENTIONS}
