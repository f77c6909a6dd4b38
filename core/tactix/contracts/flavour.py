"""Runtime flavour: what stands between a plan and an engine."""

from __future__ import annotations

import enum
from typing import Any, Protocol

from tactix.contracts.device import Device


class TempfileControlFlag(enum.Flag):
    """Where a flavour may keep what it must load as files. With both, in memory."""

    ALLOW_IN_MEMORY_FILES = 1
    ALLOW_TEMPORARY_FILES = 2


class RuntimeFlavour(Protocol):
    """``key``: ``default``, ``lean``, ``dispatch`` or another name in a namespace.

    One with a method ``open(runtime, source, verify)`` gets the plan's file or bytes before anything reads them, and
    gives the engine by itself: that they may run here is then its own concern. One with a method
    ``hands_over(runtime, source)`` says whether ``open`` would give that file or those bytes to another runtime than
    this, as they are of another format or major version; it raises UntrustedPlan where that is refused. One with a
    method ``on_references(plan, steps)`` gives the plan with numpy references in place of those steps, which are of it
    or its bodies; it raises PlanCompatibilityError where it cannot.
    """

    key: str

    def load(self, plan: Any, session: Any, device: Device, options: Any) -> Any:
        """An engine of an admitted plan."""
