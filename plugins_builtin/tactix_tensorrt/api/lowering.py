"""How a layer becomes layers of tactix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import NetworkError
from tactix_tensorrt.api.values import FROM_NATIVE, Dims, Weights, weights_array

if TYPE_CHECKING:
    import numpy as np

    from tactix.contracts.graph import Node, Value
    from tactix.contracts.layer import Layer
    from tactix.network.definition import NetworkDefinition
    from tactix_tensorrt.api.enums import WeightsRole
    from tactix_tensorrt.api.layer import ILayer
    from tactix_tensorrt.api.scope import Scope
    from tactix_tensorrt.api.tensor import ITensor
    from tactix_tensorrt.api.values import Array


FLOATS = frozenset({DType.FP32, DType.FP16, DType.BF16})
INTEGERS = frozenset({DType.INT32, DType.INT64})


class Lowering:
    """Adds tactix's layers in place of one, where ``scope`` is. ``nodes``: those that it added."""

    def __init__(self, scope: Scope, layer: ILayer) -> None:
        self.scope, self._net, self._layer = scope, scope.native, layer
        self.nodes: list[Node] = []

    def value(self, tensor: ITensor) -> Value:
        """tactix's of another tensor than an input."""
        return self.scope.value_of(tensor)

    def symbol(self, what: str) -> str:
        """The name of a size that only running tells."""
        return f"{self.scope.label}{what}_{self._layer.name}"

    @property
    def inputs(self) -> list[Value | None]:
        return [None if t is None else self.value(t) for t in self._layer.inputs]

    def input(self, index: int) -> Value:
        """Raises NetworkError for one that is not there."""
        found = self.optional(index)
        if found is None:
            raise NetworkError(f"input {index} is missing", who=self._layer.name)
        return found

    def optional(self, index: int) -> Value | None:
        tensor = self._layer.get_input(index)
        return None if tensor is None else self.value(tensor)

    def all(self, kind: str, inputs: Sequence[Value | None], **fields: Any) -> tuple[Value, ...]:
        """The outputs of a layer of tactix's, such as ``Relu``."""
        return self.layers(f"tactix.{kind}", inputs, **fields)

    def layers(
        self, layer: str | Layer, inputs: Sequence[Value | None], **fields: Any
    ) -> tuple[Value, ...]:
        """The outputs of a layer, by key or itself."""
        made = self._net.add_layer(layer, inputs, name=self._layer.name, **fields)
        node = made[0].producer
        assert node is not None
        self.nodes.append(node)
        return made

    def by(self, add: Callable[[NetworkDefinition, str], list[Value]]) -> list[Value]:
        """What another adds to the network under the layer's name."""
        before = len(self._net.nodes)
        made = add(self._net, self._layer.name)
        self.nodes += self._net.nodes[before:]
        return made

    def one(self, kind: str, *inputs: Value | None, **fields: Any) -> Value:
        """The only output of one."""
        return self.all(kind, inputs, **fields)[0]

    def weights(
        self, given: Weights | Array | None, role: WeightsRole, shape: Sequence[int] | None = None
    ) -> Value | None:
        """Numbers that a program gave the layer, under their name, as ``constant``; None for none.
        Refitters find them by the layer and the role.
        """
        array = weights_array(given)
        if given is None or array is None:
            return None
        network = self._layer.network
        own = f"{self._layer.name}.{role.name.lower()}"
        made = self.constant(array, shape, network.weights_names.of(given) or own)
        network.roles.setdefault(self._layer.name, {})[role] = made.name
        return made

    def constant(
        self, array: Array, shape: Sequence[int] | None = None, name: str | None = None
    ) -> Value:
        """Numbers in a shape, in which one size may be -1. Raises NetworkError if they do not
        fill it.
        """
        try:
            shaped = array if shape is None else array.reshape(tuple(shape))
        except ValueError:
            what = f"{array.size} weights do not fill {tuple(shape or ())}"
            raise NetworkError(what, who=self._layer.name) from None
        return self._net.add_constant(shaped, name or f"{self._layer.name}.weights")

    def number(self, value: float, like: Value) -> Value:
        """A scalar of the dtype of another tensor."""
        return self.constant(scalar(value, like.spec.dtype))

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.spec.dtype is dtype else self.one("Cast", x, to=dtype)

    def alike(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Two numbers' tensors in one dtype: the wider of two floats, or of two integers. Raises
        NetworkError for others, and for all that differ in a strongly typed network.
        """
        one, other = a.spec.dtype, b.spec.dtype
        if one is other:
            return a, b
        typed = self._layer.network.is_strongly_typed
        for family, widest in ((FLOATS, DType.FP32), (INTEGERS, DType.INT64)):
            if not typed and {one, other} <= family:
                return self.cast(a, widest), self.cast(b, widest)
        what = f"inputs of {FROM_NATIVE[one].name} and {FROM_NATIVE[other].name}"
        raise self.refuse(f"{what}: both must have one type", "Add a layer by add_cast")

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        return self.one("Reshape", x, shape=tuple(shape))

    def part(self, x: Value, axis: int, begin: Dim, size: Dim, step: int = 1) -> Value:
        """``size`` elements along an axis, from ``begin`` on, each ``step`` after the last."""
        fields = {"begins": (begin,), "sizes": (size,), "axes": (axis,), "steps": (step,)}
        return self.one("Slice", x, **fields)

    def counter(self, size: Dim, axis: int, rank: int) -> Value:
        """``0, 1, ...`` along one of ``rank`` axes, int64."""
        ends = [self.one("Dims", values=(n,), shape=()) for n in (0, size, 1)]
        shape = [size if i == axis else 1 for i in range(rank)]
        return self.reshape(self.one("Range", *ends), shape)

    def content(self, x: Value, what: str) -> tuple[Dim, ...]:
        """The integers in a tensor, as far as shapes tell them. Raises NetworkError."""
        spec = x.spec
        if spec.const is not None:
            return tuple(int(n) for n in spec.const.ravel())
        if spec.value is not None:
            return tuple(spec.value)
        do = "Give them as attributes, or compute them from shapes and constants"
        raise NetworkError(f"{what} hang on data", who=self._layer.name, do=do)

    def refuse(self, why: str, do: str = "") -> NetworkError:
        return NetworkError(why, who=self._layer.name, do=do)


def scalar(value: float, dtype: DType) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.asarray(value, dtype.numpy)


def axes_of(mask: int) -> tuple[int, ...]:
    """Axes that a mask names."""
    return tuple(i for i in range(Dims.MAX_DIMS) if mask >> i & 1)
