"""Attributes of a layer made of what a user gives, each held to the annotation of its field."""

from __future__ import annotations

import dataclasses
import functools
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Union

from tactix.base.dims import Expr
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.base.tensor import Format
from tactix.contracts.attrs import Attributes

if TYPE_CHECKING:
    from tactix.contracts.layer import Layer

_CHECKED = (int, float, bool, str, tuple, DType, Format, Expr, NoneType)
"""Classes that a value is held to; what else a field may be annotated with is its layer's own."""


class _Misfit(Exception):
    """A value is not of the wanted type."""


def attributes_of(layer: Layer, given: Mapping[str, object]) -> Attributes:
    """An instance of a layer's schema; ints stand for floats, numpy's scalars and lists for
    Python's numbers and tuples. Raises InvalidArgument that names the layer, the attribute and what
    it takes.
    """
    wanted = _annotations(layer.Attrs)
    fitting = {}
    for name, value in given.items():
        if name not in wanted:
            do = f"It has: {', '.join(wanted) or 'none'}"
            raise InvalidArgument(f"no attribute {name!r}", who=layer.key, do=do)
        kind = wanted[name]
        fitting[name] = value if type(value) is kind else _held(layer, name, value, kind)
    make: Callable[..., Attributes] = layer.Attrs
    try:
        return make(**fitting)
    except TypeError as e:
        raise InvalidArgument("wrong attributes", who=layer.key, why=str(e)) from None


def _held(layer: Layer, name: str, value: object, kind: object) -> object:
    try:
        return _fitted(value, kind)
    except _Misfit:
        what = f"attribute {name!r} is {value!r:.80}"
        what_it_is = type(value).__name__
        why = f"{'an' if what_it_is[0] in 'aeiou' else 'a'} {what_it_is} is no {_title(kind)}"
        do = f"Give {_title(kind)}"
        raise InvalidArgument(what, who=layer.key, why=why, do=do) from None


def _fitted(value: object, kind: object) -> object:
    """The value as that type. Raises _Misfit."""
    origin = typing.get_origin(kind)
    if origin is tuple or kind is tuple:
        return _fitted_tuple(value, typing.get_args(kind))
    if origin in (Union, UnionType):
        return _first_fitting(value, typing.get_args(kind))
    if kind not in _CHECKED or type(value) is kind:
        return value
    return _fitted_scalar(_of_python(value), kind)


def _fitted_tuple(value: object, kinds: Sequence[object]) -> tuple[object, ...]:
    if not isinstance(value, tuple | list):
        raise _Misfit
    if not kinds:
        return tuple(value)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = [kinds[0]] * len(value)
    if len(kinds) != len(value):
        raise _Misfit
    return tuple(_fitted(v, k) for v, k in zip(value, kinds, strict=True))


def _first_fitting(value: object, kinds: Sequence[object]) -> object:
    for kind in kinds:
        with suppress(_Misfit):
            return _fitted(value, kind)
    raise _Misfit


def _fitted_scalar(value: object, kind: object) -> object:
    taken: tuple[type, ...] = (int, float) if kind is float else (typing.cast(type, kind),)
    if not isinstance(value, taken) or (isinstance(value, bool) and kind is not bool):
        raise _Misfit
    return value


def _of_python(value: object) -> object:
    """A number of numpy's as Python's."""
    import numpy as np

    return value.item() if isinstance(value, np.generic) else value


def _title(kind: object) -> str:
    """What a type is called in annotations."""
    if isinstance(kind, type) and not typing.get_args(kind):
        return "None" if kind is NoneType else kind.__name__
    text = str(kind)
    for module in ("tactix.base.dims.", "tactix.base.dtypes.", "tactix.base.tensor.", "typing."):
        text = text.replace(module, "")
    return text


@functools.lru_cache(maxsize=1024)
def _annotations(schema: type[Attributes]) -> Mapping[str, object]:
    """By field what it is annotated with; ``object`` where names in that are not to be found."""
    fields = dataclasses.fields(schema)
    names = {"Expr": Expr}  # ``Dim`` speaks of it
    with suppress(Exception):  # an author's annotation may be anything
        found = typing.get_type_hints(schema, localns=names)
        return {f.name: found[f.name] for f in fields}
    around = {**vars(sys.modules[schema.__module__]), **names}
    return {f.name: _annotation(f.name, f.type, around) for f in fields}


def _annotation(name: str, told: object, around: dict[str, object]) -> object:
    with suppress(Exception):
        alone = SimpleNamespace(__annotations__={name: told})
        return typing.get_type_hints(alone, globalns=around)[name]
    return object
