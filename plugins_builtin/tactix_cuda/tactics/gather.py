"""Gather, GatherElements and GatherND in CUDA: any movable dtype, any integer indices, linear format.

Negative indices count from the end. An index beyond the axis reads the nearest element: kernels cannot raise.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Tactic, Variant
from tactix.words import dims
from tactix.words.dims import Dim
from tactix_codegen.c import text as c_text
from tactix_codegen.cuda import copies, text
from tactix_codegen.cuda.text import Args
from tactix_cpu.tactics.move.gather import GatherTactic


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaGatherTactic()]


class CudaGatherTactic(GatherTactic):
    """Neighbouring threads copy neighbouring runs of up to 16 bytes of a slice."""

    key = "tactix.cuda_gather@1"
    device = "cuda"
    source = "cuda_c"

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        out = 2 * node.outputs[0].spec.nbytes() + node.given[1].spec.nbytes()
        return 1e-6 + text.known(out, ctx) / text.BANDWIDTH if dims.symbols(out) <= set(ctx.opt) else None

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _Slices(Args(node))
        write = {"Gather": writer.gather, "GatherElements": writer.elements, "GatherND": writer.nd}[node.layer.name]
        body = write()
        return text.kernel(writer.args, body, ctx, text.blocks(writer.threads))


class _Slices:
    """The text of one kernel; ``threads`` is known when the text is made."""

    def __init__(self, args: Args) -> None:
        self.args, self.node = args, args.node
        self.data, self.indices = (v.spec for v in args.node.given[:2])
        self.threads: Dim = 0
        reach = [v.spec.numel for v in (*args.node.given, *args.node.outputs)]
        self.kind = text.index_type(*reach)
        self.width = self.data.dtype.itemsize

    def _slices(self, count: Dim, inner: Dim, source: Sequence[str]) -> list[str]:
        """A thread for each part of each slice; ``source``: statements that declare ``from``, the slice of ``o``."""
        each = 16 // self.width
        while not text.divides(each, inner):
            each //= 2
        parts = dims.floordiv(inner, each)
        self.threads = count * parts
        e = copies.element_type(self.width * each)
        x, y, n = self.args.bytes_in(0), self.args.bytes_out(0), self.args.dim(parts)
        return [
            *text.flat(self.args, self.kind, self.threads),
            text.decode(self.kind, "t", ["o", "i"], ["", n]) if parts != 1 else f"const {self.kind} o = t, i = 0;",
            *source,
            f"(({e}*){y})[t] = ((const {e}*){x})[from * {n} + i];",
        ]

    def _index(self, place: str, size: Dim) -> str:
        return f"({self.kind})tx_index((int64_t){self.args.input(1)}[{place}], {self.args.dim(size)})"

    def gather(self) -> list[str]:
        axis = self.node.attrs.axis % self.data.rank
        outer, inner = dims.prod(self.data.shape[:axis]), dims.prod(self.data.shape[axis + 1 :])
        count, size = self.args.dim(self.indices.numel), self.args.dim(self.data.shape[axis])
        index = self._index(f"o % {count}" if outer != 1 else "o", self.data.shape[axis])
        before = f"o / {count} * {size} + " if outer != 1 else ""
        return self._slices(outer * self.indices.numel, inner, [f"const {self.kind} from = {before}{index};"])

    def nd(self) -> list[str]:
        batch, depth = self.node.attrs.batch_dims, int(self.indices.shape[-1])  # type: ignore[arg-type]
        shape = self.data.shape[batch : batch + depth]
        per_batch = self.args.dim(dims.prod(self.indices.shape[batch:-1]))
        position = f"o / {per_batch}" if batch else "0"
        for d, size in enumerate(shape):
            position = f"({position}) * {self.args.dim(size)} + {self._index(f'o * {depth} + {d}', size)}"
        inner = dims.prod(self.data.shape[batch + depth :])
        return self._slices(dims.prod(self.indices.shape[:-1]), inner, [f"const {self.kind} from = {position};"])

    def elements(self) -> list[str]:
        axis, rank = self.node.attrs.axis % self.data.rank, self.data.rank
        names = [f"i{i}" for i in range(rank)]
        position = list(names)
        position[axis] = "j"
        place = self.args.offset(c_text.contiguous_strides(self.data.shape), position)
        self.threads = self.indices.numel
        e = copies.element_type(self.width)
        return [
            *text.flat(self.args, self.kind, self.threads),
            text.decode(self.kind, "t", names, [self.args.dim(d) for d in self.indices.shape]),
            f"const {self.kind} j = {self._index('t', self.data.shape[axis])};",
            f"(({e}*){self.args.bytes_out(0)})[t] = ((const {e}*){self.args.bytes_in(0)})[{place}];",
        ]
