"""A process that runs plans with nothing but a driver: ``alone.py real|lean|fake PLAN...``; prints
JSON, by plan.

NVRTC, the vendor's other libraries, and what calls them, can neither be imported nor loaded.
``fake``: the driver is the tests' own, which runs nothing; then cuda-python cannot be imported
either. ``real`` and ``lean``: results go to files PLAN.SIZES.npz, and the second of two rounds is
timed. ``lean``: by the lean runtime, in an interpreter that finds that, numpy and cuda-python, and
no other package (see ``site`` and ``launch``).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = re.compile(r"nvrtc|cublas|cudnn|nvJitLink", re.IGNORECASE)
MODULES = re.compile(
    r"cuda\.bindings\.((_internal\.)?nvrtc|nvjitlink)|nvidia|torch|onnx$|tactix_(cuda"
    r"\.(nvrtc|library)|cublaslt\.(library|matmul|work)|cudnn\.(library|plan|graph|compiler))"
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
        shape = [
            d if isinstance(d, int) else sizes[min(i, len(sizes) - 1)]
            for i, d in enumerate(io.shape)
        ]
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


def timed(engine: Any, given: dict[str, Any], repeats: int = 50) -> float:
    """Seconds of one inference on addresses of the device, by events around so many."""
    from cuda.bindings import driver

    device, context = engine.device, engine.create_execution_context()
    device.activate()
    for name, x in given.items():
        context.set_input_shape(name, x.shape)
    arrays = {**given, **{name: np.asarray(y) for name, y in context.run(given).items()}}
    for name, x in arrays.items():
        _, address = driver.cuMemAlloc(max(1, x.nbytes))
        device.copy_in(int(address), x)
        context.set_tensor_address(name, int(address))
    stream, rounds = device.create_stream(), []
    for _ in range(5):
        begin, end = device.create_event(), device.create_event()
        begin.record(stream)
        for _ in range(repeats):
            context.execute_async_v3(stream)
        end.record(stream)
        stream.synchronize()
        rounds.append(end.elapsed(begin) / repeats)
    return sorted(rounds)[2]


def run(path: str, load: Callable[[str], Any], ran: Any) -> dict[str, Any]:
    start = time.perf_counter()
    engine = load(path)
    seconds, out = time.perf_counter() - start, {}
    for sizes in ((1, 16), (3, 7)):
        before, given = len(ran), feeds(engine, sizes)
        got = engine(given)
        arrays = list(got.values()) if isinstance(got, dict) else [got]
        name = "x".join(map(str, sizes))
        out[name] = {"shapes": [y.shape for y in arrays], "launches": len(ran) - before}
        if not ran:
            np.savez(f"{path}.{name}.npz", *arrays)
            out[name]["inference"] = timed(engine, given)
    return {"seconds": seconds, "steps": len(engine.plan.steps), **out}


def held() -> dict[str, Any]:
    """Packages that this process has imported, and the vendor's libraries that it has loaded."""
    names = {m.partition(".")[0] for m in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
    names = {
        n for n in names if not n.startswith("_sysconfigdata")
    }  # the standard library's, named by the system
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {Path(line.split()[-1]).name for line in maps if LIBRARIES.search(line)}
    return {"packages": sorted(n for n in names if "cython" not in n), "libraries": sorted(loaded)}


def site(folder: Path) -> Path:
    """A folder with numpy, cuda-python and the lean runtime of this version."""
    import zipfile
    from io import BytesIO

    import cuda.bindings

    from tactix_ship.lean.wheel import wheel

    with zipfile.ZipFile(BytesIO(wheel())) as z:
        z.extractall(folder)
    home = Path(np.__file__).parents[1]
    for package in (home / "numpy", home / "numpy.libs", Path(cuda.bindings.__file__).parents[1]):
        if package.exists():
            (folder / package.name).symlink_to(package)
    return folder


def launch(which: str, plans: Sequence[Path], folder: Path | None = None) -> dict[str, Any]:
    """What such a process prints. ``folder``: the ``site`` of ``lean``."""
    alone = ["-S"] if which == "lean" else []
    env = {**os.environ, "PYTHONPATH": str(folder)} if which == "lean" else None
    command = [sys.executable, *alone, __file__, which, *map(str, plans)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)  # type: ignore[no-any-return]


def main(which: str, *paths: str) -> None:
    ran: Any = []
    if which == "lean":
        import tactix_lean  # type: ignore[import-not-found]

        load = partial(tactix_lean.load, on_untrusted="allow")
    else:
        block("cuda" if which == "fake" else "")
        from tactix.run.runtime import Runtime

        load = Runtime(on_untrusted="allow").deserialize
    if which == "fake":
        from tactix_cuda import device

        made, api = fake()
        device.the_device = lambda: made  # type: ignore[assignment]
        ran = api.ran
    print(json.dumps({p: run(p, load, ran) for p in paths} | held()))


if __name__ == "__main__":
    main(*sys.argv[1:])
