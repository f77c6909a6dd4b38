"""Kernels of one build are compiled together, each with its preludes: no name may be in two."""

from __future__ import annotations

import re
from pathlib import Path

import tactix_codegen.c.lib

LIB = Path(tactix_codegen.c.lib.__file__).parent
NAME = re.compile(
    r"^(?:TX_INLINE|TX_RARE)[^(\n]*?\b(tx_\w+)\(|^typedef [^;]*?\b(tx_\w+)(?: __attribute__[^;]*)?;",
    re.M,
)


def test_no_name_is_in_two_preludes() -> None:
    found: dict[str, set[str]] = {}
    for header in sorted(LIB.glob("*.h")):
        for function, kind in NAME.findall(header.read_text()):
            found.setdefault(function or kind, set()).add(header.name)
    assert {"tx_load_words", "tx_words", "tx_tanh"} <= found.keys()
    assert not {name: headers for name, headers in found.items() if len(headers) > 1}
