"""Convolution of single pixels and the depthwise one behind it, in the blocked format: lines of the
first are made into memory of one thread, as many as a window is high, and the second reads them
there. The tensor between them, the largest of a block of MobileNet, is never in memory that
threads share.

The mean of the results over their pixels is taken on the way, where a network asks for it. Knobs:
``rows``, pixels of a tile of the first; ``vectors``, its channel blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tactix.base.dims import Dim, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.fuse.split import apart
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import comment, loop, split, store
from tactix_codegen.c.tile import RegisterTile, by_rows, finish, rest_sizes
from tactix_cpu.tactics.conv.depthwise import RESULT, TAP, TAP_LOADS, packed_taps, tap_sums
from tactix_cpu.tactics.conv.direct import OFFERED, cycles
from tactix_cpu.tactics.conv.held import HeldKernel, HeldWindows
from tactix_cpu.tactics.conv.window import (
    BlockedSite,
    CpuConvolutionWindow,
    SumsSite,
    formats,
    row_runs,
    summed_window,
    window,
)
from tactix_cpu.tactics.estimates import CLOCK, START

DEPTHWISE_ROWS = {32: 14, 16: 7}
"""Pixels of a tile of the depthwise convolution, by vector registers (depthwise.py)."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuExpandedConvTactic()]


@dataclass(frozen=True)
class ExpandedConvolution:
    """``win``: the convolution of single pixels, ``deep``: the depthwise one; both over the inputs
    of the whole node.
    """

    win: CpuConvolutionWindow
    deep: CpuConvolutionWindow


class CpuExpandedConvTactic(Tactic[ExpandedConvolution]):
    """float32, one or two spatial axes, constant weights, no groups before the depthwise one."""

    key = "tactix.c_expanded_conv@1"
    implements = ("tactix.Convolution@1",)
    source = "c"
    by_signature = True
    beyond = "examples are single layers, it takes chains"

    def match(self, node: Node, device: DeviceProperties) -> ExpandedConvolution | Reject:
        if not node.body.is_chain:
            return Reject("no convolution stands before it in the node")
        first, last = apart(node)
        if first.kind != self.implements[0] or node.given[: len(first.given)] != first.given:
            return Reject("these kernels take a convolution before the depthwise one")
        win, deep = window(first), summed_window(last, (DType.FP32,))
        if isinstance(win, Reject):
            return win
        if isinstance(deep, Reject):
            return deep
        if not win.is_pointwise or win.group > 1 or not deep.group == deep.c == deep.co:
            return Reject("single pixels without groups, then one channel for each channel only")
        if deep.dilations[0] != 1 or any(v.spec.dtype is not DType.FP32 for v in node.outputs):
            return Reject("lines side by side, and results of float32 only")
        return _over(node, win, deep, last)

    def variants(
        self, work: ExpandedConvolution, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        win, fmt = work.win, blocked(max(4, device.lanes))
        found = formats(win, fmt, fmt)
        if isinstance(found, Reject):
            return found
        blocks, wide = -(-win.co // fmt.lanes), win.out[1]
        tiles = dict.fromkeys(
            (-(-wide // -(-wide // most)) if isinstance(wide, int) else most, min(vectors, blocks))
            for most, vectors in c_tile.shapes(device)
        )
        outputs = (fmt,) * len(win.node.outputs)
        options = [
            Variant.of(found, outputs, rows=rows, vectors=vectors, blocks=0)
            for rows, vectors in tiles
        ]
        return c_tile.best(options, lambda v: cycles(win, v, device), OFFERED)

    def cost(
        self, work: ExpandedConvolution, variant: Variant, ctx: CompileContext
    ) -> float | None:
        win, deep = work.win, work.deep
        steps = deep.n * prod(deep.out) * (-(-deep.c // max(4, ctx.device.lanes)))
        if not symbols(win.n * prod(win.spatial) * steps) <= set(ctx.opt):
            return None
        tap = TAP + TAP_LOADS / DEPTHWISE_ROWS[c_tile.registers(ctx.device)]
        found = cycles(win, variant, ctx.device, dict(ctx.opt))
        found += evaluate(steps, ctx.opt) * (deep.taps * tap + RESULT)
        return START + found / CLOCK / max(1, ctx.threads)

    def compile(
        self, work: ExpandedConvolution, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return ExpandedKernel(work, variant, ctx).artifact()


def _over(
    node: Node, win: CpuConvolutionWindow, deep: CpuConvolutionWindow, last: Node
) -> ExpandedConvolution | Reject:
    """Both windows over the given inputs of the whole node."""
    places = {v: i for i, v in enumerate(node.given)}
    moved = [places.get(v, -1) for v in last.given]
    operands = {v: replace(o, index=moved[o.index]) for v, o in deep.epi.operands.items()}
    if any(o.index < 0 or node.given[o.index].const is None for o in operands.values()):
        return Reject("constants alone are read behind the depthwise convolution")
    epi = replace(deep.epi, operands=operands)
    deep = replace(deep, node=node, w=moved[deep.w], epi=epi)
    return ExpandedConvolution(replace(win, node=node), deep)


class ExpandedKernel(HeldKernel):
    """A depthwise convolution over lines that are held, with zeros on both sides."""

    reads_all = True

    def __init__(self, work: ExpandedConvolution, variant: Variant, ctx: CompileContext) -> None:
        deep = self.deep_win = work.deep
        top, left, _, right = deep.pads
        windows = HeldWindows(deep.kernel, deep.strides, (top, left), deep.out, (left, right))
        super().__init__(work.win, windows, variant, ctx)
        self.runs = row_runs(work.win, self.tile.rows)
        lanes = self.tile.lanes
        self.reader: BlockedSite = (SumsSite if deep.has_means else BlockedSite)(
            self.args, deep, lanes, ""
        )
        most = DEPTHWISE_ROWS[c_tile.registers(ctx.device)]
        wide = deep.out[1]
        self.pixels = -(-wide // -(-wide // most)) if isinstance(wide, int) else most

    # -- memory -----------------------------------------------------------------------------------

    def _sums_bytes(self) -> Dim:
        """Of the results of every line, by channel block: means are taken of these."""
        deep = self.deep_win
        lines = deep.n * deep.out[0] * self.reader.blocks
        return lines * (self.tile.lanes * 4) if deep.has_means else 0

    def _workspace(self) -> Dim:
        return super()._workspace() + self._sums_bytes()

    def _windowed(self) -> str:
        if self.deep_win.has_means:
            self.sums = self.args.workspace(self.held_bytes * self.threads)
        return super()._windowed()

    def _begin(self) -> list[str]:
        left, right = self.windows.around
        lanes, args = self.tile.lanes, self.args
        line, wide = args.size("LINE", self.line), args.dim(self.win.out[1] * lanes)
        count = self.tile.vectors * self.windows.kernel[0]
        place = f"held + i * {line}"
        zeros = [
            f"memset({place}, 0, {left * lanes * 4});" if left else "",
            f"memset({place} + {wide} + {left * lanes}, 0, {right * lanes * 4});" if right else "",
        ]
        about = comment("zeros on both sides of the lines that are held")
        return [about, loop("i", "0", str(count), *zeros)] if left or right else []

    # -- text -------------------------------------------------------------------------------------

    def _columns(self) -> list[str]:
        deep, args, lanes = self.deep_win, self.args, self.tile.lanes
        taps = args.constant("d", packed_taps(deep, lanes))
        blocks, wide = args.size("Y_BLOCKS", self.reader.blocks), args.dim(deep.out[1])
        known = deep.out[1] if isinstance(deep.out[1], int) else None
        rest = rest_sizes(self.pixels, known)
        sizes = rest if known is not None and known < self.pixels else (self.pixels, *rest)
        names = {size: self._tile_of_depthwise(size) for size in sizes}
        step = deep.strides[1] * lanes

        def call(size: int) -> str:
            where = f"image, block + v, o * {wide} + q, v * HELD + q * {step}"
            inside = "lowest - start, end - start" + ", total" * deep.has_means
            return f"TX_NAME({names[size]})(a, lines, taps, {where}, {inside});"

        total = [
            f"float* total = {self.sums_of('image', 'o', 'block + v')};",
            "tx_store_f32(total, tx_zero());",
        ]
        body = [
            f"if (block + v >= {blocks}) break;" if self.reader.blocks % self.tile.vectors else "",
            f"const float* taps = {taps} + (block + v) * {deep.taps * lanes};",
            *(total if deep.has_means else []),
            "int64_t q = 0;",
            by_rows(sizes, "q", wide, call),
        ]
        about = comment("the depthwise convolution of line o, of each channel block of the panel")
        return [about, loop("v", "0", str(self.tile.vectors), *body)]

    def sums_of(self, image: str, line: str, channels: str) -> str:
        """Where the sum of a line of results is."""
        if not self.deep_win.has_means:
            return ""
        high, blocks = (self.args.dim(d) for d in (self.deep_win.out[0], self.reader.blocks))
        lanes = self.args.size("LANES", self.tile.lanes)
        return f"{self.sums} + (({image} * {high} + {line}) * {blocks} + {channels}) * {lanes}"

    def _tile_of_depthwise(self, size: int) -> str:
        """The function of a tile of ``size`` pixels of a line; returns its name."""
        deep, lanes, name = self.deep_win, self.tile.lanes, f"d{size}"
        tile = RegisterTile(size, 1, lanes)
        head = (
            f"const float* xr = lines[i] + at;\nconst float* wr = w + i * {deep.kernel[1] * lanes};"
        )
        sums = loop("i", "top", "bottom", head, *tap_sums(deep, tile, lanes, None))
        body = [tile.zero(), sums, *finish(tile, deep.epi, self.reader)]
        if deep.has_means:
            add = "tx_store_f32(total, tx_load_f32(total) + sum);"
            body = [*body[:2], "vf sum = tx_zero();", *body[2:], add]
        parameters = (
            "const float* const* lines, const float* w, int64_t image, int64_t block, "
            "int64_t pixel, int64_t at, int64_t top, int64_t bottom"
        )
        parameters += ", float* total" * deep.has_means
        about = (
            f"{size} pixels from pixel on, of channel block `block`: the row taps from top to "
            "bottom of the window that begins at `at`; then what follows"
        )
        self.functions.add(name, parameters, body, about)
        return name

    def _launches(self) -> list[str]:
        return [*super()._launches(), *([self._means()] if self.deep_win.has_means else [])]

    def _means(self) -> str:
        """The last launch: adds the sums of the lines of a channel block."""
        deep, lanes, args = self.deep_win, self.tile.lanes, self.args
        high, blocks = args.dim(deep.out[0]), args.size("Y_BLOCKS", self.reader.blocks)
        place = self.sums_of(f"(u / {blocks})", "line", f"u % {blocks}")
        mean = f"sum / (float){args.size('COUNT', prod(deep.spatial))}"
        if deep.c % lanes:
            mean = f"tx_keep({mean}, {deep.c} - u % {blocks} * {lanes})"
        body = [
            "vf sum = tx_zero();",
            loop("line", "0", high, f"sum += tx_load_f32({place});"),
            store(DType.FP32, f"{args.output(1)} + u * LANES", mean),
        ]
        about = comment("the last launch: means of channel blocks, of the sums of their lines")
        mine = split(args.dim(deep.n * self.reader.blocks))
        return "\n".join([about, mine, loop("u", "lo", "hi", *body)])
