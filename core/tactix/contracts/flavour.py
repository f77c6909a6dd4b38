"""Runtime flavour: what stands between a plan and an engine."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from tactix.base.errors import PlanCompatibilityError
from tactix.base.logger import Logger

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.device import Device
    from tactix.contracts.engine import EngineView
    from tactix.contracts.launcher import Step
    from tactix.contracts.runtime import RuntimeView
    from tactix.contracts.session import SessionView

Plan = TypeVar("Plan")

DEFAULT = "default"
"""The key of the flavour that runs plans where none is named."""

Source = str | Path | bytes | bytearray | memoryview
"""A plan's file, or its bytes."""


class TempfileControlFlag(enum.Flag):
    """Where a flavour may keep what it must load as files. With both, in memory."""

    ALLOW_IN_MEMORY_FILES = 1
    ALLOW_TEMPORARY_FILES = 2


@dataclass(frozen=True)
class Options:
    """How an engine runs: intra-op threads, and whether weights are copied out of the plan file.

    ``sign``: whether a plan that was made in this process is signed when it is saved.
    ``allocator``: a key or an object; empty for the device's first. ``logger``: is told where
    memory goes.
    """

    threads: int = 1
    copy_weights: bool = False
    allocator: str | Allocator = ""
    sign: bool = True
    logger: Logger = field(default_factory=Logger)


class Flavour(ABC, Generic[Plan]):
    """``key``: a name, bare or in a namespace.

    ``host``: the key of the flavour that runs plans on the runtime at ``runtime.lean_runtime``;
    empty if there is none.
    """

    key: str
    host: str = ""

    @abstractmethod
    def load(
        self, plan: Plan, session: SessionView, device: Device, options: Options
    ) -> EngineView:
        """An engine of an admitted plan."""

    def open(self, runtime: RuntimeView[Plan], source: Source, verify: bool | None) -> EngineView:
        """An engine of a plan's file or bytes, which nothing has read yet.

        That the plan may run here is the concern of ``runtime.load``; a flavour that goes another
        way cares for it by itself. ``verify``: whether to check the weights' sha256, too; None for
        those of signed plans alone.
        """
        return runtime.load(runtime.read(source, verify))

    def hands_over(self, runtime: RuntimeView[Plan], source: Source) -> bool:
        """Whether ``open`` would give that plan to another runtime than this, as it is of another
        format or version.

        Raises UntrustedPlan where that is refused, OSError.
        """
        return False

    def on_references(self, plan: Plan, steps: Sequence[Step]) -> Plan:
        """The plan with numpy references in place of those steps, which are of it or its bodies.

        Raises PlanCompatibilityError where it cannot.
        """
        raise PlanCompatibilityError(
            f"flavour {self.key!r} runs no references", do="Choose another flavour"
        )
