"""What users pass where a value is no tensor of numbers: text, sequences, optionals."""

from __future__ import annotations

from typing import Any

from tactix.base.dims import show
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, ShapeError
from tactix.base.tensor import Element
from tactix.plan.schema import TensorIO
from tactix.run.arrays import as_input


def as_value(io: TensorIO, given: Any) -> Any:
    """An input as the plan takes it. Raises DTypeError, InvalidArgument, ShapeError."""
    if not io.dtype.on_host:
        return as_input(io, given)
    return _object(io.name, io.dtype, io.element, given)


def _object(name: str, dtype: DType, element: Element | None, given: Any) -> Any:
    if dtype is DType.STRING:
        return text(name, given)
    assert element is not None
    if dtype is DType.OPTIONAL:
        return None if given is None else _element(name, element, given)
    if not isinstance(given, (list, tuple)):
        raise InvalidArgument(
            f"{name!r} is a sequence, got a {type(given).__name__}", do="Give a list of arrays"
        )
    return [_element(f"{name}[{i}]", element, x) for i, x in enumerate(given)]


def _element(name: str, element: Element, given: Any) -> Any:
    """An element of a sequence or optional; arrays are copied, as they may outlive the call."""
    if element.dtype.on_host:
        return _object(name, element.dtype, element.of, given)
    x = as_input(TensorIO(name, -1, element.dtype, ()), given)
    if element.shape is not None:
        fits = len(element.shape) == x.ndim and all(
            n == d for n, d in zip(x.shape, element.shape, strict=True) if isinstance(d, int)
        )
        if not fits:
            raise ShapeError(f"{name!r} is {element}, got {show(x.shape)}")
    return x.copy()


def text(name: str, given: Any) -> Any:
    """An array of str objects; bytes are UTF-8. Raises DTypeError."""
    import numpy as np

    x = np.asarray(given)
    if x.dtype.kind not in "OUST" and x.size:
        raise DTypeError(
            f"{name!r} is text, got {x.dtype}", do="Give str objects: np.array(['a', 'b'], object)"
        )
    out = np.empty(x.shape, object)
    if set(map(type, x.flat)) <= {str}:
        out[...] = x
        return out
    for i, s in enumerate(x.flat):
        s = s.decode("utf-8") if isinstance(s, bytes) else s
        if not isinstance(s, str):
            raise DTypeError(f"{name!r} is text, element {i} is a {type(s).__name__}")
        out.flat[i] = s
    return out
