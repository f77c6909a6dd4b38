"""Bytes are moved, not the floats that they stand for: QuantizeLinear above what moves, Dequantize
below it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.builtin.rules.conftest import compare

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import all_rules, processor_rules, reordering_rules

TURN = {"perm": (0, 2, 1)}
ENLARGED = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}


def rewritten(net: Any) -> tuple[Any, dict[str, Any]]:
    out, _ = fuse(net, [*all_rules(), *processor_rules(), *reordering_rules()])
    verify(out, deep=True)
    rng = np.random.default_rng(0)
    shapes = {v.name: v.spec.at({"n": 2}) for v in net.inputs}
    bytes_of = {v.name: v.spec.dtype is DType.UINT8 for v in net.inputs}
    return out, {
        k: rng.integers(0, 256, s).astype(np.uint8)
        if bytes_of[k]
        else rng.standard_normal(s).astype(np.float32)
        for k, s in shapes.items()
    }


def quantize(net: Any, x: Any, scale: float = 0.04) -> Any:
    return net.add("QuantizeLinear", x, net.c(scale), net.c(119, np.uint8), dtype=DType.UINT8)


def dequantize(net: Any, x: Any, scale: float = 0.04) -> Any:
    return net.add("DequantizeLinear", x, net.c(scale), net.c(119, np.uint8))


def moved(out: Any, layer: str) -> list[DType]:
    """What nodes with a layer of that name read first."""
    found = [n for n in out.nodes if layer in {b.layer.name for b in n.body.nodes}]
    return [n.given[0].spec.dtype for n in found]


def test_what_is_quantised_behind_a_transpose_is_moved_as_bytes(net: Any) -> None:
    y = net.add("Transpose", net.add("Relu", net.x("n", 6, 8)), **TURN)
    net.mark_output(quantize(net, y), "y")
    out, inputs = rewritten(net)
    assert moved(out, "Transpose") == [DType.UINT8]
    compare(net, out, inputs)


def test_what_is_enlarged_is_quantised_before(net: Any) -> None:
    x = dequantize(net, net.x("n", 3, 4, 4, dtype="u8"))
    y = net.add("Resize", x, sizes=(x.spec.shape[0], 3, 8, 8), **ENLARGED)
    net.mark_output(net.add("Relu", dequantize(net, quantize(net, y, 0.05), 0.05)), "y")
    out, inputs = rewritten(net)
    assert moved(out, "Resize") == [DType.UINT8]
    assert out.nodes[0].outputs[0].spec.shape[-1] == 4  # scaled anew where there is less
    compare(net, out, inputs)


def test_parts_are_quantised_before_they_are_joined(net: Any) -> None:
    a, b = net.x("n", 3, name="a"), net.x("n", 4, name="b")
    y = net.add("Concat", net.add("Exp", a), net.add("Relu", b), axis=1)
    net.mark_output(quantize(net, y), "y")
    out, inputs = rewritten(net)
    assert moved(out, "Concat") == [DType.UINT8]
    compare(net, out, inputs)


@pytest.mark.parametrize("output", [False, True])
def test_what_floats_are_read_of_is_moved_as_floats(net: Any, output: bool) -> None:
    y = net.add("Transpose", net.x("n", 6, 8), **TURN)
    net.mark_output(quantize(net, y), "y")
    net.mark_output(y if output else net.add("Softmax", y), "z")
    out, inputs = rewritten(net)
    assert DType.FP32 in moved(out, "Transpose")
    compare(net, out, inputs)


def test_attention_moves_its_heads_itself(net: Any) -> None:
    a, b = net.x("n", 2, 5, 6, name="a"), net.x("n", 2, 6, 4, name="b")
    y = net.add("Transpose", net.add("MatMul", net.add("Softmax", a), b), perm=(0, 2, 1, 3))
    net.mark_output(quantize(net, y), "y")
    out, _ = rewritten(net)
    assert [n.outputs[0].spec.dtype for n in out.nodes][-1] is DType.UINT8
    assert moved(out, "Transpose") in ([DType.FP32], [])


@pytest.mark.parametrize("shaped", [False, True])
def test_dequantize_sinks_below_a_transpose(net: Any, shaped: bool) -> None:
    x = dequantize(net, net.x("n", 6, 8, dtype="u8"))
    x = net.add("Reshape", x, shape=(x.spec.shape[0], 12, 4)) if shaped else x
    net.mark_output(net.add("Exp", net.add("Transpose", x, **TURN)), "y")
    out, inputs = rewritten(net)
    assert moved(out, "Transpose") == [DType.UINT8]
    compare(net, out, inputs)


@pytest.mark.parametrize("reader", ["Exp", "Softmax"])
def test_dequantize_sinks_below_a_split_where_floats_cost_nothing(net: Any, reader: str) -> None:
    """In the loop that reads them, and not as steps of their own."""
    x = dequantize(net, net.x("n", 6, dtype="u8"))
    for i, v in enumerate(net.add_layer("tactix.Split", [x], axis=1, sizes=(2, 4))):
        net.mark_output(net.add(reader, v), f"y{i}")
    out, inputs = rewritten(net)
    assert moved(out, "Split")[0] is (DType.UINT8 if reader == "Exp" else DType.FP32)
    compare(net, out, inputs)


def test_rows_and_batches_that_swap_are_bytes(net: Any) -> None:
    """Whose Transpose sinks below what is computed, but for a Dequantize."""
    x = dequantize(net, net.x("n", 3, 8, dtype="u8"))
    net.mark_output(net.add("Exp", net.add("Transpose", x, perm=(1, 0, 2))), "y")
    out, inputs = rewritten(net)
    assert moved(out, "Transpose") == [DType.UINT8]
    compare(net, out, inputs)
