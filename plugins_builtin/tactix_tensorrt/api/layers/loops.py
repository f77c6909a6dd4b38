"""Loops: layers at their bounds, and the body that lies between them as a loop of tactix's.

Outside of the loop a tensor inside it is what it is in the first iteration; programs ask for its
shape, and whether to start is asked by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, sym
from tactix.base.dtypes import DType
from tactix.base.errors import NetworkError
from tactix.base.tensor import TensorSpec
from tactix.network.definition import NetworkDefinition
from tactix_tensorrt.api.enums import LayerType, LoopOutput, TripLimit
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.layers.bounds import BoundLayer, Construct, results_of
from tactix_tensorrt.api.lowering import Lowering, scalar
from tactix_tensorrt.api.scope import Inner, Results, inside_of
from tactix_tensorrt.api.tensor import ITensor

if TYPE_CHECKING:
    from tactix.contracts.graph import Value

ENDLESS = (1 << 63) - 1
"""The most iterations of a loop that has no count."""


class ILoopBoundaryLayer(BoundLayer):
    """``loop``: whose bound it is; None of what a parser read."""

    TYPE = LayerType.LOOP_OUTPUT

    @property
    def loop(self) -> ILoop | None:
        return self.owner if isinstance(self.owner, ILoop) else None


class ITripLimitLayer(ILoopBoundaryLayer):
    """How many iterations there are, or whether there is another one."""

    TYPE = LayerType.TRIP_LIMIT
    OUTPUTS = 0

    kind = Attribute(TripLimit.COUNT)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return []


class IRecurrenceLayer(ILoopBoundaryLayer):
    """Input 0 in the first iteration, then what input 1 was in the one before."""

    TYPE = LayerType.RECURRENCE

    @property
    def before(self) -> Sequence[ITensor]:
        return self.reads[:1]

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.input(0)]


class IIteratorLayer(ILoopBoundaryLayer):
    """A slice of its input in each iteration, from the last to the first if ``reverse``."""

    TYPE = LayerType.ITERATOR
    axis = Attribute(0)
    reverse = Attribute(False)

    @property
    def reads(self) -> Sequence[ITensor]:
        return [*super().reads, *(self.loop.counts if self.loop and self.reverse else ())]

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [self.slice_at(emit, emit.constant(scalar(0, DType.INT64)))]

    def slice_at(self, emit: Lowering, iteration: Value) -> Value:
        """In an iteration; past the last one any slice, as it is not looked at."""
        x, where = emit.input(0), iteration
        if self.reverse:
            count = emit.reshape(emit.cast(emit.value(self._count(emit)), DType.INT64), ())
            where = emit.one("Sub", emit.one("Sub", count, emit.number(1, count)), where)
        last = emit.one("Dims", values=(x.spec.shape[self.axis] - 1,), shape=())
        where = emit.one("Max", emit.one("Min", where, last), emit.number(0, last))
        return emit.one("Gather", x, where, axis=self.axis)

    def _count(self, emit: Lowering) -> ITensor:
        counts = self.loop.counts if self.loop else []
        if not counts:
            raise emit.refuse("it goes backwards", "Add a trip limit of TripLimit.COUNT")
        return counts[0]


class ILoopOutputLayer(ILoopBoundaryLayer):
    """What a recurrence is after the loop, or what a tensor is in each iteration, along ``axis``.

    Input 1: the length of that axis, of which what is beyond the iterations is 0.
    """

    TYPE = LayerType.LOOP_OUTPUT
    axis = Attribute(0)
    kind = Attribute(LoopOutput.LAST_VALUE)

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """A length makes a last value a stack."""
        if index == 1 and self.kind is LoopOutput.LAST_VALUE:
            self.kind = LoopOutput.CONCATENATE
        super().set_input(index, tensor)

    @property
    def reads(self) -> Sequence[ITensor]:
        return self.loop.tensors if self.loop else super().reads

    @property
    def before(self) -> Sequence[ITensor]:
        return []

    def lower(self, emit: Lowering) -> Sequence[Value]:
        found = results_of(emit, self)[self]
        if self.kind is LoopOutput.LAST_VALUE:
            return [found]
        rank = found.spec.rank
        if not -rank <= self.axis < rank:
            raise emit.refuse(f"the result has {rank} axes, and none is {self.axis}")
        axis = self.axis % rank
        stacked = self._of_length(emit, found)
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        return [emit.one("Transpose", stacked, perm=tuple(order)) if axis else stacked]

    def _of_length(self, emit: Lowering, stacked: Value) -> Value:
        """In the order of the kind, with as many rows as are asked for."""
        if self.get_input(1) is None:
            raise emit.refuse("its length is missing", "Call set_input(1, length)")
        backwards = self.kind is LoopOutput.REVERSE
        rows = stacked.spec.shape[0]
        if self._is_count(emit, rows):
            return emit.part(stacked, 0, rows - 1, rows, -1) if backwards else stacked
        row = tuple(stacked.spec.shape[1:])
        zeros = emit.one("Expand", emit.number(0, stacked), shape=(1, *row))
        padded = emit.one("Concat", stacked, zeros, axis=0)
        last = emit.one("Dims", values=(rows,), shape=())
        where = emit.one("Min", self._places(emit, backwards), last)
        return emit.one("Gather", padded, where, axis=0)

    def _is_count(self, emit: Lowering, rows: Dim) -> bool:
        """Whether the length is the number of iterations."""
        if self.loop is None or self.loop.conditions:
            return False
        known = emit.input(1).spec.known()
        return known == (rows,) or self.get_input(1) in self.loop.counts

    def _places(self, emit: Lowering, backwards: bool) -> Value:
        """Of the rows, in order: ``0, 1, ...`` or ``..., 1, 0``."""
        length = emit.reshape(emit.cast(emit.input(1), DType.INT64), ())
        zero, one = emit.number(0, length), emit.number(1, length)
        places = emit.one("Range", zero, length, one, symbol=emit.symbol("length"))
        if not backwards:
            return places
        return emit.one("Sub", emit.one("Sub", length, one), places)


@dataclass(frozen=True)
class LoopBody:
    """A body for states of some specs. ``states``: the next ones; ``going``: whether there is
    another iteration; ``rows``: what is stacked.
    """

    scope: Inner
    states: Sequence[Value]
    going: Value
    rows: Mapping[ILayer, Value]

    def network(self) -> NetworkDefinition:
        """The body with its outputs."""
        net = self.scope.native
        for i, value in enumerate((self.going, *self.states, *self.rows.values())):
            net.mark_output(value, f"{i}:{value.name}")
        return net


class ILoop(Construct):
    """Layers that are run again and again; ``add_*`` give the bounds of what lies inside."""

    KIND = "loop"

    # -- bounds -----------------------------------------------------------------------------------

    def add_recurrence(self, initial_value: ITensor) -> IRecurrenceLayer:
        return self.bound(IRecurrenceLayer, [initial_value, None])

    def add_trip_limit(self, tensor: ITensor, kind: TripLimit) -> ITripLimitLayer:
        return self.bound(ITripLimitLayer, [tensor], kind=kind)

    def add_iterator(self, tensor: ITensor, axis: int = 0, reverse: bool = False) -> IIteratorLayer:
        return self.bound(IIteratorLayer, [tensor], axis=axis, reverse=reverse)

    def add_loop_output(self, tensor: ITensor, kind: LoopOutput, axis: int = 0) -> ILoopOutputLayer:
        last = kind is LoopOutput.LAST_VALUE
        given = [tensor] if last else [tensor, None]
        return self.bound(ILoopOutputLayer, given, kind=kind, axis=axis)

    @property
    def counts(self) -> list[ITensor]:
        """Numbers of iterations: one, or none."""
        return self._limits(TripLimit.COUNT)

    @property
    def conditions(self) -> list[ITensor]:
        """Whether there is an iteration: one, or none."""
        return self._limits(TripLimit.WHILE)

    def _limits(self, kind: TripLimit) -> list[ITensor]:
        limits = [x.inputs[0] for x in self.of(ITripLimitLayer) if x.kind is kind]
        return [t for t in limits if t is not None]

    def inside(self) -> frozenset[ILayer]:
        """Layers between the bounds."""
        inner = (*self.of(IRecurrenceLayer), *self.of(IIteratorLayer))
        first = [b.outputs[0] for b in inner]
        return inside_of(self.layers, first, {*self.of(ILoopOutputLayer), *inner})

    def check(self, outputs: Sequence[ITensor]) -> None:
        """Raises NetworkError for an output of the network that lies inside."""
        inside = self.inside() | {*self.of(IRecurrenceLayer), *self.of(IIteratorLayer)}
        for tensor in outputs:
            if tensor.layer in inside:
                do = "Call add_loop_output of the loop"
                raise NetworkError(f"output {tensor.name!r} lies inside of a loop", do=do)

    # -- towards tactix ---------------------------------------------------------------------------

    def lowered(self, emit: Lowering) -> Results:
        """What its output layers give, of kind LAST_VALUE as it is, else stacked along a new first
        axis. Raises NetworkError.
        """
        from tactix_ops.layers.control import Bodies  # numpy comes with it

        self._check(emit)
        scope, states = emit.scope, self.of(IRecurrenceLayer)
        initial = [scope.value_of(r.reads[0]) for r in states]
        body, specs = self._settled(emit, [v.spec.plain() for v in initial])
        bodies = Bodies((body.network(),), tuple(self._results(emit, body, specs)))
        most = [emit.cast(scope.value_of(t), DType.INT64) for t in self.counts]
        going = [scope.value_of(t) for t in self.conditions]
        most, going = (
            most or [emit.constant(scalar(ENDLESS, DType.INT64))],
            going or [emit.constant(scalar(True, DType.BOOL))],
        )
        given = [*most, *going, *initial, *body.scope.captured]
        made = emit.all("Loop", given, bodies=bodies, states=len(states))
        last = {r.get_output(0): v for r, v in zip(states, made, strict=False)}
        found = dict(zip(body.rows, made[len(states) :], strict=True))
        finals = {o: last[o.get_input(0)] for o in self.of(ILoopOutputLayer) if o not in found}
        return found | finals

    def _check(self, emit: Lowering) -> None:
        if not self.counts and not self.conditions:
            raise emit.refuse("the loop has no trip limit", "Call add_trip_limit")
        if len(self.counts) > 1 or len(self.conditions) > 1:
            raise emit.refuse("the loop has two trip limits of a kind")
        for r in self.of(IRecurrenceLayer):
            if r.get_input(0) is None or r.get_input(1) is None:
                raise NetworkError("it lacks a value", who=r.name, do="Call set_input(1, tensor)")
        known = {r.get_output(0) for r in self.of(IRecurrenceLayer)}
        for o in self.of(ILoopOutputLayer):
            if o.kind is LoopOutput.LAST_VALUE and o.get_input(0) not in known:
                do = "Give the output of one, or use LoopOutput.CONCATENATE"
                raise NetworkError("LAST_VALUE is that of a recurrence", who=o.name, do=do)

    def _settled(
        self, emit: Lowering, given: Sequence[TensorSpec]
    ) -> tuple[LoopBody, Sequence[TensorSpec]]:
        """The body, and its states' specs, general enough to hold for every iteration: a size that
        an iteration changes becomes a symbol, and so on until nothing changes any more.
        """
        specs = list(given)
        while True:
            body = self._body(emit, specs)
            found = [v.spec.plain() for v in body.states]
            wider = [self._wider(emit, i, *both) for i, both in enumerate(zip(specs, found))]
            if wider == specs:
                return body, specs
            specs = wider

    def _wider(self, emit: Lowering, i: int, a: TensorSpec, b: TensorSpec) -> TensorSpec:
        if a.dtype is not b.dtype or a.rank != b.rank:
            who = self.of(IRecurrenceLayer)[i].name
            do = "Cast or reshape one of them"
            raise NetworkError(f"it begins as {a}, and goes on as {b}", who=who, do=do)
        from tactix_ops.layers.control import either

        return replace(a, shape=either(a.shape, b.shape, f"{self._symbol(emit)} state {i}"))

    def _symbol(self, emit: Lowering) -> str:
        return f"{emit.scope.label}{self.label}"

    def _results(
        self, emit: Lowering, body: LoopBody, states: Sequence[TensorSpec]
    ) -> list[TensorSpec]:
        """As they are outside."""
        from tactix_ops.layers.control import visible

        known, symbol = emit.scope.known_symbols(), self._symbol(emit)
        specs = [*states, *(v.spec.plain() for v in body.rows.values())]
        seen = [visible(s, known, f"{symbol} result {i}") for i, s in enumerate(specs)]
        count, n = self._trips(emit), len(states)
        return [*seen[:n], *(replace(s, shape=(count, *s.shape)) for s in seen[n:])]

    def _trips(self, emit: Lowering) -> Dim:
        """How many iterations there are, as far as shapes tell."""
        known = [emit.value(t).spec.known() for t in self.counts]
        if self.conditions or known[0] is None:
            return sym(f"{self._symbol(emit)} length")
        (count,) = known[0]
        return max(count, 0) if isinstance(count, int) else count

    def _body(self, emit: Lowering, states: Sequence[TensorSpec]) -> LoopBody:
        net = NetworkDefinition(emit.scope.native.layers, self.name or self.label)
        iteration = net.add_input("iteration", DType.INT64, ())
        net.add_input("condition", DType.BOOL, ())
        given = [net.add_input(f"state {i}", s.dtype, s.shape) for i, s in enumerate(states)]
        scope = Inner(emit.scope, net, self.inside(), self.label)
        self._bind(scope, given, iteration)
        following = [scope.value_of(r.reads[1]) for r in self.of(IRecurrenceLayer)]
        stacked = [o for o in self.of(ILoopOutputLayer) if o.kind is not LoopOutput.LAST_VALUE]
        rows: dict[ILayer, Value] = {o: Lowering(scope, o).input(0) for o in stacked}
        return LoopBody(scope, following, self._going(scope, following, iteration), rows)

    def _bind(self, scope: Inner, states: Sequence[Value], iteration: Value) -> None:
        """Let recurrences and iterators be those of an iteration."""
        for r, value in zip(self.of(IRecurrenceLayer), states, strict=True):
            scope.bound[r.outputs[0]] = value
        for x in self.of(IIteratorLayer):
            scope.bound[x.outputs[0]] = x.slice_at(Lowering(scope, x), iteration)

    def _going(self, scope: Inner, following: Sequence[Value], iteration: Value) -> Value:
        """Whether there is an iteration with the following states."""
        if not self.conditions:
            return scope.native.add_constant(scalar(True, DType.BOOL), "going")
        after = scope.beside(f"{self.label} next")
        one = scope.native.add_constant(scalar(1, DType.INT64), "one")
        later = scope.native.add_layer("tactix.Add", [iteration, one], "next iteration")[0]
        self._bind(after, following, later)
        return after.value_of(self.conditions[0])
