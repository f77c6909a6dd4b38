"""Sequences that are the rows of one tensor: what reads them reads the tensor.

A program's list to which a loop appends is one, where all that is appended has one shape: the loop
stacks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tactix.base.dims import Assumption, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Value
from tactix_onnx.sequences import elements

if TYPE_CHECKING:
    from tactix.network.definition import NetworkDefinition
    from tactix_onnx.convert import Context
    from tactix_onnx.subgraph import ImportedBody

SPLIT, INSERT = "tactix.SplitToSequence@1", "tactix.SequenceInsert@1"
LENGTH = "tactix.SequenceLength@1"

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
    """A state of a loop that is a sequence to which each iteration appends, and of which it asks
    the length at most. ``index``: of the state; ``before``: the rows that the sequence is made of
    before the loop, in order; ``versions``: the sequence in the body, as an iteration finds it and
    after each that it appends. All elements have one shape, which no iteration changes.
    """

    index: int
    before: tuple[Value, ...]
    versions: tuple[Value, ...]

    @property
    def appended(self) -> list[Value]:
        """What an iteration appends, in order."""
        return _appended(self.versions)


def appended_states(
    ctx: Context, body: ImportedBody, states: Sequence[Value]
) -> tuple[AppendedState, ...]:
    """The states of a loop that are such; ``states``: their values before it."""
    known, found = ctx.walker.known_symbols(), []
    for i, before in enumerate(states):
        versions = _versions(body, body.inputs[FIRST_IN + i], body.outputs[FIRST_OUT + i])
        appended = _appended(versions)
        if appended and _have_one_shape(appended, body, known):
            rows = _rows_before(ctx, before, appended[0].spec)
            found += [] if rows is None else [AppendedState(i, rows, versions)]
    return tuple(found)


def _appended(versions: Sequence[Value]) -> list[Value]:
    return [v.producer.given[1] for v in versions[1:] if v.producer is not None]


def _versions(body: ImportedBody, state: Value, result: Value) -> tuple[Value, ...]:
    """A sequence as a body finds it, and after each that it appends; nothing if it does something
    else with it than to append and to ask for its length.
    """
    network, found = body.network, [result]
    users = network.users()
    while found[0] is not state:
        node = found[0].producer
        if node is None or node.layer.key != INSERT or len(node.given) != 2:
            return ()
        found.insert(0, node.given[0])
    readers = [n for v in found for n, _ in users.get(v, ()) if n.layer.key != LENGTH]
    given_out = sum(network.outputs.count(v) for v in found)
    return tuple(found) if given_out == 1 and len(readers) == len(found) - 1 else ()


def _have_one_shape(values: Sequence[Value], body: ImportedBody, known: frozenset[str]) -> bool:
    """Whether all values of a body have one shape, the same in all iterations: one that hangs on
    ``known`` symbols alone, those outside of it.
    """
    shape = values[0].spec.shape
    told = all(symbols(d) <= known for d in shape)
    return told and all(
        v.spec.shape == shape and not v.spec.dtype.on_host and v not in body.loose for v in values
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
    stacked = [_of_iteration(network, s.appended) for s in states]
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
    """Let the body find the lengths of the sequence by the number of the iteration."""
    network, before = body.network, sum((x.spec.shape[0] for x in state.before), start=0)
    users, each = network.users(), network.add_constant(np.array(len(state.appended)))
    for k, v in enumerate(state.versions):
        for node in (n for n, _ in users.get(v, ()) if n.layer.key == LENGTH):
            (first,) = network.add_layer("tactix.Dims", [], values=(before + k,), dtype=DType.INT64)
            (i,) = network.add_layer("tactix.Reshape", [body.inputs[0]], shape=())
            (i,) = network.add_layer("tactix.Mul", [i, each])
            (length,) = network.add_layer("tactix.Add", [i, first], node.name, node.origin)
            network.redirect_uses(node.outputs[0], length)
            network.redirect_output(node.outputs[0], length)


def _of_iteration(network: NetworkDefinition, values: Sequence[Value]) -> Value:
    """What an iteration stacks: its one value, or several as rows."""
    if len(values) == 1:
        return values[0]
    shape = (1, *values[0].spec.shape)
    rows = [network.add_layer("tactix.Reshape", [v], shape=shape)[0] for v in values]
    return network.add_layer("tactix.Concat", rows, axis=0)[0]


def all_rows(ctx: Context, state: AppendedState, stacked: Value) -> Value:
    """What such a state is behind the loop, of what it has stacked: a sequence."""
    shape = stacked.spec.shape
    if len(state.appended) > 1:
        stacked = ctx.reshape(stacked, (shape[0] * shape[1], *shape[2:]))
    rows = [*state.before, stacked]
    return as_sequence(ctx, stacked if len(rows) == 1 else ctx.layer("tactix.Concat", rows, axis=0))
