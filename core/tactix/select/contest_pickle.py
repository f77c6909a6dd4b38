"""Contests as bytes, for a process that has the same packs.

Layers and tactics go by their keys, since they are what that process's session has. A value goes
without the node that makes it, else the whole network would go with each node.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from tactix.base.errors import ExecutionError
from tactix.base.tensor import TensorSpec
from tactix.contracts.attrs import Attributes
from tactix.contracts.graph import Node, Value
from tactix.contracts.layer import Layer
from tactix.contracts.region import STRUCTURAL, BodyNode
from tactix.contracts.tactic import Tactic
from tactix.plugins.session import Session
from tactix.select.contests import Contest

_STRUCTURAL = {layer.key: layer for layer in STRUCTURAL}


class GraphPickler(pickle.Pickler):
    """``schemas``: keys of layers by the class of their attributes, which may be made at run time
    and then has no place that it could be imported from; those of nodes that were pickled before
    may be given.
    """

    def __init__(self, file: io.BytesIO, schemas: dict[type, str] | None = None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._schemas: dict[type, str] = {} if schemas is None else schemas

    def persistent_id(self, x: object) -> tuple[Any, ...] | None:
        if isinstance(x, Layer):
            return ("layer", x.key)
        if isinstance(x, type) and x in self._schemas:
            return ("schema", self._schemas[x])
        return ("tactic", x.key) if isinstance(x, Tactic) else None

    def reducer_override(self, x: object) -> Any:
        if isinstance(x, (Node, BodyNode)) and type(x.attrs) is x.layer.Attrs:
            self._schemas[type(x.attrs)] = x.layer.key
        if isinstance(x, Value):
            return _value, (x.name, x.spec, x.index)
        if isinstance(x, Node):
            return _node, (x.name, x.layer, x.attrs, x.inputs, x.outputs)
        return NotImplemented


def _value(name: str, spec: TensorSpec, index: int) -> Value:
    return Value(name, spec, index=index)


def _node(
    name: str,
    layer: Layer,
    attrs: Attributes,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
) -> Node:
    made = Node(name, layer, attrs, inputs, outputs)
    for v in outputs:
        v.producer = made
    return made


class GraphUnpickler(pickle.Unpickler):
    """What a GraphPickler wrote, with the layers and tactics of a session."""

    def __init__(self, file: io.BytesIO, session: Session) -> None:
        super().__init__(file)
        self._session = session

    def persistent_load(self, pid: tuple[Any, ...]) -> object:
        kind, key = pid
        if kind == "tactic":
            return self._session.tactics[key]
        layer = _STRUCTURAL.get(key) or self._session.layers[key]
        return layer.Attrs if kind == "schema" else layer


def packed(
    contests: Sequence[Contest], leave: Callable[[Contest, str], None]
) -> list[tuple[int, bytes]]:
    """The bytes of each contest that has some, with its index. ``leave``: is told of the others,
    and why.
    """
    out = []
    for i, contest in enumerate(contests):
        try:
            out.append((i, dumps(contest)))
        except Exception as e:  # what a pack's kernel is made of may be anything
            leave(contest, f"{type(e).__name__}: {e}")
    return out


def dumps(contest: Contest) -> bytes:
    """Raises whatever pickling a candidate's artifact raises."""
    file = io.BytesIO()
    GraphPickler(file).dump(contest)
    return file.getvalue()


def loads(content: bytes, session: Session) -> Contest:
    """Raises ExecutionError where this process lacks a pack that the contest is of."""
    try:
        found: Contest = GraphUnpickler(io.BytesIO(content), session).load()
    except Exception as e:
        what = "it does not have what is to be timed"
        raise ExecutionError(what, why=str(e), do="Install the same packs there") from e
    return found
