"""Winograd convolution F(m, r) in the blocked format, at stride 1: windows of a few taps along one
axis, or along two, dilated or not.

An output tile is made of an input patch of ``length`` = m + r - 1 pixels along every axis that has
taps, both turned by small fixed matrices: ``Y = A' [(G w G') * (B' x B)] A`` (Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", 2015; points as in Toom and Cook's polynomial
products). Each place of a patch is a matrix product over channels. F(4 x 4, 3 x 3) takes a quarter
of the multiplications of a direct convolution, F(4, 5) along one axis two fifths; their errors are
some times larger: the accuracy gate decides. An infinite input makes NaN of all pixels of its
tiles.

Over three axes the window has any number of such slices, at stride 1, too: patches of each slice of
the input are turned once, and products are summed over the taps along the depth. Outputs of a
dilated window are as many pixels apart as its taps, so that tiles lie in each other.

Tiles are taken in blocks whose patches and sums stay in the second cache. Knobs: ``length``;
``rows`` (tiles) and ``vectors`` (output channel blocks) of a register tile; ``tiles`` and
``slices`` of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import tile as c_tile
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.conv.kernel import register_tiles, step_cycles
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow, formats, window
from tactix_cpu.tactics.conv.winograd_kernel import Blocks, WinogradKernel, sides
from tactix_cpu.tactics.estimates import CLOCK, START, STREAM

OFFERED = 3
"""Variants of a node at most: those of the fewest cycles. Each costs a compilation, 0.3 s with gcc
on the prototype (README); no measurement of their number is on record.
"""
BLOCK_BYTES = 1 << 19
"""Bytes of patches and sums of a block of tiles: half of a second cache of 1 MiB, as weights pass
through it, too. No measurement of it is on record.
"""
LEAST_TILES = 28
"""Tiles of a block that are worth reading all weights for: two register tiles of 14, even where
their patches then take more than ``BLOCK_BYTES``. No measurement of it is on record.
"""
STORES = 5.0
"""Cycles of a transform for each vector of its elements, both passes: loads, sums and stores. No
measurement of it is on record.
"""
Lengths = tuple[tuple[int, ...], tuple[int, ...]]
"""Lengths of patches: of those that are turned along one axis, and along two."""
FMA = 32
"""Multiplications that a direct convolution does in a cycle: two vectors of 16."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [WinogradTactic()]


class WinogradTactic(Tactic[CpuConvolutionWindow]):
    """float32, up to three spatial axes of static size, constant weights with taps along the last
    one or two, stride 1, one group.
    """

    key = "tactix.c_winograd@1"
    implements: tuple[str, ...] = ("tactix.Convolution@1",)
    source = "winograd"
    by_signature = True
    spreads = True
    """What is no number makes its neighbours none, as they share sums."""
    lengths: Lengths = ((4, 6, 8), (4, 6))
    """Those that are worth trying."""

    def match(self, node: Node, device: DeviceProperties) -> CpuConvolutionWindow | Reject:
        return turnable(window(node, axes=(1, 2, 3)), device, self.lengths)

    def variants(
        self, win: CpuConvolutionWindow, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        lanes = max(4, device.lanes)
        found = formats(win, blocked(lanes), blocked(lanes))
        if isinstance(found, Reject):
            return found
        outputs = (blocked(lanes),) * len(win.node.outputs)
        options = [
            [
                Variant.of(
                    found,
                    outputs,
                    length=length,
                    rows=rows,
                    vectors=vectors,
                    tiles=tiles,
                    slices=slices,
                )
                for rows, vectors, tiles, slices in _shapes(win, length, device)
            ]
            for length in self.lengths[_turned_axes(win) - 1]
            if _spares(win, length) and _pays(win, length, device)
        ]
        ranked = [c_tile.best(vs, lambda v: cycles(win, v, device), OFFERED) for vs in options]
        if not ranked:
            return Reject("reading the turned weights takes longer than a direct convolution")
        return min(ranked, key=lambda vs: cycles(win, vs[0], device))

    def cost(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> float | None:
        if not symbols(win.n) <= set(ctx.opt):
            return None
        return 2 * START + evaluate(win.n, ctx.opt) * cycles(
            win, variant, ctx.device
        ) / CLOCK / max(1, ctx.threads)

    def compile(
        self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return WinogradKernel(win, variant, ctx).artifact()


def turnable(
    win: CpuConvolutionWindow | Reject, device: DeviceProperties, lengths: Lengths
) -> CpuConvolutionWindow | Reject:
    """The window, or why it cannot be turned in patches of those lengths."""
    if isinstance(win, Reject):
        return win
    lanes = max(4, device.lanes)
    if not _turned_axes(win) or (win.depth.stride, *win.strides) != (1, 1, 1) or win.group != 1:
        return Reject("windows with taps along rows or columns at stride 1 without groups only")
    if not any(_spares(win, length) for length in lengths[_turned_axes(win) - 1]):
        return Reject(f"windows of {win.kernel[0]} by {win.kernel[1]} are too large to be turned")
    sizes = (*win.size, *win.out, win.depth.size, win.depth.out)
    if min(win.c, win.co) < lanes or not all(isinstance(d, int) for d in sizes):
        return Reject("fewer channels than lanes, or image sizes that are not known before running")
    return win


def _turned_axes(win: CpuConvolutionWindow) -> int:
    return sum(taps > 1 for taps in win.kernel)


def _spares(win: CpuConvolutionWindow, length: int) -> bool:
    """Whether patches of that length make at least two outputs along every axis with taps."""
    return all(side.taps == 1 or side.m > 1 for side in sides(win, length))


def _pays(win: CpuConvolutionWindow, length: int, device: DeviceProperties) -> bool:
    """Whether weights come from memory in less cycles than a direct convolution multiplies for.

    This and the length are not left to timing, which finds weights in a cache, where those of a
    whole network are not: on a Zen 5 F(4 x 4) won at 14 x 14 pixels with warm weights, and lost
    with cold ones (README). Both sides are cycles for a pair of input and output channels: its
    turned weights, and its taps at every pixel.
    """
    pixels, size, at_once = evaluate(prod(win.spatial), {}), win.dtype.bits // 8, float(FMA)
    if win.node.specs[win.x].dtype is DType.BF16:
        at_once = byte.HALVES.group * device.lanes / byte.product_cycles(byte.HALVES, device)
    places = Blocks(win, length, 1, 1).places
    return places * size / STREAM < pixels * win.taps / at_once


def _shapes(
    win: CpuConvolutionWindow, length: int, device: DeviceProperties
) -> list[tuple[int, int, int, int]]:
    """Register tiles worth trying, and tiles and slices of a block: about equal blocks of whole
    register tiles.
    """
    lanes = max(4, device.lanes)
    deep, wide = -(-win.c // lanes), -(-win.co // lanes)
    found: dict[tuple[int, int, int, int], None] = {}
    for slices in _slices(win):
        whole = Blocks(win, length, 1, slices)
        held = deep * whole.patches * win.dtype.bits // 32 + wide * whole.results
        most = max(-(-LEAST_TILES // slices), BLOCK_BYTES // (whole.places * held * lanes * 4))
        block = -(-whole.count // -(-whole.count // most))
        for limit, vectors in register_tiles(win, device):
            total = block * slices
            rows = -(-total // -(-total // limit))
            tiles = block if slices > 1 else -(-block // rows) * rows
            found[rows, min(vectors, wide), tiles, slices] = None
    return list(found)


def _slices(win: CpuConvolutionWindow) -> list[int]:
    """Slices of a block worth trying: all, halves of them, and so on down to one."""
    slices = evaluate(win.depth.out, {})
    found = [slices]
    while slices > 1:
        slices = -(-slices // 2)
        found.append(slices)
    return found


def cycles(win: CpuConvolutionWindow, v: Variant, device: DeviceProperties) -> float:
    """Cycles on one core for one image.

    At every place of a patch a product: steps of register tiles, waiting for the weights of each
    sweep's first tile, a cycle to save a vector of sums; and the transforms of both sides.
    """
    lanes, length, rows, vectors = (
        max(4, device.lanes),
        *(v.number(k) for k in ("length", "rows", "vectors")),
    )
    cut = Blocks(win, length, v.number("tiles"), v.number("slices"))
    deep, wide = -(-win.c // lanes), -(-win.co // lanes)
    panels, count = -(-wide // vectors), cut.count * cut.depth
    patches = cut.count * (cut.depth + cut.groups * cut.reach)
    step = step_cycles(win, rows, vectors, device)
    wait = max(0.0, vectors * lanes * 4 / STREAM - step)
    steps = -(-count // rows) * step + cut.units * wait
    depth = deep * win.depth.kernel * lanes * win.dtype.bits // 32
    product = panels * (depth * steps + count * vectors)
    return cut.places * (product + (patches * deep + count * wide) * STORES)
