"""Runs that are observed: each step runs by itself, between what an observer does before and after
it, with the step's operands as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from tactix.base.dims import Env, evaluate_shape
from tactix.base.errors import InvalidArgument
from tactix.base.spelling import did_you_mean
from tactix.contracts.device import Device
from tactix.contracts.launcher import Operand, Runnable, Step
from tactix.plan.schema import Plan
from tactix.run.arrays import read
from tactix.run.segments import Segments

MAKES = "makes"
"""In ``Step.info``: the model's names of the tensors that a step makes, "" for one without."""


class RunningStep:
    """One step of a run, which ``run`` runs once. ``plan``: the one that it is of, perhaps of a
    body. ``env``: the values of the symbols.
    """

    def __init__(self, plan: Plan, step: Step[Plan], env: Env) -> None:
        self.plan, self.step, self.env = plan, step, env

    def run(self) -> None:
        """By its own kernels. Raises ExecutionError."""
        raise NotImplementedError

    def stored(self, o: Operand) -> Any:
        """An operand as it lies in memory: an array of its format's storage shape, in place where
        the device's memory is the host's. An output has its content once the step has run.
        """
        raise NotImplementedError

    def store(self, o: Operand, x: Any) -> None:
        """Another content for an operand, as ``stored`` gives it, which all later steps read."""
        raise NotImplementedError

    def read(self, o: Operand) -> Any:
        """An operand as a linear array of the host, which later steps leave as it is; Python
        objects as they are.
        """
        return o.format.unpack(self.stored(o), self.shape(o)).copy()

    def write(self, o: Operand, x: Any) -> None:
        """Another content for an operand, a linear array of its dtype and shape."""
        self.store(o, o.format.pack(x))

    @contextmanager
    def placed(self, addresses: Mapping[int, int]) -> Iterator[None]:
        """Meanwhile ``run`` finds these buffers at other addresses of the device."""
        raise NotImplementedError
        yield

    def shape(self, o: Operand) -> tuple[int, ...]:
        """Of an operand. Raises ShapeError where only running tells it."""
        return evaluate_shape(o.spec.shape, self.env)


class StepObserver(Protocol):
    """Sees every step of a run, those of bodies in each of their runs among them."""

    def step(self, running: RunningStep, /) -> None:
        """In place of a step: calls ``running.run()``, or writes all outputs itself."""


class AddressedStep(RunningStep):
    """A step that was linked alone, over buffers at addresses."""

    def __init__(
        self,
        plan: Plan,
        step: Step[Plan],
        env: Env,
        device: Device,
        part: Runnable,
        addresses: Sequence[int],
    ) -> None:
        super().__init__(plan, step, env)
        self._device, self._part, self._addresses = device, part, addresses

    def run(self) -> None:
        self._device.timed(self._part)  # which waits for a device that works beside the host

    def stored(self, o: Operand) -> Any:
        if o.buffer < 0:
            raise InvalidArgument("the plan holds no such operand", who=self.step.name)
        shape = evaluate_shape(o.format.storage_shape(o.spec.shape), self.env)
        return read(self._device, o.spec.dtype, shape, self._addresses[o.buffer])

    def store(self, o: Operand, x: Any) -> None:
        if x.nbytes:
            self._device.copy_in(self._addresses[o.buffer], x)

    @contextmanager
    def placed(self, addresses: Mapping[int, int]) -> Iterator[None]:
        for buffer, address in addresses.items():
            self._part.rebind(buffer, address)
        try:
            yield
        finally:
            for buffer in addresses:
                self._part.rebind(buffer, self._addresses[buffer])


class ObservedSteps(Segments):
    """Steps that an observer runs one by one. ``parts``: one for each step."""

    def __init__(
        self,
        plan: Plan,
        steps: Sequence[Step[Plan]],
        parts: Sequence[Runnable],
        device: Device,
        observer: StepObserver,
    ) -> None:
        super().__init__(parts)
        self._plan, self._steps, self._device, self._observer = plan, steps, device, observer
        self._env: Env = {}
        self._addresses: list[int] = []

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        self._env, self._addresses = dict(env), list(addresses)
        super().bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        self._addresses[buffer] = address
        super().rebind(buffer, address)

    def __call__(self) -> None:
        for step, part in zip(self._steps, self.parts, strict=True):
            self._observer.step(
                AddressedStep(self._plan, step, self._env, self._device, part, self._addresses)
            )


# -- debug tensors -------------------------------------------------------------------------------


DebugListener = Callable[[str, Any], None]
"""Takes the name of a tensor and its content: a linear numpy array of its own."""


class DebugTensors:
    """Tells a listener of the tensors of these names as steps make them."""

    def __init__(self, names: Collection[str], listener: DebugListener) -> None:
        self._names, self._listener = frozenset(names), listener

    def step(self, running: RunningStep, /) -> None:
        running.run()
        for name, o in made(running.plan, running.step):
            if name in self._names:
                self._listener(name, running.read(o))


def made(plan: Plan, step: Step[Plan]) -> Iterator[tuple[str, Operand]]:
    """What a step makes, by the model's names; else by those that the plan has for it."""
    told = step.info.get(MAKES)
    known = told if isinstance(told, list) and len(told) == len(step.outputs) else ()
    for i, o in enumerate(step.outputs):
        yield str(known[i] if known and known[i] else plan.buffers[o.buffer].name), o


def check_made(plan: Plan, names: Collection[str]) -> None:
    """Raises InvalidArgument for names of tensors that no step makes."""
    there = {name for p in plan.nested() for s in p.steps for name, _ in made(p, s)}
    for name in sorted(frozenset(names) - there):
        raise InvalidArgument(
            f"no step of the plan makes a tensor {name!r}",
            why="it is none of the model's, or lies inside a fused layer",
            do=did_you_mean(name, there) or "Mark it as an output of the network, and build again",
        )
