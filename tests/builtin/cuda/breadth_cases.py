"""Nodes of the layers that few networks use, for a GPU: every option, odd shapes, symbolic dims.

``TABLE``: groups of cases by name, made when asked. The same table is compiled, run on the host,
and run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness as h
import numpy as np
from simt import Case
from tactic_cases import ENVS, FLOATS, TACTICS, N, S, group, one, real, spec, symbolic, whole

from tactix.base.dims import floordiv
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(
    name: str,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    *,
    constants: Any = (1, 2, 3),
    bias: bool = True,
    lengths: bool = False,
    states: bool = False,
    peepholes: bool = False,
    dtype: str = "f32",
    **attrs: Any,
) -> Case:
    two = 2 if attrs.get("direction") == "bidirectional" else 1
    wide, shape = GATES[name] * hidden, (two, batch, hidden)
    if attrs.get("layout"):
        shape = (batch, two, hidden)
    x = real(
        *((batch, steps) if attrs.get("layout") else (steps, batch)), inputs, dtype=dtype, seed=1
    )
    arrays: list[Any] = [x, *(_small(two, wide, k, dtype=dtype) for k in (inputs, hidden))]
    arrays.append(_small(two, 2 * wide, dtype=dtype) if bias else None)
    arrays.append(np.arange(batch, dtype=np.int32) % steps + 1 if lengths else None)
    arrays.append(real(*shape, dtype=dtype, seed=2) if states else None)
    if name == "LSTM":
        arrays.append(real(*shape, dtype=dtype, seed=3) if states else None)
        arrays.append(_small(two, 3 * hidden, dtype=dtype) if peepholes else None)
    kept = [i for i in constants if arrays[i] is not None]
    return one("rnn", name, arrays, kept, hidden_size=hidden, **attrs)


def _small(*shape: int, dtype: str) -> Any:
    return (real(*shape, seed=5) * 0.3).astype(real(1, dtype=dtype).dtype)


def lstms() -> list[Case]:
    leaky = {"activations": ("HardSigmoid", "LeakyRelu", "Affine"), "activation_alpha": (0.3, 0.1, 0.5),
             "activation_beta": (0.4, 0.1)}  # fmt: skip
    return [
        recurrent("LSTM", 5, 3, 7, 12, direction="bidirectional"),
        recurrent("LSTM", 3, 6, 20, 33, direction="reverse", states=True, constants=()),
        recurrent("LSTM", 4, 2, 3, 5, peepholes=True, lengths=True, layout=1, states=True),
        recurrent("LSTM", 2, 1, 4, 3, bias=False, clip=0.4, input_forget=True),
        recurrent("LSTM", 3, 2, 4, 6, **leaky),
        recurrent("LSTM", 3, 2, 40, 64, dtype="f16"),
    ]


def grus() -> list[Case]:
    return [
        recurrent(
            "GRU", 5, 3, 7, 12, direction="bidirectional", states=True, linear_before_reset=True
        ),
        recurrent("GRU", 4, 5, 7, 20, direction="bidirectional", states=True),
        recurrent("GRU", 4, 2, 3, 5, lengths=True, layout=1, direction="reverse"),
        recurrent("GRU", 3, 1, 5, 70, bias=False, clip=0.5, linear_before_reset=True),
        recurrent("GRU", 3, 2, 9, 16, dtype="bf16"),
    ]


def rnns() -> list[Case]:
    mixed = {
        "activations": ("Relu", "ScaledTanh"),
        "activation_alpha": (0.7,),
        "activation_beta": (0.9,),
    }
    return [
        recurrent("RNN", 6, 3, 7, 12, direction="bidirectional", **mixed),
        recurrent("RNN", 4, 2, 3, 5, lengths=True, layout=1, states=True),
    ]


def symbolic_recurrent() -> list[Case]:
    w, r = (spec(1, 40, k) for k in (6, 10))
    node = h.node("LSTM", [spec(S, N, 6), w, r], hidden_size=10)
    return symbolic("rnn", [node], [{"n": 1, "s": 1}, {"n": 9, "s": 4}])


def convolutions() -> list[Case]:
    """Given weights, three axes, groups, no bias, float64; pads that are no zeros, of integers."""

    def make(
        x: Any, w: Any, *bias: Any, layer: str = "Convolution", constants: Any = (), **attrs: Any
    ) -> Case:
        return one("plain_conv", layer, [x, w, *bias], constants, **attrs)

    def byte(*shape: int, dtype: str) -> Any:
        low = 0 if dtype == "u8" else -128
        return (
            np.random.default_rng(4)
            .integers(low, low + 256, shape)
            .astype("uint8" if dtype == "u8" else "int8")
        )

    pads = {"pads": (1, 0, 2, 1), "strides": (2, 1), "dilations": (1, 2)}
    whole_b = np.arange(12, dtype=np.int32) * 100
    return [
        make(real(2, 4, 9, 8), real(12, 2, 3, 3), real(12), group=2, **pads),
        make(
            real(1, 3, 5, 6, 4),
            real(5, 3, 2, 3, 2),
            real(5),
            constants=(1, 2),
            pads=(0, 1, 1, 1, 1, 0),
        ),
        make(real(2, 3, 11, dtype="f16"), real(7, 3, 4, dtype="f16")),
        make(
            real(1, 2, 7, 7).astype(np.float64), real(3, 2, 3, 3).astype(np.float64), constants=(1,)
        ),
        make(
            byte(2, 4, 8, 7, dtype="u8"),
            byte(12, 2, 3, 3, dtype="i8"),
            whole_b,
            layer="IntegerConvolution",
            constants=(1, 2),
            group=2,
            pad_value=7,
            **pads,
        ),
    ]


def integers() -> list[Case]:
    """Bytes four at a time: depths that fill no stage, pads that are no zeros, results of a
    quantized network.
    """

    def byte(*shape: int, dtype: str = "i8") -> Any:
        low = 0 if dtype == "u8" else -128
        return (
            np.random.default_rng(4)
            .integers(low, low + 256, shape)
            .astype("uint8" if dtype == "u8" else "int8")
        )

    def conv(x: Any, w: Any, *bias: Any, **attrs: Any) -> Case:
        return one(
            "integer_conv",
            "IntegerConvolution",
            [x, w, *bias],
            list(range(1, 2 + len(bias))),
            **attrs,
        )

    pads = {"pads": (1, 0, 2, 1), "strides": (2, 1), "dilations": (1, 2), "pad_value": 7}
    bias = np.arange(70, dtype=np.int32) * 100
    x, w, rest = byte(2, 32, 6, 7, dtype="u8"), byte(20, 32, 3, 3), real(2, 20, 6, 7)
    body: list[Any] = [
        ("IntegerConvolution", (0, 1, 2), {"pads": (1, 1, 1, 1), "pad_value": 3}), ("Cast", (4,), {"to": DType.FP32}),
        ("Mul", (5, 3), {}), ("Quantize", (6,), {"zero": 5, "dtype": DType.UINT8}),
    ]  # fmt: skip
    arrays = [x, w, bias[:20], rest * 1e-3]
    fused = Case(h.fused(arrays, body, constants=[1, 2], anchor=0), TACTICS["integer_conv"], arrays)
    free = h.node(
        "IntegerMatMul",
        [spec(N, S, 24, dtype="u8"), TensorSpec(DType.INT8, (24, 9), const=byte(24, 9))],
    )
    # halves that go to even, what is past either end, and infinities
    numbers = np.r_[np.arange(-1100, 1100) / 4, 1e30, -1e30, np.inf, -np.inf, -0.0]
    steps = [
        one("pointwise", "Quantize", [numbers.astype(np.float32)], zero=zero, dtype=dtype)
        for dtype, zero in (
            (DType.INT8, 0),
            (DType.INT8, -128),
            (DType.INT8, 3),
            (DType.UINT8, 0),
            (DType.UINT8, 128),
        )
    ]
    return [
        *steps,
        conv(byte(2, 4, 9, 8, dtype="u8"), byte(70, 4, 3, 3), bias, **pads),
        conv(byte(1, 80, 5, 6), byte(10, 80, 1, 1), bias[:10]),
        conv(byte(1, 8, 11, dtype="u8"), byte(7, 8, 4), strides=(2,), pad_value=255, pads=(3, 1)),
        fused,
        one(
            "integer_product",
            "IntegerMatMul",
            [byte(2, 5, 200, dtype="u8"), byte(200, 13), bias[:13]],
            [1, 2],
        ),
        one("integer_product", "IntegerMatMul", [byte(67, 12), byte(12, 66)], [1]),
        *symbolic("integer_product", [free], [{"n": 1, "s": 1}, {"n": 3, "s": 37}]),
    ]


def transposed() -> list[Case]:
    def make(x: Any, w: Any, *bias: Any, constants: Any = (1, 2), **attrs: Any) -> Case:
        return one(
            "plain_conv",
            "ConvTranspose",
            [x, w, *bias],
            [c for c in constants if c < 2 + len(bias)],
            **attrs,
        )

    x = real(2, 6, 5, 7)
    return [
        make(x, real(6, 4, 2, 2), real(4), strides=(2, 2)),
        make(
            x,
            real(6, 3, 3, 4),
            strides=(3, 2),
            pads=(1, 0, 2, 1),
            dilations=(2, 1),
            output_padding=(1, 1),
        ),
        make(x, real(6, 2, 3, 3), real(4), group=2, constants=()),
        make(real(1, 3, 9, dtype="bf16"), real(3, 5, 4, dtype="bf16"), strides=(4,)),
        make(real(1, 2, 3, 4, 3), real(2, 3, 2, 2, 2), strides=(2, 1, 2)),
        one(
            "plain_conv",
            "WideConvTranspose",
            [real(1, 3, 5, dtype="f16"), real(3, 4, 3, dtype="f16"), real(4)],
            [1, 2],
        ),
    ]


def symbolic_transposed() -> list[Case]:
    node = h.node(
        "ConvTranspose", [spec(N, 3, S, 4), spec(3, 5, 3, 3)], strides=(2, 2), pads=(1, 1, 1, 1)
    )
    x, w, bias, rest = real(2, 3, 4, 5), real(3, 5, 2, 2), real(5), real(2, 5, 5, 6)
    body: list[Any] = [("ConvTranspose", (0, 1, 2), {}), ("Relu", (4,), {}), ("Add", (5, 3), {})]
    case = Case(
        h.fused([x, w, bias, rest], body, constants=[1, 2], anchor=0),
        TACTICS["plain_conv"],
        [x, w, bias, rest],
    )
    return [case, *symbolic("plain_conv", [node], [{"n": 1, "s": 1}, {"n": 2, "s": 5}])]


def lines() -> list[Case]:
    """Ties, NaN, every axis, lines shorter and longer than a warp."""
    x = real(3, 40, 5, seed=7)
    x[0, 3], x[1, 7, 2], x[2, 9, 4] = x[0, 1], np.nan, np.inf
    ties, big = whole(4, 70, dtype="i64"), (whole(3, 9, dtype="u64").astype(np.uint64) << 60) + 1
    finite = np.nan_to_num(x, nan=1.0, posinf=2.0)
    out = [
        one("lines", f"Arg{m}", [a], axis=k, keepdims=not last, select_last_index=last)
        for m in ("Max", "Min")
        for a, k in ((x, 1), (ties, -1), (big, 0))
        for last in (False, True)
    ]
    out += [
        one("lines", "Hardmax", [a], axis=k)
        for a, k in ((x, 1), (real(5, 33, dtype="f16"), 1), (finite, 0))
    ]
    for name in ("CumSum", "CumProd"):
        rows = [(finite, 1), (whole(2, 70, dtype="i32") % 3, 1), (real(3, 4).astype(np.float64), 0)]
        ways = ((False, False), (True, True), (False, True))
        out += [
            one("lines", name, [a], axis=k, exclusive=e, reverse=r)
            for a, k in rows
            for e, r in ways
        ]
    return out


def group_norms() -> list[Case]:
    """Slices of pixels that end anywhere, every width, what is behind, symbols."""
    made = []
    shapes = (
        ("f16", 32, 4, (9, 3)),
        ("bf16", 24, 3, (5, 5)),
        ("f32", 16, 2, (40,)),
        ("f16", 66, 6, (17, 31)),
        ("f16", 8, 1, (3, 4, 5)),
        ("f32", 320, 32, (8, 9)),
        ("f16", 16, 16, (70, 10)),
    )
    for t, channels, groups, spatial in shapes:
        x = real(2, channels, *spatial, dtype=t) * 2 + 9
        s, b = real(channels, seed=1, dtype=t), real(channels, seed=2, dtype=t)
        made.append(one("group_norm", "GroupNormalization", [x, s, b], num_groups=groups))
    chain = [
        ("GroupNormalization", [0, 2, 2], {"num_groups": 2}),
        ("Mul", [4, 1], {}),
        ("Add", [5, 3], {}),
        ("Sub", [6, 0], {}),
    ]
    for t in FLOATS:
        y, gate = real(2, 8, 5, 7, dtype=t), real(1, 8, 1, 1, seed=1, dtype=t)
        operands = [y, gate, real(8, seed=2, dtype=t), y]
        made.append(group("group_norm", operands, chain, results=(7, 6), anchor=0))
    node = h.node("GroupNormalization", [spec(N, 16, S, 3), spec(16), spec(16)], num_groups=4)
    return made + symbolic("group_norm", [node])


def best() -> list[Case]:
    """The k best: ties, both zeros, NaN, all of a line, every way to find them."""
    x = real(3, 40, 5, seed=7)
    x[0, 3], x[1, 7, 2], x[2, 9, 4] = x[0, 1], np.nan, np.inf
    zeros = np.array([[0.0, -0.0, -1.0, -0.0, 0.0, 1.0]], np.float32)
    ties, big = whole(4, 70, dtype="i64"), (whole(3, 9, dtype="u64").astype(np.uint64) << 60) + 1
    some = [
        (x, 1, 6),
        (x, 1, 40),
        (zeros, 1, 4),
        (ties, 1, 70),
        (real(2, 3, 50, dtype="bf16"), -1, 1),
        (big, 1, 4),
        (real(2, 3000, seed=3), 1, 300),
        (real(1, 5000, dtype="f16"), 1, 33),
        (whole(2, 2100, dtype="i32") - 50, 1, 17),
        (whole(2, 300, dtype="u8"), 1, 129),
        (whole(2, 300, dtype="i8"), 1, 16),
    ]
    return [
        one("top", "TopK", [a], k=n, axis=k, largest=largest)
        for largest in (True, False)
        for a, k, n in some
    ]


def norms() -> list[Case]:
    x, zeros = real(2, 40, 5), real(3, 7)
    zeros[1] = 0
    out = [
        one("lines", "LpNormalization", [a], axis=k, p=p)
        for a, k in ((x, 1), (zeros, -1))
        for p in (1, 2)
    ]
    out.append(one("lines", "LpNormalization", [real(4, 3).astype(np.float64)], axis=0))
    attrs = {"alpha": 0.3, "beta": 0.7, "bias": 1.5}
    return [
        *out,
        *(
            one("lines", "LRN", [a], size=n, **attrs)
            for a in (x, real(1, 3, 4, 4, dtype="f16"))
            for n in (3, 4)
        ),
    ]


def resizes() -> list[Case]:
    x = real(2, 3, 7, 9)

    def make(array: Any, *sizes: int, **attrs: Any) -> Case:
        return one("resize", "Resize", [array], sizes=(*array.shape[:2], *sizes), **attrs)

    modes = (
        "half_pixel",
        "align_corners",
        "asymmetric",
        "pytorch_half_pixel",
        "half_pixel_symmetric",
    )
    out = [
        make(x, 14, 5, mode=m, coordinate_transformation_mode=c)
        for m in ("nearest", "linear", "cubic")
        for c in modes
    ]
    out += [make(x, 3, 4, mode=m, antialias=True) for m in ("linear", "cubic")]
    out.append(make(x, 15, 20, mode="linear", scales=(1.0, 1.0, 2.2, 2.3)))
    out.append(make(x, 4, 20, mode="cubic", exclude_outside=True, cubic_coeff_a=-0.5))
    out.append(make(whole(2, 3, 4, 5, dtype="u8"), 8, 10, nearest_mode="floor"))
    out.append(make(real(1, 2, 6, dtype="f16"), 13, mode="linear"))
    # runs of channels of every width, in nhwc and as the last axis
    for dtype, channels in (("f16", 16), ("bf16", 8), ("f32", 6), ("f16", 3)):
        image = real(2, channels, 4, 3, dtype=dtype)
        out += [make(image, 7, 6, mode=m) for m in ("nearest", "linear", "cubic")]
        out.append(
            one(
                "resize",
                "Resize",
                [real(2, 4, 3, channels, dtype=dtype)],
                sizes=(2, 8, 2, channels),
                mode="linear",
            )
        )
    out.append(make(real(1, 8, 5, dtype="f16"), 9, mode="linear"))
    out.append(make(real(0, 8, 5, 2, dtype="f16"), 9, 4, mode="linear"))
    free = h.node("Resize", [spec(N, 3, 4, 4)], sizes=(N, 3, 8, 8), mode="linear")
    return [*out, *symbolic("resize", [free], [{"n": 1}, {"n": 3}])]


def symbolic_resizes() -> list[Case]:
    """Sizes that only running tells: every way to place and to round, scales that are given."""
    ways = {
        "half_pixel": "round_prefer_floor", "half_pixel_symmetric": "round_prefer_ceil", "asymmetric": "floor",
        "align_corners": "ceil", "pytorch_half_pixel": "simple", "tf_half_pixel_for_nn": "floor",
    }  # fmt: skip
    x, doubled = spec(N, 3, S, 5), (N, 3, 2 * S, 8)
    nodes = [
        h.node(
            "Resize", [x], sizes=doubled, mode=m, coordinate_transformation_mode=c, nearest_mode=r
        )
        for m in ("nearest", "linear", "cubic")
        for c, r in ways.items()
    ]
    nodes += [
        h.node("Resize", [x], sizes=(N, 3, 7, 5), mode=m, exclude_outside=m == "cubic")
        for m in ("linear", "cubic")
    ]
    halved = (N, 3, floordiv(S * 3, 2), 5)
    nodes.append(h.node("Resize", [x], sizes=halved, scales=(1.0, 1.0, 1.5, 1.0), mode="linear"))
    nodes.append(h.node("Resize", [spec(N, S, dtype="u8")], sizes=(N, 4)))
    nodes.append(h.node("Resize", [spec(N, S, S, dtype="f16")], sizes=(N, S + 3, 2), mode="linear"))
    return symbolic("resize", nodes, [{"n": 1, "s": 1}, {"n": 2, "s": 6}, {"n": 1, "s": 13}])


def grids() -> list[Case]:
    rng = np.random.default_rng(9)
    x, grid = real(2, 3, 5, 6), rng.uniform(-1.7, 1.7, (2, 4, 3, 2)).astype(np.float32)
    deep = [real(1, 2, 4, 3, 5), rng.uniform(-1.7, 1.7, (1, 2, 3, 4, 3)).astype(np.float32)]
    pads = ("zeros", "border", "reflection")
    out = [
        one("grid_sample", "GridSample", [x, grid], mode=m, padding_mode=p, align_corners=a)
        for m in ("linear", "nearest", "cubic")
        for p in pads
        for a in (False, True)
    ]
    return [
        *out,
        *(
            one("grid_sample", "GridSample", deep, mode=m, padding_mode=p)
            for m in ("linear", "cubic")
            for p in pads
        ),
        *(
            one("grid_sample", "GridSample", [x, grid.astype(np.float64)], mode=m)
            for m in ("linear", "cubic")
        ),
    ]


def affine_grids() -> list[Case]:
    """Both places of corners, two and three axes, axes of one element and of none, symbols."""
    made = []
    for t, sizes in (
        ("f32", (4, 5)), ("f16", (1, 70)), ("f64", (3, 2, 7)), ("bf16", (3, 1, 2)), ("f32", (0, 4)),
    ):  # fmt: skip
        theta = real(3, len(sizes), len(sizes) + 1).astype(DType(t).numpy)
        arrays = [theta, np.array((3, 1, *sizes))]
        made += [
            one("affine_grid", "AffineGrid", arrays, [1], align_corners=a) for a in (False, True)
        ]
    size = TensorSpec(DType.INT64, (4,), value=(N, 1, S, 9))
    nodes = [h.node("AffineGrid", [spec(N, 2, 3), size], align_corners=a) for a in (False, True)]
    for node in nodes:
        for n, s in ((1, 1), (3, 37), (0, 4)):
            arrays = [real(n, 2, 3), np.array([n, 1, s, 9])]
            made.append(Case(node, TACTICS["affine_grid"], arrays, {"n": n, "s": s}))
    return made


def regions() -> list[Case]:
    """Both modes, samples by number and by size, regions beyond the image, turned around, of no
    size, far larger than it, an image without elements, symbols.
    """
    rng, made = np.random.default_rng(5), []

    def corners(count: int, reach: float, dtype: str) -> Any:
        ends = np.sort(rng.uniform(-reach, 13 + reach, (count, 2, 2)), axis=1)
        return ends.reshape(count, 4).astype(DType(dtype).numpy)

    for t, r, reach, attrs in (
        ("f32", "f32", 3.0, {}),
        ("f16", "f32", 30.0, {"mode": "max"}),
        ("bf16", "f16", 2.0, {"sampling_ratio": 2, "spatial_scale": 0.5}),
        ("f64", "f64", 4.0, {"mode": "max", "sampling_ratio": 3}),
        ("f32", "f64", 9.0, {"coordinate_transformation_mode": "output_half_pixel"}),
    ):
        x, at, owners = real(2, 5, 13, 17, dtype=t), corners(7, reach, r), rng.integers(-2, 2, 7)
        sizes = {"output_height": 3, "output_width": 5}
        made.append(one("roi_align", "RoiAlign", [x, at, owners], **sizes, **attrs))
        at = np.hstack([np.abs(owners[:, None]) % 2, at])
        pooled = {"pooled_shape": (3, 4), "spatial_scale": attrs.get("spatial_scale", 1.0)}
        made.append(one("max_roi_pool", "MaxRoiPool", [x, at], **pooled))
    wild = np.array(
        [[9, 9, 2, 3], [4, 4, 4, 4], [2, 5, 9, 5], [9, 2, 3, 8], [-300, -200, 400, 600]], np.float32
    )
    x, owners = real(1, 2, 13, 17), np.zeros((5, 1), np.int32)
    made += [
        one("roi_align", "RoiAlign", [x, wild[:n], owners[:n, 0]], mode=m, output_width=2)
        for n, m in ((5, "avg"), (5, "max"), (0, "avg"))
    ]
    x = x.copy()
    x[0, 0, 4, 5], x[0, 1] = np.nan, -np.inf
    pooled = {"pooled_shape": (3, 4)}
    made.append(one("max_roi_pool", "MaxRoiPool", [x, np.hstack([owners, wild])], **pooled))
    image = spec(2, 3, S, 15)
    align = h.node("RoiAlign", [image, spec(N, 4), spec(N, dtype="i64")], output_height=2)
    made += symbolic("roi_align", [align])
    pool = h.node("MaxRoiPool", [image, spec(N, 5)], **pooled)
    return made + symbolic("max_roi_pool", [pool], [*ENVS, {"n": 2, "s": 0}])


def deformable() -> list[Case]:
    """Groups, strides, dilations, pads, with and without bias and mask, offsets far outside, every
    dtype, more channels and weights than a block has at once, symbols.
    """

    def made(
        x: tuple[int, ...],
        w: tuple[int, ...],
        out: tuple[int, int],
        t: str,
        rest: str,
        **attrs: Any,
    ) -> Case:
        taps = attrs.get("offset_group", 1) * w[2] * w[3]
        shapes = [x, w, (x[0], taps * 2, *out), (w[0],), (x[0], taps, *out)]
        kept = ["x", "w", "o", *rest]
        arrays = [
            real(*s, dtype=t, seed=i) if name in kept else None
            for i, (s, name) in enumerate(zip(shapes, "xwobm", strict=True))
        ]
        arrays[2] = (arrays[2].astype(np.float32) * 2).astype(arrays[0].dtype)
        arrays[2].flat[:6] = [3e4, -3e4, np.inf, -5.0, 4.99, -0.5]
        return one("deformable", "DeformableConvolution", arrays, **attrs)

    cases = [
        made((2, 3, 9, 11), (7, 3, 3, 3), (9, 11), "f32", "bm", pads=(1, 1, 1, 1)),
        made((1, 4, 9, 11), (6, 2, 3, 2), (7, 10), "f16", "", group=2),
        made((1, 4, 9, 11), (70, 4, 2, 2), (8, 10), "bf16", "b", offset_group=2),
        made((2, 8, 6, 7), (36, 2, 3, 3), (6, 6), "f64", "m", group=4, offset_group=2, pads=(2, 1, 0, 0)),
        made((1, 2, 19, 23), (3, 2, 3, 3), (8, 7), "f32", "b", strides=(2, 3), dilations=(2, 1)),
    ]  # fmt: skip
    x, w, offset = spec(N, 4, S + 2, 7), spec(6, 4, 3, 3), spec(N, 18, S, 5)
    return cases + symbolic(
        "deformable", [h.node("DeformableConvolution", [x, w, offset, None, None])]
    )


def linear_attentions() -> list[Case]:
    """Every rule with and without what is optional, every dtype, odd heads and those of many keys,
    queries that share states, decays of keys, symbols.
    """

    def arrays(t: str, b: int, steps: int, keys: int, values: int, shared: int, more: str) -> Any:
        """``more``: s state, d decay of a head, D of each key, b beta of a head, B of all."""
        made = [real(b, steps, 2 * shared * keys), *(real(b, steps, 2 * n) for n in (keys, values))]
        decay = real(b, steps, 2 * (keys if "D" in more else 1), seed=3)
        made.append(real(b, 2, keys, values, seed=2) if "s" in more else None)
        made.append(-np.abs(decay) if "d" in more.lower() else None)
        made.append(
            real(b, steps, 1 if "B" in more else 2, seed=4) if "b" in more.lower() else None
        )
        return [None if x is None else (x * 0.3).astype(DType(t).numpy) for x in made]

    name, op, cases = "linear_attention", "LinearAttention", []
    for given, shared, attrs in (
        (arrays("f32", 2, 5, 7, 37, 1, "sdb"), 1, {}),
        (arrays("f16", 1, 4, 64, 9, 3, "sd"), 3, {"update_rule": "gated", "scale": 0.5}),
        (arrays("bf16", 2, 3, 33, 8, 1, "B"), 1, {"update_rule": "delta"}),
        (arrays("f64", 1, 6, 40, 5, 2, "sDB"), 2, {}),
        (arrays("f32", 1, 2, 1, 1, 2, "sb"), 2, {"update_rule": "linear"}),
        (arrays("f32", 2, 0, 5, 4, 1, "s"), 1, {}),
    ):
        attrs = {"q_num_heads": 2 * shared, "kv_num_heads": 2, **attrs}
        cases.append(one(name, op, given, **attrs))
    x = spec(N, S, 10)
    node = h.node(op, [x, x, x, spec(N, 2, 5, 5), spec(N, S, 2)], q_num_heads=2, kv_num_heads=2)
    for env in ENVS:
        given = arrays("f32", env["n"], env["s"], 5, 5, 1, "sd")
        cases.append(Case(node, TACTICS[name], [g for g in given if g is not None], env))
    return cases


def transforms() -> list[Case]:
    """There and back, real and complex, halves of even and odd lengths, cut and filled, any axis,
    frames with and without windows, every dtype, symbols.
    """

    def dft(shape: tuple[int, ...], t: str, **attrs: Any) -> Case:
        return one("fourier", "DFT", [real(*shape).astype(DType(t).numpy)], **attrs)

    made = [
        dft((2, 37, 1), "f32", axis=1),
        dft((3, 100, 2), "f64", axis=1, inverse=True),
        dft((2, 8, 5, 2), "f32", axis=1, length=11),
        dft((9, 4, 2), "f16", axis=0, length=6, onesided=True),
        dft((2, 7, 2), "bf16", axis=-2, inverse=True, onesided=True),
        dft((2, 7, 3, 2), "f32", axis=1, inverse=True, onesided=True, length=9),
        dft((1, 4, 1), "f32", axis=1, inverse=True, onesided=True, length=2),
        dft((0, 5, 1), "f32", axis=1),
    ]
    x, window = real(2, 90, 1), np.hanning(24).astype(np.float32)
    frames = {"frame_step": 7, "frame_length": 24}
    made.append(one("fourier", "STFT", [x, window], **frames))
    made.append(one("fourier", "STFT", [real(1, 40, 2)], onesided=False, **frames))
    nodes = [
        h.node("STFT", [spec(N, S + 30, 1, dtype="f16"), spec(24, dtype="f16")], **frames),
        h.node("DFT", [spec(N, 6, S, 2)], axis=1),
    ]
    return made + symbolic("fourier", nodes)


def symbolic_lines() -> list[Case]:
    x = spec(N, S, 3)
    nodes = [
        h.node("ArgMax", [x], axis=1),
        h.node("CumSum", [x], axis=1),
    ]
    return symbolic("lines", nodes, [{"n": 1, "s": 1}, {"n": 3, "s": 37}])


def symbolic_best() -> list[Case]:
    nodes = [
        h.node("TopK", [spec(N, S, 3)], k=1, axis=1),
        h.node("TopK", [spec(N, 3, 60)], k=7),
    ]
    return symbolic("top", nodes, [{"n": 1, "s": 1}, {"n": 3, "s": 37}])


def scatters() -> list[Case]:
    """Updates that replace do not collide; those that are joined do, where their order makes no
    difference.
    """
    rng = np.random.default_rng(3)
    x, many = real(4, 6, 5), rng.integers(-6, 6, (4, 9, 5))
    apart = (
        np.stack([rng.permutation(6)[:3] for _ in range(20)]).reshape(4, 5, 3).transpose(0, 2, 1)
    )
    places = np.array([[[0, 1], [3, -1]], [[2, 5], [1, 0]]])
    out = [one("scatter", "ScatterElements", [x, apart, real(4, 3, 5, seed=1)], axis=1)]
    out.append(
        one("scatter", "ScatterElements", [x > 0, apart, real(4, 3, 5, seed=1) > 0], axis=-2)
    )
    for how in ("add", "mul", "min", "max"):
        out.append(
            one(
                "scatter",
                "ScatterElements",
                [x, many, real(4, 9, 5, seed=1)],
                axis=1,
                reduction=how,
            )
        )
        for t in ("i64", "i32", "i16", "u32"):
            data = [whole(4, 6, 5, dtype=t), many, whole(4, 9, 5, dtype=t, seed=2) % 3]
            out.append(one("scatter", "ScatterElements", data, axis=1, reduction=how))
        double = [real(4, 6, 3).astype(np.float64), places, real(2, 2, 3).astype(np.float64)]
        out.append(one("scatter", "ScatterND", double, reduction=how))
    out.append(one("scatter", "ScatterND", [x, places, real(2, 2, 5, seed=1)]))
    out.append(
        one(
            "scatter",
            "ScatterND",
            [real(9, dtype="f16"), np.array([[3], [7]]), real(2, dtype="f16", seed=1)],
        )
    )
    for mode, at in (("linear", [1, 0]), ("circular", [3, 4])):
        cache = [real(2, 3, 5, 4), real(2, 3, 3, 4, seed=1), np.array(at)]
        out.append(one("scatter", "TensorScatter", cache, mode=mode))
    return [*out, one("scatter", "TensorScatter", [real(2, 5, 4), real(2, 2, 4, seed=1)])]


def unpooled() -> list[Case]:
    """Results as the windows fit, larger and smaller ones, every width, symbols."""
    rng, made, attrs = np.random.default_rng(4), [], {"kernel_shape": (2, 2), "strides": (2, 2)}

    def places(shape: tuple[int, ...], small: int, dtype: Any) -> Any:
        return rng.permutation(small)[: int(np.prod(shape))].reshape(shape).astype(dtype)

    for t, shape in (
        ("f32", None), ("f16", (2, 3, 8, 10)), ("i8", (2, 3, 11, 13)), ("f64", (2, 4, 6, 12)),
    ):  # fmt: skip
        x = whole(2, 3, 4, 5, dtype="i32").astype(DType(t).numpy)
        arrays = [x, places(x.shape, 480, np.int64), None if shape is None else np.array(shape)]
        made.append(one("unpool", "MaxUnpool", arrays, [2] if shape else [], **attrs))
    line = [real(1, 2, 7, dtype="bf16"), places((1, 2, 7), 28, np.int32), None]
    made.append(one("unpool", "MaxUnpool", line, kernel_shape=(2,), strides=(2,)))
    node = h.node("MaxUnpool", [spec(N, 2, S, 3), spec(N, 2, S, 3, dtype="i64"), None], **attrs)
    for n, s in ((0, 4), (2, 1), (1, 9)):
        shape = (n, 2, s, 3)
        arrays = [real(*shape), places(shape, 4 * int(np.prod(shape)), np.int64)]
        made.append(Case(node, TACTICS["unpool"], arrays, {"n": n, "s": s}))
    return made


def quantized() -> list[Case]:
    x, scale = real(3, 6, 5) * 4, np.abs(real(6)) + 0.1
    blocks = np.abs(real(3, 3, 5)) + 0.1
    out = []
    for t in (np.uint8, np.int8, np.int16, np.uint16):
        zero, dtype = np.arange(6).astype(t), DType.of(np.dtype(t))
        out.append(
            one(
                "quantize",
                "QuantizeLinear",
                [x, np.float32(0.3).reshape(()), zero[3].reshape(())],
                dtype=dtype,
            )
        )
        out.append(one("quantize", "QuantizeLinear", [x, scale, zero], axis=1, dtype=dtype))
        out.append(
            one("quantize", "QuantizeLinear", [x, blocks], axis=1, block_size=2, dtype=dtype)
        )
    for name in ("u8", "i8", "i32", "u16"):
        q, zero = whole(3, 6, 5, dtype=name), whole(6, dtype=name, seed=1)
        out.append(one("quantize", "DequantizeLinear", [q, scale, zero], axis=1))
        out.append(one("quantize", "DequantizeLinear", [q, blocks], axis=-2, block_size=2))
        out.append(one("quantize", "DequantizeLinear", [q, np.float16([0.25])], dtype=DType.FP16))
    return [*out, *small_floats()]


def small_floats() -> list[Case]:
    """All codes of 8 bits, what lies half way between two, beyond them and below, and no numbers."""
    far = np.float32(
        [1e30, -1e30, np.inf, -np.inf, np.nan, -0.0, 464, -465, 1e-3, 2**-10, 57344, 61441]
    )
    out = []
    for t in (DType.FP8, DType.FP8E5M2):
        codes = np.arange(256, dtype=np.uint8).view(t.numpy)
        finite = np.sort(codes.astype(np.float32)[np.isfinite(codes.astype(np.float32))])
        between = (finite[1:] + finite[:-1]) / 2
        numbers = np.r_[finite, between, np.nextafter(between, np.float32(np.inf)), far]
        finite8, scale = finite.astype(t.numpy)[:240].reshape(4, 60), np.abs(real(4)) + 0.1
        blocks = np.abs(real(2, 60)) + 0.1
        out += [
            one("pointwise", "Cast", [codes], to=DType.FP32),
            one("pointwise", "Cast", [numbers.astype(np.float32)], to=t),
            one("pointwise", "Cast", [numbers.astype(np.float32)[:99]], to=t),
            one("quantize", "QuantizeLinear", [real(4, 6) * 9, scale], axis=0, dtype=t),
            one("quantize", "DequantizeLinear", [finite8, scale], axis=0),
            one("quantize", "DequantizeLinear", [finite8, blocks], axis=0, block_size=2),
            one("quantize", "DequantizeLinear", [finite8, np.float16([0.25])], dtype=DType.FP16),
        ]
    return out


def products() -> list[Case]:
    def double(*shape: int) -> Any:
        return real(*shape).astype(np.float64)

    byte = np.random.default_rng(1).integers(-128, 128, (9, 13)).astype(np.int8)
    c = np.arange(13, dtype=np.int32) * 50
    return [
        one("plain_product", "MatMul", [double(2, 3, 7, 9), double(3, 9, 5)]),
        one("plain_product", "MatMul", [whole(7, 9), whole(9, 5)]),
        one("plain_product", "MatMul", [whole(4, 9, dtype="u64"), whole(9, dtype="u64")]),
        one(
            "plain_product",
            "Gemm",
            [double(9, 7), double(5, 9), double(5)],
            [1],
            transA=True,
            transB=True,
            alpha=0.5,
        ),
        one("plain_product", "IntegerMatMul", [whole(2, 5, 9, dtype="u8"), byte, c], [1, 2]),
        one("plain_product", "IntegerMatMul", [whole(5, 9, dtype="i8"), byte]),
    ]


def rows_of_few_bits() -> list[Case]:
    """Widths, rows that end within a byte and a block, zero points, indices from the end."""
    rng, made = np.random.default_rng(6), []
    kinds = ((4, 32, 96, "", "f32"), (4, 16, 37, "u8", "f16"), (8, 5, 21, "f32", "bf16"),
             (2, 32, 50, "f16", "f32"), (2, 8, 64, "", "f16"))  # fmt: skip
    for bits, block, columns, zeros, scales in kinds:
        blocks = -(-columns // block)
        arrays = [
            rng.integers(0, 256, (19, -(-columns * bits // 8)), np.uint8),
            rng.integers(-19, 19, (2, 3)),
            rng.uniform(0.01, 0.1, (19, blocks)).astype(DType(scales).numpy),
        ]
        if zeros:
            points = rng.integers(0, 1 << bits, (19, blocks))
            arrays.append(points.astype(DType(zeros).numpy))
        fields = {"columns": columns, "bits": bits, "block_size": block}
        fixed = [i for i in range(len(arrays)) if i != 1]
        made.append(one("few_bits_rows", "FewBitsGather", arrays, fixed, **fields))
    table, scale = made[0].node.given[0].spec, made[0].node.given[2].spec
    free = h.node("FewBitsGather", [table, spec(N, dtype="i32"), scale], columns=96)
    return made + symbolic("few_bits_rows", [free])


TABLE: dict[str, Callable[[], list[Case]]] = {
    "lstm": lstms,
    "gru": grus,
    "rnn": rnns,
    "recurrent symbolic": symbolic_recurrent,
    "convolution": convolutions,
    "integers": integers,
    "transposed": transposed,
    "transposed symbolic": symbolic_transposed,
    "lines": lines,
    "best": best,
    "group norms": group_norms,
    "lines symbolic": symbolic_lines,
    "best symbolic": symbolic_best,
    "norms": norms,
    "resize": resizes,
    "resize symbolic": symbolic_resizes,
    "grid sample": grids,
    "affine grid": affine_grids,
    "regions": regions,
    "deformable": deformable,
    "linear attention": linear_attentions,
    "transforms": transforms,
    "scatter": scatters,
    "unpooled": unpooled,
    "quantize": quantized,
    "rows of few bits": rows_of_few_bits,
    "plain products": products,
}

__all__ = ["TABLE", "TACTICS", "whole"]
