"""Checks that a network is well formed: a table of named conditions, each over a node or the whole network."""

from __future__ import annotations

from collections.abc import Callable

from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition
from tactix.words.errors import NetworkError


def _has_outputs(net: NetworkDefinition) -> str:
    return "" if net.outputs else "it has no outputs; call mark_output"


def _known_sources(net: NetworkDefinition) -> str:
    known = set(net.inputs) | set(net.constants)
    nodes = net.nodes
    made = {v for n in nodes for v in n.outputs}
    for n in nodes:
        for v in n.given:
            if v not in made and v not in known:
                return f"layer {n.name!r} reads {v.name!r}, which belongs to another network"
    return ""


def _unique_names(net: NetworkDefinition) -> str:
    seen: set[str] = set()
    for n in net.nodes:
        if n.name in seen:
            return f"two layers are named {n.name!r}"
        seen.add(n.name)
    return ""


def _specs_hold(node: Node) -> str:
    specs = node.layer.infer(node.attrs, [None if v is None else v.spec for v in node.inputs])
    for v, s in zip(node.outputs, specs, strict=True):
        if (v.spec.dtype, v.spec.shape) != (s.dtype, s.shape):
            return f"output {v.name!r} is {v.spec}, but its inputs give {s}"
    return ""


NETWORK_CHECKS: tuple[Callable[[NetworkDefinition], str], ...] = (_has_outputs, _known_sources, _unique_names)
NODE_CHECKS: tuple[Callable[[Node], str], ...] = (_specs_hold,)


def verify(net: NetworkDefinition, *, deep: bool = False) -> None:
    """Raise NetworkError for the first broken condition; ``deep`` also infers every layer again."""
    for check in NETWORK_CHECKS:
        if why := check(net):
            raise NetworkError("the network is not well formed", who=net.name, why=why)
    for node in net.nodes if deep else ():
        for node_check in NODE_CHECKS:
            if why := node_check(node):
                raise NetworkError("the network is not well formed", who=node.name, why=why)
