"""Puts tactix's stand-in for CUDA in, then does what another sitecustomize does."""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

from tactix_tensorrt.cuda_stand_in import install

install()
here = os.path.dirname(os.path.abspath(__file__))
others = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
spec = PathFinder.find_spec("sitecustomize", others)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(module_from_spec(spec))
