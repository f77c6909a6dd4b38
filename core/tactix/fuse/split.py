"""Take a fused node apart: two smaller ones in its place, and again, until each is one layer.

A chain is cut before its anchor, any other node in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.contracts.graph import Node, Value
from tactix.contracts.region import FUSED
from tactix.fuse.region import merge
from tactix.network.definition import NetworkDefinition


def can_split(node: Node) -> bool:
    """Whether there are layers to part, and every output is made by one of them."""
    body = node.body
    return len(body.nodes) > 1 and all(i >= body.arity for i in body.results)


def split(net: NetworkDefinition, node: Node) -> tuple[Node, ...]:
    """Put the two halves of a fused node in its place: its first layers, and those after them.

    Both can be run as they are, since a body's layers stand in the order in which they run.
    """
    halves, results = _halves(node)
    made: dict[Value, Value] = {}
    parts = [_add(net, node, half.layers, half.kept, made) for half in halves]
    put_instead(net, node, [made[v] for v in results])
    return tuple(parts)


def put_instead(net: NetworkDefinition, node: Node, results: Sequence[Value]) -> None:
    """Let others read these in place of the node's outputs, and the node leave."""
    users = net.users()
    for old, new in zip(node.outputs, results, strict=True):
        for user, _ in users.get(old, ()):
            user.inputs = tuple(new if v is old else v for v in user.inputs)
        net.redirect_output(old, new)
        net.call(new, *old.called)
    net.discard(node)


def apart(node: Node) -> tuple[Node, ...]:
    """The two halves of a fused node as nodes of no network; the second reads what the first
    makes.
    """
    halves, _ = _halves(node)
    made: dict[Value, Value] = {}
    return tuple(_alone(half, made) for half in halves)


@dataclass(frozen=True)
class _Half:
    """Some of a body's layers, and which of their tensors others read."""

    layers: list[Node]
    kept: list[Value]


def _halves(node: Node) -> tuple[list[_Half], list[Value]]:
    """A body's first layers, and those after them; with what the fused node gives."""
    layers, results = expanded(node)
    body = node.body
    cut = (body.anchor or 0) if body.is_chain else (len(layers) + 1) // 2
    halves = (layers[:cut], layers[cut:])
    found = []
    for half, other in (halves, halves[::-1]):
        read = {v for n in other for v in n.given} | set(results)
        found.append(_Half(half, [v for n in half for v in n.outputs if v in read]))
    return found, results


def _alone(half: _Half, made: dict[Value, Value]) -> Node:
    """One node of a half; ``made`` tells where a layer's tensor is there, and is added to."""
    if len(half.layers) == 1:
        (layer,) = half.layers
        inputs = [None if v is None else made.get(v, v) for v in layer.inputs]
        part, kept = Node(layer.name, layer.layer, layer.attrs, inputs), list(layer.outputs)
    else:
        body, outside = merge(half.layers, half.kept)
        inputs = [made.get(v, v) for v in outside]
        part, kept = Node(body.title, FUSED, body, inputs), half.kept
    part.outputs = tuple(Value(v.name, v.spec.plain(), part, k) for k, v in enumerate(kept))
    made.update(zip(kept, part.outputs, strict=True))
    return part


def expanded(node: Node) -> tuple[list[Node], list[Value]]:
    """A body's layers as nodes, and which of their tensors the fused node gives."""
    ids: list[Value] = list(node.given)
    layers = []
    for b in node.body.nodes:
        inputs = [ids[i] if i >= 0 else None for i in b.inputs]
        layer = Node(b.name, b.layer, b.attrs, inputs)
        specs = b.layer.infer(b.attrs, [None if v is None else v.spec for v in inputs])
        layer.outputs = tuple(Value(b.name, s, layer, k) for k, s in enumerate(specs))
        ids += layer.outputs
        layers.append(layer)
    return layers, [ids[i] for i in node.body.results]


def _add(
    net: NetworkDefinition,
    whole: Node,
    layers: Sequence[Node],
    kept: Sequence[Value],
    made: dict[Value, Value],
) -> Node:
    """One node of some layers in the network; ``made`` tells where a layer's tensor is there, and
    is added to.
    """
    place, origin = net.position(whole), _origin(whole, layers)
    if len(layers) == 1:
        (layer,) = layers
        inputs = [None if v is None else made.get(v, v) for v in layer.inputs]
        _claim(net, layer.name)
        outputs = net.add_layer(layer.layer, inputs, layer.name, origin, layer.attrs, place)
        made.update(zip(layer.outputs, outputs, strict=True))
    else:
        body, outside = merge(layers, kept)
        _claim(net, body.title)
        outputs = net.add_layer(
            FUSED, [made.get(v, v) for v in outside], body.title, origin, body, place
        )
        made.update(zip(kept, outputs, strict=True))
    part = outputs[0].producer
    assert part is not None
    return part


def _claim(net: NetworkDefinition, name: str) -> None:
    """Let a part have the name that it had before it was fused, unless another node took it."""
    if all(n.name != name for n in net.nodes):
        net.free_name(name)


def _origin(whole: Node, layers: Sequence[Node]) -> tuple[str, ...]:
    own = {n.name for n in layers}
    return tuple(o for o in whole.origin if o in own) or whole.origin
