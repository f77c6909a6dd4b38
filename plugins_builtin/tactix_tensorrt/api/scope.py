"""Where layers become tactix's: in a network, or in what runs inside one of its layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from tactix.base.dims import symbols
from tactix.base.errors import NetworkError, TactixError
from tactix_tensorrt.api.lowering import Lowering
from tactix_tensorrt.api.values import NATIVE

if TYPE_CHECKING:
    from tactix.contracts.graph import Node, Value
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.layer import ILayer
    from tactix_tensorrt.api.tensor import ITensor

Results = Mapping["ILayer", "Value"]
"""Of a loop or branch: what its output layers give."""


class Scope:
    """One network of tactix's, and what of it each tensor of a program is.

    ``label``: tells apart what one layer becomes in several scopes, empty for the outermost.
    """

    label = ""

    def __init__(self) -> None:
        self.constructs: dict[Hashable, Results] = {}

    @property
    def native(self) -> NetworkDefinition:
        raise NotImplementedError

    def taken(self, tensor: ITensor) -> Value | None:
        """What is there of a tensor without its layer; None if that is to be lowered here."""
        raise NotImplementedError

    def made(self, layer: ILayer) -> Sequence[Value] | None:
        """What is there of a layer's outputs."""
        raise NotImplementedError

    def keep(self, layer: ILayer, values: list[Value], nodes: list[Node]) -> None:
        """Note a layer's outputs, and the nodes that were added for them."""
        raise NotImplementedError

    def known_symbols(self) -> frozenset[str]:
        """Symbols that have a value here."""
        return frozenset(s for v in self.native.values for d in v.spec.shape for s in symbols(d))

    def results(self, construct: Hashable, make: Callable[[], Results]) -> Results:
        """What a loop or branch gives, which is made once."""
        if construct not in self.constructs:
            self.constructs[construct] = make()
        return self.constructs[construct]

    def value_of(self, tensor: ITensor) -> Value:
        """tactix's tensor. Raises TactixError for layers that make no sense."""
        found = self.taken(tensor)
        if found is not None:
            return found
        assert tensor.layer is not None
        self._lower(tensor.layer)
        values = self.made(tensor.layer)
        assert values is not None
        return values[tensor.index]

    def _lower(self, wanted: ILayer) -> None:
        """A layer after all that it reads; by a stack, as networks are deep."""
        stack, waiting = [wanted], {wanted}
        while stack:
            layer = stack[-1]
            first = self._first_before(layer)
            if first is None:
                stack.pop()
                self._emit(layer)
                continue
            if first in waiting:
                raise NetworkError("the layers form a cycle", who=layer.name)
            waiting.add(first)
            stack.append(first)

    def _first_before(self, layer: ILayer) -> ILayer | None:
        """One that has to be lowered before it."""
        if self.made(layer) is not None:
            return None
        for t in layer.before:
            if t.layer is not None and self.taken(t) is None and self.made(t.layer) is None:
                return t.layer
        return None

    def _emit(self, layer: ILayer) -> None:
        if self.made(layer) is not None:
            return
        emit = Lowering(self, layer)
        try:
            values = list(layer.lower(emit))
        except TactixError as e:
            e.who = e.who or layer.name
            raise
        for i, dtype in layer.output_types.items():
            values[i] = emit.cast(values[i], NATIVE[dtype])
        self.keep(layer, values, emit.nodes)


class Inner(Scope):
    """A body: layers ``inside`` are made in its network, and all else is read from around it.

    ``captured``: values around, with those that stand for them in the body, as further inputs of
    it. What is known there when building is made again in the body.
    """

    def __init__(
        self, around: Scope, native: NetworkDefinition, inside: AbstractSet[ILayer], label: str
    ) -> None:
        super().__init__()
        self.around, self._native, self._inside = around, native, inside
        self.label = f"{around.label}{label}/"
        self.captured: dict[Value, Value] = {}
        self.bound: dict[ITensor, Value] = {}
        self._again: dict[Value, Value] = {}
        self._made: dict[ILayer, list[Value]] = {}

    @property
    def native(self) -> NetworkDefinition:
        return self._native

    def beside(self, label: str) -> Inner:
        """The same body once more, for other values of what is bound."""
        out = Inner(self.around, self._native, self._inside, label)
        out.captured, out._again = self.captured, self._again
        return out

    def known_symbols(self) -> frozenset[str]:
        return super().known_symbols() | self.around.known_symbols()

    def taken(self, tensor: ITensor) -> Value | None:
        if tensor in self.bound:
            return self.bound[tensor]
        if tensor.layer is not None and tensor.layer in self._inside:
            return None
        return self.capture(self.around.value_of(tensor))

    def capture(self, value: Value) -> Value:
        """What stands in the body for a value around it."""
        if value not in self._again:
            self._again[value] = self._captured(value)
        return self._again[value]

    def _captured(self, value: Value) -> Value:
        spec, net = value.spec, self._native
        if value.const is not None:
            return net.add_constant(value.const, value.name)
        if spec.value is not None:
            fields: dict[str, Any] = {"values": spec.value, "shape": spec.shape}
            return net.add_layer("tactix.Dims", [], value.name, dtype=spec.dtype, **fields)[0]
        taken = {v.name for v in net.inputs}
        names = (value.name, *(f"{value.name}#{k}" for k in range(len(taken) + 1)))
        own = next(n for n in names if n not in taken)
        made = self.captured[value] = net.add_input(own, spec.dtype, spec.shape)
        return made

    def made(self, layer: ILayer) -> Sequence[Value] | None:
        return self._made.get(layer)

    def keep(self, layer: ILayer, values: list[Value], nodes: list[Node]) -> None:
        self._made[layer] = values


def inside_of(
    layers: Sequence[ILayer], first: Sequence[ITensor], ends: AbstractSet[ILayer]
) -> frozenset[ILayer]:
    """Layers that hang on some tensors, up to those that end a construct."""
    readers: dict[ITensor, list[ILayer]] = {}
    for layer in layers:
        for tensor in layer.reads:
            readers.setdefault(tensor, []).append(layer)
    found: set[ILayer] = set()
    waiting = list(first)
    while waiting:
        for layer in readers.get(waiting.pop(), ()):
            if layer not in found and layer not in ends:
                found.add(layer)
                waiting += layer.outputs
    return frozenset(found)
