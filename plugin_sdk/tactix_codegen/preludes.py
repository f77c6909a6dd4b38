"""The texts that kernels share, by the names that plans give them.

A plan keeps the text of each kernel, and in its ledger what preludes stood before it: names of 16
digits of their sha256. Where these are of the tactix that is installed, the whole text of a kernel
is there again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from tactix.select.compile import prelude_name

FOLDERS = ("tactix_codegen.c.lib", "tactix_codegen.cuda.lib")


@dataclass(frozen=True)
class Prelude:
    """A file of ``c/lib`` or ``cuda/lib``: its name, and its text."""

    file: str
    text: str


@functools.cache
def installed_preludes() -> Mapping[str, Prelude]:
    """Those of this installation, by what plans call them."""
    files = (
        f
        for folder in FOLDERS
        for f in resources.files(folder).iterdir()
        if f.name.endswith((".h", ".cuh"))
    )
    found = (Prelude(f.name, f.read_text(encoding="utf-8")) for f in files)
    return {prelude_name(p.text): p for p in found}
