"""What code does to files, and whether it starts processes or connects, while it is watched."""

from __future__ import annotations

import functools
import os
import sys
from types import TracebackType
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
DONE = {
    "os.mkdir": "makes the folder",
    "os.remove": "removes",
    "os.rmdir": "removes the folder",
    "os.rename": "renames",
    "os.symlink": "makes a link to",
    "os.truncate": "truncates",
    "os.chmod": "changes the mode of",
    "os.system": "runs",
    "subprocess.Popen": "starts",
    "socket.connect": "connects",
}
"""By audit events of Python, in words that their first argument follows."""

_watching: list[Watch] = []


class Watch:
    """What happens inside of ``with``, in any thread. ``seen``: in words, each once.

    What Python keeps of modules that are imported, and ``/dev/null``, do not count.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __enter__(self) -> Watch:
        _listen()
        _watching.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        _watching.remove(self)


@functools.cache
def _listen() -> None:
    """Once: an audit hook stays as long as the process."""
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or not (words := _words(event, arguments)):
        return
    for watch in _watching:
        if words not in watch.seen:
            watch.seen.append(words)


def _words(event: str, arguments: tuple[Any, ...]) -> str:
    """Empty for what changes nothing."""
    if event == "open":
        path, _, flags = arguments
        name = str(path)
        kept = "__pycache__" in name or name == os.devnull
        return f"writes {name}" if int(flags or 0) & WRITING and not kept else ""
    return f"{DONE[event]} {arguments[0]}" if event in DONE else ""
