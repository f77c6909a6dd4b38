"""What the functions of a quick plugin take: read off their parameters. Raises ValueError."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tactix_tensorrt.quick.tensors import TensorDesc

Function = Callable[..., object]
PLAIN = (int, float, str, bool, bytes)
NUMBERS = ("int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
RESERVED = ("outputs", "stream", "tactic")


@dataclass(frozen=True)
class Attribute:
    """An attribute of a plugin. ``kind``: its type, or None for an array of ``dtype``."""

    kind: type | None
    dtype: str = ""

    def __str__(self) -> str:
        return f"array of {self.dtype}" if self.kind is None else self.kind.__name__


@dataclass(frozen=True)
class Signature:
    """What ``register`` was given: names of tensors, attributes by name, and how many outputs."""

    tensors: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    outputs: int


def registered(function: Function) -> Signature:
    """Of a function ``(tensors..., attributes...) -> outputs``, all annotated."""
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters
    for name, p in parameters.items():
        if name not in hints:
            raise ValueError(f"Argument {name} has no type annotation")
        if p.default is not p.empty:
            raise ValueError(f"Argument {name} has a default value, which is not supported")
        if name in RESERVED:
            raise ValueError(f"{name!r} is not allowed as a name of an attribute")
    is_tensor = [_is_tensor(hints[name]) for name in parameters]
    names, count = list(parameters), sum(is_tensor)
    if not count or not all(is_tensor[:count]):
        raise ValueError("Tensors come first, followed by attributes")
    attributes = {name: _attribute(name, hints[name]) for name in names[count:]}
    return Signature(tuple(names[:count]), attributes, _outputs(hints.get("return")))


def _is_tensor(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, TensorDesc)


def _attribute(name: str, kind: object) -> Attribute:
    kind = _named(kind)
    if isinstance(kind, type) and kind in PLAIN:
        return Attribute(kind)
    dtype = _array_dtype(kind)
    if dtype in NUMBERS:
        return Attribute(None, dtype)
    plain = ", ".join(k.__name__ for k in PLAIN)
    arrays = ", ".join(NUMBERS)
    raise ValueError(
        f"Attribute {name!r} of type {kind} is not supported: annotate it as {plain}, or as "
        f"numpy.typing.NDArray of {arrays}"
    )


def _array_dtype(kind: object) -> str:
    """Of an annotation ``numpy.ndarray[shape, numpy.dtype[scalar]]``; "" of any other."""
    import numpy as np

    dtype = typing.get_args(kind)[-1] if typing.get_origin(kind) is np.ndarray else None
    scalars = [_named(k) for k in typing.get_args(dtype)]
    return next((n for n in NUMBERS if np.dtype(n).type in scalars), "")


def _named(kind: object) -> object:
    """What an alias of a type stands for. numpy.typing.NDArray is one from numpy 2.5 on; before,
    it was numpy.ndarray[...] itself.
    """
    while (value := getattr(kind, "__value__", None)) is not None:
        parameters = typing.get_args(kind)
        kind = value[parameters] if parameters else value
    return kind


def _outputs(kind: object) -> int:
    """How many outputs an annotation tells."""
    parts = typing.get_args(kind) if typing.get_origin(kind) is tuple else (kind,)
    if not parts or not all(map(_is_tensor, parts)):
        raise ValueError(f"It returns {kind}, not TensorDesc or a tuple of them")
    return len(parts)


def attributes_of(
    function: Function, own: Signature, last: Sequence[str], optional: Sequence[str] = ()
) -> tuple[str, ...]:
    """The attributes that a further function of a plugin takes: its tensors come first, ``last``
    behind the attributes, and then those of ``optional`` that it wants.
    """
    names = list(inspect.signature(function).parameters)
    attributes = tuple(n for n in names if n in own.attributes)
    wanted = [n for n in optional if n in names]
    order = [*own.tensors, *(n for n in own.attributes if n in attributes), *last, *wanted]
    if names != order:
        raise ValueError(f"It takes ({', '.join(names)}), expected is ({', '.join(order)})")
    _check_hints(function, own, attributes)
    return attributes


def _check_hints(function: Function, own: Signature, attributes: Sequence[str]) -> None:
    """Annotations of attributes may be left out, not differ."""
    hints = typing.get_type_hints(function)
    for name in attributes:
        if name in hints and _attribute(name, hints[name]) != own.attributes[name]:
            raise ValueError(
                f"Attribute {name!r} has an annotation other than the one it was registered with, "
                f"which is {own.attributes[name]}"
            )
