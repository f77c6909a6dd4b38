"""Checks that a network is well formed: a table of named conditions, and one over every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tactix.base.errors import NetworkError
from tactix.contracts.graph import Node
from tactix.network.definition import NetworkDefinition


def _has_outputs(net: NetworkDefinition) -> str:
    return "" if net.outputs else "it has no outputs; call mark_output"


def _known_sources(net: NetworkDefinition) -> str:
    nodes = net.nodes
    known = {*net.inputs, *net.constants, *(v for n in nodes for v in n.outputs)}
    strange = ((n.name, v.name) for n in nodes for v in n.given if v not in known)
    return next(
        (f"layer {n!r} reads {v!r}, which belongs to another network" for n, v in strange), ""
    )


def _unique_names(net: NetworkDefinition) -> str:
    often = (name for name, count in Counter(n.name for n in net.nodes).items() if count > 1)
    return next((f"two layers are named {name!r}" for name in often), "")


def _specs_hold(node: Node) -> str:
    specs = node.layer.infer(node.attrs, [None if v is None else v.spec for v in node.inputs])
    for v, s in zip(node.outputs, specs, strict=True):
        if (v.spec.dtype, v.spec.shape) != (s.dtype, s.shape):
            return f"output {v.name!r} is {v.spec}, but its inputs give {s}"
    return ""


NETWORK_CHECKS: tuple[Callable[[NetworkDefinition], str], ...] = (
    _has_outputs,
    _known_sources,
    _unique_names,
)


def verify(net: NetworkDefinition, *, deep: bool = False) -> None:
    """Raise NetworkError for the first broken condition; ``deep`` also infers every layer again."""
    for check in NETWORK_CHECKS:
        if why := check(net):
            raise NetworkError("the network is not well formed", who=net.name, why=why)
    for node in net.nodes if deep else ():
        if why := _specs_hold(node):
            raise NetworkError("the network is not well formed", who=node.name, why=why)
