"""Weights of few bits where no kernel reads them: written out at build."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import evaluate
from tactix.contracts.graph import Node
from tactix.contracts.rule import Op, P, Rule, literal
from tactix_ops.layers.few_bits import written_out

T = P.tactix


def _is_constant(root: Node) -> bool:
    return all(v is None or v.const is not None for v in root.inputs[1:])


def _written_out(root: Node) -> Op:
    a, *weights = root.inputs
    assert a is not None
    raw, scale, zero = (*(None if v is None else v.const for v in weights), None)[:3]
    rows = written_out(root.attrs, evaluate(a.spec.shape[-1], {}), raw, scale, zero)
    return T.MatMul(a, literal(np.ascontiguousarray(rows.T.astype(a.spec.dtype.numpy))))


def _example(net: Any) -> None:
    rng = np.random.default_rng(12)
    raw = net.add_constant(rng.integers(0, 256, (5, 2, 16), np.uint8))
    scale = net.add_constant(rng.uniform(0.1, 0.2, (5, 2)).astype(np.float32))
    inputs = [net.add_input("x", "f32", ["n", 40]), raw, scale]
    net.mark_output(net.add_layer("tactix.FewBitsMatMul", inputs)[0], "y")


RULES = (
    Rule(
        "tactix.few_bits_written_out",
        T.FewBitsMatMul(),
        _written_out,
        _is_constant,
        benefit=60,
        example=_example,
        device="cuda",
    ),
)
