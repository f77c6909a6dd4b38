"""The walk over a model's graph: names to values, nodes to layers, functions and subgraphs in
place.

What follows from constants and shapes alone is settled at once: small results of constant inputs
become constants, elements that are expressions of the input shapes become one ``tactix.Dims``
layer. So no shape arithmetic survives.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Container, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tactix.base.dims import Dim, Expr, substitute, sym, symbol_name, symbols
from tactix.base.errors import ModelImportError, TactixError, UnsupportedOperator, punctuated
from tactix.base.places import place_of
from tactix.base.spelling import did_you_mean
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node, Value
from tactix.contracts.layer import Layer
from tactix.network.definition import ModelTensor
from tactix.plugins.names import OWN
from tactix_onnx import attributes, functions, signatures
from tactix_onnx.attributes import AGAIN
from tactix_onnx.catalog import (
    Catalog,
    Function,
    Opsets,
    domain_of,
    opsets_of,
)
from tactix_onnx.convert import Context, import_as_layer
from tactix_onnx.dim_text import dim_of
from tactix_onnx.loose import Loose, firm, follow
from tactix_onnx.order import RENAME, made_by_nothing, name_of, ordered, without_unread
from tactix_onnx.subgraph import BODIES, NESTED, EnclosingScope
from tactix_onnx.survey import LOST, Survey, Unreached
from tactix_onnx.types import object_type
from tactix_onnx.weights import ONNX_DTYPES, RANK, WeightReader, dtype_of
from tactix_onnx.wellformed import (
    COPIED,
    DEPTH,
    EXPANDED,
    Key,
    recursion,
)
from tactix_ops.layers.control import Work
from tactix_sdk.symbolic import LIMIT

if TYPE_CHECKING:
    import onnx

    from tactix.network.definition import NetworkDefinition

_UNNAMED = ("", "?", "-1", "None")
"""Dimension names that exporters write for a dimension without one."""

LARGEST = 1 << 48
"""Most elements of a tensor: more fit no memory, and sizes in bytes must fit 64 bits."""

INTEGERS = (6, 7)
"""TensorProto.DataType of shapes and axes: int32 and int64."""

LEFT = frozenset({"tactix.Dims@1", "tactix.DequantizeLinear@1"})
"""Layers whose results stay theirs although they are known: rules look for them."""


class Scope:
    """Names of one graph: values, and initializers not yet read.

    A subgraph's scope sees its parent's names; where it is a network of its own, through a window.
    ``is_function``: it is that of a function's body.
    """

    def __init__(
        self, opsets: Opsets, prefix: str = "", parent: Scope | None = None, depth: int = 0
    ) -> None:
        self.opsets, self.prefix, self.parent, self.depth = opsets, prefix, parent, depth
        self.values: dict[str, Value | None] = {}
        self.stored: dict[str, Any] = {}
        self.graph: onnx.GraphProto | None = None
        self.window: EnclosingScope | None = None
        self.is_function = False
        if depth > DEPTH:
            raise ModelImportError(
                "functions or subgraphs are nested too deeply", who=prefix, why=f"more than {DEPTH}"
            )

    def __contains__(self, name: object) -> bool:
        here = name in self.values or name in self.stored
        around = self.parent if self.window is None else self.window
        return here or (around is not None and name in around)

    def taken(self) -> Container[str]:
        """Names that no node here may make again: a function's may be those around its call."""
        return {*self.values, *self.stored} if self.is_function else self


class Walker:
    """Fills one network from one model. ``survey``: collects the nodes that are refused; ``finish``
    it at the end.

    ``origins``: of each constant that was computed, the layer's result that it was.
    """

    def __init__(
        self,
        network: NetworkDefinition,
        catalog: Catalog,
        weights: WeightReader,
        survey: Survey | None = None,
    ) -> None:
        self.network, self.catalog, self.weights = network, catalog, weights
        self.survey = survey or Survey()
        self._search = functions.Search(catalog, network.layers, self.survey)
        self.origins: dict[Value, Value] = {}
        self.loose: Loose = {}
        self._dims: dict[Any, Value] = {}
        self._symbols: dict[str, int] = {}
        self._binder = functions.Binder(COPIED, EXPANDED)
        self._active: set[Key] = set()
        self._around: Walker | None = None
        self._depth, self._imported, self._work = 0, [0], Work(functions.LOOPS)

    def inside(self, network: NetworkDefinition, ctx: Context, nodes: int) -> tuple[Walker, Scope]:
        """A walker for a body of so many nodes, which becomes a network of its own. Raises
        ModelImportError.
        """
        self._imported[0] += nodes
        if self._depth >= NESTED or self._imported[0] > BODIES:
            raise ModelImportError(
                "bodies of loops and branches are nested too deeply",
                why=f"at most {NESTED} levels and {BODIES} nodes, "
                "counted as often as they are read",
            )
        inner = Walker(network, self.catalog, self.weights, self.survey)
        inner._symbols, inner._binder, inner._active = self._symbols, self._binder, self._active
        inner._around, inner._depth, inner._imported = self, self._depth + 1, self._imported
        inner._work, network.remarks = self._work, self.network.remarks
        scope = Scope(ctx.scope.opsets, f"{ctx.name}/", None, ctx.scope.depth + 1)
        scope.window = EnclosingScope(self, ctx.scope, network, inner.loose)
        return inner, scope

    def known_symbols(self) -> frozenset[str]:
        """Symbols that have a value here, those of the networks around this one included."""
        here = frozenset(s for v in self.network.values for d in v.spec.shape for s in symbols(d))
        return here if self._around is None else here | self._around.known_symbols()

    # -- names ------------------------------------------------------------------------------------

    def find(self, scope: Scope, name: str) -> Value | None:
        """The value of a name; an initializer becomes a constant when it is first read. Raises
        ModelImportError.
        """
        here: Scope | None = scope
        while here is not None:
            if name in here.values:
                if here.values[name] is LOST:
                    raise Unreached
                return here.values[name]
            if name in here.stored:
                stored = self.weights.initializer(here.stored.pop(name), again=here.depth > 0)
                here.values[name] = v = self.constant(stored, name)
                self.network.call(v, name)
                return here.values[name]
            if here.window is not None and name in here.window:
                here.values[name] = here.window.find(name)
                return here.values[name]
            here = here.parent
        raise made_by_nothing(name)

    def constant(self, array: Any, name: str) -> Value:
        """A constant; text is made by a layer, as weights are numbers."""
        if array.dtype != object:
            return self.network.add_constant(array, name)
        attrs: dict[str, Any] = {"values": tuple(array.reshape(-1)), "shape": array.shape}
        return self.network.add_layer("tactix.Text", [], name, (name,), **attrs)[0]

    def store(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Note the initializers of a graph."""
        scope.graph = graph
        named = [(t.name, t) for t in graph.initializer] + [
            (t.values.name, t) for t in graph.sparse_initializer
        ]
        for name, t in named:
            if name in scope.stored:
                raise ModelImportError(f"two initializers are named {name!r}", do=RENAME)
            scope.stored[name] = t

    def add_inputs(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Inputs of the network: those of the graph that no initializer sets."""
        given = [v for v in graph.input if v.name not in scope.stored]
        plain = {d.dim_param for v in given for d in v.type.tensor_type.shape.dim}
        lengths = self._lengths(given, plain)
        for v in given:
            who = f"input {v.name!r}"
            if v.type.WhichOneof("value") in ("sequence_type", "optional_type"):
                dtype, element = object_type(v.type, who)
                scope.values[v.name] = self.network.add_input(v.name, dtype, (), element)
                continue
            if v.type.WhichOneof("value") != "tensor_type":
                raise _no_tensor(v, graph, who)
            if len(v.type.tensor_type.shape.dim) > RANK:
                raise UnsupportedOperator("its rank is too high", who=who, why=f"more than {RANK}")
            shape: Sequence[Dim | str | None] = self.network.wanted.get(v.name, ())
            if v.type.tensor_type.HasField("shape"):
                shape = [
                    substitute(_dim(d, f"{v.name}_{i}", plain), lengths)
                    for i, d in enumerate(v.type.tensor_type.shape.dim)
                ]
            elif v.name not in self.network.wanted:
                shapes = f'shapes={{"{v.name}": (1, 3)}}'
                do = f"Give one to the build: {shapes}, or --shapes {v.name}:1x3"
                raise ModelImportError(
                    "it has no rank", who=who, why="the model declares no shape of it", do=do
                )
            dtype = dtype_of(v.type.tensor_type.elem_type, who)
            shape = _reshaped(shape, self.network.reshaped.get(v.name))
            scope.values[v.name] = self.network.add_input(v.name, dtype, shape)
            _check_size(scope.values[v.name], who)

    def _lengths(
        self, inputs: Sequence[onnx.ValueInfoProto], plain: Collection[str]
    ) -> dict[str, int]:
        """Symbols that are lengths of integer vectors, where the caller builds for one: such a
        vector may be a shape, and a rank must be known here.
        """
        out: dict[str, int] = {}
        for v in inputs:
            t, wanted = v.type.tensor_type, self.network.wanted.get(v.name, ())
            if t.elem_type not in INTEGERS or len(t.shape.dim) != 1 or len(wanted) != 1:
                continue
            symbol = symbol_name(_dim(t.shape.dim[0], f"{v.name}_0", plain))
            if symbol is not None and wanted[0] is not None:
                out.setdefault(symbol, wanted[0])
        return out

    # -- nodes ------------------------------------------------------------------------------------

    def run(
        self, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], scope: Scope
    ) -> list[Value | None]:
        """Convert the nodes that the outputs need; the values of the outputs."""
        order = ordered(nodes, outputs, scope, scope.taken())
        self._search.nodes(order, scope.opsets, scope.prefix)
        for (index, node), (_, asked) in zip(order, without_unread(order, outputs), strict=True):
            self._convert(index, node, asked, scope)
        return [self.find(scope, name) for name in outputs]

    def _convert(
        self, index: int, node: onnx.NodeProto, asked: onnx.NodeProto, scope: Scope
    ) -> None:
        """One node; ``asked``: the same with no other results than are read. If it makes some of
        the others, these have the model's names, too. Behind a node that is refused the walk goes
        on where the shapes of its outputs are declared.
        """
        made: Sequence[Value | None] | None = None
        own = (index, node, scope.opsets, scope.prefix)
        if not (self.survey.expecting and self.survey.is_unknown(functions.refusal(*own))):
            inputs = self._inputs(index, node, scope)
            try:
                made = None if inputs is None else self._converted(index, asked, scope, inputs)
            except Unreached:
                made = None
            except Exception as e:
                self.survey.refuse(functions.refusal(*own), e)
        for i, name in enumerate(asked.output):
            if name:
                scope.values[name] = self._stand_in(name, scope) if made is None else made[i]
        if made is not None and scope.graph is not None:
            self._call(index, node, made, scope)

    def _call(
        self, index: int, node: onnx.NodeProto, made: Sequence[Value | None], scope: Scope
    ) -> None:
        """Note what the model calls what a node makes: of a subgraph in place of a node that is
        what its node gives; what may have a lower rank is not it.
        """
        found = {name: v for name, v in zip(node.output, made, strict=False) if name and v}
        if scope.parent is None:
            for name, v in found.items():
                self.network.call(v, *([name] if v not in self.loose else ()))
        if not scope.prefix:
            tensors = {name: ModelTensor(name_of(index, node), v) for name, v in found.items()}
            self.network.model_tensors.update(tensors)

    def _inputs(self, index: int, node: onnx.NodeProto, scope: Scope) -> list[Value | None] | None:
        """None if one of them is not there since a node was refused."""
        try:
            return [self.find(scope, name) if name else None for name in node.input]
        except Unreached:
            self.survey.unreached += 1
            self._search.subgraphs(index, node, scope.opsets, scope.prefix)
            return None
        except ModelImportError as e:
            e.add_note(
                f"read by {functions.refusal(index, node, scope.opsets, scope.prefix).place}"
            )
            raise

    def _stand_in(self, name: str, scope: Scope) -> Value:
        """A value of the type that the model declares for a tensor, in place of what a refused node
        would make.
        """
        t = self.survey.type_of(scope.graph, name, main=not scope.prefix)
        if t is None or t.tensor_type.elem_type not in ONNX_DTYPES:
            return LOST
        plain = self.network.symbols()
        shape = tuple(_dim(d, f"{name}_{i}", plain) for i, d in enumerate(t.tensor_type.shape.dim))
        return Value(name, TensorSpec(ONNX_DTYPES[t.tensor_type.elem_type], shape))

    def _converted(
        self, index: int, node: onnx.NodeProto, scope: Scope, inputs: list[Value | None]
    ) -> list[Value | None]:
        domain = domain_of(node.domain)
        version = scope.opsets.get(domain, 1)
        first = inputs[0].spec if inputs and inputs[0] is not None else None
        rank = None if first is None or first.element is not None else first.rank
        attributes.check(node, version, rank)
        if not self.catalog.is_local(node):
            signatures.check(node, version, inputs, self.network.remarks)
        ctx = Context(
            self, scope, node, scope.prefix + name_of(index, node), domain, version, inputs
        )
        results = self._results(ctx)
        for v in results:
            _check_size(v, ctx.who)
        settled = [None if v is None else self._settle(ctx, v) for v in results]
        made = {
            s: v for s, v in zip(settled, results) if s and v and s.const is not None is v.const
        }
        self.origins.update(made)
        self.network.origins.update({s.name: v for s, v in made.items()})
        if any(
            s and s is not v and not (s in made and s.spec.dtype.is_float)
            for s, v in zip(settled, results)
        ):
            self.network.read.update(
                x.name for x in inputs if x is not None and x.const is not None
            )
        for i, name in enumerate(node.output):
            if name and (i >= len(settled) or settled[i] is None):
                ctx.fail(f"output {i} ({name!r}) is not supported")
        return settled

    def _results(self, ctx: Context) -> list[Value | None]:
        claim = self.catalog.claim(ctx.domain, ctx.op, ctx.opset)
        result: Any = NotImplemented
        if claim is not None and claim.convert is not None:
            result = _made_by(claim.convert, ctx)
        elif claim is not None and claim.layer is not None:
            result = import_as_layer(ctx, claim.layer)
        if result is not NotImplemented and (unread := ctx.unread()):
            told = f"attribute {unread[0]!r} = {ctx.attr(unread[0])!r} is not supported"
            ctx.fail(told, _attributes_of(claim.layer, unread[0]) if claim else "")
        if result is NotImplemented:
            body = self.catalog.function(ctx.node, ctx.opset) or self.catalog.typed_function(ctx)
            if body is None:
                ctx.fail("no converter takes it in this form, and it has no function body")
            return self._expand(ctx, body)
        results = [result] if isinstance(result, Value) else list(result)
        follow(ctx, results, self.loose)
        return results

    def _expand(self, ctx: Context, function: Function) -> list[Value | None]:
        """A function's body in place of the node."""
        key = (domain_of(function.proto.domain), function.proto.name, function.proto.overload)
        if key in self._active:
            raise recursion(key)
        self._active.add(key)
        try:
            return self._body(ctx, function)
        finally:
            self._active.discard(key)

    def _body(self, ctx: Context, function: Function) -> list[Value | None]:
        if self.catalog.is_local(ctx.node):
            _check_call(ctx.node, function.proto)
        # a graph that the call gives, as the body of a SequenceMap, sees the names around the call
        gives_graph = any(a.HasField("g") for a in ctx.node.attribute)
        around = ctx.scope if gives_graph else None
        scope = Scope(function.opsets, f"{ctx.name}/", around, ctx.scope.depth + 1)
        scope.is_function = True
        for i, name in enumerate(function.proto.input):
            scope.values[name] = ctx.input(i)
        wanted = [
            name for name, used in zip(function.proto.output, ctx.node.output, strict=False) if used
        ]
        found = dict(
            zip(wanted, self.run(self._binder.body(ctx.node, function), wanted, scope), strict=True)
        )
        return [found.get(name) for name in function.proto.output]

    def inline(self, graph: onnx.GraphProto, ctx: Context) -> list[Value]:
        """A subgraph without inputs in place of a node."""
        scope = Scope(ctx.scope.opsets, f"{ctx.name}/", ctx.scope, ctx.scope.depth + 1)
        self.store(graph, scope)
        return [
            v for v in self.run(graph.node, [o.name for o in graph.output], scope) if v is not None
        ]

    # -- constants --------------------------------------------------------------------------------

    def _settle(self, ctx: Context, v: Value) -> Value:
        """The value, or what it is known to be."""
        if v.producer is None or v.producer.layer.key in LEFT or v.spec.dtype.on_host:
            return v
        sizes = [d for d in v.spec.shape if isinstance(d, int)]
        if v.spec.value is not None:
            return self._known(ctx, v, v.spec.value, tuple(sizes))
        constant = all(x is None or x.const is not None for x in ctx.inputs)
        if constant and len(sizes) == v.spec.rank and math.prod(sizes) <= LIMIT:
            computed = functions.compute(v, self._work)
            return v if computed is None else self.network.add_constant(computed, v.name)
        return v

    def _known(
        self, ctx: Context, v: Value, elements: Sequence[Dim], shape: tuple[int, ...]
    ) -> Value:
        if all(isinstance(d, int) for d in elements):
            return self.network.add_constant(
                np.array(elements, v.spec.dtype.numpy).reshape(shape), v.name
            )
        key = (tuple(elements), shape, v.spec.dtype)
        if key not in self._dims:
            fields: dict[str, Any] = dict(zip(("values", "shape", "dtype"), key, strict=True))
            self._dims[key] = self.network.add_layer(
                "tactix.Dims", [], f"{v.name}/dims", (ctx.name,), **fields
            )[0]
        return self._dims[key]

    def fresh(self, name: str) -> str:
        """The name, or with a number where it was given before."""
        count = self._symbols[name] = self._symbols.get(name, -1) + 1
        return f"{name}#{count}" if count else name

    def attribute(self, a: onnx.AttributeProto) -> Any:
        """An attribute's value: tensors as arrays, lists as tuples, text as str."""
        return functions.attribute_value(a, self.weights)


def _check_call(node: onnx.NodeProto, function: onnx.FunctionProto) -> None:
    """Raises ModelImportError for a call with more than the function of the model has."""
    for what, given, formal in (
        ("inputs", node.input, function.input),
        ("outputs", node.output, function.output),
    ):
        if len(given) > len(formal):
            why = f"the function has {len(formal)}"
            raise ModelImportError(f"its {what} are {len(given)}", why=why, do=AGAIN)


def _check_declared(output: onnx.ValueInfoProto, v: Value) -> None:
    """Raises ModelImportError for an output whose element type is not what the model says."""
    declared = ONNX_DTYPES.get(output.type.tensor_type.elem_type)
    if declared is not None and v.spec.element is None and v.spec.dtype is not declared:
        what = f"it is declared as {declared.value}, and is {v.spec.dtype.value}"
        do, maker = "Declare it as what it is, or put a Cast before it", v.producer
        why = "" if maker is None else _said_by_pack(maker)
        do = punctuated((do, "or mend infer of its pack" if why else ""), ", ")
        raise ModelImportError(what, who=f"output {output.name!r}", why=why, do=do)


def _said_by_pack(node: Node) -> str:
    """Whose ``infer`` tells what the node gives, where the layer is a pack's."""
    if node.layer.key.startswith(f"{OWN}."):
        return ""
    place = place_of(node.layer.written)
    return punctuated((f"so says infer of {node.layer.key}, node {node.name!r}", place), ": ")


def _check_size(v: Value | None, who: str) -> None:
    """Raises ModelImportError for a tensor that no memory can hold."""
    if v is None or v.const is not None:
        return
    sizes = [d for d in v.spec.shape if isinstance(d, int)]
    if any(d < 0 for d in sizes):
        why, do = "sizes are 0 or more", "Look for a negative size in what it is given"
        raise ModelImportError(f"its result would be {v.spec}", who=who, why=why, do=do)
    if math.prod(sizes) > LARGEST or v.spec.rank > RANK:
        why = f"elements are at most {LARGEST}, axes at most {RANK}"
        do = "Look for a size that is too large in what it is given"
        raise ModelImportError(f"no tensor is as large as {v.spec}", who=who, why=why, do=do)


def _no_tensor(v: onnx.ValueInfoProto, graph: onnx.GraphProto, who: str) -> UnsupportedOperator:
    """The error for an input that is a map, or of a kind that nobody has."""
    readers = (f"{n.op_type} {n.name!r}" for n in graph.node if v.name in n.input)
    why = f"a {v.type.WhichOneof('value')}, read by {next(readers, 'nothing')}"
    do = "Export the model without the step that reads it, and give what that step gives: a tensor"
    return UnsupportedOperator(
        "the model takes something that is no tensor", who=who, why=why, do=do
    )


def _dim(d: onnx.TensorShapeProto.Dimension, fresh: str, plain: Collection[str]) -> Dim:
    if d.HasField("dim_value") and d.dim_value >= 0:
        return d.dim_value
    return sym(fresh) if d.dim_param in _UNNAMED else dim_of(d.dim_param, plain)


def _reshaped(
    declared: Sequence[Dim | str | None], asked: Sequence[Dim | str | None] | None
) -> Sequence[Dim | str | None]:
    """The sizes of an input that is asked to have others; where one is asked to be open, the
    model's stays if it is.
    """
    if asked is None:
        return declared
    same = len(asked) == len(declared)
    kept = [d if isinstance(d, Expr) else None for d in declared] if same else [None] * len(asked)
    return [old if new is None else new for old, new in zip(kept, asked, strict=True)]


def _made_by(convert: Callable[..., Any], ctx: Context) -> Any:
    """What a converter gives. Raises ModelImportError that names the function of a pack which
    fails.
    """
    try:
        made = convert(ctx, ctx.node)
        if made is NotImplemented or isinstance(made, Value):
            return made
        values = list(made)
        if wrong := [v for v in values if not (v is None or isinstance(v, Value))]:
            raise TypeError(f"it gave {wrong[0]!r}, not a Value")
        return values
    except (TactixError, Unreached):
        raise
    except Exception as e:
        function = getattr(convert, "func", convert)  # of a functools.partial
        if function.__module__.startswith("tactix_onnx."):
            raise
        who, why = (
            f"the converter {function.__module__}.{function.__qualname__}",
            f"{type(e).__name__}: {e}",
        )
        raise ModelImportError(
            "cannot be imported", who=ctx.who, why=f"{who} failed: {why}", do="Mend its pack"
        ) from e


def import_model(
    model: onnx.ModelProto,
    network: NetworkDefinition,
    catalog: Catalog,
    weights: WeightReader,
    survey: Survey,
) -> None:
    """The model's main graph into the network; an output that it names twice is one. Raises
    ModelImportError; what the survey found, too.
    """
    walker = Walker(network, catalog, weights, survey)
    scope = Scope(opsets_of(model.opset_import))
    graph = model.graph
    walker.store(graph, scope)
    walker.add_inputs(graph, scope)
    names = list(dict.fromkeys(o.name for o in graph.output))
    if not names:
        why, do = "its graph names none, so nothing is computed", "Export it with its results"
        raise ModelImportError("the model has no outputs", why=why, do=do)
    values: list[Value | None] = []
    with contextlib.suppress(Unreached):
        values = walker.run(graph.node, names, scope)
    survey.finish()
    declared = {o.name: o for o in graph.output}
    for name, value in zip(names, values, strict=True):
        if value is None:
            raise ModelImportError(f"output {name!r} is empty")
        firm(value, f"output {name!r}", walker.loose)
        _check_declared(declared[name], value)
        network.mark_output(value, name)
    network.name = network.name or graph.name


def _attributes_of(layer: Layer | None, name: str) -> str:
    """What may have been meant by an attribute that a layer lacks; empty where a converter, which
    reads what it likes, took the node.
    """
    if layer is None:
        return ""
    known = [f.name for f in dataclasses.fields(layer.Attrs)]
    return did_you_mean(name, known, f"It has: {', '.join(known) or 'no attributes'}")
