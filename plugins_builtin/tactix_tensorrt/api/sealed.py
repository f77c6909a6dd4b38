"""Objects that take no attribute which TensorRT's do not have: a misspelt one would do nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tactix.base.spelling import did_you_mean
from tactix_tensorrt.levels import API


class SealedType(type):
    """Seals what it makes; not what subclasses of a program's make."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        if cls.__module__.startswith(API):
            made.seal()
        return made


Check = Callable[[object], None]
"""Raises TypeError for a value that is not what is meant."""


class Sealed(metaclass=SealedType):
    """Raises AttributeError for an attribute that is set and not there, TypeError for a value that
    it does not take.

    ``_checks``: of values, by attribute; ``typed`` fills it.
    """

    _sealed = False
    _checks: ClassVar[Mapping[str, Check]] = {}

    def seal(self) -> None:
        """From now on it has all attributes that it will have."""
        self._sealed = True

    if not TYPE_CHECKING:  # else any attribute of these would be one

        def __setattr__(self, name: str, value: object) -> None:
            cls = type(self)
            known = name[:1] == "_" or hasattr(cls, name) or name in vars(self)
            if self._sealed and not known and not _declared(cls, name):
                what = f"{cls.__name__!r} object has no attribute {name!r}"
                meant = did_you_mean(name, [n for n in dir(self) if n[0] != "_"])
                raise AttributeError(f"{what}. {meant}".rstrip(". "))
            check = cls._checks.get(name) if self._sealed else None
            if check is not None:
                check(value)
            super().__setattr__(name, value)


def _declared(cls: type, name: str) -> bool:
    """Whether the adapter sets it later."""
    return any(name in vars(c).get("__annotations__", ()) for c in cls.__mro__)
