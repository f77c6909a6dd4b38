"""Ray, where it is installed: imported when it is first asked for."""

from __future__ import annotations

import importlib
from types import ModuleType

from tactix.base.errors import ConfigError

INSTALL = "pip install 'tactix[ray]'"


def ray_module(name: str = "ray") -> ModuleType:
    """``ray``, or a part of it as ``ray.serve``. Raises ConfigError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        raise ConfigError(f"{name} is not installed", why=str(e), do=INSTALL) from None
