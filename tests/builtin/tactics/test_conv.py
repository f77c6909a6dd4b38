"""Convolution kernels, blocked and general, against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from prepared_cases import GATED, Parts, gated, prepared_cases

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, TensorSpec, blocked
from tactix.contracts.artifact import Source
from tactix.contracts.tactic import CompileContext, Reject, Tactic
from tactix_cpu.tactics.conv.direct import CpuConvTactic, JoinedConvTactic
from tactix_cpu.tactics.conv.general import GeneralConvTactic

CONV, GENERAL, JOINED = CpuConvTactic(), GeneralConvTactic(), JoinedConvTactic()
RNG = np.random.default_rng(12)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def conv(
    x: Any,
    w: Any,
    b: Any = None,
    tactic: Tactic = CONV,
    symbols: Any = None,
    constant: bool = True,
    **more: Any,
) -> h.Case:
    """A case; ``symbols``: x's shape with names; what the harness does not know is an attribute."""
    arrays = [x, w] if b is None else [x, w, b]
    options = {k: more.pop(k) for k in ("device", "nt", "only") if k in more}
    env = (
        {}
        if symbols is None
        else {s: d for s, d in zip(symbols, x.shape, strict=True) if isinstance(s, str)}
    )
    inputs = [h.spec(x, symbols) if symbols else x, *arrays[1:]]
    node = h.node("Convolution", inputs, range(1, len(inputs)) if constant else [], **more)
    return h.Case(node, tactic, arrays, env=env, **options)


def first_variants(case: h.Case, count: int) -> h.Case:
    """The case with the tactic's best guesses alone."""
    offered = asked.variants(case.tactic, case.node, case.device)
    assert not isinstance(offered, Reject), offered.reason
    return replace(case, only=offered[:count])


def test_blocked_windows() -> None:
    cases = [
        conv(floats(1, 32, 14, 14), floats(32, 32, 3, 3), floats(32), pads=(1, 1, 1, 1), nt=(1, 2, 5)),
        conv(floats(2, 20, 13, 11), floats(40, 20, 3, 3), floats(40), pads=(1, 0, 2, 1), strides=(2, 1)),
        conv(floats(2, 20, 13, 11), floats(40, 20, 3, 2), pads=(1, 1, 2, 1), dilations=(2, 2)),
        conv(floats(1, 24, 9, 40), floats(50, 24, 3, 3), floats(50), strides=(2, 2), pads=(1, 1, 1, 1)),
        conv(floats(1, 17, 3, 2), floats(16, 17, 3, 3), pads=(2, 2, 2, 2)),
        conv(floats(2, 17, 37), floats(33, 17, 5), floats(33), pads=(2, 2)),
        conv(floats(1, 16, 1, 1), floats(16, 16, 3, 3), pads=(1, 1, 1, 1)),
    ]  # fmt: skip
    h.check_all([first_variants(c, 3) for c in cases])


THREE = {"pads": (1, 1, 1, 1, 1, 1)}


def test_windows_over_three_axes() -> None:
    cases = [
        conv(floats(1, 32, 5, 7, 9), floats(32, 32, 3, 3, 3), floats(32), nt=(1, 2, 5), **THREE),
        conv(floats(2, 20, 6, 13, 11), floats(40, 20, 3, 3, 3), strides=(2, 2, 1), **THREE),
        conv(floats(2, 17, 7, 9, 8), floats(33, 17, 2, 3, 2), dilations=(3, 2, 2), pads=(2, 1, 1, 1, 2, 1)),
        conv(floats(1, 3, 6, 21, 20), floats(32, 3, 3, 7, 7), floats(32), strides=(1, 2, 2), pads=(1, 3, 3, 1, 3, 3)),
        conv(floats(1, 16, 2, 5, 5), floats(16, 16, 5, 3, 3), pads=(3, 1, 1, 3, 1, 1)),
        conv(floats(1, 16, 4, 5, 5), floats(16, 16, 3, 1, 1), pads=(1, 0, 0, 1, 0, 0)),
        conv(floats(1, 16, 4, 5, 5), floats(16, 16, 1, 1, 1), pads=(1, 0, 0, 1, 0, 0)),
        conv(floats(1, 24, 3, 4, 5), floats(40, 24, 1, 1, 1), floats(40)),
        conv(floats(1, 24, 5, 6, 7), floats(40, 24, 1, 1, 1), strides=(2, 2, 2)),
        conv(floats(2, 32, 4, 5, 6), floats(32, 16, 3, 3, 3), group=2, **THREE),
    ]  # fmt: skip
    h.check_all([first_variants(c, 4) for c in cases])


def test_depths_that_only_running_tells() -> None:
    x, w = floats(2, 17, 5, 9, 8), floats(33, 17, 3, 3, 3)
    for symbols in ((2, 17, "d", 9, 8), ("n", 17, "d", "h", "w")):
        h.check_all([first_variants(conv(x, w, symbols=symbols, strides=(2, 1, 1), **THREE), 2)])


def test_what_follows_a_convolution_over_three_axes() -> None:
    x, w, more = floats(1, 20, 3, 5, 9), floats(24, 20, 3, 3, 3), floats(1, 24, 3, 5, 9)
    parts = [("Convolution", (0, 1), THREE), ("Add", (3, 2), {}), ("Relu", (4,), {})]
    group = h.fused([x, w, more], parts, anchor=0, constants=(1,))
    h.check_all([first_variants(h.Case(group, CONV, [x, w, more]), 3)])


def test_three_axes_the_first_of_which_is_one_everywhere() -> None:
    x, w, b = floats(2, 24, 1, 3, 5), floats(40, 24, 1, 2, 1), floats(40)
    more = floats(2, 40, 1, 2, 5)
    parts = [("Convolution", (0, 1), {}), ("Add", (3, 2), {})]
    group = h.fused([x, w, more], parts, anchor=0, constants=(1,))
    h.check_all(
        [
            first_variants(conv(x, w, b), 2),
            conv(floats(2, 8, 1, 1, 1), floats(8, 8, 1, 1, 1), floats(8)),
            first_variants(h.Case(group, CONV, [x, w, more]), 2),
        ]
    )


def test_pointwise_convolution_takes_the_image_as_one_row() -> None:
    h.check_all(
        [
            conv(floats(1, 24, 9, 9), floats(50, 24, 1, 1), floats(50)),
            conv(floats(3, 33, 1, 1), floats(7, 33, 1, 1)),
            conv(floats(1, 24, 9, 9), floats(50, 24, 1, 1), floats(50), strides=(2, 2)),
            conv(floats(1, 5, 4, 4), floats(9, 5, 1, 1), pads=(1, 1, 1, 1)),
        ]
    )


def test_pixels_of_a_strided_pointwise_convolution_are_gathered() -> None:
    x, w, b = floats(2, 40, 11, 9), floats(50, 40, 1, 1), floats(50)
    cases = [
        conv(x, w, b, strides=(2, 3), nt=(1, 2, 3)),
        conv(x, w, b, symbols=("n", 40, "high", "wide"), strides=(3, 2)),
        conv(floats(1, 32, 7, 7), floats(64, 16, 1, 1), group=2, strides=(1, 2)),
        conv(floats(2, 24, 31), floats(20, 24, 1), strides=(4,)),
    ]
    context = CompileContext(h.NATIVE)
    for case in cases:
        offered = asked.variants(CONV, case.node, h.NATIVE)
        assert not isinstance(offered, Reject)
        assert len(asked.artifact(CONV, case.node, offered[0], context).launches) == 2
    h.check_all(cases)


def test_an_image_is_read_linear() -> None:
    case = conv(
        floats(1, 3, 31, 29), floats(24, 3, 7, 7), floats(24), pads=(3, 3, 3, 3), strides=(2, 2)
    )
    offered = asked.variants(CONV, case.node, h.NATIVE)
    assert not isinstance(offered, Reject)
    assert {v.input_format(0) for v in offered} == {LINEAR}
    assert {v.output_format(0) for v in offered} == {blocked(h.NATIVE.lanes)}
    h.check_all(
        [case, conv(floats(2, 1, 28, 28), floats(6, 1, 5, 5), floats(6), pads=(2, 2, 2, 2))]
    )


def test_symbolic_sizes_copy_padded_columns() -> None:
    cases = []
    for n, high, wide in ((1, 5, 6), (2, 9, 40)):
        names = ("n", 24, "high", "wide")
        x, w, b = floats(n, 24, high, wide), floats(50, 24, 3, 3), floats(50)
        cases.append(conv(x, w, b, symbols=names, pads=(1, 1, 1, 1)))
        cases.append(conv(x, floats(20, 24, 1, 1), symbols=names))
        cases.append(conv(x, w, symbols=names, strides=(2, 2), pads=(0, 1, 1, 0)))
        cases.append(
            conv(
                floats(n, 3, high, wide),
                floats(20, 3, 3, 3),
                symbols=("n", 3, "high", "wide"),
                pads=(1,) * 4,
            )
        )
        cases.append(conv(floats(n, 24, 8, 8), w, symbols=("n", 24, 8, 8), pads=(1, 1, 1, 1)))
    cases.append(
        conv(floats(1, 16, 5, 60), floats(16, 16, 3, 3), pads=(12,) * 4, dilations=(12, 12))
    )
    h.check_all([first_variants(c, 2) for c in cases])


def test_tiles_of_small_images_span_rows() -> None:
    cases = [
        conv(floats(2, 20, 7, 7), floats(64, 20, 3, 3), floats(64), pads=(1, 1, 1, 1), nt=(1, 3)),
        conv(
            floats(2, 17, 13, 9),
            floats(60, 17, 3, 3),
            symbols=("n", 17, 13, 9),
            pads=(1, 0, 0, 1),
            strides=(2, 2),
        ),
        conv(
            floats(1, 32, 5, 5), floats(128, 16, 3, 3), pads=(2, 2, 2, 2), dilations=(2, 2), group=2
        ),
    ]
    only = []
    for case in cases:
        offered = asked.variants(CONV, case.node, h.NATIVE)
        assert not isinstance(offered, Reject)
        spans = [v for v in offered if v.knob("span")]
        assert spans, "a row is shorter than a tile"
        only.append(replace(case, only=spans[:1]))
    h.check_all(only)


def test_partial_sums_and_groups() -> None:
    deep = conv(floats(1, 528, 14, 14), floats(64, 528, 3, 3), floats(64), pads=(1, 1, 1, 1))
    offered = asked.variants(CONV, deep.node, h.NATIVE)
    assert not isinstance(offered, Reject)
    assert h.NATIVE.lanes < 16 or any(v.knob("blocks") for v in offered), (
        "large panels of weights are cut by channels"
    )
    groups = conv(floats(2, 64, 7, 7), floats(96, 32, 3, 3), floats(96), pads=(1, 1, 1, 1), group=2)
    h.check_all([deep, groups])


OPERANDS = [
    ((2, 40, 6, 9), False), ((1, 40, 1, 1), True), ((40, 1, 1), False), ((2, 40, 1, 1), False), ((2, 1, 6, 9), False),
    ((6, 9), True), ((2, 1, 1, 1), False), ((1, 40, 6, 1), True), ((1, 40, 1, 9), False), ((), True),
    ((1, 40, 6, 9), True),
]  # fmt: skip


@pytest.mark.parametrize("kernel", [1, 3])
def test_epilogue_operands_of_every_shape(kernel: int) -> None:
    x, w, b = floats(2, 20, 6, 9), floats(40, 20, kernel, kernel), floats(40)
    pads = (kernel // 2,) * 4
    cases = []
    for i, (shape, constant) in enumerate(OPERANDS):
        operand = np.asarray(floats(*shape)) + np.float32(0.5)
        tail = (
            [("Add", (4, 3), {}), ("Relu", (5,), {})]
            if i % 2
            else [("Mul", (4, 3), {}), ("Sigmoid", (5,), {})]
        )
        nodes = [("Convolution", (0, 1, 2), {"pads": pads}), *tail]
        node = h.fused(
            [x, w, b, operand], nodes, anchor=0, constants=[1, 2, 3] if constant else [1, 2]
        )
        offered = asked.variants(CONV, node, h.NATIVE)
        if len(shape) == 3 and not constant:
            assert isinstance(offered, Reject), (
                "a computed operand with channels needs the output's rank"
            )
            continue
        cases.append(h.Case(node, CONV, [x, w, b, operand], only=offered[:1]))  # type: ignore[index]
    h.check_all(cases)


def test_several_results_and_swish() -> None:
    x, w, b = floats(1, 16, 8, 8), floats(24, 16, 3, 3), floats(24)
    swish = [
        ("Convolution", (0, 1, 2), {"pads": (1, 1, 1, 1)}),
        ("Sigmoid", (3,), {}),
        ("Mul", (3, 4), {}),
    ]
    node = h.fused([x, w, b], swish, [3, 5], 0, [1, 2])
    h.check(node, CONV, [x, w, b], nt=(1, 2))


def test_every_instruction_set() -> None:
    x, w, b = floats(1, 20, 9, 11), floats(24, 20, 3, 3), floats(24)
    cases = [
        conv(x, w, b, t, pads=(1, 1, 1, 1), device=d) for d in h.devices() for t in (CONV, GENERAL)
    ]
    h.check_all([first_variants(c, 2) for c in cases])


def test_general() -> None:
    h.check_all(
        [
            conv(
                floats(1, 32, 14, 14),
                floats(32, 32, 3, 3),
                floats(32),
                GENERAL,
                pads=(1, 1, 1, 1),
                nt=(1, 3),
            ),
            conv(
                floats(2, 20, 13, 11),
                floats(40, 20, 3, 3),
                floats(40),
                GENERAL,
                constant=False,
                pads=(1, 0, 2, 1),
                strides=(2, 3),
            ),
            conv(
                floats(2, 20, 13, 11),
                floats(40, 20, 3, 2),
                None,
                GENERAL,
                pads=(1, -1, 2, 1),
                dilations=(2, 2),
            ),
            conv(
                floats(2, 3, 9, 19),
                floats(5, 3, 3, 3),
                floats(5),
                GENERAL,
                ("n", 3, "high", "wide"),
                pads=(1, 1, 1, 1),
            ),
            conv(
                floats(2, 12, 7, 7),
                floats(18, 4, 3, 3),
                floats(18),
                GENERAL,
                pads=(1, 1, 1, 1),
                group=3,
            ),
            conv(floats(2, 6, 7, 7), floats(12, 1, 3, 3), None, GENERAL, group=6),
            conv(floats(2, 17, 37), floats(33, 17, 5), floats(33), GENERAL, pads=(2, 2)),
            conv(
                floats(2, 4, 5, 6, 7),
                floats(3, 4, 3, 2, 3),
                floats(3),
                GENERAL,
                pads=(1, 0, 1, 1, 1, 2),
                strides=(1, 2, 2),
                dilations=(2, 1, 1),
            ),
        ]
    )


@pytest.mark.parametrize("width", [1, 5, 17, 21, 33, 37, 49])
@pytest.mark.parametrize(
    "attrs", [{}, {"pads": (-1, 3)}, {"strides": (3,), "pads": (2, 40)}], ids=str
)
def test_general_of_lines_whose_last_tile_is_narrow(width: int, attrs: Any) -> None:
    x, w = floats(2, 3, width + 5), floats(5, 3, 4)
    each = [conv(x, w, None, GENERAL, shape, **attrs) for shape in (None, ("n", 3, "wide"))]
    h.check_all(each)


def test_general_of_weights_whose_axes_are_open() -> None:
    cases = []
    for x, w, b, attrs in (
        (floats(1, 16, 9, 14), floats(32, 16, 3, 3), floats(32), {"pads": (1, 1, 1, 1)}),
        (floats(2, 6, 13, 11), floats(9, 2, 3, 2), floats(9), {"strides": (2, 3), "group": 3}),
        (floats(2, 5, 7, 7), floats(5, 1, 2, 3), floats(5), {"group": 5, "dilations": (2, 2)}),
        (floats(2, 3, 37), floats(1, 3, 5), floats(1), {"pads": (2, 3)}),
        (floats(1, 2, 5, 6, 7), floats(3, 2, 1, 2, 3), floats(3), {}),
        (floats(0, 2, 5), floats(3, 2, 1), floats(3), {}),
        (floats(2, 0, 5), floats(3, 0, 2), floats(3), {}),
        (floats(2, 2, 5), floats(0, 2, 2), floats(0), {}),
        (floats(2, 2, 3), floats(3, 2, 4), floats(3), {}),
        (floats(2, 6, 5, 7), floats(9, 2, 1, 1), floats(9), {"strides": (2, 1), "group": 3}),
    ):
        for arrays in ([x, w, b], [x, w]):
            specs, env = h.opened(*arrays)
            made = h.node("Convolution", specs, **attrs)
            cases.append(h.Case(made, GENERAL, arrays, env=env, nt=(1, 3)))
    h.check_all(cases)


def test_weights_that_fall_into_no_groups_are_refused() -> None:
    (x, w), env = h.opened(floats(1, 4, 5, 5), floats(6, 2, 3, 3))
    with dims.assumptions() as noted:
        h.node("Convolution", [x, w], group=2)
    assert all(a.holds(env) for a in noted)
    for wrong in ({"axis_1_0": 7}, {"axis_1_2": 0}, {"axis_1_1": 4}):
        assert not all(a.holds(env | wrong) for a in noted)
    with pytest.raises(ShapeError):
        h.node("Convolution", [floats(1, 4, 5, 5), floats(7, 2, 3, 3)], group=2)


def test_general_epilogue() -> None:
    x, w, residual = floats(1, 6, 7, 9), floats(10, 3, 3, 3), floats(1, 10, 7, 9)
    nodes = [
        ("Convolution", (0, 1), {"pads": (1, 1, 1, 1), "group": 2}),
        ("Add", (4, 2), {}),
        ("Mul", (5, 3), {}),
    ]
    cases = []
    for shape in ((1, 10, 7, 9), (10, 1, 1), (7, 1), (1, 1, 1, 9), ()):
        operand = floats(*shape)
        cases.append(
            h.Case(
                h.fused([x, w, residual, operand], nodes, anchor=0),
                GENERAL,
                [x, w, residual, operand],
            )
        )
    h.check_all(cases)


def test_inputs_that_it_leaves_to_others() -> None:
    x, w = floats(1, 16, 8, 8), floats(16, 16, 3, 3)
    half = h.node(
        "Convolution",
        [TensorSpec(DType.FP16, (1, 16, 8, 8)), TensorSpec(DType.FP16, (16, 16, 3, 3))],
    )
    computed = h.node("Convolution", [x, w])
    small_groups = h.node("Convolution", [x, floats(16, 2, 3, 3)], [1], group=8)
    assert isinstance(asked.variants(GENERAL, half, h.NATIVE), Reject)
    for node in (half, computed, small_groups):
        assert isinstance(asked.variants(CONV, node, h.NATIVE), Reject)


def test_cost_prefers_tiles_that_fit() -> None:
    node = h.node(
        "Convolution", [floats(1, 16, 14, 14), floats(32, 16, 3, 3)], [1], pads=(1, 1, 1, 1)
    )
    offered = asked.variants(CONV, node, h.NATIVE)
    ctx = CompileContext(h.NATIVE)
    assert not isinstance(offered, Reject)
    costs = [asked.cost(CONV, node, v, ctx) for v in offered]
    assert costs == sorted(costs, key=lambda c: c or 0.0)
    assert all(c is not None and c > 0 for c in costs)
    general = asked.cost(GENERAL, node, asked.variants(GENERAL, node, h.NATIVE)[0], ctx)  # type: ignore[index]
    assert general is not None
    assert costs[0] is not None
    assert general > costs[0]


def test_threads_share_a_line() -> None:
    """Where there are few lines, as along one axis: tiles at its ends, and a width that only
    running tells.
    """
    deep = {"pads": (3, 3), "dilations": (3,)}
    volume = {"pads": (1, 1, 1, 1, 1, 1)}
    cases = [
        conv(floats(1, 32, 301), floats(32, 32, 3), floats(32), nt=(1, 3, 4), **deep),
        conv(floats(1, 16, 97), floats(16, 16, 7), nt=(1, 8), pads=(3, 3), strides=(2,)),
        conv(floats(1, 16, 5), floats(16, 16, 3), nt=(8,), pads=(1, 1)),
        conv(floats(1, 3, 200), floats(16, 3, 5), nt=(4,), pads=(2, 2)),
        conv(floats(1, 32, 301), floats(32, 32, 3), symbols=(1, 32, "w"), nt=(1, 4), **deep),
        conv(floats(1, 16, 1, 2, 90), floats(16, 16, 3, 3, 3), nt=(5,), **volume),
    ]
    only = [first_variants(c, 2) for c in cases]
    h.check_all(only)
    device = cases[0].device
    work = CONV.match(cases[0].node, device)
    assert not isinstance(work, Reject)
    made = CONV.compile(work, only[0].only[0], CompileContext(device, {}, 4))
    assert isinstance(made.code, Source)
    assert "PARTS" in made.code.text


def test_what_stands_before_a_convolution_of_single_pixels() -> None:
    cases = prepared_cases(CONV, nt=(1, 2, 5))
    large = floats(1, 96, 40, 56), floats(1, 96, 1, 1), floats(24, 96, 1, 1)
    single = floats(1, 40, 1, 1), floats(1, 40, 1, 1), floats(50, 40, 1, 1)
    cases += [
        gated(*large, CONV, nt=(1, 3)),
        gated(*single, CONV),
    ]
    h.check_all([first_variants(c, 3) for c in cases])


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16])
def test_halves_are_widened_before_a_convolution(dtype: DType) -> None:
    x, g = (a.astype(dtype.numpy) for a in (floats(2, 40, 9, 7), floats(2, 40, 1, 1)))
    wide = {"to": DType.FP32}
    parts: Parts = [("Mul", (0, 1), {}), ("Cast", (3,), wide), ("Convolution", (4, 2), {})]
    h.check_all([first_variants(gated(x, g, floats(50, 40, 1, 1), CONV, parts), 2)])


def test_sums_over_some_channels_at_a_time() -> None:
    x, g, w = floats(2, 64, 8, 9), floats(2, 64, 1, 1), floats(96, 64, 1, 1)
    for case in (conv(x, w), gated(x, g, w, CONV)):
        (first, *_) = asked.variants(CONV, case.node, case.device)
        h.check_all([replace(case, only=[replace(first, knobs=_with(first.knobs, blocks=2))])])


def _with(knobs: Any, **changed: Any) -> Any:
    return tuple(sorted({**dict(knobs), **changed}.items()))


@pytest.mark.parametrize("reason", ["window", "groups", "two readers"])
def test_what_cannot_stand_before_a_convolution(reason: str) -> None:
    x, g, w = floats(1, 32, 5, 5), floats(1, 32, 1, 1), floats(32, 32, 1, 1)
    parts = GATED
    if reason == "window":
        w, parts = floats(32, 32, 3, 3), [GATED[0], ("Convolution", (3, 2), {"pads": (1, 1, 1, 1)})]
    elif reason == "groups":
        w, parts = w[:, :16], [GATED[0], ("Convolution", (3, 2), {"group": 2})]
    else:
        parts = [*GATED, ("Add", (4, 3), {})]
    case = gated(x, g, w, CONV, parts)
    assert isinstance(CONV.match(case.node, case.device), Reject)


def test_groups_of_few_channels_are_joined() -> None:
    """Halves and quarters of a vector, groups that fill no whole number of vectors, an activation
    that is not zero at zero, and other axes.
    """
    half, quarter = h.NATIVE.lanes // 2, max(2, h.NATIVE.lanes // 4)
    x, w = floats(2, 5 * half, 9, 11), floats(5 * half, half, 3, 3)
    nodes = [("Convolution", (0, 1), {"pads": (1,) * 4, "group": 5}), ("Sigmoid", (2,), {})]
    h.check(h.fused([x, w], nodes, anchor=0, constants=[1]), JOINED, [x, w])
    options: Any = {"tactic": JOINED, "nt": (1, 3)}
    cases = [
        conv(
            floats(1, 6 * n, *size),
            floats(6 * n, n, *taps),
            floats(6 * n),
            group=6,
            **options,
            **more,
        )
        for n, size, taps, more in (
            (half, (9, 9), (3, 3), {"strides": (2, 2), "pads": (1,) * 4}),
            (quarter, (8, 7), (3, 2), {}),
            (half, (30,), (5,), {"dilations": (2,)}),
            (half, (4, 5, 6), (2, 3, 3), {}),
        )
    ]
    h.check_all(cases)


def test_groups_that_are_not_joined() -> None:
    n = h.NATIVE.lanes // 2
    for channels, outputs, group in ((2 * n, 2 * n, 1), (2 * n, 4 * n, 2), (6, 6, 2), (8, 8, 8)):
        x, w = floats(1, channels, 5, 5), floats(outputs, channels // group, 3, 3)
        found = asked.variants(JOINED, conv(x, w, group=group).node, h.NATIVE)
        assert isinstance(found, Reject)
