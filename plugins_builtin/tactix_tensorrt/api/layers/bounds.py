"""What lies between layers at its bounds: loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tactix_tensorrt.api.layer import ILayer
from tactix_tensorrt.api.lowering import Lowering
from tactix_tensorrt.api.scope import Results
from tactix_tensorrt.api.sealed import Sealed
from tactix_tensorrt.api.tensor import ITensor

L = TypeVar("L", bound=ILayer)


class BoundLayer(ILayer):
    """``owner``: whose bound it is; None of what a parser read."""

    owner: Construct | None = None


B = TypeVar("B", bound=BoundLayer)


class Adds(Protocol):
    """Of a network: adds a layer of a class."""

    def __call__(
        self, cls: type[L], inputs: Sequence[ITensor | None], **attributes: object
    ) -> L: ...


class Construct(Sealed):
    """Made by networks. ``layers``: all of the network; ``bounds``: in the order of adding."""

    KIND = ""
    name = ""

    def __init__(self, add: Adds, layers: Sequence[ILayer]) -> None:
        self._add, self.layers = add, layers
        self.label = f"{self.KIND} {len(layers)}"
        self.bounds: list[BoundLayer] = []

    def bound(self, cls: type[B], inputs: Sequence[ITensor | None], **attributes: object) -> B:
        """A new one."""
        layer = self._add(cls, inputs, **attributes)
        layer.owner = self
        self.bounds.append(layer)
        layer.changed()
        return layer

    def of(self, cls: type[B]) -> list[B]:
        """The bounds of a class."""
        return [b for b in self.bounds if isinstance(b, cls)]

    @property
    def tensors(self) -> list[ITensor]:
        """All that bounds read."""
        return [t for b in self.bounds for t in b.inputs if t is not None]

    def check(self, outputs: Sequence[ITensor]) -> None:
        """Raises NetworkError for an output of the network that it cannot have."""

    def lowered(self, emit: Lowering) -> Results:
        """What its output layers give. Raises NetworkError."""
        raise NotImplementedError


def results_of(emit: Lowering, layer: BoundLayer) -> Results:
    """Those of the construct that a layer ends, which is lowered once in a scope."""
    owner = layer.owner
    if owner is None:
        raise emit.refuse("it belongs to no loop or branch")
    return emit.scope.results(owner, lambda: owner.lowered(emit))
