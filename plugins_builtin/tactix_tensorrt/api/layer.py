"""ILayer: a layer whose attributes may change until the engine is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, overload

from tactix.base.errors import NetworkError
from tactix_tensorrt.api.enums import DataType, Enum, LayerType
from tactix_tensorrt.api.sealed import Check, Sealed
from tactix_tensorrt.api.tensor import ITensor
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.contracts.graph import Node, Value
    from tactix_tensorrt.api.lowering import Lowering
    from tactix_tensorrt.api.network import INetworkDefinition

T = TypeVar("T")

OWN = {
    "TYPE", "OUTPUTS", "attributes", "before", "changed", "has_precision", "inputs", "is_parsed",
    "kind", "lower", "nameless", "network", "output_types", "outputs", "own_precision", "owner",
    "parsed_node", "reads", "rewire", "rewired", "seal", "values",
}  # fmt: skip
"""Attributes of layers that TensorRT's do not have."""


class Attributed(Protocol):
    """What has attributes that may be set until a build."""

    attributes: dict[str, object]

    def changed(self) -> None:
        """What was made with them is out of date."""


class Attribute(Generic[T]):
    """An attribute of a layer, by TensorRT's name. ``convert``: what becomes of what is set;
    ``check``: of it, which ``typed`` gives.
    """

    check: Check

    def __init__(self, default: T, convert: Callable[[T], T] | None = None) -> None:
        self.default, self._convert = default, convert

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, layer: None, owner: type) -> Attribute[T]: ...
    @overload
    def __get__(self, layer: Attributed, owner: type) -> T: ...
    def __get__(self, layer: Attributed | None, owner: type) -> T | Attribute[T]:
        if layer is None:
            return self
        found: T = layer.attributes.get(self._name, self.default)  # type: ignore[assignment]
        return found

    def __set__(self, layer: Attributed, value: T) -> None:
        self.check(value)
        layer.attributes[self._name] = self._convert(value) if self._convert else value
        layer.changed()


@at_this_level
class ILayer(Sealed):
    """Made by the ``add_*`` of a network.

    ``attributes``: what was set of the typed ones, by name. ``values``: what tactix has of its
    outputs, None while that is not made or out of date. ``parsed_node``: of a parser's layer;
    ``rewired``: whether the program has set its inputs since.
    """

    TYPE = LayerType.IDENTITY
    OUTPUTS = 1

    num_ranks = 1
    rewired = False
    metadata = ""

    def __init__(
        self,
        network: INetworkDefinition,
        name: str,
        inputs: Sequence[ITensor | None],
        outputs: int | None = None,
    ) -> None:
        self.network = network
        self._name = name
        self.inputs: list[ITensor | None] = list(inputs)
        count = self.OUTPUTS if outputs is None else outputs
        called = [f"{name}{self.nameless(i, count)}" for i in range(count)]
        self.outputs = [ITensor(network, n, self, i) for i, n in enumerate(called)]
        self.attributes: dict[str, object] = {}
        self.values: list[Value] | None = None
        self.parsed_node: Node | None = None
        self._precision: DataType | None = None
        self._output_types: dict[int, DataType] = {}

    @staticmethod
    def nameless(index: int, count: int) -> str:
        """What follows the layer's name in that of an output, as TensorRT has it: programs and
        caches of calibrators look outputs up by it.
        """
        return "_output" if count == 1 else f"_output_{index + 1}"

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        self.changed()

    @property
    def type(self) -> LayerType:
        return self.TYPE

    @type.setter
    def type(self, kind: Enum) -> None:
        """Of activations and poolings: which. What is read is what kind of layer it is, as of any
        layer that a network gives: programs choose a layer's class by that.
        """
        if not hasattr(self, "kind"):
            raise AttributeError(f"the type of {self.name} cannot be set")
        self.kind = kind

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_input(self, index: int) -> ITensor | None:
        return self.inputs[index] if index in range(len(self.inputs)) else None

    def get_output(self, index: int) -> ITensor | None:
        return self.outputs[index] if index in range(len(self.outputs)) else None

    def set_input(self, index: int, tensor: ITensor | None) -> None:
        """Let it read another tensor; new ones follow those that are there. Nothing for an index
        below 0, which is logged.
        """
        if index < 0:
            self.network.fail(f"{self.name}: no input has index {index}")
            return
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = tensor
        if self.parsed_node is not None:
            self.rewired = True
            self.rewire()
        self.changed()

    def rewire(self) -> None:
        """Let a parser's layer read the inputs that it has."""
        assert self.parsed_node is not None
        self.parsed_node.inputs = tuple(None if t is None else t.value() for t in self.inputs)

    def changed(self) -> None:
        """What was made of it, and of all after it, is out of date; a parser's stay as they are."""
        if not self.is_parsed:
            self.network.outdated(self)

    @property
    def is_parsed(self) -> bool:
        """Whether a parser made it."""
        return self.parsed_node is not None

    def __dir__(self) -> list[str]:
        """Names of TensorRT's alone: programs print what is there."""
        return [name for name in super().__dir__() if name not in OWN and name[:1] != "_"]

    # -- precision --------------------------------------------------------------------------------

    @property
    def own_precision(self) -> DataType:
        """The one that was set, FLOAT if none was."""
        return self._precision or DataType.FLOAT

    @property
    def precision(self) -> DataType:
        return self.own_precision

    @precision.setter
    def precision(self, dtype: DataType) -> None:
        self._precision = dtype

    @property
    def precision_is_set(self) -> bool:
        return self._precision is not None

    def reset_precision(self) -> None:
        self._precision = None

    @property
    def has_precision(self) -> bool:
        """Whether one was set, at any level."""
        return self._precision is not None

    def set_output_type(self, index: int, dtype: DataType) -> None:
        """Nothing for an index that is none, which is logged."""
        if self._has_output(index):
            self._output_types[index] = dtype
            self.changed()

    def get_output_type(self, index: int) -> DataType:
        """FLOAT for an index that is none, which is logged."""
        if not self._has_output(index):
            return DataType.FLOAT
        return self._output_types.get(index) or self.outputs[index].dtype

    def _has_output(self, index: int) -> bool:
        there = index in range(len(self.outputs))
        if not there:
            self.network.fail(f"{self.name}: no output has index {index}: {len(self.outputs)} are")
        return there

    def output_type_is_set(self, index: int) -> bool:
        return index in self._output_types

    def reset_output_type(self, index: int) -> None:
        self._output_types.pop(index, None)
        self.changed()

    @property
    def output_types(self) -> dict[int, DataType]:
        """Those that were set, by output."""
        return self._output_types

    # -- towards tactix ---------------------------------------------------------------------------

    @property
    def reads(self) -> Sequence[ITensor]:
        """All that it hangs on."""
        return [t for t in self.inputs if t is not None]

    @property
    def before(self) -> Sequence[ITensor]:
        """What has to be lowered before it in its scope."""
        return self.reads

    def lower(self, emit: Lowering) -> Sequence[Value]:
        """tactix's layers in its place, which ``emit`` adds. Raises TactixError."""
        raise NetworkError("cannot be lowered", who=self.name)
