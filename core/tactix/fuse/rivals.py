"""Another form of one node: rules of the phase ``rival`` rewrite the layers that it runs, and all
others what becomes of these. Which form is faster, measuring tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import PHASES, RIVAL, Rule
from tactix.fuse.rewrite import fuse
from tactix.fuse.split import expanded, put_instead
from tactix.fuse.trace import Trace
from tactix.network.definition import NetworkDefinition


@dataclass(frozen=True)
class Rival:
    """What could stand in the place of ``node``. ``network``: its inputs are the node's that are no
    constants, in their order, its outputs the node's; ``rules``: keys of those that compete.
    """

    node: Node
    network: NetworkDefinition
    trace: Trace
    rules: tuple[str, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.network.nodes

    def take_its_place(self, net: NetworkDefinition) -> tuple[Node, ...]:
        """Put these nodes in the place of theirs, and give them."""
        read = [v for v in dict.fromkeys(self.node.given) if v.const is None]
        made: dict[Value, Value] = dict(zip(self.network.inputs, read, strict=True))
        for v in self.network.constants:
            made[v] = net.add_constant(v.array, v.name)
        parts = []
        for n in self.nodes:
            inputs = [None if v is None else made[v] for v in n.inputs]
            specs = [v.spec for v in n.outputs]
            outputs = net.add_layer(
                n.layer, inputs, n.name, self.node.origin, n.attrs, net.position(self.node), specs
            )
            made.update(zip(n.outputs, outputs, strict=True))
            parts += [v.producer for v in outputs[:1] if v.producer is not None]
        put_instead(net, self.node, [made[v] for v in self.network.outputs])
        return tuple(parts)


def rival(net: NetworkDefinition, node: Node, rules: Sequence[Rule]) -> Rival | None:
    """The other form of a node of the network; None where no rule has one.

    Raises InternalError for a rule that fails.
    """
    if not any(_may_match(r, node) for r in rules if r.phase == RIVAL):
        return None
    alone = _alone(net, node)
    made, trace = fuse(alone, rules, (RIVAL, *PHASES))
    keys = {r.key for r in rules if r.phase == RIVAL}
    fired = tuple(k for k in trace.counts if k in keys)
    return Rival(node, made, trace, fired) if fired else None


def _may_match(rule: Rule, node: Node) -> bool:
    """Whether the node runs a layer that the rule's root may be."""
    keys = {b.layer.key for b in node.body.nodes}
    names = keys | {key.split("@")[0] for key in keys}
    return any(root.startswith("*") or root in names for root in rule.roots())


def _alone(net: NetworkDefinition, node: Node) -> NetworkDefinition:
    """A network of the layers that the node runs."""
    out = NetworkDefinition(net.layers, node.name)
    made: dict[Value, Value] = {}
    for v in dict.fromkeys(node.given):
        if v.const is None:
            made[v] = out.add_input(v.name, v.spec.dtype, v.spec.shape, v.spec.element)
        else:
            made[v] = out.add_constant(v.array, v.name)
    layers, results = expanded(node)
    for n in layers:
        inputs = [None if v is None else made[v] for v in n.inputs]
        outputs = out.add_layer(n.layer, inputs, n.name, node.origin, n.attrs)
        made.update(zip(n.outputs, outputs, strict=True))
    for i, v in enumerate(results):
        out.mark_output(made[v], f"{node.name}:{i}")
    return out
