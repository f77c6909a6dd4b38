"""The roofline of a model here: its operations and bytes, and what ``roofline.c`` measures that the
machine can do.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Shape = tuple[int, ...]
SOURCE = Path(__file__).with_name("roofline.c")
SAMPLES, SAMPLE_SECONDS = 3, 0.01


@dataclass(frozen=True)
class Work:
    """What one call needs at least: ``operations`` of products (a multiply-add is two), ``moved``
    bytes.

    ``moved`` holds every constant once, of a table that is looked up only the rows, and the inputs
    and outputs.
    """

    operations: float
    moved: float


def count(path: Path, shapes: Mapping[str, Shape], precision: str = "fp32") -> Work:
    """The work of a model as it is written: convolutions, products, recurrences; bfloat16 halves
    float constants.
    """
    from tactix.base.dims import evaluate, learn
    from tactix.builder import Builder

    net = Builder().import_model(path)
    env: dict[str, int] = {}
    for v in net.inputs:
        learn(v.spec.shape, shapes[v.name], env)

    def shape(v: Any) -> Shape:
        return tuple(v.spec.at(env))

    products = [n.operations for n in net.nodes if not n.is_pointwise]
    operations = float(sum(evaluate(d, env) for d in products))
    tables = {n.given[0] for n in net.nodes if n.layer.name == "Gather"}
    constants = {v for n in net.nodes for v in n.given if v.const is not None and v not in tables}
    half = 0.5 if precision == "bf16" else 1.0
    moved = sum(v.const.nbytes * (half if v.spec.dtype.is_float else 1) for v in constants)
    moved += sum(_size(shape(v)) * v.spec.dtype.itemsize for v in (*net.inputs, *net.outputs))
    rows = [
        n.outputs[0] for n in net.nodes if n.layer.name == "Gather" and n.given[0].const is not None
    ]
    return Work(operations, moved + sum(_size(shape(v)) * v.spec.dtype.itemsize for v in rows))


def _size(shape: Shape) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


class Machine:
    """``roofline.c``, compiled for this machine, in a process of its own. Raises OSError,
    CalledProcessError.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="roofline-")
        program = Path(self._folder.name) / "roofline"
        compiler = shlex.split(os.environ.get("CC", "cc"))
        native = "-mcpu=native" if os.uname().machine == "aarch64" else "-march=native"
        command = [
            *compiler,
            "-O3",
            native,
            "-ffp-contract=fast",
            "-pthread",
            str(SOURCE),
            "-o",
            str(program),
        ]
        subprocess.run(command, check=True, stdout=sys.stderr)
        self._process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rate(self, kind: str, threads: int, moved: float = 0) -> float:
        """Operations (``fp32``, ``bf16``, ``int8``) or bytes (``read``, of so many) in a second:
        the best sample.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for _ in range(SAMPLES):
            self._process.stdin.write(f"{kind} {threads} {SAMPLE_SECONDS} {int(moved)}\n")
        self._process.stdin.flush()
        return max(float(self._process.stdout.readline()) for _ in range(SAMPLES))

    def least_seconds(self, work: Work, precision: str, threads: int) -> float:
        """What the model needs at least, as the machine is now: the slower one of computing and
        reading.

        A precision that the machine has no instruction for counts as float32.
        """
        peak = self.rate(precision, threads) or self.rate("fp32", threads)
        moved = max(work.moved, 4096.0)
        return max(work.operations / peak, moved / self.rate("read", threads, moved))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()
