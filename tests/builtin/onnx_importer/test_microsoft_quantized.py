"""Quantised operators of ``com.microsoft``: against ONNX Runtime, or a formula where its CPU has no
kernel.

Scales are no simple multiples of each other, so that few results lie halfway between two numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from microsoft_oracle import Case, by_converter, by_onnx_runtime, check

from tactix import Builder
from tactix.api import configure
from tactix.base.errors import ModelImportError, UnsupportedOperator

ROOM_FOR_CODE = 192 << 10
"""Bytes that machine code may take in a plan."""

F32 = np.float32
RNG = np.random.default_rng(53)
LOW = {np.uint8: 0, np.int8: -128}


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, F32)


def bytes_of(dtype: Any, *shape: int) -> Any:
    return np.asarray(RNG.integers(0, 256, shape) + LOW[dtype], dtype)


def weights_of(dtype: Any, *shape: int) -> Any:
    """Signed ones of seven bits: on x86 without VNNI, ONNX Runtime sums two products of eight bits
    in sixteen and cuts off what is more.
    """
    whole = bytes_of(dtype, *shape)
    return whole // 2 if dtype is np.int8 else whole


def one(value: float, dtype: Any = F32) -> Any:
    return np.array(value, dtype)


def scales(*shape: int) -> Any:
    return RNG.uniform(0.01, 0.1, shape).astype(F32)


def constant(*indices: int) -> frozenset[int]:
    return frozenset(indices)


# -- elements and windows ------------------------------------------------------------------------


def elements(t: Any, za: int, zb: int) -> list[Case]:
    """``t``: dtype; two zero points."""
    a, b, lowest = one(za, t), one(zb, t), one(LOW[t], t)
    image = [bytes_of(t, 2, 3, 7, 9), one(0.05), a, one(0.0313), b]
    turned = [bytes_of(t, 2, 7, 9, 3), *image[1:]]
    fixed, leak = constant(1, 2, 3, 4), {"alpha": 0.2}
    joined = [x for n in (3, 4, 1) for x in (bytes_of(t, 2, n, 5), one(0.031 * n), b)]
    chosen = [
        RNG.random((3, 1, 5)) < 0.5,
        bytes_of(t, 3, 4, 5),
        one(0.031),
        a,
        bytes_of(t, 4, 1),
        one(0.053),
        b,
    ]
    return [
        *[
            Case(
                op,
                [bytes_of(t, 3, 1, 37), one(0.0313), a, y, one(0.0217), b, one(out), a],
                steps=1,
                symbols={37: "n"},
            )
            for op, out in (("QLinearAdd", 0.0411), ("QLinearMul", 0.113))
            for y in (bytes_of(t, 5, 1), bytes_of(t, 3, 1, 37), bytes_of(t))
        ],
        Case(
            "QLinearSigmoid",
            [bytes_of(t, 5, 41), one(0.05), a, one(1 / 256), lowest],
            {},
            (0,),
            fixed,
            steps=1,
        ),
        Case(
            "QLinearLeakyRelu",
            [bytes_of(t, 5, 41), one(0.05), a, one(0.043), b],
            leak,
            (0,),
            fixed,
            steps=1,
        ),
        *[
            Case(
                "QLinearSoftmax",
                [bytes_of(t, 3, 5, 7), one(0.03), a, one(1 / 256), lowest],
                {"opset": opset, "axis": axis},
                (0,),
                fixed,
                {3: "n"},
                steps=1,
            )
            for opset, axis in ((13, -1), (13, 1), (12, 1), (12, 2))
        ],
        Case(
            "QLinearConcat",
            [one(0.05), a, *joined],
            {"axis": 1},
            (0,),
            constant(0, 1, 3, 4, 6, 7, 9, 10),
            {2: "b"},
            steps=1,
        ),
        Case(
            "QLinearWhere", [*chosen, one(0.061), b], {}, (0,), constant(2, 3, 5, 6, 7, 8), steps=1
        ),
        *[
            Case(
                "QLinearAveragePool",
                image,
                {"kernel_shape": [3, 3], **attrs},
                (0,),
                fixed,
                {2: "b", 9: "w"},
                steps=1,
            )
            for attrs in (
                {},
                {"ceil_mode": 1, "strides": [2, 2]},
                {"pads": [1, 0, 1, 2], "count_include_pad": 1},
                {"pads": [1, 0, 1, 2]},
                {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
            )
        ],
        Case(
            "QLinearAveragePool",
            turned,
            {"kernel_shape": [3, 2], "channels_last": 1, "pads": [1, 0, 1, 0]},
            (0,),
            fixed,
            steps=1,
        ),
        Case(
            "QLinearGlobalAveragePool", image, {"channels_last": 0}, (0,), fixed, {2: "b"}, steps=1
        ),
        Case(
            "QLinearGlobalAveragePool", turned, {"channels_last": 1}, (0,), fixed, {2: "b"}, steps=1
        ),
        Case("QuantizeLinear", [normal(3, 4, 5), one(0.05), a], steps=1),
        Case("DequantizeLinear", [bytes_of(t, 3, 4, 5), one(0.05), a], symbols={3: "n"}),
        *[
            Case(
                "QuantizeLinear",
                [normal(3, 4, 5), scales(n), bytes_of(t, n)],
                {"axis": axis},
                steps=1,
            )
            for axis, n in ((0, 3), (1, 4), (-1, 5))
        ],
        *[
            Case(
                "DequantizeLinear",
                [bytes_of(t, 3, 4, 5), scales(n), bytes_of(t, n)],
                {"axis": axis},
            )
            for axis, n in ((0, 3), (1, 4), (-1, 5))
        ],
    ]


WIDE = [
    Case("QuantizeLinear", [normal(3, 4, 5), one(0.05)], steps=1),
    Case("QuantizeLinear", [normal(3, 4, 5), one(0.001), one(-3, np.int16)], steps=1),
    Case(
        "DequantizeLinear",
        [RNG.integers(-9999, 9999, (3, 4)).astype(np.int16), one(0.001), one(-3, np.int16)],
    ),
    Case("DequantizeLinear", [RNG.integers(-9999, 9999, (3, 4)).astype(np.int32), one(0.001)]),
]


def convolutions(x: Any, w: Any) -> list[Case]:
    """Of dtypes: per channel with a bias, and channels last."""
    fixed = {"pads": [1, 0, 1, 0]}
    zeros = np.full(6, 2 if w is np.uint8 else 0, w)
    bias = RNG.integers(-999, 999, 6).astype(np.int32)
    kernels, rest = weights_of(w, 6, 4, 3, 3), [one(0.513), one(7, x)]
    first = [
        bytes_of(x, 2, 4, 9, 7),
        one(0.02),
        one(3, x),
        kernels,
        scales(6) / 4,
        zeros,
        *rest,
        bias,
    ]
    last = [bytes_of(x, 2, 9, 7, 4), one(0.02), one(3, x), kernels, one(0.013), one(0, w), *rest]
    return [
        Case(
            "QLinearConv",
            first,
            {**fixed, "strides": [2, 1]},
            (0,),
            constant(*range(1, 9)),
            {2: "b"},
            steps=1,
        ),
        Case(
            "QLinearConv",
            last,
            {**fixed, "channels_last": 1},
            (0,),
            constant(*range(1, 8)),
            {2: "b"},
            steps=1,
        ),
    ]


ELEMENTS = [*elements(np.uint8, 120, 131), *elements(np.int8, -3, 7), *WIDE]
PAIRS = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)]
CONVOLUTIONS = [c for x, w in PAIRS for c in convolutions(x, w)]


@pytest.mark.parametrize("c", [*ELEMENTS, *CONVOLUTIONS], ids=lambda c: c.id)
def test_agrees_with_onnx_runtime(c: Case, imported: Any, model: Any) -> None:
    check(c, imported, model)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_absent_zero_points_are_zero(op: str, imported: Any, model: Any) -> None:
    """ONNX Runtime's own type inference fails on them."""
    arrays = [
        bytes_of(np.uint8, 3, 7),
        one(0.0313),
        one(0, np.uint8),
        bytes_of(np.uint8, 7),
        one(0.0217),
    ]
    whole = Case(op, [*arrays, one(0, np.uint8), one(0.113), one(0, np.uint8)], steps=1)
    want = by_onnx_runtime(whole.model(model, False), whole.names, whole.feed)
    check(
        Case(op, [*arrays[:2], None, *arrays[3:], None, one(0.113)], steps=1), imported, model, want
    )


# -- products ------------------------------------------------------------------------------------


def products(ta: Any, tb: Any) -> list[Case]:
    a, b = bytes_of(ta, 2, 5, 17), weights_of(tb, 17, 6)
    return [
        Case(
            "MatMulIntegerToFloat",
            [a, b, one(0.02), one(0.03), one(3, ta), one(5, tb)],
            {},
            (0,),
            constant(1, 3, 5),
        ),
        Case(
            "MatMulIntegerToFloat",
            [a, b, one(0.02), scales(6), one(3, ta), bytes_of(tb, 6), normal(6)],
            symbols={2: "b", 5: "s"},
        ),
        Case("MatMulIntegerToFloat", [a, b, one(0.02), one(0.03)]),
    ]


def dynamic_products(t: Any) -> list[Case]:
    b, rough = weights_of(t, 17, 6), 1e-3
    return [
        Case("DynamicQuantizeMatMul", [normal(2, 5, 17), b, one(0.03), one(3, t)], tolerance=rough),
        Case(
            "DynamicQuantizeMatMul",
            [normal(2, 5, 17), b, scales(6), bytes_of(t, 6), normal(6)],
            tolerance=rough,
            symbols={2: "b", 5: "s"},
        ),
        Case("DynamicQuantizeMatMul", [np.zeros((5, 17), F32), b, one(0.03)], tolerance=rough),
        Case("DynamicQuantizeMatMul", [abs(normal(5, 17)), b, one(0.03)], tolerance=rough),
        Case("DynamicQuantizeMatMul", [-abs(normal(5, 17)), b, one(0.03)], tolerance=rough),
    ]


def gemms(t: Any, transposed: int, alpha: float) -> list[Case]:
    attrs = {"transB": transposed, "alpha": alpha}
    b = weights_of(np.int8, *((6, 17) if transposed else (17, 6)))
    a, zero = [bytes_of(t, 5, 17), one(0.02), one(3, t)], one(1, np.int8)
    c = RNG.integers(-999, 999, (5, 1)).astype(np.int32)
    return [
        Case("QGemm", [*a, b, one(0.03), zero], attrs, symbols={5: "m"}),
        Case("QGemm", [*a, b, scales(6), np.zeros(6, np.int8), c[:, 0].repeat(2)[:6]], attrs),
        Case("QGemm", [*a, b, one(0.03), zero, c, one(0.3137), one(2, t)], attrs, steps=1),
    ]


def attentions(t: Any, causal: int) -> list[Case]:
    attrs = {"num_heads": 3, "unidirectional": causal}
    x = [bytes_of(t, 2, 5, 7), weights_of(np.int8, 7, 36), normal(36), one(0.01)]
    mask, past = np.array([3, 5], np.int32), normal(2, 2, 3, 3, 4)
    return [
        Case(
            "QAttention",
            [*x, one(0.01), mask, one(3, t), one(1, np.int8)],
            attrs,
            symbols={2: "b", 5: "s"},
        ),
        Case(
            "QAttention",
            [*x, scales(36) / 5, None, one(3, t), bytes_of(np.int8, 36), past],
            attrs,
            (0, 1),
        ),
    ]


PRODUCTS = [
    *[c for ta, tb in PAIRS for c in products(ta, tb)],
    *[c for t in LOW for c in dynamic_products(t)],
    *[c for t in LOW for transposed in (0, 1) for alpha in (1.0, 0.5) for c in gemms(t, transposed, alpha)],
    Case("QGemm", [bytes_of(np.uint8, 17, 5), one(0.02), one(3, np.uint8), weights_of(np.int8, 17, 6), one(0.03),
                   one(1, np.int8)], {"transA": 1}),
    *[c for causal in (0, 1) for c in attentions(np.uint8, causal)],
    Case("MatMulInteger16", [RNG.integers(-999, 999, s).astype(np.int16) for s in ((4, 7), (7, 3))], symbols={4: "m"}),
]  # fmt: skip


@pytest.mark.parametrize("c", PRODUCTS, ids=lambda c: c.id)
def test_products_agree_with_onnx_runtime(c: Case, imported: Any, model: Any) -> None:
    check(c, imported, model)


def test_attention_of_signed_inputs(imported: Any, model: Any) -> None:
    """ONNX Runtime's CPU takes unsigned ones: the same numbers, moved by 128."""
    c = attentions(np.uint8, 1)[0]
    want = by_onnx_runtime(c.model(model, False), c.names, c.feed)
    moved = [
        (c.arrays[0].astype(int) - 128).astype(np.int8),
        *c.arrays[1:6],
        one(3 - 128, np.int8),
        c.arrays[7],
    ]
    check(Case(c.op, moved, c.attrs), imported, model, want)


# -- weights of few bits -------------------------------------------------------------------------


def fields(raw: Any, bits: int) -> Any:
    """Numbers of so many bits along the last axis, lowest first, by their bits."""
    lines = np.unpackbits(raw, axis=-1, bitorder="little")
    return lines.reshape(*raw.shape[:-1], -1, bits) @ (1 << np.arange(bits))


def matrix(k: int, n: int, block: int, bits: int) -> tuple[Any, Any, Any, dict[str, int]]:
    """Packed weights, scales, packed zero points, attributes."""
    blocks = -(-k // block)
    weights = bytes_of(np.uint8, n, blocks, block * bits // 8)
    zeros = bytes_of(np.uint8, n * (-(-blocks * bits // 8)))
    return weights, scales(n, blocks), zeros, {"K": k, "N": n, "bits": bits, "block_size": block}


@pytest.mark.parametrize("size", [(40, 6, 16), (64, 5, 32), (33, 7, 16), (200, 3, 128)], ids=str)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_few_bits(bits: int, size: tuple[int, int, int], imported: Any, model: Any) -> None:
    weights, scale, zeros, attrs = matrix(*size, bits)
    x, fixed = normal(2, 3, size[0]), constant(1, 2)
    check(
        Case("MatMulNBits", [x, weights, scale], attrs, (0,), fixed, {2: "b", 3: "s"}, 1e-4),
        imported,
        model,
    )
    check(
        Case("MatMulNBits", [x, weights, scale.ravel(), zeros], attrs, (0,), fixed | {3}, {}, 1e-4),
        imported,
        model,
    )
    more = [x[0], weights, scale, None, None, normal(size[1])]
    check(Case("MatMulNBits", more, attrs, (0,), fixed | {5}, {3: "m"}, 1e-4), imported, model)


@pytest.mark.parametrize("level", [None, 0, 1, 3, 4])
def test_a_level_of_accuracy_permits_int8_activations(
    level: int | None, imported: Any, model: Any
) -> None:
    weights, scale, zeros, attrs = matrix(64, 5, 32, 4)
    if level is not None:
        attrs["accuracy_level"] = level
    c = Case("MatMulNBits", [normal(3, 64), weights, scale, zeros], attrs, (0,), constant(1, 2, 3))
    network = imported(c.model(model, False))
    (product,) = (n for n in network.nodes if n.layer.name == "FewBitsMatMul")
    assert product.attrs.int8_activations == (level == 4)


@pytest.mark.parametrize("size", [(40, 6, 16), (64, 5, 32), (33, 7, 16)], ids=str)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_few_bits_that_only_running_tells(
    bits: int, size: tuple[int, int, int], imported: Any, model: Any
) -> None:
    """ONNX Runtime computes the same of initializers; its kernels take no others everywhere."""
    weights, scale, zeros, attrs = matrix(*size, bits)
    arrays = [normal(2, 3, size[0]), weights, scale, zeros, None, normal(size[1])]
    floats = RNG.uniform(0, 9, scale.shape).astype(F32)
    for given in (arrays, [*arrays[:3], None, *arrays[4:]], [*arrays[:3], floats]):
        every = constant(*(i for i in range(1, len(given)) if given[i] is not None))
        want = by_converter(Case("MatMulNBits", given, attrs, (0,), every), imported, model, False)
        for own in (constant(), constant(1), constant(2)):
            check(Case("MatMulNBits", given, attrs, (0,), own, {}, 1e-4), imported, model, want)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_zero_points_as_floats_and_groups_in_any_order(
    bits: int, imported: Any, model: Any
) -> None:
    """ONNX Runtime's CPU has them for 4 bits only, and there leaves zero points out where groups
    are given.
    """
    k, n, block = 40, 6, 16
    weights, scale, zeros, attrs = matrix(k, n, block, bits)
    blocks = scale.shape[1]
    numbers = fields(weights.reshape(n, -1), bits)[:, :k]
    apart, own = (
        fields(zeros.reshape(n, -1), bits)[:, :blocks],
        RNG.uniform(0, 9, (n, blocks)).astype(F32),
    )
    plain, order = (
        np.arange(k) // block,
        RNG.permutation(np.arange(blocks * block) // block).astype(np.int32),
    )
    x, fixed = normal(3, k), constant(1, 2)
    for zero, groups, given in (
        (own, plain, None),
        (apart, order[:k], order),
        (own, order[:k], order),
    ):
        want = x @ ((numbers - zero[:, groups]) * scale[:, groups]).T.astype(F32)
        arrays = [x, weights, scale, zeros if zero is apart else zero, given]
        indices = fixed | {3} | ({4} if given is not None else set())
        check(Case("MatMulNBits", arrays, attrs, (0,), indices, {}, 1e-4), imported, model, [want])


def tables() -> list[Case]:
    at, rows = (
        {"block_size": 16, "gather_axis": 0, "quantize_axis": 1},
        RNG.integers(0, 7, (3, 2)).astype(np.int32),
    )
    out = []
    for bits, zeros in ((2, 1), (4, 1), (8, 2)):
        table, scale = bytes_of(np.uint8, 7, 32 * bits // 8), normal(7, 2)
        attrs, named = {**at, "bits": bits}, {3: "b"}
        out.append(
            Case("GatherBlockQuantized", [table, rows, scale], attrs, (0,), constant(0, 2), named)
        )
        arrays = [table, rows, scale, bytes_of(np.uint8, 7, zeros)]
        out.append(Case("GatherBlockQuantized", arrays, attrs, (0,), constant(0, 2, 3), named))
    for t in (ml_dtypes.int4, ml_dtypes.uint4):
        table, picked = RNG.integers(0, 8, (7, 4, 32)).astype(t), RNG.integers(0, 4, 3)
        attrs, zero = (
            {"block_size": 16, "quantize_axis": -1, "gather_axis": 1},
            RNG.integers(0, 8, (7, 4, 2)).astype(t),
        )
        arrays = [table, picked, normal(7, 4, 2), zero]
        out.append(Case("GatherBlockQuantized", arrays, attrs, (0,), constant(0, 2, 3), {3: "n"}))
        first = {"block_size": 16, "quantize_axis": 0, "gather_axis": 1}
        out.append(
            Case(
                "GatherBlockQuantized",
                [table[:, :, 0].repeat(3, 0), picked, normal(2, 4)],
                first,
                (0,),
                constant(0, 2),
            )
        )
    return out


@pytest.mark.parametrize("c", tables(), ids=lambda c: c.id)
def test_quantized_tables(c: Case, imported: Any, model: Any) -> None:
    check(c, imported, model)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [2, 4])
def test_plans_hold_tables_as_they_are_packed(
    bits: int, zeros: bool, imported: Any, model: Any
) -> None:
    """Rows are unpacked after they are picked: the table is not written out, a byte a number."""
    rows, width, block = 4096, 256, 32
    table = bytes_of(np.uint8, rows, width * bits // 8)
    arrays = [table, np.array([[7, 0, 4095]]), scales(rows, width // block)]
    if zeros:
        arrays.append(bytes_of(np.uint8, rows, width // block * bits // 8))
    attrs = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    given = constant(0, *range(2, len(arrays)))
    c = Case("GatherBlockQuantized", arrays, attrs, (0,), given)
    network = imported(c.model(model, False))
    plan = Builder().build(network, configure(level=0)).plan
    held = sum(len(memoryview(blob).cast("B")) for blob in plan.blobs.values())
    assert held < sum(a.nbytes for a in arrays) + ROOM_FOR_CODE < rows * width


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_tables_that_only_running_tells(bits: int, imported: Any, model: Any) -> None:
    table, picked = bytes_of(np.uint8, 7, 32 * bits // 8), np.array([[3, 0], [6, 6]])
    arrays = [table, picked, normal(7, 2), bytes_of(np.uint8, 7, -(-2 * bits // 8))]
    attrs = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    c = Case("GatherBlockQuantized", arrays, attrs, (0,), constant(0, 2, 3))
    want = by_onnx_runtime(c.model(model, False), c.names, c.feed)
    check(replace(c, constants=frozenset()), imported, model, want)


def test_packed_tables_are_gathered_along_their_first_axis(imported: Any, model: Any) -> None:
    attrs = {"bits": 4, "block_size": 16, "gather_axis": 1, "quantize_axis": 0}
    arrays = [bytes_of(np.uint8, 16, 4), np.array([1]), scales(1, 8)]
    c = Case("GatherBlockQuantized", arrays, attrs, (0,), constant(0, 2))
    with pytest.raises(UnsupportedOperator, match="gather along axis 0"):
        imported(c.model(model, False))


@pytest.mark.parametrize("per_gate", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm_of_few_bits(direction: str, per_gate: bool, imported: Any, model: Any) -> None:
    """ONNX Runtime also rounds x and the state to 8 bits: results are near, not equal."""
    d, h = 2 if direction == "bidirectional" else 1, 6
    shape = (d, 4 * h) if per_gate else (d,)
    given = [x for _ in range(2) for x in (scales(*shape) / 16, np.zeros(shape, np.int8))]
    states = [0.3 * normal(d, 3, h), normal(d, 3, h), None]
    arrays = [
        normal(4, 3, 5),
        weights_of(np.int8, d, 5, 4 * h),
        weights_of(np.int8, d, h, 4 * h),
        normal(d, 8 * h),
        None,
    ]
    attrs = {"hidden_size": h, "direction": direction}
    fixed = constant(1, 2, 8, 9, 10, 11)
    c = Case(
        "DynamicQuantizeLSTM",
        [*arrays, *states, *given],
        attrs,
        (0, 1, 2),
        fixed,
        {4: "t", 3: "b"},
        0.03,
    )
    check(c, imported, model)


# -- what is refused -----------------------------------------------------------------------------

_W, _S, _, _ATTRS = matrix(40, 6, 16, 4)
_FIXED, _ROWS = constant(1, 2), {"gather_axis": 1, "quantize_axis": 1}
_TABLE = [bytes_of(np.uint8, 7, 16), np.zeros(3, np.int32), normal(7, 2)]
REFUSED = [
    (Case("MatMulNBits", [normal(3, 40), _W, _S], {**_ATTRS, "bits": 3}, (0,), _FIXED), "3 bits"),
    (Case("MatMulNBits", [normal(3, 40), _W, _S], {**_ATTRS, "weight_prepacked": 1}, (0,), _FIXED), "one device"),
    (Case("MatMulNBits", [normal(3, 40), _W, _S, None, np.zeros(40, np.int32)], _ATTRS), "it has groups"),
    (Case("BeamSearch", [normal(3, 40)]), r"BeamSearch.*generation loop.*Export the decoder by itself"),
    (Case("GreedySearch", [normal(3, 40)]), r"GreedySearch.*generation loop"),
    (Case("Sampling", [normal(3, 40)]), r"Sampling.*generation loop"),
    (Case("CastMap", [normal(3, 40)], domain="ai.onnx.ml"), r"CastMap.*map.*give the tensor"),
    (Case("DictVectorizer", [normal(3, 40)], domain="ai.onnx.ml"), r"DictVectorizer.*map.*without DictVectorizer"),
    (Case("GatherBlockQuantized", _TABLE, _ROWS, (0,), constant(0, 2)), "axis 1, which is gathered"),
    (Case("DequantizeLinear", [bytes_of(np.uint8, 3, 4), one(0.05), np.array(0, np.int8)], domain=""),
     "is tensor.uint8., and input 2 'i2' tensor.int8."),
    (Case("QuantizeLinear", [normal(3, 4), one(0.05), np.array(0, np.uint8)], {"output_dtype": 3}, domain=""),
     "output_dtype is i8, its zero point is u8"),  # 3 is int8
    (Case("QLinearAveragePool", [bytes_of(np.uint8, 2, 7, 9, 3), one(0.05), None, one(0.03)],
          {"kernel_shape": [3, 3], "channels_last": 1, "auto_pad": "SAME_UPPER"}), "auto_pad"),
]  # fmt: skip


@pytest.mark.parametrize(("c", "reason"), REFUSED, ids=[r for _, r in REFUSED])
def test_refused_forms_say_why(c: Case, reason: str, imported: Any, model: Any) -> None:
    with pytest.raises(ModelImportError, match=reason):
        imported(c.model(model, False))
