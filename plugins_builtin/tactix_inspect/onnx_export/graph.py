"""Nodes of an ONNX graph, function or branch as they are written, and numbers that follow from
shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tactix.base import dims
from tactix.base.dims import Dim, Expr
from tactix.base.dtypes import DType
from tactix.base.tensor import Element, TensorSpec

OPSET = 21
"""Of ONNX's operators, at least: the first with the block sizes of quantised tensors."""
IR_VERSION = 10
"""The first with metadata of nodes; what goes with operator set 21."""
FUSED = "tactix.fused"
"""The domain of functions that are steps."""
CUSTOM = "tactix"
"""The domain of layers that no ONNX operators mean."""
CONTRIBUTED = "com.microsoft"
FURTHEST = np.iinfo(np.int64).max
"""An end of a Slice behind the last element of any axis."""


@dataclass
class Shared:
    """What all graphs of a file have in common. ``opset``: of ONNX's own operators; ``domains``:
    others that are used; ``strange``: layers that no ONNX operators mean, and how many there are;
    ``functions``: by the bytes of their body.
    """

    opset: int = OPSET
    domains: set[str] = field(default_factory=set)
    strange: Counter[str] = field(default_factory=Counter)
    functions: dict[bytes, onnx.FunctionProto] = field(default_factory=dict)

    def needs(self, opset: int) -> None:
        """Operators are in that operator set, and later ones."""
        self.opset = max(self.opset, opset)

    def opsets(self) -> list[onnx.OperatorSetIdProto]:
        """For the model and each of its functions."""
        return [
            helper.make_opsetid("", self.opset),
            *(helper.make_opsetid(domain, 1) for domain in sorted(self.domains)),
        ]


Content = tuple[str, tuple[int, ...], bytes]
"""Of a constant: dtype, shape, bytes."""


@dataclass(frozen=True)
class Mark:
    """A place in a graph that is being written."""

    nodes: int
    constants: Mapping[Content, str]
    dims: Mapping[Dim, str]


class Graph:
    """Nodes, in order. Names are new ones: ``prefix`` and a number, without those ``taken``.

    ``sizes``: numbers that were worked out of shapes. ``unknown``: gives a symbol that no tensor of
    the graph tells, as an int64 vector of one.
    """

    def __init__(
        self, shared: Shared, taken: set[str], unknown: Callable[[str], str], prefix: str = "v"
    ) -> None:
        self.shared, self.nodes = shared, list[onnx.NodeProto]()
        self._taken, self._unknown, self._prefix = taken, unknown, prefix
        self._numbers = count()
        self._constants: dict[Content, str] = {}
        self._dims: dict[Dim, str] = {}
        self._sources: dict[str, tuple[str, int]] = {}
        self.sizes: set[str] = set()

    def fresh(self, hint: str = "") -> str:
        """A name that no other tensor has: the hint, if it is free."""
        name = hint
        while not name or name in self._taken:
            name = f"{hint or self._prefix}_{next(self._numbers)}"
        self._taken.add(name)
        return name

    def inner(self) -> Graph:
        """A branch or a body of a loop in this graph: it sees the tensors around it."""
        return Graph(self.shared, self._taken, lambda s: self.dim(dims.sym(s)), self._prefix)

    def know(self, name: str, spec: TensorSpec) -> None:
        """A tensor of the graph, whose dims tell symbols."""
        for axis, d in enumerate(spec.shape):
            if (symbol := dims.symbol_name(d)) and symbol not in self._sources:
                self._sources[symbol] = name, axis

    def knows(self, symbol: str) -> bool:
        """Whether a tensor of the graph tells it."""
        return symbol in self._sources

    def put(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attrs: Any
    ) -> onnx.NodeProto:
        """A node. Attributes that are None are left out."""
        if domain:
            self.shared.domains.add(domain)
        given = [*inputs]
        while given and not given[-1]:
            given.pop()
        node = helper.make_node(op, given, [*outputs], domain=domain or None)
        for name, value in attrs.items():
            if value is not None:
                node.attribute.append(attribute(name, value))
        self.nodes.append(node)
        return node

    def one(self, op: str, *inputs: str, **attrs: Any) -> str:
        """What a node with one output makes."""
        name = self.fresh()
        self.put(op, inputs, [name], **attrs)
        return name

    def constant(self, value: Any, dtype: DType | None = None) -> str:
        """An array, a number or a list of these; equal ones are stored once."""
        array = np.asarray(value) if dtype is None else np.asarray(value, dtype.numpy)
        content = array.tobytes() if array.dtype != object else repr(array.tolist()).encode()
        key = str(array.dtype), array.shape, content
        if key not in self._constants:
            self._constants[key] = self.one("Constant", value=tensor(array))
        return self._constants[key]

    def ints(self, values: Sequence[int]) -> str:
        """A vector of int64."""
        return self.constant(np.array([*values], np.int64))

    def mark(self) -> Mark:
        """What has been written so far."""
        return Mark(len(self.nodes), dict(self._constants), dict(self._dims))

    def back_to(self, mark: Mark) -> None:
        """Take back what was written since."""
        del self.nodes[mark.nodes :]
        self._constants, self._dims = dict(mark.constants), dict(mark.dims)

    def cast(self, name: str, dtype: DType) -> str:
        return self.one("Cast", name, to=element_type(dtype))

    # -- numbers of shapes -----------------------------------------------------------------------

    def dim(self, d: Dim) -> str:
        """An int64 vector of one element."""
        if not isinstance(d, Expr):
            return self.ints([d])
        if d not in self._dims:
            start = len(self.nodes)
            self._dims[d] = self._sum(d)
            self.sizes |= {x for n in self.nodes[start:] for x in n.output}
        return self._dims[d]

    def symbol(self, name: str) -> str:
        """The value of a symbol."""
        if name not in self._sources:
            return self._unknown(name)
        source, axis = self._sources[name]
        return self.one("Shape", source, start=axis, end=axis + 1)

    def vector(self, values: Sequence[Dim]) -> str:
        """A vector of int64: constants where they can be."""
        fixed = [d for d in values if not isinstance(d, Expr)]
        if len(fixed) == len(values):
            return self.ints(fixed)
        parts = [self.dim(d) for d in values]
        name = parts[0] if len(parts) == 1 else self.one("Concat", *parts, axis=0)
        self.sizes.add(name)
        return name

    def _sum(self, d: Expr) -> str:
        terms = [self._term(atoms, c) for atoms, c in d.terms]
        return self._folded("Add", terms)

    def _term(self, atoms: dims.Monomial, coefficient: int) -> str:
        factors = [self._atom(a) for a in atoms]
        if coefficient != 1 or not factors:
            factors.insert(0, self.ints([coefficient]))
        return self._folded("Mul", factors)

    def _folded(self, op: str, parts: Sequence[str]) -> str:
        out, *rest = parts
        for x in rest:
            out = self.one(op, out, x)
        return out

    def _atom(self, atom: dims.Atom) -> str:
        if not atom.args:
            return self.symbol(atom.op)
        a, b = (self.dim(x) for x in atom.args)
        return _ATOMS[atom.op](self, a, b)


def _floor(g: Graph, a: str, b: str) -> str:
    """Rounded down: ONNX's Div rounds toward zero, its Mod has the sign of the divisor."""
    return g.one("Div", g.one("Sub", a, g.one("Mod", a, b)), b)


def _broadcast(g: Graph, a: str, b: str) -> str:
    return g.one("Where", g.one("Equal", a, g.ints([1])), b, a)


_ATOMS: Mapping[str, Callable[[Graph, str, str], str]] = {
    "//": _floor,
    "%": lambda g, a, b: g.one("Mod", a, b),
    "max": lambda g, a, b: g.one("Max", a, b),
    "min": lambda g, a, b: g.one("Min", a, b),
    "bcast": _broadcast,
}


def attribute(name: str, value: Any) -> onnx.AttributeProto:
    """Of a Python value: booleans are integers, dtypes ONNX's numbers of them."""
    if isinstance(value, DType):
        value = element_type(value)
    elif isinstance(value, bool):
        value = int(value)
    if isinstance(value, (tuple, list)) and not value:
        return helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(name, value)


def tensor(array: Any, name: str = "") -> TensorProto:
    """An array as ONNX stores it."""
    out: TensorProto = numpy_helper.from_array(np.asarray(array), name)
    return out


def element_type(dtype: DType) -> int:
    """ONNX's number of a dtype."""
    if dtype is DType.STRING:
        return int(TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(dtype.numpy))


def value_info(name: str, spec: TensorSpec) -> onnx.ValueInfoProto:
    """Name and type of a tensor, sequence or optional; symbols stay."""
    return helper.make_value_info(name, type_of(spec.dtype, spec.shape, spec.element))


def type_of(
    dtype: DType, shape: Sequence[Dim | None] | None, element: Element | None
) -> onnx.TypeProto:
    """ONNX's type. A map is not among those that operators of ONNX make: its element's stands for
    it.
    """
    if element is None or dtype is DType.MAP:
        shown = None if shape is None else [_shown(d) for d in shape]
        plain = DType.FP32 if dtype is DType.MAP else dtype
        return helper.make_tensor_type_proto(element_type(plain), shown)
    inner = type_of(element.dtype, element.shape, element.of)
    if dtype is DType.SEQUENCE:
        return helper.make_sequence_type_proto(inner)
    return helper.make_optional_type_proto(inner)


def _shown(d: Dim | None) -> int | str | None:
    return str(d) if isinstance(d, Expr) else d
