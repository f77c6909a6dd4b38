"""Convolution in the blocked format, on register tiles along output rows.

A tile is some neighbouring pixels times some channel blocks. Rows of static width are cut into
tiles whose taps beyond the border are left out; otherwise a first launch copies the input with its
columns padded. Rows beyond the border are never visited. A first layer may read a linear image.
Knobs: ``rows`` (pixels) and ``vectors`` (channel blocks) of a tile; ``blocks``, the input channel
blocks after which partial sums go to the workspace (0: all at once); ``span``, whether tiles go
across rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, Format, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import tile as c_tile
from tactix_cpu.tactics.conv.joined import JoinedKernel
from tactix_cpu.tactics.conv.kernel import (
    ConvKernel,
    GatherKernel,
    gathered,
    register_tiles,
    step_cycles,
)
from tactix_cpu.tactics.conv.prepared import PreparedKernel
from tactix_cpu.tactics.conv.span import SpanKernel, can_span, pixels_of
from tactix_cpu.tactics.conv.window import (
    CpuConvolutionWindow,
    formats,
    joined_window,
    prepared_window,
    row_runs,
)
from tactix_cpu.tactics.estimates import CLOCK, START, STREAM

OFFERED = 4
"""Variants of a node at most: those of the fewest cycles; each costs a compilation, 0.3 s with gcc
on the prototype (README), and timed runs.
"""
FEW_CHANNELS = 4
"""An image with at most so many channels is read linear: in blocks most lanes would be zero. Four
of 16 are filled at most, and pictures have three or four.
"""
SLAB_BYTES = 1 << 19
"""A panel's weights, in bytes, that are larger than this are worth cutting by input channels: they
are half of a second cache of 1 MiB, which is to hold the input, too. Parts of half that size are
offered beside the whole; measuring decides. No measurement of it is on record.
"""
USUAL_SIZE = 32
"""What an unknown size counts as where variants are ranked. A guess at what images have."""
PARTIAL = 2.0
"""Cycles to read and write a vector of partial sums in a further pass: a load and a store with
their addresses. No measurement of it is on record.
"""
PREPARED = 3.0
"""Cycles to take a vector of the input through what stands before the convolution: a load from the
second cache, a few operations and a store. No measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuConvTactic(), JoinedConvTactic()]


@dataclass(frozen=True)
class DirectConvolution:
    """A convolution as it is, and as one product of a gathered input: the same where that is no
    gain.
    """

    plain: CpuConvolutionWindow
    gathered: CpuConvolutionWindow

    def read_as(self, source: Format) -> CpuConvolutionWindow:
        """How the kernel sees an input in that format: a linear image is never gathered."""
        return self.plain if source.is_linear else self.gathered


class CpuConvTactic(Tactic[DirectConvolution]):
    """float32, up to three spatial axes, constant weights; groups of whole channel blocks."""

    key = "tactix.c_conv@1"
    implements: tuple[str, ...] = ("tactix.Convolution@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> DirectConvolution | Reject:
        win = prepared_window(node, axes=(1, 2, 3))
        if isinstance(win, Reject):
            return win
        lanes = max(4, device.lanes)
        if win.group > 1 and (win.c // win.group % lanes or win.co // win.group % lanes):
            return Reject("groups of whole channel blocks only")
        return DirectConvolution(win, gathered(win))

    def variants(
        self, work: DirectConvolution, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        win = work.plain
        lanes = max(4, device.lanes)
        plain = win.before is None and win.dtype is DType.FP32
        few = win.c <= FEW_CHANNELS and win.group == 1 and plain
        source = LINEAR if few else blocked(lanes)
        found = formats(win, blocked(lanes), source)
        if isinstance(found, Reject):
            return found
        outputs = (blocked(lanes),) * len(win.node.outputs)
        win = work.read_as(source)
        options = [
            Variant.of(found, outputs, rows=rows, vectors=vectors, blocks=blocks, span=span)
            for rows, vectors, span in (*shapes(win, source, device), *_spans(win, device))
            for blocks in _blocks(win, vectors, lanes, source)
        ]
        return c_tile.best(options, lambda v: cycles(win, v, device), OFFERED)

    def cost(self, work: DirectConvolution, variant: Variant, ctx: CompileContext) -> float | None:
        win = work.plain
        size = win.n * prod(win.spatial) * win.depth.size * win.size[0] * win.size[1]
        if not symbols(size) <= set(ctx.opt):
            return None
        read = work.read_as(variant.input_format(win.x))
        found = cycles(read, variant, ctx.device, dict(ctx.opt))
        return START + found / CLOCK / max(1, ctx.threads)

    def compile(
        self, work: DirectConvolution, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        win = work.plain
        if work.read_as(variant.input_format(win.x)) is not win:
            return GatherKernel(win, variant, ctx).artifact()
        if win.before is not None:
            return PreparedKernel(win, variant, ctx).artifact()
        if win.joined > 1:
            return JoinedKernel(win, variant, ctx).artifact()
        return (SpanKernel if variant.number("span") else ConvKernel)(win, variant, ctx).artifact()


class JoinedConvTactic(CpuConvTactic):
    """float32 with groups of equal numbers of channels, a whole part of a vector: as many as fill
    one are computed side by side.
    """

    key = "tactix.c_joined_conv@1"
    beyond = "examples have no groups of a part of the vectors of each processor"

    def match(self, node: Node, device: DeviceProperties) -> DirectConvolution | Reject:
        win = joined_window(node, max(4, device.lanes))
        return win if isinstance(win, Reject) else DirectConvolution(win, win)


def shapes(
    win: CpuConvolutionWindow, source: Format, device: DeviceProperties
) -> list[tuple[int, int, bool]]:
    """Tiles worth trying: equal ones along a row, panels that do not cross groups; and whether they
    span rows.

    In a linear image neighbouring taps share elements, which the compiler keeps: half the registers
    are left for that (no measurement of that share is on record). Else tiles fill them, as was best
    for the prototype (README).
    """
    lanes = max(4, device.lanes)
    per_group = -(-win.co // win.group // lanes)
    width: Dim = prod(win.spatial) if win.is_pointwise else win.out[1]
    found: dict[tuple[int, int, bool], None] = {}
    half = c_tile.registers(device) // 2
    for most, vectors in (
        ((half // 2, 2), (half - 2, 1)) if source.is_linear else register_tiles(win, device)
    ):
        rows = -(-width // -(-width // most)) if isinstance(width, int) and width > 0 else most
        wide = min(vectors, per_group)
        if win.group > 1:
            wide = max(v for v in range(1, wide + 1) if per_group % v == 0)
        found[rows, wide, False] = None
    return list(found)


def _spans(win: CpuConvolutionWindow, device: DeviceProperties) -> list[tuple[int, int, bool]]:
    """Tiles across rows worth trying, for small images: equal ones."""
    if win.joined > 1:
        return []
    pixels, per_group = pixels_of(win), -(-win.co // win.group // max(4, device.lanes))
    out = []
    for most, vectors in register_tiles(win, device):
        fits = vectors <= per_group and (win.group == 1 or per_group % vectors == 0)
        if pixels and fits and can_span(win, most):
            out.append((-(-pixels // -(-pixels // most)), vectors, True))
    return out


def _blocks(win: CpuConvolutionWindow, vectors: int, lanes: int, source: Format) -> tuple[int, ...]:
    """Input channel blocks per sweep: those of half the second cache, or all."""
    one = win.all_taps * lanes * vectors * lanes * win.dtype.itemsize
    count = -(-win.c // win.group // lanes)
    if source.is_linear or one * count <= SLAB_BYTES:
        return (0,)
    return (0, max(1, SLAB_BYTES // 2 // one))


def cycles(
    win: CpuConvolutionWindow,
    v: Variant,
    device: DeviceProperties,
    opt: dict[str, int] | None = None,
) -> float:
    """Cycles on one core, by the tile's cycles per step; unknown sizes count as 32."""
    lanes, rows, vectors = max(4, device.lanes), v.number("rows"), v.number("vectors")
    axes = (win.n, win.depth.out * win.out[0], win.out[1])
    size = {s: USUAL_SIZE for d in axes for s in symbols(d)} | (opt or {})
    n, high, wide = (evaluate(d, size) for d in axes)
    panels = -(-win.co // (vectors * lanes))
    channels = win.c // win.group // win.joined
    steps = -(-channels * win.dtype.bits // 32)
    depth = (steps + steps % 2) * win.all_taps  # in pairs of steps (_channels in kernel.py)
    whole = win.is_pointwise or dict(v.knobs).get("span")
    length, lines = (high * wide, n) if whole else (wide, n * high)
    known = isinstance(win.out[1], int) and (whole or row_runs(win, rows) is not None)
    # cycles of a panel's first tile for which its weights, 4 bytes each, are not there yet
    wait = (
        max(
            0.0, vectors * lanes * 4 / STREAM - step_cycles(win, min(rows, length), vectors, device)
        )
        * depth
    )
    total, left = 0.0, length
    for part in (rows, *c_tile.rest_sizes(rows, length if known else None)):
        tiles, left = divmod(left, part)
        total += tiles * (
            step_cycles(win, part, vectors, device) * depth
            + part * vectors  # the epilogue: a cycle for a vector of results, beside the next tile
        )
    blocks = v.number("blocks")
    passes = -(-channels // lanes // blocks) if blocks else 1
    before = lines * length * -(-win.c // lanes) * PREPARED if win.before else 0.0
    return before + panels * (
        n * wait + lines * (total + (passes - 1) * length * vectors * PARTIAL)
    )
