"""Error recorder: keeps the errors that an object and what it creates have raised, for callers that
look later. Where there is none, the logger is told of them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from tactix.base.errors import ErrorCode, InvalidArgument, TactixError
from tactix.base.logger import LogEvent, Logger, Severity

Method = TypeVar("Method", bound=Callable[..., Any])


class ErrorRecorder:
    """Keeps the first ``capacity`` errors, as the first is mostly the cause; later ones only set
    the overflow.

    What has these methods may stand in its place; they are called from any thread.
    """

    def __init__(self, capacity: int = 256) -> None:
        if capacity < 1:
            raise InvalidArgument(
                f"an error recorder for {capacity} errors", do="Give a positive number"
            )
        self.capacity = capacity
        self._errors: list[tuple[ErrorCode, str]] = []
        self._overflowed = False
        self._lock = threading.Lock()

    def report_error(self, code: ErrorCode, desc: str) -> None:
        with self._lock:
            if len(self._errors) < self.capacity:
                self._errors.append((ErrorCode(code), str(desc)))
            else:
                self._overflowed = True

    def num_errors(self) -> int:
        return len(self._errors)

    def get_error_code(self, index: int) -> ErrorCode:
        """Raises InvalidArgument when there is no such error."""
        return self._at(index)[0]

    def get_error_desc(self, index: int) -> str:
        """Raises InvalidArgument when there is no such error."""
        return self._at(index)[1]

    def _at(self, index: int) -> tuple[ErrorCode, str]:
        with self._lock:
            if not 0 <= index < len(self._errors):
                raise InvalidArgument(f"no error {index}", why=f"{len(self._errors)} are recorded")
            return self._errors[index]

    def has_overflowed(self) -> bool:
        return self._overflowed

    def clear(self) -> None:
        with self._lock:
            self._errors.clear()
            self._overflowed = False


class Recorded:
    """Mixin: ``error_recorder``, which is the parent's while the object has none of its own."""

    _recorder: ErrorRecorder | None = None
    _recorder_parent: Any = None

    def inherit_recorder(self, parent: Any) -> None:
        """Name the object that created this one; anything with an ``error_recorder``."""
        self._recorder_parent = parent

    @property
    def error_recorder(self) -> ErrorRecorder | None:
        if self._recorder is not None:
            return self._recorder
        return getattr(self._recorder_parent, "error_recorder", None)

    @error_recorder.setter
    def error_recorder(self, recorder: ErrorRecorder | None) -> None:
        self._recorder = recorder

    @property
    def error_log(self) -> Logger | None:
        """The logger of the object, or of what created it; None where neither has one."""
        own = getattr(self, "logger", None)
        return own if own is not None else getattr(self._recorder_parent, "error_log", None)


_REPORTED = "_reported"


class recording:
    """``with recording(self): ...`` reports a TactixError that leaves the block to
    ``self.error_recorder``; where that is None, to the logger, which most likely is the caller's.

    However many levels an error passes, it is reported once. A recorder or logger that fails never
    hides the error: that becomes a note on it.
    """

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        if not isinstance(e, TactixError) or hasattr(e, _REPORTED):
            return
        recorder, logger = self.owner.error_recorder, getattr(self.owner, "error_log", None)
        who = "logger" if recorder is None else "error recorder"
        try:
            if recorder is not None:
                setattr(e, _REPORTED, True)
                recorder.report_error(e.code, str(e))
            elif logger is not None and logger.tells_raised:
                setattr(e, _REPORTED, True)
                logger.tell(Severity.ERROR, _raised(e))
        except Exception as failure:
            e.add_note(f"the {who} failed, too: {failure!r}")


def _raised(e: TactixError) -> LogEvent:
    parts = {"what": e.what, "who": e.who, "why": e.why, "do": e.do}
    told = {k: v for k, v in parts.items() if v}
    return LogEvent("error", str(e), {"error": type(e).__name__, "code": e.code.name, **told})


def recorded(method: Method) -> Method:
    """A method of what is ``Recorded``, whose errors are reported as ``recording`` does it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with recording(self):
            return method(self, *args, **kwargs)

    return cast(Method, call)
