"""Operators that move elements: parameters as attributes before, as inputs after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from forms import Form, dtypes_of, forms, ints, moved, normal, numbers, positive, trimmed, whole

MOVED = ("float", "int64", "uint8", "bool", "float16", "double")


def fixed(arrays: list[Any]) -> frozenset[int]:
    """All but the first input are initializers."""
    return frozenset(i for i in range(1, len(arrays)) if arrays[i] is not None)


@forms("Reshape")
def reshape(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for shape in ((6, 4), (-1, 4), (0, -1), (2, 3, 2, 2)):
            given, attrs = moved(version, 5, shape=list(shape))
            arrays = [numbers(dtype, 2, 3, 4), *given]
            yield Form(f"{dtype} {shape}", arrays, attrs, fixed=fixed(arrays))
    if version >= 14:
        yield Form(
            "empty",
            [np.zeros((0, 3), np.float32), ints(3, 0)],
            {"allowzero": 1},
            fixed=frozenset({1}),
        )


@forms("Flatten")
def flatten(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        yield Form(f"{dtype} default", [numbers(dtype, 2, 3, 4)])
        for axis in (0, 1, 2, 3, -1, -3):
            if axis >= 0 or version >= 11:
                yield Form(f"{dtype} {axis}", [numbers(dtype, 2, 3, 4)], {"axis": axis})


@forms("Squeeze", "Unsqueeze")
def squeeze(op: str, version: int) -> Iterator[Form]:
    shape = (1, 3, 1, 4) if op == "Squeeze" else (3, 4)
    for dtype in dtypes_of(op, version, MOVED):
        for axes in ([0], [0, 2], [2, 0], [-2], None):
            if (axes is None and op == "Unsqueeze") or (axes and min(axes) < 0 and version < 11):
                continue
            given, attrs = moved(version, 13, axes=axes)
            arrays = trimmed([numbers(dtype, *shape), *given])
            yield Form(f"{dtype} {axes}", arrays, attrs, fixed=fixed(arrays))


@forms("Transpose")
def transpose(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        yield Form(f"{dtype} default", [numbers(dtype, 2, 3, 4)])
        for perm in ([0, 2, 1], [2, 0, 1], [1, 0, 2]):
            yield Form(f"{dtype} {perm}", [numbers(dtype, 2, 3, 4)], {"perm": perm})


@forms("Concat")
def concat(op: str, version: int) -> Iterator[Form]:
    """The axis had a default, 1, before 4."""
    for dtype in dtypes_of(op, version, MOVED):
        for axis in (0, 1, 2, -1):
            if axis < 0 and version < 11:
                continue
            shapes = [[2, 3, 4] for _ in range(3)]
            for i, s in enumerate(shapes):
                s[axis] = i + 1
            parts = [numbers(dtype, *s) for s in shapes]
            attrs = {} if version < 4 and axis == 1 else {"axis": axis}
            yield Form(f"{dtype} {axis}", parts, attrs)


@forms("Split")
def split(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for axis in (0, 1, -1):
            if axis < 0 and version < 11:
                continue
            for sizes in ([1, 3], [2, 2], None):
                count = {"num_outputs": 2} if version >= 18 and sizes is None else {}
                attrs = {"axis": axis, **count}
                if version < 13 and sizes:
                    attrs["split"] = sizes
                arrays = [numbers(dtype, 4, 4, 4)] + (
                    [ints(*sizes)] if sizes and version >= 13 else []
                )
                yield Form(f"{dtype} {axis} {sizes}", arrays, attrs, 2, fixed(arrays))


@forms("Slice")
def slices(op: str, version: int) -> Iterator[Form]:
    cuts: dict[str, tuple[list[int], list[int], list[int] | None, list[int] | None]] = {
        "all": ([1, 0, 1], [2, 2, 9], None, None), "axes": ([1], [-1], [2], None),
        "two": ([0, -3], [1, 99], [0, 2], None),
        "back": ([-1], [-99], [1], [-1]),
        "strides": ([0, 3], [9, 0], [1, 2], [2, -2]), "negative": ([1], [3], [-1], None),
    }  # fmt: skip
    for dtype in dtypes_of(op, version, MOVED):
        for name, (starts, ends, axes, steps) in cuts.items():
            if (steps or name == "negative") and version < 10:
                continue
            given, attrs = moved(
                version,
                10,
                starts=starts,
                ends=ends,
                axes=axes,
                **({"steps": steps} if steps else {}),
            )
            arrays = trimmed([numbers(dtype, 3, 3, 4), *given])
            yield Form(f"{dtype} {name}", arrays, attrs, fixed=fixed(arrays))


@forms("Pad")
def pad(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "int32", "int64", "uint8")):
        x = numbers(dtype, 2, 3, 4)
        for mode in ("constant", "reflect", "edge", "wrap"):
            if mode == "wrap" and version < 19:
                continue
            for pads in (
                [0, 1, 2, 0, 0, 1],
                [0, 0, 1, 1, 2, 0] if mode != "reflect" else [0, 1, 1, 0, 1, 2],
            ):
                if version < 11:
                    name = "paddings" if version < 2 else "pads"
                    yield Form(
                        f"{dtype} {mode} {pads}", [x], {name: pads, "mode": mode, "value": 2.0}
                    )
                else:
                    arrays = [x, ints(*pads), np.array(2, dtype)]
                    yield Form(
                        f"{dtype} {mode} {pads}", arrays, {"mode": mode}, fixed=frozenset({1})
                    )
        if version >= 18:
            arrays = [x, ints(1, 2), np.array(3, dtype), ints(-1)]
            yield Form(f"{dtype} axes", arrays, fixed=frozenset({1, 3}))
        yield_crop = [0, -1, 0, 0, 0, -1]
        given = {"paddings" if version < 2 else "pads": yield_crop} if version < 11 else {}
        arrays = [x] if version < 11 else [x, ints(*yield_crop)]
        yield Form(f"{dtype} crop", arrays, given, fixed=fixed(arrays))


@forms("Tile")
def tile(op: str, version: int) -> Iterator[Form]:
    """Version 1 repeats along one axis."""
    for dtype in dtypes_of(op, version, ("float", "int64", "uint8", "double", "int32")):
        for axis in range(3):
            counts = [3 if i == axis else 1 for i in range(3)]
            x = numbers(dtype, 2, 3, 4)
            if version < 6:
                yield Form(
                    f"{dtype} {axis}",
                    [x, np.array([3], dtype), np.array([axis], dtype)],
                    fixed=frozenset({1, 2}),
                )
            else:
                yield Form(f"{dtype} {axis}", [x, ints(*counts)], fixed=frozenset({1}))
        if version >= 6:
            yield Form(
                f"{dtype} all", [numbers(dtype, 2, 3, 4), ints(2, 1, 3)], fixed=frozenset({1})
            )


@forms("Expand")
def expand(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for shape in ((2, 3, 4), (3, 1), (1,), (2, 1, 1, 4)):
            yield Form(
                f"{dtype} {shape}", [numbers(dtype, 3, 1), ints(*shape)], fixed=frozenset({1})
            )


@forms("Gather", "GatherElements")
def gather(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for axis in (0, 1, -1):
            if axis < 0 and version < 11 and op == "GatherElements":
                continue
            for low in (0, -3) if version >= 11 else (0,):
                places = whole(low, 3, 2, 2) if op == "Gather" else whole(low, 3, 3, 3)
                yield Form(f"{dtype} {axis} {low}", [numbers(dtype, 3, 3), places], {"axis": axis})
                if dtype == np.float32:
                    arrays = [numbers(dtype, 3, 3), places.astype(np.int32)]
                    yield Form(f"{dtype} {axis} {low} int32", arrays, {"axis": axis})


@forms("GatherND")
def gather_nd(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for depth in (1, 2, 3):
            yield Form(f"{dtype} {depth}", [numbers(dtype, 3, 3, 3), whole(-3, 3, 4, depth)])
        if version >= 12:
            yield Form(
                f"{dtype} batch", [numbers(dtype, 2, 3, 3), whole(0, 3, 2, 1)], {"batch_dims": 1}
            )


@forms("Scatter", "ScatterElements")
def scatter(op: str, version: int) -> Iterator[Form]:
    places = np.stack([np.argsort(normal(4, salt=i))[:2] for i in range(3)])
    for dtype in dtypes_of(op, version, MOVED):
        for axis in (1, -1):
            if axis < 0 and version < 11:
                continue
            arrays = [numbers(dtype, 3, 4), places, numbers(dtype, 3, 2, salt=1)]
            yield Form(f"{dtype} {axis}", arrays, {"axis": axis})
            if dtype == np.float32:
                for reduction in ("add", "mul") * (version >= 16) + ("max", "min") * (
                    version >= 18
                ):
                    yield Form(
                        f"{dtype} {axis} {reduction}",
                        arrays,
                        {"axis": axis, "reduction": reduction},
                    )


@forms("ScatterND")
def scatter_nd(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        rows = np.argsort(normal(5))[:3, None]
        arrays = [numbers(dtype, 5, 4), rows, numbers(dtype, 3, 4, salt=1)]
        yield Form(f"{dtype}", arrays)
        if dtype == np.float32:
            for reduction in ("add", "mul") * (version >= 16) + ("max", "min") * (version >= 18):
                yield Form(f"{dtype} {reduction}", arrays, {"reduction": reduction})
        yield Form(
            f"{dtype} elements",
            [numbers(dtype, 5, 4), np.array([[0, 1], [4, 3]]), numbers(dtype, 2, salt=1)],
        )


@forms("DepthToSpace", "SpaceToDepth")
def depth(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "uint8")):
        for block in (1, 2):
            shape = (2, 8, 3, 2) if op == "DepthToSpace" else (2, 2, 6, 4)
            yield Form(f"{dtype} {block}", [numbers(dtype, *shape)], {"blocksize": block})
            if op == "DepthToSpace" and version >= 11:
                for mode in ("DCR", "CRD"):
                    yield Form(
                        f"{dtype} {block} {mode}",
                        [numbers(dtype, *shape)],
                        {"blocksize": block, "mode": mode},
                    )


@forms("Shape", "Size")
def sizes(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for shape in ((2, 3, 4), (), (0, 3)):
            yield Form(f"{dtype} {shape}", [numbers(dtype, *shape)])
        if op == "Shape" and version >= 15:
            yield Form(f"{dtype} part", [numbers(dtype, 2, 3, 4)], {"start": 1, "end": -1})


@forms("Identity")
def identity(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for shape in ((2, 3), (), (0,)):
            yield Form(f"{dtype} {shape}", [numbers(dtype, *shape)])


@forms("EyeLike")
def eye(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "int64", "double", "int32", "uint8")):
        for k in (-1, 0, 2):
            yield Form(f"{dtype} {k}", [numbers(dtype, 3, 4)], {"k": k})
            yield Form(f"{dtype} {k} double", [numbers(dtype, 3, 4)], {"k": k, "dtype": 11})


@forms("ConstantOfShape")
def filled(op: str, version: int) -> Iterator[Form]:
    import onnx

    for shape in ((2, 3), (0,), (1, 1, 4)):
        for known in (frozenset({0}), frozenset[int]()):
            yield Form(f"{shape} {len(known)}", [ints(*shape)], fixed=known)
            for dtype in (np.float32, np.int64, np.bool_, np.uint8):
                value = onnx.numpy_helper.from_array(
                    np.array([3 if dtype != np.bool_ else 1], dtype)
                )
                yield Form(
                    f"{shape} {len(known)} {np.dtype(dtype)}",
                    [ints(*shape)],
                    {"value": value},
                    fixed=known,
                )


@forms("OneHot")
def one_hot(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("int64", "float", "int32")):
        for axis in (-1, 0, 1):
            for values in ((0, 1), (2, 5)):
                low = -4 if version >= 11 else 0
                indices = whole(low, 4, 2, 3).astype(dtype)
                arrays = [indices, np.array(4, np.int64), np.array(values, np.float32)]
                yield Form(
                    f"{dtype} {axis} {values} {low}",
                    arrays,
                    {"axis": axis},
                    fixed=frozenset({1, 2}),
                )


@forms("NonZero")
def non_zero(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "int64", "int32", "bool", "uint8")):
        for shape in ((3, 4), (2, 3, 2), (7,)):
            yield Form(f"{dtype} {shape}", [numbers(dtype, *shape, high=2, low=-1)])


@forms("Compress")
def compress(op: str, version: int) -> Iterator[Form]:
    keep = np.array([True, False, True])
    for dtype in dtypes_of(op, version, MOVED):
        for axis in (0, 1, -1, None):
            if axis is not None and axis < 0 and version < 11:
                continue
            yield Form(
                f"{dtype} {axis}",
                [numbers(dtype, 3, 3), keep],
                {} if axis is None else {"axis": axis},
            )


@forms("Unique")
def unique(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "int64", "double", "int8")):
        for ordered in (0, 1):
            yield Form(f"{dtype} {ordered}", [numbers(dtype, 4, 3, high=3)], {"sorted": ordered}, 4)
            yield Form(
                f"{dtype} {ordered} rows",
                [numbers(dtype, 4, 2, low=0, high=2)],
                {"sorted": ordered, "axis": 0},
                4,
            )


@forms("ReverseSequence")
def reverse(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, MOVED):
        for time in (0, 1):
            lengths = ints(1, 3, 2, 3) if time == 0 else ints(4, 1, 2)
            attrs = {"time_axis": time, "batch_axis": 1 - time}
            yield Form(f"{dtype} {time}", [numbers(dtype, 3, 4, 2), lengths], attrs)


@forms("Range")
def arange(op: str, version: int) -> Iterator[Form]:
    for dtype in dtypes_of(op, version, ("float", "double", "int32", "int64", "int16")):
        for start, limit, delta in ((1, 9, 2), (5, -3, -3), (3, 3, 1)):
            arrays = [np.array(v, dtype) for v in (start, limit, delta)]
            for known in (frozenset({0, 1, 2}), frozenset({0, 2}), frozenset[int]()):
                yield Form(f"{dtype} {start} {limit} {delta} {len(known)}", arrays, fixed=known)


@forms("Dropout")
def dropout(op: str, version: int) -> Iterator[Form]:
    """Without training it hands on its input."""
    for dtype in dtypes_of(op, version, ("float", "double", "float16")):
        for ratio in (0.0, 0.3):
            x = normal(3, 4).astype(dtype)
            test = {"is_test": 1} if version < 7 else {}
            if version < 12:
                yield Form(f"{dtype} {ratio}", [x], {"ratio": ratio, **test})
            else:
                yield Form(f"{dtype} {ratio}", [x, np.array(ratio, dtype)], fixed=frozenset({1}))


@forms("Upsample")
def upsample(op: str, version: int) -> Iterator[Form]:
    for mode in ("nearest", "linear"):
        for scales in ([1.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.5, 2.5]):
            if version == 1:
                mode_name = "bilinear" if mode == "linear" else mode
                attrs: dict[str, Any] = {
                    "height_scale": scales[2],
                    "width_scale": scales[3],
                    "mode": mode_name,
                }
                yield Form(f"{mode} {scales}", [positive(1, 2, 3, 4)], attrs)
            elif version < 9:
                yield Form(
                    f"{mode} {scales}", [positive(1, 2, 3, 4)], {"scales": scales, "mode": mode}
                )
            else:
                arrays = [positive(1, 2, 3, 4), np.array(scales, np.float32)]
                yield Form(f"{mode} {scales}", arrays, {"mode": mode}, fixed=frozenset({1}))


def _resized_by_scales(x: Any, mode: str, scales: list[float]) -> Iterator[Form]:
    """One mode with every way to map coordinates."""
    arrays, known = [x, np.zeros(0, np.float32), np.array(scales, np.float32)], frozenset({1, 2})
    for ways in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
        attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": ways}
        about = f"{mode} {scales} {ways}"
        yield Form(about, arrays, attrs, fixed=known, tolerance=1e-4)
        for near in ("floor", "ceil", "round_prefer_ceil") if mode == "nearest" else ():
            yield Form(f"{about} {near}", arrays, {**attrs, "nearest_mode": near}, fixed=known)
        if mode == "cubic":
            own = {**attrs, "cubic_coeff_a": -0.5, "exclude_outside": 1}
            yield Form(f"{about} outside", arrays, own, fixed=known, tolerance=1e-4)


@forms("Resize")
def resize(op: str, version: int) -> Iterator[Form]:
    grown, shrunk = [1.0, 1.0, 2.0, 1.5], [1.0, 1.0, 0.6, 0.5]
    for mode in ("nearest", "linear", "cubic"):
        for scales in (grown, shrunk):
            x = positive(1, 2, 6, 8)
            if version == 10:
                if mode != "cubic":
                    arrays = [x, np.array(scales, np.float32)]
                    yield Form(f"old {mode} {scales}", arrays, {"mode": mode}, fixed=frozenset({1}))
                continue
            yield from _resized_by_scales(x, mode, scales)
            whole_sizes = [x, np.zeros(0, np.float32), np.zeros(0, np.float32), ints(1, 2, 5, 11)]
            if scales is grown:
                if version >= 13:
                    whole_sizes[1:3] = [None, None]
                known = frozenset(i for i in (1, 2, 3) if whole_sizes[i] is not None)
                yield Form(
                    f"{mode} sizes", whole_sizes, {"mode": mode}, fixed=known, tolerance=1e-4
                )
            if version >= 18 and scales is shrunk and mode != "nearest":
                arrays = [x, None, np.array([0.5, 0.6], np.float32)]
                attrs = {"mode": mode, "antialias": 1, "axes": [2, 3]}
                yield Form(f"{mode} antialias", arrays, attrs, fixed=frozenset({2}), tolerance=1e-4)
