"""The pieces of a network that rules and tactics look at: values and nodes.

Only ``tactix.network`` makes and rewires them; everybody else reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from operator import is_not
from typing import Generic

from tactix.base.arrays import Array
from tactix.base.dims import Dim
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import TensorSpec
from tactix.contracts import attrs as attribute
from tactix.contracts.attrs import Schema
from tactix.contracts.layer import Layer
from tactix.contracts.reference import check_inferred, computed
from tactix.contracts.region import FUSED, Body, BodyNode, encode

LEAST_BITS = 16
"""Of a float that stands for the same number as a wider one; fewer are quantized."""


class Value:
    """One tensor of a network: a name, a spec, and the node that makes it (None for inputs and
    constants).

    ``called``: names of the model's tensors that it is, up to rounding; none for what the model
    does not have.
    """

    __slots__ = ("called", "index", "name", "producer", "spec")

    def __init__(
        self,
        name: str,
        spec: TensorSpec,
        producer: Node | None = None,
        index: int = 0,
        called: tuple[str, ...] = (),
    ) -> None:
        self.name, self.spec, self.producer, self.index = name, spec, producer, index
        self.called = called

    @property
    def const(self) -> Array | None:
        """The array of a constant, else None."""
        found: Array | None = self.spec.const
        return found

    @property
    def array(self) -> Array:
        """The array of a constant. Raises InvalidArgument for what is none."""
        if (found := self.const) is None:
            raise InvalidArgument("it is no constant", who=self.name)
        return found

    def __repr__(self) -> str:
        return f"<value {self.name}: {self.spec}>"


NOT_INFERRED: tuple[list[TensorSpec], list[TensorSpec]] = ([], [])
"""What a body reads and the specs of its ids, of nodes where nobody has asked for these."""


class Node(Generic[Schema]):
    """One layer in a network. ``origin`` lists the model's node names that it stands for."""

    __slots__ = (
        "__weakref__",
        "_given",
        "_inferred",
        "_inputs",
        "_single",
        "attrs",
        "layer",
        "name",
        "origin",
        "outputs",
    )

    def __init__(
        self,
        name: str,
        layer: Layer,
        attrs: Schema,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value] = (),
        origin: Sequence[str] = (),
    ) -> None:
        self.name, self.layer, self.attrs = name, layer, attrs
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.origin = tuple(origin) or (name,)
        self._inferred = NOT_INFERRED
        self._single: tuple[tuple[object, ...], Body] | None = None

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The layer's list; None for an input that is not there."""
        return self._inputs

    @inputs.setter
    def inputs(self, inputs: Sequence[Value | None]) -> None:
        self._given = tuple([v for v in inputs if v is not None])
        self._inputs = self._given if len(self._given) == len(inputs) else tuple(inputs)

    @property
    def is_fused(self) -> bool:
        return self.layer is FUSED

    @property
    def is_pointwise(self) -> bool:
        """Whether all that it runs is pointwise: it has no anchor."""
        if isinstance(self.attrs, Body):
            return self.attrs.anchor is None
        return self.layer.is_pointwise

    @property
    def rounds(self) -> bool:
        """Whether it gives its one input in another dtype of floats, and is no group."""
        if not self.layer.is_pointwise or len(self.given) != 1:
            return False
        read, made = self.given[0].spec, self.outputs[0].spec
        floats = all(s.dtype.is_float and s.dtype.bits >= LEAST_BITS for s in (read, made))
        if not floats or read.shape != made.shape:
            return False
        computed = self.layer.scalar(self.attrs, 1)
        return computed.op == "cast" and computed.args[0].op == "var"

    @property
    def body(self) -> Body:
        """The region: a fused node's body, or this one layer."""
        if isinstance(self.attrs, Body):
            return self.attrs
        made_from = (self.name, self.layer, self.attrs, self.inputs, self.outputs)
        if self._single is None or any(map(is_not, self._single[0], made_from)):
            self._single = made_from, self._alone()
        return self._single[1]

    def _alone(self) -> Body:
        n = len(self.given)
        single = BodyNode(self.name, self.layer, self.attrs, self.places, len(self.outputs))
        anchor = None if self.layer.is_pointwise else 0
        return Body(n, (single,), tuple(range(n, n + len(self.outputs))), anchor)

    @property
    def specs(self) -> list[TensorSpec]:
        """Specs of every id of the body, worked out once for what it reads."""
        found = self.known_specs
        if not found:
            given = [v.spec for v in self.given]
            found = self.body.infer(given)
            self._inferred = given, found
        return found

    @property
    def known_specs(self) -> list[TensorSpec]:
        """``specs`` where they are worked out already, or were given; else empty."""
        read, found = self._inferred
        if len(read) != len(self._given):
            return []
        return found if all(a is v.spec for a, v in zip(read, self._given, strict=True)) else []

    def know(self, specs: list[TensorSpec]) -> None:
        """Take these for ``specs``: what their maker knows need not be inferred."""
        self._inferred = [v.spec for v in self._given], specs

    @property
    def operations(self) -> Dim:
        """As ``Layer.operations``: of all layers that it runs."""
        body, specs = self.body, self.specs
        at, out = body.arity, list[Dim]()
        for b in body.nodes:
            read = [specs[i] if i >= 0 else None for i in b.inputs]
            out.append(b.layer.operations(b.attrs, read, specs[at : at + b.outputs]))
            at += b.outputs
        return sum(out, 0)

    @property
    def given(self) -> tuple[Value, ...]:
        """The inputs that are there: what the body's ids and a tactic's arguments count."""
        return self._given

    @property
    def places(self) -> tuple[int, ...]:
        """Where each input stands in ``given``; -1 for one that is not there."""
        there = count()
        return tuple(-1 if v is None else next(there) for v in self.inputs)

    def place(self, index: int) -> int:
        """Where input ``index`` of the layer's list stands in ``given``; -1 if it is not there."""
        return self.places[index] if index < len(self.inputs) else -1

    @property
    def meaning(self) -> dict[str, object]:
        """JSON of what it computes, for ``region.decode``: a body, which says where inputs are
        missing, if some are.
        """
        return encode(FUSED, self.body) if None in self.inputs else encode(self.layer, self.attrs)

    @property
    def anchor(self) -> BodyNode | None:
        """The one layer that is not pointwise; None for a pointwise group."""
        if self.is_pointwise:
            return None
        body = self.body
        return None if body.anchor is None else body.nodes[body.anchor]

    @property
    def kind(self) -> str:
        """What tactics implement: the anchor's key, or ``"pointwise"``."""
        if not isinstance(self.attrs, Body):
            return "pointwise" if self.layer.is_pointwise else self.layer.key
        anchor = self.anchor
        return "pointwise" if anchor is None else anchor.layer.key

    def __repr__(self) -> str:
        inputs = ", ".join(v.name if v else "-" for v in self.inputs)
        return f"<node {self.name} {self.layer.key}({inputs})>"


def run_node(node: Node, inputs: list[Array | None], env: Mapping[str, int]) -> tuple[Array, ...]:
    """The node's outputs by its reference; ``inputs`` stand beside ``node.inputs``. Raises
    ExecutionError; PluginError where a layer's reference disagrees with its ``infer``.
    """
    if node.is_fused:
        known = node.body.run([x for x in inputs if x is not None], env, node.specs)
        return tuple(known[i] for i in node.body.results)
    made = computed(node.layer, attribute.resolve_fields(node.attrs, env), inputs, node.name)
    check_inferred(node.layer, [v.spec for v in node.outputs], made, env, node.name)
    return made
