"""Gradient of ``ai.onnx.preview.training``: reverse mode over the layers between ``xs`` and ``y``,
while importing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tactix.contracts.graph import Node, Value
from tactix_onnx.convert import Context, Table
from tactix_onnx.training.gradient_rules import RULES, Tape
from tactix_onnx.training.optimizers import PREVIEW

CONVERTERS = Table()

Source = Callable[[Value], Value]
"""The layer's result that a value is or was: constants of the model may have been computed while
importing.
"""


@CONVERTERS("Gradient", domain=PREVIEW)
def gradient(ctx: Context, node: Any) -> list[Value | None]:
    """Gradients of the sum of y with respect to each of xs; zs, too, count as independent of xs."""
    names = [*ctx.attr("xs", ()), *ctx.attr("zs", ())]
    count = len(ctx.attr("xs", ()))
    leaves, y = [_find(ctx, name) for name in names], _find(ctx, ctx.attr("y", ""))
    given = [ctx.tensor(i) for i in range(len(names))]
    source = _source(ctx, leaves)
    if any(a is not b for a, b in zip(leaves, given, strict=True)):
        y = _replayed(ctx, y, dict(zip(leaves, given, strict=True)), source)
        leaves, source = given, _source(ctx, given)
    return _gradients(ctx, y, leaves[:count], _order(y, leaves, source), source)


def _find(ctx: Context, name: str) -> Value:
    found = ctx.walker.find(ctx.scope, name)
    if found is None or not found.spec.dtype.is_float:
        ctx.fail(f"{name!r} is no tensor of floats")
    return found


def _source(ctx: Context, leaves: Iterable[Value]) -> Source:
    ends = set(leaves)
    return lambda v: v if v in ends else ctx.walker.origins.get(v, v)


def _order(y: Value, leaves: Sequence[Value], source: Source) -> list[Node]:
    """The nodes that y needs beyond the leaves, producers first."""
    order: list[Node] = []
    ends, seen = set(leaves), set()
    stack = [(y, False)]
    while stack:
        v, done = stack.pop()
        v = source(v)
        made = None if v in ends else v.producer
        if done and made is not None:
            order.append(made)
        elif made is not None and made not in seen:
            seen.add(made)
            stack += [(v, True), *((x, False) for x in made.given)]
    return order


def _path(
    order: Sequence[Node], starts: Iterable[Value], source: Source
) -> tuple[list[Node], set[Value]]:
    """Of the nodes those that need one of the starts; and all values that do."""
    after = set(starts)
    path = []
    for node in order:
        if any(source(x) in after for x in node.given):
            path.append(node)
            after.update(node.outputs)
    return path, after


def _replayed(ctx: Context, y: Value, new: dict[Value, Value], source: Source) -> Value:
    """y at other values of the leaves: the layers between them once more. Raises
    UnsupportedOperator.
    """
    for old, now in new.items():
        if (old.spec.dtype, old.spec.shape) != (now.spec.dtype, now.spec.shape):
            ctx.fail(f"{now.name!r} ({now.spec}) is given for {old.name!r} ({old.spec})")
    path, _ = _path(_order(y, list(new), source), list(new), source)
    for node in path:
        inputs = [None if x is None else new.get(source(x), x) for x in node.inputs]
        outputs = ctx.network.add_layer(
            node.layer, inputs, f"{ctx.name}/{node.name}", (ctx.name,), attrs=node.attrs
        )
        new.update(zip(node.outputs, outputs, strict=True))
    return new.get(source(y), y)


def _gradients(
    ctx: Context, y: Value, xs: Sequence[Value], order: Sequence[Node], source: Source
) -> list[Value | None]:
    of_shapes = any(n.layer.name == "Dims" and n.outputs[0].spec.dtype.is_float for n in order)
    if of_shapes and any(x.const is not None for x in xs):
        ctx.fail("what y needs of shapes and of constants among xs was computed while importing")
    path, after = _path(order, xs, source)
    tape = Tape(ctx, lambda v: v is not None and source(v) in after)
    found: dict[Value, Value] = {source(y): tape.full(1.0, y)}
    for node in reversed(path):
        known = [found.get(v) for v in node.outputs]
        if all(g is None for g in known):
            continue
        if node.layer.name not in RULES:
            ctx.fail(f"the gradient of {node.layer.key} (layer {node.name!r}) is not supported")
        gs = [
            tape.full(0.0, v) if g is None else g for g, v in zip(known, node.outputs, strict=True)
        ]
        for x, g in zip(node.inputs, RULES[node.layer.name](tape, node, *gs)):
            if x is not None and g is not None and tape.wanted(x):
                g = tape.sum_to(g, x)
                found[source(x)] = tape.add(found[source(x)], g) if source(x) in found else g
    wanted = ctx.node.output
    return [found.get(x) or tape.full(0.0, x) if name else None for x, name in zip(xs, wanted)]
