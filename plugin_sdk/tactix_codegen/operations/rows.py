"""Softmax and normalisations: how a tensor falls into rows, which do not know of each other."""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.contracts.region import BodyNode
from tactix_codegen.c.space import Space, collapse
from tactix_codegen.c.text import running_strides

OUTER, ROW = "outer", "row"
"""Tags of loops: those that tell rows apart, and those along a row."""

SOFTMAXES = ("tactix.Softmax@1", "tactix.LogSoftmax@1")
NORMALIZATIONS = (
    "tactix.LayerNormalization@1",
    "tactix.RMSNormalization@1",
    "tactix.InstanceNormalization@1",
    "tactix.GroupNormalization@1",
)
PER_CHANNEL = ("InstanceNormalization", "GroupNormalization")
"""Normalisations of groups of channels, with a parameter for each channel."""


def parameter_strides(anchor: BodyNode, parameter: Shape, shape: Shape) -> tuple[Dim, ...]:
    """Strides of a scale or bias along the dims of what is normalised: expressions of symbols where
    only running tells which of its axes repeat.
    """
    if anchor.layer.name in PER_CHANNEL:
        return (0, 1, *(0 for _ in shape[2:]))
    return running_strides(parameter, shape)


def repeats_nothing(parameter: Shape, shape: Shape) -> Shape:
    """The parameter's shape where it has all axes of which only running tells whether they repeat,
    as most have.
    """
    pairs = zip(parameter, shape[len(shape) - len(parameter) :], strict=True)
    return tuple(d if d == 1 else own for d, own in pairs)


def steady(loops: Space) -> Space:
    """With a last loop of one step where only running tells if the last one moves an operand."""
    if all(s[-1] in (0, 1) for s in loops.strides):
        return loops
    return Space((*loops.sizes, 1), tuple((*s, 1) for s in loops.strides), (*loops.tags, ROW))


def space(
    anchor: BodyNode,
    shape: Shape,
    strides: Sequence[Sequence[Dim]],
    channels_last: bool = False,
) -> Space:
    """Tagged loops over the rows and, as the last ones, along them.

    ``shape``: of the anchor's first input; ``strides``: of each operand along its dims.
    ``channels_last``: channels of a group are the innermost loop; for normalisations of these.
    """
    if anchor.layer.name in PER_CHANNEL:
        return _groups(anchor, shape, strides, channels_last)
    rank = len(shape)
    axis = anchor.attrs.axis % rank
    end = axis + 1 if anchor.layer.key in SOFTMAXES else rank
    order = [*range(axis), *range(end, rank), *range(axis, end)]
    tags = [ROW if axis <= i < end else OUTER for i in order]
    moved = [[s[i] for i in order] for s in strides]
    return _ending_in_a_row(collapse([shape[i] for i in order], moved, tags))


def _groups(
    anchor: BodyNode, shape: Shape, strides: Sequence[Sequence[Dim]], channels_last: bool
) -> Space:
    """Rows are groups of channels."""
    groups: Dim = shape[1]
    if anchor.layer.name == "GroupNormalization":
        groups = anchor.attrs.num_groups
    each = dims.floordiv(shape[1], groups)

    def ordered(batch: Dim, group: Dim, channel: Dim, *rest: Dim) -> tuple[Dim, ...]:
        inner = (*rest, channel) if channels_last else (channel, *rest)
        return (batch, group, *inner)

    tags = [OUTER, OUTER] + [ROW] * (len(shape) - 1)
    grouped = [ordered(batch, channel * each, channel, *rest) for batch, channel, *rest in strides]
    return _ending_in_a_row(collapse(ordered(shape[0], groups, each, *shape[2:]), grouped, tags))


def _ending_in_a_row(loops: Space) -> Space:
    """With a row of one element where the row's axes all have length 1."""
    if loops.tags[-1] == ROW:
        return loops
    if loops.tags == (None,):
        return Space((1,), loops.strides, (ROW,))
    return Space((*loops.sizes, 1), tuple((*s, 1) for s in loops.strides), (*loops.tags, ROW))
