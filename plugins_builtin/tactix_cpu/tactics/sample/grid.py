"""GridSample in C: one to three axes, all modes and paddings; linear format.

Places and weights of a block of results are computed once, in float64, and serve all channels.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_cpu.tactics.sample.sums import FLOATS, WIDE, CpuSums

_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}
_PADDINGS = ("zeros", "border", "reflection")
_SCRATCH = 1024
"""Places and weights of a block, about as many as fit the first cache with what they read."""
_PLACED, _READ = 10e-9, 0.6e-9
"""Seconds to place a result along one axis, and to read and add one element. Sapphire Rapids, one
thread.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuGridSampleTactic()]


@dataclass(frozen=True)
class GridSampleWork:
    """An image, and where to read it: ``rank`` axes, ``taps`` elements along each."""

    node: Node
    rank: int
    taps: int

    @property
    def combinations(self) -> int:
        return int(self.taps**self.rank)

    @property
    def block(self) -> int:
        """Results whose places are computed together."""
        return max(16, min(128, _SCRATCH // self.combinations))


class CpuGridSampleTactic(Tactic[GridSampleWork]):
    """Floats; to the nearest also integers up to 32 bits and bool."""

    key = "tactix.c_grid_sample@1"
    implements = ("tactix.GridSample@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> GridSampleWork | Reject:
        x, grid = (v.spec for v in node.given[:2])
        taps, numbers = _TAPS[node.attrs.mode], (*FLOATS, DType.FP64)
        known = numbers if taps > 1 else (*numbers, *WIDE, DType.BOOL)
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if x.dtype not in known or grid.dtype not in numbers:
            return Reject(f"no {node.attrs.mode} samples of {x.dtype.value} in C")
        if not 3 <= x.rank <= 5:
            return Reject(f"no samples of rank {x.rank} in C")
        plane = dims.prod(x.shape[2:])
        if isinstance(plane, int) and not 0 < plane < 1 << 31:
            return Reject(f"no samples of planes of {plane} elements in C")
        return GridSampleWork(node, x.rank - 2, taps)

    def cost(self, work: GridSampleWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        grid, y = work.node.given[1].spec, work.node.outputs[0].spec
        placed, read = (dims.evaluate(s.numel, ctx.opt) for s in (grid, y))
        busy = placed * work.taps * _PLACED + read * work.combinations * _READ
        return seconds + busy / max(1, ctx.threads)

    def compile(
        self, work: GridSampleWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        args = Args(work.node)
        preludes = (*c_copy.preludes(), *map(c_text.prelude, ("places.h", "sample.h")))
        return c_text.kernel(args, _body(args, work), ctx, preludes=preludes)


def _body(args: Args, work: GridSampleWork) -> list[str]:
    x, y = work.node.given[0].spec, work.node.outputs[0].spec
    plane = args.size("PLANE", dims.prod(x.shape[2:]))
    pixels = args.size("PIXELS", dims.prod(y.shape[2:]))
    blocks = args.size("BLOCKS", dims.ceildiv(dims.prod(y.shape[2:]), work.block))
    size, planes, images = str(work.block), args.size("PLANES", x.shape[1]), args.dim(x.shape[0])
    number = c_text.ctype(CpuSums(x.dtype).number)
    unit = [
        f"const int64_t image = u / {blocks}, begin = u % {blocks} * {size};",
        f"const int64_t count = {pixels} - begin < {size} ? {pixels} - begin : {size};",
        f"int32_t at[{work.combinations}][{size}];",
        f"{number} of[{work.combinations}][{size}];",
        comment("Where each result of the block lies, and the weights of the elements around it."),
        loop("j", "0", "count", *_placed(args, work)),
        *_padding(work),
        comment("Every channel is read at these places."),
        loop("c", "0", planes, *_channel(args, work, plane, pixels)),
    ]
    return [
        *_limits(args, work, plane),
        c_text.split(f"{images} * {blocks}"),
        loop("u", "lo", "hi", *unit),
    ]


def _limits(args: Args, work: GridSampleWork, plane: str) -> list[str]:
    """Offsets in a plane have 32 bits, and there is an element to read."""
    if isinstance(dims.prod(work.node.given[0].spec.shape[2:]), int):
        return []
    report = f"tx_report({args.fault()}, {plane}, INT32_MAX);"
    return [block(f"if ({plane} < 1 || {plane} > INT32_MAX)", report, "return;")]


def _placed(args: Args, work: GridSampleWork) -> list[str]:
    """Statements that fill ``at`` and ``of`` for result ``j``."""
    x, grid = (v.spec for v in work.node.given[:2])
    a, strides = work.node.attrs, c_text.contiguous_strides(x.shape)[2:]
    modes = f"{work.taps}, {_PADDINGS.index(a.padding_mode)}, {int(a.align_corners)}"
    lines = [f"const int64_t o = (image * PIXELS + begin + j) * {work.rank};"]
    for i in range(work.rank):
        u = element(grid.dtype, f"{args.input(1)}[o + {work.rank - 1 - i}]")
        extent = args.dim(x.shape[2 + i])
        lines += [
            f"int32_t p{i}[{work.taps}];",
            f"double w{i}[{work.taps}];",
            f"tx_grid_taps({u}, {extent}, {modes}, p{i}, w{i});",
        ]
    for k, taps in enumerate(itertools.product(range(work.taps), repeat=work.rank)):
        places = [f"p{i}[{t}]" for i, t in enumerate(taps)]
        shares = " * ".join(f"w{i}[{t}]" for i, t in enumerate(taps))
        lines += [f"at[{k}][j] = {args.offset(strides, places)};", f"of[{k}][j] = {shares};"]
    return lines


def _padding(work: GridSampleWork) -> list[str]:
    """The last vector of a block reads the first element, with weight 0, where it has no result."""
    sums = CpuSums(work.node.given[0].spec.dtype)
    if not sums.vector:
        return []
    end = "(count + TX_LANES - 1) / TX_LANES * TX_LANES"
    none = ["at[k][j] = 0;", "of[k][j] = 0;"]
    every = loop("k", "0", str(work.combinations), *none)
    return [loop("j", "count", end, every)]


def _channel(args: Args, work: GridSampleWork, plane: str, pixels: str) -> list[str]:
    dtype = work.node.given[0].spec.dtype
    sums, count = CpuSums(dtype), str(work.combinations)
    if sums.vector:
        value = f"w * tx_gather_{dtype.value}(from, tx_load_i32(at[k] + j))"
        term = f"s += tx_select(tx_eq(w, tx_zero()), tx_zero(), {value});"
        weight = "tx_load_f32(of[k] + j)"
        whole = c_text.store(dtype, "to + j", "s")
        part = c_text.store(dtype, "to + j", "s", "count - j")
        stores = [f"if (j + TX_LANES <= count) {whole}", f"else {part}"]
    else:
        term, weight = "if (w != 0.0) s += w * (double)from[at[k][j]];", "of[k][j]"
        stores = [sums.stored(dtype, "to + j", "s")]
    body = [
        f"{sums.kind} s = {sums.zero};",
        loop("k", "0", count, f"const {sums.kind} w = {weight};", term),
        *stores,
    ]
    kind = c_text.ctype(dtype)
    return [
        f"const {kind}* from = {args.input(0)} + (image * PLANES + c) * {plane};",
        f"{kind}* to = {args.output(0)} + (image * PLANES + c) * {pixels} + begin;",
        loop("j", "0", "count", *body, step=sums.lanes if sums.vector else 1),
    ]
