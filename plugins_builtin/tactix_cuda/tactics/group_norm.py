"""GroupNormalization of images in nhwc by two kernels: blocks share the pixels of an image, not its
groups, so that all of a GPU is busy and channels lie side by side.

The first kernel leaves the mean of each group in each slice of pixels, and the sum of squares about
it; the second joins these (Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for
Computing Sample Variances", 1979), so that nothing cancels, and normalises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.errors import ShapeError
from tactix.base.tensor import NHWC
from tactix.contracts.artifact import KernelArtifact, Launch
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.text import block
from tactix_codegen.cuda import fused, scalar, text
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.fused import Around
from tactix_cuda.tactics.rows import FLOATS, axis_strides, operand_strides
from tactix_cuda.tactics.tile import BANDWIDTH, START

MOST_THREADS = 512
"""Threads of a block, and so vectors of a pixel, at most."""
USUAL_THREADS = 256
REGISTERS = 32
"""Elements that a thread keeps at most, one register each."""
BYTES = 16
"""Bytes that one access moves at most."""
SUM_BYTES = 8
"""Of a group in a slice: a mean and a sum of squares in float32."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaGroupNormTactic()]


@dataclass(frozen=True)
class Groups:
    """An image's ``channels`` in ``groups``; ``parameters``: given inputs with scale and bias."""

    node: Node
    around: Around
    channels: int
    groups: int
    parameters: tuple[int, ...]

    @property
    def each(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    @property
    def pixels(self) -> Dim:
        """Pixels of an image."""
        return dims.prod(self.around.spec.shape[2:])

    @property
    def width(self) -> int:
        """Channels of a group that a thread takes at once."""
        operands = [self.node.given[o.index].spec.dtype for o in self.around.after.values()]
        own = [*operands, *(v.spec.dtype for v in (self.node.given[0], *self.node.outputs))]
        width = BYTES // max(t.itemsize for t in own)
        while self.each % width:
            width //= 2
        return width

    @property
    def vectors(self) -> int:
        """Threads that share a pixel."""
        return self.channels // self.width

    @property
    def rows(self) -> int:
        """Pixels that a block takes at once."""
        return max(1, USUAL_THREADS // self.vectors)


class CudaGroupNormTactic(Tactic[Groups]):
    """f32, f16 and bf16 in nhwc, and what is behind. Knob: ``steps``, pixels of a thread."""

    key = "tactix.cuda_group_norm@1"
    implements = ("tactix.GroupNormalization@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Groups | Reject:
        found = fused.around(node, prologue=False)
        if isinstance(found, Reject):
            return found
        if not found.is_plain or found.spec.rank < 3:
            return Reject("this kernel takes images")
        parameters = tuple(i for i in found.parameters if i >= 0)
        own = (node.given[0], *node.outputs, *(node.given[i] for i in parameters))
        if any(v.spec.dtype not in FLOATS for v in own):
            return Reject("this kernel takes f32, f16 and bf16")
        channels, anchor = found.spec.shape[1], node.anchor
        if not isinstance(channels, int) or anchor is None or channels == 0:
            return Reject("the channels are not known")
        work = Groups(node, found, channels, anchor.attrs.num_groups, parameters)
        if work.vectors > MOST_THREADS:
            return Reject(f"a block takes {MOST_THREADS} vectors of channels at most")
        try:
            for operand in found.after.values():
                operand_strides(node, operand, found.shape, NHWC)
        except ShapeError as e:
            return Reject(e.what)
        return work

    def variants(self, work: Groups, device: DeviceProperties) -> Sequence[Variant]:
        steps = [s for s in (1, 2, 4, 8) if s * work.width <= REGISTERS]
        return [fused.variant_in(work.node, work.around, NHWC, steps=s) for s in steps]

    def cost(self, work: Groups, variant: Variant, ctx: CompileContext) -> float | None:
        moved = text.traffic(work.node, variant, ctx)
        if moved is None:
            return None
        images = text.known(work.around.spec.shape[0], ctx)
        slices = -(-text.known(work.pixels, ctx) // (work.rows * variant.number("steps")))
        busy = min(1.0, images * slices / max(1, ctx.device.cores))
        again = (
            text.known(work.node.given[0].spec.numel, ctx) * work.node.given[0].spec.dtype.itemsize
        )
        # both kernels, what the first reads, and the blocks' own sums, of which all read all
        sums = images * slices * slices * work.groups * SUM_BYTES
        return START + moved + (again + sums) / BANDWIDTH / max(busy, 1e-3)

    def compile(self, work: Groups, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        steps = variant.number("steps")
        first, second = _Writer(work, steps, "sums"), _Writer(work, steps, "")
        (sums, before), (results, after) = first.sums(), second.normalised()
        return artifact(
            [sums, results],
            [before, after],
            [first.entry, second.entry],
            ctx,
            more=("group_norm.cuh",),
            workspace=first.blocks * work.groups * SUM_BYTES,
        )


class _Writer:
    """The text of one of both kernels, threads over the channels and pixels of a slice."""

    def __init__(self, work: Groups, steps: int, symbol: str) -> None:
        self.work = work
        self.entry = e = KernelEntry(work.node, work.vectors * work.rows, symbol)
        self.slices: Dim = dims.ceildiv(work.pixels, work.rows * steps)
        self.blocks: Dim = work.around.spec.shape[0] * self.slices
        cut = (work.width, work.vectors, work.rows, steps, work.each)
        self.head = [
            f"typedef tx_sliced<{', '.join(map(str, cut))}> S;",
            f"const int64_t pixels = {e.dim(work.pixels)}, slices = {e.dim(self.slices)};",
            "const int64_t n = blockIdx.x / slices, slice = blockIdx.x % slices;",
            f"if (n >= {e.dim(work.around.spec.shape[0])}) return;",
            "const int64_t c = S::channel();",
        ]

    def sums(self) -> tuple[str, Launch]:
        """The kernel that leaves each slice's own."""
        source = self.work.node.given[0].spec.dtype
        load = [
            *self._place(),
            f"tx_load_{source.value}<S::width>(v, {self._at(self.entry.input(0), self._own())});",
        ]
        body = [
            *self.head,
            f"float* const sums = {self.entry.workspace()} + blockIdx.x * 2 * S::groups;",
            block("const auto load = [&](float* v, int64_t pixel)", *load) + ";",
            "tx_group_sums<S>(sums, slice, pixels, load);",
        ]
        return self._kernel(body)

    def normalised(self) -> tuple[str, Launch]:
        """The kernel that joins them and writes the results."""
        anchor = self.work.node.anchor
        assert anchor is not None
        sums = f"{self.entry.workspace()} + n * slices * 2 * S::groups"
        epsilon = float_literal(anchor.attrs.epsilon)
        each = [
            "const int64_t pixel = slice * S::pixels + e * S::rows + S::row();",
            "if (pixel >= pixels) break;",
            *self._place(),
            *self._finish(),
        ]
        body = [
            *self.head,
            "float mean, scale;",
            f"tx_group_join<S>({sums}, slices, pixels, {epsilon}, mean, scale);",
            "#pragma unroll",
            block("for (int e = 0; e < S::steps; e++)", *each),
        ]
        return self._kernel(body)

    def _kernel(self, body: Sequence[str]) -> tuple[str, Launch]:
        body = ["return;"] if 0 in self.work.around.spec.shape else body
        return self.entry.kernel(*body), self.entry.launch(self.blocks)

    def _place(self) -> list[str]:
        """Declare the coordinates of ``pixel``."""
        spatial = self.work.around.spec.shape[2:]
        names = [f"i{k}" for k in range(len(spatial))]
        return [text.decode("int64_t", "pixel", names, [self.entry.dim(d) for d in spatial])]

    def _at(self, pointer: str, strides: Sequence[Dim]) -> str:
        names = ["n", "c", *(f"i{k}" for k in range(len(strides) - 2))]
        return f"{pointer} + ({self.entry.offset(strides, names)})"

    def _own(self) -> Sequence[Dim]:
        """Strides of the image along its axes."""
        shape = NHWC.storage_shape(self.work.around.spec.shape)
        return axis_strides(c_text.contiguous_strides(shape), NHWC)

    def _fetch(self, name: str, index: int, strides: Sequence[Dim]) -> tuple[list[str], str]:
        place = self._at(self.entry.input(index), strides)
        dtype = self.work.node.given[index].spec.dtype
        return text.fetch(self.entry, name, place, dtype, strides[1], self.work.width)

    def _finish(self) -> list[str]:
        """This pixel's channels, normalised, what follows, and the stores."""
        work, around, width = self.work, self.work.around, self.work.width
        loads, x = self._fetch("v", 0, self._own())
        leaves, factors = {}, []
        for v, o in around.after.items():
            strides = operand_strides(work.node, o, around.shape, NHWC)
            more, leaves[v] = self._fetch(f"b{v}", o.index, strides)
            loads += more
        along = (0, 1, *(0 for _ in around.shape[2:]))
        for k, index in enumerate(work.parameters):
            more, name = self._fetch(f"p{k}", index, along)
            loads += more
            factors.append(name)
        leaves |= {around.own: "x", **dict.fromkeys(around.made, "y")}
        code = scalar.emit(around.results, leaves, around.dtypes, "t")
        with_factors = "".join(f" {op} {f}" for op, f in zip("*+", factors, strict=False))
        one = [
            f"const float x = {x};",
            f"const float y = (x - mean) * scale{with_factors};",
            *code.statements,
            *(f"r{j}[k] = {name};" for j, name in enumerate(code.results)),
        ]
        arrays = [f"{text.number_type(t)} r{j}[{width}];" for j, t in enumerate(code.dtypes)]
        stores = [
            line
            for j, t in enumerate(code.dtypes)
            for line in text.put(
                self.entry, f"r{j}", self._at(self.entry.output(j), self._own()), t, 1, width
            )
        ]
        return [*loads, *arrays, *text.lanes(width, *one), *stores]
