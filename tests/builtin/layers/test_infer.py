"""Shape inference over symbols, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tactix.base.dims import evaluate, floordiv, sym
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix_ops.layers import all_layers

LAYERS = {x.name: x for x in all_layers()}
N, H, S = sym("n"), sym("h"), sym("s")


def f32(*shape: Any) -> TensorSpec:
    return TensorSpec(DType.FP32, shape)


def i64(*shape: Any) -> TensorSpec:
    return TensorSpec(DType.INT64, shape)


def shapes(name: str, *inputs: TensorSpec | None, **attrs: Any) -> list[Any]:
    layer = LAYERS[name]
    return [s.shape for s in layer.infer(layer.Attrs(**attrs), inputs)]


def test_convolution_of_a_symbolic_image() -> None:
    same = shapes("Convolution", f32(N, 3, H, 224), f32(8, 3, 3, 3), pads=(1, 1, 1, 1))
    assert same == [(N, 8, H, 224)]
    half = shapes(
        "Convolution", f32(N, 3, H, 224), f32(8, 3, 3, 3), pads=(1, 1, 1, 1), strides=(2, 2)
    )
    assert half == [(N, 8, floordiv(H - 1, 2) + 1, 112)]
    assert shapes("ConvTranspose", f32(N, 8, H, 5), f32(8, 4, 2, 2), strides=(2, 2)) == [
        (N, 4, 2 * H, 10)
    ]


def test_pooling_with_a_window_that_hangs_over() -> None:
    ((_, _, out),) = shapes(
        "MaxPool", f32(N, 3, H), kernel_shape=(3,), strides=(2,), pads=(1, 1), ceil_mode=True
    )
    for size in range(1, 30):
        room = size + 2 - 3
        count = -(-room // 2) + 1
        want = count - 1 if (count - 1) * 2 >= size + 1 else count
        assert evaluate(out, {"h": size}) == want


def test_matrices() -> None:
    assert shapes("MatMul", f32(N, 12, S, 64), f32(N, 12, 64, S)) == [(N, 12, S, S)]
    assert shapes("MatMul", f32(4), f32(N, 4, 5)) == [(N, 5)]
    assert shapes("MatMul", f32(N, 4), f32(4)) == [(N,)]
    assert shapes("Gemm", f32(S, N), f32(7, S), f32(7), transA=True, transB=True) == [(N, 7)]
    assert shapes("Einsum", f32(N, S, 8), f32(8, 3), equation="...d,de->...e") == [(N, S, 3)]


def test_recurrent_outputs() -> None:
    y, h, c = shapes(
        "LSTM", f32(S, N, 4), f32(2, 24, 4), f32(2, 24, 6), direction="bidirectional", hidden_size=6
    )
    assert (y, h, c) == ((S, 2, N, 6), (2, N, 6), (2, N, 6))
    y, h = shapes("GRU", f32(N, S, 4), f32(1, 18, 4), f32(1, 18, 6), hidden_size=6, layout=1)
    assert (y, h) == ((N, S, 1, 6), (N, 1, 6))


def test_attention_of_symbolic_sequences() -> None:
    t = sym("t")
    q, k, v = f32(N, 12, S, 64), f32(N, 12, t, 64), f32(N, 12, t, 32)
    assert shapes("Attention", q, k, v, f32(N, 1, S, t)) == [(N, 12, S, 32)]
    few = f32(N, 4, t, 64), f32(N, 3, t, 32)
    assert shapes("Attention", q, *few) == [(N, 12, S, 32)]
    packed = {"heads": 4, "dim": 8, "value_dim": 6, "columns": (0, 32, 64)}
    assert shapes("TokenAttention", *[f32(N, S, 88)] * 3, **packed) == [(N, S, 24)]


def test_sizes_that_symbols_give() -> None:
    assert shapes("Split", f32(N, 3 * S), axis=1, sizes=(S, 2 * S)) == [(N, S), (N, 2 * S)]
    assert shapes("Tile", f32(N, 2), repeats=(2, S)) == [(2 * N, 2 * S)]
    assert shapes("Pad", f32(N, S), pads=(0, 1, 0, 2)) == [(N, S + 3)]
    assert shapes("Concat", f32(N, S), f32(N, 4), axis=1) == [(N, S + 4)]
    assert shapes("TopK", f32(N, S), k=4, axis=1) == [(N, 4), (N, 4)]


REFUSED = [
    ("Convolution", (f32(1, 3, 8, 8), f32(8, 4, 3, 3)), {}, "input channels"),
    ("Convolution", (f32(1, 3, 2, 2), f32(8, 3, 3, 3)), {}, "does not fit"),
    ("Convolution", (f32(1, 3, 8, 8), f32(8, 3, 3)), {}, "same rank"),
    ("Convolution", (f32(1, 3, 8, 8), f32(8, 3, 3, 3), f32(7)), {}, "output channels"),
    ("Convolution", (f32(1, 3, 8, 8), f32(8, 3, 3, 3)), {"strides": (1,)}, "1 strides where 2"),
    ("Convolution", (f32(1, 3, 8, 8),), {}, "needs 2 inputs"),
    ("MaxPool", (f32(1, 3, 8),), {"kernel_shape": (2, 2)}, "takes rank 4"),
    ("MatMul", (f32(2, 3), f32(4, 5)), {}, "summed axis"),
    ("MatMul", (f32(), f32(4, 5)), {}, "scalars"),
    ("Gemm", (f32(2, 3), f32(3, 5), f32(3, 1)), {}, "broadcast"),
    ("Gemm", (f32(2, 3, 4), f32(3, 5)), {}, "matrices"),
    ("Einsum", (f32(2, 3), f32(4, 5)), {"equation": "ij,jk"}, "broadcast"),
    ("Einsum", (f32(2, 3),), {"equation": "ij,jk"}, "1 tensors"),
    ("Einsum", (f32(2, 3),), {"equation": "ij->k"}, "not an einsum"),
    ("BatchNormalization", (f32(2, 3, 4), f32(4), f32(3), f32(3), f32(3)), {}, "channels"),
    (
        "GroupNormalization",
        (f32(2, 4, 4), f32(4), f32(4)),
        {"num_groups": 3},
        "4 channels in 3 groups",
    ),
    ("LayerNormalization", (f32(2, 4), f32(3, 2, 4)), {}, "does not broadcast"),
    ("LayerNormalization", (i64(2, 4), f32(4)), {}, "floats"),
    ("Softmax", (f32(2, 3),), {"axis": 2}, "axis 2 of a tensor of rank 2"),
    ("ReduceSum", (f32(2, 3),), {"axes": (-3,)}, "axis -3"),
    ("Reshape", (f32(2, 3),), {"shape": (4, 2)}, "has not the elements"),
    ("Transpose", (f32(2, 3),), {"perm": (0, 0)}, "no order"),
    ("Concat", (f32(2, 3), f32(3, 3)), {"axis": 1}, "axis 0"),
    ("Concat", (f32(2, 3), i64(2, 3)), {"axis": 1}, "differ in dtype"),
    ("Split", (f32(2, 5),), {"axis": 1, "sizes": (2, 2)}, "sum of the parts"),
    (
        "Slice",
        (f32(5),),
        {"begins": (3,), "sizes": (3,), "axes": (0,), "steps": (1,)},
        "elements 3 to 5",
    ),
    (
        "Slice",
        (f32(5),),
        {"begins": (1,), "sizes": (3,), "axes": (0,), "steps": (-1,)},
        "elements -1 to 1",
    ),
    ("Expand", (f32(2, 3),), {"shape": (4, 3)}, "do not broadcast"),
    ("Pad", (f32(2, 3),), {"pads": (1, 1)}, "2 pads"),
    ("Pad", (f32(2, 3),), {"pads": (1, 1, 1, 1), "mode": "mirror"}, "no mode"),
    ("Gather", (f32(2, 3), f32(2)), {}, "indices are integers"),
    ("GatherND", (f32(2, 3), i64(2, 3)), {}, "do not fit"),
    ("GatherElements", (f32(2, 3), i64(3, 3)), {"axis": 1}, "beyond axis 0"),
    ("ScatterND", (f32(4, 3), i64(2, 1), f32(2, 4)), {}, "updates"),
    ("TopK", (f32(2, 3),), {"k": 4}, "4 elements"),
    ("TopK", (f32(2, 3),), {"k": -1}, "-1 elements"),
    ("Attention", (f32(1, 2, 3, 4), f32(1, 2, 3, 5), f32(1, 2, 3, 4)), {}, "dim of q and k"),
    (
        "TokenAttention",
        (f32(1, 3, 8),) * 3,
        {"heads": 2, "dim": 4, "value_dim": 5},
        "at least 10 columns",
    ),
    (
        "TokenAttention",
        (f32(1, 3, 12),) * 3,
        {"heads": 3, "key_heads": 2, "dim": 4, "value_dim": 4},
        "cannot share 2",
    ),
    ("RotaryEmbedding", (f32(3, 8), f32(3, 6), f32(3, 8)), {}, "does not broadcast"),
    ("RotaryEmbedding", (f32(3, 8), f32(3, 10), f32(3, 10)), {}, "is wider"),
    ("RotaryEmbedding", (f32(5, 3, 8), f32(8), f32(8)), {"heads": 4}, "no 4 heads"),
    ("LSTM", (f32(5, 3, 4), f32(1, 24, 5), f32(1, 24, 6)), {"hidden_size": 6}, "weights"),
    ("Range", (i64(), i64(), i64()), {}, "only known by running"),
    ("Resize", (f32(1, 2),), {"sizes": (1, 2), "mode": "fancy"}, "no mode"),
    ("QuantizeLinear", (f32(2, 3), f32(4)), {"axis": 1}, "4 scales along axis 1"),
    ("RoiAlign", (f32(1, 2, 8, 8), f32(3, 4), i64(2)), {}, "number of regions"),
    ("LinearAttention", (f32(1, 3, 4), f32(1, 3, 4), f32(1, 2, 4)), {}, "axis 1 of its values"),
    ("LinearAttention", (*(f32(1, 3, 4),) * 3, f32(1, 1, 4, 5)), {}, "axis 3 of its state"),
    ("DeformableConvolution", (f32(1, 2, 5, 5), f32(3, 2, 2, 2), f32(1, 8, 4, 5)), {}, "axis 3"),
    (
        "DeformableConvolution",
        (f32(1, 2, 5, 5), f32(3, 2, 2, 2), f32(1, 8, 4, 4), f32(3, 1)),
        {},
        "bias",
    ),
    (
        "DeformableConvolution",
        (f32(1, 3, 5, 5), f32(3, 3, 2, 2), f32(1, 16, 4, 4)),
        {"offset_group": 2},
        "equal groups",
    ),
    ("Add", (f32(2), f32(3)), {}, "broadcast"),
]


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "words"), REFUSED, ids=[f"{r[0]}-{r[3]}" for r in REFUSED]
)
def test_what_does_not_fit_is_refused(
    name: str, inputs: Any, attrs: dict[str, Any], words: str
) -> None:
    with pytest.raises((ShapeError, DTypeError, InvalidArgument), match=words):
        shapes(name, *inputs, **attrs)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("Convolution", [(1, 3, 8), (4, 3, 3), (4,)]),
        ("ConvTranspose", [(1, 3, 8), (3, 4, 3), (4,)]),
        ("MatMul", [(2, 3), (3, 4)]),
        ("Gemm", [(2, 3), (3, 4), (4,)]),
    ],
)
def test_operands_of_several_dtypes_are_refused(name: str, sizes: list[Any]) -> None:
    """Each other one among floats, and integers beside floats."""
    for odd in range(len(sizes)):
        for dtype in (DType.INT32, DType.FP16):
            dtypes = [dtype if i == odd else DType.FP32 for i in range(len(sizes))]
            with pytest.raises(DTypeError, match=rf"tactix\.{name}@1 takes tensors of one dtype"):
                shapes(name, *map(TensorSpec, dtypes, sizes))


def test_integers_are_not_normalised() -> None:
    channels = [f32(3)] * 4
    with pytest.raises(DTypeError, match="BatchNormalization@1 takes floats, not i32"):
        shapes("BatchNormalization", TensorSpec(DType.INT32, (1, 3, 8)), *channels)
