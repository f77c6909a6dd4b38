"""Who stops a build waits for what NVRTC is at, and for nothing else. No NVRTC is needed: a slow
one stands in.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tactix.base.errors import BuildCancelled
from tactix.contracts.artifact import Source
from tactix_codegen.cuda.target import target
from tactix_cuda import nvrtc

SOURCES = [Source("cuda_c", f"// {i}") for i in range(4 * (os.cpu_count() or 1) + 8)]


class SlowCompiler:
    """In place of ``compile_text``: ends no text before ``ending`` is set, when what waits was
    dropped.
    """

    def __init__(self) -> None:
        self.begun, self.all_wait, self.ending = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        self.texts: list[str] = []

    def __call__(self, text: str, options: object, name: str) -> bytes:
        self.texts.append(text)
        self.begun.set()
        self.ending.wait()
        return b"cubin"


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowCompiler]:
    made = SlowCompiler()

    class Workers(ThreadPoolExecutor):
        def submit(self, *args: Any, **options: Any) -> Any:
            submitted = super().submit(*args, **options)
            if args[1] is SOURCES[-1]:
                made.all_wait.set()
            return submitted

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            made.ending.set()
            super().shutdown(wait)

    monkeypatch.setattr(nvrtc, "ThreadPoolExecutor", Workers)
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(nvrtc, "compile_text", made)
    monkeypatch.setattr(nvrtc, "version", lambda: "nvrtc slow")
    monkeypatch.setattr(nvrtc, "why_missing", lambda: "")
    yield made
    made.ending.set()


def check(slow: SlowCompiler, cache: Path) -> None:
    """At most one text a core was compiled, and what was is kept whole."""
    assert 0 < len(slow.texts) <= (os.cpu_count() or 1)
    assert {p.suffix for p in cache.rglob("*") if p.is_file()} == {".cubin"}


def test_what_waits_is_dropped_when_the_build_is_stopped(
    slow: SlowCompiler, tmp_path: Path
) -> None:
    compiler = nvrtc.NvrtcCompiler()

    def stopped() -> bool:
        slow.begun.wait()
        return True

    compiler.stopped = stopped  # type: ignore[method-assign]
    with pytest.raises(BuildCancelled):
        compiler.compile(SOURCES, target("sm_80"))
    check(slow, tmp_path)


def test_ctrl_c_drops_what_waits(slow: SlowCompiler, tmp_path: Path) -> None:
    def press() -> None:
        slow.begun.wait()
        slow.all_wait.wait()
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            nvrtc.NvrtcCompiler().compile(SOURCES, target("sm_80"))
    finally:
        signal.signal(signal.SIGINT, before)
    check(slow, tmp_path)
