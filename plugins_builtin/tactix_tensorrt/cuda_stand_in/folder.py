"""The stand-in as a folder: for the environment of subprocesses, which no ``install()`` reaches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tactix.base.files import replacing

AT_START = Path(__file__).parent / "at_start"
"""What is on PYTHONPATH of processes that shall have the stand-in."""
_LIBRARIES = ("libcudart.so", "libcudart.so.12")


@dataclass(frozen=True)
class StandInFolder:
    """``path``: goes to the front of PYTHONPATH. ``libraries``: the folder with libcudart, for
    LD_LIBRARY_PATH; None without a C compiler, and on systems other than Linux.
    """

    path: Path
    libraries: Path | None

    def environment(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """An environment in which Python programs find the stand-in where there is no GPU."""
        ways = {"PYTHONPATH": self.path, "LD_LIBRARY_PATH": self.libraries}
        found = dict(base)
        for name, first in ways.items():
            if first is not None:
                rest = [base[name]] if base.get(name) else []
                found[name] = os.pathsep.join([str(first), *rest])
        return found


def write_folder(path: str | os.PathLike[str]) -> StandInFolder:
    """Write the folder, which is made if it is not there. Python processes whose PYTHONPATH begins
    with it call ``install()`` at their start. Raises OSError; CompilerError if there is a C
    compiler, and it fails.
    """
    from tactix_tensorrt.cuda_stand_in.library import library

    folder = Path(path).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "sitecustomize.py") as f:
        f.write((AT_START / "sitecustomize.py").read_bytes())
    content = library()
    if content is None:
        return StandInFolder(folder, None)
    libraries = folder / "lib"
    libraries.mkdir(exist_ok=True)
    for name in _LIBRARIES:
        with replacing(libraries / name) as f:
            f.write(content)
    return StandInFolder(folder, libraries)
