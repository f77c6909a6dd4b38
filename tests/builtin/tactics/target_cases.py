"""Small nodes of odd sizes, one or more for every tactic with machine code, for any target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import harness as h
import numpy as np
from bytes_cases import biases, product, requantised, whole_range
from prepared_cases import gated

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC, TensorSpec, blocked
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.region import REFORMAT
from tactix.contracts.tactic import Tactic
from tactix_cpu.tactics import all_tactics

TACTICS: Mapping[str, Tactic] = {t.key: t for t in all_tactics() if t.source in ("c", "winograd")}
RNG = np.random.default_rng(41)
UNARY = (
    "Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Tanh", "Sigmoid", "Relu", "LeakyRelu", "Elu", "Selu",
    "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Gelu", "Mish", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos",
)  # fmt: skip
Nodes = Sequence[tuple[str, Sequence[int], Mapping[str, Any]]]
PADS: Any = {"pads": (1, 1, 1, 1)}
NEAREST: Any = {
    "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor",
}  # fmt: skip


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32)


def halves(*shape: int) -> Any:
    return floats(*shape).astype(DType.BF16.numpy)


def integers(code: str, *shape: int) -> Any:
    return RNG.integers(-9, 9, shape).astype(DType(code).numpy)


def case(name: str, node: Node, arrays: Sequence[Any], **more: Any) -> h.Case:
    """A case of the tactic ``tactix.c_<name>@1``."""
    return h.Case(node, TACTICS[f"tactix.c_{name}@1"], arrays, **more)


def plain(
    tactic: str, layer: Any, arrays: Sequence[Any], constants: Sequence[int] = (), **attrs: Any
) -> h.Case:
    return case(
        tactic, h.node(layer, arrays, constants, **attrs), [x for x in arrays if x is not None]
    )


def weighed(tactic: str, layer: str, arrays: Sequence[Any], **attrs: Any) -> h.Case:
    """All but the first input are constants."""
    return plain(tactic, layer, arrays, range(1, len(arrays)), **attrs)


def table(device: DeviceProperties) -> list[h.Case]:
    """Every case, for that device."""
    parts = (
        pointwise(),
        reductions(),
        movement(),
        selections(),
        scatters(),
        pools(),
        samples(),
        windows(),
        reformats(device.lanes),
        joined_groups(device.lanes),
        products(),
        recurrent(),
        few_bits(),
        calculations(),
    )
    convolutions_and_bytes = (
        convolutions(),
        chains(),
        integer_products(),
        integer_windows(),
        bfloat16(),
        deep(),
        matrix_unit(),
    )
    return [h.replace(c, device=device) for part in (*parts, *convolutions_and_bytes) for c in part]


def pointwise() -> Iterator[h.Case]:
    x, y, c = floats(2, 19, 3, 7), floats(19, 1, 1), RNG.integers(0, 2, (5, 37)).astype(bool)
    positive = np.abs(x) + np.float32(0.1)
    everything = [(op, (0,), {}) for op in UNARY]
    yield case(
        "pointwise", h.fused([positive], everything, range(1, 1 + len(everything))), [positive]
    )
    steps: Nodes = [
        ("Add", (0, 1), {}),
        ("Clip", (2,), {"min": -1.0, "max": 1.5}),
        ("Max", (3, 0), {}),
    ]
    yield case("pointwise", h.fused([x, y], steps), [x, y])
    wild = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -3e38, -10.8, 1.5] * 5, np.float32)
    steps = [
        *((op, (0,), {}) for op in ("Relu", "Tanh", "Sign", "Round", "Sigmoid", "Acosh")),
        ("Min", (0, 1), {}),
    ]
    yield case(
        "pointwise",
        h.fused([wild, wild[::-1].copy()], steps, range(2, 9)),
        [wild, wild[::-1].copy()],
    )
    edges = np.array(
        [np.nan, np.inf, 65504, 65519, 65520, 6e-8, 2.9e-8, -3.1e-5, 1 + 2**-11, 1 + 2**-8],
        np.float32,
    )
    for half in (DType.FP16, DType.BF16):
        yield case("pointwise", h.node("Cast", [edges], to=half), [edges], budget=0)
        with np.errstate(over="ignore"):
            yield plain("pointwise", "Cast", [edges.astype(half.numpy)], to=DType.FP32)
    for code in ("f16", "bf16", "f64", "i8", "i64"):
        z = (floats(5, 37) * 9).astype(DType(code).numpy)
        yield plain("pointwise", "Mul", [z, z])
        yield plain("pointwise", "Cast", [z], to=DType.FP32 if code != "i64" else DType.UINT8)
        yield plain("pointwise", "Cast", [floats(5, 37) * 50], to=DType(code))
    yield plain("pointwise", "Where", [c, floats(5, 37), floats(37)])
    yield plain("pointwise", "LessOrEqual", [floats(5, 37), floats(5, 1)])
    yield plain("pointwise", "Mod", [integers("i32", 5, 37), integers("i32", 5, 37) + 20])


def reductions() -> Iterator[h.Case]:
    x = floats(7, 101) * np.float32(0.1) + 1
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
        yield from (plain("reduce", op, [x], axes=axes) for axes in ((1,), (0,)))
    yield plain("reduce", "ReduceMax", [integers("i64", 3, 5, 7)], axes=(0, 2))
    yield plain("reduce", "ReduceSum", [floats(3, 50).astype(np.float16)], axes=(1,))
    yield plain("reduce", "GlobalAveragePool", [floats(2, 19, 5, 7)])
    for op in ("Softmax", "LogSoftmax"):
        yield from (plain("softmax", op, [floats(5, 37, 3) * 5], axis=axis) for axis in (1, 2))
    for op, shape in (("LayerNormalization", (37,)), ("RMSNormalization", (37,))):
        yield plain("norm", op, [floats(7, 37), floats(*shape)])
        yield plain(
            "rows_of_doubles", op, [g.astype(np.float64) for g in (floats(7, 37), floats(*shape))]
        )
    yield plain("rows_of_doubles", "Softmax", [floats(5, 7, 3).astype(np.float64)], axis=1)
    for tactic in ("norm", "group_norm"):
        yield plain(tactic, "InstanceNormalization", [floats(2, 19, 5, 7), floats(19), floats(19)])
        given = [floats(2, 18, 5, 7), floats(18), floats(18)]
        yield plain(tactic, "GroupNormalization", given, num_groups=3)


def movement() -> Iterator[h.Case]:
    x = floats(3, 37, 19)
    yield from (plain("move", "Transpose", [x], perm=p) for p in ((0, 2, 1), (2, 0, 1), (1, 2, 0)))
    yield plain("move", "Transpose", [whole_range(np.uint8, 37, 45)], perm=(1, 0))
    yield plain("move", "Concat", [x, floats(3, 5, 19)], axis=1)
    yield plain("move", "Split", [x], axis=2, sizes=(7, 12))
    yield plain("move", "Roll", [x], begins=(30, 18), axes=(1, 2))
    yield plain("move", "DepthToSpace", [floats(1, 64, 5, 3)], blocks=(2, 2))
    yield plain("move", "Slice", [x], begins=(30, 18), sizes=(5, 7), axes=(1, 2), steps=(-3, -2))
    yield plain("move", "Pad", [x], pads=(0, 1, 2, 1, 0, 3), mode="constant", value=1.5)
    yield plain("pad_tables", "Pad", [x], pads=(0, 1, 2, 1, 0, 3), mode="reflect")
    yield plain("told_move", "DynamicTile", [x, np.array((1, 2, 3))])
    yield plain("told_reduce", "DynamicReduce", [x, np.array((1,))], reduction="ReduceMean")
    yield plain("told_reshape", "DynamicReshape", [x, np.array((0, -1))])
    yield plain("told_fill", "DynamicFill", [np.array((3, 37))], value=1.5)
    numbers = [TensorSpec(DType.FP32, ()) for _ in range(3)]
    limits = [np.array(v, np.float32) for v in (2, 40, 1.5)]
    yield case("told_range", h.node("Range", numbers, symbol="count"), limits)
    yield plain("told_one_hot", "DynamicOneHot", [integers("i32", 9), np.array(7), floats(2)])
    yield plain("categories", "OneHotCategories", [integers("i64", 9), np.array([3, 7, -1])])
    yield plain("move", "Expand", [floats(3, 1, 19)], shape=(2, 3, 5, 19))
    yield plain("move", "Tile", [x], repeats=(1, 2, 3))
    yield plain("gather", "Gather", [x, np.array([[5, -1, 0]])], axis=1)
    yield plain("gather", "GatherElements", [x, RNG.integers(-19, 19, (3, 37, 4))], axis=2)
    yield plain("gather", "GatherND", [x, RNG.integers(0, 3, (5, 2))], batch_dims=0)
    yield plain("generate", "Range", [np.array(v, np.float32) for v in (1, 20, 3)], (0, 1, 2))
    n = dims.sym("n")
    for made in (
        h.node("Fill", [], shape=(3, n), value=2.5),
        h.node("Dims", [], values=(n, n + 1), shape=(2,)),
    ):
        yield case("generate", made, [], env={"n": 7})


def selections() -> Iterator[h.Case]:
    x = floats(3, 300, 19)
    yield plain("topk", "TopK", [x], k=5, axis=1)
    yield plain("topk", "TopK", [integers("i64", 2, 700)], k=600, largest=False)
    yield from (plain("extreme", "ArgMax", [x.astype(np.float16)], axis=a) for a in (1, 2))
    yield plain("extreme", "ArgMin", [floats(700).astype(np.float64)], axis=0)
    yield plain("extreme", "Hardmax", [x], axis=1)
    some = RNG.integers(0, 2, (3, 300, 19)).astype(np.float16)
    yield plain("nonzero", "NonZero", [some])
    yield plain("compress", "Compress", [x, some[0, :, 0] > 0], axis=1)
    yield plain("dynamic_topk", "DynamicTopK", [x, np.array(9)], axis=1)
    yield plain("unique", "Unique", [some])
    yield plain("unique_slices", "Unique", [integers("i8", 40, 2)], axis=0)
    limits = [np.array(30), np.array(0.4, np.float32)]
    yield plain("suppression", "NonMaxSuppression", [floats(1, 90, 4), floats(1, 2, 90), *limits])
    detected = [floats(2, 90, 1, 4), floats(2, 90, 3)]
    yield plain("combined_suppression", "CombinedSuppression", detected, rows=9, class_rows=4)


def scatters() -> Iterator[h.Case]:
    x, at = floats(9, 19).astype(np.float16), RNG.integers(-9, 9, (13, 19))
    yield plain("scatter", "ScatterElements", [x, at, floats(13, 19).astype(np.float16)])
    slices = [x, at[:, :1], floats(13, 19).astype(np.float16)]
    yield plain("scatter", "ScatterND", slices, reduction="add")
    cache = [floats(2, 9, 19), floats(2, 3, 19), np.array([5, 0])]
    yield plain("tensor_scatter", "TensorScatter", cache, axis=1)
    yield plain("reverse_sequence", "ReverseSequence", [floats(5, 3, 7), np.array([5, 0, 2])])
    yield from (plain("cumulative", "CumSum", [floats(5, 19, 7)], axis=a) for a in (1, 2))


def pools() -> Iterator[h.Case]:
    x = floats(2, 19, 9, 37)
    for op in ("MaxPool", "AveragePool"):
        yield plain("pool", op, [x], kernel_shape=(3, 3), strides=(2, 2), **PADS)
        yield plain("pool", op, [x], kernel_shape=(2, 3), dilations=(2, 2), pads=(1, 2, 1, 2))
    yield plain(
        "int8_pool",
        "MaxPool",
        [whole_range(np.uint8, 2, 19, 9, 7)],
        kernel_shape=(3, 2),
        strides=(2, 1),
    )


def samples() -> Iterator[h.Case]:
    x = floats(2, 3, 9, 21)
    for mode in ("nearest", "linear", "cubic"):
        yield plain("resize", "Resize", [x], sizes=(2, 3, 20, 42), mode=mode)
        yield plain("resize", "Resize", [x], sizes=(2, 3, 5, 11), mode=mode)
    yield plain(
        "resize", "Resize", [whole_range(np.uint8, 2, 3, 9, 21)], sizes=(2, 3, 18, 42), **NEAREST
    )
    yield plain("resize", "Resize", [x.astype(np.float16)], sizes=(2, 3, 5, 33), mode="linear")
    scales = np.array([1, 1, 1.7, 0.6], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        yield plain("dynamic_resize", "DynamicResize", [x, None, scales], mode=mode)
    grid = RNG.uniform(-1.2, 1.2, (2, 5, 21, 2)).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        yield plain("grid_sample", "GridSample", [x, grid], mode=mode)
    yield plain("grid_sample", "GridSample", [x.astype(np.float16), grid])
    regions = np.array([[1, 1, 9, 7], [3.5, 0, 30, 4], [-4, 2, 6, 12]], np.float32)
    bins = {"output_height": 2, "output_width": 3}
    for mode in ("avg", "max"):
        yield plain("roi_align", "RoiAlign", [x, regions, np.array([0, 1, 1])], mode=mode, **bins)
    owned = np.hstack([np.array([[0], [1], [1]], np.float32), regions])
    yield plain("max_roi_pool", "MaxRoiPool", [x, owned], pooled_shape=(3, 2))
    moved = [floats(1, 4, 9, 11), floats(7, 4, 3, 3), floats(1, 18, 9, 11), floats(7)]
    yield plain("deformable", "DeformableConvolution", [*moved, floats(1, 9, 9, 11)], **PADS)


def windows() -> Iterator[h.Case]:
    x = floats(2, 7, 9, 37)
    window: Any = {"kernel_shape": (3, 3), "strides": (2, 2), **PADS}
    yield plain("windows", "MaxPoolIndices", [x], **window)
    yield from (
        plain("windows", op, [x.astype(np.float64)], **window) for op in ("MaxPool", "AveragePool")
    )
    yield from (plain("windows", "LpPool", [x], p=p, **window) for p in (1, 2, 3))
    spread = RNG.permutation(2 * 7 * 18 * 74)[: x.size].reshape(x.shape)
    twice: Any = {"kernel_shape": (2, 2), "strides": (2, 2)}
    yield plain("unpool", "MaxUnpool", [x, spread, None], **twice)
    yield plain("told_unpool", "MaxUnpool", [x, spread, np.array([2, 7, 20, 70])], **twice)
    for code in ("f32", "f16"):
        columns = floats(2, 18, 7 * 20).astype(DType(code).numpy)
        sizes = [np.array(v) for v in ((9, 22), (3, 3))]
        yield plain("columns", "Col2Im", [columns, *sizes], (1, 2))
        yield plain("told_columns", "Col2Im", [columns, *sizes])
        large = floats(1, 81, 4 * 5).astype(DType(code).numpy)
        ends = [np.array(v) for v in ((12, 13), (9, 9))]
        yield plain("open_columns", "Col2Im", [large, *ends], (1, 2))
    yield from (plain("global_lp", "GlobalLpPool", [x], p=p) for p in (1, 2, 3))
    yield from (plain("lrn", "LRN", [x], size=5, alpha=0.3, beta=b) for b in (0.75, 0.6))


def reformats(lanes: int) -> Iterator[h.Case]:
    for a, b in (
        (LINEAR, blocked(lanes)),
        (blocked(lanes), LINEAR),
        (NHWC, blocked(lanes)),
        (blocked(lanes), NHWC),
        (LINEAR, NHWC),
    ):
        yield plain("reformat", REFORMAT, [floats(2, 35, 5, 7)], source=a, target=b)
        for x in (whole_range(np.uint8, 2, 35, 5, 7), halves(2, 35, 5, 7)):
            yield plain("reformat", REFORMAT, [x], source=a, target=b)
    yield plain("rotary", "RotaryEmbedding", [floats(2, 3, 5, 74), floats(3, 1, 74), floats(1, 74)])


def calculations() -> Iterator[h.Case]:
    x = floats(3, 19, 37) * 3
    for axes in ((1,), (2,), (0, 2)):
        yield plain("logsumexp", "ReduceLogSumExp", [x], axes=axes)
    for axis in (1, 2):
        yield plain("lp_normalization", "LpNormalization", [x], axis=axis)
    yield plain("logsumexp", "ReduceLogSumExp", [x.astype(np.float64)], axes=(1,))
    given = [floats(2, 5, 12), floats(2, 5, 6), floats(2, 5, 66), None, -np.abs(floats(2, 5, 6))]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    linear = h.node("LinearAttention", given, **heads)
    yield case("linear_attention", linear, [x for x in given if x is not None])
    small = floats(5, 37).astype(DType.FP8.numpy)
    yield plain("small_cast", "Cast", [small], to=DType.FP16)
    yield plain("small_cast", "Cast", [floats(5, 37) * 9], to=DType.FP4)
    scales = [np.abs(floats(5, 10)), whole_range(np.uint8, 5, 10)]
    blocks = {"axis": 1, "block_size": 4}
    yield plain("scaling", "QuantizeLinear", [floats(5, 37), *scales], dtype=DType.UINT8, **blocks)
    yield plain("scaling", "DequantizeLinear", [small, np.abs(floats(37))], axis=1)
    square = floats(3, 9, 9) + 9 * np.eye(9, dtype=np.float32)
    yield from (plain("matrices", layer, [square]) for layer in ("Det", "Inverse"))
    pairs = RNG.uniform(0.05, 0.95, (5, 6)).astype(np.float32)
    yield plain("coupling", "PairwiseCoupling", [pairs], classes=4)
    bytes_ = [whole_range(np.uint8, 2, 4, 5, 37), whole_range(np.int8, 6, 2, 3, 3)]
    yield plain("plain_sums", "IntegerConvolution", bytes_, group=2, pad_value=3, **PADS)
    bytes_ = [whole_range(np.int8, 5, 19), whole_range(np.int8, 19, 37)]
    yield plain("plain_sums", "IntegerMatMul", bytes_)
    doubles = [x.astype(np.float64) for x in (floats(2, 4, 7, 9), floats(6, 4, 3, 3))]
    yield plain("plain_sums", "Convolution", doubles, **PADS)
    yield plain("told_affine_grid", "AffineGrid", [floats(2, 2, 3), np.array([2, 1, 5, 37])])
    yield plain("told_split", "DynamicSplit", [floats(5, 37), np.array([30, 7])], axis=1, parts=2)
    mel = [np.array(v) for v in (13, 250, 22050)]
    yield plain("mel", "MelWeightMatrix", [*mel, np.float32(133.0), np.float32(6855.5)])
    keys = integers("i32", 37)
    yield plain("lookup", "Lookup", [integers("i32", 5, 9), keys, floats(37), floats(1)])
    yield plain("draw", "RandomBernoulli", [np.abs(floats(5, 37))], seed=1.0)
    yield plain("multinomial", "RandomMultinomial", [floats(3, 37)], sample_size=50, seed=2.0)
    kept = [floats(5, 37), np.float32(0.4), np.array(True)]
    yield plain("training_dropout", "TrainingDropout", kept, seed=3)
    yield plain("trees", "TreeEnsemble", [floats(37, 3), *TREES], range(1, 11))
    framed = [floats(2, 50, 1), np.array(3), floats(16)]
    yield plain("told_fourier", "DynamicSTFT", framed)
    yield plain("fourier", "DFT", [floats(3, 60, 2)], axis=1)
    yield plain("fourier", "STFT", [floats(2, 50, 1), floats(16)], frame_step=3, frame_length=16)


def products() -> Iterator[h.Case]:
    x, w, residual = floats(3, 11, 29), floats(29, 45), floats(3, 11, 45)
    inputs = [h.spec(x, ("b", "s", 29)), w, h.spec(residual, ("b", "s", 45))]
    steps: Nodes = [("MatMul", (0, 1), {}), ("Add", (3, 2), {}), ("Gelu", (4,), {})]
    yield case(
        "gemm", h.fused(inputs, steps, None, 0, [1]), [x, w, residual], env={"b": 3, "s": 11}
    )
    yield plain("gemm", "MatMul", [floats(2, 13, 21), floats(2, 21, 35)])
    yield plain(
        "gemm", "Gemm", [floats(13, 21), floats(35, 21), floats(35)], transB=True, alpha=0.5
    )
    yield weighed("gemm", "MatMul", [floats(1, 64), floats(64, 50)])
    yield plain("gemv", "MatMul", [floats(2, 1, 21), floats(2, 21, 35)])
    yield plain("gemv", "Gemm", [floats(2, 21), floats(35, 21), floats(35)], transB=True)
    attended = [floats(1, 2, 9, 10), floats(1, 2, 21, 10), floats(1, 2, 21, 16), floats(9, 21)]
    yield plain("attention", "Attention", attended, scale=0.3)


def recurrent() -> Iterator[h.Case]:
    hidden, steps, batch, size = 19, 3, 5, 7
    kinds = (("LSTM", 4, 2, "bidirectional"), ("GRU", 3, 1, "reverse"), ("RNN", 1, 1, "forward"))
    for kind, gates, count, direction in kinds:
        d = 2 if direction == "bidirectional" else 1
        weights = [floats(d, gates * hidden, n) * np.float32(0.3) for n in (size, hidden)]
        bias, states = (
            floats(d, 2 * gates * hidden),
            [floats(d, batch, hidden) for _ in range(count)],
        )
        arrays = [floats(steps, batch, size), *weights, bias, None, *states]
        yield plain("rnn", kind, arrays, (1, 2, 3), hidden_size=hidden, direction=direction)
    weights = [floats(1, 4 * hidden, n) * np.float32(0.3) for n in (size, hidden)]
    lengths, states = np.array([3, 1, 0, 2, 3], np.int32), [floats(1, batch, hidden)] * 2
    x, peepholes = floats(steps, batch, size), floats(1, 3 * hidden)
    arrays = [x, *weights, floats(1, 8 * hidden), lengths, *states, peepholes]
    names = ("HardSigmoid", "Softsign", "Elu")
    fields = {"hidden_size": hidden, "activations": names, "clip": 0.7}
    yield plain("rnn", "LSTM", arrays, (1, 2, 3), **fields)
    yield plain("rnn", "LSTM", arrays, (), **fields)


def few_bits() -> Iterator[h.Case]:
    a, b = (RNG.integers(0, 256, s, np.uint8) for s in ((2, 17, 11), (2, 11, 37)))
    zeros = [np.array([z], np.int32) for z in (7, -3)]
    yield plain("byte_product", "ByteMatMul", [a, b.view(np.int8), *zeros], ())
    yield plain("byte_product", "ByteMatMul", [a.view(np.int8), b], ())
    for bits, rows in ((4, 1), (8, 3), (2, 21)):
        raw = RNG.integers(0, 256, (37, 3, 2 * bits), np.uint8)
        zero = RNG.integers(0, 1 << bits, (37, 3)).astype(np.uint8)
        arrays = [floats(rows, 45), raw, np.abs(floats(37, 3)), zero]
        yield plain("few_bits", "FewBitsMatMul", arrays, (1, 2, 3), bits=bits, block_size=16)
        permitted = {"bits": bits, "block_size": 16, "int8_activations": True}
        rounded = plain("few_bits_int8", "FewBitsMatMul", arrays, (1, 2, 3), **permitted)
        yield h.replace(rounded, budget=0.02)
        table, rows = RNG.integers(0, 256, (19, 6 * bits), np.uint8), np.array([[3, -1, 18]])
        scales = [np.abs(floats(19, 3)), RNG.integers(0, 1 << bits, (19, 3)).astype(np.uint8)]
        fields = {"columns": 48, "bits": bits, "block_size": 16}
        yield plain("few_bits_rows", "FewBitsGather", [table, rows, *scales], (0, 2, 3), **fields)
    arrays = [floats(40, 64), RNG.integers(0, 256, (37, 2, 16), np.uint8), floats(37, 2)]
    yield plain("few_bits_amx", "FewBitsMatMul", arrays, (1, 2))
    rounded = plain("few_bits_bf16_amx", "FewBitsMatMul", arrays, (1, 2), int8_activations=True)
    yield h.replace(rounded, budget=0.004)


def chains() -> Iterator[h.Case]:
    """Two layers that are not pointwise in one node."""
    x, w, d = floats(1, 9, 7, 13), floats(20, 9, 3, 3), floats(20, 1, 3, 3)
    steps: Nodes = [
        ("Convolution", (0, 1), PADS),
        ("Relu", (2,), {}),
        ("MaxPool", (3,), {"kernel_shape": (3, 3), "strides": (2, 2), **PADS}),
    ]
    yield case("pooled_conv", h.fused([x, w], steps, anchor=2, constants=(1,)), [x, w])
    arrays = [x, floats(20, 9, 1, 1), d]
    steps = [
        ("Convolution", (0, 1), {}),
        ("Relu", (3,), {}),
        ("Convolution", (4, 2), {"group": 20, **PADS}),
        ("GlobalAveragePool", (5,), {}),
    ]
    yield case("expanded_conv", h.fused(arrays, steps, [5, 6], 2, (1, 2)), arrays)


def joined_groups(lanes: int) -> Iterator[h.Case]:
    half = max(4, lanes) // 2
    arrays = [floats(1, 3 * half, 9, 7), floats(3 * half, half, 3, 3)]
    yield weighed("joined_conv", "Convolution", arrays, group=3, **PADS)
    rounded = [a.astype(DType.BF16.numpy) for a in arrays]
    node = h.node("WideConvolution", rounded, [1], group=3, **PADS)
    yield case("bf16_joined_conv", node, rounded, budget=2e-5)


def convolutions() -> Iterator[h.Case]:
    window = [floats(2, 20, 13, 11), floats(40, 20, 3, 3), floats(40)]
    yield weighed("conv", "Convolution", window, strides=(2, 1), **PADS)
    yield weighed("conv", "Convolution", [floats(1, 24, 9, 9), floats(50, 24, 1, 1)])
    gate = floats(2, 24, 9, 7), floats(2, 24, 1, 1), floats(50, 24, 1, 1)
    yield gated(*gate, TACTICS["tactix.c_conv@1"])
    yield weighed(
        "conv",
        "Convolution",
        [floats(1, 3, 21, 19), floats(24, 3, 7, 7)],
        strides=(2, 2),
        pads=(3, 3, 3, 3),
    )
    yield weighed(
        "winograd", "Convolution", [floats(1, 20, 19, 20), floats(20, 20, 3, 3), floats(20)], **PADS
    )
    yield weighed(
        "depthwise", "Convolution", [floats(1, 19, 7, 9), floats(19, 1, 3, 3)], group=19, **PADS
    )
    yield weighed(
        "conv_lines", "Convolution", [floats(1, 6, 11, 39), floats(9, 2, 3, 3)], group=3, **PADS
    )
    yield weighed(
        "conv_transpose",
        "ConvTranspose",
        [floats(2, 20, 5, 11), floats(20, 50, 2, 3)],
        strides=(2, 3),
    )
    yield weighed(
        "conv_general", "Convolution", [floats(1, 12, 9, 7), floats(9, 4, 3, 3)], group=3, **PADS
    )
    yield weighed(
        "conv_general",
        "ConvTranspose",
        [floats(2, 5, 5, 6), floats(5, 9, 3, 3)],
        strides=(2, 2),
        **PADS,
    )


def integer_products() -> Iterator[h.Case]:
    # a depth below one step of the matrix unit, which leaves it to the vectors
    for dtype in (np.uint8, np.int8):
        gemm = product(
            "IntegerMatMul", whole_range(dtype, 11, 62), whole_range(np.int8, 62, 50), INTEGER_GEMM
        )
        yield from (gemm, requantised(gemm))
    x, zero = floats(5, 37) * 60, np.uint8(9)
    yield weighed("int8_quantize", "QuantizeLinear", [x, np.float32(0.7), zero], dtype=DType.UINT8)
    a, b = whole_range(np.int8, 2, 19, 3, 5), whole_range(np.int8, 2, 19, 3, 5)
    steps: Nodes = [
        ("Dequantize", (0,), {"zero": 3, "scale": 0.21}), ("Dequantize", (1,), {"zero": -9, "scale": 0.33}),
        ("Add", (2, 3), {}), ("Quantize", (4,), {"zero": 7, "dtype": DType.INT8}),
    ]  # fmt: skip
    yield case("int8_pointwise", h.fused([a, b], steps), [a, b])
    steps = [
        ("Dequantize", (0,), {"zero": 3, "scale": 0.03}), ("Sigmoid", (1,), {}), ("Quantize", (2,), {"zero": 7}),
    ]  # fmt: skip
    row = whole_range(np.uint8, 5, 67)
    yield case("byte_table", h.fused([row], steps, (2, 3)), [row])


def integer_windows() -> Iterator[h.Case]:
    for dtype in (np.uint8, np.int8):
        arrays = whole_range(dtype, 2, 20, 9, 7), whole_range(np.int8, 40, 20, 3, 3)
        conv = product(
            "IntegerConvolution",
            *arrays,
            TACTICS["tactix.c_int8_conv@1"],
            pad_value=-5 % 128,
            **PADS,
        )
        yield from (conv, requantised(conv))
        arrays = whole_range(dtype, 2, 20, 9, 12), whole_range(np.int8, 40, 20, 3, 3)
        turned = product(
            "IntegerConvolution", *arrays, TACTICS["tactix.c_int8_winograd@1"], pad_value=7, **PADS
        )
        yield from (turned, requantised(turned))
        arrays = whole_range(dtype, 2, 19, 9, 7), whole_range(np.int8, 19, 1, 3, 3)
        depth = product(
            "IntegerConvolution", *arrays, TACTICS["tactix.c_int8_depthwise@1"], group=19, **PADS
        )
        yield from (depth, requantised(depth))


def bfloat16() -> Iterator[h.Case]:
    wide = [halves(13, 37), halves(37, 50), floats(50)]
    yield case("bf16_gemm", h.node("WideMatMul", wide, [1, 2]), wide, budget=2e-5)
    yield weighed("bf16_gemm", "MatMul", [halves(20, 45), halves(45, 40)])
    for size in ((9, 7), (2, 3)):
        for name, channels in (("bf16_direct_conv", 20), ("bf16_conv", 3)):
            window = [halves(2, channels, *size), halves(40, channels, 3, 3), floats(40)]
            node = h.node("WideConvolution", window, [1, 2], **PADS)
            yield case(name, node, window, budget=2e-5)
    spread = [halves(2, 20, 5, 7), halves(20, 12, 2, 2), floats(12)]
    yield case(
        "conv_transpose",
        h.node("WideConvTranspose", spread, [1, 2], strides=(2, 2)),
        spread,
        budget=2e-5,
    )


def deep() -> Iterator[h.Case]:
    x, w = floats(2, 5, 4, 6, 19), floats(7, 5, 2, 3, 3)
    yield weighed("conv", "Convolution", [x, w], pads=(1, 1, 0, 0, 1, 2))


def matrix_unit() -> Iterator[h.Case]:
    """Nodes that the tactics for AMX take where there is one, and for AVX-512 with bfloat16."""
    attended = [halves(1, 2, 39, 20), halves(1, 2, 45, 20), halves(1, 2, 45, 24), floats(39, 45)]
    for name in ("attention", "bf16_attention", "bf16_amx_attention"):
        yield case(name, h.node("Attention", attended, scale=0.25), attended)
    yield weighed("gemm_amx", "MatMul", [floats(33, 70), floats(70, 40)])
    yield weighed("conv_amx", "Convolution", [floats(2, 40, 7, 7), floats(48, 40, 3, 3)], **PADS)
    integer = [whole_range(np.uint8, 33, 64), whole_range(np.int8, 64, 40), biases(40)]
    yield weighed("int8_amx", "IntegerMatMul", integer)
    yield weighed("bf16_amx", "WideMatMul", [halves(33, 64), halves(64, 40)])
    window = [whole_range(np.uint8, 2, 64, 7, 7), whole_range(np.int8, 96, 64, 3, 3)]
    yield weighed("int8_amx_conv", "IntegerConvolution", window, **PADS)
    yield weighed(
        "bf16_amx_conv", "WideConvolution", [halves(2, 64, 7, 7), halves(96, 64, 3, 3)], **PADS
    )
    patches = [halves(2, 20, 9, 7), halves(40, 20, 3, 3)]
    narrow = [("WideConvolution", (0, 1), PADS), ("Cast", (2,), {"to": DType.BF16})]
    for name in ("bf16_winograd", "bf16_widened_winograd"):
        yield case(name, h.fused(patches, narrow, [3], 0, [1]), patches)


INTEGER_GEMM = TACTICS["tactix.c_int8_gemm@1"]
TREES = [
    np.array(v, t)
    for t, v in (
        (np.int64, (0, 2, 0, 0, 0)),
        (np.int64, (0, 4, 7, 7, 7)),
        (np.float32, (0.1, -0.3, 0, 0, 0)),
        (np.int64, (1, 2, 0, 0, 0)),
        (np.int64, (4, 3, 0, 0, 0)),
        (bool, (0, 0, 0, 0, 0)),
        (np.int64, (0, 1)),
        (np.int64, (2, 3, 4)),
        (np.int64, (0, 0, 0)),
        (np.float32, (1.5, -2, 0.25)),
    )
]
"""Two trees of one table: inputs of TreeEnsemble behind the samples."""
