"""Sequences that are the rows of one tensor: what reads them reads the tensor.

A program's list to which a loop appends is one, where all that is appended has one shape: the loop
stacks it, as it does what it appends to a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tactix.base.dims import Assumption, Dim, sym, symbol_name, symbols
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import symbols_in
from tactix.contracts.graph import Node, Value
from tactix_onnx.sequences import elements

if TYPE_CHECKING:
    from tactix.network.definition import NetworkDefinition
    from tactix_onnx.convert import Context
    from tactix_onnx.subgraph import ImportedBody

SPLIT, INSERT = "tactix.SplitToSequence@1", "tactix.SequenceInsert@1"
LENGTH, CONCAT, DIMS = "tactix.SequenceLength@1", "tactix.Concat@1", "tactix.Dims@1"

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
    iteration begins.
    """

    index: int
    before: tuple[Value, ...]
    parts: tuple[Value, ...]
    lengths: tuple[tuple[Node, Dim], ...]
    axis: int | None = None

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
    last = body.outputs[FIRST_OUT + index].producer
    if last is None or last.layer.key != CONCAT:
        return None
    axis = last.attrs.axis
    versions = _versions(body, index, lambda n: n.layer.key == CONCAT and n.attrs.axis == axis)
    parts = tuple(p for v in versions[1:] if v.producer for p in v.producer.given[1:])
    if not parts or not _stay(parts, body, known) or before.spec.dtype.on_host:
        return None
    found, given = list(versions[0].spec.shape), list(before.spec.shape)
    length = symbol_name(found.pop(axis))
    given.pop(axis)
    if length is None or length in known or found != given:
        return None
    lengths = _asked(body, versions, length)
    return None if lengths is None else AppendedState(index, (before,), parts, lengths, axis)


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
    gone = {FIRST_IN + s.index for s in states}
    for i in gone:
        network.inputs.remove(body.inputs[i])
    for s, v in zip(states, stacked, strict=True):
        name = names[FIRST_OUT + s.index]
        network.unmark_output(name)
        network.mark_output(v, name)
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
    if len(state.parts) == 1:
        return state.parts[0]
    parts = list(state.parts)
    if state.axis is None:
        shape = (1, *parts[0].spec.shape)
        parts = [network.add_layer("tactix.Reshape", [v], shape=shape)[0] for v in parts]
    return network.add_layer("tactix.Concat", parts, axis=state.axis or 0)[0]


def behind_loop(ctx: Context, state: AppendedState, stacked: Value) -> Value:
    """What such a state is behind the loop, of what that has stacked."""
    axis = state.axis or 0
    if state.axis is not None or len(state.parts) > 1:
        stacked = _moved(ctx, stacked, 0, axis)
        shape = stacked.spec.shape
        together = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        stacked = ctx.reshape(stacked, together)
    before = [x for x in state.before if x.spec.shape[axis] != 0]
    y = ctx.layer("tactix.Concat", [*before, stacked], axis=axis) if before else stacked
    return as_sequence(ctx, y) if state.axis is None else y
