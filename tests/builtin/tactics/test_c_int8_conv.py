"""IntegerConvolution and MaxPool of bytes in C: equal to the references."""

from __future__ import annotations

from typing import Any

import asked
import harness as h
import numpy as np
import pytest
from bytes_cases import DTYPES, first, on_every_target, product, requantised, whole_range

from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, TensorSpec, blocked
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.conv import int8 as c_int8_conv
from tactix_cpu.tactics.conv import int8_depthwise as c_int8_depthwise
from tactix_cpu.tactics.pool import int8 as c_int8_pool

(CONV,), (DEPTHWISE,), (POOL,) = (m.tactics() for m in (c_int8_conv, c_int8_depthwise, c_int8_pool))

WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 20, 13, 11), (40, 20, 3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}),
    ((1, 64, 7, 7), (96, 64, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 3, 31, 29), (24, 3, 7, 7), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    ((2, 1, 9, 9), (7, 1, 2, 2), {}),
    ((1, 2, 9, 33), (20, 2, 3, 5), {"pads": (1, 2, 1, 2)}),
    ((1, 3, 9, 9), (17, 3, 3, 3), {"dilations": (1, 2)}),
    ((1, 33, 9, 9), (50, 33, 1, 1), {}),
    ((2, 16, 9, 8), (17, 16, 1, 1), {"strides": (2, 2)}),
    ((1, 20, 30, 30), (20, 20, 3, 2), {"dilations": (2, 3), "pads": (2, 2, 2, 1)}),
    ((2, 17, 37), (33, 17, 5), {"pads": (2, 2)}),
    ((1, 24, 1, 1), (70, 24, 1, 1), {}),
]
DEPTHS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 20, 13, 11), (3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 128, 9, 10), (3, 3), {"pads": (1, 0, 2, 1), "strides": (2, 1)}),
    ((1, 32, 15, 14), (3, 3), {"pads": (0, 0, 1, 1), "strides": (2, 2)}),
    ((1, 17, 30, 9), (5, 5), {"pads": (2, 2, 2, 2)}),
    ((2, 17, 37), (3,), {"pads": (1, 1)}),
    ((1, 16, 9, 9), (2, 2), {"dilations": (3, 1)}),
    ((1, 16, 80, 112), (3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 17, 11, 14), (3, 3), {"pads": (1, 1, 1, 1), "strides": (3, 3)}),
    ((1, 16, 12, 15), (3, 5), {"pads": (1, 2, 1, 2), "strides": (2, 2)}),
    ((1, 16, 9, 12), (3, 4), {"pads": (1, 3, 1, 3), "strides": (1, 2)}),
]


def conv(
    dtype: Any, x: tuple[int, ...], w: tuple[int, ...], fields: dict[str, Any], **more: Any
) -> h.Case:
    fields = {"pad_value": 250 if dtype is np.uint8 else -5, **fields}
    return product(
        "IntegerConvolution",
        whole_range(dtype, *x),
        whole_range(np.int8, *w),
        CONV,
        **fields,
        **more,
    )


def depthwise(
    dtype: Any, x: tuple[int, ...], kernel: tuple[int, ...], fields: dict[str, Any], **more: Any
) -> h.Case:
    fields = {"pad_value": 3 if dtype is np.uint8 else -128, "group": x[1], **fields}
    arrays = whole_range(dtype, *x), whole_range(np.int8, x[1], 1, *kernel)
    return product("IntegerConvolution", *arrays, DEPTHWISE, **fields, **more)


@pytest.mark.parametrize("dtype", DTYPES)
def test_windows(dtype: Any) -> None:
    cases = [conv(dtype, *w) for w in WINDOWS]
    h.check_all([*cases, *(requantised(c) for c in cases), conv(dtype, *WINDOWS[0], bias=False)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_depthwise_windows(dtype: Any) -> None:
    cases = [depthwise(dtype, *w) for w in DEPTHS]
    h.check_all([*cases, *(requantised(c) for c in cases)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_instruction_set(dtype: Any) -> None:
    cases = [conv(dtype, *w) for w in WINDOWS[:3]] + [depthwise(dtype, *w) for w in DEPTHS[:3]]
    on_every_target([requantised(c, residual=False) for c in cases])


def test_extreme_numbers() -> None:
    cases = []
    for a, b in ((0, -128), (255, -128), (255, 127)):
        for shape in ((40, 40, 3, 3), (40, 1, 3, 3)):
            group, tactic = (1, CONV) if shape[1] > 1 else (40, DEPTHWISE)
            x, w = np.full((1, 40, 6, 6), a, np.uint8), np.full(shape, b, np.int8)
            cases.append(
                product(
                    "IntegerConvolution",
                    x,
                    w,
                    tactic,
                    pads=(1, 1, 1, 1),
                    pad_value=255,
                    group=group,
                )
            )
    h.check_all(cases)


def test_many_threads_and_images() -> None:
    names = ("n", 20, 9, 9)
    for n in (1, 3):
        x = whole_range(np.uint8, n, 20, 9, 9)
        more = {"symbols": names, "pads": (1, 1, 1, 1), "nt": (1, 3, 5)}
        cases = [
            product("IntegerConvolution", x, whole_range(np.int8, 40, 20, 3, 3), CONV, **more),
            product(
                "IntegerConvolution",
                x,
                whole_range(np.int8, 20, 1, 3, 3),
                DEPTHWISE,
                group=20,
                **more,
            ),
        ]
        h.check_all([first(c, h.NATIVE) for c in cases])


def test_an_image_is_read_linear() -> None:
    offered = asked.variants(CONV, conv(np.uint8, *WINDOWS[2]).node, h.NATIVE)
    assert not isinstance(offered, Reject)
    assert {v.input_format(0) for v in offered} == {LINEAR}
    assert {v.output_format(0) for v in offered} == {blocked(h.NATIVE.lanes)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_max_pool(dtype: Any) -> None:
    pads = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 1, 0, 1)}
    dilated = {"kernel_shape": (2, 2), "dilations": (2, 3)}
    cases = []
    for shape, fields in (
        ((2, 20, 13, 11), pads),
        ((2, 128, 7, 5), pads),
        ((1, 16, 8, 8), dilated),
    ):
        x = whole_range(dtype, *shape)
        cases.append(h.Case(h.node("MaxPool", [x], **fields), POOL, [x]))  # type: ignore[arg-type]
    on_every_target(cases)


def test_what_they_leave_to_others() -> None:
    x, w = TensorSpec(DType.UINT8, (1, 16, 8, 8)), whole_range(np.int8, 16, 16, 3, 3)
    groups = h.node("IntegerConvolution", [x, whole_range(np.int8, 16, 8, 3, 3)], [1], group=2)
    computed = h.node("IntegerConvolution", [x, TensorSpec(DType.INT8, (16, 16, 3, 3))])
    assert isinstance(asked.variants(CONV, computed, h.NATIVE), Reject)
    assert isinstance(asked.variants(CONV, groups, h.NATIVE), Reject)
    for node in (groups, h.node("IntegerConvolution", [x, w], [1])):
        assert isinstance(asked.variants(DEPTHWISE, node, h.NATIVE), Reject)
    assert isinstance(
        asked.variants(
            POOL,
            h.node("MaxPool", [np.zeros((1, 2, 4, 4), np.float32)], kernel_shape=(2, 2)),
            h.NATIVE,
        ),
        Reject,
    )


def test_cost_grows_with_the_work() -> None:
    ctx = CompileContext(h.NATIVE)
    costs = []
    for channels in (16, 64, 256):
        node = conv(np.uint8, (1, channels, 8, 8), (32, channels, 3, 3), {}).node
        costs.append(asked.cost(CONV, node, asked.variants(CONV, node, h.NATIVE)[0], ctx))  # type: ignore[index]
    assert None not in costs
    assert costs == sorted(costs, key=lambda c: c or 0.0)
