"""Reductions, softmax and normalizations: axes as attributes or inputs, flattening or along one
axis.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from forms import Form, dtypes_of, forms, ints, moved, normal, numbers, positive, trimmed, whole

FLOATS = ("float", "double", "float16")
REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


@forms(*REDUCTIONS)
def reductions(op: str, version: int) -> Iterator[Form]:
    since = 13 if op == "ReduceSum" else 18
    for dtype in dtypes_of(
        op, version, ("float", "double", "int32", "int64", "float16", "int8", "uint8")
    ):
        x = numbers(dtype, 2, 3, 4, low=-1, high=2 if op == "ReduceProd" else 6)
        x = np.abs(x) + np.array(1, dtype) if op in ("ReduceLogSum", "ReduceProd") else x
        for axes in (None, [1], [0, 2], [-1]):
            if axes and min(axes) < 0 and version < 11:
                continue
            for keep in (0, 1) if dtype == np.float32 else (1,):
                given, attrs = moved(version, since, axes=axes)
                arrays = trimmed([x, *given])
                name = f"{dtype} {axes} {keep}"
                tolerance = 4e-3 if dtype.itemsize == 2 else 2e-5
                fixed = frozenset({1} if len(arrays) > 1 else ())
                yield Form(
                    name, arrays, {**attrs, "keepdims": keep}, fixed=fixed, tolerance=tolerance
                )
        if version >= since and dtype.kind == "f":
            yield Form(f"{dtype} nothing", [x], {"noop_with_empty_axes": 1}, tolerance=4e-3)


@forms("ArgMax", "ArgMin")
def places(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "int32", "float16", "int8", "uint8")):
        x = numbers(dtype, 3, 4, 5, high=3)
        for axis in (0, 1, -1):
            if axis < 0 and version < 11:
                continue
            for keep in (0, 1):
                yield Form(f"{dtype} {axis} {keep}", [x], {"axis": axis, "keepdims": keep})
                if version >= 12:
                    last = {"axis": axis, "keepdims": keep, "select_last_index": 1}
                    yield Form(f"{dtype} {axis} {keep} last", [x], last)


@forms("Softmax", "LogSoftmax", "Hardmax")
def softmax(op: str, version: int) -> Iterator[Form]:
    """Before 13 the axes from ``axis`` on are one."""
    for dtype in dtypes_of(op, version, FLOATS):
        tolerance = 2e-3 if dtype.itemsize == 2 else 1e-5
        flat = "flat" if version < 13 else "one"
        for shape in ((3, 4), (2, 3, 4)):
            x = normal(*shape).astype(dtype)
            yield Form(f"{dtype} {shape} {flat} default", [x], tolerance=tolerance)
            for axis in (0, 1, 2, -1):
                if axis < len(shape) and (axis >= 0 or version >= 11):
                    yield Form(
                        f"{dtype} {shape} {flat} {axis}", [x], {"axis": axis}, tolerance=tolerance
                    )


@forms("BatchNormalization")
def batch_normalization(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, FLOATS):
        for shape in ((2, 3, 4, 5), (4, 3), (2, 3, 7)):
            x = normal(*shape).astype(dtype)
            scale, bias, mean, var = (positive(3, salt=i).astype(dtype) for i in range(4))
            attrs = {"consumed_inputs": [0, 0, 0, 1, 1]} if version < 6 else {}
            attrs |= {"is_test": 1} if version < 7 else {}
            for epsilon in (1e-5, 1e-2):
                own = {**attrs, "epsilon": epsilon}
                arrays = [x, scale, bias, mean, var]
                yield Form(
                    f"{dtype} {shape} {epsilon}",
                    arrays,
                    own,
                    tolerance=4e-3 if dtype.itemsize == 2 else 1e-5,
                )


@forms("InstanceNormalization")
def instance_normalization(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, FLOATS):
        for shape in ((2, 3, 4, 5), (1, 3, 9)):
            attrs = {"epsilon": 1e-3, **({"consumed_inputs": [0, 0, 0]} if version < 6 else {})}
            arrays = [
                normal(*shape).astype(dtype),
                positive(3).astype(dtype),
                positive(3, salt=1).astype(dtype),
            ]
            yield Form(
                f"{dtype} {shape}", arrays, attrs, tolerance=8e-3 if dtype.itemsize == 2 else 1e-5
            )


@forms("LpNormalization")
def lp_normalization(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double")):
        for axis in (0, 1, -1):
            for p in (1, 2):
                yield Form(
                    f"{dtype} {axis} {p}", [normal(3, 4, 5).astype(dtype)], {"axis": axis, "p": p}
                )


@forms("LRN")
def lrn(op: str, version: int) -> Iterator[Form]:
    for size in (1, 3, 5):
        yield Form(f"{size}", [normal(2, 6, 4, 3)], {"size": size})
        yield Form(
            f"{size} given",
            [normal(2, 6, 4, 3)],
            {"size": size, "alpha": 0.1, "beta": 0.5, "bias": 2.0},
        )


@forms("MeanVarianceNormalization")
def mean_variance(op: str, version: int) -> Iterator[Form]:
    yield Form("default", [normal(2, 3, 4, 5)], tolerance=1e-4)
    yield Form("axes", [normal(2, 3, 4, 5)], {"axes": [0, 2]}, tolerance=1e-4)
    yield Form("rows", [normal(3, 4, 4, 2)], {"axes": [1]}, tolerance=1e-4)


@forms("CumSum")
def cumulative(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "int32", "int64")):
        for axis in (0, 1, -1):
            for exclusive in (0, 1):
                for reverse in (0, 1):
                    arrays = [numbers(dtype, 3, 4), np.array(axis, np.int32)]
                    attrs = {"exclusive": exclusive, "reverse": reverse}
                    yield Form(
                        f"{dtype} {axis} {exclusive} {reverse}", arrays, attrs, fixed=frozenset({1})
                    )


@forms("TopK")
def top_k(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "int32", "int64")):
        x = np.arange(24).reshape(2, 3, 4).astype(dtype)
        x = x.reshape(-1)[np.argsort(normal(24))].reshape(2, 3, 4)
        for axis in (0, 1, 2, -1):
            k = min(2, x.shape[axis])
            given, attrs = moved(version, 10, k=k)
            given = [ints(k)] if given else []
            own = {**attrs, "axis": axis}
            yield Form(f"{dtype} {axis}", [x, *given], own, 2, frozenset({1} if given else ()))
            if version >= 11:
                yield Form(
                    f"{dtype} {axis} least", [x, *given], {**own, "largest": 0}, 2, frozenset({1})
                )


@forms("NegativeLogLikelihoodLoss")
def nll(op: str, version: int) -> Iterator[Form]:
    for reduction in ("none", "mean", "sum"):
        for shape in ((5, 3), (2, 3, 4)):
            target = whole(0, 3, shape[0], *shape[2:])
            yield Form(f"{shape} {reduction}", [normal(*shape), target], {"reduction": reduction})
            weighted = [normal(*shape), target, positive(3)]
            yield Form(f"{shape} {reduction} weights", weighted, {"reduction": reduction})
            if version >= 13:
                ignoring = {"reduction": reduction, "ignore_index": 1}
                yield Form(f"{shape} {reduction} ignored", weighted, ignoring)


@forms("SoftmaxCrossEntropyLoss")
def cross_entropy(op: str, version: int) -> Iterator[Form]:
    for reduction in ("none", "mean", "sum"):
        for shape in ((5, 3), (2, 3, 4)):
            target = whole(0, 3, shape[0], *shape[2:])
            yield Form(
                f"{shape} {reduction}", [normal(*shape), target], {"reduction": reduction}, 2
            )
            arrays = [normal(*shape), target, positive(3)]
            yield Form(
                f"{shape} {reduction} ignored", arrays, {"reduction": reduction, "ignore_index": 1}
            )
