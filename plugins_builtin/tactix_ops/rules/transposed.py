"""A transposed convolution on a processor: a convolution with a channel for each phase of a stride,
whose results are put side by side.

Of stride s, results ``s q + r`` for one phase r are a convolution of stride 1 with every s-th tap,
the first of them tap r, last one first (W. Shi et al., Is the deconvolution layer the same as a
convolutional layer?, 2016). Kernels of convolutions then do it, in every precision that they have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, floordiv, prod
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import RIVAL, Op, P, Rule, const, literal, pointwise, var
from tactix_ops.rules.facts import Array, again

T = P.tactix
MOVES = ("Slice", "Reshape", "Transpose", "DepthToSpace")
MAKERS = (
    "tactix.Convolution@1",
    "tactix.WideConvolution@1",
    "tactix.IntegerConvolution@1",
    "pointwise",
)
FLOATS = (DType.FP32, DType.FP16, DType.BF16)


@dataclass(frozen=True)
class Phases:
    """One axis. ``taps``: of each phase; ``begin``: where results start among those of all phases;
    ``pads``: of the convolution.
    """

    stride: int
    kernel: int
    dilation: int
    begin: int
    pads: tuple[int, int]

    @property
    def taps(self) -> int:
        return -(-self.kernel // self.stride)


def _bias(root: Node) -> Value | None:
    return root.inputs[2] if len(root.inputs) > 2 else None


def phases_of(root: Node) -> list[Phases] | None:
    """Of every spatial axis; None where one of them is none."""
    a, kernel = root.attrs, root.given[1].spec.shape[2:]
    rank = len(kernel)
    strides, dilations = a.strides or (1,) * rank, a.dilations or (1,) * rank
    pads, extra = a.pads or (0,) * 2 * rank, a.output_padding or (0,) * rank
    axes = zip(strides, kernel, dilations, pads[:rank], pads[rank:], extra, strict=True)
    return [found for axis in axes if (found := _phases(*axis))] if _known(root) else None


def _known(root: Node) -> bool:
    sizes = (*root.given[0].spec.shape[1:2], *root.given[1].spec.shape, *root.attrs.pads)
    return all(isinstance(d, int) for d in sizes) and 0 not in root.given[1].spec.shape


def _phases(s: int, k: int, d: int, before: int, after: int, extra: int) -> Phases | None:
    """Results begin ``before`` places after the first, in row ``before // s`` of the phases; the
    first row that sees all taps is ``taps - 1``.
    """
    if s > 1 and d > 1:
        return None
    reach = d * (k - 1) + 1
    lead = d * (-(-k // s) - 1) - before // s
    tail = (extra + reach - after - 1) // s
    return Phases(s, k, d, before % s, (lead, tail)) if lead >= 0 and tail >= 0 else None


def _when(root: Node, x: Value, w: Value) -> bool | str:
    b, found = _bias(root), phases_of(root)
    if x.spec.dtype not in FLOATS or w.spec.dtype is not x.spec.dtype:
        return "it is not of floats that convolutions have kernels for"
    if b is not None and b.const is None:
        return "the bias is computed"
    if (
        found is None
        or len(found) < x.spec.rank - 2
        or 0 in (*x.spec.shape, *root.outputs[0].spec.shape)
    ):
        return "pads or sizes are not known or empty, or pads cut more than taps reach"
    apart = root.attrs.group == 1 and x.spec.rank < 5 and not any(root.attrs.pads)
    if apart and all(p.taps == 1 and p.kernel == p.stride for p in found):
        return "its windows do not overlap: there are kernels for that"
    return True


def weights_of_phases(w: Array, group: int, axes: list[Phases]) -> Array:
    """(M times phases, C / group, taps of a phase...), of a group its M, of each its phases."""
    rank = len(axes)
    full = np.pad(w, [(0, 0), (0, 0), *((0, p.taps * p.stride - p.kernel) for p in axes)])
    split = full.reshape(
        group, w.shape[0] // group, w.shape[1], *(n for p in axes for n in (p.taps, p.stride))
    )
    turns: Any = (..., *(slice(None, None, n) for _ in axes for n in (-1, 1)))
    flipped = split[turns]
    taps, phases = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    turned = flipped.transpose(0, 2, *phases, 1, *taps)
    count = phase_count(axes)
    return turned.reshape(group * w.shape[1] * count, w.shape[0] // group, *(p.taps for p in axes))


def phase_count(axes: list[Phases]) -> int:
    """How many channels of the convolution become one."""
    return math.prod(p.stride for p in axes)


def _spread(root: Node, x: Value, w: Value) -> Op:
    axes = phases_of(root)
    assert axes is not None
    group, b, count = root.attrs.group, _bias(root), phase_count(axes)
    inputs: list[Any] = [x, literal(weights_of_phases(w.array, group, axes))]
    if b is not None:
        every = np.broadcast_to(b.array.reshape(-1, 1), (b.array.size, count))
        inputs.append(literal(every.reshape(-1)))
    y = T.Convolution(
        *inputs,
        group=group,
        dilations=tuple(p.dilation for p in axes),
        pads=(*(p.pads[0] for p in axes), *(p.pads[1] for p in axes)),
    )
    return side_by_side(y, root, axes)


def side_by_side(y: Op, root: Node, axes: list[Phases]) -> Op:
    """The phases of every axis next to each other, and the part of them that is asked for."""
    if phase_count(axes) == 1:
        return y
    x, (batch, channels, *out) = root.given[0].spec, root.outputs[0].spec.shape
    rows: list[Dim] = [
        d + sum(p.pads) - p.dilation * (p.taps - 1) for d, p in zip(x.shape[2:], axes, strict=True)
    ]
    strides, rank = [p.stride for p in axes], len(axes)
    split = T.Reshape(y, shape=(batch, channels, *strides, *rows))
    order = (0, 1, *(i for k in range(rank) for i in (2 + rank + k, 2 + k)))
    full = [n * s for n, s in zip(rows, strides, strict=True)]
    joined = T.Reshape(T.Transpose(split, perm=order), shape=(batch, channels, *full))
    begins = tuple(p.begin for p in axes)
    if not any(begins) and full == out:
        return joined
    where = tuple(range(2, 2 + rank))
    return T.Slice(joined, begins=begins, sizes=tuple(out), axes=where, steps=(1,) * rank)


def _example(net: Any) -> None:
    rng = np.random.default_rng(6)
    x = net.add_input("x", "f32", ["n", 4, 5, "w"])
    w, b = (
        net.add_constant(rng.standard_normal(s, dtype=np.float32)) for s in ((4, 3, 5, 4), (6,))
    )
    (y,) = net.add_layer(
        "tactix.ConvTranspose",
        [x, w, b],
        group=2,
        strides=(2, 3),
        pads=(1, 4, 2, 1),
        output_padding=(1, 0),
    )
    net.mark_output(y, "y")


# -- computed weights -----------------------------------------------------------------------------


def _when_computed(root: Node, x: Value, w: Value) -> bool | str:
    if w.const is not None or x.spec.dtype is not DType.FP32 or w.spec.dtype is not DType.FP32:
        return "the weights are constant, or it is not of float32"
    if 0 in (*x.spec.shape[1:], *w.spec.shape, *root.outputs[0].spec.shape[1:]):
        return "sizes are empty"
    if not all(isinstance(d, int) for d in root.attrs.pads):
        return "pads are not known"
    if not any(s > 1 for s in root.attrs.strides):
        return "its stride is 1: there are kernels for that"
    return True


def _columns(root: Node, x: Value, w: Value) -> Op:
    """What each pixel of the input adds to a window of the result is a product; then windows are
    added up where they lie. A convolution over an input with zeros between its pixels would
    multiply these.
    """
    a, b, rank = root.attrs, _bias(root), x.spec.rank - 2
    (n, channels, *size), (depth, outputs, *kernel) = x.spec.shape, w.spec.shape
    block = outputs * prod(kernel)
    by_group = T.Reshape(w, shape=(1, a.group, floordiv(depth, a.group), block))
    taps = T.Transpose(by_group, perm=(0, 1, 3, 2))
    pixels = T.Reshape(x, shape=(n, a.group, floordiv(channels, a.group), prod(size)))
    columns = T.Reshape(T.MatMul(taps, pixels), shape=(n, a.group * block, prod(size)))
    y = T.Col2Im(
        columns,
        _sizes(root.outputs[0].spec.shape[2:]),
        _sizes(kernel),
        strides=a.strides,
        dilations=a.dilations,
        pads=a.pads,
    )
    if b is None:
        return y
    return T.Add(y, T.Reshape(b, shape=(1, a.group * outputs, *(1,) * rank)))


def _sizes(shape: Sequence[Dim]) -> Op:
    return T.Dims(values=tuple(shape), shape=(len(shape),))


def _columns_example(net: Any) -> None:
    x, w, b = (
        net.add_input(name, "f32", shape)
        for name, shape in (("x", ["n", 4, 5, "s"]), ("w", [4, 3, 4, 3]), ("b", [6]))
    )
    (y,) = net.add_layer(
        "tactix.ConvTranspose",
        [x, w, b],
        group=2,
        strides=(2, 3),
        pads=(1, 0, 1, 1),
        output_padding=(1, 0),
    )
    net.mark_output(y, "y")


# -- what follows ---------------------------------------------------------------------------------


def _moves_of(root: Node, graph: Any) -> list[Node]:
    """What puts phases side by side between a convolution, or what follows it, and the node, the
    last move first; empty if that is not so, or others read something between.
    """
    v, found = _moved(root), []
    while v.producer is not None and v.producer.layer.name in MOVES and graph.only_use(v):
        found.append(v.producer)
        v = v.producer.given[0]
    made = v.producer is not None and v.producer.kind in MAKERS and graph.only_use(v)
    return found if made and _spreads(found) else []


def _spreads(moves: list[Node]) -> bool:
    """Whether the first moves, which stand last, make pixels of channels."""
    if moves and moves[-1].layer.name == "DepthToSpace":
        return True
    return len(moves) > 1 and splits_channels(moves[-1]) and moves[-2].layer.name == "Transpose"


def splits_channels(node: Node) -> bool:
    """Whether a Reshape makes axes of phases of the channels, axes of size 1 left out or not."""
    before, after = (v[0].spec.shape for v in (node.given, node.outputs))
    sizes, split = ([d for d in shape if d != 1] for shape in (before, after))
    return after[-len(before[2:]) :] == before[2:] and len(split) > len(sizes)


def _narrows_or_keeps(root: Node) -> bool:
    """Whether it has one operand beside single numbers, and no wider results: those would move
    more bytes.
    """
    if root.is_fused or any(v is None for v in root.inputs):
        return False
    others = [v for v in root.given if v is not _moved(root)]
    single = all(v.const is not None and v.const.size == 1 for v in others)
    same = _moved(root).spec.shape == root.outputs[0].spec.shape
    return single and same and root.outputs[0].spec.dtype.bits <= _moved(root).spec.dtype.bits


def _moved(root: Node) -> Value:
    """The operand that is computed."""
    return next((v for v in root.given if v.const is None), root.given[0])


def _before_moves(root: Node, graph: Any) -> Op:
    moves = _moves_of(root, graph)
    first = moves[-1].given[0]
    op: Any = again(root, [first if v is _moved(root) else _flat(v) for v in root.given])
    for node in reversed(moves):
        op = again(node, [op])
    return op  # type: ignore[no-any-return]


def _flat(v: Value) -> Any:
    """A single number without axes, which are those of the moved tensor."""
    return literal(v.array.reshape(()))


def _before_example(net: Any) -> None:
    x = net.add_input("x", "f32", ["n", 3, "w"])
    w = net.add_constant(np.random.default_rng(7).standard_normal((8, 3, 2), dtype=np.float32))
    (y,) = net.add_layer("tactix.Convolution", [x, w], pads=(1, 1))
    n, _, width = y.spec.shape
    (y,) = net.add_layer("tactix.Reshape", [y], shape=(n, 2, 4, width))
    (y,) = net.add_layer("tactix.Transpose", [y], perm=(0, 1, 3, 2))
    net.mark_output(net.add_layer("tactix.Relu", [y])[0], "y")


RULES = (
    Rule(
        "tactix.transposed_as_convolution",
        T.ConvTranspose(var("x"), const("w")),
        _spread,
        _when,
        benefit=98,
        numerics="reassociates",
        example=_example,
        phase="fuse",
        device="cpu",
    ),
    Rule(
        "tactix.columns_for_transposed",
        T.ConvTranspose(var("x"), var("w")),
        _columns,
        _when_computed,
        numerics="reassociates",
        example=_columns_example,
        phase=RIVAL,
        device="cpu",
    ),
    Rule(
        "tactix.pointwise_before_phases_move",
        pointwise(),
        _before_moves,
        lambda root, graph: _narrows_or_keeps(root) and bool(_moves_of(root, graph)),
        benefit=96,
        example=_before_example,
        phase="fuse",
        device="cpu",
    ),
)
