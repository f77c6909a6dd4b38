"""Local response normalisation in C: over the channels around each; linear format."""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.text import Args, comment, loop
from tactix_cpu.tactics.sample.sums import FLOATS, CpuSums

_BLOCK = 256
"""Elements of a channel that are done together: all channels around fit the first cache."""
_SQUARE, _POWER = 0.1e-9, 0.7e-9
"""Seconds to add the square of one element, and to divide by a power. Sapphire Rapids, one
thread.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuLrnTactic()]


class CpuLrnTactic(Tactic[Node]):
    """Floats."""

    key = "tactix.c_lrn@1"
    implements = ("tactix.LRN@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        dtype = node.given[0].spec.dtype
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if dtype not in (*FLOATS, DType.FP64):
            return Reject(f"no local response of {dtype.value} in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(node, variant, ctx)
        if seconds is None:
            return None
        elements = dims.evaluate(node.given[0].spec.numel, ctx.opt)
        each: float = node.attrs.size * _SQUARE + _POWER
        return seconds + elements * each / max(1, ctx.threads)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(node)
        preludes = (*c_text.vector_preludes(), *map(c_text.prelude, ("places.h", "sample.h")))
        return c_text.kernel(args, _body(args, node), ctx, preludes=preludes)


def _body(args: Args, node: Node) -> list[str]:
    x, size = node.given[0].spec, node.attrs.size
    channels = args.size("CHANNELS", x.shape[1])
    area = args.size("AREA", dims.prod(x.shape[2:]))
    blocks = args.size("BLOCKS", dims.ceildiv(dims.prod(x.shape[2:]), _BLOCK))
    kind, before = c_text.ctype(x.dtype), (size - 1) // 2
    after = f"c + {size - before}"
    channel = [
        f"const int64_t from = c > {before} ? c - {before} : 0;",
        f"const int64_t until = {after} < {channels} ? {after} : {channels};",
        CpuSums(x.dtype).swept("end", lambda count: _vector(node, count), "begin"),
    ]
    unit = [
        f"const int64_t image = u / {blocks}, begin = u % {blocks} * {_BLOCK};",
        f"const int64_t end = begin + {_BLOCK} < {area} ? begin + {_BLOCK} : {area};",
        f"const {kind}* x = {args.input(0)} + image * {channels} * {area};",
        f"{kind}* y = {args.output(0)} + image * {channels} * {area};",
        comment("Each channel by the squares of those around it."),
        loop("c", "0", channels, *channel),
    ]
    total = f"{args.dim(x.shape[0])} * {blocks}"
    return [c_text.split(total), loop("u", "lo", "hi", *unit)]


def _vector(node: Node, count: str) -> list[str]:
    dtype, a = node.given[0].spec.dtype, node.attrs
    sums = CpuSums(dtype)
    alpha, bias = (sums.splat(_literal(v, dtype)) for v in (a.alpha / a.size, a.bias))
    around = sums.loaded(dtype, "x + k * AREA + i", count)
    own = sums.loaded(dtype, "x + c * AREA + i", count)
    return [
        f"{sums.kind} s = {sums.zero};",
        loop("k", "from", "until", f"const {sums.kind} v = {around};", "s += v * v;"),
        f"const {sums.kind} t = {bias} + {alpha} * s;",
        *_power(a.beta, dtype),
        sums.stored(dtype, "y + c * AREA + i", f"{own} / p", count),
    ]


def _power(beta: float, dtype: DType) -> list[str]:
    """Declare ``p``, the power of ``t``; the usual ones by square roots."""
    sums = CpuSums(dtype)
    sqrt = "tx_sqrt" if sums.vector else "sqrt"
    powers = {
        1.0: "t",
        0.5: f"{sqrt}(t)",
        0.75: f"{sqrt}(t) * {sqrt}({sqrt}(t))",
    }
    order = sums.splat(_literal(beta, dtype))
    general = f"tx_exp(tx_log(t) * {order})" if sums.vector else f"pow(t, {order})"
    return [f"const {sums.kind} p = {powers.get(beta, general)};"]


def _literal(value: float, dtype: DType) -> str:
    return float_literal(value, double=dtype is DType.FP64)
