"""Convolutions, pools, products, recurrent layers, quantization, sampling, signals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from forms import Form, dtypes_of, forms, ints, normal, numbers, positive


@forms("Conv")
def conv(op: str, version: int) -> Iterator[Form]:
    x, w = normal(2, 4, 7, 6), normal(6, 4, 3, 3, salt=1)
    variants: dict[str, dict[str, Any]] = {
        "plain": {}, "pads": {"pads": [1, 0, 2, 1]}, "strides": {"strides": [2, 1], "pads": [1, 1, 1, 1]},
        "dilations": {"dilations": [2, 2]}, "same": {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        "lower": {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, "valid": {"auto_pad": "VALID"},
    }  # fmt: skip
    for name, attrs in variants.items():
        yield Form(name, [x, w], attrs, tolerance=1e-4)
        yield Form(
            f"{name} bias", [x, w, normal(6)], attrs, fixed=frozenset({1, 2}), tolerance=1e-4
        )
    yield Form("groups", [x, normal(6, 2, 3, 3)], {"group": 2}, tolerance=1e-4)
    yield Form("line", [normal(2, 4, 9), normal(3, 4, 3)], {"pads": [1, 1]}, tolerance=1e-4)
    yield Form("volume", [normal(1, 2, 4, 5, 6), normal(3, 2, 2, 3, 2)], tolerance=1e-4)


@forms("ConvTranspose")
def conv_transpose(op: str, version: int) -> Iterator[Form]:
    x, w = normal(2, 4, 5, 6), normal(4, 3, 3, 3, salt=1)
    variants: dict[str, dict[str, Any]] = {
        "plain": {}, "pads": {"pads": [1, 0, 1, 1]}, "strides": {"strides": [2, 3]},
        "more": {"strides": [2, 2], "output_padding": [1, 0]}, "dilations": {"dilations": [2, 1]},
        "shape": {"strides": [2, 2], "output_shape": [10, 12]},
    }  # fmt: skip
    for name, attrs in variants.items():
        yield Form(name, [x, w], attrs, tolerance=1e-4)
        yield Form(
            f"{name} bias", [x, w, normal(3)], attrs, fixed=frozenset({1, 2}), tolerance=1e-4
        )
    yield Form("groups", [x, normal(4, 2, 3, 3)], {"group": 2}, tolerance=1e-4)


@forms("AveragePool", "MaxPool", "LpPool")
def pools(op: str, version: int) -> Iterator[Form]:
    """Ceiling came with 10 (Lp: 18), dilations with 10 (average: 19), padding that counts with 7."""
    rounded = version >= (18 if op == "LpPool" else 10)
    dilated = version >= {"AveragePool": 19, "MaxPool": 10, "LpPool": 18}[op]
    variants: dict[str, dict[str, Any]] = {
        "plain": {}, "strides": {"strides": [2, 1]}, "pads": {"pads": [1, 0, 1, 1]}, "valid": {"auto_pad": "VALID"},
        "same": {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, "lower": {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
    }  # fmt: skip
    if rounded:
        variants["ceil"] = {"ceil_mode": 1, "strides": [2, 2]}
        variants["ceil pads"] = {"ceil_mode": 1, "strides": [2, 2], "pads": [1, 1, 1, 1]}
    if dilated:
        variants["dilations"] = {"dilations": [2, 1]}
    if op == "AveragePool" and version >= 7:
        variants["counted"] = {"count_include_pad": 1, "pads": [1, 0, 1, 1]}
    for dtype in dtypes_of(
        op, version, ("float", "double", "uint8") if op == "MaxPool" else ("float",)
    ):
        for name, attrs in variants.items():
            sizes = {"kernel_shape": [3, 2], **attrs, **({"p": 2} if op == "LpPool" else {})}
            yield Form(f"{dtype} {name}", [numbers(dtype, 2, 3, 8, 7)], sizes, tolerance=1e-4)
        if not (op == "LpPool" and version < 2):
            line = {"kernel_shape": [3], "strides": [2]}
            yield Form(f"{dtype} line", [numbers(dtype, 2, 3, 9)], line, tolerance=1e-4)
    if op == "MaxPool" and version >= 8:
        for order in (0, 1):
            attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": order}
            yield Form(f"indices {order}", [normal(2, 3, 6, 8)], attrs, 2)


@forms("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pools(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "float16")):
        for shape in ((2, 3, 4, 5), (1, 2, 7), (2, 2, 3, 4, 2)):
            yield Form(
                f"{dtype} {shape}",
                [normal(*shape).astype(dtype)],
                tolerance=4e-3 if dtype.itemsize == 2 else 1e-5,
            )
            if op == "GlobalLpPool":
                p = {"p": 3.0 if version < 2 else 3}
                yield Form(
                    f"{dtype} {shape} 3", [positive(*shape).astype(dtype)], p, tolerance=4e-3
                )


@forms("MaxRoiPool")
def roi_pool(op: str, version: int) -> Iterator[Form]:
    rois = np.array(
        [[0, 0, 0, 6, 6], [1, 2, 1, 7, 5], [0, 3, 3, 3, 3], [1, 1, 0, 9, 7]], np.float32
    )
    for pooled in ([2, 2], [3, 4], [1, 1]):
        for scale in (1.0, 0.5):
            attrs = {"pooled_shape": pooled, "spatial_scale": scale}
            yield Form(f"{pooled} {scale}", [normal(2, 3, 8, 10), rois], attrs)


@forms("MaxUnpool")
def unpool(op: str, version: int) -> Iterator[Form]:
    x = np.float32([[[[5, 7], [13, 16]]]])
    places = np.array([[[[0, 3], [9, 15]]]])
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Form("plain", [x, places], attrs)
    yield Form("shape", [x, places, ints(1, 1, 5, 5)], attrs, fixed=frozenset({2}))


@forms("Det")
def det(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double")):
        for shape in ((3, 3), (2, 4, 4), (2, 1, 2, 2)):
            yield Form(f"{dtype} {shape}", [normal(*shape).astype(dtype)], tolerance=1e-4)


@forms("Gemm")
def gemm(op: str, version: int) -> Iterator[Form]:
    """Before 7 the third operand broadcasts only where it is said."""
    for dtype in dtypes_of(op, version, ("float", "double")):
        for left in (0, 1):
            for right in (0, 1):
                a, b = normal(3, 4).astype(dtype), normal(4, 5).astype(dtype)
                a, b = (a.T.copy() if left else a), (b.T.copy() if right else b)
                for name, shape in {"full": (3, 5), "row": (5,), "one": (1,), "none": None}.items():
                    if shape is None and version < 11:
                        continue
                    c = [] if shape is None else [normal(*shape).astype(dtype)]
                    attrs: dict[str, Any] = {
                        "transA": left,
                        "transB": right,
                        "alpha": 0.5,
                        "beta": 2.0,
                    }
                    attrs |= {"broadcast": 1} if version < 7 and name != "full" else {}
                    yield Form(f"{dtype} {left}{right} {name}", [a, b, *c], attrs, tolerance=1e-4)


@forms("MatMul")
def matmul(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "int32", "int64", "uint32")):
        for a, b in (
            ((3, 4), (4, 5)),
            ((2, 3, 4), (4, 5)),
            ((4,), (4, 5)),
            ((3, 4), (4,)),
            ((2, 1, 3, 4), (3, 4, 2)),
        ):
            yield Form(
                f"{dtype} {a} {b}", [numbers(dtype, *a), numbers(dtype, *b, salt=1)], tolerance=1e-4
            )


@forms("Einsum")
def einsum(op: str, version: int) -> Iterator[Form]:
    equations = (
        "ij,jk->ik",
        "bij,bjk->bik",
        "ij->ji",
        "ii->i",
        "...ij,...jk->...ik",
        "ij,ij->",
        "bi,bj->bij",
    )
    for dtype in dtypes_of(op, version, ("float", "double")):
        for equation in equations:
            shapes = [
                (3,) * max(2, sum(c.isalpha() for c in part))
                for part in equation.split("->")[0].split(",")
            ]
            arrays = [normal(*s, salt=i).astype(dtype) for i, s in enumerate(shapes)]
            yield Form(f"{dtype} {equation}", arrays, {"equation": equation}, tolerance=1e-4)


RECURRENT = {"RNN": 1, "GRU": 3, "LSTM": 4}


@forms(*RECURRENT)
def recurrent(op: str, version: int) -> Iterator[Form]:
    """GRU's ``linear_before_reset`` came with 3, ``layout`` with 14."""
    gates, size, length, batch = RECURRENT[op], 4, 5, 2
    for direction, ways in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        w = normal(ways, gates * size, 3) * 0.5
        r = normal(ways, gates * size, size, salt=1) * 0.5
        bias, start = (
            normal(ways, 2 * gates * size, salt=2) * 0.5,
            normal(ways, batch, size, salt=3),
        )
        lengths = np.array([5, 3], np.int32)
        old = {"output_sequence": 1} if version < 7 else {}
        attrs: dict[str, Any] = {"hidden_size": size, "direction": direction, **old}
        count = 3 if op == "LSTM" else 2
        x = normal(length, batch, 3)
        states = [start] + ([normal(ways, batch, size, salt=4)] if op == "LSTM" else [])
        given = {
            "plain": [x, w, r],
            "bias": [x, w, r, bias],
            "state": [x, w, r, bias, None, *states],
        }
        given["lengths"] = [x, w, r, bias, lengths, *states]
        for name, arrays in given.items():
            yield Form(f"{direction} {name}", arrays, attrs, count, frozenset({1, 2}), 1e-4)
        if version >= 14:
            turned = [np.moveaxis(a, 0, 1).copy() for a in (x, *states)]
            arrays = [turned[0], w, r, bias, None, *turned[1:]]
            yield Form(
                f"{direction} layout",
                arrays,
                {**attrs, "layout": 1},
                count,
                frozenset({1, 2}),
                1e-4,
            )
        if op == "GRU" and version >= 3:
            own = {**attrs, "linear_before_reset": 1}
            yield Form(f"{direction} linear", [x, w, r, bias], own, count, frozenset({1, 2}), 1e-4)
        if op == "LSTM":
            peeping = [x, w, r, bias, None, *states, normal(ways, 3 * size, salt=5)]
            yield Form(f"{direction} peephole", peeping, attrs, count, frozenset({1, 2}), 1e-4)
        yield Form(
            f"{direction} clip",
            [x, w, r, bias],
            {**attrs, "clip": 0.5},
            count,
            frozenset({1, 2}),
            1e-4,
        )


@forms("QuantizeLinear", "DequantizeLinear")
def quantization(op: str, version: int) -> Iterator[Form]:
    for name in ("uint8", "int8", "int32", "uint16", "int16"):
        for dtype in dtypes_of(op, version, (name,), 2):
            axes = (None, 0, 1, -1) if version >= 13 else (None,)
            for axis in axes:
                count = () if axis is None else ((3, 4)[axis],)
                scale, zero = positive(*count) * 0.1, numbers(dtype, *count, low=-3, high=4)
                zero = zero * 0 if dtype == np.int32 else zero
                attrs = {} if axis is None else {"axis": axis}
                x = (
                    normal(3, 4) * 3
                    if op == "QuantizeLinear"
                    else numbers(dtype, 3, 4, low=-50, high=50)
                )
                yield Form(f"{dtype} {axis}", [x, scale.astype(np.float32), zero], attrs)
                if op == "DequantizeLinear" or dtype == np.uint8:
                    yield Form(f"{dtype} {axis} symmetric", [x, scale.astype(np.float32)], attrs)
            if version >= 21 and dtype.itemsize == 1:
                scale, zero = positive(3, 2) * 0.1, numbers(dtype, 3, 2, low=-3, high=4)
                x = (
                    normal(3, 4) * 3
                    if op == "QuantizeLinear"
                    else numbers(dtype, 3, 4, low=-50, high=50)
                )
                attrs = {"axis": 1, "block_size": 2}
                yield Form(f"{dtype} blocks", [x, scale.astype(np.float32), zero], attrs)


@forms("QLinearMatMul")
def quantized_product(op: str, version: int) -> Iterator[Form]:
    for dtype in (np.dtype(np.uint8), np.dtype(np.int8)):
        for shape in ((3, 4), (2, 3, 4)):
            a, b = numbers(dtype, *shape, low=-40, high=40), numbers(dtype, 4, 5, low=-40, high=40)
            scales, zeros = (
                [np.float32(s) for s in (0.02, 0.03, 0.05)],
                [np.array(z, dtype) for z in (3, 2, 5)],
            )
            yield Form(
                f"{dtype} {shape}",
                [a, scales[0], zeros[0], b, scales[1], zeros[1], scales[2], zeros[2]],
                fixed=frozenset(range(1, 8)),
            )


@forms("GridSample")
def grid_sample(op: str, version: int) -> Iterator[Form]:
    """Its modes were called otherwise before 20."""
    modes = ("bilinear", "nearest", "bicubic") if version < 20 else ("linear", "nearest", "cubic")
    grid = np.tanh(normal(2, 4, 5, 2)) * 1.3
    for mode, name in zip(modes, ("linear", "nearest", "cubic"), strict=True):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                attrs = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                yield Form(
                    f"{name} {padding} {corners}", [normal(2, 3, 6, 5), grid], attrs, tolerance=1e-4
                )


@forms("RoiAlign")
def roi_align(op: str, version: int) -> Iterator[Form]:
    rois = np.array([[0, 0, 6, 6], [2, 1, 7, 5], [1, 0, 9, 7]], np.float32)
    for mode in ("avg", "max"):
        for ratio in (0, 2):
            for way in (
                ("half_pixel", "output_half_pixel") if version >= 16 else ("output_half_pixel",)
            ):
                attrs: dict[str, Any] = {
                    "mode": mode,
                    "sampling_ratio": ratio,
                    "output_height": 3,
                    "output_width": 2,
                }
                attrs |= {"coordinate_transformation_mode": way} if version >= 16 else {}
                arrays = [normal(2, 3, 8, 10), rois, ints(0, 1, 0)]
                yield Form(f"{mode} {ratio} {way}", arrays, attrs, tolerance=1e-4)


@forms("NonMaxSuppression")
def suppression(op: str, version: int) -> Iterator[Form]:
    corners = positive(2, 8, 2, salt=1)
    boxes = np.concatenate([corners, corners + positive(2, 8, 2, salt=2)], 2)
    scores = positive(2, 3, 8, salt=3)
    for most in (1, 3):
        for overlap in (0.1, 0.5):
            for least in (None, 0.8):
                arrays = [boxes, scores, ints(most), np.float32([overlap])]
                arrays += [] if least is None else [np.float32([least])]
                yield Form(f"{most} {overlap} {least}", arrays)
                centred = np.concatenate(
                    [(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], 2
                )
                yield Form(
                    f"{most} {overlap} {least} centre",
                    [centred, *arrays[1:]],
                    {"center_point_box": 1},
                )


@forms("DFT")
def dft(op: str, version: int) -> Iterator[Form]:
    for inverse in (0, 1):
        for onesided in (0, 1):
            for axis in (1, 2):
                if inverse and onesided:
                    continue
                x = normal(2, 5, 4, 1 if onesided else 2)
                attrs = {"inverse": inverse, "onesided": onesided}
                if version < 20:
                    yield Form(
                        f"{inverse} {onesided} {axis}", [x], {**attrs, "axis": axis}, tolerance=1e-4
                    )
                else:
                    arrays = [x, None, np.array(axis, np.int64)]
                    yield Form(
                        f"{inverse} {onesided} {axis}",
                        arrays,
                        attrs,
                        fixed=frozenset({2}),
                        tolerance=1e-4,
                    )


@forms("GroupNormalization")
def group_normalization(op: str, version: int) -> Iterator[Form]:
    for groups in (1, 2, 4):
        arrays = [normal(2, 4, 3, 5), positive(4), positive(4, salt=1)]
        yield Form(f"{groups}", arrays, {"num_groups": groups, "epsilon": 1e-3}, tolerance=1e-4)


@forms("DeformConv")
def deformable(op: str, version: int) -> Iterator[Form]:
    x, w = normal(1, 2, 6, 6), normal(3, 2, 3, 3, salt=1)
    offset, mask = normal(1, 18, 4, 4, salt=2) * 0.5, positive(1, 9, 4, 4)
    attrs = {"kernel_shape": [3, 3], "pads": [0, 0, 0, 0]}
    yield Form("plain", [x, w, offset], attrs, tolerance=1e-4)
    yield Form("bias", [x, w, offset, normal(3)], attrs, tolerance=1e-4)
    yield Form("mask", [x, w, offset, normal(3), mask], attrs, tolerance=1e-4)
