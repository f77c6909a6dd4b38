"""Subgraphs that only running enters: each becomes a network of its own, inside the attributes of a
layer.

What a subgraph reads of the graph around it becomes a further input (a capture), or is made again
inside where it follows from shapes and constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tactix.base.dtypes import DType
from tactix.base.errors import ModelImportError
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Value
from tactix.network.definition import NetworkDefinition
from tactix_onnx.loose import Loose, firm
from tactix_onnx.rows import split_of
from tactix_ops.layers.control import either
from tactix_ops.layers.sequences import element_of, join

if TYPE_CHECKING:
    import onnx

    from tactix_onnx.convert import Context
    from tactix_onnx.graph import Scope, Walker

REPEATED = {"tactix.Dims@1", "tactix.Text@1", "tactix.Fill@1"}
"""Layers without inputs that are made again inside a subgraph rather than captured. So are the
sequences of a tensor's rows: it is captured.
"""

NESTED = 16
"""How deep bodies may lie in each other."""

BODIES = 1 << 14
"""Most nodes that are imported for the bodies of one model; each nesting repeats those inside it.
"""


class EnclosingScope:
    """The names around a subgraph, as its walker sees them. ``loose``: of that walker."""

    def __init__(
        self, walker: Walker, scope: Scope, network: NetworkDefinition, loose: Loose
    ) -> None:
        self.walker, self.scope, self.network, self.loose = walker, scope, network, loose
        self.captured: dict[Value, Value] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.scope

    def find(self, name: str) -> Value | None:
        """The value inside that stands for one outside."""
        v = self.walker.find(self.scope, name)
        return None if v is None else self._inside(v)

    def _inside(self, v: Value) -> Value:
        if v not in self.captured:
            made = self._again(v)
            if made is None:
                taken = {x.name for x in self.network.inputs}
                own = next(
                    n
                    for n in (v.name, *(f"{v.name}#{k}" for k in range(len(taken) + 1)))
                    if n not in taken
                )
                made = self.network.add_input(own, v.spec.dtype, v.spec.shape, v.spec.element)
            self.network.rename(made, *v.called)
            self.captured[v] = made
            if v in self.walker.loose:
                self.loose[made] = self.walker.loose[v]
        return self.captured[v]

    def _again(self, v: Value) -> Value | None:
        if v.const is not None:
            return self.network.add_constant(v.const, v.name)
        node = v.producer
        if node is None or not (node.layer.key in REPEATED or split_of(v)):
            return None
        inputs = [self._inside(x) for x in node.given]
        return self.network.add_layer(node.layer, inputs, v.name, node.origin, attrs=node.attrs)[0]


@dataclass(frozen=True)
class ImportedBody:
    """An imported subgraph. ``captures``: the values outside that are its inputs behind those of
    the operator.

    ``loose``: those of its values whose rank may be lower.
    """

    network: NetworkDefinition
    captures: tuple[Value, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    loose: Loose

    @property
    def specs(self) -> list[TensorSpec]:
        return [v.spec.plain() for v in self.outputs]


def import_body(
    ctx: Context, graph: onnx.GraphProto, given: Sequence[TensorSpec], title: str
) -> ImportedBody:
    """A subgraph for inputs of these specs. Raises ModelImportError."""
    if len(graph.input) != len(given):
        raise ModelImportError(
            f"its {title} takes {len(graph.input)} inputs",
            who=ctx.who,
            why=f"the operator gives {len(given)}",
        )
    network = NetworkDefinition(ctx.network.layers, f"{ctx.name}/{title}")
    walker, scope = ctx.walker.inside(network, ctx, len(graph.node))
    walker.store(graph, scope)
    inputs = []
    for v, spec in zip(graph.input, given, strict=True):
        if v.name in scope.values:
            raise ModelImportError(f"two inputs of its {title} are named {v.name!r}", who=ctx.who)
        inputs.append(network.add_input(v.name, spec.dtype, spec.shape, spec.element))
        scope.values[v.name] = inputs[-1]
    names = [o.name for o in graph.output]
    outputs = []
    for i, (name, value) in enumerate(
        zip(names, walker.run(graph.node, names, scope), strict=True)
    ):
        if value is None:
            raise ModelImportError(f"output {name!r} of its {title} is empty", who=ctx.who)
        network.mark_output(value, f"{i}:{name}")
        outputs.append(value)
    inner = {v: k for k, v in scope.window.captured.items()} if scope.window else {}
    captures = tuple(inner[v] for v in network.inputs[len(inputs) :])
    return ImportedBody(network, captures, tuple(inputs), tuple(outputs), walker.loose)


def level(a: ImportedBody, b: ImportedBody) -> tuple[ImportedBody, ImportedBody, list[int]]:
    """Two bodies whose outputs have equal ranks, and the lowest that each may have had.

    The lower one of two tensors gets axes of size 1 in front.
    """
    pairs = list(zip(a.outputs, b.outputs, strict=True))
    lowest = [min(a.loose.get(x, x.spec.rank), b.loose.get(y, y.spec.rank)) for x, y in pairs]
    ranks = [max(x.spec.rank, y.spec.rank) for x, y in pairs]
    return _raised(a, ranks), _raised(b, ranks), lowest


def _raised(body: ImportedBody, ranks: Sequence[int]) -> ImportedBody:
    outputs = list(body.outputs)
    for i, (v, rank, name) in enumerate(
        zip(body.outputs, ranks, body.network.output_names, strict=True)
    ):
        if v.spec.rank < rank and v.spec.element is None:
            shape = (1,) * (rank - v.spec.rank) + v.spec.shape
            origin = v.producer.origin if v.producer else ()
            outputs[i] = body.network.add_layer(
                "tactix.Reshape", [v], f"{v.name}/rank", origin, shape=shape
            )[0]
            body.network.replace_output(name, outputs[i])
    return replace(body, outputs=tuple(outputs))


# -- specs of what leaves a body -----------------------------------------------------------------


def merged(ctx: Context, a: TensorSpec, b: TensorSpec, what: str, symbol: str) -> TensorSpec:
    """What fits both; dims where they differ are symbols. Raises UnsupportedOperator."""
    if a.dtype is DType.OPTIONAL and b.dtype is not DType.OPTIONAL:
        b = TensorSpec(DType.OPTIONAL, (), element=element_of(b))
    if a.dtype is not b.dtype or a.rank != b.rank:
        ctx.fail(
            f"{what} is {a} and {b}", do="Export the model so that both have one type and rank"
        )
    if a.element is not None:
        return replace(a, element=join(element_of(a), element_of(b)).of)
    return replace(a, shape=either(a.shape, b.shape, symbol))


def all_firm(body: ImportedBody, title: str, who: str) -> ImportedBody:
    """The body, none of whose outputs may have a lower rank. Raises UnsupportedOperator."""
    for i, v in enumerate(body.outputs):
        firm(v, f"output {i} of the {title} of {who}", body.loose)
    return body


def always(body: ImportedBody, condition: Value, output: Value) -> bool:
    """Whether a condition that starts true stays so: the body hands it on, or gives a constant."""
    return output is condition or (output.const is not None and bool(np.all(output.const)))


def capture_all(bodies: Sequence[ImportedBody]) -> tuple[list[Any], tuple[tuple[int, ...], ...]]:
    """The values that any of the bodies captures, and where each body's own stand among them."""
    every = list(dict.fromkeys(v for b in bodies for v in b.captures))
    return every, tuple(tuple(every.index(v) for v in b.captures) for b in bodies)
