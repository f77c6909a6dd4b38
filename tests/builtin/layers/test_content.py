"""Known content moves through the layers that shape code is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.base.dims import Dim, dmax, dmin, floordiv, sym
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_ops.layers import all_layers

LAYERS = {x.name: x for x in all_layers()}
N, S = sym("n"), sym("s")


def vector(*values: Dim) -> TensorSpec:
    return TensorSpec(DType.INT64, (len(values),), values)


def matrix(*rows: tuple[Dim, ...]) -> TensorSpec:
    return TensorSpec(DType.INT64, (len(rows), len(rows[0])), tuple(v for r in rows for v in r))


def const(value: Any, dtype: Any = np.int64) -> TensorSpec:
    a = np.asarray(value, dtype)
    return TensorSpec(DType.of(a.dtype), a.shape, const=a)


def infer(name: str, *inputs: TensorSpec, **attrs: Any) -> TensorSpec:
    layer = LAYERS[name]
    out = layer.infer(layer.Attrs(**attrs), inputs)
    return out[0]


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (infer("Shape", TensorSpec(DType.FP32, (N, 3, S)), start=1), (3, S)),
        (infer("Gather", vector(N, 3, S), const([2, -3])), (S, N)),
        (infer("Gather", vector(N, 3, S), const(1)), (3,)),
        (infer("GatherElements", matrix((N, 1), (2, S)), const([[1], [0]]), axis=1), (1, 2)),
        (infer("GatherND", matrix((N, 1), (2, S)), const([[1, 1], [0, 0]])), (S, N)),
        (infer("ScatterND", vector(N, 3, S), const([[1]]), vector(N + 1)), (N, N + 1, S)),
        (infer("ScatterElements", vector(N, 3, S), const([0]), vector(7)), (7, 3, S)),
        (infer("Slice", vector(N, 3, S), begins=(2,), sizes=(2,), axes=(0,), steps=(-2,)), (S, N)),
        (infer("Concat", vector(N, 3), const([4]), vector(S)), (N, 3, 4, S)),
        (infer("Reshape", vector(N, 3, S, 1), shape=(2, 2)), (N, 3, S, 1)),
        (infer("Transpose", matrix((N, 3), (S, 1)), perm=(1, 0)), (N, S, 3, 1)),
        (infer("Expand", vector(N), shape=(3,)), (N, N, N)),
        (infer("Tile", vector(N, 1), repeats=(2,)), (N, 1, N, 1)),
        (infer("Pad", vector(N), pads=(1, 2), value=7.0), (7, N, 7, 7)),
        (infer("Split", vector(N, 3, S), sizes=(2, 1)), (N, 3)),
        (infer("ReduceProd", vector(N, 3, S), axes=(0,), keepdims=False), (3 * N * S,)),
        (infer("ReduceSum", matrix((N, 3), (S, 1)), axes=(1,)), (N + 3, S + 1)),
        (infer("ReduceMax", vector(N, 0), axes=(0,)), (N,)),
        (infer("ReduceMax", matrix((N, 5), (S, 1)), axes=(0, 1), keepdims=False), (dmax(dmax(N, S), 5),)),
        (infer("ReduceMin", vector(N, 4), axes=(0,)), (dmin(N, 4),)),
        (infer("CumSum", vector(N, 1, S)), (N, N + 1, N + S + 1)),
        (infer("Fill", shape=(3,), value=2, dtype=DType.INT64), (2, 2, 2)),
        (infer("Fill", shape=(1,), value=1, dtype=DType.BOOL), (1,)),
        (infer("Dims", values=(N, 2), shape=(2,)), (N, 2)),
        (infer("Range", const(1), const(6), const(2)), (1, 3, 5)),
        (infer("Range", const(3), const(0), const(-1)), (3, 2, 1)),
        (infer("Div", vector(N, 7), const([2, -2])), (floordiv(N, 2), -3)),
        (infer("Where", const([True, False], bool), vector(N, S), const([0, 4])), (N, 4)),
        (infer("Equal", vector(N, 3), const([-1, 3])), (0, 1)),
        (infer("Cast", vector(N), to=DType.INT32), (N,)),
        (infer("Min", vector(N, 2), const([3, 3])), (dmin(N, 3), 2)),
    ],
    ids=lambda x: None,
)  # fmt: skip
def test_content_is_inferred(found: TensorSpec, want: tuple[Dim, ...]) -> None:
    assert found.value == want
    assert len(found.value) == found.numel


@pytest.mark.parametrize(
    "found",
    [
        infer("Gather", vector(N, 3), TensorSpec(DType.INT64, (2,))),
        infer("Gather", TensorSpec(DType.INT64, (2,)), const([0])),
        infer("Gather", vector(1, 3), vector(N)),
        infer("Expand", vector(N), shape=(S,)),
        infer("Concat", vector(N), TensorSpec(DType.INT64, (S,))),
        infer("Tile", vector(N, 1), repeats=(1000,)),
        infer("ScatterND", vector(N, 3), const([[1]]), vector(1), reduction="add"),
        infer("ReduceMean", vector(1, 2), axes=(0,)),
        infer("Fill", shape=(N,), value=2, dtype=DType.INT64),
        infer("Fill", shape=(3,), value=2.5, dtype=DType.FP32),
        infer("Range", const(0), const(5000), const(1)),
    ],
    ids=lambda x: None,
)
def test_content_is_given_up(found: TensorSpec) -> None:
    assert found.value is None


def test_a_range_over_symbols_has_a_symbolic_size() -> None:
    limit = TensorSpec(DType.INT64, (), (S,))
    assert infer("Range", const(0), limit, const(1)).shape == (S,)
    assert infer("Range", const(0), limit, const(3)).shape == (floordiv(S + 2, 3),)
    assert infer(
        "Range", const(0.5, np.float32), const(2.0, np.float32), const(0.5, np.float32)
    ).shape == (3,)


def test_samples_of_a_range_follow_what_is_known() -> None:
    layer = LAYERS["Range"]
    inputs = [const(2), TensorSpec(DType.INT64, (), (9,)), const(3)]
    arrays = layer.sample(layer.Attrs(), inputs, np.random.default_rng(0))
    assert layer.reference(layer.Attrs(), *arrays)[0].tolist() == [2, 5, 8]
    free = [TensorSpec(DType.INT32, ())] * 3
    (out,) = layer.reference(
        layer.Attrs(), *layer.sample(layer.Attrs(), free, np.random.default_rng(0))
    )
    assert out.dtype == np.int32
    assert out.size >= 1


def test_constants_are_kept_in_samples() -> None:
    layer = LAYERS["Gather"]
    indices = const([1, 0])
    _, got = layer.sample(
        layer.Attrs(), [TensorSpec(DType.FP32, (2, 3)), indices], np.random.default_rng(0)
    )
    assert got is indices.const
