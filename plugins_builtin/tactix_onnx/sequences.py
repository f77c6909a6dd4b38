"""What sequences hold, as far as it is known when a model is imported."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.graph import Node, Value

MOST_ELEMENTS = 1024
"""Of a sequence that is taken apart: what a file can ask for has a bound."""


def elements(sequence: Value) -> list[Value] | None:
    """The tensors that a sequence holds, where it is put together at places that are known; None
    otherwise, and where there are too many. Exporters write sequences where a list was in the
    program; nothing is left of them then.
    """
    changes: list[Node] = []
    found: Value | None = sequence
    while len(changes) < MOST_ELEMENTS and found is not None and (node := found.producer):
        name = node.layer.key
        if name == "tactix.SequenceConstruct@1":
            return _changed([v for v in node.inputs if v is not None], changes)
        if name == "tactix.SequenceEmpty@1":
            return _changed([], changes)
        if name not in ("tactix.SequenceInsert@1", "tactix.SequenceErase@1"):
            return None
        changes.append(node)
        found = node.inputs[0]
    return None


def _changed(values: list[Value], changes: Sequence[Node]) -> list[Value] | None:
    """What is left after insertions and removals, the last one first; None where a place is not
    known or does not exist.
    """
    for node in reversed(changes):
        inserts = node.layer.key == "tactix.SequenceInsert@1"
        new, given = node.inputs[1:2] if inserts else (), node.inputs[1 + inserts :]
        most = len(values) if inserts else len(values) - 1
        place = _place(given[0] if given else None, len(values), most)
        if place is None:
            return None
        values[place : place + (not inserts)] = [v for v in new if v is not None]
    return values if len(values) <= MOST_ELEMENTS else None


def _place(position: Value | None, length: int, most: int) -> int | None:
    """A place, counted from the end if negative; the last one where none is given."""
    if position is None:
        return most if most >= 0 else None
    if position.const is None or position.const.size != 1:
        return None
    place = int(position.const.reshape(()))
    if not -length <= place <= most:
        return None
    return place + length if place < 0 else place
