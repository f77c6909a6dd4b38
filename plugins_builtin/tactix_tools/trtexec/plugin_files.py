"""Files of Python that register plugins of TensorRT, in place of libraries."""

from __future__ import annotations

import runpy
from pathlib import Path

from tactix.base.errors import InvalidArgument
from tactix_tensorrt.installing import take_name


def load_plugins(path: str) -> None:
    """Run a file, which finds tactix's ``tensorrt``. Raises InvalidArgument for what is no file of
    Python, and what the file raises.
    """
    if Path(path).suffix != ".py" or not Path(path).is_file():
        do = "Name a file of Python that registers plugins, or make a pack (`tactix-sdk new`)"
        raise InvalidArgument(f"no plugins can be had of {path}", do=do)
    take_name()
    runpy.run_path(path)
