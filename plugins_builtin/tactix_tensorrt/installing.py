"""How ``import tensorrt`` finds the API: in this process, or in those that it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAME = "tensorrt"
FOLDER = Path(__file__).parent / "as_tensorrt"
"""What is on PYTHONPATH of processes that shall find it: it holds a package ``tensorrt``."""


def take_name() -> None:
    """Let ``import tensorrt`` give the API in this process, whatever is installed."""
    from tactix_tensorrt import api

    sys.modules[NAME] = api


def for_children() -> None:
    """Let processes that this one starts find it, too."""
    before = os.environ.get("PYTHONPATH", "")
    parts = [str(FOLDER), *(p for p in before.split(os.pathsep) if p and p != str(FOLDER))]
    os.environ["PYTHONPATH"] = os.pathsep.join(parts)
