"""Pointwise groups in CUDA: any expression over broadcast operands, each element read and written
once.

A thread takes neighbours along the last loop, as many as one access of 16 bytes holds of the widest
dtype. Formats: linear and nhwc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.space import Space
from tactix_codegen.c.text import block
from tactix_codegen.cuda import scalar, text
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations import pointwise
from tactix_codegen.operations.pointwise import PointwiseGroup


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaPointwiseTactic()]


@dataclass(frozen=True)
class CudaPointwiseWork:
    """What to compute."""

    node: Node
    group: PointwiseGroup


class CudaPointwiseTactic(Tactic[CudaPointwiseWork]):
    """One variant per format that all full operands share; operands that broadcast stay linear
    where they can.
    """

    key = "tactix.cuda_pointwise@1"
    implements = ("pointwise",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> CudaPointwiseWork | Reject:
        group = pointwise.group_of(node)
        if isinstance(group, Reject):
            return group
        reason = scalar.why_not(group.program.results, group.dtypes)
        return Reject(reason) if reason else CudaPointwiseWork(node, group)

    def variants(
        self, work: CudaPointwiseWork, device: DeviceProperties
    ) -> Sequence[Variant] | Reject:
        formats = [LINEAR, NHWC] if len(work.group.shape) >= 3 else [LINEAR]
        try:
            return [v for f in formats for v in pointwise.variants(work.node, work.group, f)]
        except ShapeError as e:
            return Reject(e.what)

    def cost(self, work: CudaPointwiseWork, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(work.node, variant, ctx)

    def compile(
        self, work: CudaPointwiseWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        loops = pointwise.loops(work.node, work.group, variant)
        writer = _Writer(CudaArgs(work.node), work.group, loops.space)
        return text.kernel(writer.args, writer.body(), ctx, text.blocks(writer.threads))


class _Writer:
    """The text of one kernel: threads over vectors of the last loop."""

    def __init__(self, args: CudaArgs, group: PointwiseGroup, space: Space) -> None:
        self.args, self.group, self.space = args, group, space
        self.out_types = [v.spec.dtype for v in args.node.outputs]
        moves = [
            *zip(group.dtypes, space.strides, strict=False),
            *((t, space.strides[-1]) for t in self.out_types),
        ]
        single = len(space.sizes) == 1
        self.width = text.vector_width(space.sizes[-1], moves, whole=not single)
        self.rest = single and not text.divides(self.width, space.sizes[-1])
        self.vectors: Dim = dims.ceildiv(space.sizes[-1], self.width)
        self.threads = dims.prod(space.sizes[:-1]) * self.vectors

    def body(self) -> list[str]:
        if 0 in self.space.sizes:
            return []
        kind = text.index_type(dims.prod(self.space.sizes))
        names = [f"i{k}" for k in range(len(self.space.sizes) - 1)]
        sizes = [self.args.dim(s) for s in (*self.space.sizes[:-1], self.vectors)]
        head = text.flat(self.args, kind, self.threads)
        head.append(text.decode(kind, "t", [*names, "u"], sizes))
        if not self.rest:
            return [
                *head,
                f"const {kind} i = u * {self.width};",
                *self._elements(names, self.width),
            ]
        n = self.args.dim(self.space.sizes[-1])
        return [
            *head,
            block(
                f"if (u * {self.width} + {self.width} <= {n})",
                f"const {kind} i = u * {self.width};",
                *self._elements(names, self.width),
            ),
            block(
                "else",
                block(
                    f"for ({kind} i = u * {self.width}; i < {n}; i++)", *self._elements(names, 1)
                ),
            ),
        ]

    def _place(self, base: str, strides: Sequence[Dim], names: Sequence[str]) -> str:
        return f"{base} + ({self.args.offset(strides, [*names, 'i'])})"

    def _elements(self, names: Sequence[str], v: int) -> list[str]:
        """Load, compute and store ``v`` elements from ``i`` on."""
        loads: list[str] = []
        leaves: dict[int, str] = {}
        for k, i in enumerate(self.group.program.leaves):
            strides = self.space.strides[k]
            place = self._place(self.args.input(i), strides, names)
            more, leaves[k] = text.fetch(
                self.args, f"a{k}", place, self.group.dtypes[k], strides[-1], v
            )
            loads += more
        code = scalar.emit(self.group.program.results, leaves, self.group.dtypes)
        arrays = [f"{text.number_type(t)} r{j}[{v}];" for j, t in enumerate(code.dtypes)]
        sets = [f"r{j}[k] = {name};" for j, name in enumerate(code.results)]
        return [
            *loads,
            *arrays,
            *text.lanes(v, *code.statements, *sets),
            *self._stores(code.dtypes, names, v),
        ]

    def _stores(self, dtypes: Sequence[DType], names: Sequence[str], v: int) -> list[str]:
        strides = self.space.strides[-1]
        out = []
        for j, t in enumerate(dtypes):
            out += text.put(
                self.args, f"r{j}", self._place(self.args.output(j), strides, names), t, 1, v
            )
        return out
