"""Layers, and bodies of layers, as nodes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import defs

from tactix.base.dims import Expr
from tactix.base.dtypes import DType
from tactix.base.errors import TactixError
from tactix.base.tensor import TensorSpec
from tactix.contracts import attrs as attribute
from tactix.contracts.region import Body
from tactix_inspect.onnx_export import computing, moving, objects
from tactix_inspect.onnx_export.call import WRITERS, LayerCall, NoWayBack, narrowed
from tactix_inspect.onnx_export.expressions import write_expression
from tactix_inspect.onnx_export.graph import CUSTOM, Graph
from tactix_inspect.onnx_export.graph import attribute as onnx_attribute

TABLES = (computing, moving, objects)
"""The modules that fill the table of writers."""

STANDARD = "onnx:ai.onnx::"
"""How layers name ONNX's own operators in ``imports``."""

MOVES = frozenset(
    f"tactix.{name}@1"
    for name in (
        "Reshape", "Transpose", "Concat", "Split", "Slice", "Expand", "Gather", "Cast", "Shape",
        "Reformat", "QuantizeLinear", "DequantizeLinear", "Quantize", "Dequantize",
        "WideConvolution", "WideConvTranspose", "WideMatMul", "WideGlobalAveragePool",
    )
)  # fmt: skip
"""Layers that take bfloat16 as it is; runtimes compute in it rarely."""

COMPOSED = frozenset(
    f"tactix.{name}@1"
    for name in ("Attention", "TokenAttention", "RotaryEmbedding", "RMSNormalization")
)
"""Layers of several operators, between which nothing is rounded to 16 bits."""

BFLOAT = frozenset({DType.BF16})
HALVES = frozenset({DType.BF16, DType.FP16})


def write_body(
    g: Graph, body: Body, inputs: Sequence[str], specs: Sequence[TensorSpec]
) -> list[str]:
    """The names of every id of a body; ``specs`` are those of its inputs."""
    known, names = body.infer(specs), [*inputs]
    for x, s in zip(inputs, specs, strict=True):
        g.know(x, s)
    for n in body.nodes:
        first = len(names)
        made = known[first : first + n.outputs]
        outputs = [g.fresh() for _ in made]
        given = [known[i] if i >= 0 else None for i in n.inputs]
        read = ["" if i < 0 else names[i] for i in n.inputs]
        write_layer(
            LayerCall(g, n.layer, n.attrs, tuple(read), tuple(given), tuple(outputs), tuple(made))
        )
        names += outputs
    return names


def write_layer(c: LayerCall) -> None:
    """The nodes of one layer: ONNX's own operators where there are such, else a custom one."""
    before, key = c.graph.mark(), c.layer.key
    narrow = HALVES if key in COMPOSED else frozenset() if key in MOVES else BFLOAT
    try:
        if any(s is not None and s.dtype in narrow for s in (*c.specs, *c.made)):
            narrowed(c, _write, narrow)
        else:
            _write(c)
    except NoWayBack:
        c.graph.back_to(before)
        _write_custom(c)
    for name, spec in zip(c.outputs, c.made, strict=True):
        c.graph.know(name, spec)


def _write(c: LayerCall) -> None:
    """Raises NoWayBack."""
    if writer := WRITERS.get(c.layer.key):
        writer(c)
    elif not (_imported(c) or _expressed(c)):
        raise NoWayBack(c.layer.key)


def _imported(c: LayerCall) -> bool:
    """An operator of ONNX whose attributes are the layer's."""
    for operator in c.layer.imports:
        if operator.startswith(STANDARD):
            op = operator.removeprefix(STANDARD)
            attrs = _known_attributes(c, op)
            if attrs is not None:
                c.emit(op, *c.inputs, **attrs)
                return True
    return False


def _known_attributes(c: LayerCall, op: str) -> dict[str, Any] | None:
    """The layer's attributes; None where ONNX's operator lacks one that is not its default, or is
    newer than the file's operator set and the layer's expression says the same.
    """
    shared = c.graph.shared
    if not defs.has(op, shared.opset):
        if c.layer.is_pointwise or not defs.has(op):
            return None
        shared.needs(defs.get_schema(op).since_version)
    schema = defs.get_schema(op, shared.opset)
    found: dict[str, Any] = {}
    for f in dataclasses.fields(c.attrs):
        value = getattr(c.attrs, f.name)
        if f.name in schema.attributes:
            found[f.name] = None if value == () else value
        elif value != f.default:
            return None
    return found


def _expressed(c: LayerCall) -> bool:
    if not c.layer.is_pointwise:
        return False
    write_expression(c)
    return True


def _write_custom(c: LayerCall) -> None:
    """A node of the layer's own name, with its attributes as far as ONNX can hold them."""
    c.graph.shared.strange[c.layer.key] += 1
    operator = next((i.removeprefix("onnx:") for i in c.layer.imports), "")
    domain, _, op = operator.partition("::")
    if not op or domain == "ai.onnx":
        domain, op = CUSTOM, c.layer.name
    attrs = {name: _plain(v) for name, v in attribute.named(c.attrs).items()}
    c.emit(op, *c.inputs, domain=domain, **attrs)


def _plain(value: Any) -> Any:
    """An attribute as ONNX can hold it; JSON of what it cannot."""
    try:
        onnx_attribute("value", value)
    except (TypeError, ValueError):
        return _as_text(value)
    return value


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, Expr):
        return str(value)
    try:
        return json.dumps(attribute.encode(value))
    except TactixError:
        return str(value)


def layers_of(strange: Mapping[str, int]) -> str:
    """``tactix.Foo@1 (2), ...``."""
    return ", ".join(f"{key} ({n})" for key, n in sorted(strange.items()))
