"""Sequences that are the rows of one tensor: what reads them reads the tensor.

A program's list to which a loop appends is one, where all that is appended has one shape: the loop
stacks it, as it does what it appends to a tensor, which it may also take slices of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tactix.base.dims import Assumption, Dim, sym, symbol_name, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import symbols_in
from tactix.contracts.graph import Node, Value
from tactix.network.definition import NetworkDefinition
from tactix_onnx.sequences import elements
from tactix_ops.layers.common import axis_of
from tactix_ops.layers.control import Bodies

if TYPE_CHECKING:
    from tactix_onnx.convert import Context
    from tactix_onnx.subgraph import ImportedBody

SPLIT, INSERT = "tactix.SplitToSequence@1", "tactix.SequenceInsert@1"
LENGTH, CONCAT, DIMS = "tactix.SequenceLength@1", "tactix.Concat@1", "tactix.Dims@1"
GATHER = "tactix.Gather@1"

# -- reading -------------------------------------------------------------------------------------


def rows_of(ctx: Context, sequence: Value) -> Value | None:
    """A tensor (n, ...) whose n rows are the sequence's elements; None where it is not known."""
    x = split_of(sequence)
    if x is None or sequence.producer is None or x.spec.dtype.on_host:
        return None
    attrs = sequence.producer.attrs
    rows = _moved(ctx, x, attrs.axis, 0)
    if not attrs.keepdims:
        return rows
    length, *shape = rows.spec.shape
    shape.insert(attrs.axis, 1)
    return ctx.reshape(rows, (length, *shape))


def split_of(sequence: Value) -> Value | None:
    """The tensor of which a sequence is all slices along an axis; None if it is not."""
    node = sequence.producer
    return node.given[0] if node and node.layer.key == SPLIT and len(node.given) == 1 else None


def as_sequence(ctx: Context, rows: Value) -> Value:
    """The sequence of a tensor's rows."""
    return ctx.layer(SPLIT, [rows], axis=0, keepdims=False)


def joined(ctx: Context, rows: Value, axis: int, new_axis: bool) -> Value:
    """All rows along an axis, or along a new one; a run without rows is refused."""
    count = rows.spec.shape[0]
    broken = "an empty sequence has nothing to concatenate"
    ctx.network.demand(Assumption(count, ">=", 1, broken), ctx.name)
    y = _moved(ctx, rows, 0, axis)
    shape = y.spec.shape
    if new_axis:
        return y
    return ctx.reshape(y, (*shape[:axis], count * shape[axis + 1], *shape[axis + 2 :]))


def row_at(ctx: Context, rows: Value, position: Value) -> Value | None:
    """The row at a position, counted from the end if negative; None for one that there never is."""
    count, known = rows.spec.shape[0], position.const
    if isinstance(count, int) and known is not None and not -count <= known.item() < count:
        return None
    return ctx.layer("tactix.Gather", [rows, ctx.reshape(position, ())], axis=0)


def with_row(ctx: Context, rows: Value, row: Value) -> Value | None:
    """The sequence of the rows and one more; None if that is not like them."""
    if (row.spec.dtype, row.spec.shape) != (rows.spec.dtype, rows.spec.shape[1:]):
        return None
    return as_sequence(ctx, ctx.layer("tactix.Concat", [rows, _row(ctx, row)], axis=0))


def _moved(ctx: Context, x: Value, axis: int, to: int) -> Value:
    perm = [i for i in range(x.spec.rank) if i != axis]
    perm.insert(to, axis)
    return x if axis == to else ctx.layer("tactix.Transpose", [x], perm=tuple(perm))


def _row(ctx: Context, x: Value) -> Value:
    return ctx.reshape(x, (1, *x.spec.shape))


# -- loops that append -----------------------------------------------------------------------------


FIRST_IN, FIRST_OUT = 2, 1
"""Where the states begin in what a loop's body takes and gives."""


@dataclass(frozen=True)
class AppendedState:
    """A state of a loop to which each iteration appends, and of which it asks the length at most: a
    sequence, or a tensor along ``axis``.

    ``index``: of the state; ``before``: the tensors that it is made of before the loop, in order;
    ``parts``: what an iteration appends, in order, of shapes that no iteration changes;
    ``lengths``: nodes of the body that ask for the length, with what it is longer by than when the
    iteration begins; ``picks``: indices by which an iteration takes slices along ``picked_axis``,
    as a search does that goes on with the best of several sequences, each with how many of the
    parts are there already.
    """

    index: int
    before: tuple[Value, ...]
    parts: tuple[Value, ...]
    lengths: tuple[tuple[Node, Dim], ...]
    axis: int | None = None
    picks: tuple[tuple[Value, int], ...] = ()
    picked_axis: int = 0

    @property
    def each(self) -> Dim:
        """How much an iteration appends."""
        if self.axis is None:
            return len(self.parts)
        return sum(v.spec.shape[self.axis] for v in self.parts)

    @property
    def first(self) -> Dim:
        """The length before the loop."""
        return sum(x.spec.shape[self.axis or 0] for x in self.before)


def appended_states(
    ctx: Context, body: ImportedBody, states: Sequence[Value]
) -> tuple[AppendedState, ...]:
    """The states of a loop that are such; ``states``: their values before it."""
    known = ctx.walker.known_symbols()
    found = (
        _list(ctx, body, known, i, x) or _tensor(body, known, i, x) for i, x in enumerate(states)
    )
    return tuple(s for s in found if s is not None)


def _list(
    ctx: Context, body: ImportedBody, known: frozenset[str], index: int, before: Value
) -> AppendedState | None:
    versions = _versions(body, index, lambda n: n.layer.key == INSERT and len(n.given) == 2)
    parts = tuple(v.producer.given[1] for v in versions[1:] if v.producer is not None)
    if not parts or not _stay(parts, body, known):
        return None
    if any(v.spec.shape != parts[0].spec.shape for v in parts):
        return None
    rows, users = _rows_before(ctx, before, parts[0].spec), body.network.users()
    asked = ((n, k) for k, v in enumerate(versions) for n, _ in users.get(v, ()) if _asks(n))
    return None if rows is None else AppendedState(index, rows, parts, tuple(asked))


def _tensor(
    body: ImportedBody, known: frozenset[str], index: int, before: Value
) -> AppendedState | None:
    axis = _appended_axis(body.outputs[FIRST_OUT + index])
    if axis is None:
        return None
    versions = _versions(body, index, lambda n: _appends(n, axis) or _picks(n, axis))
    parts, picks, picked_axes = list[Value](), list[tuple[Value, int]](), set[int]()
    for node in (v.producer for v in versions[1:] if v.producer):
        if _appends(node, axis):
            parts += node.given[1:]
        else:
            picks.append((node.given[1], len(parts)))
            picked_axes.add(_gathered_axis(node))
    told = [*parts, *(indices for indices, _ in picks)]
    if not parts or len(picked_axes) > 1 or not _stay(told, body, known):
        return None
    found, given = list(versions[0].spec.shape), list(before.spec.shape)
    length = symbol_name(found.pop(axis))
    given.pop(axis)
    if length is None or length in known or found != given or before.spec.dtype.on_host:
        return None
    lengths = _asked(body, versions, length)
    if lengths is None:
        return None
    along = min(picked_axes, default=0)
    return AppendedState(index, (before,), tuple(parts), lengths, axis, tuple(picks), along)


def _appended_axis(result: Value) -> int | None:
    """The axis along which a body makes a state longer last; None if it does not."""
    node = result.producer
    while node is not None and node.layer.key == GATHER:
        node = node.given[0].producer
    return int(node.attrs.axis) if node is not None and node.layer.key == CONCAT else None


def _appends(node: Node, axis: int) -> bool:
    return node.layer.key == CONCAT and node.attrs.axis == axis


def _picks(node: Node, axis: int) -> bool:
    """Whether it takes as many slices along another axis as there are."""
    if node.layer.key != GATHER:
        return False
    data, indices = (v.spec.shape for v in node.given)
    along = _gathered_axis(node)
    return along != axis and indices == (data[along],)


def _gathered_axis(node: Node) -> int:
    return axis_of(node.attrs.axis, node.given[0].spec.rank, node.layer.key)


def _versions(body: ImportedBody, index: int, appends: Callable[[Node], bool]) -> tuple[Value, ...]:
    """A state as an iteration finds it, and after each node that ``appends`` to its first input;
    nothing if the body does something else with it than that and to ask for its length.
    """
    network, state = body.network, body.inputs[FIRST_IN + index]
    found, users = [body.outputs[FIRST_OUT + index]], network.users()
    while found[0] is not state:
        node = found[0].producer
        if node is None or not appends(node):
            return ()
        found.insert(0, node.given[0])
    readers = [n for v in found for n, _ in users.get(v, ()) if not _asks(n)]
    given_out = sum(network.outputs.count(v) for v in found)
    return tuple(found) if given_out == 1 and len(readers) == len(found) - 1 else ()


def _asks(node: Node) -> bool:
    return node.layer.key == LENGTH


def _asked(
    body: ImportedBody, versions: Sequence[Value], length: str
) -> tuple[tuple[Node, Dim], ...] | None:
    """Where a body asks for the length of a tensor: Dims of that alone; None if anything else in it
    hangs on the length.
    """
    appending, found = [v.producer for v in versions[1:]], []
    for node in body.network.nodes:
        if node in appending or length not in _symbols_of(node):
            continue
        values: tuple[Dim, ...] = node.attrs.values if node.layer.key == DIMS else ()
        if len(values) != 1 or length in symbols(values[0] - sym(length)):
            return None
        found.append((node, values[0] - sym(length)))
    return tuple(found)


def _symbols_of(node: Node) -> frozenset[str]:
    """Symbols that a node or what it gives hangs on."""
    dims = [d for v in node.outputs for d in (*v.spec.shape, *(v.spec.value or ()))]
    return symbols_in(node.attrs).union(*map(symbols, dims))


def _stay(values: Sequence[Value], body: ImportedBody, known: frozenset[str]) -> bool:
    """Whether the shapes of a body's values are the same in all iterations: they hang on ``known``
    symbols alone, those outside of it.
    """
    return all(
        all(symbols(d) <= known for d in v.spec.shape)
        and not v.spec.dtype.on_host
        and v not in body.loose
        for v in values
    )


def _rows_before(ctx: Context, sequence: Value, row: TensorSpec) -> tuple[Value, ...] | None:
    """The tensors of whose rows a sequence is made; None if they are not known, or are not like
    ``row``.
    """
    element = sequence.spec.element
    if element is None or not (element.none or element.shape == row.shape):
        return None
    rows = rows_of(ctx, sequence)
    if rows is not None:
        return (rows,)
    known = elements(sequence)
    return None if known is None else tuple(_row(ctx, v) for v in known)


def stacking(body: ImportedBody, states: Sequence[AppendedState]) -> ImportedBody:
    """The body of a loop that stacks what it appends to these states, behind all else that it
    stacks: they are none any more.
    """
    network, names = body.network, body.network.output_names
    for s in states:
        _without_lengths(body, s)
    stacked = [_of_iteration(network, s) for s in states]
    picked = [_picked(network, s) for s in states]
    gone = {FIRST_IN + s.index for s in states}
    for i in gone:
        network.inputs.remove(body.inputs[i])
    for s in states:
        network.unmark_output(names[FIRST_OUT + s.index])
    for s, *made in zip(states, stacked, picked, strict=True):
        name = names[FIRST_OUT + s.index]
        for v, title in zip(made, (name, f"{name}/picked"), strict=True):
            if v is not None:
                network.mark_output(v, title)
    inputs = tuple(v for i, v in enumerate(body.inputs) if i not in gone)
    return replace(body, inputs=inputs, outputs=network.outputs)


def _without_lengths(body: ImportedBody, state: AppendedState) -> None:
    """Let the body find the lengths by the number of the iteration."""
    network = body.network
    for node, by in state.lengths:
        (length,) = node.outputs
        (each,) = network.add_layer("tactix.Dims", [], values=(state.each,))
        (first,) = network.add_layer("tactix.Dims", [], values=(state.first + by,))
        (i,) = network.add_layer("tactix.Reshape", [body.inputs[0]], shape=length.spec.shape)
        (i,) = network.add_layer("tactix.Mul", [i, each])
        (now,) = network.add_layer("tactix.Add", [i, first], node.name, node.origin)
        if now.spec.dtype is not length.spec.dtype:
            (now,) = network.add_layer("tactix.Cast", [now], to=length.spec.dtype)
        network.redirect_uses(length, now)
        network.redirect_output(length, now)


def _of_iteration(network: NetworkDefinition, state: AppendedState) -> Value:
    """What an iteration stacks: its one value, or several in one; of a sequence as rows."""
    parts = [_picked_later(network, state, k) for k in range(len(state.parts))]
    if len(parts) == 1:
        return parts[0]
    if state.axis is None:
        shape = (1, *parts[0].spec.shape)
        parts = [network.add_layer("tactix.Reshape", [v], shape=shape)[0] for v in parts]
    return network.add_layer("tactix.Concat", parts, axis=state.axis or 0)[0]


def _picked_later(network: NetworkDefinition, state: AppendedState, k: int) -> Value:
    """The part of that number, as it is when the iteration ends."""
    part = state.parts[k]
    for indices, there in state.picks:
        if there > k:
            (part,) = network.add_layer(GATHER, [part, indices], axis=state.picked_axis)
    return part


def _picked(network: NetworkDefinition, state: AppendedState) -> Value | None:
    """Which slices of the state that it finds an iteration leaves, in order; None for all of
    them.
    """
    if not state.picks:
        return None
    first, *others = (indices for indices, _ in state.picks)
    for indices in others:
        (first,) = network.add_layer(GATHER, [first, indices], axis=0)
    return network.add_layer("tactix.Cast", [first], to=DType.INT64)[0]


def behind_loop(ctx: Context, state: AppendedState, stacked: Iterator[Value]) -> Value:
    """What such a state is behind the loop, of what that has stacked."""
    axis, rows, before = state.axis or 0, next(stacked), list(state.before)
    if state.picks:
        rows, places = _traced_back(ctx, state, rows, next(stacked))
        before = [ctx.layer(GATHER, [x, places], axis=state.picked_axis) for x in before]
    if state.axis is not None or len(state.parts) > 1:
        rows = _moved(ctx, rows, 0, axis)
        shape = rows.spec.shape
        together = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        rows = ctx.reshape(rows, together)
    before = [x for x in before if x.spec.shape[axis] != 0]
    y = ctx.layer("tactix.Concat", [*before, rows], axis=axis) if before else rows
    return as_sequence(ctx, y) if state.axis is None else y


def _traced_back(
    ctx: Context, state: AppendedState, rows: Value, picked: Value
) -> tuple[Value, Value]:
    """What each iteration has appended to the slices that are left in the end, and where these were
    in the beginning: from the last iteration to the first, each of whose picks says where its
    slices were before.
    """
    size, body = picked.spec.shape[1], NetworkDefinition(ctx.network.layers, f"{ctx.name}/picked")
    places = body.add_input("places", DType.INT64, (size,))
    picks = body.add_input("picks", DType.INT64, (size,))
    row = body.add_input("row", rows.spec.dtype, rows.spec.shape[1:])
    body.mark_output(body.add_layer(GATHER, [picks, places], axis=0)[0], "before")
    body.mark_output(body.add_layer(GATHER, [row, places], axis=state.picked_axis)[0], "left")
    bounds = [ctx.layer(DIMS, [], values=(d,)) for d in (0, size, 1)]
    every = ctx.layer("tactix.Range", bounds, symbol=ctx.symbol())
    results = Bodies((body,), (every.spec.plain(), rows.spec.plain()))
    fields = {"input_axes": (0, 0), "input_directions": (1, 1), "output_axes": (0,)}
    first, left = ctx.layers(
        "tactix.Scan",
        [every, picked, rows],
        bodies=results,
        states=1,
        output_directions=(1,),
        **fields,
    )
    return left, first
