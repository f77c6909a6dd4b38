"""Operators of ONNX that are no layer under their own name: one becomes layers in a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.importer import Converter


def onnx_converter(op: str, since: int = 1) -> Callable[[Callable[..., Any]], Converter]:
    """A converter of a function ``(ctx, node)`` for ``domain::Name``, from version ``since`` of its
    domain on.

        @onnx_converter("acme::Scaled")
        def scaled(ctx, node):
            return ctx.layer("tactix.Mul", [ctx.tensor(0), ctx.tensor(1)])

    ``ctx`` gives the inputs, attributes and the opset, and adds layers: see ``Context`` in
    ``tactix_onnx.convert``. The object belongs into the hook ``tactix_converters``. An operator
    that tactix knows is left to tactix until the user enables the pack. Raises InvalidArgument for
    what is no operator.
    """
    domain, _, name = op.partition("::")
    if not domain or not name or since < 1:
        raise InvalidArgument(
            f"no operator {op!r} since {since}", do="Write domain::Name; that of ONNX is ai.onnx"
        )
    return lambda function: Converter("onnx", op, function, since)
