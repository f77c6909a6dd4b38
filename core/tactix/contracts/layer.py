"""Layer: what an operation means. Attribute schema, shape inference, numpy reference; or one scalar expression."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.contracts import expr, symbolic
from tactix.words.dims import broadcast_shapes
from tactix.words.errors import InvalidArgument
from tactix.words.tensor import TensorSpec


@dataclass(frozen=True)
class NoAttrs:
    """The schema of a layer without attributes."""


class Layer:
    """An operation. Subclass it, set ``key``, and give ``infer`` and ``reference``.

    ``key``: ``namespace.Name@version``. ``Attrs``: a frozen dataclass whose fields are ints, floats, strings, bools,
    dims, dtypes or tuples of them. ``commutative``: the first two inputs may be swapped.
    ``takes_objects``: inputs may be sequences or optionals. ``imports``: operators of
    model formats that mean this layer with attributes of the same names, as ``"onnx:domain::Op"``.
    """

    key: str
    Attrs: Any = NoAttrs
    commutative: bool = False
    takes_objects: bool = False
    imports: tuple[str, ...] = ()

    def infer(self, attrs: Any, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        """Specs of the outputs. Absent optional inputs are None. Raises ShapeError, DTypeError."""
        raise NotImplementedError(f"{self.key}: infer")

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        """The meaning: numpy arrays in, a tuple of numpy arrays out. Attributes hold ints where they held dims."""
        raise NotImplementedError(f"{self.key}: reference")

    def bodies(self, attrs: Any) -> tuple[Any, ...]:
        """Networks that running the layer runs: branches, loops. A plan holds a plan of each in the layer's step."""
        return ()

    def sample(self, attrs: Any, inputs: Sequence[TensorSpec | None], rng: Any) -> list[Any]:
        """Random valid inputs of fixed shapes, for timing and for tests; override where values are constrained."""
        return [None if s is None else random_array(s, rng) for s in inputs]

    @property
    def is_pointwise(self) -> bool:
        """Whether output elements depend on the input elements of the same (broadcast) position alone."""
        return False

    def scalar(self, attrs: Any, arity: int) -> expr.Scalar:
        """The scalar expression of a pointwise layer with that many inputs."""
        raise InvalidArgument(f"{self.key} is not pointwise")

    @property
    def name(self) -> str:
        """The key without namespace and version."""
        return self.key.split("@")[0].split(".", 1)[1]

    def __repr__(self) -> str:
        return f"<layer {self.key}>"


class PointwiseLayer(Layer):
    """A layer that is one scalar expression of its broadcast inputs: it fuses anywhere, on every device."""

    def __init__(
        self, key: str, function: Callable[..., expr.Scalar], attrs: Any = NoAttrs, *, commutative: bool = False,
        imports: tuple[str, ...] = (), doc: str | None = None,
    ) -> None:  # fmt: skip
        self.key, self.function, self.Attrs = key, function, attrs
        self.commutative, self.imports, self.__doc__ = commutative, imports, doc

    @property
    def is_pointwise(self) -> bool:
        return True

    def scalar(self, attrs: Any, arity: int) -> expr.Scalar:
        named = {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs)}
        out = self.function(*(expr.var(i) for i in range(arity)), **named)
        return out if isinstance(out, expr.Scalar) else expr.const(out)

    def infer(self, attrs: Any, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        given = [s for s in inputs if s is not None]
        if len(given) != len(inputs) or not given:
            raise InvalidArgument(f"{self.key} takes no absent inputs")
        scalar = self.scalar(attrs, len(given))
        dtype = expr.result_dtype(scalar, [s.dtype for s in given])
        out = TensorSpec(dtype, broadcast_shapes(*(s.shape for s in given)))
        return [dataclasses.replace(out, value=symbolic.propagate(scalar, given, out))]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        import numpy as np

        y = expr.evaluate(self.scalar(attrs, len(inputs)), inputs)
        return (np.broadcast_to(y, np.broadcast_shapes(*(x.shape for x in inputs))),)


def pointwise(
    key: str, *, onnx: str | tuple[str, ...] = (), commutative: bool = False
) -> Callable[[Callable[..., expr.Scalar]], PointwiseLayer]:
    """Make a pointwise layer of a function: positional parameters are elements, keyword-only ones attributes.

    ``@pointwise("acme.Mish@1", onnx="acme::Mish")`` over ``def mish(x): return x * tanh(log1p(exp(x)))``.
    """

    def wrap(function: Callable[..., expr.Scalar]) -> PointwiseLayer:
        keywords = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        ops = (onnx,) if isinstance(onnx, str) else tuple(onnx)
        schema = _schema(key, keywords) if keywords else NoAttrs
        imports = tuple(f"onnx:{op}" for op in ops)
        return PointwiseLayer(key, function, schema, commutative=commutative, imports=imports, doc=function.__doc__)

    return wrap


def _schema(key: str, parameters: list[inspect.Parameter]) -> Any:
    fields: list[Any] = []
    for p in parameters:
        if p.default is p.empty:
            raise InvalidArgument(f"{key}: attribute {p.name!r} needs a default value")
        fields.append((p.name, type(p.default), dataclasses.field(default=p.default)))
    return dataclasses.make_dataclass(key.split("@")[0].split(".", 1)[1] + "Attrs", fields, frozen=True)


def random_array(spec: TensorSpec, rng: Any) -> Any:
    """Normal values for floats, small non-negative ones for integers, coin flips for booleans."""
    if spec.const is not None:
        return spec.const
    shape = tuple(int(d) for d in spec.shape)  # type: ignore[arg-type]
    if spec.dtype.is_float:
        return rng.standard_normal(shape, dtype="float32").astype(spec.dtype.numpy)
    high = 2 if spec.dtype.value == "bool" else 8
    return rng.integers(0, high, shape).astype(spec.dtype.numpy)
