"""The guide's pages as programs: every block of Python or shell runs in order, and shows what the
page says it shows.

A block's first line says what it is: ``python`` and ``sh`` run; ``file=PATH`` writes the block
there instead; ``in=PATH`` says that a file there holds it; ``fails`` expects an exit status other
than 0; ``needs=triton`` leaves it out where that is not installed; ``norun`` always does. A block
``text`` right behind one that runs is its output, in which ``...`` stands for anything.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import re
import site
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tactix_cuda import nvrtc
from tactix_sdk import triton

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NEEDS: dict[str, Callable[[], str]] = {"nvrtc": nvrtc.why_missing, "triton": triton.why_missing}
"""Why something is missing; empty if it is there."""
SHIMS = {
    "pip": 'c=$1; shift; if [ $c = install ]; then set -- --no-deps --no-build-isolation --no-index "$@"; fi; '
    'exec python -m pip "$c" --disable-pip-version-check --quiet "$@"',
    "tactix": 'exec python -m tactix "$@"',
    "tactix-sdk": 'exec python -m tactix_sdk.authoring.cli "$@"',
}
"""Programs of the environment: pip installs nothing but what lies there, and looks nowhere else."""


@dataclass(frozen=True)
class Block:
    """``options``: the words behind the language. ``shown``: the output that the page shows, if it
    shows some.
    """

    language: str
    options: Mapping[str, str]
    text: str
    line: int
    shown: str | None = None

    @property
    def runs(self) -> bool:
        needs = self.options.get("needs", "")
        there = not needs or not NEEDS[needs]()
        return (
            there
            and "norun" not in self.options
            and (self.language in ("python", "sh") or "file" in self.options)
        )


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    found, out = list(FENCE.finditer(text)), list[Block]()
    for m, after in pairwise([*found, None]):
        options = dict(word.partition("=")[::2] for word in m[2].split())
        behind = (
            after is not None and after[1] == "text" and not text[m.end() : after.start()].strip()
        )
        shown = after[3] if after is not None and behind else None
        out.append(Block(m[1], options, m[3], text[: m.start()].count("\n") + 2, shown))
    return out


def environment(folder: Path) -> dict[str, str]:
    """A virtual environment that sees the packages of this one, made without network: variables to
    run in it.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    here = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (_packages(folder) / "outer.pth").write_text(
        "".join(f"import site; site.addsitedir({p!r})\n" for p in here)
    )
    for libraries in (
        Path(p) / "nvidia" for p in here
    ):  # NVRTC is looked for in the environment's own packages
        if libraries.exists() and not (_packages(folder) / "nvidia").exists():
            (_packages(folder) / "nvidia").symlink_to(libraries)
    for name, line in SHIMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "bin" / name).chmod(0o755)
    paths = os.pathsep.join(filter(None, [str(folder / "bin"), os.environ.get("PATH", "")]))
    caches = {"TACTIX_CACHE_DIR": str(folder / "cache"), "TACTIX_HOME": str(folder / "home")}
    return {**os.environ, **caches, "PATH": paths, "VIRTUAL_ENV": str(folder)}


def _packages(folder: Path) -> Path:
    return next(folder.glob("lib/python3*/site-packages"))


class Page:
    """Runs blocks one by one: Python in one namespace, shell in the current folder."""

    def __init__(self, text: str) -> None:
        self.blocks = blocks(text)
        self.names: dict[str, Any] = {"__name__": "__main__"}

    def run(self) -> Iterator[tuple[Block, str]]:
        """Each block that runs, and its output. Raises AssertionError for one that fails or shows
        something else.
        """
        for block in filter(lambda b: b.runs, self.blocks):
            got = self.one(block)
            wanted = block.shown
            if wanted is not None and not doctest.OutputChecker().check_output(wanted, got, FLAGS):
                raise AssertionError(f"line {block.line}: shown is\n{wanted}\nit gave\n{got}")
            yield block, got

    def one(self, block: Block) -> str:
        """The output of one block."""
        if path := block.options.get("file"):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(block.text)
            return ""
        if path := block.options.get("in"):
            assert block.text in Path(path).read_text(), f"line {block.line}: that is not in {path}"
            return ""
        return self._shell(block) if block.language == "sh" else self._python(block)

    def _python(self, block: Block) -> str:
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(compile("\n" * (block.line - 1) + block.text, "page", "exec"), self.names)
        except Exception as e:
            raise AssertionError(f"line {block.line}: {type(e).__name__}: {e}") from e
        return out.getvalue()

    @staticmethod
    def _shell(block: Block) -> str:
        command = ["bash", "-e", "-c", block.text]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if (done.returncode != 0) != ("fails" in block.options):
            raise AssertionError(f"line {block.line}: exit status {done.returncode}\n{done.stdout}")
        for path in map(Path, site.getsitepackages()):  # what pip has installed by now
            site.addsitedir(str(path))
        importlib.invalidate_caches()
        from tactix.plugins.loader import reset_scan

        reset_scan()
        return done.stdout


def main(path: str) -> None:
    """Run a page, and print what each block gave and how long it took."""
    start = time.perf_counter()
    for block, got in Page(Path(path).read_text()).run():
        now = time.perf_counter()
        print(
            f"--- line {block.line}: {' '.join([block.language, *block.options])}, {now - start:.2f} s\n{got}"
        )
        start = now


if __name__ == "__main__":
    main(sys.argv[1])
