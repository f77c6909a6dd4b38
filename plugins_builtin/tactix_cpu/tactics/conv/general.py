"""Any convolution and transposed convolution in the linear format: the tactic of last resort in C.

A first launch copies the input with its borders padded and its columns sorted by their remainder
modulo the stride, so that the second one reads neighbouring output columns as vectors. Its tiles
are some output channels times neighbouring columns; the last of a line may be narrower. A
transposed convolution is one with the taps reversed over an input with ``stride - 1`` zeros in
between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from tactix.base.dims import Dim, Shape, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, anchor_spec, epilogue
from tactix_codegen.c.text import (
    Args,
    block,
    choice,
    decode,
    kernel,
    load,
    loop,
    prelude,
    splat,
    split,
    store,
    vector_preludes,
)
from tactix_codegen.c.tile import Functions, RegisterTile, by_rows, finish, flat, with_term
from tactix_cpu.tactics.estimates import CLOCK, START

ROWS = 8
VECTORS = 2
"""Output channels, and vectors of columns, of a tile: 16 sums, more than the 8 that hide the
latency of FMA (tile.LATENCY), and few enough for 32 registers. The last resort offers no others. No
measurement of others is on record.
"""


Size = TypeVar("Size", bound=Dim)


@dataclass(frozen=True)
class ConvolutionTaps(Generic[Size]):
    """A convolution of stride ``strides`` over an input with ``stuffing - 1`` zeros between
    elements.

    ``begins``: elements of padding before each axis. Weights: ``channel_stride`` and
    ``input_stride`` count kernels from one output or input channel of a group to the next;
    ``reversed``: taps are stored last first. ``Size``: int where channels and kernel are known.
    """

    node: Node
    x: int
    w: int
    n: Dim
    c: Size
    co: Size
    group: int
    size: Shape
    out: Shape
    kernel: tuple[Size, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    stuffing: tuple[int, ...]
    begins: Shape
    channel_stride: Size
    input_stride: Size
    reversed: bool
    epi: Epilogue


def known_taps(node: Node) -> ConvolutionTaps[int] | Reject:
    """As ``taps_of``, where channels and kernel are known before running."""
    taps = taps_of(node)
    if isinstance(taps, Reject):
        return taps
    sizes = (taps.c, taps.co, *taps.kernel, taps.channel_stride, taps.input_stride)
    if not all(isinstance(d, int) for d in sizes):
        return Reject("channels and kernel are not known before running")
    return cast(ConvolutionTaps[int], taps)


def taps_of(node: Node) -> ConvolutionTaps[Dim] | Reject:
    """The geometry of a Convolution or ConvTranspose node, or why this kernel cannot take it."""
    epi, anchor = epilogue(node), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    specs = [node.given[i].spec for i in anchor.inputs if i >= 0]
    if any(s.dtype is not DType.FP32 for s in specs):
        return Reject("this kernel takes float32")
    # Those of the input are the weights', which the layer asks for before a kernel runs: an input
    # that data shapes may not tell its own.
    if any(d == 0 for d in specs[1].shape):
        return Reject("channels or kernel are empty")
    if len(anchor.inputs) > 2 and anchor.inputs[2] >= 0:
        spatial = specs[0].rank - 2
        bias = EpilogueOperand(
            anchor.inputs[2],
            DType.FP32,
            (*specs[2].shape, *(1,) * spatial),
            (0, 1, *(0,) * spatial),
            False,
        )
        epi = with_term(epi, bias, lambda y, b: y + b)
    transposed = anchor.layer.key.startswith("tactix.ConvTranspose@")
    made = _transposed if transposed else _forward
    return made(node, anchor.attrs, anchor.inputs, epi)


def _forward(node: Node, a: Any, inputs: Sequence[int], epi: Epilogue) -> ConvolutionTaps[Dim]:
    x, y = node.given[inputs[0]].spec, anchor_spec(node)
    rank, ones = x.rank - 2, (1,) * (x.rank - 2)
    co, channels, *kernel = node.given[inputs[1]].spec.shape
    begins = tuple(a.pads[:rank]) or (0,) * rank
    return ConvolutionTaps(
        node,
        inputs[0],
        inputs[1],
        x.shape[0],
        channels * a.group,
        co,
        a.group,
        x.shape[2:],
        y.shape[2:],
        tuple(kernel),
        a.strides or ones,
        a.dilations or ones,
        ones,
        begins,
        channels,
        1,
        False,
        epi,
    )


def _transposed(node: Node, a: Any, inputs: Sequence[int], epi: Epilogue) -> ConvolutionTaps[Dim]:
    x, y = node.given[inputs[0]].spec, anchor_spec(node)
    rank, ones = x.rank - 2, (1,) * (x.rank - 2)
    channels, per_group, *kernel = node.given[inputs[1]].spec.shape
    dilations = a.dilations or ones
    pads = a.pads[:rank] or (0,) * rank
    begins = tuple(d * (k - 1) - p for d, k, p in zip(dilations, kernel, pads, strict=True))
    return ConvolutionTaps(
        node,
        inputs[0],
        inputs[1],
        x.shape[0],
        channels,
        per_group * a.group,
        a.group,
        x.shape[2:],
        y.shape[2:],
        tuple(kernel),
        ones,
        dilations,
        a.strides or ones,
        begins,
        1,
        per_group,
        True,
        epi,
    )


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [GeneralConvTactic()]


class GeneralConvTactic(Tactic[ConvolutionTaps[Dim]]):
    """float32, any spatial axes and groups, computed weights, symbolic sizes, channels, kernels and
    pads.
    """

    key = "tactix.c_conv_general@1"
    implements: tuple[str, ...] = ("tactix.Convolution@1", "tactix.ConvTranspose@1")
    source = "c"
    by_signature = True
    fallback = True

    def match(self, node: Node, device: DeviceProperties) -> ConvolutionTaps[Dim] | Reject:
        try:
            return taps_of(node)
        except ShapeError as e:
            return Reject(str(e))

    def cost(self, t: ConvolutionTaps[Dim], variant: Variant, ctx: CompileContext) -> float | None:
        # One FMA a cycle, half of what the others' tiles come to: each element of the left side is
        # a weight that is read from where it lies. No measurement of that is on record.
        steps = prod(t.out) * t.n * (t.co * (t.c // t.group) * prod(t.kernel))
        if not symbols(steps) <= set(ctx.opt):
            return None
        return 4 * START + evaluate(steps, ctx.opt) / max(4, ctx.device.lanes) / CLOCK / max(
            1, ctx.threads
        )

    def compile(
        self, t: ConvolutionTaps[Dim], variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return _Kernel(t, ctx).artifact()


@dataclass(frozen=True)
class LineSite:
    """Results in linear rows of ``out[-1]`` columns; implements c_tile.TileSite.

    The kernel's C variables: ``image``, ``channel`` (of the tile's first row), ``line`` (over the
    outer spatial axes), ``col``.
    """

    args: Args
    taps: ConvolutionTaps[Dim]
    lanes: int
    left: str

    def place(self, operand: EpilogueOperand, row: str, vector: int, count: str) -> str:
        n, c, *outer, last = operand.strides
        lines = [self.args.dim(d) for d in self.taps.out[:-1]]
        terms = [f"image * {self.args.dim(n)}"] * (n != 0)
        terms += [f"(channel + {row}) * {self.args.dim(c)}"] * (c != 0)
        pointer = self.args.sum(
            self.args.input(operand.index), *terms, flat("line", lines, outer, self.args)
        )
        if last == 0:
            return splat(operand.dtype, pointer)
        return load(operand.dtype, f"{pointer} + col + {vector * self.lanes}", count)

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        lines, width = self.args.dim(prod(self.taps.out[:-1])), self.args.dim(self.taps.out[-1])
        channels = self.args.dim(self.taps.co)
        at = (
            f"((image * {channels} + channel + {row}) * {lines} + line) * {width} + col "
            f"+ {vector * self.lanes}"
        )
        return store(dtype, f"{self.args.output(output)} + {at}", value, count)


def _widths(columns: Dim, lanes: int) -> tuple[int, ...]:
    """Vectors of the tiles, the widest first: narrower ones where a line's last tile may be so."""
    if not isinstance(columns, int):
        return (VECTORS, 1)
    if columns <= lanes:
        return (1,)
    return (VECTORS, 1) if 0 < columns % (VECTORS * lanes) <= lanes else (VECTORS,)


class _Kernel:
    """Writes one kernel."""

    def __init__(self, taps: ConvolutionTaps[Dim], ctx: CompileContext) -> None:
        self.taps, self.ctx = taps, ctx
        self.lanes = max(4, ctx.device.lanes)
        width = taps.out[-1]
        self.widths = _widths(width, self.lanes)
        self.vectors = self.widths[0]
        self.args = Args(taps.node)
        self.functions = Functions(self.args)
        t = taps
        self.rows = t.co // t.group
        self.padded = tuple(
            (o - 1) * s + d * (k - 1) + 1
            for o, s, d, k in zip(t.out[:-1], t.strides, t.dilations, t.kernel, strict=False)
        )
        reach = t.dilations[-1] * (t.kernel[-1] - 1) // t.strides[-1]
        self.pitch: Dim = (
            ceildiv(width, self.vectors * self.lanes) * (self.vectors * self.lanes) + reach
        )
        """Columns of one remainder in a padded row."""

    def artifact(self) -> KernelArtifact:
        row = self.pitch * self.taps.strides[-1]
        size = self.taps.n * self.taps.c * prod(self.padded) * row * 4
        self.x = self.args.workspace(0)
        self.args.phase(0)
        sizes = self._tile_rows()
        for rows in sizes:
            for vectors in self.widths:
                self._function(rows, vectors)
        body = [block("if (phase == 0)", self._copy(), "return;"), self._multiply(sizes)]
        return kernel(
            self.args,
            body,
            self.ctx,
            helpers=self.functions.text(),
            preludes=(*vector_preludes(), prelude("pool.h")),
            workspace=size,
            phases=2,
        )

    def _tile_rows(self) -> tuple[int, ...]:
        """Sizes of tiles, the largest first."""
        most = self.rows if isinstance(self.rows, int) else ROWS
        return tuple(s for s in (ROWS, 4, 2, 1) if s <= most)

    def _function(self, rows: int, vectors: int) -> None:
        t, tile = self.taps, RegisterTile(rows, vectors, self.lanes)
        width = t.out[-1]
        left = (
            ""
            if isinstance(width, int) and width % tile.width == 0
            else f"({self.args.dim(width)} - col)"
        )
        stride = t.channel_stride * prod(t.kernel)
        step = tile.steps(1, lambda m, u: f"wt[{self._times(m, stride)}]", "xt")
        body = [
            tile.zero(),
            self._reduce(step),
            *finish(tile, t.epi, LineSite(self.args, t, self.lanes, left)),
        ]
        parameters = (
            "const float* x, const float* w, int64_t image, int64_t channel, "
            "int64_t line, int64_t col"
        )
        self.functions.add(f"t{tile.name}", parameters, body)

    def _times(self, count: int, size: Dim) -> str:
        """The product as C."""
        return str(count * size) if isinstance(size, int) else f"{count} * {self.args.dim(size)}"

    def _reduce(self, step: str) -> str:
        """Loops over input channels and taps around one step."""
        t, rank = self.taps, len(self.taps.kernel)
        strides, row = list(t.dilations), self.pitch * t.strides[-1]
        terms, tap = [], "0"
        for i in range(rank):
            tap = f"({tap}) * {self.args.dim(t.kernel[i])} + i{i}"
            if i < rank - 1:
                terms.append(
                    f"i{i} * {self.args.dim(prod(self.padded[i + 1 :]) * row * strides[i])}"
                )
        at, s = f"i{rank - 1} * {strides[-1]}", t.strides[-1]
        terms.append(at if s == 1 else f"{at} % {s} * {self.args.dim(self.pitch)} + {at} / {s}")
        plane, count = self.args.dim(prod(self.padded) * row), prod(t.kernel)
        place = f"{self.args.dim(count)} - 1 - ({tap})" if t.reversed else tap
        x, w = (
            f"const float* xt = x + c * {plane} + {' + '.join(terms)};",
            f"w + c * {self.args.dim(t.input_stride * count)} + {place}",
        )
        body = f"{x}\nconst float* wt = {w};\n{step}"
        for i in reversed(range(rank)):
            body = loop(f"i{i}", "0", self.args.dim(t.kernel[i]), body)
        channels = self.args.dim(t.c // t.group)
        whole = loop("c", "0", channels, body)
        if isinstance(count, int):
            return whole
        pixel = [
            f"const float* xt = x + c * {plane};",
            f"const float* wt = w + c * {self.args.dim(t.input_stride * count)};",
            step,
        ]
        return choice(f"{self.args.dim(count)} == 1", [loop("c", "0", channels, *pixel)], [whole])

    def _multiply(self, sizes: tuple[int, ...]) -> str:
        """Units are (image, group, output line); each takes all channels of the group and all
        columns.
        """
        t, rank = self.taps, len(self.taps.kernel)
        lines, row = prod(t.out[:-1]), self.pitch * t.strides[-1]
        names = [f"o{i}" for i in range(rank - 1)]
        places = [
            f"o{i} * {self.args.dim(prod(self.padded[i + 1 :]) * row * t.strides[i])}"
            for i in range(rank - 1)
        ]
        inputs, plane = t.c // t.group, self.args.dim(prod(self.padded) * row)
        count = prod(t.kernel)
        weights = count * (
            t.channel_stride * self.rows if not t.reversed else t.input_stride * inputs
        )
        each = self.args.dim(count * t.channel_stride)
        w = f"{self.args.input(t.w)} + group * {self.args.dim(weights)} + m * {each}"
        first = f"(image * {self.args.dim(t.c)} + group * {self.args.dim(inputs)}) * {plane}"
        rows = self.args.dim(self.rows)
        call = f"a, xl + q, {w}, image, group * {rows} + m, line, q"
        tiles = ["int64_t m = 0;\n" + self._channels(sizes, v, rows, call) for v in self.widths]
        wide = f"{self.args.dim(t.out[-1])} - q > {self.lanes}"
        tile = tiles[0] if len(tiles) == 1 else choice(wide, tiles[:1], tiles[1:])
        body = [
            decode("u", ["image", "group", "line"], ["0", str(t.group), self.args.dim(lines)]),
            decode("line", names, [self.args.dim(d) for d in t.out[:-1]]),
            f"const float* xl = {self.args.sum(self.x, first, *places)};",
            loop(
                "q",
                "0",
                self.args.dim(t.out[-1]),
                tile,
                step=self.vectors * self.lanes,
            ),
        ]
        return f"{split(self.args.dim(t.n * t.group * lines))}\n{loop('u', 'lo', 'hi', *body)}"

    def _channels(self, sizes: Sequence[int], vectors: int, rows: str, call: str) -> str:
        return by_rows(sizes, "m", rows, lambda s: f"TX_NAME(t{s}x{vectors})({call});")

    def _copy(self) -> str:
        """The first launch: every padded row, zero where nothing lies."""
        t, rank = self.taps, len(self.taps.kernel)
        names = [f"i{i}" for i in range(rank - 1)]
        inside, place = ["1"], "plane"
        for i in range(rank - 1):
            where = f"(i{i} - {self.args.dim(t.begins[i])})"
            inside.append(self._inside(where, i))
            place = f"({place}) * {self.args.dim(t.size[i])} + {where} / {t.stuffing[i]}"
        row = self.args.dim(self.pitch * t.strides[-1])
        sizes = [self.args.dim(d) for d in self.padded]
        empty = f"memset(out, 0, {row} * sizeof *out);"
        body = [
            decode("r", ["plane", *names], ["0", *sizes]),
            f"float* out = {self.x} + r * {row};",
            block(f"if (!({' && '.join(inside)}))", empty, "continue;") if rank > 1 else "",
            f"const float* const from = {self.args.input(t.x)} + ({place}) * {self._width()};",
            *(self._stuffed() if t.stuffing[-1] != 1 else self._sorted()),
        ]
        return (
            f"{split(self.args.dim(t.n * t.c * prod(self.padded)))}\n{loop('r', 'lo', 'hi', *body)}"
        )

    def _width(self) -> str:
        return self.args.dim(self.taps.size[-1])

    def _stuffed(self) -> list[str]:
        """A row whose elements lie apart."""
        apart, begin = self.taps.stuffing[-1], self.args.dim(self.taps.begins[-1])
        pitch = self.args.dim(self.pitch)
        return [
            f"memset(out, 0, {pitch} * sizeof *out);",
            f"const int64_t first = tx_first_tap({begin}, {apart});",
            f"const int64_t end = tx_end_tap({begin}, {apart}, {pitch}, {self._width()});",
            loop("q", "first", "end", f"out[q * {apart} + {begin}] = from[q];"),
        ]

    def _sorted(self) -> list[str]:
        """A row, sorted by the remainder modulo the stride."""
        s, begin = self.taps.strides[-1], self.args.dim(self.taps.begins[-1])
        pitch, at = self.args.dim(self.pitch), f"(p - {begin})"
        each = [
            f"const int64_t first = tx_first_tap({at}, {s});",
            f"const int64_t some = first < {pitch} ? first : {pitch};",
            f"const int64_t most = tx_end_tap({at}, {s}, {self._width()}, {pitch});",
            "const int64_t end = most < some ? some : most;",
            loop("q", "0", "some", "out[q] = 0.0f;"),
            loop("q", "some", "end", f"out[q] = from[q * {s} + {at}];"),
            loop("q", "end", pitch, "out[q] = 0.0f;"),
            f"out += {pitch};",
        ]
        return [loop("p", "0", str(s), *each)]

    def _inside(self, where: str, axis: int) -> str:
        """Whether a place, counted from the input's begin, holds an element."""
        t = self.taps
        stuffing, size = t.stuffing[axis], self.args.dim(t.size[axis])
        even = f" && {where} % {stuffing} == 0" if stuffing != 1 else ""
        return f"{where} >= 0 && {where} < {size} * {stuffing}{even}"
