"""A logger that keeps what it gets."""

from __future__ import annotations

from tactix.base.logger import LogEvent, Logger, Severity


class KeptLog(Logger):
    """Keeps lines with their severity, and writes none."""

    def __init__(self, *options: Severity) -> None:
        super().__init__(*options)
        self.rows: list[tuple[Severity, str]] = []
        self.events: list[LogEvent] = []

    def log(self, severity: Severity, msg: str) -> None:
        self.rows.append((severity, msg))

    def of(self, severity: Severity) -> list[str]:
        """Lines of that severity alone."""
        return [msg for s, msg in self.rows if s is severity]

    @property
    def warnings(self) -> list[str]:
        """Lines of warnings, and of what is worse."""
        return [msg for s, msg in self.rows if s <= Severity.WARNING]

    @property
    def lines(self) -> list[str]:
        """All lines."""
        return [msg for _, msg in self.rows]

    def tell(self, severity: Severity, event: LogEvent) -> None:
        self.events.append(event)
        super().tell(severity, event)

    def named(self, name: str) -> list[LogEvent]:
        """What was told with facts, of that name."""
        return [e for e in self.events if e.name == name]
