"""What a converter is given: one node of the model, its inputs and attributes, and how to add
layers for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tactix.base.dims import Dim, symbol_name
from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError, UnsupportedOperator
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Value
from tactix.contracts.importer import Converter
from tactix.contracts.layer import Layer
from tactix_onnx.catalog import MAIN, defaults_of
from tactix_onnx.weights import Array, dtype_of
from tactix_sdk.symbolic import content

if TYPE_CHECKING:
    import onnx

    from tactix_onnx.graph import Scope, Walker

Result = Value | Sequence[Value | None]
Convert = TypeVar("Convert", bound=Callable[..., Any])


class Table(list[Converter]):
    """Converters of one file; calling it adds one: ``@CONVERTERS("Softmax", since=13)``."""

    def __call__(
        self, *ops: str, since: int = 1, domain: str = MAIN
    ) -> Callable[[Convert], Convert]:
        def add(function: Convert) -> Convert:
            self.extend(Converter("onnx", f"{domain}::{op}", function, since) for op in ops)
            return function

        return add


HINTS = frozenset({"consumed_inputs"})
"""Attributes that say what memory may be written again, which no result hangs on: operator sets
before 6 have them.
"""


class Context:
    """One node being converted. ``inputs``: None where an optional one is absent. ``opset``:
    version of its domain.

    A converter must read or ``ignore`` every attribute that is given and is not the operator's
    default: one that it does not look at is refused, so that nothing is lost in silence. It may
    return NotImplemented, before it adds layers, to leave the node to the operator's function body.
    """

    def __init__(
        self,
        walker: Walker,
        scope: Scope,
        node: onnx.NodeProto,
        name: str,
        domain: str,
        opset: int,
        inputs: Sequence[Value | None],
    ) -> None:
        self.walker, self.scope, self.node, self.name = walker, scope, node, name
        self.domain, self.op, self.opset = domain, node.op_type, opset
        self.inputs = tuple(inputs)
        self._attributes = {a.name: a for a in node.attribute}
        self._read: set[str] = set()
        self._made = 0

    @property
    def network(self) -> Any:
        return self.walker.network

    # -- inputs -----------------------------------------------------------------------------------

    def input(self, i: int) -> Value | None:
        """Input ``i``; None if it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def tensor(self, i: int = 0) -> Value:
        """Input ``i``, which must be there. Raises ModelImportError."""
        found = self.input(i)
        if found is None:
            raise ModelImportError(f"input {i} is missing", who=self.who)
        return found

    def spec(self, i: int = 0) -> TensorSpec:
        """dtype and shape of input ``i``, which must be there."""
        return self.tensor(i).spec

    def const(self, i: int) -> Array | None:
        """The array of input ``i`` if it is a constant, which is then built in."""
        found = self.input(i)
        if found is None or found.const is None:
            return None
        self.network.read.add(found.name)
        return found.const

    def array(self, i: int) -> Array:
        """The array of input ``i``, which must be a constant. Raises UnsupportedOperator."""
        found = self.const(i)
        return self.fail(f"its input {i} is only known by running") if found is None else found

    def known(self, i: int) -> tuple[Dim, ...] | None:
        """The elements of a small input as dims, if they are whole and follow from constants and
        shapes.
        """
        found = self.input(i)
        if found is not None and found.spec.numel == 0:
            return ()
        known = None if found is None else content(found.spec)
        if known is not None and found is not None and found.const is not None:
            self.network.read.add(found.name)
        return known

    def ints(self, i: int) -> tuple[int, ...] | None:
        """``known`` where all are numbers."""
        found = self.known(i)
        numbers = [d for d in found or () if isinstance(d, int)]
        return tuple(numbers) if found is not None and len(numbers) == len(found) else None

    def late(self, i: int) -> bool:
        """Whether an input is there whose elements only running tells."""
        found = self.input(i)
        return found is not None and found.spec.numel != 0 and self.known(i) is None

    def need_known(self, i: int, what: str) -> tuple[Dim, ...]:
        """``known`` of an input that must be. Raises UnsupportedOperator."""
        found = self.known(i)
        if found is None:
            self.fail(f"its {what} (input {i}) are only known by running")
        return found

    def need_ints(self, i: int, what: str) -> tuple[int, ...]:
        """``ints`` of an input that must be. Raises UnsupportedOperator."""
        found = self.ints(i)
        if found is None:
            self.fail(f"its {what} (input {i}) are not constant")
        return found

    # -- attributes -------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute: int, float, str, array of a tensor, GraphProto, or tuple; else the default.

        Where the default is None, that of onnx's own description of the operator at this version
        counts.
        """
        self._read.add(name)
        found = self._attributes.get(name)
        if found is None and default is None:
            found = defaults_of(self.domain, self.op, self.opset).get(name)
        return default if found is None else self.walker.attribute(found)

    def has_attr(self, name: str) -> bool:
        self._read.add(name)
        return name in self._attributes

    def ignore(self, *names: str) -> None:
        """Say that attributes change nothing here."""
        self._read.update(names)

    def unread(self) -> list[str]:
        """Attributes that differ from the operator's defaults, and that the converter has neither
        read nor ignored.
        """
        defaults = defaults_of(self.domain, self.op, self.opset)
        known = self._read | HINTS
        return [
            name
            for name, a in self._attributes.items()
            if name not in known and not _same(a, defaults.get(name))
        ]

    def dtype_attr(self, name: str, default: DType) -> DType:
        """An attribute that is an ONNX element type."""
        code = self.attr(name)
        return default if code is None else dtype_of(code, self.who)

    def axes(self, i: int, attribute: str = "axes") -> tuple[int, ...] | None:
        """Axes as newer operator sets give them, in input ``i``, or older ones, in an attribute;
        None if not given.
        """
        if self.has_attr(attribute):
            found = self.attr(attribute)
            return found if isinstance(found, tuple) else (found,)
        return None if self.input(i) is None else self.need_ints(i, attribute)

    # -- layers -----------------------------------------------------------------------------------

    def layers(
        self, layer: str | Layer, inputs: Sequence[Value | None], **attrs: Any
    ) -> tuple[Value, ...]:
        """Add a layer; all its outputs. The first is named as the node, further ones
        ``node/layer``.
        """
        found = self.network.find_layer(layer)
        name = f"{self.name}/{found.name.lower()}" if self._made else self.name
        self._made += 1
        given = list(inputs)
        if (
            any(v is not None and v.spec.element is not None for v in given)
            and not found.takes_objects
        ):
            self.fail(f"{found.name} takes no sequences or optionals")
        while given and given[-1] is None:
            given.pop()
        out: tuple[Value, ...] = self.network.add_layer(
            found, given, name, origin=(self.name,), **attrs
        )
        return out

    def layer(self, layer: str | Layer, inputs: Sequence[Value | None], **attrs: Any) -> Value:
        """Add a layer; its first output."""
        return self.layers(layer, inputs, **attrs)[0]

    def declared(self, i: int) -> tuple[int | None, ...] | None:
        """The shape that the model declares for output ``i``, None for dims that it leaves open; or
        None.
        """
        dims = self._declared_dims(i)
        if dims is None:
            return None
        return tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)

    def declared_symbols(self, i: int) -> tuple[str, ...] | None:
        """The names that it declares for these dims, "" for those that have none; or None."""
        dims = self._declared_dims(i)
        return None if dims is None else tuple(d.dim_param for d in dims)

    def _declared_dims(self, i: int) -> Sequence[onnx.TensorShapeProto.Dimension] | None:
        found = self.walker.survey.type_of(self.scope.graph, self.node.output[i], main=False)
        return None if found is None else found.tensor_type.shape.dim

    def symbol(self) -> str:
        """A name for dims that only running tells: no other tensor's dims have it."""
        return self.walker.fresh(self.name)

    def constant(self, array: Any) -> Value:
        """A constant of the network."""
        import numpy as np

        return self.walker.constant(np.asarray(array), f"{self.name}/constant")

    def scalar(self, value: float, like: Value) -> Value:
        """A constant number in another tensor's dtype."""
        import numpy as np

        return self.constant(np.asarray(value).astype(like.spec.dtype.numpy))

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """``x`` under another shape; itself if that is its own."""
        return (
            x
            if x.spec.shape == tuple(shape)
            else self.layer("tactix.Reshape", [x], shape=tuple(shape))
        )

    def sized(self, x: Value, axis: int, size: Dim) -> Value:
        """``x`` with the size that it must have along an axis. A symbol that stands for it in
        inputs becomes that size where nothing was computed of it yet.
        """
        symbol = symbol_name(x.spec.shape[axis])
        if symbol is not None and isinstance(size, int):
            self.walker.network.fix(symbol, size)
        return self.reshape(x, (*x.spec.shape[:axis], size, *x.spec.shape[axis + 1 :]))

    def sizing(self, d: Dim, size: int) -> str:
        """How a dim gets a size that must be known, such as ``size``: what an error proposes."""
        symbol = symbol_name(d)
        for v in self.walker.network.inputs if symbol is not None else ():
            own = [symbol_name(a) for a in v.spec.shape]
            if symbol in own:
                sizes = tuple(size if a == symbol else 1 for a in own)
                shown = "x".join(map(str, sizes))
                do = f'shapes={{"{v.name}": {sizes}}}, or --shapes {v.name}:{shown}'
                return f"Build for one, as with {do}"
        return "Give that axis a size in the model"

    def wanted(self, d: Dim) -> int | None:
        """The size that the caller builds for, of a symbol that is one of an input's dims."""
        symbol, network = symbol_name(d), self.walker.network
        for v in network.inputs if symbol is not None else ():
            sizes = network.wanted.get(v.name, (None,) * v.spec.rank)
            for own, size in zip(v.spec.shape, sizes, strict=False):
                if symbol_name(own) == symbol and size is not None:
                    return size
        return None

    def cast(self, x: Value, to: DType) -> Value:
        """``x`` in another dtype; itself if that is its own."""
        return x if x.spec.dtype is to else self.layer("tactix.Cast", [x], to=to)

    def inline(self, graph: onnx.GraphProto) -> list[Value]:
        """The outputs of a subgraph without inputs, its nodes added here; it sees the names around
        this node.
        """
        return self.walker.inline(graph, self)

    # -- errors -----------------------------------------------------------------------------------

    @property
    def who(self) -> str:
        return f"node {self.name!r} ({self.domain}::{self.op}, opset {self.opset})"

    def fail(self, why: str, do: str = "") -> NoReturn:
        """Raises UnsupportedOperator for this node."""
        raise UnsupportedOperator("cannot be imported", who=self.who, why=why, do=do)


def _same(a: onnx.AttributeProto, default: onnx.AttributeProto | None) -> bool:
    if default is None:
        return False
    return (a.i, a.f, a.s, list(a.ints)) == (default.i, default.f, default.s, list(default.ints))


def import_as_layer(ctx: Context, layer: Layer) -> Result:
    """A node whose operator is a layer with the same attributes: those given, then the operator's
    defaults.
    """
    fields = {f.name: f for f in dataclasses.fields(layer.Attrs)}
    attrs = {}
    for name, f in fields.items():
        value = ctx.attr(name)
        if value is not None:
            attrs[name] = _fit(value, f.default, ctx, name)
    wanted = len(ctx.node.output)
    out = ctx.layers(layer, ctx.inputs, **attrs)
    if wanted > len(out) and any(ctx.node.output[len(out) :]):
        ctx.fail(f"only {len(out)} of its {wanted} outputs are supported")
    return out


def _fit(value: Any, default: Any, ctx: Context, name: str) -> Any:
    """An attribute's value as the schema's type: flags as bools, element types as dtypes, axes
    counted from 0.

    A float that is a whole number is taken for an int, as the first operator sets write some.
    Raises ModelImportError for one of another kind, and for what no layer's attributes hold.
    """
    wanted = next((k for k in (DType, *_MAY_BE) if isinstance(default, k)), None)
    if wanted is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not (wanted is DType or _fits(value, wanted, default)):
        takes = f"the layer takes {_KIND_WORDS.get(wanted, 'numbers, text, or tuples of them')}"
        do = "Export it so, give tensors as inputs, or convert the operator with a function"
        raise ModelImportError(
            f"attribute {name!r} is {_shown(value)}", who=ctx.who, why=takes, do=do
        )
    if isinstance(default, bool):
        return bool(value)
    if isinstance(default, DType):
        return dtype_of(value, ctx.who)
    if isinstance(default, float):
        return float(value)
    if name == "axis" and isinstance(value, int) and value < 0 and ctx.input(0) is not None:
        return value + ctx.spec(0).rank
    return value


_MAY_BE: Mapping[type, tuple[type, ...]] = {
    bool: (int,),
    int: (int,),
    float: (int, float),
    str: (str,),
    tuple: (tuple,),
}
"""By the type of an attribute's default, what it may be given."""
_KIND_WORDS: Mapping[type | None, str] = {
    bool: "an int, 0 or 1",
    int: "an int",
    float: "a float",
    str: "text",
    tuple: "a list like its default",
}


def _fits(value: Any, wanted: type | None, default: Any) -> bool:
    """Whether an attribute with that default, whose type is ``wanted`` if it tells one, may have
    the value.
    """
    if wanted is None:
        return isinstance(value, (int, float, str, tuple))
    if wanted is not tuple or not isinstance(value, tuple) or not default:
        return isinstance(value, _MAY_BE[wanted])
    element = next((k for k in _MAY_BE if isinstance(default[0], k)), None)
    return all(_fits(v, element, default[0]) for v in value)


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"a tensor of shape {tuple(shape)}"
    return (
        f"{value!r}" if isinstance(value, (int, float, str, tuple)) else f"a {type(value).__name__}"
    )
