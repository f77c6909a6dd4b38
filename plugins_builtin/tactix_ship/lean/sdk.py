"""Takes the place of the whole SDK: what a pack imports from it, each looked for when it is asked
for.

The built-in layers need no more than the SDK's modules, so nothing is imported here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import tactix

_HOMES: dict[str, str] = {}
"""Name to module; ``modules`` adds lines that fill it with what the SDK has."""


def hookimpl(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Marks a hook as pluggy's marker does, which a lean runtime lacks."""
    from tactix.plugins.pack import MARK

    def mark(f: Any) -> Any:
        setattr(f, MARK, options)
        return f

    return mark(function) if function else mark


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"the lean runtime has no tactix_sdk.{name}")
    return getattr(importlib.import_module(f"{tactix.__name__}.{_HOMES[name]}"), name)
