"""Attribute values to JSON and back, and symbols in them replaced: for plans, cache keys and numpy
steps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, TypeAlias, TypeVar

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import Format

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class Attributes(Protocol):
    """What a layer is told beside its inputs: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]


Schema = TypeVar("Schema", bound=Attributes)


class Scoped:
    """An attribute that is told the values of symbols, such as a network inside a layer. No plan
    holds it.
    """

    @property
    def name(self) -> str:
        """For people."""
        raise NotImplementedError

    def symbols(self) -> frozenset[str]:
        """Those that it needs, and maybe more."""
        raise NotImplementedError

    def at(self, env: Mapping[str, int]) -> Scoped:
        """The same with these values."""
        raise NotImplementedError


def encode(v: object) -> Json:
    """A JSON value; dims, dtypes, formats and non-finite floats are tagged, a tuple is a list."""
    if isinstance(v, float) and not math.isfinite(v):
        return {"float": repr(v)}
    if v is None or isinstance(v, (bool, int, float, str)):
        return v
    if isinstance(v, dims.Expr):
        return {"dim": dims.to_json(v)}
    if isinstance(v, DType):
        return {"dtype": v.value}
    if isinstance(v, Format):
        return {"format": v.name}
    if isinstance(v, (tuple, list)):
        return [encode(x) for x in v]
    if isinstance(v, Scoped):
        return {"scoped": v.name}
    raise InvalidArgument(f"an attribute cannot hold a {type(v).__name__}: {v!r}")


def decode(j: object) -> object:
    """Inverse of ``encode``. Raises InvalidArgument for what that does not write: plans and cache
    entries come from strangers.
    """
    if isinstance(j, list):
        return tuple(decode(x) for x in j)
    if not isinstance(j, dict):
        return j
    if len(j) == 1:
        (tag, value), *_ = j.items()
        if tag in _TAGS:
            with contextlib.suppress(ValueError):
                return _TAGS[tag](value)
    raise InvalidArgument(f"not an attribute value: {str(j)[:80]}")


def _not_finite(text: object) -> float:
    """Raises ValueError for what is no name of such a float."""
    if text not in ("nan", "inf", "-inf"):
        raise ValueError(text)
    return float(str(text))


_TAGS: dict[str, Callable[..., object]] = {
    "float": _not_finite,
    "dim": dims.from_json,
    "dtype": DType,
    "format": Format.named,
}


def named(attrs: Attributes) -> dict[str, object]:
    """The fields of a layer's attributes by name."""
    return {f.name: getattr(attrs, f.name) for f in dataclasses.fields(attrs)}


def encode_fields(attrs: Attributes) -> dict[str, Json]:
    """Fields of an attribute dataclass by name."""
    return {f.name: encode(getattr(attrs, f.name)) for f in dataclasses.fields(attrs)}


def decode_fields(schema: type[Schema], j: Mapping[str, object]) -> Schema:
    """An instance of the schema; raises InvalidArgument for unknown fields."""
    known = {f.name for f in dataclasses.fields(schema)}
    if not set(j) <= known:
        what = f"{schema.__name__} has no attribute {min(set(j) - known)!r}"
        raise InvalidArgument(what, do=f"It has: {sorted(known)}")
    make: Callable[..., Schema] = schema
    return make(**{k: decode(v) for k, v in j.items()})


def symbols_in(v: object) -> frozenset[str]:
    """Symbols of the dims in an attribute value, or in all fields of an attribute dataclass."""
    if isinstance(v, (dims.Expr, Scoped)):
        return dims.symbols(v) if isinstance(v, dims.Expr) else v.symbols()
    fields = (
        (getattr(v, f.name) for f in dataclasses.fields(v)) if dataclasses.is_dataclass(v) else ()
    )
    return frozenset().union(*map(symbols_in, v if isinstance(v, tuple) else fields))


def resolve(v: object, env: Mapping[str, int]) -> object:
    """The value with every symbolic dim evaluated."""
    if isinstance(v, dims.Expr):
        return dims.evaluate(v, env)
    if isinstance(v, Scoped):
        return v.at(env)
    if isinstance(v, tuple):
        return tuple(resolve(x, env) for x in v)
    return v


def resolve_fields(attrs: Schema, env: Mapping[str, int]) -> Schema:
    """An attribute dataclass with every symbolic dim evaluated."""
    found = named(attrs)
    return (
        dataclasses.replace(attrs, **{k: resolve(v, env) for k, v in found.items()})
        if found
        else attrs
    )
