#!/usr/bin/env python3
"""The layers that have no CUDA tactic: printed, or written into the document that lists them.

    python tests/builtin/cuda/census.py [--write docs/cuda.md]

A layer that has one may still be refused for a dtype, an attribute or a shape; building then tells
every reason.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tactix.contracts.layer import Layer
from tactix_cuda.tactics import all_tactics
from tactix_ops.layers import all_layers, control, selection, sequences, text, text_features

BEGIN, END = (
    "<!-- layers on the host: written by tests/builtin/cuda/census.py -->\n",
    "<!-- end -->\n",
)
GROUPS = {
    "Branches and loops (their bodies run on the GPU)": {x.key for x in control.LAYERS},
    "Text, sequences, optionals, maps: Python objects": {
        x.key for m in (sequences, text, text_features) for x in m.LAYERS
    } | {"tactix.ImageDecoder@1", "tactix.Lookup@1"},
    "Shapes that follow from data": {x.key for x in selection.LAYERS},
    "Shapes or axes that only running tells": set(),
    "No kernel yet": set(),
}  # fmt: skip


def missing() -> list[Layer]:
    """Layers that no tactic for CUDA implements, but for those on the host."""
    own = {k for t in all_tactics() if not t.crosses for k in t.implements}
    return [x for x in all_layers() if not x.is_pointwise and x.key not in own]


def group_of(layer: Layer) -> str:
    """The line of the table."""
    for name, keys in GROUPS.items():
        if layer.key in keys:
            return name
    return list(GROUPS)[3 if layer.name.startswith("Dynamic") else 4]


def table() -> str:
    """Markdown."""
    rows = {name: sorted(x.key for x in missing() if group_of(x) == name) for name in GROUPS}
    lines = ["| why | layers |", "|---|---|"]
    lines += [
        f"| {name} | {', '.join(f'`{k}`' for k in keys)} |" for name, keys in rows.items() if keys
    ]
    return "\n".join(lines) + "\n"


def joined(document: str) -> str:
    """The document with its table written anew. Raises ValueError if it has no place for it."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.write:
        options.write.write_text(joined(options.write.read_text()))
    print("\n".join(x.key for x in missing()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
