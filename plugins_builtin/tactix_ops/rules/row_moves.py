"""Rows that are moved several times, as tokens are rolled and parted into windows: one Gather.

For GPUs, where every step costs a launch. Between the moves rows may be seen in other shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tactix.base.dims import evaluate, prod
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of, literal
from tactix_ops.rules.facts import Array, used_only_by

T = P.tactix
MOST_ROWS = 1 << 20
"""Rows whose places are kept in a plan at most: 4 MiB. No measurement of it is on record."""


@dataclass(frozen=True)
class _Chain:
    """What is moved, by ``moves`` layers; ``views``: those nodes and what sees rows in between,
    from the first on.
    """

    x: Value
    views: list[Node] = field(default_factory=list)
    moves: int = 0


def _keeps_rows(node: Node, width: object) -> bool:
    """Whether the node moves or sees whole rows of so many elements."""
    x, y, name = node.given[0].spec, node.outputs[0].spec, node.layer.name
    if not x.rank or not y.rank or x.shape[-1] != width or y.shape[-1] != width:
        return False
    if name == "Transpose":
        return bool(node.attrs.perm[-1] == x.rank - 1)
    if name == "Roll":
        return all(axis % x.rank != x.rank - 1 for axis in node.attrs.axes)
    return name == "Reshape"


def _chain(root: Node, graph: Any) -> _Chain:
    """From the last move back to what is no move, or is read by others, too."""
    width, views, moves = root.outputs[0].spec.shape[-1:], [], 0
    node: Node | None = root
    while node is not None and width and not node.is_fused and _keeps_rows(node, width[0]):
        views.append(node)
        moves += node.layer.name != "Reshape"
        (x,) = node.given[:1]
        if x.producer is None or not used_only_by(graph, x, node):
            break
        node = x.producer
    while views and views[-1].layer.name == "Reshape":
        views.pop()
    return _Chain(views[-1].given[0] if views else root.given[0], views[::-1], moves)


def _places(chain: _Chain) -> Array:
    """Which row of what is moved each row of the result is."""
    rows = np.arange(_count(chain.x), dtype=np.int32)
    for node in chain.views:
        rows = rows.reshape(*(evaluate(d, {}) for d in node.given[0].spec.shape[:-1]), 1)
        if node.layer.name == "Transpose":
            rows = rows.transpose(node.attrs.perm)
        elif node.layer.name == "Roll":
            shifts = [-begin for begin in node.attrs.begins]
            rows = np.roll(rows, shifts, node.attrs.axes)
    return np.ascontiguousarray(rows.reshape(-1))


def _when(root: Node, graph: Any) -> bool:
    chain = _chain(root, graph)
    nodes = [v.spec for n in chain.views for v in (n.given[0], n.outputs[0])]
    known = all(isinstance(d, int) and d for spec in nodes for d in spec.shape)
    return chain.moves > 1 and known and _count(chain.x) <= MOST_ROWS


def _count(x: Value) -> int:
    """Rows of known sizes."""
    return evaluate(prod(x.spec.shape[:-1]), {})


def _gather(root: Node, graph: Any) -> Op:
    chain, shape = _chain(root, graph), root.outputs[0].spec.shape
    rows = T.Reshape(chain.x, shape=(_count(chain.x), shape[-1]))
    return T.Reshape(T.Gather(rows, literal(_places(chain)), axis=0), shape=shape)


def _example(net: Any) -> None:
    (y,) = net.add_layer("tactix.Exp", [net.add_input("x", "f32", [2, 6, 4, 5])])
    (y,) = net.add_layer("tactix.Roll", [y], axes=(1, 2), begins=(1, 3))
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(2, 3, 2, 2, 2, 5))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 1, 3, 2, 4, 5))
    net.mark_output(net.add_layer("tactix.Exp", [y])[0], "y")


RULES = (
    Rule(
        "tactix.rows_moved_once",
        any_of(Op("tactix.Transpose", None), Op("tactix.Roll", None)),
        _gather,
        _when,
        benefit=5,
        device="cuda",
        example=_example,
        phase="fuse",
    ),
)
