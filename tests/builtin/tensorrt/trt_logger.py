"""A program's logger."""

from __future__ import annotations

from tactix_tensorrt import api as trt


class Kept(trt.ILogger):
    """A program's logger: it keeps what it is told."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.told: list[tuple[trt.ILogger.Severity, str]] = []

    def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
        self.told.append((severity, msg))

    @property
    def errors(self) -> list[str]:
        return [text for severity, text in self.told if severity <= self.ERROR]

    @property
    def warnings(self) -> list[str]:
        return [text for severity, text in self.told if severity == self.WARNING]
