"""Gather, GatherElements and GatherND in CUDA: any movable dtype, any integer indices, linear
format.

Negative indices count from the end. An index beyond the axis reads the nearest element: kernels
cannot raise.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.cuda import copies, text
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations import gather
from tactix_codegen.operations.gather import GatherWork, work_of


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaGatherTactic()]


START = 1e-6
"""Seconds to start the kernel that estimates assume, as ``tactix_codegen.c.text.traffic`` does."""


class CudaGatherTactic(Tactic[GatherWork]):
    """Neighbouring threads copy neighbouring runs of up to 16 bytes of a slice."""

    key = "tactix.cuda_gather@1"
    implements = gather.KINDS
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> GatherWork | Reject:
        return work_of(node, "CUDA")

    def cost(self, work: GatherWork, variant: Variant, ctx: CompileContext) -> float | None:
        # bytes: what is gathered is read and written, and indices are read; not the rest of the
        # data
        out = 2 * work.node.outputs[0].spec.nbytes() + work.indices.nbytes()
        return (
            START + text.known(out, ctx) / text.BANDWIDTH
            if dims.symbols(out) <= set(ctx.opt)
            else None
        )

    def compile(self, work: GatherWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _Slices(CudaArgs(work.node), work)
        write = {"Gather": writer.gather, "GatherElements": writer.elements, "GatherND": writer.nd}[
            work.layer
        ]
        body = write()
        return text.kernel(writer.args, body, ctx, text.blocks(writer.threads))


class _Slices:
    """The text of one kernel; ``threads`` is known when the text is made."""

    def __init__(self, args: CudaArgs, work: GatherWork) -> None:
        self.args, self.work = args, work
        self.threads: Dim = 0
        reach = [v.spec.numel for v in (*args.node.given, *args.node.outputs)]
        self.kind = text.index_type(*reach)

    def _slices(self, source: Sequence[str]) -> list[str]:
        """A thread for each part of each slice; ``source``: statements that declare ``from``, the
        slice of ``o``.
        """
        inner, width = self.work.inner, self.work.width
        each = 16 // width
        while not text.divides(each, inner):
            each //= 2
        parts = dims.floordiv(inner, each)
        self.threads = self.work.slices * parts
        e = copies.element_type(width * each)
        x, y, n = self.args.bytes_in(0), self.args.bytes_out(0), self.args.dim(parts)
        return [
            *text.flat(self.args, self.kind, self.threads),
            text.decode(self.kind, "t", ["o", "i"], ["", n])
            if parts != 1
            else f"const {self.kind} o = t, i = 0;",
            *source,
            f"(({e}*){y})[t] = ((const {e}*){x})[from * {n} + i];",
        ]

    def _index(self, place: str, size: Dim) -> str:
        return (
            f"({self.kind})tx_index((int64_t){self.args.input(1)}[{place}], {self.args.dim(size)})"
        )

    def gather(self) -> list[str]:
        count, size = self.args.dim(self.work.each), self.args.dim(self.work.sizes[0])
        several = self.work.outer != 1
        index = self._index(f"o % {count}" if several else "o", self.work.sizes[0])
        before = f"o / {count} * {size} + " if several else ""
        return self._slices([f"const {self.kind} from = {before}{index};"])

    def nd(self) -> list[str]:
        depth, each = self.work.depth, self.args.dim(self.work.each)
        position = f"o / {each}" if self.work.axis else "0"
        for d, size in enumerate(self.work.sizes):
            position = (
                f"({position}) * {self.args.dim(size)} + {self._index(f'o * {depth} + {d}', size)}"
            )
        return self._slices([f"const {self.kind} from = {position};"])

    def elements(self) -> list[str]:
        work = self.work
        names = [f"i{i}" for i in range(work.data.rank)]
        position = list(names)
        position[work.axis] = "j"
        place = self.args.offset(c_text.contiguous_strides(work.data.shape), position)
        self.threads = work.slices
        e = copies.element_type(work.width)
        return [
            *text.flat(self.args, self.kind, self.threads),
            text.decode(self.kind, "t", names, [self.args.dim(d) for d in work.indices.shape]),
            f"const {self.kind} j = {self._index('t', work.sizes[0])};",
            f"(({e}*){self.args.bytes_out(0)})[t] = "
            f"((const {e}*){self.args.bytes_in(0)})[{place}];",
        ]
