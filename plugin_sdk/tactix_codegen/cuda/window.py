"""The geometry of a convolution with channels last, and its epilogue along the axes as they lie
there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, Shape, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import Packed
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, anchor_spec, epilogue
from tactix_codegen.c.text import broadcast_strides
from tactix_codegen.c.tile import with_term
from tactix_codegen.cuda import results
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations.convolution import FLAT, ConvolutionGeometry, geometry


@dataclass(frozen=True)
class ConvolutionWindow(ConvolutionGeometry):
    """``lead``: the axes that output pixels flatten; ``epi`` includes the bias, its operand strides
    are along ``(*lead, channel)`` of channels-last storage. ``dtype``: of x. ``pad_value``: of what
    lies around an image, 0 but for integers with a zero point.
    """

    node: Node
    lead: Shape
    dtype: DType
    epi: Epilogue
    pad_value: int

    @property
    def begins(self) -> tuple[int, int]:
        """Pads above and left."""
        return self.pads[:2]

    @property
    def ends(self) -> tuple[int, int]:
        """Pads below and right."""
        return self.pads[2:]

    @property
    def has_other_pads(self) -> bool:
        """Whether anything but zeros lies around an image."""
        return self.pad_value != 0 and any(self.pads)

    @property
    def pixels(self) -> Dim:
        """Output pixels of all images."""
        return prod(self.lead)

    def constants(self) -> dict[str, int]:
        """Taps, strides, dilations and pads as kernels call them."""
        return {
            "DOWN": self.kernel[0],
            "ACROSS": self.kernel[1],
            "STRIDE_Y": self.strides[0],
            "STRIDE_X": self.strides[1],
            "DILATION_Y": self.dilations[0],
            "DILATION_X": self.dilations[1],
            "TOP": self.begins[0],
            "LEFT": self.begins[1],
        }

    def sizes(self) -> list[dict[str, int]]:
        """Values of the symbols to choose kernels for: small and large batches, images of a middle
        size.
        """
        spatial = symbols(prod((*self.size, *self.out)))
        batches = symbols(self.n) - spatial
        common = dict.fromkeys(spatial, 56)
        return [
            {**common, **dict.fromkeys(batches, count)}
            for count in ((1, 8, 128) if batches else (1,))
        ]


def window(node: Node) -> ConvolutionWindow | Reject:
    """The geometry of a Convolution or WideConvolution with constant weights; or why these kernels
    cannot take it.
    """
    epi, anchor = epilogue(node, vector=False), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    found = geometry(node, axes=(1, 2, 3))
    found = found if isinstance(found, Reject) else _over_two_axes(found)
    if isinstance(found, Reject):
        return found
    dtype = node.given[found.x].spec.dtype
    is_integer = anchor.layer.name == "IntegerConvolution"
    if dtype is not node.given[found.w].spec.dtype and not is_integer:
        return Reject("these kernels take one dtype")
    try:
        whole = _channels_last(_biased(node, epi, found.bias))
    except ShapeError as e:
        return Reject(str(e))
    if reason := results.why_not(whole):
        return Reject(reason)
    n, _, *spatial = anchor_spec(node).shape
    return ConvolutionWindow(
        **vars(found),
        node=node,
        lead=(n, *spatial),
        dtype=dtype,
        epi=whole,
        pad_value=anchor.attrs.pad_value if is_integer else 0,
    )


def _over_two_axes(g: ConvolutionGeometry) -> ConvolutionGeometry | Reject:
    """The same, where a convolution over three axes is one over two as channels lie last: slices
    are images where windows are within them, and their pixels columns where windows are across.
    """
    d = g.depth
    if not g.has_depth:
        return g
    if d.kernel == d.stride == 1 and d.pad == d.pad_behind == 0:
        return replace(g, n=g.n * d.size, depth=FLAT)
    if not g.has_pointwise_planes:
        return Reject("these kernels take windows within slices or across them, not both")
    return g.across_slices()


def _biased(node: Node, epi: Epilogue, index: int) -> Epilogue:
    if index < 0:
        return epi
    spec = node.given[index].spec
    shape = (*spec.shape, *(1,) * (len(epi.shape) - 2))
    term = EpilogueOperand(index, spec.dtype, shape, broadcast_strides(shape, epi.shape), False)
    return with_term(epi, term, lambda y, b: y + b)


def _padded(operand: EpilogueOperand, rank: int) -> Shape:
    return (1,) * (rank - len(operand.shape)) + operand.shape


def _last(shape: Shape) -> Shape:
    """(n, c, spatial...) as (n, spatial..., c)."""
    n, c, *spatial = shape
    return (n, *spatial, c)


def _channels_last(epi: Epilogue) -> Epilogue:
    rank, out = len(epi.shape), _last(epi.shape)
    moved = {
        v: replace(o, strides=broadcast_strides(_last(_padded(o, rank)), out))
        for v, o in epi.operands.items()
    }
    return replace(epi, operands=moved, shape=out)


def _is_turned(operand: EpilogueOperand, rank: int) -> bool:
    """Whether an operand's elements lie in another order with channels last than linear."""
    _, c, *spatial = _padded(operand, rank)
    return c != 1 and any(d != 1 for d in spatial)


def formats(win: ConvolutionWindow, source: Format) -> tuple[Format, ...] | Reject:
    """Formats of the given inputs: ``source`` for x, channels last for operands with channels and
    pixels.
    """
    rank, given = len(win.epi.shape), win.node.given
    wanted: dict[int, set[Format]] = {win.x: {source}}
    for o in win.epi.operands.values():
        if given[o.index].const is None:
            turned = _is_turned(o, rank)
            if turned and len(o.shape) != rank:
                return Reject("an epilogue operand with channels has another rank than the output")
            wanted.setdefault(o.index, set()).add(NHWC if turned else LINEAR)
    if any(len(f) > 1 for f in wanted.values()):
        return Reject("one tensor would be needed in two formats")
    return tuple(min(wanted.get(i, {LINEAR})) for i in range(len(given)))


def pad_word(win: ConvolutionWindow) -> int:
    """Four bytes of what lies around an image of bytes, as the int32 that they are."""
    return int.from_bytes(bytes([win.pad_value & 255] * 4), "little", signed=True)


def pointers(win: ConvolutionWindow, args: CudaArgs) -> dict[int, str]:
    """Constant operands that the build has to turn, by given input."""
    out, rank = {}, len(win.epi.shape)
    for o in win.epi.operands.values():
        if win.node.given[o.index].const is not None and _is_turned(o, rank):
            axes = (0, *range(2, rank), 1)
            steps: tuple[tuple[str, Any], ...] = (
                ("reshape", _padded(o, rank)),
                ("transpose", axes),
            )
            out[o.index] = args.constant(f"o{o.index}", Packed(o.index, steps), o.dtype)
    return out
