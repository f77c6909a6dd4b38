"""How ``import tensorrt`` finds the API: in this process, or in those that it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tactix_tensorrt.device import chosen

NAME = "tensorrt"
FOLDER = Path(__file__).parent / "as_tensorrt"
"""What is on PYTHONPATH of processes that shall find it: it holds a package ``tensorrt``."""


def folders() -> list[Path]:
    """What goes to PYTHONPATH of a program: where engines are built for the processor the stand-in
    for CUDA, too. Raises ConfigError.
    """
    from tactix_tensorrt.cuda_stand_in.folder import AT_START

    return [FOLDER] if chosen() == "cuda" else [FOLDER, AT_START]


def take_name() -> None:
    """Let ``import tensorrt`` give the API in this process, whatever is installed, as
    ``tensorrt.tensorrt``, by which older programs call it, does, and ``ctypes`` TensorRT's
    libraries where there are none.
    """
    from tactix_tensorrt import api, libraries

    for name in (NAME, f"{NAME}.{NAME}", f"{api.__name__}.{NAME}"):
        sys.modules[name] = api
    libraries.stand_in()


def for_children() -> None:
    """Let processes that this one starts find it, too: by PYTHONPATH, and by ``sys.path``, which
    multiprocessing hands to processes that it spawns. The first entry is the program's folder.
    """
    if str(FOLDER) not in sys.path:
        sys.path.insert(1, str(FOLDER))
    before = os.environ.get("PYTHONPATH", "")
    parts = [str(FOLDER), *(p for p in before.split(os.pathsep) if p and p != str(FOLDER))]
    os.environ["PYTHONPATH"] = os.pathsep.join(parts)
