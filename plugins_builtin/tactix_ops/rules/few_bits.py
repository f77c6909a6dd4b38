"""Weights of few bits where no kernel reads them: written out at build."""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.base.dims import evaluate
from tactix.contracts.graph import Node
from tactix.contracts.rule import Op, P, Rule, literal
from tactix_ops.layers.few_bits import table_rows, written_out

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


def _table_written_out(root: Node) -> Op:
    table, indices, scale, zero = (*root.inputs, None)[:4]
    assert table is not None
    assert indices is not None
    assert scale is not None
    rows = table_rows(root.attrs, table.array, scale.array, None if zero is None else zero.const)
    return T.Gather(literal(np.ascontiguousarray(rows)), indices, axis=0)


def _table_is_constant(root: Node) -> bool:
    return all(v is None or v.const is not None for v in (root.inputs[0], *root.inputs[2:]))


def _table_example(net: Any) -> None:
    rng = np.random.default_rng(13)
    raw = net.add_constant(rng.integers(0, 256, (9, 20), np.uint8))
    scale = net.add_constant(rng.uniform(0.1, 0.2, (9, 2)).astype(np.float32))
    indices = net.add_constant(np.array([[1, -2, 0], [7, 1, 1]]))
    made = net.add_layer("tactix.FewBitsGather", [raw, indices, scale], columns=40)
    net.mark_output(made[0], "y")


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
    Rule(
        "tactix.few_bits_table_written_out",
        T.FewBitsGather(),
        _table_written_out,
        _table_is_constant,
        benefit=60,
        example=_table_example,
        device="cuda",
    ),
)
