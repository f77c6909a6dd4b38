"""What the tensors of a network are called in its model, and so in caches and by users."""

from __future__ import annotations

from tactix.contracts.graph import Value
from tactix.network.definition import NetworkDefinition


class TensorNames:
    """Of a network, also of one in which nodes of the model were folded into others: a tensor has
    the name of what the last of them made.
    """

    def __init__(self, network: NetworkDefinition) -> None:
        there = set(network.values)
        made_last = {n.origin[-1]: n.outputs[0] for n in network.nodes if len(n.outputs) == 1}
        self._names: dict[Value, list[str]] = {}
        for name, tensor in network.model_tensors.items():
            v = tensor.value if tensor.value in there else made_last.get(tensor.node)
            if v is not None and v.name != name:
                self._names.setdefault(v, []).append(name)

    def of(self, v: Value) -> list[str]:
        """At least one name: the model's first, then that of the layer which makes it."""
        return [*self._names.get(v, []), v.name]
