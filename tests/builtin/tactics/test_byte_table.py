"""Functions of one byte as tables: equal to the references to the bit, on every target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from bytes_cases import DTYPES, whole_range

from tactix.base.dtypes import DType
from tactix.base.tensor import NHWC, blocked
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.pointwise import table

(TABLE,) = table.tactics()
SHAPES: tuple[tuple[int, ...], ...] = ((256,), (3, 341), (2, 32, 9, 31), (1100,))
FUNCTIONS = ("Sigmoid", "Tanh", "Gelu", "HardSwish", "Relu")


def node(x: Any, layers: Any, results: Any = None, more: Any = ()) -> Any:
    constants = range(1, 1 + len(more))
    return h.fused([x, *more], layers, results, constants=constants)


def between(dtype: Any, function: str, made: Any) -> list[Any]:
    """An activation between bytes, each with a scale and zero point of its own."""
    return [
        ("Dequantize", (0,), {"zero": 7, "scale": 0.031}),
        (function, (1,), {}),
        ("Mul", (2, 2), {}),
        ("Quantize", (3,), {"zero": -5 if made is np.int8 else 9, "dtype": DType.of(made)}),
    ]


def everywhere(case: h.Case) -> list[h.Case]:
    """On every target, to the bit: without a budget."""
    return [replace(case, device=d, budget=0.0) for d in h.devices()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_activations_between_bytes(dtype: Any) -> None:
    cases = []
    for k, function in enumerate(FUNCTIONS):
        x = whole_range(dtype, *SHAPES[k % len(SHAPES)])
        x.reshape(-1)[:256] = np.arange(256, dtype=np.uint8).view(dtype)
        for made in DTYPES:
            cases += everywhere(h.Case(node(x, between(dtype, function, made)), TABLE, [x]))
    h.check_all(cases)


def test_floats_of_bytes_and_constants() -> None:
    cases = []
    for shape in SHAPES:
        x, factor = whole_range(np.uint8, *shape), np.float32(0.75)
        layers = [
            ("Cast", (0,), {"to": DType.FP32}), ("Mul", (2, 1), {}), ("Tanh", (3,), {}),
            ("Quantize", (4,), {"zero": 3, "dtype": DType.UINT8}),
        ]  # fmt: skip
        cases += everywhere(h.Case(node(x, layers, (4, 5), (factor,)), TABLE, [x, factor]))
    h.check_all(cases)
    for case in cases:
        assert asked.variants(TABLE, case.node, case.device)


def test_what_is_behind_a_rounding() -> None:
    """Floats become bytes a block at a time; sums are rounded as the reference's are."""
    rng, cases = np.random.default_rng(2), []
    for shape in SHAPES:
        x, y = (rng.standard_normal(shape).astype(np.float32) * 9 for _ in range(2))
        layers = [
            ("Add", (0, 1), {}), ("Quantize", (2,), {"zero": 4, "dtype": DType.INT8}),
            ("Dequantize", (3,), {"zero": 4, "scale": 0.3}), ("Sigmoid", (4,), {}),
            ("Quantize", (5,), {"zero": 0, "dtype": DType.UINT8}),
            ("Dequantize", (6,), {"zero": 0, "scale": 0.01}),
        ]  # fmt: skip
        made = h.fused([x, y], layers, (7, 3))
        cases += everywhere(h.Case(made, TABLE, [x, y]))
    h.check_all(cases)


def test_rows_of_channels() -> None:
    """What each channel adds before the rounding is read along rows; the layouts of images."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 32, 20, 30)).astype(np.float32) * 40
    bias = rng.standard_normal((32, 1, 1)).astype(np.float32)
    layers = [
        ("Mul", (0, 1), {}), ("Quantize", (2,), {"zero": 1, "dtype": DType.INT8}),
        ("Dequantize", (3,), {"zero": 1, "scale": 0.1}), ("Tanh", (4,), {}),
    ]  # fmt: skip
    h.check_all(everywhere(h.Case(node(x, layers, None, (bias,)), TABLE, [x, bias])))
    alone = whole_range(np.uint8, 2, 32, 9, 31)
    offered = asked.variants(TABLE, node(alone, between(np.uint8, "Tanh", np.uint8)), h.NATIVE)
    assert not isinstance(offered, Reject)
    formats = {v.output_format(0) for v in offered}
    assert {blocked(h.NATIVE.lanes), NHWC} <= formats


@pytest.mark.parametrize("made", [np.uint8, np.float32])
def test_constants_that_vary_along_an_axis(made: Any) -> None:
    """A table for each place on it, in the rows of all layouts that keep it from the last loop."""
    rng, cases = np.random.default_rng(4), []
    quantized = [("Quantize", (6,), {"zero": 9, "dtype": DType.UINT8})]
    for shape in ((2, 5, 17, 19), (1, 33, 300), (3, 2, 4, 300)):
        x = whole_range(np.int8, *shape)
        scale, bias = (
            rng.standard_normal((shape[1], *(1,) * (len(shape) - 2))).astype(np.float32)
            for _ in range(2)
        )
        layers = [
            ("Dequantize", (0,), {"zero": 1, "scale": 0.1}), ("Mul", (3, 1), {}),
            ("Add", (4, 2), {}), ("Sigmoid", (5,), {}),
            *(quantized if made is np.uint8 else ()),
        ]  # fmt: skip
        # a second result hangs on the byte alone
        results = (len(layers) + 2, 3)
        cases += everywhere(
            h.Case(node(x, layers, results, (scale, bias)), TABLE, [x, scale, bias], nt=(1, 3))
        )
    h.check_all(cases)
    for case in cases:
        assert not isinstance(asked.variants(TABLE, case.node, case.device), Reject)


def test_sizes_that_only_running_tells() -> None:
    cases = []
    for n in (1, 300):
        x = whole_range(np.uint8, n, 64)
        made = h.fused([h.spec(x, ("n", 64))], between(np.uint8, "Sigmoid", np.uint8))
        cases += everywhere(h.Case(made, TABLE, [x], env={"n": n}))
    h.check_all(cases)


def test_what_it_leaves_to_others() -> None:
    def reason(made: Any) -> str:
        offered = asked.variants(TABLE, made, h.NATIVE)
        assert isinstance(offered, Reject)
        return offered.reason

    x, y = whole_range(np.uint8, 400), whole_range(np.uint8, 400)
    layers = [
        ("Dequantize", (0,), {"zero": 3, "scale": 0.21}), ("Dequantize", (1,), {"zero": 9, "scale": 0.33}),
        ("Add", (2, 3), {}),
    ]  # fmt: skip
    assert "no function of one byte" in reason(h.fused([x, y], layers))
    few = whole_range(np.uint8, 5, 7)
    assert "rows are short" in reason(node(few, between(np.uint8, "Tanh", np.uint8)))
    floats = np.ones(400, np.float32)
    assert "no function of one byte" in reason(node(floats, [("Tanh", (0,), {})]))
    many = whole_range(np.uint8, 3, 256)
    along = np.arange(256, dtype=np.float32)
    rows = [("Dequantize", (0,), {"zero": 3, "scale": 0.2}), ("Mul", (2, 1), {})]
    assert "rows are short" in reason(node(many, rows, None, (along,)))
    outside = [("Round", (0,), {}), ("Clip", (1,), {"min": -300.0, "max": 300.0})]
    assert "no function of one byte" in reason(node(floats, outside))
