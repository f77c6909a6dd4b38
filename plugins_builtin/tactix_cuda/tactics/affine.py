"""AffineGrid in CUDA: a thread for each coordinate of a place; linear format."""

from __future__ import annotations

from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaAffineGridTactic()]


class CudaAffineGridTactic(Tactic[Node]):
    """Floats of 16 bits and more; sizes that are known, or follow from those of inputs."""

    key = "tactix.cuda_affine_grid@1"
    implements = ("tactix.AffineGrid@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        theta, size = (v.spec for v in node.given)
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not theta.dtype.is_float or not c_text.has_ctype(theta.dtype):
            return Reject(f"no places of {theta.dtype.value} in CUDA")
        if size.known() is None:
            return Reject("only running tells the size of the grid")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, y = CudaArgs(node), node.outputs[0].spec
        body = [] if y.numel == 0 else _coordinate(args, node)
        return text.kernel(args, body, ctx, text.blocks(y.numel))


def _coordinate(args: CudaArgs, node: Node) -> list[str]:
    """Coordinates of the image are float64 until they meet a factor, as in the reference."""
    y = node.outputs[0].spec
    sizes, rank, number = y.shape[1:-1], y.rank - 2, text.number_type(y.dtype)
    axes = [f"o{i}" for i in range(rank)]
    terms = [
        f"factor({rank - 1 - i}) * ({number})({_place(args, d, axes[i], node)})"
        for i, d in enumerate(sizes)
    ]
    kind = text.index_type(node.given[0].spec.numel, y.numel)
    factor = text.element(y.dtype, f"{args.input(0)}[(n * {rank} + row) * {rank + 1} + k]")
    total = " + ".join([*reversed(terms), f"factor({rank})"])
    return [
        *text.flat(args, kind, y.numel),
        text.decode(kind, "t", ["n", *axes, "row"], [args.dim(d) for d in y.shape]),
        f"const auto factor = [&](int k) {{ return {factor}; }};",
        f"const {number} place = {total};",
        f"{args.output(0)}[t] = {text.stored(y.dtype, 'place')};",
    ]


def _place(args: CudaArgs, size: Dim, index: str, node: Node) -> str:
    """Where an element along an axis lies, in [-1, 1]."""
    n = args.dim(size)
    if not node.attrs.align_corners:
        return f"(2.0 * {index} + 1.0) / {n} - 1.0"
    return f"{n} > 1 ? 2.0 * {index} / ({n} - 1) - 1.0 : -1.0"
