"""Layers that are one scalar expression, and the decorator that makes them of a function."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tactix.base.dims import broadcast_shapes
from tactix.base.errors import InvalidArgument, PluginError
from tactix.base.tensor import TensorSpec
from tactix.contracts import expr
from tactix.contracts.attrs import named
from tactix.contracts.layer import Layer, NoAttrs
from tactix_codegen.numerics import evaluate
from tactix_sdk.symbolic import propagate


class PointwiseLayer(Layer):
    """A layer that is one scalar expression of its broadcast inputs: it fuses anywhere, on every
    device.
    """

    def __init__(
        self,
        key: str,
        function: Callable[..., expr.Scalar],
        attrs: Any = NoAttrs,
        *,
        commutative: bool = False,
        imports: tuple[str, ...] = (),
        doc: str | None = None,
    ) -> None:
        self.key, self.function, self.Attrs = key, function, attrs
        self.commutative, self.imports, self.__doc__ = commutative, imports, doc

    @property
    def is_pointwise(self) -> bool:
        return True

    def scalar(self, attrs: Any, arity: int) -> expr.Scalar:
        """Raises InvalidArgument where the function does not give an expression."""
        if self.Attrs is not NoAttrs:
            return self._scalar(attrs, arity)
        if arity not in self._bare:
            self._bare[arity] = self._scalar(attrs, arity)
        return self._bare[arity]

    @functools.cached_property
    def _bare(self) -> dict[int, expr.Scalar]:
        """By arity, where there are no attributes; with the layer, as packs come and go."""
        return {}

    def _scalar(self, attrs: Any, arity: int) -> expr.Scalar:
        try:
            out = self.function(*(expr.var(i) for i in range(arity)), **named(attrs))
            return out if isinstance(out, expr.Scalar) else expr.const(out)
        except InvalidArgument as e:
            e.who = e.who or self.key
            raise

    def infer(self, attrs: Any, inputs: Sequence[TensorSpec | None]) -> list[TensorSpec]:
        given = [s for s in inputs if s is not None]
        if len(given) != len(inputs) or not given:
            raise InvalidArgument(f"{self.key} takes no absent inputs")
        scalar = self.scalar(attrs, len(given))
        dtype = expr.result_dtype(scalar, [s.dtype for s in given])
        out = TensorSpec(dtype, broadcast_shapes(*(s.shape for s in given)))
        value = propagate(scalar, given, out)
        return [out if value is None else dataclasses.replace(out, value=value)]

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        import numpy as np

        y = evaluate(self.scalar(attrs, len(inputs)), inputs)
        return (np.broadcast_to(y, np.broadcast_shapes(*(x.shape for x in inputs))),)


def pointwise(
    key: str, *, onnx: str | tuple[str, ...] = (), commutative: bool = False
) -> Callable[[Callable[..., expr.Scalar]], PointwiseLayer]:
    """Make a pointwise layer of a function: positional parameters are elements, keyword-only ones
    attributes.

    ``@pointwise("acme.Mish@1", onnx="acme::Mish")`` over ``def mish(x): return x *
    tanh(log1p(exp(x)))``. Raises PluginError for an operator that is not written ``domain::Op``.
    """

    def wrap(function: Callable[..., expr.Scalar]) -> PointwiseLayer:
        keywords = [
            p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        schema, imports = schema_of(key, keywords) if keywords else NoAttrs, imports_of(key, onnx)
        return PointwiseLayer(
            key, function, schema, commutative=commutative, imports=imports, doc=function.__doc__
        )

    return wrap


def imports_of(key: str, onnx: str | Sequence[str]) -> tuple[str, ...]:
    """A layer's ``imports`` of operators written ``domain::Op``. Raises PluginError for other
    forms.
    """
    ops = (onnx,) if isinstance(onnx, str) else tuple(onnx)
    for op in ops:
        domain, _, name = op.partition("::")
        if not domain or not name:
            do = (
                f"Write domain::Op, as in {key.split('.')[0]}::{name or domain or 'Op'}; "
                "ONNX's own domain is ai.onnx"
            )
            raise PluginError(f"onnx={op!r} names no operator", do=do, key=key)
    return tuple(f"onnx:{op}" for op in ops)


def schema_of(key: str, parameters: list[inspect.Parameter]) -> Any:
    """A frozen dataclass of keyword-only parameters. Raises InvalidArgument for one without a
    default, and for a default that could be changed.
    """
    fields: list[Any] = []
    for p in parameters:
        if p.default is p.empty:
            raise InvalidArgument(f"{key}: attribute {p.name!r} needs a default value")
        if type(p.default).__hash__ is None:
            raise InvalidArgument(
                f"{key}: the default of attribute {p.name!r} is {p.default!r:.80}",
                why="attributes are numbers, text, or tuples of them",
                do="Write a tuple, or an attribute for each value",
            )
        told = object if p.default is None else type(p.default)
        kind = told if p.annotation is p.empty else p.annotation
        fields.append((p.name, kind, dataclasses.field(default=p.default)))
    return dataclasses.make_dataclass(
        key.split("@")[0].split(".", 1)[1] + "Attrs", fields, frozen=True
    )
