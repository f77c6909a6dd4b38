"""Pointwise groups: expressions over broadcast operands, formats, loops over all elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format, TensorSpec
from tactix.contracts import region
from tactix.contracts.graph import Node
from tactix.contracts.region import Program
from tactix.contracts.tactic import Reject, Variant
from tactix_codegen.c.scalar import keeps_zero
from tactix_codegen.c.space import Space, collapse, strides_in
from tactix_codegen.c.text import contiguous_strides


@dataclass(frozen=True)
class PointwiseGroup:
    """A pointwise node: its expressions, dtypes of what they read, the shape of all its results."""

    program: Program
    dtypes: tuple[DType, ...]
    shape: Shape


def group_of(node: Node) -> PointwiseGroup | Reject:
    """What to compute; or why it is no work for one loop over elements."""
    body = node.body
    if body.anchor is not None:
        return Reject("the node is not pointwise")
    program = region.program(body, node.specs)
    dtypes = tuple(node.given[i].spec.dtype for i in program.leaves)
    shape = node.outputs[0].spec.shape
    if any(v.spec.shape != shape for v in node.outputs):
        return Reject("the results have different shapes")
    return PointwiseGroup(program, dtypes, shape)


def variants(node: Node, group: PointwiseGroup, fmt: Format) -> list[Variant]:
    """Those with the outputs in ``fmt``. Raises ShapeError if there is none even for linear."""
    if fmt.is_linear:
        for i in group.program.leaves:
            strides_in(node.given[i].spec, LINEAR, group.shape, LINEAR)
        return [Variant()]
    choices = []
    for prefer_linear in (True, False):
        chosen = [_format_of(v.spec, group.shape, fmt, prefer_linear) for v in node.given]
        if None not in chosen:
            choices.append(
                Variant.of([f for f in chosen if f is not None], [fmt] * len(node.outputs))
            )
    return list(dict.fromkeys(choices))


def _format_of(spec: TensorSpec, shape: Shape, fmt: Format, prefer_linear: bool) -> Format | None:
    if spec.shape == shape:
        return fmt
    options = (LINEAR, fmt) if prefer_linear or spec.is_const or fmt == NHWC else (fmt, LINEAR)
    return next((f for f in options if _walkable(spec, f, shape, fmt)), None)


def _walkable(spec: TensorSpec, fmt: Format, shape: Shape, out_fmt: Format) -> bool:
    try:
        return strides_in(spec, fmt, shape, out_fmt)[-1] in (0, 1)
    except ShapeError:
        return False


@dataclass(frozen=True)
class Loops:
    """``space``: strides of the given inputs that are read, then of the outputs.

    ``channels``: of a sample, where blocks have unused lanes; loop 1 then counts the blocks.
    ``likely``: where only running tells which operands the last loop moves, the loops where it
    moves all of these, as it does whenever all of ``moves`` are 1; ``space`` is right in any case.
    """

    space: Space
    channels: Dim | None = None
    likely: Space | None = None
    moves: tuple[Dim, ...] = ()


def loops(node: Node, group: PointwiseGroup, variant: Variant) -> Loops:
    """Over all elements in the storage of a variant's output."""
    fmt = variant.output_format(0)
    sizes = fmt.storage_shape(group.shape)
    leaves = group.program.leaves
    formats = [variant.input_format(i) for i in leaves]
    strides = [strides_in(node.given[i].spec, f, group.shape, fmt) for i, f in zip(leaves, formats)]
    strides.append(contiguous_strides(sizes))
    if fmt.lanes == 1 or dims.mod(group.shape[1], fmt.lanes) == 0:
        return _over_elements(collapse(sizes, strides))
    if all(s == strides[-1] for s in strides) and keeps_zero(group.program.results, group.dtypes):
        return Loops(collapse(sizes, strides))
    return Loops(_over_blocks(sizes, strides), group.shape[1])


def _over_blocks(sizes: Shape, strides: Sequence[Sequence[Dim]]) -> Space:
    """Loops of which none but those between the blocks and their lanes are joined."""
    middle = collapse(sizes[2:-1], [s[2:-1] for s in strides])
    joined = tuple((*s[:2], *m, s[-1]) for s, m in zip(strides, middle.strides, strict=True))
    counts = (*sizes[:2], *middle.sizes, sizes[-1])
    return Space(counts, joined, (None,) * len(counts))


def _over_elements(space: Space) -> Loops:
    """With a last loop of one step where only running tells if the last one moves an operand, as
    most axes do that might be 1.
    """
    moves = tuple(dict.fromkeys(s[-1] for s in space.strides if s[-1] not in (0, 1)))
    if not moves:
        return Loops(space)
    strides = tuple((*s[:-1], 1 if s[-1] in moves else s[-1]) for s in space.strides)
    steady = Space((*space.sizes, 1), tuple((*s, 1) for s in space.strides), (*space.tags, None))
    return Loops(steady, likely=Space(space.sizes, strides, space.tags), moves=moves)
