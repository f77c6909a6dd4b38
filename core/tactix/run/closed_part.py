"""What stands in the place of what an engine has let go of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tactix.base.errors import TactixError


class ClosedPart:
    """Whatever is asked of it raises the error."""

    def __init__(self, error: Callable[[], TactixError]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what Python itself looks for, as copying does
            raise AttributeError(name)
        raise self._error()
