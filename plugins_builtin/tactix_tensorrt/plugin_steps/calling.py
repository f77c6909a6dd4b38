"""Calls of programs' code: what it raises becomes an error that names plugin and method."""

from __future__ import annotations

from collections.abc import Iterable

from tactix.base.errors import ExecutionError
from tactix_tensorrt.api.enums import DataType


class PluginFailure(ExecutionError):
    """A method of a program's plugin, or of its creator, that failed."""


def called(who: str, owner: object, method: str, *args: object) -> object:
    """What the method gives. ``who``: the plugin, for people. Raises PluginFailure."""
    found = getattr(owner, method, None)
    if found is None:
        what = f"it has no method {method}"
        raise PluginFailure(what, who=who, do=f"Define it in {type(owner).__name__}")
    try:
        return found(*args)
    except Exception as e:
        line = f"{type(e).__name__}: {e}".splitlines()[0]
        raise PluginFailure(f"its {method} failed", who=who, why=line) from e


def number(who: str, method: str, found: object) -> int:
    """What a method gave, which must be a whole number. Raises PluginFailure."""
    try:
        return int(found)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        raise PluginFailure(f"its {method} gave {found!r:.60}, no number", who=who) from None


def count(who: str, method: str, found: object) -> int:
    """What a method gave, which must be a whole number that is not below 0. Raises
    PluginFailure.
    """
    given = number(who, method, found)
    if given < 0:
        raise PluginFailure(f"its {method} gave {given}", who=who, do="Give 0 or more")
    return given


def dtypes(who: str, method: str, found: Iterable[object]) -> list[DataType]:
    """What a method gave, which must be dtypes. Raises PluginFailure."""
    out = []
    for given in found:
        if not isinstance(given, DataType):
            do = "Give members of trt.DataType, such as trt.float32"
            raise PluginFailure(f"its {method} gave {given!r:.60}, no dtype", who=who, do=do)
        out.append(given)
    return out


def several(who: str, method: str, found: object, count: int = -1) -> list[object]:
    """What a method gave, which must be a list, of that many. Raises PluginFailure."""
    if not isinstance(found, list | tuple):
        raise PluginFailure(f"its {method} gave {found!r:.60}, no list", who=who)
    if count >= 0 and len(found) != count:
        raise PluginFailure(f"its {method} gave {len(found)} for {count} outputs", who=who)
    return list(found)
