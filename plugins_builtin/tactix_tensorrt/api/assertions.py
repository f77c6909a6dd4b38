"""Assertions of a network: what shapes decide of them is checked by builds and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tactix.base.dims import Assumption, Dim
from tactix.base.errors import NetworkError

if TYPE_CHECKING:
    from tactix.contracts.graph import Node, Value

Side = Callable[[Dim, Dim, str], Assumption]

COMPARISONS: Mapping[str, Side] = {
    "Equal": lambda a, b, told: Assumption(a, "==", b, told),
    "Greater": lambda a, b, told: Assumption(a, ">=", b + 1, told),
    "Less": lambda a, b, told: Assumption(b, ">=", a + 1, told),
}
DENIED: Mapping[str, Side] = {
    "Equal": lambda a, b, told: Assumption(a, "!=", b, told),
    "Greater": lambda a, b, told: Assumption(b, ">=", a, told),
    "Less": lambda a, b, told: Assumption(a, ">=", b, told),
}
"""What holds where a comparison of integers does not."""


class DecidedByData(Exception):
    """Shapes and constants do not tell whether a condition holds."""


def assumed(condition: Value, message: str) -> list[Assumption]:
    """What of a condition hangs on shapes. ``message``: what is said where it does not hold.

    Raises NetworkError for one that never holds, DecidedByData.
    """
    if condition.const is not None:
        if not condition.const.all():
            raise NetworkError(message)
        return []
    node = condition.producer
    if node is None:
        raise DecidedByData
    return list(_open(_of_node(node, message), message))


def _open(found: list[Assumption], message: str) -> Iterator[Assumption]:
    """Those that some sizes break. Raises NetworkError for one that all do."""
    for assumption in found:
        if not assumption.symbols and not assumption.holds({}):
            raise NetworkError(message)
        if assumption.symbols and not assumption.certain:
            yield assumption


def _of_node(node: Node, message: str) -> list[Assumption]:
    kind, given = node.layer.name, node.given
    if kind == "And":
        return [a for v in given for a in assumed(v, message)]
    if kind in ("Identity", "Reshape"):
        return assumed(given[0], message)
    sides = COMPARISONS
    if kind == "Not" and given[0].producer is not None:
        node, sides = given[0].producer, DENIED
    side = sides.get(node.layer.name)
    if side is None:
        raise DecidedByData
    a, b = (_integers(v) for v in node.given)
    size = max(len(a), len(b))
    return [side(a[i % len(a)], b[i % len(b)], message) for i in range(size)]


def _integers(value: Value) -> tuple[Dim, ...]:
    """Raises DecidedByData."""
    if value.const is not None and value.spec.dtype.is_float:
        raise DecidedByData
    if value.const is not None and value.const.size:
        return tuple(int(n) for n in value.const.ravel())
    if not value.spec.value:
        raise DecidedByData
    return tuple(value.spec.value)
