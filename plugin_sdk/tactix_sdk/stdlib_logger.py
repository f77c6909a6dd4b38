"""Messages of tactix in Python's own logging."""

from __future__ import annotations

from tactix.base.logger import Logger, Severity

_LEVELS = {s: 50 - 10 * s for s in Severity}


class StdlibLogger(Logger):
    """Hands messages to Python's ``logging``, whose levels and handlers decide; VERBOSE becomes
    DEBUG.
    """

    def __init__(self, name: str = "tactix", min_severity: Severity = Severity.VERBOSE) -> None:
        import logging

        super().__init__(min_severity)
        self._target = logging.getLogger(name)

    def log(self, severity: Severity, msg: str) -> None:
        if severity <= self.min_severity:
            self._target.log(_LEVELS[Severity(severity)], "%s", msg)
