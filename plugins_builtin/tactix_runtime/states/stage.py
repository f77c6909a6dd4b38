"""The build stage of plans whose growing states lie in reserved memory.

A state that grows is an input, the past, that is joined with new rows to an output, the present:
by a Concat, or by a TensorScatter into the past with more room, as a grouped-query attention of
ONNX Runtime is imported, whose samples have lengths of their own. In the plan both are one tensor
with room for more rows than are filled: the rows are written into it behind the past
(``tactix.TensorScatter``), and what reads the present reads its first rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tactix.base.dims import Assumption, Dim, sym, symbol_name
from tactix.base.errors import ConfigError
from tactix.config import BuilderConfig, BuilderFlag
from tactix.contracts.graph import Node, Value
from tactix.contracts.states import StatePair, States
from tactix.network.definition import NetworkDefinition, Use
from tactix.pipeline.stages import Part, Staged, in_one_piece
from tactix.plan.schema import Plan
from tactix.plugins.session import Session
from tactix.run.link import device_of

WHO = "BuilderFlag.RESERVE_STATES"
Users = Mapping[Value, list[Use]]
"""Where each tensor is read."""


class StatesStage(Staged):
    """Rewrites networks so that their states grow in place."""

    key = "tactix.reserve_states"
    serves = frozenset({BuilderFlag.RESERVE_STATES.value})
    depth = 45

    def join(self, session: Session, config: BuilderConfig) -> Part:
        """Raises ConfigError for a device whose memory the host does not see."""
        device = device_of(session, config.device)
        if not device.host_memory:
            why = f"contexts reserve memory of the host, which {device.kind} does not see"
            raise ConfigError(f"{WHO} for {device.kind}", why=why, do="Build without it")
        return StatesPart()


class StatesPart(Part):
    """What the stage does in one build."""

    def network(self, network: NetworkDefinition) -> NetworkDefinition:
        """A copy whose states are reserved. Raises ConfigError if none grows."""
        net = network.copy()
        found = _largest(list(_growing(net)))
        room = _fresh(net, f"{found[0].length}_room")
        net.states = States(
            found[0].length,
            found[0].after,
            room,
            tuple(StatePair(g.past.name, g.name, g.axis) for g in found),
        )
        for g in found:
            _reserve(net, g, room)
        return net

    def plan(self, plan: Plan) -> Plan:
        """Raises ConfigError for one that runs in pieces, as its shapes follow from data."""
        return in_one_piece(plan, WHO)


@dataclass(frozen=True)
class Growing:
    """A state: ``node`` joins ``past`` with new rows, ``more``, to the output ``name``. ``length``:
    the symbol of the rows before; ``after``: how many there are behind a run. ``places``: where
    each sample's rows begin, None if behind all that is filled.
    """

    past: Value
    node: Node
    name: str
    axis: int
    length: str
    after: Dim
    more: Value
    places: Value | None = None


def _growing(net: NetworkDefinition) -> Iterator[Growing]:
    users = net.users()
    for past in net.inputs:
        uses = users.get(past, [])
        if len(uses) == 1 and not net.is_output(past):
            yield from _grown(net, past, _behind_room(uses[0], users), users)


def _behind_room(use: Use, users: Users) -> Use:
    """Who reads the past, or the past with room behind it if it gets some first."""
    node = use[0]
    if node.layer.name != "Pad" or node.attrs.mode != "constant":
        return use
    begins = node.attrs.pads[: len(node.attrs.pads) // 2]
    readers = users.get(node.outputs[0], [])
    return readers[0] if len(readers) == 1 and not any(begins) else use


def _grown(net: NetworkDefinition, past: Value, use: Use, users: Users) -> Iterator[Growing]:
    """The state that an input with one use is, if it is one."""
    node, place = use
    names = [k for k, v in zip(net.output_names, net.outputs, strict=True) if v in node.outputs]
    if node.layer.name not in JOINED or place or len(names) != 1 or node.given[1].const is not None:
        return
    axis = node.attrs.axis % past.spec.rank
    length = symbol_name(past.spec.shape[axis])
    ends = JOINED[node.layer.name](node, axis, users)
    if length is not None and axis and ends is not None:
        yield Growing(past, node, names[0], axis, length, ends.after, node.given[1], ends.places)


@dataclass(frozen=True)
class Ends:
    """How many rows there are behind a run, and where new ones of each sample begin, if not behind
    all that is filled.
    """

    after: Dim
    places: Value | None = None


def _concat_ends(node: Node, axis: int, users: Users) -> Ends | None:
    return Ends(node.outputs[0].spec.shape[axis]) if len(node.given) == 2 else None


def _scatter_ends(node: Node, axis: int, users: Users) -> Ends | None:
    """As what reads the present reads so many of its rows."""
    if len(node.given) != 3 or node.attrs.mode != "linear":
        return None
    counts = {_first_rows(n, axis) for n, _ in users.get(node.outputs[0], [])}
    after = counts.pop() if len(counts) == 1 else None
    return None if after is None else Ends(after, node.given[2])


def _first_rows(node: Node, axis: int) -> Dim | None:
    """How many a Slice takes from the begin of an axis, and all of the others; None for another
    layer.
    """
    if node.layer.name != "Slice":
        return None
    a = node.attrs
    first = a.axes == (axis,) and a.begins == (0,) and a.steps == (1,)
    return a.sizes[0] if first else None


JOINED: Mapping[str, Callable[[Node, int, Users], Ends | None]] = {
    "Concat": _concat_ends,
    "TensorScatter": _scatter_ends,
}
"""Layers that join a past with new rows, and how."""


def _largest(found: list[Growing]) -> list[Growing]:
    """Those of one length, where they differ: the most. Raises ConfigError if there are none."""
    if not found:
        why = (
            "no input is read by one Concat or TensorScatter alone, which makes an output of it "
            "and of new elements"
        )
        raise ConfigError(f"{WHO}: no state grows", why=why, do="Build without it")
    keys = [(g.length, g.after) for g in found]
    most = max(keys, key=keys.count)
    return [g for g in found if (g.length, g.after) == most]


def _fresh(net: NetworkDefinition, name: str) -> str:
    """The name of a symbol that the network has not."""
    taken = {symbol_name(d) for v in net.values for d in v.spec.shape}
    while name in taken:
        name += "_"
    return name


def _reserve(net: NetworkDefinition, g: Growing, room: str) -> None:
    """Writes the new rows into the state, and lets what read the present read its first rows."""
    shape = list(g.past.spec.shape)
    shape[g.axis] = sym(room)
    g.past.spec = replace(g.past.spec, shape=tuple(shape))
    net.rename(g.past)
    kept = _written(net, g)
    net.replace_output(g.name, kept)
    net.redirect_uses(g.node.outputs[0], kept if g.places else _filled(net, g, kept))
    net.discard(g.node)


def _written(net: NetworkDefinition, g: Growing) -> Value:
    """The state with the new rows: behind all that is filled, or at places that the model gives."""
    given: list[Value] = [g.past, g.more]
    begin: Dim = sym(g.length)
    if g.places:
        rows = g.after - g.more.spec.shape[g.axis]
        net.demand(Assumption(rows, "==", begin), g.node.name)
        given, begin = [*given, g.places], 0
    (kept,) = net.add_layer(
        "tactix.TensorScatter",
        given,
        g.node.name,
        g.node.origin,
        position=net.position(g.node),
        axis=g.axis,
        begin=begin,
    )
    return kept


def _filled(net: NetworkDefinition, g: Growing, kept: Value) -> Value:
    (first,) = net.add_layer(
        "tactix.Slice",
        [kept],
        f"{g.node.name}/filled",
        g.node.origin,
        position=net.position(g.node),
        begins=(0,),
        sizes=(g.after,),
        axes=(g.axis,),
        steps=(1,),
    )
    net.call(first, *g.node.outputs[0].called)
    return first
