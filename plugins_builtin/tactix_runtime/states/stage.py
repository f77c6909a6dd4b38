"""The build stage of plans whose growing states lie in reserved memory.

A state that grows is an input, the past, that one node joins with new rows to an output, the
present. In the plan both are one tensor with room for more rows than are filled: the rows are
written into it behind the past (``tactix.TensorScatter``), and what reads the present reads its
first rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tactix.base.dims import Dim, sym, symbol_name
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
    """A state: ``node`` joins ``past`` with new rows to the output ``name``. ``length``: the symbol
    of the rows before; ``after``: how many there are behind a run.
    """

    past: Value
    node: Node
    name: str
    axis: int
    length: str
    after: Dim


def _growing(net: NetworkDefinition) -> Iterator[Growing]:
    users = net.users()
    for past in net.inputs:
        uses = users.get(past, [])
        if len(uses) == 1 and not net.is_output(past):
            yield from _grown(net, past, uses[0])


def _grown(net: NetworkDefinition, past: Value, use: Use) -> Iterator[Growing]:
    """The state that an input with one use is, if it is one."""
    node, place = use
    names = [k for k, v in zip(net.output_names, net.outputs, strict=True) if v in node.outputs]
    if node.layer.name != "Concat" or len(node.given) != 2 or place or len(names) != 1:
        return
    axis = node.attrs.axis % past.spec.rank
    length = symbol_name(past.spec.shape[axis])
    if length is not None and axis and node.given[1].const is None:
        after = node.outputs[0].spec.shape[axis]
        yield Growing(past, node, names[0], axis, length, after)


def _largest(found: list[Growing]) -> list[Growing]:
    """Those of one length, where they differ: the most. Raises ConfigError if there are none."""
    if not found:
        why = (
            "no input is read by one Concat alone, which makes an output of it and of new elements"
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
    present, place, more = g.node.outputs[0], net.position(g.node), g.node.given[1]
    (kept,) = net.add_layer(
        "tactix.TensorScatter",
        [g.past, more],
        g.node.name,
        g.node.origin,
        position=place,
        axis=g.axis,
        begin=sym(g.length),
    )
    (first,) = net.add_layer(
        "tactix.Slice",
        [kept],
        f"{g.node.name}/filled",
        g.node.origin,
        position=place,
        begins=(0,),
        sizes=(g.after,),
        axes=(g.axis,),
        steps=(1,),
    )
    net.replace_output(g.name, kept)
    net.redirect_uses(present, first)
    net.discard(g.node)
