"""Ray, where it is installed: imported when it is first asked for."""

from __future__ import annotations

import importlib
from types import ModuleType

from tactix.base.errors import ConfigError

INSTALL = "pip install 'tactix[ray]'"


def ray_module(name: str = "ray") -> ModuleType:
    """``ray``, or a part of it as ``ray.serve``. Raises ConfigError where it is not installed, or
    cannot be imported, as beside a protobuf that its packages were not made for.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        raise ConfigError(f"{name} is not installed", why=str(e), do=INSTALL) from None
    except Exception as e:
        what, why = f"{name} cannot be imported", f"{type(e).__name__}: {e}"
        raise ConfigError(what, why=why, do=f"{INSTALL}, in an environment of its own") from e
