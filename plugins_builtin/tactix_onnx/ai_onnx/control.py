"""If, Loop, Scan. A branch that is known when importing is put in place; all else are layers with
bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tactix.base.dims import Dim, compare, sym
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Value
from tactix_onnx.convert import Context, Table
from tactix_onnx.rows import AppendedState, appended_states, behind_loop, stacking
from tactix_onnx.subgraph import (
    ImportedBody,
    all_firm,
    always,
    capture_all,
    import_body,
    level,
    merged,
)
from tactix_onnx.survey import Unreached
from tactix_ops.layers.common import axis_of
from tactix_ops.layers.control import Bodies, visible

CONVERTERS = Table()

ENDLESS = np.array((1 << 63) - 1)
"""The most iterations of a loop that names none."""


@CONVERTERS("If")
def branch(ctx: Context, node: Any) -> Any:
    ctx.ignore("then_branch", "else_branch")
    condition = ctx.known(0)
    if ctx.spec().numel != 1 and isinstance(ctx.spec().numel, int):
        ctx.fail(f"its condition is {ctx.spec()}")
    if condition in ((0,), (1,)):
        return ctx.inline(ctx.attr("then_branch" if condition == (1,) else "else_branch"))
    bodies = _branches(ctx)
    if len(bodies[0].outputs) != len(bodies[1].outputs):
        ctx.fail("its branches have different numbers of outputs")
    *bodies, lowest = level(*bodies)
    known = ctx.walker.known_symbols()
    results = []
    for i, (a, b) in enumerate(zip(bodies[0].specs, bodies[1].specs, strict=True)):
        symbol = ctx.symbol()
        a, b = (visible(s, known, f"{symbol}_{side}") for s, side in ((a, "then"), (b, "else")))
        both = merged(ctx, a, b, f"output {i} of its branches", symbol)
        results.append(visible(both, known, symbol))
    captures, where = capture_all(bodies)
    networks = Bodies(tuple(b.network for b in bodies), tuple(results))
    made = ctx.layers("tactix.If", [ctx.tensor(), *captures], bodies=networks, captures=where)
    ctx.walker.loose.update(
        {v: rank for v, rank in zip(made, lowest, strict=True) if rank < v.spec.rank}
    )
    return made


def _branches(ctx: Context) -> list[ImportedBody]:
    """Both; the second is looked at even where a node of the first is refused, so that one error
    tells all.
    """
    found, refused = [], None
    for name in ("then_branch", "else_branch"):
        try:
            found.append(import_body(ctx, ctx.attr(name), (), name))
        except Unreached as e:
            refused = e
    if refused is not None:
        raise refused
    return found


# -- loops ---------------------------------------------------------------------------------------


def settled(
    ctx: Context,
    graph: Any,
    before: Sequence[TensorSpec],
    states: Sequence[TensorSpec],
    behind: Sequence[TensorSpec],
    first: int,
) -> tuple[ImportedBody, list[TensorSpec]]:
    """The body, and its states' specs, general enough to hold for every iteration; outputs from
    ``first`` are states.

    A dim that an iteration changes becomes a symbol, and so on until nothing changes any more.
    """
    symbol = ctx.symbol()
    current = list(states)
    while True:
        body = all_firm(
            import_body(ctx, graph, [*before, *current, *behind], "body"), "body", ctx.who
        )
        found = body.specs[first : first + len(current)]
        if len(found) < len(current):
            ctx.fail(f"its body gives {len(body.specs)} outputs for {len(current)} states")
        wider = [
            merged(ctx, a, b, f"state {i}", f"{symbol}_state{i}")
            for i, (a, b) in enumerate(zip(current, found, strict=True))
        ]
        if wider == current:
            return body, current
        current = wider


def _final(
    ctx: Context, states: Sequence[TensorSpec], given: Sequence[TensorSpec], known: frozenset[str]
) -> list[TensorSpec]:
    """What a loop's states are behind it: an optional that each iteration fills is what it is
    filled with.
    """
    filled = [
        g if s.dtype is DType.OPTIONAL and g.dtype is not DType.OPTIONAL else s
        for s, g in zip(states, given, strict=True)
    ]
    return state_results(ctx, filled, known)


def state_results(
    ctx: Context, states: Sequence[TensorSpec], known: frozenset[str]
) -> list[TensorSpec]:
    return [visible(s, known, ctx.symbol()) for s in states]


def stacked_results(
    ctx: Context,
    specs: Sequence[TensorSpec],
    count: Dim | None,
    axes: Sequence[int],
    known: frozenset[str],
) -> list[TensorSpec]:
    """Outputs that stack what each iteration gives; ``count``: of iterations, None if only running
    tells.
    """
    length = sym(f"{ctx.symbol()}_length") if count is None else count
    out = []
    for i, s in enumerate(specs):
        if s.element is not None:
            ctx.fail("its body stacks sequences")
        shape = list(visible(s, known, ctx.symbol()).shape)
        shape.insert(axis_of(axes[i] if axes else 0, len(shape) + 1, ctx.op), length)
        out.append(replace(s, shape=tuple(shape)))
    return out


@CONVERTERS("Loop")
def loop(ctx: Context, node: Any) -> Any:
    graph = ctx.attr("body")
    most = ctx.input(0) or ctx.constant(ENDLESS)
    going = ctx.input(1) or ctx.constant(np.array(True))
    states = [ctx.tensor(i) for i in range(2, len(ctx.inputs))]
    shapes = [_declared(v) for v in graph.input[:2]]
    before = [
        TensorSpec(t, shape) for t, shape in zip((DType.INT64, DType.BOOL), shapes, strict=False)
    ]
    body, specs = settled(ctx, graph, before, [v.spec.plain() for v in states], (), 1)
    longer = appended_states(ctx, body, states)
    body = stacking(body, longer)
    kept = [i for i in range(len(states)) if i not in {a.index for a in longer}]
    states, specs = [states[i] for i in kept], [specs[i] for i in kept]
    known = ctx.walker.known_symbols()
    endless = (
        always(body, body.inputs[1], body.outputs[0])
        and going.const is not None
        and bool(np.all(going.const))
    )
    trips = ctx.known(0) if endless and ctx.input(0) is not None else None
    count = trips[0] if trips else None
    if isinstance(count, int):
        count = max(count, 0)
    n = len(states)
    stacks = stacked_results(ctx, body.specs[1 + n :], count, (), known)
    results = Bodies((body.network,), (*_final(ctx, specs, body.specs[1 : 1 + n], known), *stacks))
    ranks = tuple(map(len, shapes))
    made = ctx.layers(
        "tactix.Loop", [most, going, *states, *body.captures], bodies=results, states=n, ranks=ranks
    )
    return _with_appended(ctx, made, kept, longer)


def _with_appended(
    ctx: Context, made: Sequence[Value], kept: Sequence[int], longer: Sequence[AppendedState]
) -> list[Value]:
    """What a loop gives, the states that it stacks put back in their places."""
    stacks = len(made) - sum(1 + bool(s.picks) for s in longer)
    found, stacked = dict(zip(kept, made, strict=False)), iter(made[stacks:])
    for state in longer:
        found[state.index] = behind_loop(ctx, state, stacked)
    return [*(found[i] for i in sorted(found)), *made[len(kept) : stacks]]


def _declared(v: Any) -> tuple[int, ...]:
    """Some exporters give the iteration and the condition one axis."""
    return (1,) * min(1, len(v.type.tensor_type.shape.dim))


@CONVERTERS("Scan")
def scan_of_batch(ctx: Context, node: Any) -> Any:
    if ctx.input(0) is not None:
        ctx.fail("it gives lengths of sequences", do="Export the model for operator set 9 or newer")
    k = _scanned(ctx, len(ctx.inputs) - 1)
    directions = tuple(ctx.attr("directions") or (0,) * k)
    values = [ctx.tensor(i) for i in range(1, len(ctx.inputs))]
    return _scan(ctx, values, k, (0,) * k, directions, (), (), batched=True)


def _scanned(ctx: Context, given: int) -> int:
    """How many of its inputs are scanned."""
    k = ctx.attr("num_scan_inputs")
    if k is None or not 1 <= k <= given:
        ctx.fail(f"it has {given} inputs, of which {k} are scanned")
    return int(k)


@CONVERTERS("Scan", since=9)
def scan(ctx: Context, node: Any) -> Any:
    k = _scanned(ctx, len(ctx.inputs))
    values = [ctx.tensor(i) for i in range(len(ctx.inputs))]
    given = {
        name: tuple(ctx.attr(f"scan_{name}") or ())
        for name in ("input_axes", "input_directions", "output_axes", "output_directions")
    }
    for name in ("input_axes", "input_directions"):
        if len(given[name] or (0,) * k) != k:
            ctx.fail(f"scan_{name} has {len(given[name])} entries for {k} scan inputs")
    axes = [
        a + v.spec.rank if a < 0 else a
        for a, v in zip(given["input_axes"] or (0,) * k, values[-k:], strict=True)
    ]
    if any(not 0 <= a < v.spec.rank for a, v in zip(axes, values[-k:], strict=True)):
        ctx.fail("an axis of scan_input_axes is out of range")
    directions = given["input_directions"] or (0,) * k
    return _scan(
        ctx, values, k, tuple(axes), directions, given["output_axes"], given["output_directions"]
    )


def _scan(
    ctx: Context,
    values: Sequence[Value],
    k: int,
    axes: tuple[int, ...],
    directions: tuple[int, ...],
    output_axes: tuple[int, ...],
    output_directions: tuple[int, ...],
    batched: bool = False,
) -> Any:
    """``batched``: the first axis of all values is a batch. Rows are made the first axis of what is
    sliced, and of what is stacked, so that each is one piece of memory.
    """
    n = len(values) - k
    if any(d not in (0, 1) for d in (*directions, *output_directions)):
        ctx.fail("a direction is neither 0 nor 1")
    skip = int(batched)
    plain = [replace(v.spec.plain(), shape=v.spec.shape[skip:]) for v in values]
    lengths = [s.shape[a] for s, a in zip(plain[n:], axes, strict=True)]
    if any(compare(lengths[0], d) in ("<", ">") for d in lengths):
        ctx.fail(f"its scan inputs have lengths {lengths}")
    slices = [
        replace(s, shape=(*s.shape[:a], *s.shape[a + 1 :]))
        for s, a in zip(plain[n:], axes, strict=True)
    ]
    body, states = settled(ctx, ctx.attr("body"), (), plain[:n], slices, 0)
    known = ctx.walker.known_symbols()
    count = len(body.outputs) - n
    output_axes, output_directions = output_axes or (0,) * count, output_directions or (0,) * count
    if len(output_axes) != count or len(output_directions) != count:
        ctx.fail(f"it names {len(output_axes)} axes for {count} stacked outputs")
    stacks = stacked_results(ctx, body.specs[n:], lengths[0], (0,) * count, known)
    ends = [axis_of(a, s.rank, ctx.op) for a, s in zip(output_axes, stacks, strict=True)]
    results = [*state_results(ctx, states, known), *stacks]
    if batched:
        results = [replace(s, shape=(values[0].spec.shape[0], *s.shape)) for s in results]
    sliced = [_axis_first(ctx, v, a) for v, a in zip(values[n:], axes, strict=True)]
    made = ctx.layers(
        "tactix.Scan",
        [*values[:n], *sliced, *body.captures],
        bodies=Bodies((body.network,), tuple(results)),
        states=n,
        input_axes=(0,) * k,
        input_directions=directions,
        output_axes=(0,) * count,
        output_directions=output_directions,
        batched=batched,
    )
    return [*made[:n], *(_first_axis_at(ctx, y, a) for y, a in zip(made[n:], ends, strict=True))]


def _axis_first(ctx: Context, x: Value, axis: int) -> Value:
    """The node's name is left to the layer behind."""
    if axis == 0:
        return x
    others = (i for i in range(x.spec.rank) if i != axis)
    perm, name = (axis, *others), f"{ctx.name}/rows"
    made = ctx.network.add_layer("tactix.Transpose", [x], name, origin=(ctx.name,), perm=perm)
    y: Value = made[0]
    return y


def _first_axis_at(ctx: Context, x: Value, axis: int) -> Value:
    perm = tuple(i + 1 if i < axis else i for i in range(x.spec.rank))
    perm = (*perm[:axis], 0, *perm[axis + 1 :])
    return ctx.layer("tactix.Transpose", [x], perm=perm) if axis else x
