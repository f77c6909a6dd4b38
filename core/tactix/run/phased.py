"""Running plans in which a shape follows from data: phases, cut behind each step that tells a shape.

Such a step gives arrays; their shapes bind the symbols that its outputs name, and what follows is laid out and bound
then. Nothing of this is in the way of plans whose shapes follow from the input shapes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tactix.contracts.launcher import Runnable, Step
from tactix.plan.memory import plan_memory
from tactix.run.arrays import address_of, as_input
from tactix.run.context import ExecutionContext
from tactix.run.link import Program
from tactix.run.memory import Memory
from tactix.run.shapes import solve
from tactix.words.dims import Shape, evaluate, evaluate_shape, learn, show
from tactix.words.error_recorder import recording
from tactix.words.errors import ExecutionError, InvalidArgument


class PhasedContext(ExecutionContext):
    """An ExecutionContext for plans with data-dependent shapes. Output shapes are known after each run.

    ``execute_v2`` copies outputs to the given addresses, which must have room for what the run gives.
    """

    def __init__(self, program: Program, name: str = "") -> None:
        super().__init__(program, name)
        if not program.device.host_memory:
            raise ExecutionError("data-dependent shapes run in host memory only", who=self.name)
        self._runnables: dict[int, Runnable] = {}
        self._results: dict[str, tuple[int, ...]] = {}

    def get_tensor_shape(self, name: str) -> Shape:
        """As of the last run, for an output; symbolic before it."""
        index = self._tensor_index(name)
        return (
            super().get_tensor_shape(name) if index < len(self._inputs) else self._results.get(name, self._shape(name))
        )

    def _shape(self, name: str) -> Shape:
        return next(io.shape for io in self._outputs if io.name == name)

    def infer(self, given: Sequence[Any]) -> list[Any]:
        with recording(self), self._running:
            arrays = [as_input(io, x) for io, x in zip(self._inputs, given, strict=True)]
            self._shapes = [x.shape for x in arrays]
            return self._phases([address_of(x) for x in arrays])

    def execute_v2(self, bindings: list[int]) -> bool:
        with recording(self), self._running:
            self._check_addresses(bindings)
            outputs = self._phases(bindings[: len(self._inputs)])
            for address, y in zip(bindings[len(self._inputs) :], outputs, strict=True):
                ctypes.memmove(address, address_of(y), y.nbytes)
        return True

    def execute_async_v3(self, stream: Any = 0) -> bool:
        handle = stream if isinstance(stream, int) else stream.handle
        addresses, held = list(self._addresses), dict(self._held)
        self._check_addresses(addresses)
        self._program.device.stream_of(handle).submit(partial(self._run_held, addresses, held))
        return True

    def _run_held(self, addresses: list[int], held: Mapping[str, Any]) -> None:
        """``held`` keeps the caller's arrays alive until then."""
        self.execute_v2(addresses)

    # -- phases ----------------------------------------------------------------------------------------------------

    def _phases(self, inputs: Sequence[int]) -> list[Any]:
        """All phases in order; new output arrays."""
        plan = self._program.plan
        if None in self._shapes:
            raise InvalidArgument("an input has no shape yet", do="Call set_input_shape")
        env = solve(self._inputs, [s for s in self._shapes if s is not None], plan.profiles)
        addresses = list(self._program.addresses)
        for io, address in zip(self._inputs, inputs, strict=True):
            addresses[io.buffer] = address
        arrays: dict[int, Any] = {}
        held: list[Memory] = []
        first = 0
        for k in (*plan.definers, len(plan.steps)):
            held.append(self._ordinary(first, k, env, addresses, arrays))
            if k < len(plan.steps):
                self._define(plan.steps[k], env, addresses, arrays)
            first = k + 1
        self._results = {io.name: arrays[io.buffer].shape for io in self._outputs}
        return [arrays[io.buffer] for io in self._outputs]

    def _ordinary(
        self, first: int, stop: int, env: dict[str, int], addresses: list[int], arrays: dict[int, Any]
    ) -> Memory:
        """Lay out, bind and run the steps [first, stop); their memory must live until the run is over."""
        import numpy as np

        program = self._program
        plan, steps = program.plan, program.plan.steps[first:stop]
        own = [i for i, b in enumerate(plan.buffers) if b.kind in ("arena", "workspace") and first <= b.first < stop]
        sizes = [evaluate(plan.buffers[i].nbytes, env) for i in own]
        # a buffer that a later phase reads keeps its place to the end of this one
        lives = [(plan.buffers[i].first, min(plan.buffers[i].last, stop)) for i in own]
        offsets, total = plan_memory(sizes, lives)
        memory = Memory.allocate(program.allocator, total)
        for i, offset in zip(own, offsets, strict=True):
            addresses[i] = memory.address + offset
        for o in (o for s in steps for o in s.outputs if plan.buffers[o.buffer].kind == "output"):
            arrays[o.buffer] = np.empty(o.spec.at(env), o.spec.dtype.numpy)
            addresses[o.buffer] = address_of(arrays[o.buffer])
        if steps:
            if first not in self._runnables:
                self._runnables[first] = program.device.link(steps, program.launchers, program.context)
            self._runnables[first].bind(env, addresses)
            self._runnables[first]()
        return memory

    def _define(self, step: Step, env: dict[str, int], addresses: list[int], arrays: dict[int, Any]) -> None:
        """Run a step that tells shapes, and bind its symbols."""
        launcher = self._program.launchers[step.artifact.launcher]
        found = launcher.produce(step, env, addresses, self._program.context)
        for o, a in zip(step.outputs, found, strict=True):
            bind_shape(step.name, o.spec.shape, a.shape, env)
            arrays[o.buffer] = a
            addresses[o.buffer] = address_of(a)


def bind_shape(name: str, declared: Shape, shape: tuple[int, ...], env: dict[str, int]) -> None:
    """Bind the symbols of a declared shape that have no value yet. Raises ExecutionError if the rest differs."""
    if len(declared) == len(shape):
        learn(declared, shape, env)
        if evaluate_shape(declared, env) == shape:
            return
    known = ", ".join(f"{k} = {v}" for k, v in env.items())
    raise ExecutionError(f"gave shape {show(shape)}", who=name, why=f"declared is {show(declared)} at {known}")
