"""Match a rule's pattern at a node: which tensors and nodes its names stand for."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.graph import Node, Value
from tactix.contracts.layer import Layer
from tactix.contracts.rule import ANY, AnyOf, Op, Pattern, Var

Bound = dict[str, Any]
TRAITS = ("*", "*pointwise", "*anchor")
ABSENT = object()
"""Of an attribute that the layer does not have: equal to nothing."""


class Match:
    """Bindings of names, and the nodes inside, the root first."""

    def __init__(self, bound: Bound | None = None, nodes: tuple[Node, ...] = ()) -> None:
        self.bound, self.nodes = bound or {}, nodes

    def bind(self, name: str, what: Any) -> Match | None:
        """With one more name; None if it already stands for something else."""
        if name in self.bound:
            return self if self.bound[name] is what else None
        return Match({**self.bound, name: what}, self.nodes)

    def enter(self, node: Node) -> Match:
        return self if node in self.nodes else Match(self.bound, (*self.nodes, node))


def is_open(pattern: Pattern) -> bool:
    """Whether the pattern fits each node that has its trait, and reads what it asks for, in one way
    that binds nothing.
    """
    return (
        isinstance(pattern, Op)
        and pattern.inputs is None
        and not pattern.bind
        and pattern.layer in TRAITS
    )


def match_node(pattern: Pattern, node: Node, captured: bool = False) -> Iterator[Match]:
    """Every way in which the pattern fits with ``node`` as root; ``captured``: whether the rule
    looks at the root.
    """
    options = pattern.options if isinstance(pattern, AnyOf) else (pattern,)
    for option in options:
        assert isinstance(option, Op), "a Rule has checked that"
        if is_open(option):
            if _is_such(option, node):
                yield Match({}, (node,))
        else:
            yield from _match_op(option, node, Match(), captured)


def _match_op(op: Op, node: Node, so_far: Match, captured: bool = False) -> Iterator[Match]:
    if not _is_such(op, node) or not _attributes_fit(op, node, captured or bool(op.bind)):
        return
    entered = so_far.enter(node)
    here = entered.bind(op.bind, node) if op.bind else entered
    if here is None:
        return
    if op.inputs is None:
        yield here
        return
    for inputs in _orders(op, node):
        if len(op.inputs) <= len(inputs):
            yield from _match_inputs(op.inputs, inputs, here)


def _is_such(op: Op, node: Node) -> bool:
    """Whether the node is of the layer, and reads what it must."""
    return fits(op.layer, node) and (not op.reads or op.reads in sources(node))


def fits(layer: str, node: Node) -> bool:
    """Whether a pattern's layer name or trait fits the node."""
    if layer == "*pointwise":
        return node.is_pointwise
    if layer == "*anchor":
        return not node.is_pointwise
    return layer == "*" or layer in _names(node.layer.key)


@functools.cache
def _names(key: str) -> tuple[str, str]:
    """What patterns call a layer by."""
    return key, key.split("@")[0]


CONSTANT = "constant"
"""Among ``needs`` and ``sources``: a constant, beside names of layers."""


Needs = tuple[frozenset[str], ...]
"""Alternatives, each of which is all that there must be."""


def needs(pattern: Pattern) -> Needs:
    """What the inputs of a node must be, in whatever order, for the pattern to fit it: most nodes
    are told from most patterns by that alone. Layers by name; traits need nothing.
    """
    if isinstance(pattern, AnyOf):
        return _least(need for option in pattern.options for need in needs(option))
    if not isinstance(pattern, Op):
        return (frozenset(),)
    read = frozenset({pattern.reads} if pattern.reads else ())
    rows = itertools.product(*map(_needed, pattern.inputs or ()))
    return _least(read.union(*row) for row in rows)


def _needed(operand: Pattern) -> Needs:
    if isinstance(operand, AnyOf):
        return _least(need for option in operand.options for need in _needed(option))
    if isinstance(operand, Op):
        is_trait = operand.layer in TRAITS
        return (frozenset(() if is_trait else {operand.layer}),)
    is_constant = (
        operand.constant if isinstance(operand, Var) else isinstance(operand, (int, float))
    )
    return (frozenset({CONSTANT} if is_constant else ()),)


def _least(alternatives: Iterable[frozenset[str]]) -> Needs:
    """Without those that ask for no less than another."""
    found = dict.fromkeys(alternatives)
    return tuple(need for need in found if not any(other < need for other in found))


def sources(node: Node) -> set[str]:
    """What its inputs are, as ``needs`` names it."""
    out: set[str] = set()
    for v in node.given:
        if v.producer is not None:
            out.update(_names(v.producer.layer.key))
        elif v.spec.const is not None:
            out.add(CONSTANT)
    return out


def _attributes_fit(op: Op, node: Node, captured: bool) -> bool:
    """Whether the attributes are as written; one that is not must be the layer's default, unless it
    is captured.
    """
    if op.layer.startswith("*"):
        return True
    if not all(_is_as(node, name, wanted) for name, wanted in op.attrs):
        return False
    written = {name for name, _ in op.attrs}
    return captured or all(
        name in written or _is_as(node, name, default)
        for name, default in _defaults(node.layer).items()
    )


def _is_as(node: Node, name: str, wanted: object) -> bool:
    """Whether the attribute is as a pattern writes it."""
    return wanted is ANY or bool(getattr(node.attrs, name, ABSENT) == wanted)


@functools.cache
def _defaults(layer: Layer) -> dict[str, Any]:
    """Defaults of a layer's attributes, of those that have one."""
    out = {}
    for f in dataclasses.fields(layer.Attrs):
        if f.default is not dataclasses.MISSING:
            out[f.name] = f.default
        elif f.default_factory is not dataclasses.MISSING:
            out[f.name] = f.default_factory()
    return out


def _orders(op: Op, node: Node) -> Iterator[tuple[Value | None, ...]]:
    yield node.inputs
    if node.layer.commutative and len(node.inputs) >= 2:
        yield (node.inputs[1], node.inputs[0], *node.inputs[2:])


def _match_inputs(
    patterns: tuple[Any, ...], values: tuple[Value | None, ...], so_far: Match
) -> Iterator[Match]:
    if not patterns:
        yield so_far
        return
    for m in _match_value(patterns[0], values[0], so_far):
        yield from _match_inputs(patterns[1:], values[1:], m)


def _match_value(pattern: Any, value: Value | None, so_far: Match) -> Iterator[Match]:
    if isinstance(pattern, AnyOf):
        for option in pattern.options:
            yield from _match_value(option, value, so_far)
    elif isinstance(pattern, Var):
        if value is not None and (not pattern.constant or value.const is not None):
            found = so_far.bind(pattern.name, value)
            if found is not None:
                yield found
    elif isinstance(pattern, (int, float)):
        if (
            value is not None
            and value.const is not None
            and value.const.size == 1
            and value.const.item() == pattern
        ):
            yield so_far
    elif isinstance(pattern, Op):
        if value is not None and value.producer is not None and value.index == pattern.output:
            yield from _match_op(pattern, value.producer, so_far)
    else:
        do = "Use var, const, P.ns.Name(...), any_of or a number"
        raise InvalidArgument(f"a pattern cannot hold {pattern!r}", do=do)
