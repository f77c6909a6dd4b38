"""What convolutions over bytes, and over bfloat16, share: geometry, the padded input, results in
the blocked format.

A first launch copies inputs that have pads, with the pads' value around them, so that the sums need
no borders.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base.dims import evaluate
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, Format
from tactix.contracts.artifact import Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject, Variant
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, anchor_spec, epilogue
from tactix_codegen.c.text import Args, block, load, loop, splat, store
from tactix_codegen.operations.convolution import ConvolutionGeometry, geometry
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv.window import NodeWindow, varies_by_channel, with_before
from tactix_cpu.tactics.dot_tile import Dot

FEW_CHANNELS = 4
"""An image with at most so many channels is read linear: in blocks most lanes would be zero. Its
copy has the channels of a pixel side by side, so that neighbouring taps are a run, or four elements
to a pixel, of bytes what a lane of a dot product takes, of bfloat16 two of them.
"""


@dataclass(frozen=True)
class DotWindow(NodeWindow):
    """Of images of known size. ``fill``: what pads are, a byte. ``flip``: whether the bytes of x
    have signs.
    """

    size: tuple[int, int]
    out: tuple[int, int]
    fill: int
    flip: bool
    dot: Dot

    @property
    def inputs(self) -> tuple[int, int, int]:
        """The given ones for x, w and the bias."""
        return self.x, self.w, self.bias

    @property
    def pixels(self) -> int:
        """Output pixels of an image."""
        return self.places * self.out[0] * self.out[1]

    @property
    def places(self) -> int:
        """Of the output along the depth."""
        return evaluate(self.depth.out, {})

    @property
    def c_each(self) -> int:
        """Input channels of a group."""
        return self.c // self.group

    @property
    def co_each(self) -> int:
        """Output channels of a group."""
        return self.co // self.group


def dot_window(
    node: Node, dot: Dot = byte.BYTES, axes: tuple[int, ...] = (1, 2)
) -> DotWindow | Reject:
    """The geometry of a convolution of constant weights, or why blocked kernels cannot take it.

    ``axes``: numbers of spatial axes that they take.
    """
    epi = epilogue(node)
    return epi if isinstance(epi, Reject) else _dot_window(node, dot, axes, epi)


def prepared_window(node: Node, dot: Dot, axes: tuple[int, ...]) -> DotWindow | Reject:
    """The same, for kernels that take layers before a convolution of single pixels without
    groups.
    """
    epi = epilogue(node, prologue=True)
    if isinstance(epi, Reject):
        return epi
    win = _dot_window(node, dot, axes, epi)
    return win if isinstance(win, Reject) else with_before(win)


def _dot_window(node: Node, dot: Dot, axes: tuple[int, ...], epi: Epilogue) -> DotWindow | Reject:
    found = geometry(node, axes)
    if isinstance(found, Reject):
        return found
    x, w = node.specs[found.x], node.specs[found.w]
    if any(v.dtype not in dot.dtypes for v in (x, w)):
        return Reject("the tensors have other dtypes than this kernel's")
    if reason := _why_not(node, found, epi):
        return Reject(reason)
    fill = getattr(node.anchor.attrs, "pad_value", 0) & 255  # type: ignore[union-attr]
    return DotWindow(
        **vars(found),
        node=node,
        fill=fill,
        flip=x.dtype is DType.INT8,
        dot=dot,
        epi=epi,
    )


def _why_not(node: Node, found: ConvolutionGeometry, epi: Epilogue) -> str:
    """Why the bias, sizes or operands do not suit; empty if they do."""
    if not byte.constant_channels(node, (found.w, found.bias)):
        return "these kernels take constant weights and a constant bias"
    sizes = (found.depth.size, *found.size, *found.spatial)
    if not all(isinstance(d, int) for d in sizes):
        return "the sizes of the image are not known"
    if any(v.spec.shape != anchor_spec(node).shape for v in node.outputs):
        return "an output has another shape"
    if any(not _is_site(o, epi) for o in epi.operands.values()):
        return "epilogue operands are one number, one per channel, or as large as the output"
    return ""


def _is_site(o: EpilogueOperand, epi: Epilogue) -> bool:
    return o.is_full or not any(o.strides) or per_channel(o, epi)


def per_channel(o: EpilogueOperand, epi: Epilogue) -> bool:
    """Whether the operand has one element for each channel."""
    others = [s for i, s in enumerate(o.strides) if i != 1]
    return (
        o.strides[1] == 1
        and not any(others)
        and o.shape[len(o.shape) - len(epi.shape) + 1] == epi.shape[1]
    )


def fills_tiles(win: DotWindow, device: DeviceProperties) -> bool:
    """Whether the device's matrix unit takes the convolution: it is then the fastest by far. Groups
    of bfloat16 are of whole channel blocks.

    Cells of bfloat16 are filled up with zeros in the copy (band.py), so that any channels will do.
    """
    # Half a tile of pixels is enough: below it a product of vectors has less to do.
    deep = win.dot is byte.HALVES or win.c % byte.DEEP == 0 or is_image(win)
    blocks = win.dot is byte.HALVES and not (win.c_each % byte.HIGH or win.co_each % byte.HIGH)
    return (
        (win.group == 1 or blocks)
        and win.pixels >= byte.HIGH // 2
        and deep
        and byte.has_tiles(device, win.dot)
    )


def is_image(win: DotWindow) -> bool:
    """Whether bytes of so few channels come that rows of them are joined into cells, one or two
    rows to a cell.
    """
    return (
        win.dot is byte.BYTES
        and win.c <= FEW_CHANNELS
        and win.strides[0] <= 2
        and win.dilations == (1, 1)
    )


def formats(
    win: DotWindow, source: Format, fmt: Format, of_bytes: Format | None = None
) -> tuple[Format, ...] | Reject:
    """Formats of the given inputs: ``source`` for x, ``fmt`` for full operands, linear for the
    rest.

    ``of_bytes``: for full operands of bytes, if another one.
    """
    given = win.node.given
    out = [LINEAR] * len(given)
    for o in win.epi.operands.values():
        if o.is_full:
            out[o.index] = of_bytes if of_bytes and o.dtype in byte.BYTES.dtypes else fmt
        elif any(o.strides) and given[o.index].const is None:
            return Reject("an epilogue operand with one element for each channel is not constant")
    beside = [o for o in win.beside if given[o.index].const is None]
    wanted = {o.index: fmt if varies_by_channel(o) else LINEAR for o in beside} | {win.x: source}
    if any(out[i] not in (LINEAR, f) for i, f in wanted.items()):
        return Reject("one tensor would be needed in two formats")
    if any(varies_by_channel(o) and len(o.shape) != len(o.strides) for o in beside):
        return Reject("what stands beside the input has another rank")
    return tuple(wanted.get(i, f) for i, f in enumerate(out))


def variant_of(win: DotWindow, source: Format, of_bytes: Format, fmt: Format) -> Variant | Reject:
    """x in ``source``, what else is bytes and full in ``of_bytes``, and what is full and wider in
    ``fmt``.
    """
    found = formats(win, source, fmt, of_bytes)
    if isinstance(found, Reject):
        return found
    return Variant.of(
        found, [of_bytes if v.spec.dtype in byte.BYTES.dtypes else fmt for v in win.node.outputs]
    )


@dataclass(frozen=True)
class DotSite:
    """Results in the blocked format; implements c_tile.TileSite.

    The kernel's C variables: ``image``, ``block`` (of the tile's first vector), ``pixel`` (of its
    first row).
    ``variant``: tells formats with blocks of several vectors.
    """

    args: Args
    win: DotWindow
    lanes: int
    left: str
    variant: Variant | None = None

    @property
    def blocks(self) -> int:
        """Channel blocks of the output."""
        return -(-self.win.co // self.lanes)

    def _at(self, fmt: Format | None, row: str, vector: int) -> str:
        """Where the vector lies in a tensor of that format; of blocks of one vector if there is
        none.
        """
        many = fmt.lanes // self.lanes if fmt else 1
        start, part = (
            (f"block + {vector}", "")
            if many == 1
            else (f"(block + {vector}) / {many}", f" + (block + {vector}) % {many} * {self.lanes}")
        )
        pixel = f"(image * {self.blocks // many} + {start}) * {self.win.pixels} + pixel + {row}"
        return f"({pixel}) * {self.lanes * many}{part}"

    def place(self, operand: EpilogueOperand, row: str, vector: int, count: str) -> str:
        if operand.is_full:
            at = self._at(
                self.variant.input_format(operand.index) if self.variant else None, row, vector
            )
            return load(operand.dtype, f"{self.args.input(operand.index)} + {at}")
        if not any(operand.strides):
            return splat(operand.dtype, self.args.input(operand.index))
        size = self.blocks * self.lanes
        packed = Packed(
            operand.index, (("reshape", (self.win.co,)), ("pad", ((0, size - self.win.co),)))
        )
        name = self.args.constant(f"o{operand.index}", packed, operand.dtype)
        return load(operand.dtype, f"{name} + (block + {vector}) * {self.lanes}")

    def both(self, output: int, row: str) -> str:
        """Pointer to where two neighbouring vectors of a result stand together; empty if they do
        not.
        """
        if self.variant is None or self.variant.output_format(output).lanes == self.lanes:
            return ""
        return (
            f"{self.args.output(output)} + {self._at(self.variant.output_format(output), row, 0)}"
        )

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        if self.win.co % self.lanes:
            kind = "" if dtype.is_float else "_m" if dtype is DType.BOOL else "_i"
            value = f"tx_keep{kind}({value}, {self.win.co} - (block + {vector}) * {self.lanes})"
        at = self._at(self.variant.output_format(output) if self.variant else None, row, vector)
        return store(dtype, f"{self.args.output(output)} + {at}", value)


@dataclass(frozen=True)
class InputPlanes:
    """How sums read the input: ``planes`` of ``high`` rows of ``wide`` pixels an image, each of
    ``cell`` channels.

    ``bytes``: of a pixel. ``dense``: whether the taps of a row are one run of elements that may end
    inside a group.
    """

    cell: int
    bytes: int
    planes: int
    high: int
    wide: int
    copied: bool
    dense: bool

    @property
    def plane(self) -> int:
        """Bytes."""
        return self.high * self.wide * self.bytes

    @property
    def image(self) -> int:
        """Bytes."""
        return self.planes * self.plane


def source_of(win: DotWindow, lanes: int, linear: bool) -> InputPlanes:
    """The input as it lies, or padded and channel beside channel if it is linear."""
    top, left, bottom, right = win.pads
    dense = linear and win.dilations[1] == 1
    cell = win.c if dense else FEW_CHANNELS if linear else lanes
    copied = linear or any(win.pads)
    return InputPlanes(
        cell,
        cell * win.dot.size,
        -(-win.c // cell),
        win.size[0] + top + bottom,
        win.size[1] + left + right,
        copied,
        dense,
    )


def copy(args: Args, win: DotWindow, source: InputPlanes, target: str, linear: bool) -> str:
    """The first launch: every row of every plane with what stands for pads around it."""
    high, wide, cell = win.size[0], win.size[1], source.bytes
    top, left, _, right = win.pads
    row = source.wide * cell
    fill = f"memset(out, {win.fill}, {row});"
    x = f"(const uint8_t*){args.input(win.inputs[0])}"
    if linear:
        inner = _joined(args, win, source, left * cell)
    else:
        inner = [
            f"memcpy(out + {left * cell}, {x} + (p * {high} + y) * {wide * cell}, {wide * cell});"
        ]
    edges = [f"memset(out, {win.fill}, {left * cell});"] if left else []
    if right:
        edges.append(f"memset(out + {row - right * cell}, {win.fill}, {right * cell});")
    body = [
        f"const int64_t p = r / {source.high}, y = r % {source.high} - {top};",
        f"uint8_t* out = (uint8_t*){target} + r * {row};",
        block(f"if (y < 0 || y >= {high})", fill, "continue;"),
        *edges,
        *inner,
    ]
    total = args.dim(win.n * (source.planes * source.high))
    return (
        f"int64_t lo, hi;\ntx_split({total}, 1, tid, nt, &lo, &hi);\n{loop('r', 'lo', 'hi', *body)}"
    )


def _joined(args: Args, win: DotWindow, source: InputPlanes, offset: int) -> list[str]:
    """Join the channels of every pixel of a linear row, ``offset`` bytes into the padded one."""
    high, wide = win.size
    element, pixel_type = ("uint8_t", "uint32_t") if win.dot.size == 1 else ("uint16_t", "uint64_t")
    x = f"(const {element}*){args.input(win.inputs[0])}"
    given = f"const {element}* in = {x} + (p * {win.c * high} + y) * {wide};"
    taken = [f"in[{c} * {high * wide} + i]" for c in range(win.c)]
    if source.cell == win.c < FEW_CHANNELS:
        puts = " ".join(f"to[i * {win.c} + {c}] = {t};" for c, t in enumerate(taken))
        return [
            given,
            f"{element}* to = ({element}*)(out + {offset});",
            loop("i", "0", str(wide), puts),
        ]
    pixel = " | ".join(f"({pixel_type}){t} << {8 * win.dot.size * c}" for c, t in enumerate(taken))
    return [
        given,
        f"{pixel_type}* to = ({pixel_type}*)(out + {offset});",
        loop("i", "0", str(wide), f"to[i] = {pixel};"),
    ]
