"""What a convolution takes into its constants: normalisation, factors and terms per channel, zero
padding before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Pattern, Rule, any_of, const, literal, var
from tactix_ops.rules.facts import Array, again, along_axis, holds_magnitudes

CONVS = ("Convolution", "ConvTranspose")


def _conv_patterns(wrap: Callable[[Op], Op]) -> Any:
    """The pattern over either convolution with constant weights."""
    return any_of(
        *(wrap(getattr(P.tactix, name)(var("x"), const("w")) >> "conv") for name in CONVS)
    )


def _bias(conv: Node) -> Value | None:
    return conv.inputs[2] if len(conv.inputs) > 2 else None


def _fixed(conv: Node) -> bool:
    """Whether the bias, if any, is constant."""
    b = _bias(conv)
    return b is None or b.const is not None


def _channels(conv: Node) -> Dim:
    return conv.outputs[0].spec.shape[1]


def _scaled(conv: Node, scale: Array, shift: Array) -> Op:
    """Template: the convolution whose result is ``scale`` times the old one plus ``shift``, per
    output channel.
    """
    w, b = conv.inputs[1].array, _bias(conv)  # type: ignore[union-attr]
    wide = np.float64 if w.dtype == np.float64 else np.float32
    factor, term = scale.astype(wide), shift.astype(wide)
    if conv.layer.name == "Convolution":
        weights = w * factor.reshape(-1, *(1,) * (w.ndim - 1))
    else:
        grouped = w.reshape(conv.attrs.group, w.shape[0] // conv.attrs.group, *w.shape[1:])
        weights = (
            grouped * factor.reshape(conv.attrs.group, 1, w.shape[1], *(1,) * (w.ndim - 2))
        ).reshape(w.shape)
    bias = term if b is None else b.array * factor + term
    return again(
        conv, [conv.inputs[0], literal(weights.astype(w.dtype)), literal(bias.astype(w.dtype))]
    )


def _holds(conv: Node, scale: Array, shift: Array) -> bool | str:
    """Whether the weights' dtype holds each output channel times its factor, and the bias."""
    w, b = conv.given[1], _bias(conv)
    dtype = w.spec.dtype
    factor = np.abs(scale)
    largest = (_magnitudes(conv, np.abs(w.array)).astype(np.float64) * factor)[factor != 1]
    with np.errstate(over="ignore", invalid="ignore"):
        bias = (shift if b is None else b.array * scale + shift).astype(dtype.numpy)
    held = holds_magnitudes(dtype, largest) and bool(np.isfinite(bias).all())
    return True if held else "the weights' dtype does not hold the result"


def _magnitudes(conv: Node, w: Array) -> Array:
    """The largest of each output channel."""
    if conv.layer.name == "Convolution":
        return w.reshape(w.shape[0], -1).max(axis=1, initial=0)
    grouped = w.reshape(conv.attrs.group, w.shape[0] // conv.attrs.group, w.shape[1], -1)
    return grouped.max(axis=(1, 3), initial=0).reshape(-1)


def _constants(conv: Node, *values: Value) -> bool:
    return _fixed(conv) and all(v.const is not None for v in values)


# -- batch normalisation -------------------------------------------------------------------------


def _affine(norm: Node) -> tuple[Array, Array]:
    """The factor and term per channel that a normalisation with these statistics is, in float64."""
    scale, bias, mean, var_ = (v.array.astype(np.float64) for v in norm.given[1:])
    factor = scale / np.sqrt(var_ + norm.attrs.epsilon)
    return factor, bias - mean * factor


def _norm_when(root: Node, conv: Node) -> bool:
    return _constants(conv, *root.given[1:])


def _norm_fits(root: Node, conv: Node) -> bool | str:
    return _holds(conv, *_affine(root))


def _norm_into_conv(root: Node, conv: Node) -> Op:
    return _scaled(conv, *_affine(root))


def _statistics(net: Any, rng: Any, channels: int) -> list[Value]:
    values = [rng.standard_normal(channels, dtype=np.float32) for _ in range(3)]
    return [
        net.add_constant(v)
        for v in (*values, rng.random(channels, dtype=np.float32) + np.float32(0.5))
    ]


def _norm_example(net: Any) -> None:
    rng = np.random.default_rng(1)
    x = net.add_input("x", "f32", ["n", 4, "h", 9])
    w, b = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((6, 2, 3, 3), (6,))
    )
    (y,) = net.add_layer("tactix.Convolution", [x, w, b], group=2, pads=(1, 1, 1, 1))
    (y,) = net.add_layer("tactix.BatchNormalization", [y, *_statistics(net, rng, 6)])
    t = net.add_constant(rng.standard_normal((6, 3, 2, 2), dtype=np.float32))
    (y,) = net.add_layer("tactix.ConvTranspose", [y, t], group=2, strides=(2, 2))
    (y,) = net.add_layer("tactix.BatchNormalization", [y, *_statistics(net, rng, 6)])
    net.mark_output(y, "y")


def _norm_as_pointwise(root: Node) -> Op:
    x = root.given[0]
    factor, term = (
        literal(v.astype(x.spec.dtype.numpy).reshape(-1, *(1,) * (x.spec.rank - 2)))
        for v in _affine(root)
    )
    return P.tactix.Add(P.tactix.Mul(x, factor), term)


def _pointwise_when(root: Node) -> bool:
    return all(v.const is not None for v in root.given[1:])


def _pointwise_fits(root: Node) -> bool:
    """Whether the dtype holds the factors and terms; else they are computed in float32."""
    factor, term = _affine(root)
    dtype = root.given[0].spec.dtype
    with np.errstate(over="ignore"):
        finite = bool(np.isfinite(term.astype(dtype.numpy)).all())
    return finite and holds_magnitudes(dtype, np.abs(factor))


def _pointwise_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 5])
    (y,) = net.add_layer(
        "tactix.BatchNormalization", [x, *_statistics(net, np.random.default_rng(2), 4)]
    )
    net.mark_output(y, "y")


def _norm_of_tensors(root: Node) -> Op:
    """As the layer computes it, for statistics that only running tells, or that are beyond the
    dtype: in float32 at least.
    """
    x = root.given[0].spec
    wide = DType.FP32 if x.dtype.bits < 32 else x.dtype
    shape = (x.shape[1], *(1,) * (x.rank - 2))

    def widened(v: Value) -> Pattern:
        return v if v.spec.dtype is wide else P.tactix.Cast(v, to=wide)

    scale, bias, mean, variance = (
        P.tactix.Reshape(widened(v), shape=shape) for v in root.given[1:]
    )
    epsilon = literal(np.asarray(root.attrs.epsilon, wide.numpy))
    factor = P.tactix.Div(scale, P.tactix.Sqrt(P.tactix.Add(variance, epsilon)))
    centred = P.tactix.Sub(widened(root.given[0]), mean)
    y = P.tactix.Add(P.tactix.Mul(centred, factor), bias)
    return y if x.dtype is wide else P.tactix.Cast(y, to=x.dtype)


def _tensors_example(net: Any) -> None:
    x, *parameters = (
        net.add_input(n, "f32", s) for n, s in (("x", ["n", 4]), *((c, [4]) for c in "abc"))
    )
    (variance,) = net.add_layer("tactix.Exp", [net.add_input("d", "f32", [4])])
    net.mark_output(net.add_layer("tactix.BatchNormalization", [x, *parameters, variance])[0], "y")


# -- factors and terms per channel ---------------------------------------------------------------


def _per_channel(root: Node, conv: Node, c: Value) -> Array | None:
    out = conv.outputs[0].spec
    if not _fixed(conv) or root.outputs[0].spec.shape != out.shape:
        return None
    return along_axis(c, out.rank, 1, _channels(conv))


def _channel_when(root: Node, conv: Node, c: Value) -> bool:
    return _per_channel(root, conv, c) is not None


def _channel_fits(root: Node, conv: Node, c: Value) -> bool | str:
    v = _per_channel(root, conv, c)
    assert v is not None
    return _holds(conv, *_factor_and_term(root, v))


def _factor_and_term(root: Node, v: Array) -> tuple[Array, Array]:
    """What a layer with a number for each channel does, in float64.

    Ones and zeros are of the shape alone: made of ``v`` they would count as a look at a weight.
    """
    v, layer = v.astype(np.float64), root.layer.name
    if layer in ("Add", "Sub"):
        return np.ones(v.shape), v if layer == "Add" else -v
    with np.errstate(divide="ignore"):
        return v if layer == "Mul" else 1.0 / v, np.zeros(v.shape)


def _channel_into_conv(root: Node, conv: Node, c: Value) -> Op:
    v = _per_channel(root, conv, c)
    assert v is not None
    return _scaled(conv, *_factor_and_term(root, v))


def _channel_pattern(layer: str) -> Any:
    return _conv_patterns(lambda conv: getattr(P.tactix, layer)(conv, const("c")))


def _channel_rule(layer: str) -> Rule:
    def example(net: Any) -> None:
        rng = np.random.default_rng(3)
        x = net.add_input("x", "f32", ["n", 3, 5, "w"])
        w = net.add_constant(rng.standard_normal((4, 3, 1, 2), dtype=np.float32))
        (y,) = net.add_layer("tactix.Convolution", [x, w])
        c = net.add_constant(rng.random((4, 1, 1), dtype=np.float32) + np.float32(0.5))
        net.mark_output(net.add_layer(f"tactix.{layer}", [y, c])[0], "y")

    return Rule(
        f"tactix.{layer.lower()}_into_conv",
        _channel_pattern(layer),
        _channel_into_conv,
        _channel_when,
        fits=_channel_fits,
        benefit=35,
        numerics="reassociates",
        example=example,
    )


# -- padding -------------------------------------------------------------------------------------


def surrounds_pixels(x: Value, pad: Node) -> bool:
    """Whether it puts a number around pixels, as many times as is known."""
    pads, rank = pad.attrs.pads, x.spec.rank
    spatial = all(pads[i] == 0 and pads[rank + i] == 0 for i in (0, 1))
    known = all(isinstance(p, int) and p >= 0 for p in pads)
    return pad.attrs.mode == "constant" and spatial and known


def pad_into_conv(root: Node, x: Value, pad: Node) -> Op:
    """The convolution with its own pads, and those that are put around before."""
    n = x.spec.rank - 2
    more = (*pad.attrs.pads[2 : 2 + n], *pad.attrs.pads[n + 4 :])
    pads = tuple(a + b for a, b in zip(root.attrs.pads or (0,) * 2 * n, more, strict=True))
    return again(root, [x, *root.inputs[1:]], pads=pads)


def _pad_when(x: Value, pad: Node) -> bool:
    return pad.attrs.value == 0 and surrounds_pixels(x, pad)


def _pad_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 8, "w"])
    w = net.add_constant(np.random.default_rng(4).standard_normal((4, 3, 3, 3), dtype=np.float32))
    (y,) = net.add_layer(
        "tactix.Pad", [x], pads=(0, 0, 1, 0, 0, 0, 0, 2), mode="constant", value=0.0
    )
    net.mark_output(
        net.add_layer("tactix.Convolution", [y, w], strides=(2, 1), pads=(0, 1, 1, 0))[0], "y"
    )


RULES = (
    Rule(
        "tactix.norm_into_conv",
        _conv_patterns(lambda conv: P.tactix.BatchNormalization(conv)),
        _norm_into_conv,
        _norm_when,
        fits=_norm_fits,
        benefit=35,
        numerics="reassociates",
        example=_norm_example,
    ),
    Rule(
        "tactix.norm_as_pointwise",
        P.tactix.BatchNormalization(var("x")),
        _norm_as_pointwise,
        _pointwise_when,
        fits=_pointwise_fits,
        benefit=10,
        numerics="reassociates",
        example=_pointwise_example,
    ),
    Rule(
        "tactix.norm_of_tensors",
        P.tactix.BatchNormalization(var("x")),
        _norm_of_tensors,
        fits=lambda root: not (_pointwise_when(root) and _pointwise_fits(root)),
        benefit=5,
        example=_tensors_example,
    ),
    *(_channel_rule(layer) for layer in ("Mul", "Div", "Add", "Sub")),
    Rule(
        "tactix.pad_into_conv",
        P.tactix.Convolution(P.tactix.Pad(var("x")) >> "pad", var("w")),
        pad_into_conv,
        _pad_when,
        benefit=35,
        example=_pad_example,
    ),
)
