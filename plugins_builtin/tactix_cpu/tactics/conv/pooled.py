"""Convolution and the largest of windows of its results, in the blocked format: lines of the
convolution are made into memory of one thread, as many as a window is high, and pooled from there.

Knobs: those of conv.direct, without partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tactix.base import dims
from tactix.base.dims import evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.fuse.split import apart
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import block, comment, loop
from tactix_codegen.operations.pool import PoolWindow, window_of
from tactix_cpu.tactics.conv.direct import FEW_CHANNELS, OFFERED, cycles, shapes
from tactix_cpu.tactics.conv.held import HeldKernel, HeldWindows, less
from tactix_cpu.tactics.conv.window import CpuConvolutionWindow, formats, window
from tactix_cpu.tactics.estimates import CLOCK, START

TAP = 1.0
"""Cycles to join a vector to the largest of a window: a load and a comparison. No measurement of it
is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuPooledConvTactic()]


@dataclass(frozen=True)
class PooledConvolution:
    """``win``: the convolution, over the inputs of the whole node; ``pool``: what follows."""

    win: CpuConvolutionWindow
    pool: PoolWindow


class CpuPooledConvTactic(Tactic[PooledConvolution]):
    """float32, two spatial axes, constant weights; groups of whole channel blocks."""

    key = "tactix.c_pooled_conv@1"
    implements = ("tactix.MaxPool@1",)
    source = "c"
    by_signature = True
    beyond = "examples are single layers, it takes chains"

    def match(self, node: Node, device: DeviceProperties) -> PooledConvolution | Reject:
        if not node.body.is_chain:
            return Reject("no convolution stands before it in the node")
        first, last = apart(node)
        if last.is_fused or node.given[: len(first.given)] != first.given:
            return Reject("these kernels take nothing behind the pooling")
        win = window(first)
        if isinstance(win, Reject):
            return win
        lanes = max(4, device.lanes)
        if win.is_pointwise or node.outputs[0].spec.dtype is not DType.FP32:
            return Reject("convolutions of more than single pixels to float32 only")
        if win.group > 1 and (win.c // win.group % lanes or win.co // win.group % lanes):
            return Reject("groups of whole channel blocks only")
        return PooledConvolution(replace(win, node=node), window_of(last))

    def variants(
        self, work: PooledConvolution, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        win, lanes = work.win, max(4, device.lanes)
        source = LINEAR if win.c <= FEW_CHANNELS and win.group == 1 else blocked(lanes)
        found = formats(win, blocked(lanes), source)
        if isinstance(found, Reject):
            return found
        options = [
            Variant.of(found, (blocked(lanes),), rows=rows, vectors=vectors, blocks=0)
            for rows, vectors, _ in shapes(win, source, device)
        ]
        return c_tile.best(options, lambda v: cycles(win, v, device), OFFERED)

    def cost(self, work: PooledConvolution, variant: Variant, ctx: CompileContext) -> float | None:
        win, pool = work.win, work.pool
        taps = win.n * prod(pool.out) * prod(pool.kernel) * dims.ceildiv(win.co, ctx.device.lanes)
        if not symbols(win.n * prod(win.spatial) * taps) <= set(ctx.opt):
            return None
        found = cycles(win, variant, ctx.device, dict(ctx.opt)) + TAP * evaluate(taps, ctx.opt)
        return START + found / CLOCK / max(1, ctx.threads)

    def compile(
        self, work: PooledConvolution, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return PooledKernel(work, variant, ctx).artifact()


class PooledKernel(HeldKernel):
    """The largest of each window over lines that are held."""

    def __init__(self, work: PooledConvolution, variant: Variant, ctx: CompileContext) -> None:
        pool = work.pool
        pairs = (pool.kernel, pool.strides, pool.before, pool.out)
        kernel, strides, before, out = ((p[0], p[1]) for p in pairs)
        windows = HeldWindows(kernel, strides, before, out)  # type: ignore[arg-type]
        super().__init__(work.win, windows, variant, ctx)

    def _columns(self) -> list[str]:
        pool, args, vectors = self.windows, self.args, self.tile.vectors
        plane, wide = args.size("POOLED", prod(pool.out)), args.dim(pool.out[1])
        blocks = args.size("Y_BLOCKS", self.site.blocks)
        self._pooling()
        place = f"((image * {blocks} + block + v) * {plane} + o * {wide}) * LANES"
        out = f"{args.output(0)} + {place}"
        held = "lines + (lowest - start), end - lowest, v * HELD"
        call = f"TX_NAME(pooled)(a, {held}, p0, p1, {out});"
        if self.site.blocks % vectors:
            call = block(f"if (block + v < {blocks})", call)
        room = f"until + {args.dim(pool.before[1])} - {pool.kernel[1]}"
        inside = f"({room}) / {pool.strides[1]} + 1"
        every = f"until == {args.dim(self.win.out[1])} || {inside} > {wide}"
        return [
            comment("windows [p0, p1) are not pooled yet, and their columns are there"),
            f"const int64_t p1 = {every} ? {wide} : {room} < 0 ? 0 : {inside};",
            loop("v", "0", str(vectors), call),
            "p0 = p1;",
        ]

    def _pooling(self) -> None:
        """The function that pools some lines of a channel block."""
        pool, args = self.windows, self.args
        lanes = args.size("LANES", self.tile.lanes)
        kernel, high, wide = pool.kernel[1], pool.kernel[0], args.dim(self.win.out[1])
        start = f"q * {pool.strides[1]}{less(pool.before[1], args)}"
        join = "best = tx_max(best, tx_load_f32({} + {}));".format
        taps = [str(t * self.tile.lanes) for t in range(kernel)]
        inner = [join(f"lines[{i}] + at", t) for i in range(high) for t in taps]
        outer = loop("c", "first", "last", join("lines[i] + at", f"(c - x) * {lanes}"))
        body = [
            f"const int64_t x = {start}, at = plane + x * {lanes};",
            "vf best = tx_splat(-__builtin_inff());",
            block(f"if (count == {high} && x >= 0 && x + {kernel} <= {wide})", *inner),
            block(
                "else",
                "const int64_t first = x > 0 ? x : 0;",
                f"const int64_t last = x + {kernel} < {wide} ? x + {kernel} : {wide};",
                loop("i", "0", "count", outer),
            ),
            f"tx_store_f32(out + q * {lanes}, best);",
        ]
        about = (
            "the largest of each window [p0, p1) of `count` lines, of the channels that begin at "
            "`plane`"
        )
        parameters = (
            "const float* const* lines, int64_t count, int64_t plane, int64_t p0, int64_t p1, "
            "float* out"
        )
        self.functions.add("pooled", parameters, [loop("q", "p0", "p1", *body)], about)
