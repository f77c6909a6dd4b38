"""Chains of reshapes, transposes and one padding as one permutation: with axes so short that both
sides are views.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Padding:
    """Zeros around the axes of a source of that shape."""

    shape: tuple[int, ...] = ()
    widths: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Move:
    """``target.reshape(target_shape)`` is ``source.reshape(source_shape).transpose(axes)``, after
    the padding.
    """

    source_shape: tuple[int, ...]
    axes: tuple[int, ...]
    padding: Padding

    @property
    def target_shape(self) -> tuple[int, ...]:
        return tuple(self.source_shape[a] for a in self.axes)


class _Atom:
    """A part of an axis; one that is cut has two others in its place."""

    __slots__ = ("parts", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: tuple[_Atom, ...] = ()

    def whole(self) -> list[_Atom]:
        return [a for p in self.parts for a in p.whole()] if self.parts else [self]

    def cut(self, inner: int) -> list[_Atom]:
        self.parts = (_Atom(self.size // inner), _Atom(inner))
        return list(self.parts)


def _regrouped(atoms: list[_Atom], shape: Sequence[int]) -> list[list[_Atom]] | None:
    """The atoms of each axis of a new shape, cut where it needs that; None where they cannot be cut
    so.
    """
    rest, out = atoms[::-1], []
    for size in shape:
        group: list[_Atom] = []
        left = size
        while left > 1:
            a = rest.pop()
            if left % a.size:
                if a.size % left:
                    return None
                a, inner = a.cut(a.size // left)
                rest.append(inner)
            left //= a.size
            group.append(a)
        out.append(group)
    return out


def composed(shape: Sequence[int], chain: Sequence[tuple[str, Sequence[Any]]]) -> Move | None:
    """The chain over an array of that shape; None if it is more than a permutation, or has an axis
    of size 0.
    """
    if not math.prod(shape):
        return None
    source = [_Atom(n) for n in shape if n > 1]
    axes: list[list[_Atom]] | None = _regrouped(source, shape)
    padding = Padding()
    for op, params in chain:
        if axes is None:
            return None
        if op == "transpose":
            axes = [axes[a] for a in params[0]]
        elif op == "reshape":
            axes = _regrouped(_leaves(a for group in axes for a in group), params[0])
        else:
            padding = _padded(source, axes, params[0], padding)
            axes = axes if padding.widths else None
    if axes is None:
        return None
    order = _leaves(source)
    place = {id(a): i for i, a in enumerate(order)}
    target = _leaves(a for group in axes for a in group)
    return _merged([a.size for a in order], [place[id(a)] for a in target], padding)


def _leaves(atoms: Iterable[_Atom]) -> list[_Atom]:
    return [w for a in atoms for w in a.whole()]


def _padded(
    source: list[_Atom], axes: list[list[_Atom]], widths: Sequence[Sequence[int]], before: Padding
) -> Padding:
    """The atoms grow; without widths where an axis is not one of them, or was padded before."""
    own = {
        id(group[0]): (a, b)
        for group, (a, b) in zip(axes, widths, strict=True)
        if len(group) == 1 and (a or b)
    }
    leaves = _leaves(source)
    if (
        before.widths
        or len(own) < sum(bool(a or b) for a, b in widths)
        or own.keys() - {id(w) for w in leaves}
    ):
        return Padding()
    out = Padding(tuple(w.size for w in leaves), tuple(own.get(id(w), (0, 0)) for w in leaves))
    for w in leaves:
        w.size += sum(own.get(id(w), (0, 0)))
    return out


def _merged(sizes: list[int], axes: list[int], padding: Padding) -> Move:
    """With neighbours that stay neighbours as one axis."""
    follows = [k > 0 and axes[k] == axes[k - 1] + 1 for k in range(len(axes))]
    starts = sorted(a for a, joined in zip(axes, follows, strict=True) if not joined)
    ends = [*starts[1:], len(sizes)][: len(starts)]
    shape = tuple(math.prod(sizes[a:b]) for a, b in zip(starts, ends, strict=True))
    return Move(
        shape,
        tuple(starts.index(a) for a, joined in zip(axes, follows, strict=True) if not joined),
        padding,
    )
