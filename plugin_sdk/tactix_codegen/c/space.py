"""Loop nests over tensors: which dims can be walked as one, and the strides of operands in blocked
storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.errors import ShapeError
from tactix.base.tensor import Format, TensorSpec
from tactix_codegen.c.text import running_strides


@dataclass(frozen=True)
class Space:
    """``sizes`` of loops, outermost first; ``strides[k]``: elements that operand ``k`` moves per
    step of each loop.

    ``tags``: a mark for each loop.
    """

    sizes: tuple[Dim, ...]
    strides: tuple[tuple[Dim, ...], ...]
    tags: tuple[object, ...]


def collapse(
    sizes: Sequence[Dim], strides: Sequence[Sequence[Dim]], tags: Sequence[object] = ()
) -> Space:
    """Leave out loops of one step, and join neighbours of equal tags where every operand goes on in
    even steps.

    At least one loop is left, of tag None if all had one step.
    """
    marks = list(tags) or [None] * len(sizes)
    kept: list[tuple[Dim, list[Dim], object]] = []
    for i, size in enumerate(sizes):
        own = [s[i] for s in strides]
        if size == 1:
            continue
        if (
            kept
            and kept[-1][2] == marks[i]
            and all(o == s * size for o, s in zip(kept[-1][1], own, strict=True))
        ):
            kept[-1] = (kept[-1][0] * size, own, marks[i])
        else:
            kept.append((size, own, marks[i]))
    if not kept:
        kept = [(1, [1] * len(strides), None)]
    by_operand = tuple(tuple(k[1][o] for k in kept) for o in range(len(strides)))
    return Space(tuple(k[0] for k in kept), by_operand, tuple(k[2] for k in kept))


def strides_in(spec: TensorSpec, fmt: Format, out: Shape, out_fmt: Format) -> tuple[Dim, ...]:
    """Strides of an operand in format ``fmt`` along the storage dims of a tensor of shape ``out``
    in ``out_fmt``.

    Those of dims that may turn out to repeat are expressions of symbols. Raises ShapeError where
    the operand cannot be walked so.
    """
    if fmt == out_fmt and not fmt.is_linear:
        return _same_format(spec, fmt, out)
    if not fmt.is_linear:
        raise ShapeError(f"an operand is {fmt.name} where the output is {out_fmt.name}")
    own = running_strides(spec.shape, out)
    if out_fmt.is_linear:
        return own
    batch, channel, *spatial = own
    if out_fmt.name == "nhwc":
        return (batch, *spatial, channel)
    return (batch, channel * out_fmt.lanes, *spatial, channel)


def _same_format(spec: TensorSpec, fmt: Format, out: Shape) -> tuple[Dim, ...]:
    if spec.rank != len(out) or (fmt.lanes > 1 and spec.shape[1] != out[1]):
        raise ShapeError(f"an operand of shape {dims.show(spec.shape)} cannot be {fmt.name} here")
    return running_strides(fmt.storage_shape(spec.shape), fmt.storage_shape(out))
