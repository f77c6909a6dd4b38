"""Fused layer: an anchor (or none) with pointwise neighbours, kept as a body of the original
layers.

The body is the reference of the fused node; ``program`` turns its pointwise part into scalar
expressions for code generators. Two structural layers are the core's own: FUSED and REFORMAT;
neither computes anything.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, TypeVar

from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import LINEAR, Format, TensorSpec
from tactix.contracts import attrs as attribute
from tactix.contracts import expr
from tactix.contracts.attrs import Attributes, Schema
from tactix.contracts.layer import Layer
from tactix.contracts.reference import check_inferred, computed

if TYPE_CHECKING:
    from numpy.random import Generator

T = TypeVar("T")


@dataclass(frozen=True)
class BodyNode(Generic[Schema]):
    """A layer inside a body; ``inputs`` are value ids, -1 for an absent one."""

    name: str
    layer: Layer
    attrs: Schema
    inputs: tuple[int, ...]
    outputs: int = 1


@dataclass(frozen=True)
class Body:
    """A small graph. Ids: 0..arity-1 are its inputs; each node then adds its outputs in order."""

    arity: int
    nodes: tuple[BodyNode, ...]
    results: tuple[int, ...]
    anchor: int | None = None

    def first_id(self, index: int) -> int:
        """The id of the first output of node ``index``."""
        return self._first_ids[index]

    @functools.cached_property
    def _first_ids(self) -> tuple[int, ...]:
        return tuple(accumulate((n.outputs for n in self.nodes), initial=self.arity))

    def infer(self, inputs: Sequence[TensorSpec]) -> list[TensorSpec]:
        """Specs of every id."""
        known = list(inputs)
        for n in self.nodes:
            known += n.layer.infer(n.attrs, [known[i] if i >= 0 else None for i in n.inputs])
        return known

    def run(
        self,
        inputs: Sequence[Array],
        env: Mapping[str, int] | None = None,
        specs: Sequence[TensorSpec] = (),
    ) -> list[Array]:
        """numpy arrays of every id: the reference decomposition. ``specs``: what inference says of
        them, where that is to be held to it. Raises ExecutionError, PluginError.
        """
        known, env = list(inputs), env or {}
        for n in self.nodes:
            args = [known[i] if i >= 0 else None for i in n.inputs]
            made = computed(n.layer, attribute.resolve_fields(n.attrs, env), args, n.name)
            if specs:
                said = specs[len(known) : len(known) + n.outputs]
                check_inferred(n.layer, said, made, env, n.name)
            known += made
        return known

    @property
    def unsummarized(self) -> Body | None:
        """The body without its last layer, where that sums up the body's first result into its
        last; None of others.
        """
        *before, last = self.nodes
        sums = last.layer.summarizes and self.anchor not in (None, len(before))
        made, fits = self.first_id(len(before)), last.inputs == self.results[:1]
        if not sums or not fits or self.results[1:] != (made,):
            return None
        return replace(self, nodes=tuple(before), results=self.results[:1])

    @property
    def is_chain(self) -> bool:
        """Whether the anchor reads what another layer makes that is not pointwise."""
        return not all(n.layer.is_pointwise for n in self.nodes[: self.anchor or 0])

    @property
    def title(self) -> str:
        """``conv1 + relu1``."""
        return " + ".join(n.name for n in self.nodes)


def observed(body: Body, specs: Sequence[TensorSpec]) -> frozenset[int]:
    """Ids of 16-bit values made in the body whose rounding shows outside, so that every kernel has
    to round them.

    Kernels compute in float32 and may leave out what a network rounds on the way, for that is more
    exact. Two things would show: a wider result that is no number of the 16-bit type (``Cast`` to
    float32), and a decision on another number than the network decides on (``Floor``, a
    comparison), for which all roundings before it count. ``specs`` are those of ``Body.infer``.
    """
    narrow = {i for i in range(body.arity, len(specs)) if _is_narrow(specs[i].dtype)}
    if not narrow:
        return frozenset()
    shown: set[int] = set()
    decisive: set[int] = set()
    for k in reversed(range(len(body.nodes))):
        n, first = body.nodes[k], body.first_id(k)
        made = range(first, first + n.outputs)
        inputs = [i for i in n.inputs if i >= 0]
        jumps = (
            expr.jumps_on(n.layer.scalar(n.attrs, len(n.inputs)))
            if n.layer.is_pointwise
            else frozenset()
        )
        if not decisive.isdisjoint(made) or not all(specs[i].dtype.is_float for i in made):
            decisive.update(inputs)
        else:
            decisive.update(n.inputs[j] for j in jumps)
        shown.update(i for i in inputs if any(specs[i].dtype is not specs[o].dtype for o in made))
    return frozenset(narrow & (shown | decisive))


def _is_narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits < 32


class Expressions:
    """Reads a body: values become scalar expressions of variables, which stand for the ids in
    ``leaves``.

    What is ``observed`` is rounded by a cast. ``specs`` are those of ``Body.infer``.
    """

    def __init__(self, body: Body, specs: Sequence[TensorSpec]) -> None:
        self.body, self.specs = body, specs
        self.leaves: list[int] = []
        self._known: dict[int, expr.Scalar] = {}
        self._observed = observed(body, specs)

    def of(self, i: int) -> expr.Scalar:
        """The expression of a value; a new variable, if nothing is known of it."""
        if i not in self._known:
            made = self.fresh(i)
            self._known[i] = self._rounded(i, made) if i >= self.body.arity else made
        return self._known[i]

    def fresh(self, i: int) -> expr.Scalar:
        """A new variable that stands for the value from here on, as it is."""
        self.leaves.append(i)
        self._known[i] = expr.var(len(self.leaves) - 1)
        return self._known[i]

    def read(self, k: int) -> None:
        """Know what a pointwise node makes."""
        n = self.body.nodes[k]
        own = n.layer.scalar(n.attrs, len(n.inputs))
        made = expr.replace_vars(own, {j: self.of(i) for j, i in enumerate(n.inputs)})
        first = self.body.first_id(k)
        self._known[first] = self._rounded(first, made)

    def _rounded(self, i: int, made: expr.Scalar) -> expr.Scalar:
        dtype = self.specs[i].dtype
        stored = [self.specs[v].dtype if v < self.body.arity else DType.FP32 for v in self.leaves]
        return (
            expr.cast(made, dtype)
            if i in self._observed and not expr.on_grid(made, dtype, stored)
            else made
        )


@dataclass(frozen=True)
class Program:
    """The pointwise part of a body: an expression per result over ``leaves``, the ids of the
    variables.
    """

    results: tuple[expr.Scalar, ...]
    leaves: tuple[int, ...]


def program(body: Body, specs: Sequence[TensorSpec]) -> Program:
    """The body's results as scalar expressions of its inputs and of the anchor's outputs.

    An id that a variable ``i`` stands for is ``leaves[i]``. A body whose anchor is not followed by
    anything gives bare variables, and so does what a last layer sums up. Pointwise layers before
    the anchor are left to those who take them. ``specs``: of ``Body.infer``.
    """
    known = Expressions(body, specs)
    for k in range(0 if body.anchor is None else body.anchor + 1, len(body.nodes)):
        if body.nodes[k].layer.is_pointwise:
            known.read(k)
    return Program(tuple(known.of(i) for i in body.results), tuple(known.leaves))


class FusedLayer(Layer[Body]):
    """A region run as one step; its attributes are its Body."""

    key = "tactix.Fused@1"
    Attrs = Body

    def infer(self, attrs: Body, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        known = attrs.infer([s for s in inputs if s is not None])
        return [known[i].plain() for i in attrs.results]

    def reference(self, attrs: Body, *inputs: Array | None) -> tuple[Array, ...]:
        known = attrs.run([x for x in inputs if x is not None])
        return tuple(known[i] for i in attrs.results)

    def sample(
        self, attrs: Body, inputs: Sequence[TensorSpec | None], rng: Generator
    ) -> list[object]:
        out = super().sample(attrs, inputs, rng)
        for n in attrs.nodes:
            if all(i < attrs.arity for i in n.inputs):
                picked = n.layer.sample(
                    n.attrs, [inputs[i] if i >= 0 else None for i in n.inputs], rng
                )
                for i, x in zip(n.inputs, picked, strict=True):
                    if i >= 0:
                        out[i] = x
        return out


@dataclass(frozen=True)
class ReformatAttrs:
    """From one format to another."""

    source: Format = LINEAR
    target: Format = LINEAR


class ReformatLayer(Layer[ReformatAttrs]):
    """The same tensor in another format; also a plain copy."""

    key = "tactix.Reformat@1"
    Attrs = ReformatAttrs

    def infer(self, attrs: ReformatAttrs, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        (x,) = inputs
        assert x is not None
        return [x.plain()]

    def reference(self, attrs: ReformatAttrs, *inputs: Array | None) -> tuple[Array, ...]:
        (x,) = inputs
        assert x is not None
        return (x,)


FUSED = FusedLayer()
REFORMAT = ReformatLayer()
STRUCTURAL: tuple[Layer, ...] = (FUSED, REFORMAT)


def resolve(layer: Layer, attrs: Attributes, env: Mapping[str, int]) -> Attributes:
    """Attributes with symbols replaced, through all nested bodies."""
    if not isinstance(attrs, Body):
        return attribute.resolve_fields(attrs, env)
    return replace(
        attrs, nodes=tuple(replace(n, attrs=resolve(n.layer, n.attrs, env)) for n in attrs.nodes)
    )


def encode(layer: Layer, attrs: Attributes) -> dict[str, object]:
    """JSON of a layer with its attributes; a body is written out."""
    if not isinstance(attrs, Body):
        return {"layer": layer.key, "attrs": attribute.encode_fields(attrs)}
    nodes = [
        {**encode(n.layer, n.attrs), "name": n.name, "inputs": list(n.inputs), "outputs": n.outputs}
        for n in attrs.nodes
    ]
    body = {
        "arity": attrs.arity,
        "nodes": nodes,
        "results": list(attrs.results),
        "anchor": attrs.anchor,
    }
    return {"layer": layer.key, "body": body}


def decode(j: Mapping[str, object], find: Callable[[str], Layer]) -> tuple[Layer, Attributes]:
    """Layer and attributes of ``encode``'s JSON; ``find`` looks a layer up by key and raises for an
    unknown one. Raises InvalidArgument for a field of another type, KeyError for none.
    """
    key = _field(j, "layer", str)
    if key != FUSED.key:
        layer = REFORMAT if key == REFORMAT.key else find(key)
        return layer, attribute.decode_fields(layer.Attrs, _field(j, "attrs", dict))
    b = _field(j, "body", dict)
    nodes = tuple(_decode_node(n, find) for n in _field(b, "nodes", list))
    return FUSED, Body(b["arity"], nodes, tuple(_field(b, "results", list)), b["anchor"])


def _decode_node(j: Mapping[str, object], find: Callable[[str], Layer]) -> BodyNode:
    layer, attrs = decode(j, find)
    inputs = tuple(_field(j, "inputs", list))
    return BodyNode(_field(j, "name", str), layer, attrs, inputs, _field(j, "outputs", int))


def _field(j: Mapping[str, object], name: str, kind: type[T]) -> T:
    if not isinstance(found := j[name], kind):
        raise InvalidArgument(f"a layer's {name} is {reprlib.repr(found)}")
    return found
