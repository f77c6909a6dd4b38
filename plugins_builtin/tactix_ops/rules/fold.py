"""What can be computed while building is: layers of constants, and shape tensors whose content is
known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tactix.base.dims import evaluate, symbols
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, run_node
from tactix.contracts.rule import Op, P, Rule, anything, const, literal
from tactix_ops.rules.facts import contiguous, is_static

MAX_BYTES = 64 << 20
MAX_REPEATED = 1 << 20
"""Largest result of a layer that repeats what it reads, or makes it of nothing."""
MAX_GROWTH = 4

REPEATING = frozenset({"Expand", "Tile", "Fill", "Range"})
NOT_FOLDED = frozenset({"DequantizeLinear"})
"""Layers that keep weights small: kernels read their inputs as they are."""
PARAMETERS = frozenset(
    {
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "GroupNormalization",
        "RMSNormalization",
    }
)
"""Layers whose constants are a few numbers for each channel, which rules and kernels want as they
are.
"""


@dataclass
class Growth:
    """What folding has added to a network's constants: bytes, and by which nodes."""

    nbytes: int = 0
    nodes: set[Node] = field(default_factory=set)


_growth: WeakKeyDictionary[Any, Growth] = WeakKeyDictionary()
"""By network that is rewritten."""


def _foldable(root: Node, graph: Any) -> bool | str:
    if root.is_fused or any(v.const is None for v in root.given) or not is_static(root.attrs):
        return False
    if (
        root.layer.name in NOT_FOLDED
        or root.layer.name.startswith("Random")
        or root.layer.bodies(root.attrs)
    ):
        return False
    if not all(is_static(v.spec.shape) and not v.spec.dtype.on_host for v in root.outputs):
        return False
    size = evaluate(sum((v.spec.nbytes() for v in root.outputs), 0), {})
    limit = (
        MAX_REPEATED if root.layer.name in REPEATING else max(MAX_BYTES, MAX_GROWTH * _read(root))
    )
    if size > limit:
        return f"the result has {size} bytes, more than {limit}"
    return _within_budget(root, size - _read(root), graph)


def _read(root: Node) -> int:
    """Bytes of what it reads; a tensor that it reads twice counts once."""
    return sum(v.array.nbytes for v in dict.fromkeys(root.given))


def _within_budget(root: Node, growth: int, graph: Any) -> bool | str:
    """Many results, each of them small, are large together: they may be so much more than the
    model's weights.
    """
    grown, most = _growth.setdefault(graph, Growth()), max(MAX_BYTES, MAX_GROWTH * graph.weights())
    if growth <= 0 or root in grown.nodes:
        return True
    if grown.nbytes + growth > most:
        return f"constants would grow by {grown.nbytes + growth} bytes, more than {most}"
    grown.nbytes += growth
    grown.nodes.add(root)
    return True


def _fold(root: Node) -> tuple[Any, ...]:
    inputs = [None if v is None else v.const for v in root.inputs]
    results = run_node(root, inputs, {})
    return tuple(literal(contiguous(r)) for r in results)


def _dequantized_when(root: Node, graph: Any) -> bool:
    """Whether what reads it is arithmetic on parameters, which takes numbers; a product or a lookup
    takes the bytes.
    """
    if root.is_fused or any(v.const is None for v in root.given):
        return False
    readers = [n for v in root.outputs for n, _ in graph.uses(v)]
    return (
        bool(readers)
        and all(n.layer.name in PARAMETERS for n in readers)
        and not graph.is_output(root.outputs[0])
    )


def _dequantized_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 4, 3])
    data = np.array([3, 5, 7, 120], np.int8)
    inputs = [net.add_constant(a) for a in (data, np.float32(0.25), np.int8(1))]
    (p,) = net.add_layer("tactix.DequantizeLinear", inputs)
    net.mark_output(net.add_layer("tactix.BatchNormalization", [x, p, p, p, p])[0], "y")


def _fold_example(net: Any) -> None:
    w = net.add_constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    (t,) = net.add_layer("tactix.Transpose", [w], perm=(1, 0))
    x = net.add_input("x", "f32", ["n", 3])
    net.mark_output(net.add_layer("tactix.MatMul", [x, t])[0], "y")


def _known(root: Node, graph: Any) -> bool:
    """Whether an output that is read is known; a node stays for its outputs that are not."""
    read = [v.spec.value for v in root.outputs if graph.uses(v) or graph.is_output(v)]
    return not root.is_fused and any(value is not None and is_static(value) for value in read)


def _known_content(root: Node) -> tuple[Any, ...]:
    out: list[Any] = []
    for v in root.outputs:
        known = v.spec.value if v.spec.value is not None and is_static(v.spec.value) else None
        if known is None:
            out.append(v)
        else:
            out.append(literal(np.array(known, v.spec.dtype.numpy).reshape(v.spec.at({}))))
    return tuple(out)


_LAST: dict[str, Any] = {"begins": (1,), "sizes": (1,), "axes": (0,), "steps": (1,)}


def _known_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, 5])
    (dims,) = net.add_layer("tactix.Shape", [x], start=1)
    (wide,) = net.add_layer("tactix.Cast", [dims], to=DType.FP32)
    net.mark_output(
        net.add_layer("tactix.Mul", [x, net.add_layer("tactix.Slice", [wide], **_LAST)[0]])[0], "y"
    )


def _follows_from_inputs(root: Node, graph: Any) -> bool:
    if root.is_fused or root.layer.name == "Dims" or len(root.outputs) != 1:
        return False
    value = root.outputs[0].spec.value
    return (
        value is not None
        and not is_static(value)
        and set().union(*map(symbols, value)) <= graph.symbols()
    )


def _as_dims(root: Node) -> Op:
    spec = root.outputs[0].spec
    return P.tactix.Dims(values=spec.value, shape=spec.shape, dtype=spec.dtype)


def _dims_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", "s"])
    (dims,) = net.add_layer("tactix.Shape", [x])
    (last,) = net.add_layer("tactix.Slice", [dims], **_LAST)
    (scale,) = net.add_layer(
        "tactix.Cast", [net.add_layer("tactix.Mul", [last, last])[0]], to=DType.FP32
    )
    net.mark_output(net.add_layer("tactix.Mul", [x, scale])[0], "y")


RULES = (
    Rule("tactix.fold_constants", anything(), _fold, _foldable, benefit=100, example=_fold_example),
    Rule(
        "tactix.fold_dequantized",
        P.tactix.DequantizeLinear(const("x"), const("s")),
        _fold,
        _dequantized_when,
        benefit=100,
        example=_dequantized_example,
    ),
    Rule(
        "tactix.fold_known", anything(), _known_content, _known, benefit=99, example=_known_example
    ),
    Rule(
        "tactix.dims", anything(), _as_dims, _follows_from_inputs, benefit=98, example=_dims_example
    ),
)
