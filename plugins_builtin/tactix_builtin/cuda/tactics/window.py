"""The geometry of a convolution with channels last, and its epilogue along the axes as they lie there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.contracts.artifact import Packed
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix.words.dims import Dim, Shape, prod, symbols
from tactix.words.dtypes import DType
from tactix.words.errors import ShapeError
from tactix.words.tensor import LINEAR, NHWC, Format
from tactix_builtin.cuda.tactics import results
from tactix_builtin.cuda.tactics.text import Args
from tactix_builtin.tactics.c_epilogue import Epilogue, Operand, anchor_spec, epilogue
from tactix_builtin.tactics.c_text import broadcast_strides
from tactix_builtin.tactics.c_tile import with_term


@dataclass(frozen=True)
class Window:
    """A convolution over two spatial axes (one axis gets a first one of size 1) of given inputs ``x`` and ``w``.

    Sizes are (rows, columns); ``begins``: padding above and left. ``lead``: the axes that output pixels flatten;
    ``epi`` includes the bias, its operand strides are along ``(*lead, channel)`` of channels-last storage.
    """

    x: int
    w: int
    n: Dim
    c: int
    co: int
    group: int
    size: tuple[Dim, Dim]
    out: tuple[Dim, Dim]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    begins: tuple[int, int]
    ends: tuple[int, int]
    lead: Shape
    dtype: DType
    epi: Epilogue

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether every output pixel is made of the one input pixel at its place."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any((*self.begins, *self.ends))

    @property
    def pixels(self) -> Dim:
        """Output pixels of all images."""
        return prod(self.lead)

    def sizes(self) -> list[dict[str, int]]:
        """Values of the symbols to choose kernels for: small and large batches, images of a middle size."""
        spatial = symbols(prod((*self.size, *self.out)))
        batches = symbols(self.n) - spatial
        common = dict.fromkeys(spatial, 56)
        return [{**common, **dict.fromkeys(batches, count)} for count in ((1, 8, 128) if batches else (1,))]


def window(node: Node) -> Window | Reject:
    """The geometry of a Convolution or WideConvolution with constant weights; or why these kernels cannot take it."""
    epi, anchor = epilogue(node, vector=False), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    x, w = (node.given[i].spec for i in anchor.inputs[:2])
    a, rank = anchor.attrs, x.rank - 2
    pads = tuple(a.pads) or (0,) * 2 * rank
    mixed = x.dtype is not w.dtype and anchor.layer.name != "IntegerConvolution"
    if rank not in (1, 2) or not w.is_const or mixed:
        return Reject("these kernels take one or two spatial axes, constant weights and one dtype")
    if not all(isinstance(p, int) and p >= 0 for p in pads) or not isinstance(x.shape[1], int):
        return Reject("pads are negative, or they or the channels are not known")
    if any(d == 0 for d in (*x.shape, *w.shape, *epi.shape)):
        return Reject("a tensor is empty")
    try:
        whole = _channels_last(_biased(node, epi, (*anchor.inputs, -1)[2]))
    except ShapeError as e:
        return Reject(str(e))
    if reason := results.why_not(whole):
        return Reject(reason)

    def two(values: Sequence[Any], default: Any = 1) -> Any:
        return (*(default,) * (2 - rank), *(values or (default,) * rank))

    y = anchor_spec(node)
    return Window(
        anchor.inputs[0], anchor.inputs[1], x.shape[0], x.shape[1], int(w.const.shape[0]), a.group, two(x.shape[2:]),
        two(y.shape[2:]), two(w.const.shape[2:]), two(a.strides), two(a.dilations), two(pads[:rank], 0),
        two(pads[rank:], 0), (y.shape[0], *y.shape[2:]), x.dtype, whole,
    )  # fmt: skip


def _biased(node: Node, epi: Epilogue, index: int) -> Epilogue:
    if index < 0:
        return epi
    spec = node.given[index].spec
    shape = (*spec.shape, *(1,) * (len(epi.shape) - 2))
    term = Operand(index, spec.dtype, shape, broadcast_strides(shape, epi.shape), False)
    return with_term(epi, term, lambda y, b: y + b)


def _padded(operand: Operand, rank: int) -> Shape:
    return (1,) * (rank - len(operand.shape)) + operand.shape


def _last(shape: Shape) -> Shape:
    """(n, c, spatial...) as (n, spatial..., c)."""
    n, c, *spatial = shape
    return (n, *spatial, c)


def _channels_last(epi: Epilogue) -> Epilogue:
    rank, out = len(epi.shape), _last(epi.shape)
    moved = {v: replace(o, strides=broadcast_strides(_last(_padded(o, rank)), out)) for v, o in epi.operands.items()}
    return replace(epi, operands=moved, shape=out)


def _is_turned(operand: Operand, rank: int) -> bool:
    """Whether an operand's elements lie in another order with channels last than linear."""
    _, c, *spatial = _padded(operand, rank)
    return c != 1 and any(d != 1 for d in spatial)


def formats(node: Node, win: Window, source: Format) -> tuple[Format, ...] | Reject:
    """Formats of the given inputs: ``source`` for x, channels last for operands with channels and pixels."""
    rank = len(win.epi.shape)
    wanted: dict[int, set[Format]] = {win.x: {source}}
    for o in win.epi.operands.values():
        if node.given[o.index].const is None:
            turned = _is_turned(o, rank)
            if turned and len(o.shape) != rank:
                return Reject("an epilogue operand with channels has another rank than the output")
            wanted.setdefault(o.index, set()).add(NHWC if turned else LINEAR)
    if any(len(f) > 1 for f in wanted.values()):
        return Reject("one tensor would be needed in two formats")
    return tuple(min(wanted.get(i, {LINEAR})) for i in range(len(node.given)))


def pointers(node: Node, win: Window, args: Args) -> dict[int, str]:
    """Constant operands that the build has to turn, by given input."""
    out, rank = {}, len(win.epi.shape)
    for o in win.epi.operands.values():
        if node.given[o.index].const is not None and _is_turned(o, rank):
            axes = (0, *range(2, rank), 1)
            steps: tuple[tuple[str, Any], ...] = (("reshape", _padded(o, rank)), ("transpose", axes))
            out[o.index] = args.constant(f"o{o.index}", Packed(o.index, steps), o.dtype)
    return out
