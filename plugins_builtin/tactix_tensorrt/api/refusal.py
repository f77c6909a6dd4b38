"""Methods that do nothing but say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def refused(name: str, do: str) -> Callable[..., None]:
    """A method that adds nothing: it logs one line, which names the layer and says what to do."""

    def add(self: Any, *args: object, **kwargs: object) -> None:
        self.fail(f"{name}: this layer is not there. {do}")

    add.__name__, add.__doc__ = name, f"Not there: returns None. {do}."
    return add
