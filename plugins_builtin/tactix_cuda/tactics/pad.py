"""Pad in CUDA where elements of the input are repeated around it: modes reflect, edge and wrap;
linear and nhwc.

What is constant is copied (``move.py``), unless only running tells whether a pad adds or cuts: that
is done here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c.text import contiguous_strides
from tactix_codegen.cuda import copies, text
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations import move


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PadTactic()]


@dataclass(frozen=True)
class Side:
    """One axis of the storage: elements of the input and of the output, and what is added (or cut)
    on both sides.
    """

    size: Dim
    out: Dim
    before: Dim
    after: Dim

    @property
    def is_kept(self) -> bool:
        """Whether it is as it was."""
        return self.before == 0 and self.after == 0

    @property
    def cut(self) -> Dim:
        """Elements of the input left out before the first that is kept."""
        return dims.dmax(-self.before, 0)

    @property
    def left(self) -> Dim:
        """Elements of the input that are kept; what is repeated is one of them."""
        return self.size - self.cut - dims.dmax(-self.after, 0)


def sides(node: Node, fmt: Format) -> list[Side]:
    """The axes of the output's storage in a format; neighbours that are kept are one."""
    x, y, pads = node.given[0].spec, node.outputs[0].spec, node.attrs.pads
    order = [move.storage_axis(fmt, axis, x.rank) for axis in range(x.rank)]
    found: list[Side] = []
    for axis in sorted(range(x.rank), key=order.__getitem__):
        side = Side(x.shape[axis], y.shape[axis], pads[axis], pads[x.rank + axis])
        if found and side.is_kept and found[-1].is_kept:
            size = found.pop().size * side.size
            side = Side(size, size, 0, 0)
        found.append(side)
    return found or [Side(1, 1, 0, 0)]


class PadTactic(Tactic[Node]):
    """A thread for each run of up to 16 bytes that lie side by side in the input, too."""

    key = "tactix.cuda_pad@1"
    implements = ("tactix.Pad@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        spec = node.given[0].spec
        if node.is_fused:
            return Reject("elements are moved, not computed: no epilogue")
        if not c_copy.movable(spec.dtype):
            return Reject(f"no elements of {spec.dtype.value} in CUDA")
        if _is_copied(node):
            return Reject("a constant around a tensor is a copy")
        if node.attrs.mode != "constant" and any(
            s.left == 0 and not s.is_kept for s in sides(node, LINEAR)
        ):
            return Reject("an empty axis has nothing to repeat")
        return node

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant]:
        formats = (LINEAR, NHWC) if node.given[0].spec.rank > 2 else (LINEAR,)
        return [Variant.of([f], [f]) for f in formats]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _Writer(CudaArgs(node), sides(node, variant.output_format(0)))
        return text.kernel(
            writer.args, writer.body(), ctx, text.blocks(writer.threads), more=("pad.cuh",)
        )


def _is_copied(node: Node) -> bool:
    if node.attrs.mode != "constant":
        return False
    try:
        move.copies(node, LINEAR)
    except ShapeError:
        return False
    return True


class _Writer:
    """The text of one kernel: every thread finds where its run comes from, axis by axis."""

    def __init__(self, args: CudaArgs, axes: Sequence[Side]) -> None:
        self.args, self.axes, self.mode = args, axes, args.node.attrs.mode
        spec = args.node.given[0].spec
        self.width = spec.dtype.itemsize
        self.each = self._elements_of_a_thread()
        self.groups: list[Dim] = [a.out for a in axes]
        self.groups[-1] = dims.floordiv(axes[-1].out, self.each)
        self.threads: Dim = dims.prod(self.groups)
        self.kind = text.index_type(spec.numel, args.node.outputs[0].spec.numel)

    def _elements_of_a_thread(self) -> int:
        """The widest run within the last axis, if that is kept and no element stands for itself."""
        last = self.axes[-1]
        each = 16 // self.width if last.is_kept and self.mode != "constant" else 1
        while not text.divides(each, last.size):
            each //= 2
        return each

    def body(self) -> list[str]:
        names = [f"i{i}" for i in range(len(self.axes))]
        e = copies.element_type(self.width * self.each)
        x, y = f"((const {e}*){self.args.bytes_in(0)})", f"(({e}*){self.args.bytes_out(0)})"
        run = dims.floordiv(self.axes[-1].size, self.each)
        strides = contiguous_strides([*(a.size for a in self.axes[:-1]), run])
        value = f"{x}[{self.args.offset(strides, [f'p{i}' for i in range(len(names))])}]"
        inside = " && ".join(self._inside())
        return [
            *text.flat(self.args, self.kind, self.threads),
            text.decode(self.kind, "t", names, [self.args.dim(g) for g in self.groups]),
            *(f"const {self.kind} p{i} = {self._place(i, a)};" for i, a in enumerate(self.axes)),
            f"{y}[t] = {f'{inside} ? {value} : {self._filling(e)}' if inside else value};",
        ]

    def _place(self, i: int, axis: Side) -> str:
        """Where along an axis of the input the element is read."""
        if axis.is_kept:
            return f"i{i}"
        if self.mode == "constant":
            return f"i{i} - {self.args.dim(axis.before)}"
        at = f"i{i} - {self.args.dim(dims.dmax(axis.before, 0))}"
        moved = f"tx_pad_{self.mode}<{self.kind}>({at}, {self.args.dim(axis.left)})"
        return self.args.sum(moved, self.args.dim(axis.cut))

    def _inside(self) -> list[str]:
        """Conditions for reading the input: modes that repeat always do, unless an axis turns out
        to be empty.
        """
        moved = [(i, a) for i, a in enumerate(self.axes) if not a.is_kept]
        if self.mode == "constant":
            return [f"p{i} >= 0 && p{i} < {self.args.dim(a.size)}" for i, a in moved]
        return [f"{self.args.dim(a.left)} > 0" for _, a in moved if not isinstance(a.left, int)]

    def _filling(self, element: str) -> str:
        if self.mode != "constant":
            return f"{element}{{}}"
        spec = self.args.node.outputs[0].spec
        return f"({element})0x{c_copy.bits(self.args.node.attrs.value, spec.dtype):x}ULL"
