"""Messages of tactix in Python's own logging."""

from __future__ import annotations

from collections.abc import Mapping

from tactix.base.logger import LogEvent, Logger, Severity

_LEVELS = {s: 50 - 10 * s for s in Severity}


class StdlibLogger(Logger):
    """Hands messages to Python's ``logging``, whose levels and handlers decide; VERBOSE becomes
    DEBUG.

    A record has ``tactix_event``, the name of what happened (``message`` for a text alone), and
    its facts as attributes: ``tactic``, ``seconds``, ``bytes`` and so on; docs/logging.md has all.
    """

    def __init__(self, name: str = "tactix", min_severity: Severity = Severity.VERBOSE) -> None:
        import logging

        super().__init__(min_severity)
        self._target = logging.getLogger(name)

    def hears(self, severity: Severity) -> bool:
        return severity <= self.min_severity and self._target.isEnabledFor(
            _LEVELS[Severity(severity)]
        )

    def log(self, severity: Severity, msg: str) -> None:
        self._write(severity, msg, {"tactix_event": "message"})

    def tell(self, severity: Severity, event: LogEvent) -> None:
        self._write(severity, event.text, {**event.fields, "tactix_event": event.name})

    def _write(self, severity: Severity, text: str, extra: Mapping[str, object]) -> None:
        if severity <= self.min_severity:
            self._target.log(_LEVELS[Severity(severity)], "%s", text, extra=extra)
