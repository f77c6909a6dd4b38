"""What trtexec prints: lines with the time and a letter, errors and warnings on stderr."""

from __future__ import annotations

import sys
import time

from tactix_tensorrt import api as trt

LETTERS = {
    trt.Logger.Severity.INTERNAL_ERROR: "F",
    trt.Logger.Severity.ERROR: "E",
    trt.Logger.Severity.WARNING: "W",
    trt.Logger.Severity.INFO: "I",
    trt.Logger.Severity.VERBOSE: "V",
}


class ReportLines(trt.ILogger):
    """Takes trtexec's own messages, and those of builds and runs. ``verbose``: all of them."""

    def __init__(self, verbose: bool = False) -> None:
        super().__init__()
        self.verbose = verbose

    def log(self, severity: trt.Logger.Severity, msg: str) -> None:
        """One of a build or a run."""
        self._print(severity, f"[TRT] {msg}")

    def info(self, text: str = "") -> None:
        self._print(trt.Logger.Severity.INFO, text)

    def warn(self, text: str) -> None:
        self._print(trt.Logger.Severity.WARNING, text)

    def fail(self, text: str) -> None:
        self._print(trt.Logger.Severity.ERROR, text)

    def tell(self, text: str) -> None:
        """With --verbose alone."""
        self._print(trt.Logger.Severity.VERBOSE, text)

    def _print(self, severity: trt.Logger.Severity, text: str) -> None:
        if severity == trt.Logger.Severity.VERBOSE and not self.verbose:
            return
        bad = severity <= trt.Logger.Severity.WARNING
        now = time.strftime("%m/%d/%Y-%H:%M:%S")
        for line in text.split("\n"):
            out = sys.stderr if bad else sys.stdout
            print(f"[{now}] [{LETTERS[severity]}] {line}", file=out, flush=True)


def as_trtexec(shape: tuple[int, ...] | list[int]) -> str:
    """``1x3x8x8``."""
    return "x".join(map(str, shape)) if shape else "scalar"
