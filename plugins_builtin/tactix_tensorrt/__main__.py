"""``python -m tactix_tensorrt script.py ARGS``: a program in which ``import tensorrt`` is tactix's.

    python -m tactix_tensorrt [--level 8.6|10.16|11.1] script.py ARGS
    python -m tactix_tensorrt [--level ...] -m package ARGS
    python -m tactix_tensorrt --folder          # what to put on PYTHONPATH instead

Without a GPU CUDA's names are there, too, over the host's memory (``cuda_stand_in``): in both ways.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from tactix.base.errors import ConfigError
from tactix_tensorrt import cuda_stand_in, levels
from tactix_tensorrt.installing import folders, for_children, take_name


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser("python -m tactix_tensorrt", description=(__doc__ or ""))
    out.formatter_class = argparse.RawDescriptionHelpFormatter
    out.add_argument("--level", choices=list(levels.VERSIONS), help="whose names there are")
    out.add_argument("--folder", action="store_true", help="print what goes to PYTHONPATH")
    out.add_argument("-m", dest="package", action="store_true", help="PROGRAM is a module")
    out.add_argument("program", nargs="?", help="a script, or a module after -m")
    out.add_argument("args", nargs=argparse.REMAINDER, help="what the program gets")
    return out


def main() -> None:
    asked = parser().parse_args()
    if asked.folder:
        print(os.pathsep.join(str(p) for p in folders()))
        return
    if asked.program is None:
        parser().error("name a script")
    try:
        levels.choose(asked.level or levels.current())
    except ConfigError as e:
        parser().error(str(e))
    take_name()
    for_children()
    if cuda_stand_in.install():
        cuda_stand_in.for_children()
    sys.argv = [asked.program, *asked.args]
    if asked.package:
        sys.path[0] = os.getcwd()
        runpy.run_module(asked.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(asked.program))
        runpy.run_path(asked.program, run_name="__main__")


if __name__ == "__main__":
    main()
