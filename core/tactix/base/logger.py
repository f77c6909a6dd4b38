"""Logger: where messages go. Subclass it and override ``log`` to send them elsewhere."""

from __future__ import annotations

import enum
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TextIO

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


@dataclass(frozen=True)
class LogEvent:
    """A message that programs can read, too. ``name``: of what happened, such as ``tactic``;
    ``text``: for people; ``fields``: its facts, times in seconds, sizes in bytes.
    """

    name: str
    text: str
    fields: Mapping[str, object] = field(default_factory=dict)


class TakesMessages(Protocol):
    """The least that a logger is."""

    def log(self, severity: Severity, msg: str) -> None: ...


class Logger:
    """Writes messages of ``min_severity`` or worse to ``stream``, by default whatever
    ``sys.stderr`` is at the time.

    An override of ``log`` gets every message as it is and filters by itself; one of ``hears``
    spares making those that it drops. They may be called from any thread.

    ``tells_raised``: whether it is told of errors that are raised, too. That of a caller is; the
    one that stands in where none is given is not, as an exception tells of itself.
    """

    tells_raised = True

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

    def hears(self, severity: Severity) -> bool:
        """Whether a message is worth making: always, where ``log`` is an override."""
        if getattr(self.log, "__func__", None) is not Logger.log:
            return True
        return severity <= self.min_severity

    def tell(self, severity: Severity, event: LogEvent) -> None:
        """Take one message with its facts. Its text goes to ``log``, unless an override does
        more.
        """
        self.log(severity, event.text)

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

    def hears(self, severity: Severity) -> bool:
        return self._inner.hears(severity)

    def log(self, severity: Severity, msg: str) -> None:
        if self._is_new(severity, msg):
            self._inner.log(severity, msg)

    def tell(self, severity: Severity, event: LogEvent) -> None:
        if self._is_new(severity, event.text):
            self._inner.tell(severity, event)

    def _is_new(self, severity: Severity, msg: str) -> bool:
        with self._lock:
            known = (severity, msg) in self._told
            if severity <= Severity.WARNING:
                self._told.add((severity, msg))
        return not known


class Default(Logger):
    """Where no logger is given: warnings on stderr, but no errors that are raised."""

    tells_raised = False


class Forwarded(Logger):
    """Hands every message to what has a method ``log`` and nothing else of a logger."""

    def __init__(self, inner: TakesMessages) -> None:
        super().__init__()
        self._inner = inner

    def log(self, severity: Severity, msg: str) -> None:
        self._inner.log(severity, msg)


def checked_logger(logger: TakesMessages | None) -> Logger:
    """That logger, or one of its own for None. Raises InvalidArgument for what has no method
    ``log``.
    """
    if logger is None:
        return Default()
    if not callable(getattr(logger, "log", None)):
        raise InvalidArgument(
            f"{logger!r} is no logger", do="Give a tactix.Logger, or leave it out"
        )
    return logger if isinstance(logger, Logger) else Forwarded(logger)
