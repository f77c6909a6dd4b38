#!/usr/bin/env python3
"""Cold start: from the first statement of a fresh process to the first answer, and the memory that
took.

    python tests/benchmarks/lean_start.py [MODEL.onnx] [--rounds N]

The lean runtime (its wheel, installed into a folder), tactix, and onnxruntime run the same model on
one thread, in turns; numpy alone is what all three import first. All find bytecode, as after an
installation. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import tactix
from tactix_ship.lean import wheel

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

START = """
import time; t = time.perf_counter(); import sys, numpy as np
n, c = time.perf_counter(), time.process_time()
"""
END = """
end, numbers = time.perf_counter(), "VmHWM"
peak = next(int(x.split()[1]) for x in open("/proc/self/status") if x.startswith(numbers))
print(end - t, end - n, time.process_time() - c, peak / 1024)
"""
ENGINE = """
e = {package}.load(sys.argv[1], max_threads=1)
e(*[np.zeros([d if isinstance(d, int) else 1 for d in i.shape], i.dtype.numpy) for i in e.inputs])
"""
ONNXRUNTIME = """
import onnxruntime as ort
options = ort.SessionOptions(); options.intra_op_num_threads = 1
s = ort.InferenceSession(sys.argv[2], options, ["CPUExecutionProvider"])
s.run(None, {x.name: np.zeros([d if isinstance(d, int) else 1 for d in x.shape], np.float32) for x in s.get_inputs()})
"""
PROGRAMS = {
    "numpy alone": "",
    "tactix_lean": "import tactix_lean" + ENGINE.format(package="tactix_lean"),
    "tactix": "import tactix" + ENGINE.format(package="tactix"),
    "onnxruntime": ONNXRUNTIME,
}


def install(folder: Path) -> None:
    """The wheel, as pip leaves it, below the folder."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(folder / "site"),
    ]
    subprocess.run([*pip, str(wheel.write(folder))], check=True)


def once(program: str, plan: Path, model: Path, folder: Path) -> list[float]:
    """Seconds to the first answer, those after numpy was there, processor seconds of these; peak
    resident MiB.
    """
    command = [sys.executable, "-c", START + PROGRAMS[program] + END, str(plan), str(model)]
    keep = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join([str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**keep, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    return [float(x) for x in subprocess.check_output(command, text=True, env=env).split()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", type=Path, default=MODEL)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tactix-lean-") as name:
        folder = Path(name)
        install(folder)
        plan = folder / "it.plan"
        tactix.build(options.model, threads=1).save(plan)
        found: dict[str, list[list[float]]] = {p: [] for p in PROGRAMS}
        for i in range(options.rounds + 1):
            for program in PROGRAMS:
                row = once(program, plan, options.model, folder)
                found[program] += [row] if i else []  # the first leaves bytecode
    base = statistics.median(row[3] for row in found["numpy alone"])
    print(
        f"{options.model.name}; wheel {len(wheel.wheel()):,} bytes, installed {wheel.installed_size():,} bytes\n"
    )
    print(
        "| | to the first answer | fastest | after numpy | fastest | processor time of that | memory | above numpy |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for program, rows in found.items():
        total, after, busy, peak = (statistics.median(column) for column in zip(*rows, strict=True))
        least, least_after, _, _ = (min(column) for column in zip(*rows, strict=True))
        times = " | ".join(f"{x * 1e3:.0f} ms" for x in (total, least, after, least_after, busy))
        print(f"| {program} | {times} | {peak:.1f} MiB | {peak - base:.1f} MiB |")


if __name__ == "__main__":
    main()
