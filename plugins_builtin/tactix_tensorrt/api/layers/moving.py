"""Layers that move elements, pick them, or make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, exact_div, prod
from tactix.base.dtypes import DType
from tactix_tensorrt.api.enums import (
    DataType,
    FillOperation,
    GatherMode,
    LayerType,
    SampleMode,
    ScatterMode,
    WeightsRole,
)
from tactix_tensorrt.api.layer import Attribute, ILayer
from tactix_tensorrt.api.layers.told import (
    Bounds,
    along,
    beyond_ends,
    counted,
    element,
    inside,
    vector,
)
from tactix_tensorrt.api.lowering import Lowering, scalar
from tactix_tensorrt.api.values import NATIVE, Dims, Permutation, Weights, checked_numbers

if TYPE_CHECKING:
    from tactix.contracts.graph import Value
    from tactix_tensorrt.api.values import Array


class IConstantLayer(ILayer):
    TYPE = LayerType.CONSTANT
    shape: Attribute[Sequence[int]] = Attribute((), Dims)
    weights: Attribute[Weights | Array | None] = Attribute(None, checked_numbers)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        made = emit.weights(self.weights, WeightsRole.CONSTANT, self.shape)
        if made is None:
            raise emit.refuse("a constant without weights")
        return [made]


class IConcatenationLayer(ILayer):
    """Along ``axis``, by default the third from the end."""

    TYPE = LayerType.CONCATENATION
    axis: Attribute[int] = Attribute(-1)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        axis = self.axis if self.axis >= 0 else max(0, emit.input(0).spec.rank - 3)
        return [emit.one("Concat", *emit.inputs, axis=axis)]


class IShuffleLayer(ILayer):
    """A transposition, a reshape (by input 1 if it is there), and another transposition."""

    TYPE = LayerType.SHUFFLE
    first_transpose: Attribute[Sequence[int]] = Attribute((), Permutation)
    reshape_dims: Attribute[Sequence[int] | None] = Attribute(None, Dims)  # type: ignore[arg-type]
    second_transpose: Attribute[Sequence[int]] = Attribute((), Permutation)
    zero_is_placeholder = Attribute(True)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x = _transposed(emit, emit.input(0), self.first_transpose)
        given = emit.optional(1)
        if given is not None:
            x = self._told(emit, x, given)
        elif self.reshape_dims is not None:
            x = emit.reshape(x, self._shape(emit, x, self.reshape_dims))
        return [_transposed(emit, x, self.second_transpose)]

    def _told(self, emit: Lowering, x: Value, sizes: Value) -> Value:
        """Reshaped by a tensor, whose content shapes tell or each run."""
        known = sizes.spec.known()
        if known is not None:
            return emit.reshape(x, self._shape(emit, x, known))
        fields = {"symbol": emit.symbol("size"), "allowzero": not self.zero_is_placeholder}
        return emit.one("DynamicReshape", x, sizes, **fields)

    def _shape(self, emit: Lowering, x: Value, target: Sequence[Dim]) -> tuple[Dim, ...]:
        """The target with 0 and -1 replaced."""
        known = [
            x.spec.shape[i] if d == 0 and self.zero_is_placeholder else d
            for i, d in enumerate(target)
        ]
        if -1 not in known:
            return tuple(known)
        rest = exact_div(x.spec.numel, prod([d for d in known if d != -1]))
        if rest is None:
            raise emit.refuse(f"cannot reshape {x.spec} to {list(target)}")
        return tuple(rest if d == -1 else d for d in known)


def _transposed(emit: Lowering, x: Value, order: Sequence[int]) -> Value:
    if not order or list(order) == list(range(x.spec.rank)):
        return x
    return emit.one("Transpose", x, perm=tuple(order)[: x.spec.rank])


class ISliceLayer(ILayer):
    """``start``, ``shape`` and ``stride``, or inputs 1 to 3 in their place; input 4: what FILL
    fills with; input 5: ``axes``.
    """

    TYPE = LayerType.SLICE
    start: Attribute[Sequence[int]] = Attribute((), Dims)
    shape: Attribute[Sequence[int]] = Attribute((), Dims)
    stride: Attribute[Sequence[int]] = Attribute((), Dims)
    mode = Attribute(SampleMode.STRICT_BOUNDS)
    axes: Attribute[Sequence[int]] = Attribute((), Dims)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, bounds = emit.input(0), self._bounds(emit)
        if self.mode is not SampleMode.STRICT_BOUNDS:
            return [beyond_ends(emit, x, bounds, self.mode, emit.optional(4))]
        known = [v.spec.known() for v in (bounds.start, bounds.size, bounds.stride)]
        if None in known:
            return [inside(emit, x, bounds)]
        fields = dict(zip(("begins", "sizes", "steps"), known, strict=True))
        return [emit.one("Slice", x, axes=bounds.axes, **fields)]

    def _bounds(self, emit: Lowering) -> Bounds:
        given, rank = emit.optional(5), emit.input(0).spec.rank
        axes = tuple(self.axes) if given is None else emit.content(given, "the axes")
        start, size, stride = (
            vector(emit, tuple(own))
            if (told := emit.optional(i)) is None
            else emit.cast(told, DType.INT64)
            for i, own in enumerate((self.start, self.shape, self.stride), 1)
        )
        named = tuple(_axis(a, rank) for a in axes) or tuple(range(rank))
        return Bounds(start, size, stride, named)


class IShapeLayer(ILayer):
    TYPE = LayerType.SHAPE

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return [emit.one("Shape", emit.input(0))]


class ISqueezeLayer(ILayer):
    """Without the axes in input 1."""

    TYPE = LayerType.SQUEEZE

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x = emit.input(0)
        gone = {_axis(a, x.spec.rank) for a in emit.content(emit.input(1), "the axes")}
        shape = tuple(d for i, d in enumerate(x.spec.shape) if i not in gone)
        return [emit.one("Reshape", x, shape=shape)]


class IUnsqueezeLayer(ILayer):
    """With axes of size 1 where input 1 says."""

    TYPE = LayerType.UNSQUEEZE

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, axes = emit.input(0), emit.content(emit.input(1), "the axes")
        rank = x.spec.rank + len(axes)
        new, old = {_axis(a, rank) for a in axes}, iter(x.spec.shape)
        shape = tuple(1 if i in new else next(old) for i in range(rank))
        return [emit.one("Reshape", x, shape=shape)]


def _axis(axis: Dim, rank: int) -> int:
    number = int(str(axis))
    return number + rank if number < 0 else number


class IGatherLayer(ILayer):
    TYPE = LayerType.GATHER
    axis = Attribute(0)
    num_elementwise_dims = Attribute(0)
    mode = Attribute(GatherMode.DEFAULT)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        x, where, batch = emit.input(0), emit.input(1), self.num_elementwise_dims
        if self.mode is GatherMode.ND:
            return [emit.one("GatherND", x, where, batch_dims=batch)]
        if batch and self.mode is GatherMode.DEFAULT:
            return [self._of_each(emit, x, where)]
        kind = "Gather" if self.mode is GatherMode.DEFAULT else "GatherElements"
        return [emit.one(kind, x, where, axis=self.axis)]

    def _of_each(self, emit: Lowering, x: Value, where: Value) -> Value:
        """The first axes are common to the tensor and the indices."""
        shared, axis = self.num_elementwise_dims, _axis(self.axis, x.spec.rank)
        if axis < shared:
            raise emit.refuse(f"axis {axis} is one of {shared} elementwise dims")
        batch, rest = range(shared), [a for a in range(shared, x.spec.rank) if a != axis]
        turned = emit.one("Transpose", x, perm=(*batch, axis, *rest))
        places = emit.reshape(where, (*where.spec.shape, 1))
        found = emit.one("GatherND", turned, places, batch_dims=shared)
        picked, before = where.spec.rank, axis - shared
        first, last = range(picked, picked + before), range(picked + before, found.spec.rank)
        return _transposed(emit, found, (*batch, *first, *range(shared, picked), *last))


class IScatterLayer(ILayer):
    TYPE = LayerType.SCATTER
    axis = Attribute(0)
    mode = Attribute(ScatterMode.ELEMENT)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        given = [emit.input(i) for i in range(3)]
        if self.mode is ScatterMode.ND:
            return [emit.one("ScatterND", *given)]
        return [emit.one("ScatterElements", *given, axis=self.axis)]


class INonZeroLayer(ILayer):
    """Where elements are not 0: (rank, how many)."""

    TYPE = LayerType.NON_ZERO
    indices_type = Attribute(DataType.INT32)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        where = emit.one("NonZero", emit.input(0), symbol=emit.symbol("nonzero"))
        return [emit.cast(where, NATIVE[self.indices_type])]


class IReverseSequenceLayer(ILayer):
    TYPE = LayerType.REVERSE_SEQUENCE
    batch_axis = Attribute(1)
    sequence_axis = Attribute(0)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        lengths = emit.cast(emit.input(1), DType.INT64)
        axes = {"batch_axis": self.batch_axis, "time_axis": self.sequence_axis}
        return [emit.one("ReverseSequence", emit.input(0), lengths, **axes)]


class IFillLayer(ILayer):
    """A ramp from ``alpha`` by ``beta``, or random numbers between or around them."""

    TYPE = LayerType.FILL
    operation = Attribute(FillOperation.LINSPACE)
    shape: Attribute[Sequence[int]] = Attribute((), Dims)
    alpha = Attribute(0.0)
    beta = Attribute(1.0)
    to_type = Attribute(DataType.FLOAT)

    def is_alpha_beta_int64(self) -> bool:
        return isinstance(self.alpha, int) and isinstance(self.beta, int)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        if self.operation is FillOperation.LINSPACE:
            return [self._ramp(emit)]
        given = emit.optional(0)
        shape = tuple(self.shape) if given is None else emit.content(given, "the sizes")
        alpha, beta = self._limit(emit, 1, self.alpha), self._limit(emit, 2, self.beta)
        uniform = self.operation is FillOperation.RANDOM_UNIFORM
        names = ("low", "high") if uniform else ("mean", "scale")
        known = isinstance(alpha, float) and isinstance(beta, float)
        fields = dict(zip(names, (alpha, beta) if known else (0.0, 1.0), strict=True))
        kind = "RandomUniform" if uniform else "RandomNormal"
        drawn = emit.one(kind, shape=shape, dtype=NATIVE[self.to_type], **fields)
        if known:
            return [drawn]
        first, second = (
            emit.number(v, drawn) if isinstance(v, float) else v for v in (alpha, beta)
        )
        span = emit.one("Sub", second, first) if uniform else second
        return [emit.one("Add", emit.one("Mul", drawn, span), first)]

    @staticmethod
    def _limit(emit: Lowering, index: int, own: float) -> float | Value:
        """A number where it is known before a run."""
        given = emit.optional(index)
        if given is None:
            return float(own)
        const = given.spec.const
        return given if const is None else float(const.ravel()[0])

    def _ramp(self, emit: Lowering) -> Value:
        """``start + delta[0] * i + delta[1] * j + ...``; of attributes along one axis."""
        given, start, delta = (emit.optional(i) for i in range(3))
        sizes = vector(emit, tuple(self.shape)) if given is None else given
        rank = sizes.spec.shape[0]
        if (start is None) != (delta is None) or (delta is None and rank != 1):
            raise emit.refuse(f"a ramp over {rank} axes", "Set inputs 1 and 2: start and delta")
        dtype = NATIVE[self.to_type] if start is None else start.spec.dtype
        if start is None or delta is None:
            start, delta = (emit.constant(scalar(n, dtype)) for n in (self.alpha, self.beta))
        total, by_axis = emit.reshape(start, ()), emit.reshape(delta, sizes.spec.shape)
        for i in range(int(str(rank))):
            steps = along(emit, counted(emit, emit.cast(sizes, DType.INT64), i), i, int(str(rank)))
            step = emit.one("Mul", emit.cast(steps, dtype), element(emit, by_axis, i))
            total = emit.one("Add", total, step)
        return total


class IQuantizeLayer(ILayer):
    """``axis``: of the scales in input 1, -1 for one scale."""

    TYPE = LayerType.QUANTIZE
    axis = Attribute(-1)
    to_type = Attribute(DataType.INT8)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        fields = {**_grouped(emit, self.axis), "dtype": NATIVE[self.to_type]}
        return [emit.one("QuantizeLinear", *_quantized(emit), **fields)]


class IDequantizeLayer(ILayer):
    """As IQuantizeLayer, back."""

    TYPE = LayerType.DEQUANTIZE
    axis = Attribute(-1)
    to_type = Attribute(DataType.FLOAT)

    def lower(self, emit: Lowering) -> Sequence[Value]:
        fields = {**_grouped(emit, self.axis), "dtype": NATIVE[self.to_type]}
        return [emit.one("DequantizeLinear", *_quantized(emit), **fields)]


def _grouped(emit: Lowering, axis: int) -> dict[str, int]:
    """Which elements share a scale: where scales have as many axes as the tensor, the one along
    which there are fewer is that of the blocks, and their sizes tell how large these are.
    """
    x, scale = emit.input(0).spec.shape, emit.input(1).spec.shape
    if len(x) == len(scale):
        pairs = [(i, d, n) for i, (d, n) in enumerate(zip(x, scale, strict=True)) if d != n]
        match pairs:
            case [(i, int(d), int(n))] if n > 0 and d % n == 0:
                return {"axis": i, "block_size": d // n}
    return {"axis": max(axis, 0)}


def _quantized(emit: Lowering) -> list[Value | None]:
    """The tensor, its scales, and a zero point if there is one."""
    return [emit.input(0), emit.input(1), *([emit.input(2)] if emit.optional(2) else [])]


class IAssertionLayer(ILayer):
    """What has to hold: checked as far as shapes decide it."""

    TYPE = LayerType.ASSERTION
    OUTPUTS = 0
    message = Attribute("")

    def lower(self, emit: Lowering) -> Sequence[Value]:
        return []
