"""Merge nodes into one fused node: flatten their bodies into one."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.errors import NetworkError
from tactix.base.tensor import TensorSpec
from tactix.contracts.graph import Node, Value
from tactix.contracts.region import Body, BodyNode


def merge(nodes: Sequence[Node], results: Sequence[Value]) -> tuple[Body, list[Value]]:
    """The body of all nodes (producers first) that gives ``results``, and the tensors that are its
    inputs.

    Raises NetworkError if more than one of the nodes is not pointwise; the last may sum up what the
    others make, and of two others the second may chain.
    """
    made = {v for n in nodes for v in n.outputs}
    outside: list[Value] = []
    for n in nodes:
        outside += [v for v in dict.fromkeys(n.given) if v not in made and v not in outside]
    ids = {v: i for i, v in enumerate(outside)}
    flat: list[BodyNode] = []
    anchors: list[int] = []
    fresh = len(outside)
    for n in nodes:
        local = [ids[v] for v in n.given]
        for k, b in enumerate(n.body.nodes):
            if n.body.anchor == k:
                anchors.append(len(flat))
            inputs = tuple([local[i] if i >= 0 else -1 for i in b.inputs])
            same = inputs == b.inputs
            flat.append(b if same else BodyNode(b.name, b.layer, b.attrs, inputs, b.outputs))
            local += range(fresh, fresh + b.outputs)
            fresh += b.outputs
        ids.update({v: local[i] for v, i in zip(n.outputs, n.body.results, strict=True)})
    return Body(
        len(outside), tuple(flat), tuple(ids[v] for v in results), _anchor(flat, anchors)
    ), outside


def _anchor(flat: Sequence[BodyNode], anchors: Sequence[int]) -> int | None:
    """Which of those that are not pointwise is the body's. Raises NetworkError."""
    *others, last = anchors or (-1,)
    if others and last == len(flat) - 1 and flat[last].layer.summarizes:
        *others, last = others
    if len(others) > 1 or (others and not flat[last].layer.chains):
        raise NetworkError(
            "a fused layer can have one anchor", who=" + ".join(flat[a].name for a in anchors)
        )
    return last if anchors else None


def known_specs(nodes: Sequence[Node], inputs: Sequence[Value]) -> list[TensorSpec]:
    """Specs of the ids of the body that ``merge`` makes of the nodes, from those of their bodies.

    Empty where one is not known yet, or where a tensor between two nodes is described otherwise
    than by the body that makes it: inferring the whole body may tell more then.
    """
    made: dict[Value, TensorSpec] = {}
    out = [v.spec for v in inputs]
    for n in nodes:
        specs = n.known_specs
        if not specs or any(v in made and not _are_same(made[v], v.spec) for v in n.given):
            return []
        made.update((v, specs[i]) for v, i in zip(n.outputs, n.body.results, strict=True))
        out += specs[len(n.given) :]
    return out


def _are_same(a: TensorSpec, b: TensorSpec) -> bool:
    if a.const is not b.const or a.dtype is not b.dtype:
        return False
    return (a.shape, a.value, a.element) == (b.shape, b.value, b.element)
