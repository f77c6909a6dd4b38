"""Tensors of numbers in CUDA: dims as data, ranges, one value everywhere."""

from __future__ import annotations

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.cuda import copies, text
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations import generate


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaGenerateTactic()]


class CudaGenerateTactic(Tactic[Node]):
    """Dims: one thread. Range: a thread for each number. Fill: runs of 16 bytes."""

    key = "tactix.cuda_generate@1"
    implements = generate.KINDS
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        dtype = node.outputs[0].spec.dtype
        if node.is_fused:
            return Reject("no epilogues")
        if node.kind == "tactix.Fill@1":
            known = c_copy.movable(dtype)
            return node if known else Reject(f"no elements of {dtype.value} in CUDA")
        return node if dtype in generate.DTYPES else Reject(f"no {dtype.value} in CUDA")

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, spec = CudaArgs(node), node.outputs[0].spec
        if node.kind == "tactix.Fill@1":
            value = c_copy.bits(node.attrs.value, spec.dtype)
            one = c_copy.fill(0, (spec.numel,), (1,), 0, value)
            return copies.kernel(args, [one], spec.dtype.itemsize, ctx)
        if node.kind == "tactix.Dims@1":
            return text.kernel(args, _dims(args, node), ctx, 1, threads=32)
        return text.kernel(args, _range(args, node), ctx, text.blocks(spec.numel))


def _dims(args: CudaArgs, node: Node) -> list[str]:
    y = args.output()
    return [
        "if (threadIdx.x) return;",
        *(f"{y}[{i}] = {args.dim(d)};" for i, d in enumerate(node.attrs.values)),
    ]


def _range(args: CudaArgs, node: Node) -> list[str]:
    spec = node.outputs[0].spec
    start, step, y = args.input(0), args.input(2), args.output()
    wide, kind = "double" if spec.dtype.is_float else "int64_t", c_text.ctype(spec.dtype)
    value = f"({kind})(({wide}){start}[0] + ({wide})t * ({wide}){step}[0])"
    return [*text.flat(args, "int64_t", spec.numel), f"{y}[t] = {value};"]
