"""Products in bfloat16 with float32 sums, where the build allows lower precision; everything
between stays float32.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Fuse, Op, P, Rule, any_of, const, fuse, literal, var
from tactix_ops.rules.anchors import takes_epilogue
from tactix_ops.rules.epilogue import MAX_NODES
from tactix_ops.rules.facts import again, fields_of
from tactix_ops.rules.rounded import rounded, roundings

_low = partial(Rule, numerics="bf16", device="cpu", phase="fuse")
BLOCK = 16
"""Channels of a block: float32 of a vector of AVX-512, which matrix units come with."""
ATTENTIONS = (P.tactix.Attention, P.tactix.TokenAttention)
RECURRENT = (P.tactix.LSTM, P.tactix.GRU)


def _halved(w: Any) -> Any:
    return literal(w.astype(DType.BF16.numpy))


def _floats(root: Node, x: Value, w: Value) -> bool:
    """Whether everything is float32, and the weights are all that is constant."""
    all_floats = all(v.spec.dtype is DType.FP32 for v in (x, w, root.outputs[0]))
    return all_floats and x.const is None


def _finite(w: Value) -> bool:
    """Whether weights stay finite in bfloat16."""
    return bool(np.isfinite(w.array.astype(DType.BF16.numpy).astype(np.float32)).all())


def _bias(root: Node) -> Value | None:
    return root.inputs[2] if len(root.inputs) > 2 else None


# -- convolution ---------------------------------------------------------------------------------


def _conv_when(root: Node, x: Value, w: Value) -> bool:
    b, group = _bias(root), root.attrs.group
    depthwise = x.spec.rank < 5 and group == x.spec.shape[1] == w.spec.shape[0]
    return (
        (group == 1 or depthwise or _whole_blocks(w, group) or _parts_of_blocks(w, group))
        and x.spec.rank in (3, 4, 5)
        and (b is None or b.const is not None)
        and _floats(root, x, w)
    )


def _whole_blocks(w: Value, group: int) -> bool:
    """Whether groups are of whole channel blocks, which kernels for matrix units take."""
    co, c = w.spec.shape[:2]
    return isinstance(co, int) and isinstance(c, int) and not (c % BLOCK or co // group % BLOCK)


def _parts_of_blocks(w: Value, group: int) -> bool:
    """Whether groups are of a half or a quarter of a channel block, which kernels join to whole
    ones.
    """
    co, c = w.spec.shape[:2]
    return isinstance(co, int) and c in (BLOCK // 2, BLOCK // 4) and co == c * group


def _conv(root: Node, x: Value, w: Value, graph: Any) -> Op:
    inputs = [rounded(x, root, graph), _halved(w.const), *root.inputs[2:]]
    return Op("tactix.WideConvolution@1", again(root, inputs).inputs, fields_of(root.attrs))


def _conv_example(net: Any) -> None:
    rng = np.random.default_rng(3)
    x = net.add_input("x", "f32", ["n", 3, 5, "w"])
    w, b = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((4, 3, 1, 2), (4,))
    )
    net.mark_output(net.add_layer("tactix.Convolution", [x, w, b])[0], "y")


def _spread_when(root: Node, x: Value, w: Value) -> bool:
    """Whether windows do not overlap: then each tap is a product."""
    a, b, rank = root.attrs, _bias(root), x.spec.rank - 2
    plain = a.group == 1 and not any((*a.pads, *a.output_padding)) and set(a.dilations) <= {1}
    apart = plain and rank in (1, 2) and tuple(a.strides or (1,) * rank) == w.array.shape[2:]
    return apart and (b is None or b.const is not None) and _floats(root, x, w)


def _spread(root: Node, x: Value, w: Value, graph: Any) -> Op:
    inputs = [rounded(x, root, graph), _halved(w.const), *root.inputs[2:]]
    return Op("tactix.WideConvTranspose@1", tuple(inputs), fields_of(root.attrs))


def _spread_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5, 4])
    w = net.add_constant(np.random.default_rng(4).standard_normal((3, 4, 2, 2), dtype=np.float32))
    net.mark_output(net.add_layer("tactix.ConvTranspose", [x, w], strides=(2, 2))[0], "y")


# -- matrices ------------------------------------------------------------------------------------


def _matmul_when(root: Node, x: Value, w: Value) -> bool:
    return x.spec.rank >= 2 and w.spec.rank == 2 and _floats(root, x, w)


def _matmul(root: Node, x: Value, w: Value, graph: Any) -> Op:
    return P.tactix.WideMatMul(rounded(x, root, graph), _halved(w.const))


def _matmul_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5])
    w = net.add_constant(np.random.default_rng(6).standard_normal((5, 6), dtype=np.float32))
    net.mark_output(net.add_layer("tactix.MatMul", [x, w])[0], "y")


# -- attention -----------------------------------------------------------------------------------


def _attention_when(root: Node) -> bool | str:
    if getattr(root.attrs, "keys", None) is not None:
        return "rounding rows of keys that do not count costs more than is gained"
    return all(v.spec.dtype is DType.FP32 and v.const is None for v in root.given[:3])


def _attention(root: Node, graph: Any) -> Op:
    """Queries, keys and values rounded, each tensor once; the mask stays as it is."""
    halves = {v: rounded(v, root, graph) for v in root.given[:3]}
    op = again(root, [*(halves[v] for v in root.given[:3]), *root.inputs[3:]])
    return P.tactix.Cast(op, to=DType.FP32)


def _attention_example(net: Any) -> None:
    q, k = (net.add_input(name, "f32", ["n", 2, s, 4]) for name, s in (("q", 3), ("k", 5)))
    mask = net.add_input("mask", "f32", [3, 5])
    net.mark_output(net.add_layer("tactix.Attention", [q, k, k, mask], scale=0.5)[0], "y")


# -- recurrent layers ----------------------------------------------------------------------------


def _recurrent_when(root: Node, x: Value, w: Value, r: Value) -> bool:
    return all(_floats(root, x, v) for v in (w, r)) and all(
        v is None for v in root.inputs[4:5] + root.inputs[7:]
    )


def _recurrent(root: Node, x: Value, w: Value, r: Value, graph: Any) -> tuple[Op, ...]:
    op = again(
        root, [rounded(x, root, graph), _halved(w.const), _halved(r.const), *root.inputs[3:]]
    )
    return tuple(P.tactix.Cast(op.out(i), to=DType.FP32) for i in range(len(root.outputs)))


def _recurrent_example(net: Any) -> None:
    rng = np.random.default_rng(9)
    x = net.add_input("x", "f32", ["t", "n", 3])
    w, r = (net.add_constant(rng.standard_normal((1, 6, k), dtype=np.float32)) for k in (3, 2))
    for i, v in enumerate(net.add_layer("tactix.GRU", [x, w, r], hidden_size=2)):
        net.mark_output(v, f"y{i}")


# -- rounded where it is made --------------------------------------------------------------------


def _maker(root: Node, x: Value, graph: Any) -> Node | None:
    """The anchored node that makes the tensor, if it may give the rounded one beside it."""
    p = x.producer
    fits = p is not None and takes_epilogue(p) and len(p.body.nodes) < MAX_NODES
    return p if fits and roundings(x, graph) == [root] else None


def _beside(root: Node, x: Value, graph: Any) -> Fuse:
    return fuse(_maker(root, x, graph), root)


def _beside_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", ["n", 5])])
    (z,) = net.add_layer("tactix.Cast", [y], to=DType.BF16)
    net.mark_output(net.add_layer("tactix.Transpose", [y], perm=(1, 0))[0], "y")
    net.mark_output(net.add_layer("tactix.Transpose", [z], perm=(1, 0))[0], "z")


RULES = (
    _low(
        "tactix.rounded_beside",
        P.tactix.Cast(var("x"), to=DType.BF16),
        _beside,
        lambda root, x, graph: _maker(root, x, graph) is not None,
        benefit=15,
        exclusive=False,
        example=_beside_example,
    ),
    _low(
        "tactix.bf16_convolution",
        P.tactix.Convolution(var("x"), const("w")),
        _conv,
        _conv_when,
        fits=_finite,
        benefit=90,
        example=_conv_example,
    ),
    _low(
        "tactix.bf16_conv_transpose",
        P.tactix.ConvTranspose(var("x"), const("w")),
        _spread,
        _spread_when,
        fits=_finite,
        benefit=90,
        example=_spread_example,
    ),
    _low(
        "tactix.bf16_matmul",
        P.tactix.MatMul(var("x"), const("w")),
        _matmul,
        _matmul_when,
        fits=_finite,
        benefit=90,
        example=_matmul_example,
    ),
    _low(
        "tactix.bf16_attention",
        any_of(*(layer(var("q"), var("k"), var("v")) for layer in ATTENTIONS)),
        _attention,
        _attention_when,
        benefit=90,
        example=_attention_example,
    ),
    _low(
        "tactix.bf16_recurrent",
        any_of(*(layer(var("x"), const("w"), const("r")) for layer in RECURRENT)),
        _recurrent,
        _recurrent_when,
        fits=lambda w, r: _finite(w) and _finite(r),
        benefit=90,
        example=_recurrent_example,
    ),
)
