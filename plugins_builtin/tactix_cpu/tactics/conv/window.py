"""What convolution kernels share: geometry and epilogue of a node, rows cut into tiles, blocked
operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tactix.base.dims import Dim, Shape, ceildiv, prod
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, Format
from tactix.contracts.artifact import Packed
from tactix.contracts.graph import Node
from tactix.contracts.tactic import Reject
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue, operand_of
from tactix_codegen.c.prologue import Prologue, prologue
from tactix_codegen.c.scalar import keeps_zero
from tactix_codegen.c.text import Args, block, load, loop, splat, store, vector_type
from tactix_codegen.c.tile import flat, is_row_major, with_term
from tactix_codegen.operations.convolution import ConvolutionGeometry, geometry

PATTERNS = 5
"""Most kinds of tiles in a row; each is a function of its own. Usual windows need 3 or 4: at either
border, and inside of one or two sizes. No measurement of it is on record.
"""


@dataclass(frozen=True)
class NodeWindow(ConvolutionGeometry):
    """The convolution of a node, and what stands around it. What is multiplied with w is x, or what
    ``before`` makes of x and ``beside``, as these broadcast to x.
    """

    node: Node
    epi: Epilogue
    before: Prologue | None = field(default=None, kw_only=True)
    beside: tuple[EpilogueOperand, ...] = field(default=(), kw_only=True)


Window = TypeVar("Window", bound=NodeWindow)


@dataclass(frozen=True)
class CpuConvolutionWindow(NodeWindow):
    """``epi`` includes the bias, its operand strides are along (n, channel, row, column).
    ``dtype``: of w, and of what is multiplied with it. ``has_means``: whether the last output is
    the mean of the first, which is the only other one, over its pixels. ``joined``: how many groups
    of the model each group of the kernel is; then ``c`` counts the channels of whole groups of the
    kernel.
    """

    dtype: DType
    has_means: bool = False
    joined: int = 1

    def valid(self, column: int, tap: int) -> bool:
        """Whether that tap of an output column's window lies inside the input's static width."""
        at = column * self.strides[1] + tap * self.dilations[1] - self.pads[1]
        return 0 <= at < self.size[1]  # type: ignore[operator]


def window(
    node: Node, dtypes: Sequence[DType] = (DType.FP32,), axes: tuple[int, ...] = (1, 2)
) -> CpuConvolutionWindow | Reject:
    """The geometry of a Convolution node with constant weights, fused or not; or why blocked
    kernels cannot take it. ``axes``: numbers of spatial axes that they take.
    """
    epi = epilogue(node)
    return epi if isinstance(epi, Reject) else _window(node, epi, dtypes, axes)


def summed_window(node: Node, dtypes: Sequence[DType]) -> CpuConvolutionWindow | Reject:
    """The same, for kernels that take a mean over the pixels of the result."""
    epi = epilogue(node, summary=True)
    found = epi if isinstance(epi, Reject) else _window(node, epi, dtypes, (1, 2))
    if isinstance(found, Reject) or node.body.unsummarized is None:
        return found
    if not all(isinstance(d, int) for d in found.spatial):
        return Reject("means of images whose size is not known before running")
    if node.outputs[-1].spec.dtype is not DType.FP32:
        return Reject("means as float32 only")
    return replace(found, has_means=True)


def joined_window(
    node: Node, lanes: int, dtypes: Sequence[DType] = (DType.FP32,)
) -> CpuConvolutionWindow | Reject:
    """The same, whose groups of few channels are joined to whole vectors."""
    win = window(node, dtypes, axes=(1, 2, 3))
    if isinstance(win, Reject):
        return win
    each = win.c // win.group, win.co // win.group
    count = lanes // max(1, min(each))
    if each[0] != each[1] or each[0] < 2 or lanes % each[0] or count < 2:
        return Reject("groups of equal numbers of channels, a whole part of a vector, only")
    if win.group == 1:
        return Reject("there is one group")
    groups = -(-win.group // count)
    return replace(win, group=groups, c=groups * lanes, joined=count)


def prepared_window(node: Node, axes: tuple[int, ...] = (1, 2)) -> CpuConvolutionWindow | Reject:
    """The same of float32, for kernels that take layers before a convolution of single pixels,
    without groups.
    """
    epi = epilogue(node, prologue=True)
    if isinstance(epi, Reject):
        return epi
    win = _window(node, epi, (DType.FP32,), axes)
    return win if isinstance(win, Reject) else with_before(win)


def with_before(win: Window) -> Window | Reject:
    """The window with what its node computes before the convolution, or why kernels do not."""
    before, specs = prologue(win.node), win.node.specs
    if before is None:
        return win
    if isinstance(before, Reject):
        return before
    if not win.is_pointwise or win.group > 1:
        return Reject("layers before a convolution of single pixels without groups only")
    try:
        beside = tuple(operand_of(i, specs[i], specs[before.source].shape) for i in before.beside)
    except ShapeError as e:
        return Reject(e.what)
    return replace(win, x=before.source, before=before, beside=beside)


def _window(
    node: Node, epi: Epilogue, dtypes: Sequence[DType], axes: tuple[int, ...]
) -> CpuConvolutionWindow | Reject:
    found = geometry(node, axes)
    if isinstance(found, Reject):
        return found
    x, w = node.specs[found.x], node.specs[found.w]
    if x.dtype not in dtypes or w.dtype is not x.dtype:
        return Reject(f"these kernels take {' or '.join(t.value for t in dtypes)}")
    biased = with_bias(node, epi, found.bias)
    if isinstance(biased, Reject):
        return biased
    return _flattened(CpuConvolutionWindow(**vars(found), node=node, epi=biased, dtype=x.dtype))


def _flattened(win: CpuConvolutionWindow) -> CpuConvolutionWindow:
    """Windows along the depth alone are windows along the rows of an image whose columns are the
    pixels of a slice; what cannot be read so stays as it is.
    """
    d, sizes = win.depth, win.epi.shape[-2:]
    operands = {v: _with_flat_planes(o, sizes) for v, o in win.epi.operands.items()}
    if d.kernel == 1 or not win.has_pointwise_planes or None in operands.values():
        return win
    flat = {v: o for v, o in operands.items() if o is not None}
    epi = replace(win.epi, operands=flat, shape=(*win.epi.shape[:-2], prod(sizes)))
    return replace(win.across_slices(), epi=epi)


def _with_flat_planes(o: EpilogueOperand, sizes: Shape) -> EpilogueOperand | None:
    """The operand of an output whose last two axes, of those sizes, are one; None if it is none."""
    if not is_row_major(sizes, o.strides[-2:]):
        return None
    step = next((s for n, s in zip(sizes[::-1], o.strides[::-1], strict=False) if n != 1), 0)
    shape = (*o.shape[:-2], prod(o.shape[-2:])) if len(o.shape) > 1 else o.shape
    return replace(o, shape=shape, strides=(*o.strides[:-2], step))


def with_bias(node: Node, epi: Epilogue, index: int) -> Epilogue | Reject:
    """The epilogue after adding the given input ``index``, a constant of one element for each
    channel; -1 for none.
    """
    if index < 0:
        return epi
    spec = node.given[index].spec
    if not spec.is_const:
        return Reject("these kernels take a constant bias")
    spatial = len(epi.shape) - 2
    term = EpilogueOperand(
        index, spec.dtype, (*spec.shape, *(1,) * spatial), (0, 1, *(0,) * spatial), False
    )
    return with_term(epi, term, lambda y, b: y + b)


@dataclass(frozen=True)
class TileRun:
    """``count`` equal tiles of ``size`` columns from ``start``; ``pattern[m][tap]``: whether that
    tap is inside.
    """

    start: int
    size: int
    count: int
    pattern: tuple[tuple[bool, ...], ...]

    @property
    def is_inner(self) -> bool:
        return all(all(taps) for taps in self.pattern)


def row_runs(win: CpuConvolutionWindow, most: int) -> list[TileRun] | None:
    """An output row of static width as tiles of at most ``most`` columns; None if it has too many
    kinds of them.
    """
    width = win.out[1]
    if not isinstance(width, int) or not isinstance(win.size[1], int):
        return None
    count = max(1, -(-width // most))
    base, more = divmod(width, count)
    runs: list[TileRun] = []
    start = 0
    for i in range(count):
        size = base + (i < more)
        pattern = tuple(
            tuple(win.valid(start + m, t) for t in range(win.kernel[1])) for m in range(size)
        )
        if runs and runs[-1].pattern == pattern:
            runs[-1] = TileRun(runs[-1].start, size, runs[-1].count + 1, pattern)
        else:
            runs.append(TileRun(start, size, 1, pattern))
        start += size
    return runs if len({r.pattern for r in runs}) <= PATTERNS else None


def varies_by_channel(operand: EpilogueOperand) -> bool:
    """Whether an operand has channels, so that it is read in the output's blocked format."""
    return len(operand.strides) > 1 and operand.strides[1] != 0


def formats(
    win: CpuConvolutionWindow, blocked: Format, source: Format
) -> tuple[Format, ...] | Reject:
    """Formats of the given inputs: ``source`` for x, blocked for operands with channels, linear for
    the rest.
    """
    wanted: dict[int, set[Format]] = {win.x: {source}}
    given = win.node.given
    for o in (*win.epi.operands.values(), *win.beside):
        if given[o.index].const is None:
            wanted.setdefault(o.index, set()).add(blocked if varies_by_channel(o) else LINEAR)
            if varies_by_channel(o) and len(o.shape) != len(o.strides):
                return Reject("an epilogue operand with channels has another rank than the output")
    if any(len(f) > 1 for f in wanted.values()):
        return Reject("one tensor would be needed in two formats")
    return tuple(min(wanted.get(i, {LINEAR})) for i in range(len(given)))


def pack_blocked(operand: EpilogueOperand, rank: int, lanes: int) -> Packed:
    """A constant operand with channels in the blocked storage of its own shape."""
    sizes = tuple(int(d) for d in operand.shape)  # type: ignore[arg-type]
    n, c, *rest = (1,) * (rank - len(sizes)) + sizes
    blocks = -(-c // lanes)
    axes = range(3, 3 + len(rest))
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (n, c, *rest)),
        ("pad", ((0, 0), (0, blocks * lanes - c), *((0, 0),) * len(rest))),
        ("reshape", (n, blocks, lanes, *rest)),
        ("transpose", (0, 1, *axes, 2)),
    )
    return Packed(operand.index, steps)


def pack_channels_last(operand: EpilogueOperand, rank: int) -> Packed:
    """A constant operand with channels in the nhwc storage of its own shape."""
    sizes = tuple(int(d) for d in operand.shape)  # type: ignore[arg-type]
    shape = (1,) * (rank - len(sizes)) + sizes
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", shape),
        ("transpose", (0, *range(2, rank), 1)),
    )
    return Packed(operand.index, steps)


@dataclass(frozen=True)
class BlockedSite:
    """Results in the blocked format; implements c_tile.TileSite.

    The kernel's C variables: ``image``, ``block`` (of the tile's first vector), ``pixel`` (of its
    first row); ``step`` pixels lie from row to row.
    """

    args: Args
    win: NodeWindow
    lanes: int
    left: str
    step: int = 1

    @property
    def blocks(self) -> int:
        """Channel blocks of the output."""
        return -(-self.win.co // self.lanes)

    def place(self, operand: EpilogueOperand, row: str, vector: int, count: str) -> str:
        rank = len(self.win.epi.shape)
        where = f"(pixel + {self._step(row)})" if row != "0" else "pixel"
        if not varies_by_channel(operand):
            n, *rest = operand.strides[:1] + operand.strides[2:]
            terms = [f"image * {self.args.dim(n)}"] * (n != 0) + [self._flat(where, rest)]
            return splat(operand.dtype, self.args.sum(self.args.input(operand.index), *terms))
        base, strides = self._storage(operand, rank)
        terms = [
            f"{self._block(vector)} * {self.args.dim(strides[1])}",
            self._flat(where, strides[2:]),
        ]
        terms += [f"image * {self.args.dim(strides[0])}"] * (strides[0] != 0)
        return load(operand.dtype, self.args.sum(base, *terms))

    def _flat(self, pixel: str, strides: Sequence[Dim]) -> str:
        """The offset of an output pixel in an operand with those strides along the spatial axes.

        A depth that is 1 throughout is no axis of the window, but one of the operand.
        """
        count = min(len(strides), len(self.win.spatial))
        spatial, strides = self.win.spatial[-count:], strides[-count:]
        if is_row_major(spatial, strides) and strides[-1] != 0:
            return f"{pixel} * {self.args.dim(strides[-1])}"
        return flat(pixel, [self.args.dim(d) for d in spatial], strides, self.args)

    def _step(self, row: str) -> str:
        return row if self.step == 1 or row == "0" else f"{row} * {self.step}"

    def _storage(self, operand: EpilogueOperand, rank: int) -> tuple[str, Shape]:
        """Pointer and strides (n, block, spatial...) of an operand's blocked storage."""
        shape: Shape = (1,) * (rank - len(operand.shape)) + operand.shape
        spatial = prod(shape[2:]) * self.lanes
        blocks = ceildiv(shape[1], self.lanes)
        inner = [
            prod(shape[i + 1 :]) * self.lanes if operand.strides[i] != 0 else 0
            for i in range(2, rank)
        ]
        strides = (spatial * blocks if operand.strides[0] != 0 else 0, spatial, *inner)
        if self.win.node.given[operand.index].const is None:
            return self.args.input(operand.index), strides
        packed = pack_blocked(operand, rank, self.lanes)
        return self.args.constant(f"o{operand.index}", packed, operand.dtype), strides

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        blocks = self.args.size("Y_BLOCKS", self.blocks)
        plane = self.args.size("Y_PLANE", prod(self.win.spatial))
        value = self._kept(value, dtype, vector)
        channels = self.args.sum(f"image * {blocks}", "block", str(vector))
        pixel = self.args.sum(f"({channels}) * {plane}", "pixel", self._step(row))
        return store(
            dtype,
            f"{self.args.output(output)} + ({pixel}) * {self.args.size('LANES', self.lanes)}",
            value,
        )

    def _block(self, vector: int) -> str:
        return f"(block + {vector})" if vector else "block"

    def _kept(self, value: str, dtype: DType, vector: int) -> str:
        """The value with zeros in the lanes past the last channel, where it may have others."""
        epi = self.win.epi
        channels = all(varies_by_channel(o) for o in epi.operands.values())
        if self.win.co % self.lanes == 0 or (channels and keeps_zero(epi.results, epi.dtypes)):
            return value
        kind = "" if dtype.is_float else "_m" if dtype is DType.BOOL else "_i"
        return f"tx_keep{kind}({value}, {self.win.co} - {self._block(vector)} * {self.lanes})"


@dataclass(frozen=True)
class SumsSite(BlockedSite):
    """Results, as they are stored, are also added to the C variable ``sum``."""

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        kept = f"tx_as_{dtype.value}({value})" if dtype.bits < 32 else value
        return f"{super().put(output, dtype, value, row, vector, count)} sum += {kept};"


def prepared(
    site: BlockedSite, x: str, to: str, dtype: DType = DType.FP32, step: int = 0
) -> list[str]:
    """Statements that put what stands before the convolution, of the pixels [from, end) of channel
    block ``block`` at ``x``, to ``to``, as ``dtype``: side by side, or ``step`` elements apart.
    """
    win = site.win
    assert win.before is not None
    fixed: list[str] = []
    moving: list[str] = []
    for i, o in enumerate(win.beside):
        line = f"const {vector_type(o.dtype)} beside{i} = {site.place(o, '0', 0, '')};"
        (moving if any(s != 0 for s in o.strides[2:]) else fixed).append(line)
    given = load(win.before.dtypes[0], f"{x} + pixel * {site.lanes}")
    made = win.before.of(given, *(f"beside{i}" for i in range(len(win.beside))))
    if win.c % site.lanes:
        made = f"tx_keep({made}, {win.c} - block * {site.lanes})"
    store_it = store(dtype, f"{to} + (pixel - from) * {step or site.lanes}", made)
    pixel = "const int64_t pixel = from;" if fixed else ""
    walk = loop("pixel", "from", "end", *moving, store_it)
    return [block("", pixel, *fixed, walk)] if fixed else [walk]


@dataclass(frozen=True)
class ChannelsLastSite(BlockedSite):
    """Results in nhwc, of channels in whole vectors: ``block`` counts vectors of a pixel."""

    def _storage(self, operand: EpilogueOperand, rank: int) -> tuple[str, Shape]:
        shape: Shape = (1,) * (rank - len(operand.shape)) + operand.shape
        steps = [
            prod(shape[i + 1 :]) * shape[1] if operand.strides[i] != 0 else 0
            for i in range(2, rank)
        ]
        image = prod((shape[1], *shape[2:])) if operand.strides[0] != 0 else 0
        strides = (image, self.lanes, *steps)
        if self.win.node.given[operand.index].const is None:
            return self.args.input(operand.index), strides
        packed = pack_channels_last(operand, rank)
        return self.args.constant(f"o{operand.index}", packed, operand.dtype), strides

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        plane = self.args.size("Y_PLANE", prod(self.win.spatial))
        channels = self.args.size("Y_CHANNELS", self.win.co)
        pixel = self.args.sum(f"image * {plane}", "pixel", self._step(row))
        lanes = self.args.size("LANES", self.lanes)
        place = f"({pixel}) * {channels} + {self._block(vector)} * {lanes}"
        return store(dtype, f"{self.args.output(output)} + {place}", value)
