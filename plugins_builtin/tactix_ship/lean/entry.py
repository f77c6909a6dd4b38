"""The lean runtime: runs plans of one version of tactix, without the builder. Generated; do not
edit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_HOMES = {
    "Engine": "run.engine",
    "ErrorCode": "base.errors",
    "ExecutionContext": "run.context",
    "Logger": "base.logger",
    "Plan": "plan.schema",
    "Runtime": "run.runtime",
    "Session": "plugins.session",
    "TactixError": "base.errors",
}

this = sys.modules[__name__]


def load(plan: Any, *, verify: bool | None = None, devices: Any = (), **options: Any) -> Any:
    """An engine from a plan file or its bytes. Options: as ``Runtime`` takes them, which says what
    is raised, too; ``devices`` as it has them.
    """
    from tactix.run.runtime import Runtime

    runtime = Runtime(**options)
    runtime.devices = devices
    return runtime.deserialize(plan, verify=verify)


class _TrustedByHost:
    """The trust store of a runtime that a host has loaded: the host has looked into its own."""

    key = "host"

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def trusted_by(self, seal: Any) -> str:
        return "its host trusts it" if seal.digest == self._digest else ""


def open_plan(source: Any, settings: Mapping[str, Any]) -> Any:
    """What runtimes of other versions call, so this stays as it is. Settings that this version
    lacks are left out.

    ``log``: takes a severity as an int, and a text. ``error_recorder``: has ``report_error(code,
    text)``, or is None.
    ``vouched``: sha256 of the header of the plan that the caller trusts, or nothing.
    ``engine_host_code_allowed`` and ``references`` are what ``OnUntrusted`` is made of.
    """
    from tactix.base.logger import Logger
    from tactix.contracts.trust import OnUntrusted
    from tactix.plugins.session import Session
    from tactix.run.runtime import Runtime

    logger = Logger()
    logger.log = settings["log"]  # type: ignore[method-assign]
    known = ("device", "allocator", "max_threads", "copy_weights", "error_recorder")
    ways = (("engine_host_code_allowed", OnUntrusted.ALLOW), ("references", OnUntrusted.REFERENCES))
    policy = next((way for name, way in ways if settings.get(name)), OnUntrusted.REFUSE)
    session = Session(logger=logger)
    session.trust_stores = {"host": _TrustedByHost(settings["vouched"])}  # type: ignore[assignment]
    given = {name: settings[name] for name in known if name in settings}
    runtime = Runtime(logger, session, on_untrusted=policy, **given)
    return runtime.deserialize(source, verify=settings.get("verify"))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
