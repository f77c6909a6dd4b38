"""ReverseSequence in CUDA: any movable dtype, any integer lengths, linear format.

A length beyond the axis is taken for its size, and one below 0 for 0: kernels cannot raise.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.cuda import copies, text
from tactix_codegen.cuda.text import CudaArgs


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaReverseTactic()]


class CudaReverseTactic(Tactic[Node]):
    """A thread for each run of up to 16 bytes behind the later of both axes."""

    key = "tactix.cuda_reverse@1"
    implements = ("tactix.ReverseSequence@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, lengths = (v.spec for v in node.given)
        if node.is_fused:
            return Reject("elements are moved, not computed: no epilogue")
        if not c_copy.movable(x.dtype):
            return Reject(f"no elements of {x.dtype.value} in CUDA")
        if not c_text.has_ctype(lengths.dtype):
            return Reject(f"no lengths of {lengths.dtype.value} in CUDA")
        if node.attrs.batch_axis % x.rank == node.attrs.time_axis % x.rank:
            return Reject("the batch axis is the time axis")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, x = CudaArgs(node), node.given[0].spec
        batch, time = (a % x.rank for a in (node.attrs.batch_axis, node.attrs.time_axis))
        each = 16 // x.dtype.itemsize
        while not text.divides(each, dims.prod(x.shape[max(batch, time) + 1 :])):
            each //= 2
        threads = dims.floordiv(x.numel, each)
        element, kind = copies.element_type(x.dtype.itemsize * each), text.index_type(x.numel)
        size = args.dim(x.shape[time])
        runs, sequence = (
            args.dim(dims.floordiv(dims.prod(x.shape[a + 1 :]), each)) for a in (time, batch)
        )
        length = f"(int64_t){args.input(1)}[t / {sequence} % {args.dim(x.shape[batch])}]"
        source, target = args.bytes_in(0), args.bytes_out(0)
        body = [
            *text.flat(args, kind, threads),
            f"const int64_t length = {length}, step = t / {runs} % {size};",
            f"const int64_t last = (length < {size} ? length : {size}) - 1;",
            f"const {kind} from = step <= last ? t + ({kind})(last - 2 * step) * {runs} : t;",
            f"(({element}*){target})[t] = ((const {element}*){source})[from];",
        ]
        return text.kernel(args, [] if threads == 0 else body, ctx, text.blocks(threads))
