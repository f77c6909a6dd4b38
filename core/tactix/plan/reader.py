"""Typed access to untrusted JSON: every surprise is a PlanFormatError that says where it is."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.errors import PlanFormatError, TactixError
from tactix.base.tensor import Format

T = TypeVar("T")
LIMIT = 1 << 62
"""Integers of a plan are less, sizes and offsets among them."""

RANK = 32


class Reader:
    """A JSON value and its path in the header."""

    __slots__ = ("_key", "_parent", "value")

    def __init__(self, value: Any, key: str | int = "header", parent: Reader | None = None) -> None:
        self.value, self._key, self._parent = value, key, parent

    @property
    def path(self) -> str:
        """``header.steps[3].name``; spelled out only when something is wrong."""
        own = f"[{self._key}]" if isinstance(self._key, int) else str(self._key)
        if self._parent is None:
            return own
        return (
            f"{self._parent.path}{own}"
            if isinstance(self._key, int)
            else f"{self._parent.path}.{own}"
        )

    def fail(self, expected: str) -> NoReturn:
        raise PlanFormatError(
            f"expected {expected}, found {reprlib.repr(self.value)[:80]}", who=self.path
        )

    def of(self, kind: type[T], expected: str) -> T:
        """The value, if it is exactly of that type (a bool is no int)."""
        if type(self.value) is not kind:
            self.fail(expected)
        return self.value

    def at(self, key: str) -> Reader:
        """A required field."""
        found = self.of(dict, "an object")
        if key not in found:
            raise PlanFormatError(f"no field {key!r}", who=self.path)
        return Reader(found[key], key, self)

    def only(self, *keys: str) -> Reader:
        """Itself, if it is an object with these fields and no others."""
        found = self.of(dict, "an object")
        if set(found) != set(keys):
            wrong = sorted(set(found) ^ set(keys))
            raise PlanFormatError(
                "fields missing or unknown", who=self.path, why=", ".join(map(str, wrong))[:200]
            )
        return self

    def items(self) -> list[Reader]:
        """The elements of an array."""
        return [Reader(v, i, self) for i, v in enumerate(self.of(list, "an array"))]

    def row(self, length: int) -> list[Reader]:
        """The elements of an array of that length."""
        out = self.items()
        if len(out) != length:
            self.fail(f"an array of {length}")
        return out

    def fields(self) -> dict[str, Reader]:
        """The values of an object by name."""
        return {k: Reader(v, k, self) for k, v in self.of(dict, "an object").items()}

    def mapping(self) -> Mapping[str, Any]:
        """An object taken as it is."""
        return self.of(dict, "an object")

    def text(self) -> str:
        return self.of(str, "text")

    def flag(self) -> bool:
        return self.of(bool, "true or false")

    def integer(self, low: int = 0, high: int = LIMIT) -> int:
        """An integer in [low, high)."""
        v = self.of(int, "an integer")
        if not low <= v < high:
            self.fail(f"an integer from {low} to {high - 1}")
        return v

    def dim(self) -> Dim:
        """A dimension expression of bounded size."""
        found = self.value if type(self.value) is int else self.parse(dims.from_json, "a dimension")
        return (
            Reader(found, self._key, self._parent).integer(-LIMIT)
            if isinstance(found, int)
            else found
        )

    def shape(self) -> Shape:
        """Dimensions that are not negative, as far as they are known."""
        found = self.items()
        if len(found) > RANK:
            self.fail(f"at most {RANK} dimensions")
        return tuple([d.integer() if type(d.value) is int else d.dim() for d in found])

    def dtype(self) -> DType:
        self.text()
        return self.parse(DType, "an element type")

    def format(self) -> Format:
        self.text()
        return self.parse(Format.named, "a format")

    def parse(self, function: Callable[[Any], T], expected: str) -> T:
        """``function(value)``; whatever it objects to is told as a format error."""
        try:
            return function(self.value)
        except (
            TactixError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as e:
            raise PlanFormatError(f"expected {expected}", who=self.path, why=str(e)[:200]) from None
