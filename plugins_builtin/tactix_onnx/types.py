"""ONNX types that are no tensors, as dtypes with elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.base.dtypes import DType
from tactix.base.errors import UnsupportedOperator
from tactix.base.tensor import Element, TensorSpec
from tactix_onnx.weights import ONNX_DTYPES, dtype_of

if TYPE_CHECKING:
    import onnx

DEEPEST = 8
"""How deep sequences and optionals may lie in each other."""


def object_type(t: onnx.TypeProto, who: str, depth: int = 0) -> tuple[DType, Element]:
    """The dtype and element of a sequence or optional. Raises UnsupportedOperator."""
    kind = t.WhichOneof("value")
    if kind not in ("sequence_type", "optional_type") or depth > DEEPEST:
        raise UnsupportedOperator("its type is not supported", who=who, why=str(kind))
    dtype = DType.SEQUENCE if kind == "sequence_type" else DType.OPTIONAL
    inner = getattr(t, kind).elem_type
    if inner.WhichOneof("value") != "tensor_type":
        dtype_inside, element = object_type(inner, who, depth + 1)
        return dtype, Element(dtype_inside, (), element)
    tensor = inner.tensor_type
    # exporters write no dims where they know none, so that no dims do not mean a scalar here
    dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim) or None
    return dtype, Element(dtype_of(tensor.elem_type, who), dims)


def type_of(spec: TensorSpec) -> onnx.TypeProto:
    """The ONNX type of a value."""
    import onnx

    if spec.element is not None:
        e = spec.element
        shape = None if e.shape is None else tuple(d if isinstance(d, int) else 0 for d in e.shape)
        inner = type_of(TensorSpec(e.dtype, shape or (), element=e.of))
        if spec.dtype is DType.OPTIONAL:
            return onnx.helper.make_optional_type_proto(inner)
        return onnx.helper.make_sequence_type_proto(inner)
    code = next(c for c, t in ONNX_DTYPES.items() if t is spec.dtype)
    return onnx.helper.make_tensor_type_proto(
        code, [d if isinstance(d, int) else str(d) for d in spec.shape]
    )
