"""A process that runs plans with nothing but a driver: ``alone.py real|fake PLAN...``; prints JSON, by plan.

NVRTC, the vendor's other libraries, and what calls them, can neither be imported nor loaded. ``fake``: the driver is
the tests' own, which runs nothing; then cuda-python cannot be imported either. ``real``: results go to files
PLAN.SIZES.npz.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

LIBRARIES = re.compile(r"nvrtc|cublas|cudnn|nvJitLink", re.IGNORECASE)
MODULES = re.compile(
    r"cuda\.bindings\.((_internal\.)?nvrtc|nvjitlink)|nvidia|torch|onnx$|tactix_builtin\.cuda"
    r"\.(nvrtc|library|cublaslt\.(library|matmul|work)|cudnn\.(library|convolution|compiler))"
)


class Blocker:
    """What an import meets first. ``more``: names that are blocked as well."""

    def __init__(self, more: str) -> None:
        self.more = more

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if MODULES.match(name) or name == self.more:
            raise ImportError(f"{name} is not for this process")


def block(more: str) -> None:
    sys.meta_path.insert(0, Blocker(more))  # type: ignore[arg-type]
    load = ctypes.CDLL.__init__

    def checked(self: Any, name: Any, *args: Any, **named: Any) -> None:
        if LIBRARIES.search(str(name)):
            raise OSError(f"{name} is not for this process")
        load(self, name, *args, **named)

    ctypes.CDLL.__init__ = checked  # type: ignore[method-assign]


def feeds(engine: Any, sizes: Sequence[int]) -> dict[str, Any]:
    """Numbers for all inputs; symbols are of these sizes, in turn."""
    rng, out = np.random.default_rng(7), {}
    for io in engine.inputs:
        shape = [d if isinstance(d, int) else sizes[min(i, len(sizes) - 1)] for i, d in enumerate(io.shape)]
        made = rng.standard_normal(shape) if io.dtype.is_float else np.ones(shape)
        out[io.name] = made.astype(io.dtype.numpy)
    return out


def fake() -> Any:
    """A device whose driver takes every kernel for one that does nothing."""
    from fake_driver import FakeKernel, fake_device

    class Kernels(dict[str, FakeKernel]):
        def __contains__(self, key: object) -> bool:
            return True

        def __missing__(self, key: str) -> FakeKernel:
            return FakeKernel(0)

    made, api = fake_device()
    api.kernels = Kernels()
    return made, api


def run(path: str, ran: Any) -> dict[str, Any]:
    from tactix.run.runtime import Runtime

    start = time.perf_counter()
    engine = Runtime().deserialize(path)
    seconds, out = time.perf_counter() - start, {}
    for sizes in ((1, 16), (3, 7)):
        before = len(ran)
        got = engine(feeds(engine, sizes))
        arrays = list(got.values()) if isinstance(got, dict) else [got]
        name = "x".join(map(str, sizes))
        out[name] = {"shapes": [y.shape for y in arrays], "launches": len(ran) - before}
        if not ran:
            np.savez(f"{path}.{name}.npz", *arrays)
    return {"seconds": seconds, "steps": len(engine.plan.steps), **out}


def main(which: str, *paths: str) -> None:
    block("cuda" if which == "fake" else "")
    ran: Any = []
    if which == "fake":
        from tactix_builtin.cuda import device

        made, api = fake()
        device.the_device = lambda: made  # type: ignore[assignment]
        ran = api.ran
    print(json.dumps({p: run(p, ran) for p in paths}))


if __name__ == "__main__":
    main(*sys.argv[1:])
