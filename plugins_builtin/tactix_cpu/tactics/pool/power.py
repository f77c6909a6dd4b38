"""GlobalLpPool in C: the p-norm over all spatial axes; linear format."""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.power import MULTIPLIED, Power, product
from tactix_codegen.c.scalar import WIDE, element, stored
from tactix_codegen.c.text import Args, block, comment, loop

_POWER = 15e-9
"""Seconds of one call of powf; Sapphire Rapids."""
_WAYS = 4
"""CpuSums that do not wait for each other: an addition takes about 4 cycles."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuGlobalLpTactic()]


class CpuGlobalLpTactic(Tactic[Node]):
    """Floats."""

    key = "tactix.c_global_lp@1"
    implements = ("tactix.GlobalLpPool@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x = node.given[0].spec
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not x.dtype.is_float or not c_text.has_ctype(x.dtype) or node.attrs.p < 1:
            return Reject(f"no {node.attrs.p}-norm of {x.dtype.value} in C")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(node, variant, ctx)
        if seconds is None or node.attrs.p <= MULTIPLIED:
            return seconds
        elements = dims.evaluate(node.given[0].spec.numel, ctx.opt)
        return seconds + elements * _POWER / max(1, ctx.threads)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, x = Args(node), node.given[0].spec
        vector = node.attrs.p <= MULTIPLIED and x.dtype is not DType.FP64
        size = args.size("PLANE", dims.prod(x.shape[2:]))
        unit = [
            f"const {c_text.ctype(x.dtype)}* plane = {args.input(0)} + u * {size};",
            *(_vectors if vector else _elements)(args, size),
        ]
        total = args.dim(x.shape[0] * x.shape[1])
        return c_text.kernel(args, [c_text.split(total), loop("u", "lo", "hi", *unit)], ctx)


def _result(args: Args, total: str) -> str:
    node = args.node
    dtype = node.given[0].spec.dtype
    root = Power(node.attrs.p, dtype).root(total)
    return f"{args.output(0)}[u] = {stored(dtype, root) if dtype in WIDE else root};"


def _elements(args: Args, size: str) -> list[str]:
    """One number after the other."""
    node = args.node
    dtype = node.given[0].spec.dtype
    kind = c_text.ctype(WIDE.get(dtype, dtype))
    value = element(dtype, "plane[i]")
    term = Power(node.attrs.p, dtype).term("v")
    return [
        f"{kind} s = 0;",
        loop("i", "0", size, f"const {kind} v = {value};", f"s += {term};"),
        _result(args, "s"),
    ]


def _vectors(args: Args, size: str) -> list[str]:
    """Sums of powers in vectors of float32."""
    dtype, p = args.node.given[0].spec.dtype, args.node.attrs.p
    term = product("v", "tx_abs(v)", p)

    def step(way: int, count: str = "") -> str:
        place = f"plane + i + {way} * TX_LANES" if way else "plane + i"
        return block("", f"const vf v = {c_text.load(dtype, place, count)};", f"s{way} += {term};")

    ways = ", ".join(f"s{w} = tx_zero()" for w in range(_WAYS))
    several = f"{_WAYS} * TX_LANES"
    every = [step(w) for w in range(_WAYS)]
    return [
        comment("Several sums side by side, which do not wait for each other."),
        f"vf {ways};",
        "int64_t i = 0;",
        block(f"for (; i + {several} <= {size}; i += {several})", *every),
        block(f"for (; i + TX_LANES <= {size}; i += TX_LANES)", step(0)),
        block(f"if (i < {size})", step(0, f"{size} - i")),
        "const float s = tx_hsum((s0 + s1) + (s2 + s3));",
        _result(args, "s"),
    ]
