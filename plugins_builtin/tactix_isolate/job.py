"""One candidate as another process gets it: a step without symbols or weights, and a file of what
its buffers hold.
"""

from __future__ import annotations

import contextlib
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tactix.base.dims import Env, evaluate, evaluate_shape
from tactix.base.tensor import Format, TensorSpec
from tactix.contracts.artifact import Binary, KernelArtifact
from tactix.contracts.graph import Node, Value
from tactix.contracts.launcher import Launcher, Operand, Step
from tactix.contracts.layer import Layer
from tactix.contracts.tactic import Variant
from tactix.select.bench import ALIGNMENT

WORD = 8
"""Inputs and outputs of a plan are aligned to their elements, but to no more bytes than this."""


@dataclass(frozen=True)
class JobBuffer:
    """``at``: where in the file its content is, before or after; -1 for scratch. ``written``: by
    the kernel.
    """

    name: str
    nbytes: int
    alignment: int
    written: bool
    at: int = -1


@dataclass(frozen=True)
class Job:
    """``content``: the file with what buffers hold. ``library``: that of the machine code; empty if
    there is none.

    ``launcher``, ``layers``: pickled objects that are not tactix's own, as far as they can be.
    ``outputs``: buffer, dtype and storage shape of each. ``eviction``: what is run before each run
    that is timed, if anything.
    """

    number: int
    step: Step
    env: Mapping[str, int]
    buffers: tuple[JobBuffer, ...]
    outputs: tuple[tuple[int, Any, tuple[int, ...]], ...]
    content: str
    library: str
    launcher: bytes
    layers: Mapping[str, bytes]
    eviction: Step | None = None


class Draft:
    """Makes a job. ``keep`` writes machine code to a file and tells its path."""

    def __init__(self, number: int, content: Path, keep: Callable[[bytes], str]) -> None:
        self.number, self.content, self.keep = number, content, keep
        self._buffers: list[JobBuffer] = []
        self._size = 0

    def job(
        self,
        node: Node,
        artifact: KernelArtifact,
        variant: Variant,
        arrays: Sequence[Any],
        env: Env,
        launcher: Launcher | None,
        layers: Mapping[str, Layer],
    ) -> Job:
        """Raises OSError, and whatever packing a constant, or pickling the launcher, raises."""
        with open(self.content, "wb") as self._file:
            inputs = [
                self._input(i, v, variant.input_format(i), a, env)
                for i, (v, a) in enumerate(_beside(node, arrays))
            ]
            made = [
                self._output(i, v, variant.output_format(i), env)
                for i, v in enumerate(node.outputs)
            ]
            constants = {
                name: self._add_content(f"constant {name}", p.apply(arrays), ALIGNMENT)
                for name, p in artifact.constants
            }
            size = evaluate(artifact.workspace, env)
            scratch = self._add(JobBuffer("workspace", size, ALIGNMENT, True)) if size else -1
            self._file.truncate(max(1, self._size))
        outputs = tuple(o for o, _ in made)
        step: Step = Step(
            node.name, _settled(artifact, env), tuple(inputs), outputs, constants, scratch
        )
        code = artifact.code
        return Job(
            self.number,
            step,
            dict(env),
            tuple(self._buffers),
            tuple((o.buffer, o.spec.dtype, shape) for o, shape in made),
            str(self.content),
            self.keep(code.blob) if isinstance(code, Binary) else "",
            pickle.dumps(launcher),
            _pickled(layers),
        )

    def _input(self, i: int, v: Value, fmt: Format, array: Any, env: Env) -> Operand:
        alignment = ALIGNMENT if v.const is not None else _alignment(v, fmt)
        return Operand(
            self._add_content(f"input {i}", fmt.pack(array), alignment), _spec(v, env), fmt
        )

    def _output(self, i: int, v: Value, fmt: Format, env: Env) -> tuple[Operand, tuple[int, ...]]:
        shape = evaluate_shape(fmt.storage_shape(v.spec.shape), env)
        nbytes = math.prod(shape) * v.spec.dtype.itemsize
        index = self._add(JobBuffer(f"output {i}", nbytes, _alignment(v, fmt), True, self._size))
        self._size += nbytes
        return Operand(index, _spec(v, env), fmt), shape

    def _add_content(self, name: str, array: Any, alignment: int) -> int:
        import numpy as np

        self._file.seek(self._size)
        self._file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        at, self._size = self._size, self._size + array.nbytes
        return self._add(JobBuffer(name, array.nbytes, alignment, False, at))

    def _add(self, buffer: JobBuffer) -> int:
        self._buffers.append(buffer)
        return len(self._buffers) - 1


def _pickled(layers: Mapping[str, Layer]) -> dict[str, bytes]:
    """Those that can be sent; the others must be installed, where the other process finds them."""
    out = {}
    for key, layer in layers.items():
        with contextlib.suppress(Exception):
            out[key] = pickle.dumps(layer)
    return out


def _beside(node: Node, arrays: Sequence[Any]) -> list[tuple[Value, Any]]:
    return list(zip(node.given, arrays, strict=True))


def _alignment(v: Value, fmt: Format) -> int:
    return max(1, min(WORD, v.spec.dtype.itemsize)) if fmt.is_linear else ALIGNMENT


def _spec(v: Value, env: Env) -> TensorSpec:
    return TensorSpec(v.spec.dtype, v.spec.at(dict(env)))


def _settled(artifact: KernelArtifact, env: Env) -> KernelArtifact:
    """Without symbols, constants and machine code, which go their own ways."""
    launches = tuple(
        replace(x, args=tuple(replace(a, value=evaluate(a.value, env)) for a in x.args))
        for x in artifact.launches
    )
    code = replace(artifact.code, blob=b"") if isinstance(artifact.code, Binary) else None
    size = evaluate(artifact.workspace, env)
    return replace(
        artifact,
        launches=launches,
        code=code,
        workspace=size,
        constants=(),
        params=dict(artifact.params),
    )
