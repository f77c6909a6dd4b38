"""The other end of ``peer_engines.py`` and its like: starts a process, asks it for rounds, and says
what went wrong.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peer_engines import MARK

SCRIPT = Path(__file__).with_name("peer_engines.py")


def last_words(said: str, most: int = 300) -> str:
    """The last exception of a traceback with its message on one line, else the last line."""
    found = list(re.finditer(r"^[\w.]+(?:: |$)", said, re.MULTILINE))
    text = (
        said[found[-1].start() :]
        if found
        else (said.strip().splitlines() or ["it said nothing"])[-1]
    )
    return " ".join(text.split())[:most]


class PeerFailed(Exception):
    """An engine's process ended, or did not answer; the text is the reason."""


class Served:
    """A process that answers in lines with the mark. ``timeout``: seconds for one answer."""

    def __init__(
        self,
        command: Sequence[str],
        timeout: float,
        environment: Mapping[str, str],
        python: str = sys.executable,
    ) -> None:
        self._timeout = timeout
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip

    def ask(self, line: str) -> Any:
        """The answer to a line. Raises PeerFailed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failure() from None
        return self.answer()

    def answer(self, within: float | None = None) -> Any:
        """The next answer; lines without the mark are a library's chatter. Raises PeerFailed."""
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout if within is None else within, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith(MARK):
                    return json.loads(line.removeprefix(MARK))
        finally:
            timer.cancel()
        raise self._failure()

    def _failure(self) -> PeerFailed:
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read()
        self.close()
        if code == -9:
            return PeerFailed("killed, perhaps for want of an answer in time")
        return PeerFailed(f"exit code {code}: {last_words(said)}")

    def close(self) -> None:
        """End the process, whether it still answers or not."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._log):
            if stream is not None:
                stream.close()


class Peer(Served):
    """One engine on one model; ``facts`` are those of its first answer. Raises PeerFailed.

    ``options``: what ``peer_engines.py`` takes. ``timeout``: seconds for one answer.
    ``python``: another one's, to time what is installed there.
    """

    def __init__(
        self,
        engine: str,
        model: Path,
        threads: int,
        timeout: float,
        python: str = sys.executable,
        **options: Any,
    ) -> None:
        command = [str(SCRIPT), engine, str(model), "--threads", str(threads)]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        super().__init__(
            command,
            timeout,
            {"OMP_NUM_THREADS": str(threads), "TACTIX_NUM_THREADS": str(threads)},
            python,
        )
        self.facts: dict[str, Any] = self.answer()

    def round(self, seconds: float) -> float:
        """The median seconds of a call in a round of so many seconds. Raises PeerFailed."""
        return float(self.ask(str(seconds)))
