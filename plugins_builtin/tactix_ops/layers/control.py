"""Branches and loops: layers whose attributes hold networks.

A body takes what ONNX gives it, and then the values of the network around it that it reads
(captures), which are further inputs of the layer. Running one is the same for the reference and for
a plan: only the ``Call`` differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tactix.base.dims import Shape, sym, symbols
from tactix.base.dims import evaluate as evaluate_dim
from tactix.base.errors import DataError, ExecutionError
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import Scoped, symbols_in
from tactix.contracts.launcher import Call
from tactix.contracts.layer import Layer
from tactix_ops.layers.common import Array, Specs
from tactix_ops.layers.sequences import outside

if TYPE_CHECKING:
    from tactix.network.definition import NetworkDefinition


@dataclass(frozen=True, eq=False)
class Bodies(Scoped):
    """Networks inside a layer, and what the layer gives. ``env``: values of the symbols around
    them.
    """

    networks: tuple[NetworkDefinition, ...] = ()
    results: tuple[TensorSpec, ...] = ()
    env: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return ", ".join(n.name for n in self.networks)

    def symbols(self) -> frozenset[str]:
        nodes = [n for network in self.networks for n in network.nodes]
        shapes = [v.spec.shape for n in nodes for v in n.outputs]
        shapes += [v.spec.shape for network in self.networks for v in network.inputs]
        return frozenset().union(*(symbols_in(x) for x in (*shapes, *(n.attrs for n in nodes))))

    def at(self, env: Mapping[str, int]) -> Bodies:
        return dataclasses.replace(self, env=dict(env))

    def calls(self) -> list[Call]:
        """The networks by their layers' references."""
        return [partial(_call, n, self.env) for n in self.networks]


class WorkSpent(ExecutionError):
    """Bodies would do more work than they may."""


@dataclass
class Work:
    """How much bodies may still do: elements that their layers make, a layer counting as at least
    ``EACH`` for what it takes to call it.
    """

    left: int
    EACH = 1 << 10

    def take(self, network: NetworkDefinition) -> None:
        """One run of a body. Raises WorkSpent."""
        sizes = (v.spec.numel for n in network.nodes for v in n.outputs)
        self.left -= self.EACH + sum(max(self.EACH, n) for n in sizes if isinstance(n, int))
        if self.left < 0:
            raise WorkSpent("it takes too long", who=network.name)


_work: ContextVar[Work | None] = ContextVar("work", default=None)


@contextmanager
def limited(work: Work) -> Iterator[None]:
    """Inside, references run bodies, nested ones included, until the work is spent; then they raise
    WorkSpent.
    """
    token = _work.set(work)
    try:
        yield
    finally:
        _work.reset(token)


def _call(network: NetworkDefinition, env: Mapping[str, int], values: Sequence[Any]) -> list[Any]:
    from tactix_sdk.evaluate import evaluate

    if (work := _work.get()) is not None:
        work.take(network)
    names = [v.name for v in network.inputs]
    return list(evaluate(network, dict(zip(names, values, strict=True)), env).values())


@dataclass(frozen=True)
class Running:
    """What a layer with bodies takes beside its inputs. ``params``: as ``Control.params``."""

    params: Mapping[str, Any]
    bodies: Sequence[Call]
    specs: Sequence[TensorSpec]
    env: Mapping[str, int]

    def stacked(self, rows: Sequence[Sequence[Any]], first: int, axes: Sequence[int]) -> list[Any]:
        """The columns of ``rows`` along a new axis each (the first one if not given); outputs from
        ``first`` on.
        """
        if not rows:
            return [self.empty(i) for i in range(first, len(self.specs))]
        return [
            np.stack(column, axes[i] if axes else 0)
            for i, column in enumerate(zip(*rows, strict=True))
        ]

    def empty(self, output: int) -> Array:
        """An output to which no iteration gave anything: dims that nobody knows are 0."""
        spec = self.specs[output]
        shape = [
            evaluate_dim(d, self.env) if symbols(d) <= self.env.keys() else 0 for d in spec.shape
        ]
        return np.zeros(shape, spec.dtype.numpy)


class Control(Layer):
    """A layer with bodies."""

    takes_objects = True

    def infer(self, attrs: Any, inputs: Specs) -> list[TensorSpec]:
        return list(attrs.bodies.results)

    def bodies(self, attrs: Any) -> tuple[Any, ...]:
        networks: tuple[Any, ...] = attrs.bodies.networks
        return networks

    def params(self, attrs: Any) -> dict[str, Any]:
        """What running needs beside the bodies, as JSON."""
        own = {
            f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs) if f.name != "bodies"
        }
        return {"control": self.name, **own}

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        bodies: Bodies = attrs.bodies
        running = Running(self.params(attrs), bodies.calls(), bodies.results, bodies.env)
        found = zip(RUN[self.name](running, inputs), bodies.results, strict=True)
        return tuple(y if s.dtype.on_host else np.asarray(y, s.dtype.numpy) for y, s in found)


@dataclass(frozen=True)
class IfAttrs:
    """``captures``: for the branch taken and the other, which of the layer's inputs behind the
    condition they take.
    """

    bodies: Bodies = Bodies()
    captures: tuple[tuple[int, ...], ...] = ((), ())


class If(Control):
    """One of two bodies; inputs: the condition, then captures."""

    key = "tactix.If@1"
    Attrs = IfAttrs


def run_if(call: Running, values: Sequence[Any]) -> list[Any]:
    """The outputs of the first body if the condition holds, else of the second."""
    chosen = 0 if truth(values[0]) else 1
    return call.bodies[chosen]([values[1 + i] for i in call.params["captures"][chosen]])


@dataclass(frozen=True)
class LoopAttrs:
    """``states``: how many values each iteration hands to the next; the body's further outputs are
    stacked.

    ``ranks``: of the iteration's number and of the condition as the body takes them: 0, or 1 for an
    axis of one.
    """

    bodies: Bodies = Bodies()
    states: int = 0
    ranks: tuple[int, ...] = (0, 0)


class Loop(Control):
    """A body run again and again; inputs: the most iterations, whether to start, states, captures.

    The body takes the iteration's number, the condition, states and captures; it gives whether to
    go on, states, and what is stacked along a new first axis.
    """

    key = "tactix.Loop@1"
    Attrs = LoopAttrs


def run_loop(call: Running, values: Sequence[Any]) -> list[Any]:
    """Final states, then stacks."""
    (body,), n = call.bodies, call.params["states"]
    most, going = int(np.asarray(values[0]).reshape(())), truth(values[1])
    states, captures = list(values[2 : 2 + n]), values[2 + n :]
    rows: list[list[Any]] = []
    of_count, of_going = ((1,) * rank for rank in call.params.get("ranks", (0, 0)))
    while len(rows) < most and going:
        counters = np.full(of_count, len(rows), np.int64), np.full(of_going, going)
        found = body([*counters, *states, *captures])
        going, states = truth(found[0]), found[1 : 1 + n]
        rows.append(found[1 + n :])
    return [*states, *call.stacked(rows, n, ())]


@dataclass(frozen=True)
class ScanAttrs:
    """``states`` as in a Loop; ``axes``, ``directions``: of what is sliced and of what is stacked,
    1 for backwards.

    ``batched``: the first axis of everything is a batch, of which each item is scanned by itself
    (operator set 8).
    """

    bodies: Bodies = Bodies()
    states: int = 0
    input_axes: tuple[int, ...] = ()
    input_directions: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    output_directions: tuple[int, ...] = ()
    batched: bool = False


class Scan(Control):
    """A body run for each slice of some inputs; inputs: states, what is sliced, captures."""

    key = "tactix.Scan@1"
    Attrs = ScanAttrs


def run_scan(call: Running, values: Sequence[Any]) -> list[Any]:
    """Final states, then stacks."""
    if not call.params["batched"]:
        return _scan(call, values)
    n, k = call.params["states"], len(call.params["input_axes"])
    items = [
        _scan(call, [*(x[b] for x in values[: n + k]), *values[n + k :]])
        for b in range(len(values[0]))
    ]
    if not items:
        return [call.empty(i) for i in range(len(call.specs))]
    return [np.stack(column) for column in zip(*items, strict=True)]


def _scan(call: Running, values: Sequence[Any]) -> list[Any]:
    p = call.params
    n, k = p["states"], len(p["input_axes"])
    states, captures = list(values[:n]), values[n + k :]
    sliced = [
        np.moveaxis(x, axis, 0)[:: -1 if backwards else 1]
        for x, axis, backwards in zip(
            values[n : n + k], p["input_axes"], p["input_directions"], strict=True
        )
    ]
    rows: list[list[Any]] = []
    for slices in zip(*sliced, strict=True):
        found = call.bodies[0]([*states, *(np.array(x, order="C") for x in slices), *captures])
        states = found[:n]
        rows.append(found[n:])
    stacks = call.stacked(rows, n, p["output_axes"])
    flipped = zip(stacks, p["output_axes"], p["output_directions"], strict=True)
    return [*states, *(np.flip(y, axis) if backwards else y for y, axis, backwards in flipped)]


# -- specs of what leaves a body -----------------------------------------------------------------


def visible(spec: TensorSpec, known: frozenset[str], symbol: str) -> TensorSpec:
    """The spec as it looks outside: dims with symbols of the body's own are fresh symbols."""
    shape = tuple(
        sym(f"{symbol}_{i}") if symbols(d) - known else d for i, d in enumerate(spec.shape)
    )
    element = None if spec.element is None else outside(spec.element, known)
    return dataclasses.replace(spec.plain(), shape=shape, element=element)


def either(a: Shape, b: Shape, symbol: str) -> Shape:
    """A shape that fits both of one rank; dims where they differ are symbols."""
    pairs = enumerate(zip(a, b, strict=True))
    return tuple(d if d == e else sym(f"{symbol}_{i}") for i, (d, e) in pairs)


def truth(x: Any) -> bool:
    """A condition: one element, of any shape. Raises DataError."""
    if np.size(x) != 1:
        raise DataError("a condition is one element", why=f"this one has shape {np.shape(x)}")
    return bool(np.reshape(x, ()))


RUN: Mapping[str, Callable[[Running, Sequence[Any]], list[Any]]] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
}

LAYERS = [If(), Loop(), Scan()]
