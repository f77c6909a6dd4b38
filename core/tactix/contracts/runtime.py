"""What a flavour sees of the runtime that asks it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from tactix.base.error_recorder import ErrorRecorder
from tactix.base.logger import Logger
from tactix.contracts.allocator import Allocator
from tactix.contracts.engine import EngineView
from tactix.contracts.flavour import Source, TempfileControlFlag
from tactix.contracts.session import SessionView
from tactix.contracts.trust import OnUntrusted

Plan = TypeVar("Plan")


class RuntimeView(Protocol[Plan]):
    """Its settings, and what it does with plans."""

    lean_runtime: str | Path
    device: str
    devices: tuple[str, ...]
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
        """An engine of a plan, by the runtime's flavour, if it may run here. Raises as
        ``Runtime.deserialize``.
        """
