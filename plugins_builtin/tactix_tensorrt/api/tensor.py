"""ITensor: what layers give and take, and what a network takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.errors import TactixError
from tactix_tensorrt.api.enums import DataType, TensorFormat, TensorLocation
from tactix_tensorrt.api.sealed import Sealed
from tactix_tensorrt.api.shape_tensors import tells_sizes
from tactix_tensorrt.api.values import FROM_NATIVE, Dims, as_dims
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.contracts.graph import Value
    from tactix_tensorrt.api.layer import ILayer
    from tactix_tensorrt.api.network import INetworkDefinition


@at_this_level
class ITensor(Sealed):
    """Made by networks and layers, one object for one tensor.

    ``layer``: whose output it is, None of inputs; ``index``: which one.
    """

    allowed_formats = sum(f.mask for f in TensorFormat)
    location = TensorLocation.DEVICE

    def __init__(
        self, network: INetworkDefinition, name: str, layer: ILayer | None = None, index: int = 0
    ) -> None:
        self._network, self._name = network, name
        self.layer, self.index = layer, index
        self.wanted_dtype: DataType | None = None
        self.given_shape: Dims | None = None
        self._range: tuple[float, float] | None = None
        self._axes: dict[int, str] = {}

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        changed, self._name = name != self._name, name
        if changed and self.is_network_input:
            self._network.changed_input()

    def value(self) -> Value:
        """tactix's, as the network is now. Raises TactixError for layers that make no sense."""
        return self._network.value_of(self)

    @property
    def shape(self) -> Dims:
        """-1 where it is open; empty where the layers before make no sense, which is logged."""
        if self.given_shape is not None:
            return Dims(self.given_shape)
        try:
            return as_dims(self.value().spec.shape)
        except TactixError as e:
            self._network.fail(e)
            return Dims()

    @shape.setter
    def shape(self, shape: Sequence[int]) -> None:
        """Of inputs."""
        self._network.reshape_input(self, Dims(shape))

    @property
    def dtype(self) -> DataType:
        if self.wanted_dtype is not None:
            return self.wanted_dtype
        try:
            return FROM_NATIVE.get(self.value().spec.dtype, DataType.FLOAT)
        except TactixError as e:
            self._network.fail(e)
            return DataType.FLOAT

    @dtype.setter
    def dtype(self, dtype: DataType) -> None:
        """Of inputs and outputs."""
        self._network.retype(self, dtype)

    @property
    def is_network_input(self) -> bool:
        return any(t is self for t in self._network.inputs)

    @property
    def is_network_output(self) -> bool:
        return any(t is self for t in self._network.outputs)

    @property
    def is_shape_tensor(self) -> bool:
        """Whether its content can be told from shapes, or it is an input that tells sizes."""
        try:
            spec = self.value().spec
        except TactixError:
            return False
        if spec.dtype.is_float or spec.rank > 1:
            return False
        told = self.is_network_input and tells_sizes(self._network.layers, self)
        return told or spec.value is not None

    @property
    def is_execution_tensor(self) -> bool:
        return True

    @property
    def broadcast_across_batch(self) -> bool:
        return False

    @property
    def dynamic_range(self) -> tuple[float, float] | None:
        return self._range

    @dynamic_range.setter
    def dynamic_range(self, limits: tuple[float, float]) -> None:
        self._range = limits

    def set_dynamic_range(self, min: float, max: float) -> bool:
        self._range = (min, max)
        return True

    def reset_dynamic_range(self) -> None:
        self._range = None

    def set_dimension_name(self, index: int, name: str) -> None:
        """Axes of one name have one size."""
        self._axes[index] = name

    def get_dimension_name(self, index: int) -> str | None:
        return self._axes.get(index)
