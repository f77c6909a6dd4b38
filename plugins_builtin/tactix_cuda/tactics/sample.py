"""Resize and GridSample in CUDA: every element a weighted sum of elements around a place.

Resize has its places and weights as constants of the plan; those of axes whose sizes only running
tells are computed. A thread makes neighbours along the last axis of memory where that is not
resized: of as many channels, in nhwc, as 16 bytes hold. GridSample takes linear tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, NHWC
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element, stored
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations.resize import ROUNDED, TAPS, place
from tactix_cuda.tactics.rows import FLOATS
from tactix_ops.layers.resize import Axis, axis_weights

SINGLE_FACTOR = 4
"""How many times longer ``cost`` takes elements to be resized one by one than eight at once: on an
H200 256 channels of 128 x 128 float16 took 19 us one by one, where their bytes take 4.
"""
UNROLLED = 4
"""Taps of an axis up to which the loop over them is unrolled."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [ResizeTactic(), GridSampleTactic()]


@dataclass(frozen=True)
class SampleTaps:
    """Of one axis, arrays (out, taps): where to read, and how much of it."""

    axis: int
    places: Any
    weights: Any

    @property
    def count(self) -> int:
        return int(self.places.shape[1])


@dataclass(frozen=True)
class RunningTaps:
    """Of one axis whose sizes are not known: each element finds its ``count`` places. ``scale``:
    None: out / size.
    """

    axis: int
    count: int
    size: Dim
    out: Dim
    scale: float | None


@dataclass(frozen=True)
class ResizeWork:
    """A tensor to resize, and the taps of every axis that is."""

    node: Node
    taps: tuple[SampleTaps | RunningTaps, ...]


def _taps_of(node: Node) -> tuple[SampleTaps | RunningTaps, ...] | Reject:
    """The taps of every axis that is resized."""
    x, a = node.given[0].spec, node.attrs
    found: list[SampleTaps | RunningTaps] = []
    for i, (size, out) in enumerate(zip(x.shape, a.sizes, strict=True)):
        scale = a.scales[i] if a.scales else None
        if size == out and scale in (None, 1.0):
            continue
        if isinstance(size, int) and isinstance(out, int):
            if not size or not out:
                return Reject(f"axis {i} is resized, and is empty")
            found.append(_known_taps(a, i, Axis(size, out, out / size if scale is None else scale)))
        elif a.antialias:
            return Reject(f"axis {i} is resized with antialias, and its sizes are not known")
        else:
            found.append(RunningTaps(i, TAPS[a.mode], size, out, scale))
    return tuple(found)


def _known_taps(attrs: Any, i: int, axis: Axis) -> SampleTaps:
    import numpy as np

    full, _ = axis_weights(attrs, axis)
    used = full != 0
    count = max(1, int(used.sum(axis=1).max()))
    order = np.argsort(~used, axis=1, kind="stable")[:, :count]
    return SampleTaps(
        i, order.astype(np.int32), np.take_along_axis(full, order, 1).astype(np.float32)
    )


class ResizeTactic(Tactic[ResizeWork]):
    """f32, f16 and bf16, all modes; nearest also of other numbers."""

    key = "tactix.cuda_resize@1"
    implements = ("tactix.Resize@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> ResizeWork | Reject:
        x, a = node.given[0].spec, node.attrs
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if a.coordinate_transformation_mode == "tf_crop_and_resize":
            return Reject("regions of interest are not done by this tactic")
        if x.dtype not in FLOATS and (a.mode != "nearest" or not c_text.has_ctype(x.dtype)):
            return Reject(f"no {a.mode} resize of {x.dtype.value} in CUDA")
        found = _taps_of(node)
        return found if isinstance(found, Reject) else ResizeWork(node, found)

    def variants(self, work: ResizeWork, device: DeviceProperties) -> Sequence[Variant]:
        formats = [LINEAR]
        if work.node.given[0].spec.rank in (3, 4, 5) and all(t.axis > 1 for t in work.taps):
            formats.insert(0, NHWC)
        rest = [LINEAR] * (len(work.node.given) - 1)
        return [Variant.of([f, *rest], [f]) for f in formats]

    def cost(self, work: ResizeWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(work.node, variant, ctx)
        single = _Resize(CudaArgs(work.node), work, variant).width == 1
        return None if seconds is None else seconds * (SINGLE_FACTOR if single else 1)

    def compile(self, work: ResizeWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _Resize(CudaArgs(work.node), work, variant)
        grid = text.blocks(writer.threads)
        return text.kernel(writer.args, writer.body(), ctx, grid, more=("sample.cuh",))


class _Resize:
    """The text of one kernel. Axis ``i`` has the names ``i<i>`` (result) and ``p<i>`` (place)."""

    def __init__(self, args: CudaArgs, work: ResizeWork, variant: Variant) -> None:
        self.args, self.node, self.taps = args, work.node, work.taps
        x, y = self.node.given[0].spec, self.node.outputs[0].spec
        fmt = variant.input_format(0)
        self.axes = [0, *range(2, x.rank), 1] if fmt == NHWC else list(range(x.rank))
        self.source = c_text.contiguous_strides(fmt.storage_shape(x.shape))
        self.target = c_text.contiguous_strides(fmt.storage_shape(y.shape))
        self.groups: list[Dim] = list(fmt.storage_shape(y.shape))
        self.width = self._width()
        if self.groups:
            self.groups[-1] = dims.floordiv(self.groups[-1], self.width)
        self.threads = dims.prod(self.groups)
        self.kind = text.index_type(x.numel, y.numel)

    def _width(self) -> int:
        """Neighbours of a thread."""
        dtype = self.node.given[0].spec.dtype
        if dtype not in FLOATS or not self.axes or any(t.axis == self.axes[-1] for t in self.taps):
            return 1
        return text.vector_width(self.groups[-1], [(dtype, self.source), (dtype, self.target)])

    def body(self) -> list[str]:
        y = self.node.outputs[0].spec
        if self.node.attrs.mode == "nearest":
            return [*self._head(), *self._copy()]
        running = [
            line
            for t in self.taps
            if isinstance(t, RunningTaps)
            for line in _computed(self.args, self.node, t)
        ]
        return [
            *self._head(),
            *running,
            f"float sum[{self.width}] = {{}};",
            *self._sums(),
            *text.put(self.args, "sum", self._target(), y.dtype, 1, self.width),
        ]

    def _head(self) -> list[str]:
        """Declare the coordinates of this thread's first result, or leave."""
        sizes = [self.args.dim(d) for d in self.groups]
        names, more = [f"i{axis}" for axis in self.axes], []
        if self.width > 1:
            more.append(f"const {self.kind} {names[-1]} = group * {self.width};")
            names[-1] = "group"
        flat = text.flat(self.args, self.kind, self.threads)
        return [*flat, text.decode(self.kind, "t", names, sizes), *more]

    def _source(self) -> str:
        """A pointer to the element at the places."""
        resized = {t.axis for t in self.taps}
        names = [f"p{axis}" if axis in resized else f"i{axis}" for axis in self.axes]
        return f"{self.args.input(0)} + ({self.args.offset(self.source, names)})"

    def _target(self) -> str:
        names = [f"i{axis}" for axis in self.axes]
        return f"{self.args.output(0)} + ({self.args.offset(self.target, names)})"

    def _copy(self) -> list[str]:
        """The nearest elements."""
        places = [_nearest(self.args, self.node, t) for t in self.taps]
        if self.width == 1:
            return [*places, f"*({self._target()}) = *({self._source()});"]
        dtype = self.node.given[0].spec.dtype
        loads, _ = text.fetch(self.args, "x", self._source(), dtype, 1, self.width)
        return [
            *places,
            *loads,
            *text.put(self.args, "x", self._target(), dtype, 1, self.width),
        ]

    def _sums(self) -> list[str]:
        """Loops over the taps of all resized axes around the sums."""
        weights = "".join(f" * w{t.axis}" for t in self.taps)
        dtype = self.node.given[0].spec.dtype
        loads, lane = text.fetch(self.args, "x", self._source(), dtype, 1, self.width)
        body = [*loads, *text.lanes(self.width, f"sum[k] += {lane}{weights};")]
        for t in reversed(self.taps):
            head = f"for (int k{t.axis} = 0; k{t.axis} < {t.count}; k{t.axis}++)"
            taps = block(head, *_tap(self.args, t), *body)
            body = ["#pragma unroll", taps] if t.count <= UNROLLED else [taps]
        return body


def _nearest(args: CudaArgs, node: Node, t: SampleTaps | RunningTaps) -> str:
    """Declare the one place of an axis."""
    if isinstance(t, SampleTaps):
        return f"const int p{t.axis} = {_constant(args, t, 'p')}[i{t.axis}];"
    rounded = ROUNDED[node.attrs.nearest_mode].format(
        x=f"({_between(args, node, t)})", scale=_scale(args, t)
    )
    return f"const int64_t p{t.axis} = tx_element({rounded}, {args.dim(t.size)});"


def _tap(args: CudaArgs, t: SampleTaps | RunningTaps) -> list[str]:
    """Declare place and weight of a tap of an axis."""
    i = t.axis
    if isinstance(t, RunningTaps):
        return [f"const int64_t p{i} = at{i}[k{i}];", f"const float w{i} = of{i}[k{i}];"]
    places, shares = _constant(args, t, "p"), _constant(args, t, "w")
    return [
        f"const int p{i} = {places}[i{i} * {t.count} + k{i}];",
        f"const float w{i} = {shares}[i{i} * {t.count} + k{i}];",
    ]


def _computed(args: CudaArgs, node: Node, t: RunningTaps) -> list[str]:
    """Declare all places and weights of an axis."""
    i, a = t.axis, node.attrs
    options = f"{t.count}, {str(a.exclude_outside).lower()}"
    place = f"{_between(args, node, t)}, {args.dim(t.size)}, {float(a.cubic_coeff_a)!r}"
    return [
        f"int64_t at{i}[{t.count}];",
        f"float of{i}[{t.count}];",
        f"tx_resize_taps<{options}>({place}, at{i}, of{i});",
    ]


def _between(args: CudaArgs, node: Node, t: RunningTaps) -> str:
    size, out = map(args.dim, (t.size, t.out))
    return place(node, f"i{t.axis}", size, out, _scale(args, t), "0.0", "1.0")


def _scale(args: CudaArgs, t: RunningTaps) -> str:
    return (
        f"((double){args.dim(t.out)} / (double){args.dim(t.size)})"
        if t.scale is None
        else repr(float(t.scale))
    )


def _constant(args: CudaArgs, taps: SampleTaps, what: str) -> str:
    places = what == "p"
    array = taps.places if places else taps.weights
    return args.constant(
        f"{what}{taps.axis}", Packed(-1, array=array), DType.INT32 if places else DType.FP32
    )


class GridSampleTactic(Tactic[Node]):
    """f32, f16 and bf16, at places of these or f64; one to three axes, all modes and paddings."""

    key = "tactix.cuda_grid_sample@1"
    implements = ("tactix.GridSample@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, grid = (v.spec for v in node.given[:2])
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if (
            x.dtype not in FLOATS
            or grid.dtype not in (*FLOATS, DType.FP64)
            or not 3 <= x.rank <= 5
            or 0 in x.shape
        ):
            return Reject(f"no samples of {x} at {grid} in CUDA")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        return text.traffic(node, variant, ctx)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, y = CudaArgs(node), node.outputs[0].spec
        return text.kernel(args, _grid(args, node), ctx, text.blocks(y.numel), more=("sample.cuh",))


def _grid(args: CudaArgs, node: Node) -> list[str]:
    (x, grid), y, a = (v.spec for v in node.given[:2]), node.outputs[0].spec, node.attrs
    rank = x.rank - 2
    count = {"nearest": 1, "linear": 2, "bilinear": 2}.get(a.mode, 4)
    pad = ("zeros", "border", "reflection").index(a.padding_mode)
    names = ["n", "c", *(f"o{i}" for i in range(rank))]
    pixel = args.offset(c_text.contiguous_strides(grid.shape)[:-1], [names[0], *names[2:]])
    head = [
        *text.flat(args, "int64_t", y.numel),
        c_text.decode("t", names, [args.dim(d) for d in y.shape]),
    ]
    align, places = str(a.align_corners).lower(), []
    for i in range(rank):
        u = element(grid.dtype, f"{args.input(1)}[{pixel} + {rank - 1 - i}]")
        size: Dim = x.shape[2 + i]
        places += [
            f"int64_t p{i}[{count}];",
            f"float w{i}[{count}];",
            f"tx_taps<{count}, {pad}, {align}>({u}, {args.dim(size)}, p{i}, w{i});",
        ]
    at = ["n", "c", *(f"p{i}[k{i}]" for i in range(rank))]
    value = element(
        x.dtype, f"{args.input(0)}[{args.offset(c_text.contiguous_strides(x.shape), at)}]"
    )
    body = "\n".join(
        [
            f"const float w = {' * '.join(f'w{i}[k{i}]' for i in range(rank))};",
            f"if (w != 0.0f) sum += w * {value};",
        ]
    )
    for i in reversed(range(rank)):
        body = "#pragma unroll\n" + block(f"for (int k{i} = 0; k{i} < {count}; k{i}++)", body)
    return [
        *head,
        *places,
        "float sum = 0.0f;",
        body,
        f"{args.output(0)}[t] = {stored(y.dtype, 'sum')};",
    ]
