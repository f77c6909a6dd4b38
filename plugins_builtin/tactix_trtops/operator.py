"""A plugin as an operator: its names, its fields, and the converter of a node of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim
from tactix.contracts.graph import Value
from tactix.contracts.importer import Converter
from tactix_onnx.catalog import MAIN
from tactix_onnx.convert import Context, Result
from tactix_onnx.weights import Array

FOREIGN = ("TRT", "trt", "trt.plugins", "com.nvidia", "TRT_PluginV2", "mmdeploy")
"""Domains in which exporters write plugins. TensorRT's parser asks for the name alone."""
ANY = (MAIN, *FOREIGN)
IDENTITY = ("plugin_version", "plugin_namespace")
"""Attributes by which TensorRT finds a plugin; each version that is known takes the same fields."""

Convert = Callable[[Context], Result]
Field = float | int | str | Sequence[float] | Sequence[int] | Array
Outputs = int | str | Callable[[Mapping[str, Field]], int]


@dataclass(frozen=True)
class PluginOperator:
    """``own``: TensorRT's names of it; ``also``: what exporters write for the same. ``fields``: of
    TensorRT's creator, and what each is: ``float``, ``int``, ``floats``, ``ints`` or ``text``.
    ``outputs``: how many, the field that has a number for each, or what tells it of all fields.
    """

    own: tuple[str, ...]
    also: tuple[str, ...]
    versions: tuple[str, ...]
    fields: Mapping[str, str]
    domains: tuple[str, ...]
    outputs: Outputs
    convert: Convert

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.own, *self.also)

    def count(self, fields: Mapping[str, Field]) -> int:
        """Outputs of a plugin with these fields."""
        if isinstance(self.outputs, int):
            return self.outputs
        if not isinstance(self.outputs, str):
            return self.outputs(fields)
        listed = fields.get(self.outputs, ())
        return 1 if isinstance(listed, float | int | str) else len(listed)

    @property
    def summary(self) -> str:
        """The first paragraph of what the converter says."""
        return " ".join((self.convert.__doc__ or "").split("\n\n")[0].split())

    def converters(self) -> Iterator[Converter]:
        for domain in self.domains:
            for name in self.names:
                yield Converter("onnx", f"{domain}::{name}", self.from_node)

    @property
    def from_node(self) -> Callable[[Context, Any], Result]:
        """The converter as the importer calls it."""

        def convert(ctx: Context, node: Any) -> Result:
            ctx.ignore(*IDENTITY)
            return self.convert(ctx)

        # not functools.wraps, which would show the other's parameters as this one's
        convert.__module__, convert.__name__ = self.convert.__module__, self.convert.__name__
        convert.__doc__ = self.convert.__doc__
        return convert


class Operators(list[PluginOperator]):
    """The plugins of one file; calling it adds one:
    ``@OPERATORS("LReLU_TRT", fields={"negSlope": "float"})``.
    """

    def __call__(
        self,
        *own: str,
        also: tuple[str, ...] = (),
        versions: tuple[str, ...] = ("1",),
        fields: Mapping[str, str] | None = None,
        domains: tuple[str, ...] = ANY,
        outputs: Outputs = 1,
    ) -> Callable[[Convert], Convert]:
        def add(function: Convert) -> Convert:
            named = (own, also, versions, fields or {}, domains, outputs, function)
            self.append(PluginOperator(*named))
            return function

        return add


def weights(ctx: Context, name: str) -> Array | None:
    """The numbers of an attribute that is a tensor or a list, in float32 and flat; None if it is
    absent.
    """
    import numpy as np

    given = ctx.attr(name)
    return None if given is None else np.asarray(given, np.float32).ravel()


def need_weights(ctx: Context, name: str) -> Array:
    """``weights`` that must be there. Raises UnsupportedOperator."""
    found = weights(ctx, name)
    return (
        ctx.fail(f"its {name} is missing", do=f"Give the field {name}") if found is None else found
    )


def first_of(ctx: Context, default: Any, *names: str) -> Any:
    """The attribute of the first of these names that is given: exporters call one thing
    differently.
    """
    found = [ctx.attr(name) for name in names if ctx.has_attr(name)]
    return found[0] if found else default


def number(ctx: Context, d: Dim, what: str) -> int:
    """A size that must be known when a model is read. Raises UnsupportedOperator."""
    if not isinstance(d, int):
        ctx.fail(f"its {what} is {d}, which only running tells", do=f"Give the {what} a fixed size")
    return d


def columns(ctx: Context, x: Value, *sizes: Dim) -> tuple[Value, ...]:
    """Parts of the last axis."""
    return ctx.layers("tactix.Split", [x], axis=x.spec.rank - 1, sizes=sizes)
