"""Random numbers without a seed in CUDA; those of a seed are numpy's, and made on the host."""

from __future__ import annotations

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import BLOCK, CudaArgs

_WARP = 32
_FIRST = """struct TX_NAME(first) {
    TX_INLINE uint64_t join(uint64_t a, uint64_t b) { return a > b ? a : b; }
};"""
"""Of two keys, each a number and a class, the larger."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaDrawTactic(), CudaMultinomialTactic()]


class CudaDrawTactic(Tactic[Node]):
    """Uniform and normal numbers, and ones and zeros: a thread for each."""

    key = "tactix.cuda_draw@1"
    implements = ("tactix.RandomUniform@1", "tactix.RandomNormal@1", "tactix.RandomBernoulli@1")
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        return _why_not(node) or node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, y = CudaArgs(node), node.outputs[0].spec
        drawn = f"tx_drawn({args.output(0)}, (uint64_t)t)"
        value = f"({text.number_type(y.dtype)})({_value(args, node, drawn)})"
        body = [
            *text.flat(args, text.index_type(y.numel), y.numel),
            f"{args.output(0)}[t] = {text.stored(y.dtype, value)};",
        ]
        return text.kernel(args, body, ctx, text.blocks(y.numel), more=("random.cuh",))


def _why_not(node: Node) -> Reject | None:
    numbers = [v.spec.dtype for v in (*node.given, *node.outputs)]
    if node.is_fused:
        return Reject("no layers around it are fused by this tactic")
    if node.attrs.seed is not None:
        return Reject("the numbers of a seed are numpy's, which are drawn one after the other")
    if not c_text.has_ctype(*numbers):
        return Reject(f"no random numbers of {numbers[-1].value} in CUDA")
    return None


def _value(args: CudaArgs, node: Node, drawn: str) -> str:
    """Element ``t``, a double or a truth value."""
    a = node.attrs
    if node.layer.name == "RandomNormal":
        return f"{float(a.mean)!r} + {float(a.scale)!r} * tx_normal({drawn})"
    if node.layer.name == "RandomUniform":
        return f"{float(a.low)!r} + {float(a.high) - float(a.low)!r} * tx_uniform({drawn})"
    chance = text.element(node.given[0].spec.dtype, f"{args.input(0)}[t]")
    return f"tx_uniform({drawn}) < (double){chance}"


class CudaMultinomialTactic(Tactic[Node]):
    """A warp for each draw: the class whose logarithm and noise have the largest sum."""

    key = "tactix.cuda_multinomial@1"
    implements = ("tactix.RandomMultinomial@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if node.given[0].spec.shape[1] == 0:
            return Reject("there are no classes")
        return _why_not(node) or node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, x, y = CudaArgs(node), node.given[0].spec, node.outputs[0].spec
        classes, each = args.dim(x.shape[1]), BLOCK // _WARP
        weight = text.element(x.dtype, f"{args.input(0)}[first + k]")
        position = f"(uint64_t)(draw * {classes} + k)"
        walk = block(
            f"for (int64_t k = lane; k < {classes}; k += {_WARP})",
            f"const float noise = tx_gumbel(tx_drawn({args.output(0)}, {position}));",
            f"const uint64_t key = tx_key((float){weight} + noise);",
            "best = TX_NAME(first)::join(best, key << 32 | (uint32_t)~k);",
        )
        body = [
            f"const int64_t draw = (int64_t)blockIdx.x * {each} + threadIdx.x / {_WARP};",
            f"if (draw >= {args.dim(y.numel)}) return;",
            f"const int lane = threadIdx.x % {_WARP};",
            f"const int64_t first = draw / {args.dim(y.shape[1])} * {classes};",
            "uint64_t best = 0;",
            walk,
            f"best = tx_reduce<{_WARP}, TX_NAME(first)>(best);",
            f"if (lane == 0) {args.output(0)}[draw] = ({c_text.ctype(y.dtype)})~(uint32_t)best;",
        ]
        empty = y.numel == 0
        more = ("block.cuh", "top.cuh", "random.cuh")
        return text.kernel(
            args, [] if empty else body, ctx, text.blocks(y.numel, each), helpers=_FIRST, more=more
        )
