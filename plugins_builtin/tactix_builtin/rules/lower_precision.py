"""Products in bfloat16 with float32 sums, where the build allows lower precision; everything between stays float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Fuse, Op, P, Rule, const, fuse, literal, var
from tactix.words.dtypes import DType
from tactix_builtin.rules.anchors import takes_epilogue
from tactix_builtin.rules.epilogue import MAX_NODES
from tactix_builtin.rules.facts import again, fields_of

LOWER = "lower-precision"


def _halved(w: Any) -> Any:
    return literal(w.astype(DType.BF16.numpy))


def _floats(root: Node, x: Value, w: Value) -> bool:
    """Whether everything is float32, and the weights stay finite."""
    all_floats = all(v.spec.dtype is DType.FP32 for v in (x, w, root.outputs[0]))
    return (
        all_floats and x.const is None and bool(np.isfinite(w.const.astype(DType.BF16.numpy).astype(np.float32)).all())
    )


def _bias(root: Node) -> Value | None:
    return root.inputs[2] if len(root.inputs) > 2 else None


# -- convolution -----------------------------------------------------------------------------------------------------


def _conv_when(root: Node, x: Value, w: Value) -> bool:
    b = _bias(root)
    return (
        root.attrs.group == 1 and x.spec.rank in (3, 4) and (b is None or b.const is not None) and _floats(root, x, w)
    )


def _conv(root: Node, x: Value, w: Value) -> Op:
    inputs = [P.tactix.Cast(x, to=DType.BF16), _halved(w.const), *root.inputs[2:]]
    return Op("tactix.WideConvolution@1", again(root, inputs).inputs, fields_of(root.attrs))


def _conv_example(net: Any) -> None:
    rng = np.random.default_rng(3)
    x = net.add_input("x", "f32", ["n", 3, 5, "w"])
    w, b = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((4, 3, 1, 2), (4,)))
    net.mark_output(net.add_layer("tactix.Convolution", [x, w, b])[0], "y")


# -- matrices --------------------------------------------------------------------------------------------------------


def _matmul_when(root: Node, x: Value, w: Value) -> bool:
    return x.spec.rank >= 2 and w.spec.rank == 2 and _floats(root, x, w)


def _matmul(x: Value, w: Value) -> Op:
    return P.tactix.WideMatMul(P.tactix.Cast(x, to=DType.BF16), _halved(w.const))


def _matmul_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5])
    w = net.add_constant(np.random.default_rng(6).standard_normal((5, 6), dtype=np.float32))
    net.mark_output(net.add_layer("tactix.MatMul", [x, w])[0], "y")


def _gemm_when(root: Node, x: Value, w: Value) -> bool:
    a, b = root.attrs, _bias(root)
    n = root.outputs[0].spec.shape[1]
    return not a.transA and a.alpha == 1 and a.beta == 1 and (b is None or b.spec.shape == (n,)) and _floats(root, x, w)


def _gemm(root: Node, x: Value, w: Value) -> Op:
    weights = np.ascontiguousarray(w.const.T) if root.attrs.transB else w.const
    return P.tactix.WideMatMul(P.tactix.Cast(x, to=DType.BF16), _halved(weights), *root.inputs[2:])


def _gemm_example(net: Any) -> None:
    rng = np.random.default_rng(7)
    x = net.add_input("x", "f32", ["n", 5])
    w, b = (net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((6, 5), (6,)))
    net.mark_output(net.add_layer("tactix.Gemm", [x, w, b], transB=True)[0], "y")


# -- rounded where it is made ----------------------------------------------------------------------------------------


def _maker(root: Node, x: Value) -> Node | None:
    """The anchored node that makes the tensor, if it may give the rounded one beside it."""
    p = x.producer
    return p if p is not None and takes_epilogue(p) and len(p.body.nodes) < MAX_NODES else None


def _beside(root: Node, x: Value) -> Fuse:
    return fuse(_maker(root, x), root)


def _beside_example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Softmax", [net.add_input("x", "f32", ["n", 5])])
    (z,) = net.add_layer("tactix.Cast", [y], to=DType.BF16)
    net.mark_output(net.add_layer("tactix.Transpose", [y], perm=(1, 0))[0], "y")
    net.mark_output(net.add_layer("tactix.Transpose", [z], perm=(1, 0))[0], "z")


RULES = (
    Rule(
        "tactix.rounded_beside", P.tactix.Cast(var("x"), to=DType.BF16), _beside,
        lambda root, x: _maker(root, x) is not None,
        benefit=15, numerics=LOWER, exclusive=False, example=_beside_example, phase="fuse",
    ),
    Rule(
        "tactix.bf16_convolution", P.tactix.Convolution(var("x"), const("w")), _conv, _conv_when,
        benefit=90, numerics=LOWER, example=_conv_example, phase="fuse",
    ),
    Rule(
        "tactix.bf16_matmul", P.tactix.MatMul(var("x"), const("w")), _matmul, _matmul_when,
        benefit=90, numerics=LOWER, example=_matmul_example, phase="fuse",
    ),
    Rule(
        "tactix.bf16_gemm", P.tactix.Gemm(var("x"), const("w")), _gemm, _gemm_when,
        benefit=90, numerics=LOWER, example=_gemm_example, phase="fuse",
    ),
)  # fmt: skip
