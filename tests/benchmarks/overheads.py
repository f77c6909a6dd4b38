#!/usr/bin/env python3
"""What stands around the kernels: importing, loading a plan, and one call from Python.

    python tests/benchmarks/overheads.py [MODEL.onnx]

Import and load are medians over fresh processes that find bytecode, as after an installation; a
call's overhead is its median less the kernels' own time, which one native loop over the bound steps
gives. Prints Markdown.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tactix

MODEL = Path(__file__).parents[1] / "models" / "mlp.onnx"
IMPORT = "import time; t = time.perf_counter(); import tactix; print(time.perf_counter() - t)"
LOAD = """
import time, sys, numpy as np; t = time.perf_counter(); import tactix
e = tactix.load(sys.argv[1])
e(*[np.zeros([d if isinstance(d, int) else 1 for d in i.shape], i.dtype.numpy) for i in e.inputs])
print(time.perf_counter() - t)
"""


def fresh(code: str, *arguments: str, times: int = 9) -> float:
    """Median of the seconds that fresh processes print, after one that leaves bytecode for them."""
    command = [sys.executable, "-c", code, *arguments]
    with tempfile.TemporaryDirectory(prefix="tactix-bytecode-") as bytecode:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = bytecode
        found = [
            float(subprocess.check_output(command, text=True, env=env)) for _ in range(times + 1)
        ]
    return statistics.median(found[1:])


def median_call(call: Callable[[], object], seconds: float = 1.0) -> float:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        t = time.perf_counter()
        call()
        times.append(time.perf_counter() - t)
    return statistics.median(times)


def main() -> None:
    model = Path(sys.argv[1]) if len(sys.argv) > 1 else MODEL
    engine = tactix.build(model, threads=1)
    arrays = [
        np.zeros([d if isinstance(d, int) else 1 for d in i.shape], i.dtype.numpy)
        for i in engine.inputs
    ]
    context = engine.create_execution_context()
    outputs = context.infer(arrays)
    bindings = [a.__array_interface__["data"][0] for a in (*arrays, *outputs)]
    bound = context._active[0]  # type: ignore[index]
    context.execute_v2(bindings)
    kernels = min(engine.device.measure(bound.runnable, 2000) / 2000 for _ in range(7))
    with tempfile.TemporaryDirectory() as folder:
        engine.save(plan := Path(folder) / "model.plan")
        rows = [
            ("import tactix", fresh(IMPORT) * 1e3, "ms"),
            (
                "import, load the plan, first answer (numpy already imported)",
                fresh(LOAD, str(plan)) * 1e3,
                "ms",
            ),
        ]
    least = kernels + median_call(lambda: None)  # what timing a call takes
    rows += [
        ("kernels of one call", kernels * 1e6, "us"),
        ("engine(x) above the kernels", (median_call(lambda: engine(*arrays)) - least) * 1e6, "us"),
        (
            "execute_v2 above the kernels",
            (median_call(lambda: context.execute_v2(bindings)) - least) * 1e6,
            "us",
        ),
    ]
    print(f"{model.stem}, batch 1, 1 thread\n\n| what | median |\n|---|---|")
    for what, value, unit in rows:
        print(f"| {what} | {value:.2f} {unit} |")


if __name__ == "__main__":
    main()
