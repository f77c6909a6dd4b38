"""RoiAlign and MaxRoiPool in CUDA: bins of regions that data gives; linear format.

A thread makes one bin of one channel. An image that a region is of is taken for the nearest that
there is: kernels cannot raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs
from tactix_cuda.tactics.rows import FLOATS

_NUMBERS = (*FLOATS, DType.FP64)
_PRELUDES = ("places.h", "regions.h", "regions.cuh")


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaRoiAlignTactic(), CudaMaxRoiPoolTactic()]


class CudaRoiAlignTactic(Tactic[Node]):
    """Floats, regions of any floats, owners of any integers."""

    key = "tactix.cuda_roi_align@1"
    implements = ("tactix.RoiAlign@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        owners = node.given[2].spec
        if not owners.dtype.is_int or not c_text.has_ctype(owners.dtype):
            return Reject(f"no images of regions as {owners.dtype.value} in CUDA")
        if node.attrs.mode not in ("avg", "max"):
            return Reject(f"no mode {node.attrs.mode} of regions in CUDA")
        return _why_not(node, 4) or node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        regions = _SampledRegions(CudaArgs(node), node, corners=0)
        return regions.kernel(ctx, regions.bin())


class CudaMaxRoiPoolTactic(Tactic[Node]):
    """Floats."""

    key = "tactix.cuda_max_roi_pool@1"
    implements = ("tactix.MaxRoiPool@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        return _why_not(node, 5) or node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        regions = _WholeRegions(CudaArgs(node), node, corners=1)
        return regions.kernel(ctx, regions.bin())


def _why_not(node: Node, numbers: int) -> Reject | None:
    """``numbers``: of a region."""
    x, regions = (v.spec for v in node.given[:2])
    if node.is_fused:
        return Reject("no layers around it are fused by this tactic")
    if x.dtype not in _NUMBERS or regions.dtype not in _NUMBERS:
        return Reject(f"no regions of {x.dtype.value} at {regions.dtype.value} in CUDA")
    if regions.shape[1] != numbers:
        return Reject(f"that a region has {numbers} numbers is not known")
    return None


@dataclass(frozen=True)
class RegionAxis:
    """An axis of the image: ``letter`` in names, its size, how many bins, what names the bin, and
    where in a region its first corner stands.
    """

    letter: str
    size: Dim
    bins: int
    bin: str
    corner: int


class _Regions:
    """The text of one kernel, whose threads have a ``region``, a ``channel`` and a bin: ``row``,
    ``column``.

    ``corners``: numbers of a region before its corners.
    """

    def __init__(self, args: CudaArgs, node: Node, corners: int) -> None:
        self.args, self.node = args, node
        self.x, self.spec, y = node.given[0].spec, node.given[1].spec, node.outputs[0].spec
        self.kind = text.index_type(self.x.numel, self.spec.numel, y.numel)
        self.number = text.number_type(y.dtype)
        high, wide = (int(d) for d in y.shape[2:])  # type: ignore[arg-type]
        self.axes = [
            RegionAxis("r", self.x.shape[2], high, "row", corners + 1),
            RegionAxis("c", self.x.shape[3], wide, "column", corners),
        ]

    def corner(self, i: int) -> str:
        """A number of the region as a double."""
        place = f"{self.args.input(1)}[region * {self.args.dim(self.spec.shape[1])} + {i}]"
        return f"(double){text.element(self.spec.dtype, place)}"

    def size(self, a: RegionAxis) -> str:
        """Elements of an axis that may be read: none without an image."""
        return f"(image < 0 ? 0 : {self.args.dim(a.size)})"

    def element(self, row: str, column: str) -> str:
        """An element of the channel of the image as a number."""
        columns = self.args.dim(self.x.shape[3])
        return text.element(self.x.dtype, f"plane[{row} * {columns} + {column}]")

    def kernel(self, ctx: CompileContext, body: Sequence[str]) -> KernelArtifact:
        """``body``: statements that declare ``s``, the bin's number."""
        args, y = self.args, self.node.outputs[0].spec
        names, sizes = ["region", "channel", "row", "column"], [args.dim(d) for d in y.shape]
        lines = [
            *text.flat(args, self.kind, y.numel),
            text.decode(self.kind, "t", names, sizes),
            *body,
            f"{args.output(0)}[t] = {text.stored(y.dtype, 's')};",
        ]
        held = [] if y.numel == 0 else lines
        return text.kernel(args, held, ctx, text.blocks(y.numel), more=_PRELUDES)

    def image(self, owner: str) -> list[str]:
        """Declare the image that the region is of, -1 where there is none, and its channel."""
        images, channels = (self.args.dim(d) for d in self.x.shape[:2])
        size = self.args.dim(self.x.shape[2] * self.x.shape[3])
        plane = f"{self.args.input(0)} + (image * {channels} + channel) * {size}"
        return [
            f"const int64_t image = tx_index({owner}, {images});",
            f"const {c_text.ctype(self.x.dtype)}* plane = {plane};",
        ]


class _SampledRegions(_Regions):
    """RoiAlign: corners lie between elements."""

    def bin(self) -> list[str]:
        return [
            *self.image(f"(int64_t){self.args.input(2)}[region]"),
            *(line for a in self.axes for line in self._samples(a)),
            *(self._mean() if self.node.attrs.mode == "avg" else self._largest()),
        ]

    def _samples(self, a: RegionAxis) -> list[str]:
        """Declare where the region begins and ends along an axis, and the samples of the bin."""
        attrs, r = self.node.attrs, a.letter
        half = attrs.coordinate_transformation_mode == "half_pixel"
        scale, shift = float_literal(attrs.spatial_scale, double=True), "0.5" if half else "0.0"
        first, last = (f"{self.corner(i)} * {scale} - {shift}" for i in (a.corner, a.corner + 2))
        length = f"{r}_last - {r}_first"
        if not half:
            length = f"({length} > 1.0 ? {length} : 1.0)"
        which = f"{a.bins}, {a.bin}, {attrs.sampling_ratio}, {self.size(a)}"
        return [
            f"const double {r}_first = {first}, {r}_last = {last};",
            f"const tx_bin {r} = tx_bin_of({r}_first, {length}, {which});",
        ]

    def _walk(self, *body: str) -> str:
        """Loops over the elements around the samples of the bin, each with its ``share``."""
        rows, columns = self.axes
        share = f"const {self.number} share = ({self.number})(r_of[i] * c_of[j]);"
        element = f"const {self.number} v = {self.element('r_at[i]', 'c_at[j]')};"
        walk = block("for (int j = 0; j < 2; j++)", share, element, *body)
        walk = block("for (int i = 0; i < 2; i++)", "#pragma unroll", walk)
        lines = ["#pragma unroll", walk]
        for a in (columns, rows):
            r = a.letter
            at = f"{r}.begin + ((double)k{r} + 0.5) * {r}.step"
            sample = f"tx_around({at}, {self.args.dim(a.size)}, {r}_at, {r}_of);"
            head = f"for (int64_t k{r} = {r}.from; k{r} < {r}.until; k{r}++)"
            lines = [block(head, f"int64_t {r}_at[2];", f"double {r}_of[2];", sample, *lines)]
        return lines[0]

    def _mean(self) -> list[str]:
        return [
            f"{self.number} s = 0;",
            self._walk("s += share * v;"),
            f"if (r.count && c.count) s /= ({self.number})(r.count * c.count);",
        ]

    def _largest(self) -> list[str]:
        """Samples beyond the image count as 0, and so does a bin without samples."""
        outside = " || ".join(f"{a}.until - {a}.from < {a}.count || !{a}.count" for a in ("r", "c"))
        return [
            f"{self.number} s = -TX_INF;",
            self._walk("s = TX_MAX(s, share * v);"),
            f"if ({outside}) s = TX_MAX(s, ({self.number})0);",
        ]


class _WholeRegions(_Regions):
    """MaxRoiPool: corners are rounded to elements."""

    def bin(self) -> list[str]:
        images, scale = (
            self.args.dim(self.x.shape[0]),
            float_literal(self.node.attrs.spatial_scale, double=True),
        )
        owner = f"tx_between({self.corner(0)}, -(double){images}, (double){images} - 1.0)"
        lines = self.image(f"(int64_t){owner}")
        walk = f"s = TX_MAX(s, {self.element('r', 'c')});"
        for a in reversed(self.axes):
            r = a.letter
            first, last = (f"{self.corner(i)} * {scale}" for i in (a.corner, a.corner + 2))
            ends = f"{a.bins}, {a.bin}, {self.size(a)}, &{r}_from, &{r}_until"
            lines += [
                f"int64_t {r}_from, {r}_until;",
                f"tx_whole_bin({first}, {last}, {ends});",
            ]
            walk = block(f"for (int64_t {r} = {r}_from; {r} < {r}_until; {r}++)", walk)
        return [
            *lines,
            f"{self.number} s = r_from < r_until && c_from < c_until ? -TX_INF : 0;",
            walk,
        ]
