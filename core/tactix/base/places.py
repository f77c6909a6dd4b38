"""Where in its author's files something is written: what a message sends the author to."""

from __future__ import annotations

import inspect
from contextlib import suppress
from types import CodeType


def place_of(written: object) -> str:
    """File and line of a function or a class; empty where nothing tells."""
    file, line = _begin(written)
    return f"{file}:{line}" if file else ""


def place_of_failure(error: BaseException, written: object) -> str:
    """The line of the last call into the file of a function or a class that an error went through;
    where there was none, where that is written.
    """
    file, _ = _begin(written)
    lines, trace = [], error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{file}:{lines[-1]}" if lines else place_of(written)


def _begin(written: object) -> tuple[str, int]:
    plain = inspect.unwrap(written) if callable(written) else written
    code = getattr(plain, "__code__", None)
    if isinstance(code, CodeType):
        return code.co_filename, code.co_firstlineno
    made_by = plain if isinstance(plain, type) else type(plain)
    with suppress(OSError, TypeError):  # its source is no file, or is gone
        return inspect.getsourcefile(made_by) or "", inspect.getsourcelines(made_by)[1]
    return "", 0
