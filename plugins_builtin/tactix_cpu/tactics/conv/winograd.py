"""Winograd convolution F(m x m, 3 x 3) in the blocked format, for windows of 3 by 3 and stride 1.

An output tile of m by m pixels is made of an input patch of a = m + 2 by a pixels, both turned by
small fixed matrices: ``Y = A' [(G w G') * (B' x B)] A`` (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2015; points as in Toom and Cook's polynomial products). Each of the
a * a places is a matrix product over channels. m = 4 takes a quarter of the multiplications of a
direct convolution, and its error is some times larger: the accuracy gate decides. An infinite input
makes NaN of all pixels of its tiles.

Over three axes the window has any number of slices of 3 by 3, at stride 1, too: patches of each
slice of the input are turned once, and products are summed over the taps along the depth.

Tiles are taken in blocks whose patches and sums stay in the second cache. Knobs: ``m``; ``rows``
(tiles) and ``vectors`` (output channel blocks) of a register tile; ``tiles`` and ``slices`` of a
block.
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
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow, formats, window
from tactix_cpu.tactics.conv.winograd_kernel import Blocks, WinogradKernel
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
FMA = 32
"""Multiplications that a direct convolution does in a cycle: two vectors of 16."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [WinogradTactic()]


class WinogradTactic(Tactic[CpuConvolutionWindow]):
    """float32, two or three spatial axes of static size, constant weights of 3 by 3 along the last
    two, stride 1, one group.
    """

    key = "tactix.c_winograd@1"
    implements = ("tactix.Convolution@1",)
    source = "winograd"
    by_signature = True
    spreads = True
    """What is no number makes its neighbours none, as they share sums."""
    sides: tuple[int, ...] = (2, 4)
    """Sizes ``m`` of output tiles that are worth trying."""

    def match(self, node: Node, device: DeviceProperties) -> CpuConvolutionWindow | Reject:
        return three_by_three(window(node, axes=(1, 2, 3)), device)

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
                    found, outputs, m=m, rows=rows, vectors=vectors, tiles=tiles, slices=slices
                )
                for rows, vectors, tiles, slices in _shapes(win, m, device)
            ]
            for m in self.sides
            if _pays(win, m, device)
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


def three_by_three(
    win: CpuConvolutionWindow | Reject, device: DeviceProperties
) -> CpuConvolutionWindow | Reject:
    """The window, or why it cannot be turned."""
    if isinstance(win, Reject):
        return win
    lanes = max(4, device.lanes)
    if (
        win.kernel != (3, 3)
        or (win.depth.stride, *win.strides) != (1, 1, 1)
        or win.dilations != (1, 1)
        or win.group != 1
    ):
        return Reject("windows of 3 by 3 at stride 1 without groups only")
    sizes = (*win.size, *win.out, win.depth.size, win.depth.out)
    if min(win.c, win.co) < lanes or not all(isinstance(d, int) for d in sizes):
        return Reject("fewer channels than lanes, or image sizes that are not known before running")
    return win


def _pays(win: CpuConvolutionWindow, m: int, device: DeviceProperties) -> bool:
    """Whether weights come from memory in less cycles than a direct convolution multiplies for.

    This and ``m`` are not left to timing, which finds weights in a cache, where those of a whole
    network are not: on a Zen 5 F(4 x 4) won at 14 x 14 pixels with warm weights, and lost with cold
    ones (README). Both sides are cycles for a pair of input and output channels: its turned
    weights, and its 9 taps at every pixel.
    """
    pixels, size, at_once = evaluate(prod(win.spatial), {}), win.dtype.bits // 8, float(FMA)
    if win.dtype is DType.BF16:
        at_once = byte.HALVES.group * device.lanes / byte.product_cycles(byte.HALVES, device)
    return (m + 2) ** 2 * size / STREAM < pixels * 9 / at_once


def _shapes(
    win: CpuConvolutionWindow, m: int, device: DeviceProperties
) -> list[tuple[int, int, int, int]]:
    """Register tiles worth trying, and tiles and slices of a block: about equal blocks of whole
    register tiles.
    """
    lanes = max(4, device.lanes)
    deep, wide = -(-win.c // lanes), -(-win.co // lanes)
    found: dict[tuple[int, int, int, int], None] = {}
    for slices in _slices(win):
        whole = Blocks(win, m, 1, slices)
        held = deep * whole.patches * win.dtype.bits // 32 + wide * whole.results
        most = max(-(-LEAST_TILES // slices), BLOCK_BYTES // ((m + 2) ** 2 * held * lanes * 4))
        block = -(-whole.count // -(-whole.count // most))
        for limit, vectors in _register_tiles(win, device):
            total = block * slices
            rows = -(-total // -(-total // limit))
            tiles = block if slices > 1 else -(-block // rows) * rows
            found[rows, min(vectors, wide), tiles, slices] = None
    return list(found)


def _register_tiles(
    win: CpuConvolutionWindow, device: DeviceProperties
) -> tuple[tuple[int, int], ...]:
    return byte.shapes(device) if win.dtype is DType.BF16 else c_tile.shapes(device)


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
    lanes, m, rows, vectors = (
        max(4, device.lanes),
        *(v.number(k) for k in ("m", "rows", "vectors")),
    )
    cut = Blocks(win, m, v.number("tiles"), v.number("slices"))
    deep, wide = -(-win.c // lanes), -(-win.co // lanes)
    panels, count = -(-wide // vectors), cut.count * cut.depth
    patches = cut.count * (cut.depth + cut.groups * cut.reach)
    step = _step_cycles(win, rows, vectors, device)
    wait = max(0.0, vectors * lanes * 4 / STREAM - step)
    steps = -(-count // rows) * step + cut.units * wait
    depth = deep * win.depth.kernel * lanes * win.dtype.bits // 32
    product = panels * (depth * steps + count * vectors)
    return (m + 2) ** 2 * (product + (patches * deep + count * wide) * STORES)


def _step_cycles(
    win: CpuConvolutionWindow, rows: int, vectors: int, device: DeviceProperties
) -> float:
    """Cycles of a step of a register tile, which takes one channel, or a pair of bfloat16."""
    if win.dtype is DType.BF16:
        return byte.step_cycles(rows, vectors, byte.product_cycles(byte.HALVES, device))
    return c_tile.step_cycles(rows, vectors, c_tile.chains_for(rows, vectors))
