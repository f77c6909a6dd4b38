"""Winograd convolution against numpy."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, blocked
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix_cpu.tactics.conv.winograd import WinogradTactic
from tactix_cpu.tactics.conv.winograd_bf16 import HalfWinogradTactic, WidenedWinogradTactic
from tactix_cpu.tactics.conv.winograd_kernel import POINTS, turn

WINOGRAD, HALVES, WIDENED = WinogradTactic(), HalfWinogradTactic(), WidenedWinogradTactic()
RNG = np.random.default_rng(21)
PADS: Any = {"pads": (1, 1, 1, 1)}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def conv(x: Any, w: Any, b: Any = None, symbol: bool = False, **more: Any) -> h.Case:
    """A case; ``symbol``: the batch is not known before running; what the harness does not know is
    an attribute.
    """
    arrays = [x, w] if b is None else [x, w, b]
    options = {k: more.pop(k) for k in ("device", "nt", "only") if k in more}
    inputs = [h.spec(x, ("n", *x.shape[1:])) if symbol else x, *arrays[1:]]
    node = h.node("Convolution", inputs, range(1, len(inputs)), **more)
    return h.Case(node, WINOGRAD, arrays, env={"n": x.shape[0]} if symbol else {}, **options)


def variant(
    case: h.Case, length: int, rows: int, vectors: int, tiles: int, slices: int = 1
) -> h.Case:
    """The case with one variant of these knobs."""
    fmt = blocked(max(4, case.device.lanes))
    inputs = [fmt, *[LINEAR] * (len(case.node.given) - 1)]
    knobs = {"length": length, "rows": rows, "vectors": vectors, "tiles": tiles, "slices": slices}
    return replace(case, only=[Variant.of(inputs, [fmt], **knobs)])


@pytest.mark.parametrize(("m", "taps"), [(a + 1 - r, r) for a in POINTS for r in range(2, a)])
def test_transforms_make_a_convolution(m: int, taps: int) -> None:
    made, rng = turn(m, taps), np.random.default_rng(m)
    d, w = rng.standard_normal(m + taps - 1), rng.standard_normal(taps)

    def run(statements: tuple[str, ...], values: Any) -> list[float]:
        names = {f"d{i}": v for i, v in enumerate(values)}
        for s in statements:
            name, text = s.split(" = ")
            names[name] = eval(re.sub(r"(\d)f\b", r"\1", text), {}, names)
        return [names[f"r{i}"] for i in range(sum(k.startswith("r") for k in names))]

    products = np.array(made.weights) @ w * np.array(run(made.patch, d))
    np.testing.assert_allclose(
        run(made.result, products), np.correlate(d, w), rtol=1e-9, atol=1e-12
    )


def test_every_offered_variant() -> None:
    h.check_all(
        [
            conv(floats(1, 32, 14, 14), floats(32, 32, 3, 3), floats(32), nt=(1, 2, 5), **PADS),
            conv(
                floats(2, 20, 13, 11),
                floats(40, 20, 3, 3),
                floats(40),
                pads=(1, 0, 2, 1),
                symbol=True,
            ),
        ]
    )


@pytest.mark.parametrize("length", [4, 6])
def test_images_of_few_tiles(length: int) -> None:
    h.check_all(
        [
            variant(conv(floats(1, 17, 10, 12), floats(50, 17, 3, 3)), length, 4, 2, 8),
            variant(
                conv(floats(3, 16, 9, 9), floats(16, 16, 3, 3), floats(16), symbol=True, **PADS),
                length,
                4,
                1,
                4,
            ),
            variant(conv(floats(1, 24, 3, 80), floats(30, 24, 3, 3)), length, 1, 2, 3),
            variant(
                conv(floats(1, 16, 2, 50), floats(16, 16, 3, 3), pads=(3, 2, 4, 1)), length, 3, 1, 6
            ),
        ]
    )


@pytest.mark.parametrize("length", [4, 6])
def test_blocks_and_tiles_that_do_not_divide_the_image(length: int) -> None:
    case = conv(
        floats(2, 36, 19, 23), floats(52, 36, 3, 3), floats(52), symbol=True, nt=(1, 2, 3), **PADS
    )
    h.check_all(
        [variant(case, length, *knobs) for knobs in ((7, 2, 14), (4, 3, 8), (5, 1, 200), (1, 4, 3))]
    )


def test_every_offered_variant_over_three_axes() -> None:
    h.check_all(
        [
            conv(
                floats(1, 32, 5, 12, 14),
                floats(32, 32, 3, 3, 3),
                floats(32),
                pads=(1,) * 6,
                nt=(1, 2, 5),
            ),
            conv(floats(2, 20, 4, 13, 11), floats(40, 20, 2, 3, 3), symbol=True),
            conv(floats(1, 16, 6, 9, 8), floats(17, 16, 1, 3, 3), floats(17)),
            conv(floats(2, 20, 9, 5, 6), floats(34, 20, 3, 1, 1), pads=(1, 0, 0) * 2, symbol=True),
        ]
    )


@pytest.mark.parametrize("length", POINTS)
def test_windows_along_one_axis(length: int) -> None:
    """Of 2 to 7 taps, dilated or not, over one axis and along either of two."""
    taps = sorted({2, 3, length - 1} & set(range(2, length)))
    cases = [
        conv(
            floats(2, 20, 90),
            floats(34, 20, r),
            floats(34),
            pads=(r, 1),
            symbol=True,
            dilations=(d,),
        )
        for r in taps
        for d in (1, 3)
    ]
    cases += [
        conv(floats(1, 16, 9, 21), floats(17, 16, *kernel), floats(17), dilations=d, nt=(1, 3))
        for kernel, d in (((1, taps[-1]), (1, 2)), ((taps[-1], 1), (1, 1)), ((taps[0], 1), (2, 5)))
    ]
    h.check_all([variant(c, length, 5, 2, 10) for c in cases])


def test_windows_of_other_sizes_along_two_axes() -> None:
    h.check_all(
        [
            variant(
                conv(floats(1, 20, 19, 23), floats(34, 20, *kernel), floats(34), nt=(1, 2), **more),
                length, 4, 2, 8,
            )
            for length, kernel, more in (
                (4, (2, 2), {}),
                (6, (5, 5), {"pads": (2,) * 4}),
                (6, (3, 5), {"pads": (1, 2, 1, 2)}),
                (4, (3, 3), {"dilations": (2, 3), "pads": (2, 3, 2, 3)}),
                (6, (3, 3), {"dilations": (1, 4)}),
            )
        ]
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(2, 40, 90), (2, 40, 1), (2, 1, 90), (90,)])
def test_epilogue_operands_beside_dilated_windows(shape: tuple[int, ...]) -> None:
    x, w, b, operand = floats(2, 20, 90), floats(40, 20, 5), floats(40), floats(*shape)
    attrs = {"pads": (8, 8), "dilations": (4,)}
    nodes = [("Convolution", (0, 1, 2), attrs), ("Add", (4, 3), {}), ("Sigmoid", (5,), {})]
    node = h.fused([x, w, b, operand], nodes, anchor=0, constants=[1, 2])
    h.check(node, WINOGRAD, [x, w, b, operand])


@pytest.mark.parametrize("length", [4, 6])
@pytest.mark.parametrize("more", [{}, {"dilations": (2, 1, 1)}, {"pads": (3, 1, 0, 2, 0, 1)}])
def test_blocks_that_do_not_divide_the_slices(length: int, more: Any) -> None:
    x, w = floats(2, 17, 7, 9, 11), floats(34, 17, 3, 3, 3)
    case = conv(x, w, floats(34), symbol=True, nt=(1, 2, 3), **more)
    knobs = ((7, 2, 14, 7), (4, 3, 5, 2), (8, 1, 3, 3), (1, 3, 1, 1), (28, 1, 4, 4))
    h.check_all([variant(case, length, *k) for k in knobs])


def test_many_blocks_are_not_shared_between_threads() -> None:
    case = variant(conv(floats(1, 16, 40, 40), floats(16, 16, 3, 3), **PADS), 4, 4, 1, 8)
    context = CompileContext(case.device, {}, 2)
    assert case.only is not None
    assert len(asked.artifact(WINOGRAD, case.node, case.only[0], context).launches) == 1
    few = variant(conv(floats(1, 16, 9, 9), floats(16, 16, 3, 3), **PADS), 4, 4, 1, 28)
    assert few.only is not None
    assert len(asked.artifact(WINOGRAD, few.node, few.only[0], context).launches) == 3
    h.check_all([replace(case, nt=(1, 2, 3)), few])


@pytest.mark.parametrize(
    "shape", [(2, 40, 9, 9), (2, 40, 1, 1), (2, 1, 9, 9), (2, 40, 9, 1), (2, 40, 1, 9), (9,)]
)
def test_epilogue_operands(shape: tuple[int, ...]) -> None:
    x, w, b, operand = floats(2, 20, 9, 9), floats(40, 20, 3, 3), floats(40), floats(*shape)
    nodes = [("Convolution", (0, 1, 2), PADS), ("Add", (4, 3), {}), ("Sigmoid", (5,), {})]
    h.check(
        h.fused([x, w, b, operand], nodes, anchor=0, constants=[1, 2]), WINOGRAD, [x, w, b, operand]
    )


@pytest.mark.parametrize("shape", [(2, 40, 5, 9, 9), (2, 40, 1, 1, 1), (1, 1, 5, 1, 9), (9,)])
def test_epilogue_operands_over_three_axes(shape: tuple[int, ...]) -> None:
    w = floats(40, 20, 3, 3, 3) / np.float32(16)
    x, b, operand = floats(2, 20, 5, 9, 9), floats(40), floats(*shape)
    pads: Any = {"pads": (1,) * 6}
    nodes = [("Convolution", (0, 1, 2), pads), ("Add", (4, 3), {}), ("Sigmoid", (5,), {})]
    h.check(
        h.fused([x, w, b, operand], nodes, anchor=0, constants=[1, 2]), WINOGRAD, [x, w, b, operand]
    )


def test_narrow_vectors() -> None:
    for device in h.devices()[1:]:
        h.check_all(
            [
                conv(
                    floats(1, 20, 19, 20), floats(20, 20, 3, 3), floats(20), device=device, **PADS
                ),
                conv(floats(1, 20, 5, 9, 10), floats(20, 20, 3, 3, 3), floats(20), device=device),
            ]
        )


def test_deep_sums_keep_their_accuracy() -> None:
    case = conv(floats(1, 256, 16, 16), floats(64, 256, 3, 3) / np.float32(48), **PADS)
    h.check_all([replace(case, budget=5e-6)])


def test_what_is_rejected() -> None:
    for x, w, more in (
        (floats(1, 16, 8, 8), floats(16, 16, 3, 3), {"strides": (2, 2)}),
        (floats(1, 32, 8, 8), floats(32, 16, 3, 3), {"group": 2}),
        (floats(1, 16, 8, 8), floats(16, 16, 1, 1), {}),
        (floats(1, 16, 8), floats(16, 16, 3), {}),
        (floats(1, 16, 99), floats(16, 16, 8), {}),
        (floats(1, 16, 99), floats(16, 16, 3), {"strides": (2,)}),
        (floats(1, 16, 40, 40), floats(16, 16, 3, 6), {}),
        (floats(1, 16, 40, 40), floats(16, 16, 7, 7), {}),
        (floats(1, 3, 8, 8), floats(16, 3, 3, 3), {}),
        (floats(1, 16, 4, 4), floats(16, 16, 3, 3), {}),
        (floats(1, 16, 4, 8, 8), floats(16, 16, 3, 3, 3), {"strides": (2, 1, 1)}),
    ):
        assert isinstance(
            asked.variants(WINOGRAD, h.node("Convolution", [x, w], [1], **more), h.NATIVE), Reject
        )
    node = h.node(
        "Convolution", [h.spec(floats(1, 16, 8, 8), (1, 16, "h", 8)), floats(16, 16, 3, 3)], [1]
    )
    assert isinstance(asked.variants(WINOGRAD, node, h.NATIVE), Reject)


def test_formats_are_blocked() -> None:
    node = conv(floats(1, 32, 14, 14), floats(32, 32, 3, 3)).node
    offered = asked.variants(WINOGRAD, node, h.NATIVE)
    assert not isinstance(offered, Reject)
    assert {(v.input_format(0), v.output_format(0)) for v in offered} == {
        (blocked(h.NATIVE.lanes),) * 2
    }


def rounded(shape: Any, weights: Any, symbol: bool = False, pad: int = 0, **more: Any) -> h.Case:
    """A convolution of bfloat16 with a bias, a residual and a result of bfloat16."""
    half, axes = DType.BF16.numpy, len(shape) - 2
    pads = (0,) * (axes - 2) + (pad, pad)
    sizes = [n + 2 * p - k + 1 for n, p, k in zip(shape[2:], pads, weights[2:], strict=True)]
    residual = floats(shape[0], weights[0], *sizes).astype(half)
    arrays = [floats(*shape).astype(half), floats(*weights).astype(half), floats(weights[0])]
    nodes = [
        ("WideConvolution", (0, 1, 2), {"pads": pads * 2}),
        ("Cast", (3,), {"to": DType.FP32}),
        ("Add", (4, 5), {}),
        ("Relu", (6,), {}),
        ("Cast", (7,), {"to": DType.BF16}),
    ]
    inputs = [*arrays, residual]
    if symbol:
        inputs = [
            h.spec(a, ("n", *a.shape[1:])) if a.ndim > 1 and i != 1 else a
            for i, a in enumerate(inputs)
        ]
    node = h.fused(inputs, nodes, [8], 0, [1, 2])
    env = {"n": shape[0]} if symbol else {}
    return h.Case(node, HALVES, [*arrays, residual], env=env, **more)


@h.needs("avx512_bf16")
def test_products_of_bfloat16() -> None:
    device = replace(h.NATIVE, features=h.NATIVE.features - {"amx_tile"})
    cases = [
        rounded((1, 64, 14, 14), (64, 64, 3, 3), pad=1, nt=(1, 2, 5)),
        rounded((2, 20, 13, 11), (40, 20, 3, 3), symbol=True),
        rounded((1, 17, 7, 9), (50, 17, 3, 3), pad=1, nt=(1, 3)),
        rounded((1, 33, 4, 12, 14), (34, 33, 2, 3, 3), nt=(1, 2)),
        rounded((1, 48, 1, 300), (34, 48, 1, 5), nt=(1, 2)),
    ]
    h.check_all([replace(c, device=device) for c in cases])


def test_products_of_float32_of_images_of_bfloat16() -> None:
    cases = [
        rounded((1, 64, 14, 14), (64, 64, 3, 3), pad=1, nt=(1, 2, 5)),
        rounded((2, 20, 13, 11), (40, 20, 3, 3), symbol=True),
        rounded((0, 20, 13, 11), (40, 20, 3, 3), symbol=True),
        rounded((1, 33, 4, 12, 14), (34, 33, 2, 3, 3), nt=(1, 2)),
        rounded((1, 48, 1, 300), (34, 48, 1, 5), nt=(1, 2)),
    ]
    for device in h.devices():
        older = replace(device, features=device.features - {"amx_tile"})
        h.check_all([replace(c, tactic=WIDENED, device=older) for c in cases])


def test_sums_that_are_not_rounded_have_the_accuracy_of_float32() -> None:
    half = DType.BF16.numpy
    x, w = floats(1, 96, 12, 14).astype(half), floats(34, 96, 3, 3).astype(half)
    device = replace(h.NATIVE, features=h.NATIVE.features - {"amx_tile"})
    node = h.node("WideConvolution", [x, w], [1], **PADS)
    h.check(node, WIDENED, [x, w], device=device, budget=2e-5)


def test_results_that_are_not_rounded_are_left() -> None:
    device = replace(h.NATIVE, vector_bits=512, features=frozenset({"avx512f", "avx512_bf16"}))
    half = DType.BF16.numpy
    arrays = [floats(1, 32, 9, 9).astype(half), floats(32, 32, 3, 3).astype(half)]
    found = asked.variants(HALVES, h.node("WideConvolution", arrays, [1]), device)
    assert isinstance(found, Reject)
    assert "rounded" in found.reason
