"""QuantizeLinear and DequantizeLinear in CUDA between floats and integers of 8 to 32 bits, or
8-bit floats.

A scale is for the tensor, for each index of an axis, or for blocks along it. Linear format; a
thread for each element.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, stored
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs
from tactix_cuda.tactics.rows import FLOATS
from tactix_ops.layers.quantize import limits


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [QuantizeTactic()]


class QuantizeTactic(Tactic[Node]):
    """f32, f16 and bf16 on one side, integers or 8-bit floats on the other."""

    key = "tactix.cuda_quantize@1"
    implements = ("tactix.QuantizeLinear@1", "tactix.DequantizeLinear@1")
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        number, whole = node.given[0].spec.dtype, node.outputs[0].spec.dtype
        if node.layer.name == "DequantizeLinear":
            number, whole = whole, number
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if (
            number not in FLOATS
            or node.given[1].spec.dtype not in FLOATS
            or not (whole in text.FP8 or (whole.is_int and whole.bits <= 32))
        ):
            return Reject(f"no scaling between {number.value} and {whole.value} in CUDA")
        if whole not in text.FP8 and not c_text.has_ctype(whole):
            return Reject(f"no elements of {whole.value} in CUDA")
        if node.layer.name == "QuantizeLinear" and whole in text.FP8 and not node.attrs.saturate:
            return Reject("it does not saturate, as kernels do")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, x, y = CudaArgs(node), node.given[0].spec, node.outputs[0].spec
        scale = element(node.given[1].spec.dtype, f"{args.input(1)}[s]")
        zero = f"(int){args.input(2)}[s]" if len(node.given) > 2 else "0"
        head = [*text.flat(args, "int64_t", x.numel), f"const int64_t s = {_place(args, node)};"]
        own = element(x.dtype, f"{args.input(0)}[t]")
        if y.dtype in text.FP8:
            value = [f"{args.output(0)}[t] = {text.stored(y.dtype, f'{own} / {scale}')};"]
        elif x.dtype in text.FP8:
            number = f"{text.element(x.dtype, f'{args.input(0)}[t]')} * {scale}"
            value = [f"{args.output(0)}[t] = {stored(y.dtype, number)};"]
        elif node.layer.name == "QuantizeLinear":
            low, high = limits(y.dtype)
            inside = f"fminf(fmaxf(q, {low}.0f), {high}.0f)"
            value = [
                f"const float q = rintf({own} / {scale}) + (float)({zero});",
                f"{args.output(0)}[t] = ({c_text.ctype(y.dtype)}){inside};",
            ]
        else:
            number = f"(float)((int){own} - {zero}) * {scale}"
            value = [f"{args.output(0)}[t] = {stored(y.dtype, number)};"]
        return text.kernel(args, [*head, *value], ctx, text.blocks(x.numel))


def _place(args: CudaArgs, node: Node) -> str:
    """The element of the scale that belongs to element ``t``."""
    x, scale, a = node.given[0].spec, node.given[1].spec, node.attrs
    if scale.rank == 0 or scale.shape == (1,):
        return "0"
    axis = a.axis % x.rank
    inner, size = args.dim(dims.prod(x.shape[axis + 1 :])), args.dim(x.shape[axis])
    if not a.block_size:
        return f"t / {inner} % {size}"
    groups = args.dim(scale.shape[axis])
    group = f"t / {inner} / {size} * {groups} + t / {inner} % {size} / {a.block_size}"
    return f"({group}) * {inner} + t % {inner}"
