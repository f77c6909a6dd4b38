"""The file that an engine was loaded from, and how another process loads it again."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tactix.base.errors import PlanFormatError

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator
    from tactix.run.engine import Engine


RuntimeSettings = dict[str, "str | int | bool | tuple[str, ...] | Allocator"]
"""Keywords of a ``Runtime``."""


@dataclass(frozen=True)
class PlanFile:
    """``digest``: sha256 of its header, which holds those of its content. ``options``: of the
    ``Runtime`` that loads it again.
    """

    path: str
    digest: str
    options: RuntimeSettings = field(default_factory=dict)

    @classmethod
    def written(cls, path: str | Path, options: RuntimeSettings) -> PlanFile:
        """One that was just saved. Raises PlanFormatError, OSError."""
        return cls(os.path.abspath(path), digest_of(path), options)


def digest_of(path: str | Path) -> str:
    """What the prologue of a plan's file says. Raises PlanFormatError, OSError."""
    from tactix.plan import container

    with open(path, "rb") as f:
        start = f.read(container.PROLOGUE.size)
    if len(start) < container.PROLOGUE.size:
        raise PlanFormatError("too short for a tactix plan", who=str(path))
    digest: bytes = container.PROLOGUE.unpack(start)[-1]
    return digest.hex()


def reopen(file: PlanFile) -> Engine:
    """An engine that was pickled, of its file, every byte of which is checked.

    Raises PlanFormatError for a file that has changed; as ``Runtime.deserialize``.
    """
    from tactix.run.runtime import Runtime

    if digest_of(file.path) != file.digest:
        raise PlanFormatError(
            "the plan's file has changed since the engine was pickled",
            who=file.path,
            do="Load it with tactix.load, and pickle that engine",
        )
    options = {**file.options}
    devices = options.pop("devices", ())
    runtime = Runtime(**options)  # type: ignore[arg-type]
    runtime.devices = devices  # type: ignore[assignment]
    return runtime.deserialize(file.path, verify=True)
