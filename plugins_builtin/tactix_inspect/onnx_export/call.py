"""One layer that is to be written, and the ways to write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, Expr, Shape
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_inspect.onnx_export.graph import Graph


class NoWayBack(Exception):
    """ONNX has no operators for a layer with these attributes; its node is a custom one."""


@dataclass(frozen=True)
class LayerCall:
    """A layer with the names and specs of what it reads and makes; "" and None for an input that is
    absent.
    """

    graph: Graph
    layer: Layer
    attrs: Any
    inputs: tuple[str, ...]
    specs: tuple[TensorSpec | None, ...]
    outputs: tuple[str, ...]
    made: tuple[TensorSpec, ...]

    def emit(self, op: str, *inputs: str, domain: str = "", **attrs: Any) -> None:
        """The node that makes the layer's outputs."""
        self.graph.put(op, inputs, self.outputs, domain, **attrs)

    def spec(self, index: int = 0) -> TensorSpec:
        """Of an input that is there."""
        found = self.specs[index]
        assert found is not None
        return found

    def input(self, index: int) -> str:
        """The name of an input, or "" if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def fixed(self, values: Sequence[Dim]) -> list[int]:
        """Numbers that ONNX wants as attributes. Raises NoWayBack for symbols."""
        if any(isinstance(d, Expr) for d in values):
            raise NoWayBack("attributes that hang on shapes")
        return [d for d in values if not isinstance(d, Expr)]

    def scalar(self, value: float, dtype: DType) -> str:
        """A constant of shape ()."""
        return self.graph.constant(value, dtype)


Writer = Callable[[LayerCall], None]
WRITERS: dict[str, Writer] = {}
"""By the layers' names: those of tactix, which mean the same in every version of a key."""


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Marks what writes the layers of these names."""

    def add(writer: Writer) -> Writer:
        WRITERS.update({f"tactix.{name}@1": writer for name in names})
        return writer

    return add


def same(op: str, *fields: str, **names: str) -> Writer:
    """A writer of one operator that takes the layer's inputs, and of its attributes these:
    ``fields`` by their own name, ``names`` by another. Empty tuples are left to ONNX's default.
    """

    def write(c: LayerCall) -> None:
        found = {**dict(zip(fields, fields, strict=True)), **names}
        values = {target: getattr(c.attrs, source) for source, target in found.items()}
        attrs: dict[str, Any] = {k: None if v == () else v for k, v in values.items()}
        c.emit(op, *c.inputs, **attrs)

    return write


def narrowed(c: LayerCall, write: Writer, narrow: frozenset[DType]) -> None:
    """Writes a layer that computes in float32 what it is given in these narrower floats, and rounds
    its results.
    """
    inputs, specs = list(c.inputs), list(c.specs)
    for i, s in enumerate(c.specs):
        if s is not None and s.dtype in narrow:
            inputs[i], specs[i] = c.graph.cast(c.inputs[i], DType.FP32), _wide(s)
    rounded = [i for i, s in enumerate(c.made) if s.dtype in narrow]
    outputs, made = list(c.outputs), list(c.made)
    for i in rounded:
        outputs[i], made[i] = c.graph.fresh(), _wide(c.made[i])
    write(
        replace(
            c, inputs=tuple(inputs), specs=tuple(specs), outputs=tuple(outputs), made=tuple(made)
        )
    )
    for i in rounded:
        c.graph.put("Cast", [outputs[i]], [c.outputs[i]], to=c.made[i].dtype)


def _wide(spec: TensorSpec) -> TensorSpec:
    const = None if spec.const is None else spec.const.astype("float32")
    return replace(spec, dtype=DType.FP32, const=const)


def reshaped(g: Graph, x: str, have: Shape, want: Shape, output: str = "") -> str:
    """A Reshape. Dims that stay where they are, and one that follows from the others, are ONNX's 0
    and -1, so that symbols need not be computed.
    """
    name = output or g.fresh()
    short = [
        0 if i < len(have) and d == have[i] and isinstance(d, Expr) else d
        for i, d in enumerate(want)
    ]
    open_ = [i for i, d in enumerate(short) if isinstance(d, Expr)]
    numbers = [-1 if isinstance(d, Expr) else d for d in short]
    if len(open_) > 1 or 0 in want or 0 in have:
        g.put("Reshape", [x, g.vector(want)], [name], allowzero=1)
    else:
        g.put("Reshape", [x, g.ints(numbers)], [name])
    return name
