"""RotaryEmbedding in CUDA: a thread turns as many neighbours of both halves of a row as one access
moves, where they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.space import collapse
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs
from tactix_cuda.tactics.rows import FLOATS


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaRotaryTactic()]


@dataclass(frozen=True)
class Turned:
    """A row: ``half`` pairs that are turned, elements ``half`` apart, and ``rest`` that stay; of
    ``own`` heads of a token the first ``heads``.
    """

    node: Node
    half: int
    rest: int
    own: Dim
    heads: int | None


class CudaRotaryTactic(Tactic[Turned]):
    """f32, f16 and bf16, linear; computed in float32."""

    key = "tactix.cuda_rotary@1"
    implements = ("tactix.RotaryEmbedding@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Turned | Reject:
        if node.is_fused or node.anchor is None:
            return Reject("it takes no epilogue")
        if any(v.spec.dtype not in FLOATS for v in node.given):
            return Reject("no rotation of these dtypes in CUDA")
        shape, width = node.outputs[0].spec.shape, node.given[1].spec.shape[-1]
        if not isinstance(width, int) or not isinstance(shape[-1], int):
            return Reject("the size of a head is not known")
        heads = node.anchor.attrs.heads
        own = shape[-2] if len(shape) > 1 else 1
        part = None if heads is None or heads == own else int(heads)
        return Turned(node, width // 2, shape[-1] - width, own, part)

    def cost(self, work: Turned, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(work.node, variant, ctx)

    def compile(self, work: Turned, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _Writer(CudaArgs(work.node), work)
        return text.kernel(writer.args, writer.body(), ctx, text.blocks(writer.threads))


class _Writer:
    """The text of one kernel: threads over rows, and along them."""

    def __init__(self, args: CudaArgs, work: Turned) -> None:
        self.args, self.work = args, work
        shape = work.node.outputs[0].spec.shape
        turned = (*shape[:-1], 2 * work.half)
        tables = [v.spec.shape for v in work.node.given[1:]]
        own = c_text.contiguous_strides(shape)[:-1]
        behind = [c_text.broadcast_strides(table, turned)[:-1] for table in tables]
        self.space = collapse(shape[:-1], (own, *behind))
        dtypes = [v.spec.dtype for v in work.node.given]
        moves = [(t, (*s, 1)) for t, s in zip(dtypes, self.space.strides, strict=True)]
        self.width = text.vector_width(work.half, moves)
        while work.rest % self.width:
            self.width //= 2
        self.pairs, self.others = work.half // self.width, work.rest // self.width
        self.threads: Dim = dims.prod(shape[:-1]) * (self.pairs + self.others)
        self.kind = text.index_type(dims.prod(shape))

    def body(self) -> list[str]:
        """Declare the row and the place in it, and turn or copy what lies there."""
        if self.threads == 0:
            return []
        w, each = self.work, self.pairs + self.others
        names = [f"i{k}" for k in range(len(self.space.sizes))]
        sizes = [self.args.dim(d) for d in self.space.sizes]
        bases = [*(self.args.input(i) for i in range(3)), self.args.output()]
        strides = (*self.space.strides, self.space.strides[0])
        places = [
            f"{b} + ({self.args.offset(s, names)})" for b, s in zip(bases, strides, strict=True)
        ]
        dtypes = [v.spec.dtype for v in w.node.given]
        rows = [
            f"{'' if k == 3 else 'const '}auto* {name} = {place};"
            for k, (name, place) in enumerate(zip("xcsy", places, strict=True))
        ]
        turned = self._turned(dtypes)
        if w.heads is not None:
            own = self.args.dim(w.own)
            turned = [block(f"if (row % {own} < {w.heads})", *turned), block("else", *self._pair())]
        if self.others:
            turned = [block(f"if (u < {self.pairs})", *turned), block("else", *self._rest())]
        return [
            *text.flat(self.args, self.kind, self.threads),
            f"const {self.kind} row = t / {each};",
            f"const int u = t % {each};",
            text.decode(self.kind, "row", names, sizes),
            *rows,
            *turned,
        ]

    def _turned(self, dtypes: Sequence[DType]) -> list[str]:
        """A vector of each half: ``a`` of the first, ``b`` of the second."""
        w, v = self.work, self.width
        loads: list[str] = [f"const int i = u * {v};"]
        for name, dtype in zip("xcs", dtypes, strict=True):
            for half, place in (("a", f"{name} + i"), ("b", f"{name} + i + {w.half}")):
                loads += text.fetch(self.args, f"{name}{half}", place, dtype, 1, v)[0]
        at = "[k]" if v > 1 else ""
        xa, xb, ca, cb, sa, sb = (f"{name}{half}{at}" for name in "xcs" for half in "ab")
        turn = [f"ya[k] = {xa} * {ca} - {xb} * {sa};", f"yb[k] = {xb} * {cb} + {xa} * {sb};"]
        return [
            *loads,
            f"float ya[{v}], yb[{v}];",
            *text.lanes(v, *turn),
            *text.put(self.args, "ya", "y + i", dtypes[0], 1, v),
            *text.put(self.args, "yb", f"y + i + {w.half}", dtypes[0], 1, v),
        ]

    def _pair(self) -> list[str]:
        """Both halves of a head that is not turned."""
        v = self.width
        return [*self._copy(f"u * {v}"), *self._copy(f"u * {v} + {self.work.half}")]

    def _rest(self) -> list[str]:
        """Elements behind those that are turned."""
        return self._copy(f"{2 * self.work.half} + (u - {self.pairs}) * {self.width}")

    def _copy(self, at: str) -> list[str]:
        dtype, v = self.work.node.outputs[0].spec.dtype, self.width
        loads, _ = text.fetch(self.args, "z", f"x + {at}", dtype, 1, v)
        if v == 1:
            loads = [f"const float z[1] = {{{loads[0].split(' = ', 1)[1].rstrip(';')}}};"]
        return [block("", *loads, *text.put(self.args, "z", f"y + {at}", dtype, 1, v))]
