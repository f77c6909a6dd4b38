"""Logger: where messages go. Subclass it and override ``log`` to send them elsewhere."""

from __future__ import annotations

import enum
import sys
import threading
from typing import TextIO

from tactix.base.errors import InvalidArgument


class Severity(enum.IntEnum):
    """How bad a message is, with TensorRT's names and numbers: lower is worse."""

    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


def printable(text: str, newline: str = "\\n") -> str:
    """Without what a terminal would obey, as files name things as they like: such characters, and
    halves of characters, which could be printed nowhere, are shown as Python writes them
    (``\\x1b``). ``newline``: what ends of lines become.
    """
    if text.isprintable():
        return text
    shown = {"\n": newline}
    return "".join(
        c if c.isprintable() else shown.get(c) or c.encode("unicode_escape").decode() for c in text
    )


INDENTED = "\n  "
"""What ends of lines become in messages: no line of theirs can be taken for another message."""


class Logger:
    """Writes messages of ``min_severity`` or worse to ``stream``, by default whatever
    ``sys.stderr`` is at the time.

    An override of ``log`` gets every message as it is and filters by itself. It may be called from
    any thread.
    """

    def __init__(
        self, min_severity: Severity = Severity.WARNING, stream: TextIO | None = None
    ) -> None:
        self.min_severity = Severity(min_severity)
        self._stream = stream
        self._lock = threading.Lock()

    def log(self, severity: Severity, msg: str) -> None:
        """Take one message."""
        if severity <= self.min_severity:
            with self._lock:
                stream = self._stream or sys.stderr
                stream.write(
                    f"[tactix] [{Severity(severity).name[0]}] {printable(msg, INDENTED)}\n"
                )
                stream.flush()

    def error(self, msg: str) -> None:
        self.log(Severity.ERROR, msg)

    def warning(self, msg: str) -> None:
        self.log(Severity.WARNING, msg)

    def info(self, msg: str) -> None:
        self.log(Severity.INFO, msg)

    def verbose(self, msg: str) -> None:
        self.log(Severity.VERBOSE, msg)


class Once(Logger):
    """Passes messages on to another logger, but each warning or worse a single time: what is tried
    in several ways meets the same trouble in each.
    """

    def __init__(self, inner: Logger) -> None:
        super().__init__()
        self._inner = inner
        self._told: set[tuple[Severity, str]] = set()

    def log(self, severity: Severity, msg: str) -> None:
        with self._lock:
            known = (severity, msg) in self._told
            if severity <= Severity.WARNING:
                self._told.add((severity, msg))
        if not known:
            self._inner.log(severity, msg)


def checked_logger(logger: Logger | None) -> Logger:
    """That logger, or one of its own for None. Raises InvalidArgument for what has no method
    ``log``.
    """
    if logger is None:
        return Logger()
    if not callable(getattr(logger, "log", None)):
        raise InvalidArgument(
            f"{logger!r} is no logger", do="Give a tactix.Logger, or leave it out"
        )
    return logger
