"""Names that a program gives weights of its layers, for refits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix_tensorrt.api.enums import WeightsRole
from tactix_tensorrt.api.values import Weights, weights_array

if TYPE_CHECKING:
    from tactix_tensorrt.api.layer import ILayer
    from tactix_tensorrt.api.values import Array

Roles = dict[str, dict[WeightsRole, str]]
"""Names of weights, by layer and role."""

ATTRIBUTES = ("kernel", "bias", "scale", "shift", "power", "weights")
"""Of layers that have weights."""


class WeightsNames:
    """By the memory in which weights lie, as programs make objects anew."""

    def __init__(self) -> None:
        self._given: list[tuple[Weights | Array, str]] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._given)

    def of(self, weights: Weights | Array) -> str | None:
        """The name that weights have, None for those without."""
        return next((name for known, name in self._given if _same(known, weights)), None)

    def taken(self, name: str, weights: Weights | Array) -> bool:
        """Whether others have that name."""
        return any(n == name and not _same(known, weights) for known, n in self._given)

    def names(self) -> set[str]:
        """All that were given."""
        return {name for _, name in self._given}

    def set(self, weights: Weights | Array, name: str | None) -> None:
        """Give weights a name; None takes it away."""
        self._given = [(known, n) for known, n in self._given if not _same(known, weights)]
        if name:
            self._given.append((weights, name))


def users(layers: Sequence[ILayer], weights: Weights | Array) -> list[str]:
    """Names of the layers that have these weights, once for each use."""
    held = ((layer, getattr(layer, key, None)) for layer in layers for key in ATTRIBUTES)
    return [layer.name for layer, own in held if own is not None and _same(own, weights)]


def named(layers: Sequence[ILayer]) -> set[str]:
    """What weights of added layers are called that have no name of their own."""
    own = (layer for layer in layers if not layer.is_parsed)
    return {
        f"{layer.name}.{'constant' if key == 'weights' else key}"
        for layer in own
        for key in ATTRIBUTES
        if getattr(layer, key, None) is not None
    }


def _same(one: Weights | Array, other: Weights | Array) -> bool:
    if one is other:
        return True
    a, b = weights_array(one), weights_array(other)
    if a is None or b is None:
        return False
    return (a.ctypes.data, a.dtype, a.size) == (b.ctypes.data, b.dtype, b.size)
