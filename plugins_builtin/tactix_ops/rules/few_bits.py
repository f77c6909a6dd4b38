"""Weights of few bits on a GPU: written out at build where no kernel reads them, and where that may
be faster, since products of many rows read each weight once for many of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import evaluate, prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import RIVAL, Op, P, Rule, const, literal, var
from tactix_ops.layers.few_bits import written_out
from tactix_ops.rules.facts import again

T = P.tactix
BITS, CHUNK = (4, 8), 32
"""Bits, and numbers of which blocks consist of whole ones, that kernels of a GPU read."""
READ = (DType.FP32, DType.FP16, DType.BF16)
SMALLEST, LARGEST = 2.0**-14, 65504.0
"""Of the numbers for which float16 has all of its digits."""
FEW_ROWS = 16
"""Rows of x up to which reading the weights takes longer than all else, so that nothing is gained
by writing them out, and a plan keeps few bits.
"""


def _is_constant(root: Node) -> bool:
    return all(v is None or v.const is not None for v in root.inputs[1:])


def _is_unread(root: Node) -> bool:
    """Whether no kernel of a GPU reads its bits."""
    attrs, whole = root.attrs, root.given[1].spec.shape[1] == 1
    read = attrs.bits in BITS and (whole or attrs.block_size % CHUNK == 0)
    return _is_constant(root) and not (read and root.given[0].spec.dtype in READ)


def _has_rows(root: Node) -> bool:
    """Whether it may have many."""
    rows = prod(root.given[0].spec.shape[:-1])
    return _is_constant(root) and not (isinstance(rows, int) and rows <= FEW_ROWS)


def _written_out(root: Node) -> Op:
    a, *weights = root.inputs
    assert a is not None
    raw, scale, zero = (*(None if v is None else v.const for v in weights), None)[:3]
    rows = written_out(root.attrs, evaluate(a.spec.shape[-1], {}), raw, scale, zero)
    return T.MatMul(a, literal(np.ascontiguousarray(rows.T.astype(a.spec.dtype.numpy))))


def _example(net: Any) -> None:
    _product(net, 32)


def _unread_example(net: Any) -> None:
    _product(net, 24)


def _product(net: Any, block: int) -> None:
    rng = np.random.default_rng(12)
    raw = net.add_constant(rng.integers(0, 256, (5, 2, block // 2), np.uint8))
    scale = net.add_constant(rng.uniform(0.1, 0.2, (5, 2)).astype(np.float32))
    inputs = [net.add_input("x", "f32", ["n", 40]), raw, scale]
    net.mark_output(net.add_layer("tactix.FewBitsMatMul", inputs, block_size=block)[0], "y")


# -- scales --------------------------------------------------------------------------------------


def _is_wide(s: Value) -> bool:
    return s.spec.dtype is DType.FP32


def _holds(s: Value) -> bool:
    """Whether float16 has all of its digits for each."""
    sizes = np.abs(s.array[s.array != 0])
    return bool(((sizes >= SMALLEST) & (sizes <= LARGEST)).all())


def _narrow(root: Node, s: Value) -> Op:
    inputs: list[Any] = [*root.inputs]
    inputs[2] = literal(s.array.astype(np.float16))
    return again(root, inputs)


LOWERING_RULES = tuple(
    Rule(
        f"tactix.scales_beside_{kind}",
        T.FewBitsMatMul(var("x"), const("w"), const("s")),
        _narrow,
        _is_wide,
        fits=_holds,
        numerics=kind,
        example=_example,
        device="cuda",
    )
    for kind in ("fp16", "bf16")
)
"""Scales become float16 where a product may be lowered: weights that are written out are rounded as
much.
"""

RULES = (
    Rule(
        "tactix.few_bits_written_out",
        T.FewBitsMatMul(),
        _written_out,
        _is_unread,
        benefit=60,
        example=_unread_example,
        device="cuda",
    ),
    Rule(
        "tactix.floats_for_few_bits",
        T.FewBitsMatMul(),
        _written_out,
        _has_rows,
        example=_example,
        phase=RIVAL,
        device="cuda",
    ),
)
