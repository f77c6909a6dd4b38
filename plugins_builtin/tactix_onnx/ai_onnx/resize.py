"""Resize and Upsample: sizes, scales and regions move between attributes and inputs over the
operator sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tactix.base.dims import Dim
from tactix.base.errors import ModelImportError
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_ops.layers.common import axes_of
from tactix_ops.layers.dynamic_resize import fitted, scaled

CONVERTERS = Table()


def _scales(ctx: Context, index: int) -> tuple[float, ...]:
    """Scales from a constant input; empty if it is absent or empty."""
    if ctx.input(index) is None or ctx.spec(index).shape == (0,):
        return ()
    scales = tuple(float(v) for v in ctx.array(index))
    if not all(math.isfinite(s) and s >= 0 for s in scales):
        raise ModelImportError(f"its scales are {scales}", do="Give numbers of 0 or more")
    return scales


@CONVERTERS("Upsample")
def upsample_image(ctx: Context, node: Any) -> Value:
    """The first operator set knew images alone."""
    return _old(ctx, (1.0, 1.0, ctx.attr("height_scale"), ctx.attr("width_scale")))


@CONVERTERS("Upsample", since=7)
def upsample(ctx: Context, node: Any) -> Value:
    return _old(ctx)


@CONVERTERS("Resize", since=10)
def resize_first(ctx: Context, node: Any) -> Value:
    return _old(ctx)


def _old(ctx: Context, factors: tuple[float, ...] = ()) -> Value:
    """Upsample and the first Resize: coordinates divided by the scale, rounded as ONNX Runtime
    does.

    ``factors``: scales that are known otherwise.
    """
    x, mode = ctx.tensor(), ctx.attr("mode", "nearest")
    fields = {
        "mode": "linear" if mode in ("bilinear", "linear") else mode,
        "nearest_mode": "simple",
    }
    fields["coordinate_transformation_mode"] = "asymmetric"
    if not ctx.has_attr("scales") and _is_late(ctx, 1):
        return ctx.layer(
            "tactix.DynamicResize", [x, None, ctx.tensor(1)], symbol=ctx.symbol(), **fields
        )
    scales = factors or (tuple(ctx.attr("scales")) if ctx.has_attr("scales") else _scales(ctx, 1))
    if len(scales) != x.spec.rank:
        ctx.fail(f"it has {len(scales)} scales for {x.spec}")
    sizes = tuple(scaled(d, s) for d, s in zip(x.spec.shape, scales, strict=True))
    return ctx.layer("tactix.Resize", [x], sizes=sizes, scales=scales, **fields)


def _is_late(ctx: Context, i: int) -> bool:
    """Whether a tensor of floats is there that is no constant."""
    return ctx.input(i) is not None and ctx.spec(i).shape != (0,) and ctx.const(i) is None


@CONVERTERS("Resize", since=11)
def resize(ctx: Context, node: Any) -> Value:
    x, rank, policy = ctx.tensor(), ctx.spec().rank, ctx.attr("keep_aspect_ratio_policy", "stretch")
    axes = axes_of(ctx.attr("axes", tuple(range(rank))), rank, ctx.op)
    modes = _modes(ctx)
    cropped = modes["coordinate_transformation_mode"] == "tf_crop_and_resize"
    late = _is_late(ctx, 2) or ctx.late(3) or (cropped and _is_late(ctx, 1))
    if late or (policy != "stretch" and _are_sizes_open(ctx, axes)):
        modes["keep_aspect_ratio_policy"] = policy
        inputs = [x, *(ctx.input(i) for i in (1, 2, 3))]
        return ctx.layer("tactix.DynamicResize", inputs, symbol=ctx.symbol(), axes=axes, **modes)
    if cropped:
        modes["roi"] = _region(ctx, axes)
    scales = _scales(ctx, 2)
    if scales and ctx.input(3) is not None and ctx.spec(3).shape != (0,):
        what = "it has both scales and sizes, of which there can be one"
        raise ModelImportError(what, do="Leave one of them out")
    sizes = list(x.spec.shape)
    full = [1.0] * rank
    _check_count("scales", scales, axes)
    if scales:
        for a, s in zip(axes, scales, strict=True):
            sizes[a], full[a] = scaled(x.spec.shape[a], s), s
    else:
        wanted = ctx.need_known(3, "sizes")
        _check_count("sizes", wanted, axes)
        for a, n, s in zip(
            axes, *_policy(policy, [x.spec.shape[a] for a in axes], wanted), strict=True
        ):
            sizes[a], full[a] = n, s
    if tuple(sizes) == x.spec.shape and all(s == 1 for s in full) and not modes.get("roi"):
        return x
    scaled_by = tuple(full) if all(s > 0 for s in full) else ()
    return ctx.layer("tactix.Resize", [x], sizes=tuple(sizes), scales=scaled_by, **modes)


def _are_sizes_open(ctx: Context, axes: Sequence[int]) -> bool:
    """Whether sizes are asked for of which some, or some of the input's, are symbols: the factor
    that is smallest, or largest, is one that only running tells.
    """
    sizes = ctx.known(3) if ctx.input(3) is not None else None
    numbers = [*(ctx.spec().shape[a] for a in axes), *(sizes or ())]
    return bool(sizes) and not all(isinstance(d, int) for d in numbers)


def _check_count(what: str, given: Sequence[Dim | float], axes: Sequence[int]) -> None:
    """Raises ModelImportError for numbers that are there, and not one for each axis."""
    if given and len(given) != len(axes):
        why = f"it resizes {len(axes)} axes"
        raise ModelImportError(f"it has {len(given)} {what}", why=why, do="Give one for each axis")


def _policy(
    policy: str, have: Sequence[Dim], want: Sequence[Dim]
) -> tuple[Sequence[Dim], Sequence[float]]:
    """Sizes and scales by ``keep_aspect_ratio_policy``; scale 0 where it is the quotient of the
    sizes. Other policies than to stretch are asked for of numbers alone.
    """
    if policy == "stretch":
        return want, [1.0 if h == w else 0.0 for h, w in zip(have, want, strict=True)]
    return fitted(_numbers(have), _numbers(want), policy)


def _numbers(dims: Sequence[Dim]) -> list[int]:
    return [d for d in dims if isinstance(d, int)]


def _modes(ctx: Context) -> dict[str, Any]:
    return {
        "mode": ctx.attr("mode", "nearest"),
        "coordinate_transformation_mode": ctx.attr("coordinate_transformation_mode", "half_pixel"),
        "nearest_mode": ctx.attr("nearest_mode", "round_prefer_floor"),
        "cubic_coeff_a": ctx.attr("cubic_coeff_a", -0.75),
        "exclude_outside": bool(ctx.attr("exclude_outside", 0)),
        "extrapolation_value": ctx.attr("extrapolation_value", 0.0),
        "antialias": bool(ctx.attr("antialias", 0)),
    }


def _region(ctx: Context, axes: tuple[int, ...]) -> tuple[float, ...]:
    """Starts and ends for every axis, 0 and 1 where the node names none."""
    given, rank = ctx.const(1), ctx.spec().rank
    if given is None:
        ctx.fail("its region of interest is missing", "Give the input roi as a constant")
    out = [0.0] * rank + [1.0] * rank
    for i, a in enumerate(axes):
        out[a], out[rank + a] = float(given[i]), float(given[len(axes) + i])
    return tuple(out)
