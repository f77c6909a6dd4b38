"""Runtime flavour: what stands between a plan and an engine."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tactix.words.errors import PlanCompatibilityError

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.device import Device
    from tactix.contracts.engine import EngineView, Options
    from tactix.contracts.launcher import Step
    from tactix.contracts.session import SessionView
    from tactix.contracts.trust import OnUntrusted
    from tactix.words.error_recorder import ErrorRecorder
    from tactix.words.logger import Logger

Plan = TypeVar("Plan")

DEFAULT = "default"
"""The key of the flavour that runs plans where none is named."""

Source = str | Path | bytes | bytearray | memoryview
"""A plan's file, or its bytes."""


class TempfileControlFlag(enum.Flag):
    """Where a flavour may keep what it must load as files. With both, in memory."""

    ALLOW_IN_MEMORY_FILES = 1
    ALLOW_TEMPORARY_FILES = 2


class RuntimeView(Protocol[Plan]):
    """What a flavour sees of the runtime that asks it: its settings, and what it does with plans."""

    lean_runtime: str | Path
    device: str
    allocator: str | Allocator
    copy_weights: bool
    temporary_directory: str | None
    tempfile_control_flags: TempfileControlFlag
    logger: Logger
    error_recorder: ErrorRecorder | None

    @property
    def session(self) -> SessionView: ...

    @property
    def max_threads(self) -> int: ...

    @property
    def on_untrusted(self) -> OnUntrusted: ...

    def read(self, source: Source, verify: bool | None) -> Plan:
        """The plan in a file or in bytes. Raises PlanFormatError, OSError."""

    def load(self, plan: Plan) -> EngineView:
        """An engine of a plan, by the runtime's flavour, if it may run here. Raises as ``Runtime.deserialize``."""


class Flavour(ABC, Generic[Plan]):
    """``key``: a name, bare or in a namespace.

    ``host``: the key of the flavour that runs plans on the runtime at ``runtime.lean_runtime``; empty if there is none.
    """

    key: str
    host: str = ""

    @abstractmethod
    def load(self, plan: Plan, session: SessionView, device: Device, options: Options) -> EngineView:
        """An engine of an admitted plan."""

    def open(self, runtime: RuntimeView[Plan], source: Source, verify: bool | None) -> EngineView:
        """An engine of a plan's file or bytes, which nothing has read yet.

        That the plan may run here is the concern of ``runtime.load``; a flavour that goes another way cares for it by
        itself. ``verify``: whether to check the weights' sha256, too; None for those of signed plans alone.
        """
        return runtime.load(runtime.read(source, verify))

    def hands_over(self, runtime: RuntimeView[Plan], source: Source) -> bool:
        """Whether ``open`` would give that plan to another runtime than this, as it is of another format or version.

        Raises UntrustedPlan where that is refused, OSError.
        """
        return False

    def on_references(self, plan: Plan, steps: Sequence[Step]) -> Plan:
        """The plan with numpy references in place of those steps, which are of it or its bodies.

        Raises PlanCompatibilityError where it cannot.
        """
        raise PlanCompatibilityError(f"flavour {self.key!r} runs no references", do="Choose another flavour")
