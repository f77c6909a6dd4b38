"""What the functions of a quick plugin get: shapes, descriptions of tensors, and tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from tactix_tensorrt import device
from tactix_tensorrt.api.enums import DataType, TensorFormat
from tactix_tensorrt.api.plugin_fields import DynamicPluginTensorDesc, PluginTensorDesc
from tactix_tensorrt.api.values import Dims, nptype
from tactix_tensorrt.quick.sizes import ShapeExpr, ShapeExprs, SizeTensorShapeExpr, SymIntExpr

ShapeLike = tuple[int, ...] | DynamicPluginTensorDesc | PluginTensorDesc


class Shape:
    """The sizes of a tensor, -1 where they are open; then ``min``, ``opt`` and ``max`` may be
    known. Raises ValueError for what has none.
    """

    def __init__(self, tensor_desc: ShapeLike) -> None:
        self._range: DynamicPluginTensorDesc | None = None
        if isinstance(tensor_desc, DynamicPluginTensorDesc):
            self._sizes, self._range = Dims(tensor_desc.desc.dims), tensor_desc
        elif isinstance(tensor_desc, PluginTensorDesc):
            self._sizes = Dims(tensor_desc.dims)
        elif isinstance(tensor_desc, tuple):
            self._sizes = Dims(tensor_desc)
        else:
            raise ValueError(f"{tensor_desc!r} has no shape: give a tuple or a description")

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: int) -> int:
        return self._sizes[index]

    def __setitem__(self, index: int, size: int) -> None:
        self._sizes[index] = int(size)

    def __repr__(self) -> str:
        return f"Shape{self._sizes}"

    @property
    def is_dynamic(self) -> bool:
        return -1 in self._sizes

    def numel(self) -> int:
        """How many elements there are. Raises ValueError where a size is open."""
        if self.is_dynamic:
            raise ValueError("Shape has at least one dynamic dimension")
        return math.prod(self._sizes)

    def _known(self, row: str) -> tuple[int, ...]:
        if not self.is_dynamic:
            raise ValueError(f"{row} is there for dynamic shapes alone")
        if self._range is None:
            raise AttributeError(f"nothing is known of the range of {self}")
        return tuple(getattr(self._range, row))

    @property
    def min(self) -> tuple[int, ...]:
        """The lowest sizes, of a dynamic shape in a build."""
        return self._known("min")

    @property
    def opt(self) -> tuple[int, ...]:
        """The sizes to tune for, of a dynamic shape in a build."""
        return self._known("opt")

    @property
    def max(self) -> tuple[int, ...]:
        """The highest sizes, of a dynamic shape in a build."""
        return self._known("max")


class Fixed:
    """What may not be changed once it is sealed: ValueError."""

    _sealed = False

    def sealed(self) -> None:
        self._sealed = True

    def __setattr__(self, name: str, value: object) -> None:
        if self._sealed:
            raise ValueError(f"Cannot modify immutable {type(self).__name__}: use like()")
        super().__setattr__(name, value)


class TensorDesc(Fixed):
    """A tensor's dtype and sizes, without content. ``shape``, ``format``, ``scale``: known where a
    plugin is tuned, else ValueError.
    """

    is_size_tensor = False

    def __init__(
        self,
        shape_expr: ShapeExprs | tuple[int, ...] | None = None,
        dtype: DataType | None = None,
        format: TensorFormat | None = None,
        scale: float | None = None,
    ) -> None:
        if isinstance(shape_expr, tuple):
            shape_expr = ShapeExprs.from_tuple(shape_expr)
        self.shape_expr: ShapeExprs | None = shape_expr
        self.dtype = dtype
        self._shape: Shape | None = None
        self._format, self._scale = format, scale
        self._aliased_to: TensorDesc | None = None

    def tell(self, desc: DynamicPluginTensorDesc) -> None:
        """What a build knows of it, sealed or not."""
        told = {"_shape": Shape(desc), "_format": desc.desc.format, "_scale": desc.desc.scale}
        vars(self).update(told, dtype=desc.desc.type)

    def _copy(self) -> TensorDesc:
        out = TensorDesc()
        vars(out).update({k: v for k, v in vars(self).items() if k != "_sealed"})
        if self.shape_expr is not None:
            out.shape_expr = ShapeExprs.from_tuple(self.shape_expr)
        return out

    def like(self) -> TensorDesc:
        """Another one of the same dtype and sizes, which may be changed."""
        out = self._copy()
        out._aliased_to = None
        return out

    def aliased(self) -> TensorDesc:
        """One that lies where this one does."""
        out = self._copy()
        out._aliased_to = self
        out.sealed()
        return out

    def get_aliased(self) -> TensorDesc | None:
        """Where it lies, None for memory of its own."""
        return self._aliased_to

    @property
    def is_aliased(self) -> bool:
        return self._aliased_to is not None

    @property
    def ndim(self) -> int:
        return 0 if self.shape_expr is None else len(self.shape_expr)

    @property
    def has_shape_expr(self) -> bool:
        return self.shape_expr is not None

    @property
    def has_shape(self) -> bool:
        return self._shape is not None

    def _told(self) -> Shape:
        if self._shape is None:
            raise ValueError(
                "TensorDesc has no shape information available at this stage: look at has_shape"
            )
        return self._shape

    @property
    def shape(self) -> Shape:
        return self._told()

    @property
    def is_dynamic(self) -> bool:
        return self._told().is_dynamic

    @property
    def format(self) -> TensorFormat | None:
        self._told()
        return self._format

    @property
    def scale(self) -> float | None:
        self._told()
        return self._scale

    def numel(self) -> int:
        return self._told().numel()


class SizeTensorDesc(TensorDesc):
    """A number that a run tells. ``opt``, ``upper_bound``: what is expected, and the most."""

    is_size_tensor = True

    def __init__(self, opt: SymIntExpr, upper_bound: SymIntExpr) -> None:
        super().__init__(ShapeExprs(0), DataType.INT32)
        self.opt, self.upper_bound = opt, upper_bound
        self.index: int | None = None
        self._expr = SizeTensorShapeExpr()

    def expr(self) -> SizeTensorShapeExpr:
        """The size that it tells."""
        return self._expr


def size_tensor(opt: SymIntExpr, upper_bound: SymIntExpr) -> SizeTensorDesc:
    """A size tensor of what is expected, and of the most."""
    return SizeTensorDesc(opt, upper_bound)


def from_shape_expr(
    shape_expr: ShapeExprs | Iterable[ShapeExpr | int], dtype: DataType
) -> TensorDesc:
    """A tensor of those sizes."""
    if not isinstance(shape_expr, ShapeExprs):
        shape_expr = ShapeExprs.from_tuple(shape_expr)
    return TensorDesc(shape_expr, dtype)


class Tensor(Fixed):
    """A tensor of a run: where it lies, and how to read it."""

    def __init__(
        self, desc: PluginTensorDesc, data_ptr: int, strides: tuple[int, ...], stream: int
    ) -> None:
        self.dtype, self.format, self.scale = desc.type, desc.format, desc.scale
        self.shape, self.data_ptr, self.strides = Shape(desc), data_ptr, strides
        self._stream = stream
        self._aliased_to: Tensor | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_data_dependent(self) -> bool:
        """Whether only the run tells its shape."""
        return self.shape.is_dynamic

    def numel(self) -> int:
        """How many elements there are. Raises ValueError where only the run tells."""
        return self.shape.numel()

    def get_aliased(self) -> Tensor | None:
        """The one that it shares memory with, None for none."""
        return self._aliased_to

    @property
    def is_aliased(self) -> bool:
        return self._aliased_to is not None

    def aliased(self, shape: Shape | ShapeLike | None = None) -> Tensor:
        """The same memory in another shape. Raises ValueError for one of more elements."""
        new = self.shape if shape is None else shape if isinstance(shape, Shape) else Shape(shape)
        if not self.is_data_dependent and not new.is_dynamic and new.numel() > self.numel():
            raise ValueError("Volume of this tensor is less than the provided shape")
        out = Tensor.__new__(Tensor)
        vars(out).update({k: v for k, v in vars(self).items() if k != "_sealed"})
        out.shape, out.strides, out._aliased_to = new, row_major(new), self
        return out

    def _interface(self) -> Mapping[str, object]:
        """Raises ValueError where only the run tells the shape."""
        import numpy as np

        if self.is_data_dependent:
            shape = tuple(self.shape)
            raise ValueError(f"{shape} is no shape yet: fill what `aliased` gives of the found one")
        kind = np.dtype(nptype(self.dtype))
        return {
            "shape": tuple(self.shape),
            "typestr": kind.str,
            "data": (self.data_ptr, False),
            "strides": tuple(s * kind.itemsize for s in self.strides),
            "version": 3,
        }

    @property
    def __cuda_array_interface__(self) -> Mapping[str, object]:
        """Where engines are built for a GPU; else AttributeError. Raises TypeError for a dtype that
        numpy does not have.
        """
        if device.chosen() != "cuda":
            raise AttributeError("the tensor is in the host's memory: see __array_interface__")
        return {**self._interface(), "stream": self._stream or None}

    @property
    def __array_interface__(self) -> Mapping[str, object]:
        """Where engines are built for the processor, so that numpy sees it; else AttributeError."""
        if device.chosen() == "cuda":
            raise AttributeError("the tensor is in a GPU's memory: see __cuda_array_interface__")
        return self._interface()


def row_major(shape: Iterable[int]) -> tuple[int, ...]:
    """Elements from one to the next along each axis."""
    out: list[int] = []
    step = 1
    for n in reversed([*shape]):
        out.insert(0, step)
        step *= n
    return tuple(out)
