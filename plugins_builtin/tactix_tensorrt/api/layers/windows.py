"""Layers over windows: convolutions, pooling, padding, resizing, sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, ceildiv, dmax
from tactix_tensorrt.api.enums import (
    InterpolationMode,
    LayerType,
    PaddingMode,
    PoolingType,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    ResizeSelector,
    SampleMode,
    WeightsRole,
)
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.lowering import Lowering
from tactix_tensorrt.api.values import Dims, Weights, checked_numbers

if TYPE_CHECKING:
    from tactix.contracts.graph import Value
    from tactix_tensorrt.api.values import Array


def at_first(rank: int) -> dict[str, object]:
    """What layers with windows of so many axes have before anything else is set."""
    ones = (1,) * rank
    return {"stride_nd": ones, "padding_nd": (0,) * rank, "dilation_nd": ones}


class Windowed(ILayer):
    """A window that moves over the spatial axes; what is empty is 1, of paddings 0."""

    stride_nd: Attribute[Sequence[int]] = Attribute((), Dims)
    padding_nd: Attribute[Sequence[int]] = Attribute((), Dims)
    pre_padding: Attribute[Sequence[int]] = Attribute((), Dims)
    post_padding: Attribute[Sequence[int]] = Attribute((), Dims)
    dilation_nd: Attribute[Sequence[int]] = Attribute((), Dims)
    padding_mode = Attribute(PaddingMode.EXPLICIT_ROUND_DOWN)

    @property
    def stride(self) -> Sequence[int]:
        return self.stride_nd

    @stride.setter
    def stride(self, stride: Sequence[int]) -> None:
        self.stride_nd = stride

    @property
    def padding(self) -> Sequence[int]:
        return self.padding_nd

    @padding.setter
    def padding(self, padding: Sequence[int]) -> None:
        self.padding_nd = padding

    def _strides(self, rank: int) -> tuple[int, ...]:
        return tuple(self.stride_nd) or (1,) * rank

    def _dilations(self, rank: int) -> tuple[int, ...]:
        return tuple(self.dilation_nd) or (1,) * rank

    def _pads(self, spatial: Sequence[Dim], window: Sequence[int]) -> tuple[Dim, ...]:
        """All begins, then all ends."""
        rank = len(window)
        if self.padding_mode in (PaddingMode.SAME_UPPER, PaddingMode.SAME_LOWER):
            return self._same(spatial, window)
        both = tuple(self.padding_nd) or (0,) * rank
        return (*(tuple(self.pre_padding) or both), *(tuple(self.post_padding) or both))

    def _same(self, spatial: Sequence[Dim], window: Sequence[int]) -> tuple[Dim, ...]:
        rank = len(window)
        begins, ends = [], []
        for n, k, s, d in zip(spatial, window, self._strides(rank), self._dilations(rank)):
            total = dmax((ceildiv(n, s) - 1) * s + (k - 1) * d + 1 - n, 0)
            less, more = total // 2, total - total // 2
            upper = self.padding_mode is PaddingMode.SAME_UPPER
            begins.append(less if upper else more)
            ends.append(more if upper else less)
        return (*begins, *ends)


class Weighted(Windowed):
    """With a kernel, as weights or as input 1, and a bias, as weights or as input 2."""

    num_output_maps = Attribute(0)
    kernel_size_nd: Attribute[Sequence[int]] = Attribute((), Dims)
    num_groups = Attribute(1)
    kernel: Attribute[Weights | Array | None] = Attribute(None, checked_numbers)
    bias: Attribute[Weights | Array | None] = Attribute(None, checked_numbers)

    @property
    def kernel_size(self) -> Sequence[int]:
        return self.kernel_size_nd

    def _kernel(self, emit: Lowering, shape: tuple[int, ...]) -> Value:
        given = emit.optional(1)
        if given is not None:
            return given
        made = emit.weights(self.kernel, WeightsRole.KERNEL, shape)
        if made is None:
            raise emit.refuse("the kernel has no weights", "Give them, or set input 1")
        return made

    def _bias(self, emit: Lowering) -> Value | None:
        made = emit.weights(self.bias, WeightsRole.BIAS, (-1,))
        return emit.optional(2) if made is None else made

    def _channels(self, emit: Lowering, x: Value) -> int:
        channels = x.spec.shape[1]
        if not isinstance(channels, int):
            raise emit.refuse("the number of channels is open", "Give the input a fixed one")
        return channels


class IConvolutionLayer(Weighted):
    TYPE = LayerType.CONVOLUTION

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, size = emit.input(0), tuple(self.kernel_size_nd)
        inner = self._channels(emit, x) // self.num_groups
        fields = {
            "strides": self._strides(len(size)),
            "dilations": self._dilations(len(size)),
            "pads": self._pads(x.spec.shape[2:], size),
            "group": self.num_groups,
        }
        w = self._kernel(emit, (self.num_output_maps, inner, *size))
        return [emit.one("Convolution", x, w, self._bias(emit), **fields)]


class IDeconvolutionLayer(Weighted):
    TYPE = LayerType.DECONVOLUTION

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, size = emit.input(0), tuple(self.kernel_size_nd)
        if self.padding_mode not in (
            PaddingMode.EXPLICIT_ROUND_DOWN,
            PaddingMode.EXPLICIT_ROUND_UP,
        ):
            raise emit.refuse(f"{self.padding_mode} of a deconvolution", "Give explicit paddings")
        fields = {
            "strides": self._strides(len(size)),
            "dilations": self._dilations(len(size)),
            "pads": self._pads(x.spec.shape[2:], size),
            "group": self.num_groups,
        }
        shape = (self._channels(emit, x), self.num_output_maps // self.num_groups, *size)
        return [emit.one("ConvTranspose", x, self._kernel(emit, shape), self._bias(emit), **fields)]


class IPoolingLayer(Windowed):
    TYPE = LayerType.POOLING
    kind = Attribute(PoolingType.MAX)
    window_size_nd: Attribute[Sequence[int]] = Attribute((), Dims)
    blend_factor = Attribute(0.0)
    average_count_excludes_padding = Attribute(True)

    @property
    def window_size(self) -> Sequence[int]:
        return self.window_size_nd

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, size = emit.input(0), tuple(self.window_size_nd)
        fields = {
            "kernel_shape": size,
            "strides": tuple(self.stride_nd) or size,
            "pads": self._pads(x.spec.shape[2:], size),
            "ceil_mode": self.padding_mode is PaddingMode.EXPLICIT_ROUND_UP,
        }
        if self.kind is PoolingType.MAX:
            return [emit.one("MaxPool", x, **fields)]
        counted = {"count_include_pad": not self.average_count_excludes_padding}
        average = emit.one("AveragePool", x, **fields, **counted)
        if self.kind is PoolingType.AVERAGE:
            return [average]
        return [self._blended(emit, emit.one("MaxPool", x, **fields), average)]

    def _blended(self, emit: Lowering, highest: Value, average: Value) -> Value:
        """``blend_factor`` is the part of the average."""
        parts = ((highest, 1 - self.blend_factor), (average, self.blend_factor))
        return emit.one("Add", *(emit.one("Mul", v, emit.number(part, v)) for v, part in parts))


class ILRNLayer(ILayer):
    TYPE = LayerType.LRN
    window_size = Attribute(5)
    alpha = Attribute(1.0)
    beta = Attribute(1.0)
    k = Attribute(1.0)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        fields = {"size": self.window_size, "alpha": self.alpha, "beta": self.beta, "bias": self.k}
        return [emit.one("LRN", emit.input(0), **fields)]


class IPaddingLayer(ILayer):
    """Zeros around the last two axes."""

    TYPE = LayerType.PADDING
    pre_padding_nd: Attribute[Sequence[int]] = Attribute((0, 0), Dims)
    post_padding_nd: Attribute[Sequence[int]] = Attribute((0, 0), Dims)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x = emit.input(0)
        outer = (0,) * (x.spec.rank - len(self.pre_padding_nd))
        pads = (*outer, *self.pre_padding_nd, *outer, *self.post_padding_nd)
        return [emit.one("Pad", x, pads=pads)]


RESIZE_MODES = {
    InterpolationMode.NEAREST: "nearest",
    InterpolationMode.LINEAR: "linear",
    InterpolationMode.CUBIC: "cubic",
}
COORDINATES = {
    ResizeCoordinateTransformation.ALIGN_CORNERS: "align_corners",
    ResizeCoordinateTransformation.ASYMMETRIC: "asymmetric",
    ResizeCoordinateTransformation.HALF_PIXEL: "half_pixel",
}
ROUNDING = {
    ResizeRoundMode.HALF_UP: "round_prefer_ceil",
    ResizeRoundMode.HALF_DOWN: "round_prefer_floor",
    ResizeRoundMode.FLOOR: "floor",
    ResizeRoundMode.CEIL: "ceil",
}


class IResizeLayer(ILayer):
    """To ``shape``, by ``scales``, or to the sizes in input 1."""

    TYPE = LayerType.RESIZE
    shape: Attribute[Sequence[int]] = Attribute((), Dims)
    scales: Attribute[Sequence[float]] = Attribute(())
    resize_mode = Attribute(InterpolationMode.NEAREST)
    coordinate_transformation = Attribute(ResizeCoordinateTransformation.ASYMMETRIC)
    selector_for_single_pixel = Attribute(ResizeSelector.FORMULA)
    nearest_rounding = Attribute(ResizeRoundMode.FLOOR)
    cubic_coeff = Attribute(-0.75)
    exclude_outside = Attribute(False)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, target = emit.input(0), emit.optional(1)
        known = tuple(self.shape) if target is None else target.spec.known()
        if known is None:
            told = [x, None, None, target]
            return [emit.one("DynamicResize", *told, symbol=emit.symbol("size"), **self._how())]
        if known:
            return [emit.one("Resize", x, sizes=known, **self._how())]
        sizes = self._scaled(emit, x)
        scales = tuple(float(s) for s in self.scales)
        return [emit.one("Resize", x, sizes=sizes, scales=scales, **self._how())]

    def _scaled(self, emit: Lowering, x: Value) -> tuple[Dim, ...]:
        """The sizes that ``scales`` give, rounded down."""
        from tactix_ops.layers.dynamic_resize import scaled  # numpy comes with it

        if len(self.scales) != x.spec.rank:
            do = "Set shape, one of scales for each axis, or input 1"
            raise emit.refuse(f"it has {len(self.scales)} scales for {x.spec}", do)
        return tuple(scaled(n, s) for n, s in zip(x.spec.shape, self.scales, strict=True))

    def _how(self) -> dict[str, object]:
        """What does not hang on sizes."""
        return {
            "mode": RESIZE_MODES[self.resize_mode],
            "coordinate_transformation_mode": self._coordinates(),
            "nearest_mode": ROUNDING[self.nearest_rounding],
            "cubic_coeff_a": self.cubic_coeff,
            "exclude_outside": bool(self.exclude_outside),
        }

    def _coordinates(self) -> str:
        upper = self.selector_for_single_pixel is ResizeSelector.UPPER
        half = self.coordinate_transformation is ResizeCoordinateTransformation.HALF_PIXEL
        if upper and half:
            return "pytorch_half_pixel"
        return COORDINATES[self.coordinate_transformation]


BORDERS = {SampleMode.FILL: "zeros", SampleMode.CLAMP: "border", SampleMode.REFLECT: "reflection"}


class IGridSampleLayer(ILayer):
    TYPE = LayerType.GRID_SAMPLE
    interpolation_mode = Attribute(InterpolationMode.LINEAR)
    align_corners = Attribute(False)
    sample_mode = Attribute(SampleMode.FILL)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        if self.sample_mode not in BORDERS:
            raise emit.refuse(str(self.sample_mode), "Choose FILL, CLAMP or REFLECT")
        fields = {
            "mode": RESIZE_MODES[self.interpolation_mode],
            "padding_mode": BORDERS[self.sample_mode],
            "align_corners": bool(self.align_corners),
        }
        return [emit.one("GridSample", emit.input(0), emit.input(1), **fields)]
