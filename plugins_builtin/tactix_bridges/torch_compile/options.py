"""What ``torch.compile(..., options={...})`` may say to this backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tactix.api import configure
from tactix.base.errors import ConfigError, punctuated
from tactix.base.logger import Logger, checked_logger

EAGER, ERROR = "eager", "error"
FALLBACKS = (EAGER, ERROR)


@dataclass(frozen=True)
class BackendOptions:
    """``fallback``: what happens to a graph that tactix cannot take: ``eager`` leaves it to torch
    with a warning, ``error`` raises. ``cache``: a folder for plans, so that the next process loads
    what this one built. ``logger``: takes the warnings. ``build``: options of ``tactix.build``, as
    ``precision``, ``level``, ``budget``, ``threads``.
    """

    fallback: str = EAGER
    cache: Path | None = None
    logger: Logger = field(default_factory=Logger)
    build: Mapping[str, Any] = field(default_factory=dict)

    def refuse_or_warn(self, why: str) -> None:
        """A graph is left to torch. Raises ConfigError where the caller wants that to be an
        error.
        """
        if self.fallback == ERROR:
            raise ConfigError("tactix does not take a graph of this program", why=why)
        self.logger.warning(punctuated(("A graph is left to torch", why), ": "))


def options_of(given: Mapping[str, Any] | None, mode: str | None) -> BackendOptions:
    """Raises ConfigError for a mode, which only torch's own backend has, for values that are none,
    and as ``tactix.build`` does for its options.
    """
    if mode not in (None, "default"):
        do = "Say what to build by options={...}, as for tactix.build"
        raise ConfigError(f"the backend tactix has no mode {mode!r}", do=do)
    rest = dict(given or {})
    own = {f.name for f in dataclasses.fields(BackendOptions)} - {"build"}
    said = {name: rest.pop(name) for name in own & rest.keys()}
    if said.get("fallback", EAGER) not in FALLBACKS:
        do = f"Choose {' or '.join(FALLBACKS)}"
        raise ConfigError(f"fallback is {said['fallback']!r}", do=do)
    if (cache := said.get("cache")) is not None:
        if not isinstance(cache, (str, Path)):
            raise ConfigError(f"cache is {cache!r}", do="Give the path of a folder")
        said["cache"] = Path(cache)
    said["logger"] = checked_logger(said.get("logger"))
    configure(**rest)
    return BackendOptions(build=rest, **said)
