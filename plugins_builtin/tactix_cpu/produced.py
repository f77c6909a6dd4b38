"""Steps of machine code of which only running tells the output shapes.

Launches that name no output run first and write the sizes (``artifact.told``); then the outputs get
memory, and the others run. Both are tables of the launcher, over buffers numbered as this module
has it: the step's inputs, its outputs, the workspace, the sizes.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tactix.base.dims import Env, evaluate, evaluate_shape, symbol_name, symbols
from tactix.base.dtypes import DType
from tactix.base.errors import AllocationError, DataError, ExecutionError
from tactix.base.host_memory import check_array_fits
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.artifact import Arg, Launch
from tactix.contracts.launcher import Operand, Step
from tactix.contracts.program import PlacedPart, TellingPart
from tactix.run.arrays import address_of
from tactix_cpu.launcher import ArgumentTable, ElfRun

_steps: dict[int, ProducedStep] = {}
_making = threading.Lock()


def produced_step(step: Step) -> ProducedStep:
    """What is kept for a step as long as it lives."""
    with _making:
        found = _steps.get(id(step))
        if found is None:
            found = _steps[id(step)] = ProducedStep(step)
            weakref.finalize(step, _steps.pop, id(step), None)
        return found


def told_by(step: Step) -> tuple[str, ...]:
    """The symbols that its outputs are made of, in their order."""
    named = (symbol_name(d) for o in step.outputs for d in o.spec.shape)
    return tuple(dict.fromkeys(n for n in named if n))


class ProducedStep:
    """The launches of a step in two parts, and runs that wait to be used again."""

    def __init__(self, step: Step) -> None:
        if step.constants:
            raise ExecutionError(
                "packed constants in a step of unknown output shape",
                who=step.name,
                do="Build again",
            )
        self.name = step.name
        self.outputs = tuple(o.spec for o in step.outputs)
        self.workspace = step.artifact.workspace
        self.needed = symbols(self.workspace)
        self.told = told_by(step)
        operands = (*step.inputs, *step.outputs)
        self.shared = [(o.buffer, i) for i, o in enumerate(operands)]
        self.plain = all(
            o.buffer >= 0 and o.format == LINEAR and not o.spec.dtype.on_host for o in operands
        )
        own = _renumbered(step)
        self.parts = tuple(ArgumentTable([_part(own, writing)]) for writing in (False, True))
        self._idle: deque[ProducedRun] = deque()

    def part(self, env: Env, threads: int) -> PlacedPart | None:
        """Of a program, at sizes that are expected; None where ``env`` lacks some, and for operands
        that are no linear tensors.
        """
        if not (self.plain and env.keys() >= {*self.told}):
            return None
        run = ProducedRun(self, threads)
        shapes = run.expect(env)
        tell, write = (half.run for half in run.parts)
        expected = np.array([env[name] for name in self.told], np.int64)
        made = TellingPart(
            tell, write, run.sizes, expected, self.shared, run.scratch, self.told, self.workspace
        )
        return PlacedPart(made, shapes)

    def run(self, env: Env, values: Sequence[Any], threads: int) -> list[Any]:
        """The outputs. Raises ExecutionError, ShapeError, AllocationError."""
        try:
            run = self._idle.pop()
        except IndexError:
            run = ProducedRun(self, threads)
        try:
            return run(env, values)
        finally:
            self._idle.append(run)


def _renumbered(step: Step) -> Step:
    """The step over the buffers of this module; sizes are one more input."""
    inputs, outputs = len(step.inputs), len(step.outputs)
    sizes = Operand(inputs + outputs + 1, TensorSpec(DType.INT64, ()), LINEAR)
    own = [replace(o, buffer=i) for i, o in enumerate(step.inputs)]
    made = [replace(o, buffer=inputs + j) for j, o in enumerate(step.outputs)]
    launches = tuple(
        replace(x, args=tuple(Arg("input", inputs) if a.kind == "told" else a for a in x.args))
        for x in step.artifact.launches
    )
    return replace(
        step, artifact=replace(step.artifact, launches=launches), inputs=(*own, sizes),
        outputs=tuple(made), workspace=inputs + outputs,
    )  # fmt: skip


def _part(step: Step, writing: bool) -> Step:
    """The step with the launches alone that write outputs, or with the others."""
    made = step.artifact
    launches = tuple(x for x in made.launches if _writes(x) is writing)
    return replace(step, artifact=replace(made, launches=launches))


def _writes(launch: Launch) -> bool:
    return any(a.kind == "output" for a in launch.args)


class ProducedRun:
    """Both tables with memory of their own; one thread uses it at a time."""

    def __init__(self, step: ProducedStep, threads: int) -> None:
        self.step = step
        self.parts = [BoundTable(table, threads) for table in step.parts]
        self.sizes = np.zeros(max(1, len(step.told)), np.int64)
        self.scratch = np.empty(0, np.uint8)
        self.sizes_address, self.scratch_address = address_of(self.sizes), 0

    def __call__(self, env: Env, values: Sequence[Any]) -> list[Any]:
        tell, write = self.parts
        # kept until the run is over
        given = [x if x.flags.c_contiguous else np.ascontiguousarray(x) for x in values]
        addresses = [address_of(x) for x in given]
        early = self.step.needed <= env.keys()
        if early:
            self._reserve(env)
        nowhere = [0] * len(self.step.outputs)
        tell(env, [*addresses, *nowhere, self.scratch_address, self.sizes_address])
        env = self._learned(env)
        if not early:
            self._reserve(env)
        outputs = [self._empty(o, env) for o in self.step.outputs]
        made = [address_of(y) for y in outputs]
        write(env, [*addresses, *made, self.scratch_address, self.sizes_address])
        return outputs

    def expect(self, env: Env) -> list[tuple[int, ...]]:
        """Bind both halves at sizes that are known; where inputs and outputs lie is not. The shapes
        of the outputs. There is room for sizes that are larger by half.
        """
        self._reserve(env, 1.5)
        nowhere = [0] * len(self.step.shared)
        for half in self.parts:
            half.run.bind(env, [*nowhere, self.scratch_address, self.sizes_address])
        return [evaluate_shape(o.shape, env) for o in self.step.outputs]

    def _learned(self, env: Env) -> Env:
        """With what was told. Raises DataError where a symbol is something else already."""
        told = dict(zip(self.step.told, self.sizes.tolist(), strict=False))
        for name, size in told.items():
            if env.get(name, size) != size:
                raise DataError(
                    f"{name} is {size} here", who=self.step.name, why=f"it was {env[name]} before"
                )
        return {**env, **told}

    def _reserve(self, env: Env, spare: float = 1) -> None:
        """Room for the workspace, ``spare`` times as much as it takes."""
        wanted = int(evaluate(self.step.workspace, env) * spare)
        if self.scratch.nbytes < wanted:
            self.scratch = self._array((wanted,), np.dtype(np.uint8))
            self.scratch_address = address_of(self.scratch)

    def _empty(self, spec: TensorSpec, env: Env) -> Any:
        return self._array(evaluate_shape(spec.shape, env), spec.dtype.numpy)

    def _array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        try:
            check_array_fits(shape, dtype)
            return np.empty(shape, dtype)
        except (MemoryError, ValueError) as e:
            # ValueError: numpy has no array with dims beyond all addresses, even of no element.
            what, cure = f"no memory for {dtype}{shape}", "Give inputs that ask for less"
            raise AllocationError(what, who=self.step.name, why=str(e), do=cure) from None


class BoundTable:
    """A table at the sizes and addresses of the last run."""

    def __init__(self, table: ArgumentTable, threads: int) -> None:
        self.run = ElfRun(table, threads)
        self.env: Env = {}
        self.addresses: list[int] = []

    def __call__(self, env: Env, addresses: list[int]) -> None:
        if env != self.env or not self.addresses:
            self.run.bind(env, addresses)
            self.env = dict(env)
        else:
            for i, (old, new) in enumerate(zip(self.addresses, addresses, strict=True)):
                if old != new:
                    self.run.rebind(i, new)
        self.addresses = addresses
        self.run()
