"""Where messages go, and what records errors."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from tactix.base.errors import TactixError
from tactix.base.logger import Logger as NativeLogger
from tactix.base.logger import Severity as NativeSeverity
from tactix_tensorrt.api import enums
from tactix_tensorrt.api.enums import ErrorCodeTRT, Severity
from tactix_tensorrt.api.sealed import Sealed

if TYPE_CHECKING:
    from tactix_tensorrt.api.callbacks import IGpuAllocator

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")


class ILogger:
    """Subclass it, call its ``__init__``, and override ``log``."""

    Severity: TypeAlias = enums.Severity
    INTERNAL_ERROR = Severity.INTERNAL_ERROR
    ERROR = Severity.ERROR
    WARNING = Severity.WARNING
    INFO = Severity.INFO
    VERBOSE = Severity.VERBOSE

    def __init__(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def log(self, severity: Severity, msg: str) -> None:
        """Take one message."""


class Logger(ILogger):
    """Prints messages of ``min_severity`` or worse: errors on stderr, others on stdout."""

    def __init__(self, min_severity: Severity = Severity.WARNING) -> None:
        super().__init__()
        self._min_severity = min_severity

    @property
    def min_severity(self) -> Severity:
        return self._min_severity

    @min_severity.setter
    def min_severity(self, severity: Severity) -> None:
        self._min_severity = severity

    def log(self, severity: Severity, msg: str) -> None:
        if severity > self.min_severity:
            return
        stream = sys.stderr if severity <= Severity.ERROR else sys.stdout
        now = time.strftime("%m/%d/%Y-%H:%M:%S")
        print(f"[{now}] [TRT] [{severity.name[0]}] {msg}", file=stream, flush=True)


class Forwarding(NativeLogger):
    """Hands tactix's messages to a program's logger. Errors come there when they become None."""

    tells_raised = False

    def __init__(self, inner: ILogger) -> None:
        super().__init__()
        self.inner = inner

    def log(self, severity: NativeSeverity, msg: str) -> None:
        self.inner.log(Severity(int(severity)), msg)


class IErrorRecorder:
    """Subclass it to be told of errors: ``report_error`` and the questions about them."""

    def __init__(self) -> None: ...

    def report_error(self, code: ErrorCodeTRT, desc: str) -> bool:
        """Take one error; whether it ends what is going on."""
        return False

    def clear(self) -> None: ...

    def num_errors(self) -> int:
        return 0

    def get_error_code(self, index: int) -> ErrorCodeTRT:
        return ErrorCodeTRT.SUCCESS

    def get_error_desc(self, index: int) -> str:
        return ""

    def has_overflowed(self) -> bool:
        return False


class Reporting(Sealed):
    """What has a logger, may have an error recorder, and may be used in ``with``, to no effect.

    ``logger``: the program's.
    """

    error_recorder: IErrorRecorder | None = None

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __del__(self) -> None: ...

    def fail(self, error: TactixError | str) -> None:
        """Log an error, and tell the recorder."""
        code = error.code if isinstance(error, TactixError) else 3
        self._logger.log(Severity.ERROR, str(error))
        if self.error_recorder is not None:
            self.error_recorder.report_error(ErrorCodeTRT(int(code)), str(error))

    def warn(self, text: str) -> None:
        self._logger.log(Severity.WARNING, text)


class Rooted(Reporting):
    """What programs make first, with a logger of their own."""

    gpu_allocator: IGpuAllocator | None = None
    DLA_core = -1

    @property
    def logger(self) -> ILogger:
        return self._logger

    @property
    def num_DLA_cores(self) -> int:
        return 0


class _Fails(Protocol):
    def fail(self, error: TactixError | str) -> None: ...


def returns(failure: F) -> Callable[[Callable[P, R]], Callable[P, R | F]]:
    """Of a method of what is ``Reporting``: errors of tactix are logged; it returns ``failure``."""

    def decorate(method: Callable[P, R]) -> Callable[P, R | F]:
        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R | F:
            try:
                return method(*args, **kwargs)
            except (TactixError, OSError) as e:
                owner: _Fails = args[0]  # type: ignore[assignment]
                owner.fail(e if isinstance(e, TactixError) else str(e))
                return failure

        return call

    return decorate
