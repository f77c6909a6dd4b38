"""A command that tells by its exit code whether a model has a fault."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from dataclasses import dataclass

from tactix.base.errors import InvalidArgument

PLACE = "{}"
"""What the path of the model takes the place of."""

SHOWN = 400
"""Characters of a command's output that are kept, its last ones."""


@dataclass(frozen=True)
class CheckOutcome:
    """Of one run. ``failed``: by exit code, by a signal, or by taking too long. ``what``: in words.
    ``output``: the end of what it printed.
    """

    failed: bool
    what: str
    timed_out: bool = False
    output: str = ""


class CheckCommand:
    """``command``: with ``{}`` for the model's path, divided as a shell does, without one. A run
    fails by another exit code than 0, or a signal; with ``match``, if that is in its output, too.
    ``timeout``: seconds.

    Raises InvalidArgument for a command without a place for the path.
    """

    def __init__(self, command: str, match: str = "", timeout: float | None = None) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as e:
            raise InvalidArgument("the command cannot be read", who=command, why=str(e)) from None
        if not any(PLACE in w for w in self._words):
            do = f"Write {PLACE} where the path of the model belongs"
            raise InvalidArgument("the command takes no model", who=command, do=do)
        self._match, self._timeout = match, timeout

    def __call__(self, path: str) -> CheckOutcome:
        """Run it. Raises InvalidArgument if there is no such program; KeyboardInterrupt ends it."""
        words = [w.replace(PLACE, path) for w in self._words]
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as e:
            raise InvalidArgument(
                "the command cannot be run", who=words[0], why=e.strerror or str(e)
            ) from None
        try:
            printed, _ = process.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            return CheckOutcome(True, f"took longer than {self._timeout:g} s", timed_out=True)
        finally:
            _end(process)
        text = printed.decode(errors="replace")
        return self._judged(process.returncode, text)

    def _judged(self, code: int, text: str) -> CheckOutcome:
        what = f"exit code {code}" if code >= 0 else _signal_name(-code)
        matches = self._match in text
        if code and not matches:
            what = f"{what}, but without {self._match!r} in its output"
        return CheckOutcome(bool(code) and matches, what, output=text[-SHOWN:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
