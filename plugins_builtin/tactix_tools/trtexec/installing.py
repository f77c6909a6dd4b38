"""A program ``trtexec`` for what calls it by name."""

from __future__ import annotations

import sys
from pathlib import Path

from tactix.base.errors import InvalidArgument
from tactix.base.files import replacing

PROGRAM = """#!{python}
# tactix's trtexec
import sys

from tactix_tools.trtexec.program import main

sys.exit(main(sys.argv[1:]))
"""
OURS = "# tactix's trtexec"


def install(folder: str) -> Path:
    """Write it into a folder, which may be new. Raises InvalidArgument where another program has
    its place; OSError.
    """
    path = Path(folder) / "trtexec"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and OURS.encode() not in path.read_bytes():
        raise InvalidArgument(f"{path} is another program", do="Name another folder")
    with replacing(path, 0o777) as f:
        f.write(PROGRAM.format(python=sys.executable).encode())
    return path
