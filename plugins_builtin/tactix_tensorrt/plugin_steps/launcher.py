"""Runs steps that are plugins: on the host's addresses, or on a GPU's in a stream."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from tactix.base import dims
from tactix.base.dims import Env, evaluate
from tactix.base.errors import ExecutionError, TactixError
from tactix.contracts.launcher import Launcher, LinkContext, Operand, Runnable, Step, StepBody
from tactix_tensorrt.plugin_steps import CUDA, HOST

if TYPE_CHECKING:
    from tactix.plan.schema import Plan
    from tactix_tensorrt.plugin_steps.held import Held
    from tactix_tensorrt.plugin_steps.running import Task
    from tactix_tensorrt.plugin_steps.views import PluginView


class PluginLauncher(Launcher):
    """``params``: what ``Saved.to_json`` gives, ``tactic``, ``in_place`` (outputs in the memory of
    inputs), ``sizes`` (of size tensors: output, symbol, largest) and ``workspace`` in bytes.
    """

    key = HOST
    host_code = False

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError where the plugin's creator is not registered."""
        return PluginRun([PluginStep(s) for s in steps])

    def produce(
        self,
        step: Step,
        env: Env,
        values: Sequence[Any],
        bodies: Sequence[StepBody],
        ctx: LinkContext,
    ) -> list[Any]:
        """The results in memory of their own. Raises ExecutionError."""
        from tactix_tensorrt.plugin_steps.device_arrays import OnDevice, OnHost
        from tactix_tensorrt.plugin_steps.running import computed

        view, place = plugin_of(step), OnHost() if ctx.device.host_memory else OnDevice()
        try:
            return list(computed(view, task_of(step), values, env, place))
        finally:
            _ended(view)


class CudaPluginLauncher(PluginLauncher):
    """The same with a GPU's addresses, and its stream."""

    key = CUDA
    device = "cuda"

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError where the plugin's creator is not registered."""
        stream: StreamedDevice = ctx.device  # type: ignore[assignment]
        return CudaPluginRun([PluginStep(s) for s in steps], stream)


class StreamedDevice(Protocol):
    """What is used of ``tactix_cuda``'s device, which this package does not import."""

    driver: Any

    def activate(self) -> None: ...
    def current(self) -> Any: ...
    def settle(self) -> None: ...


_BUILDING: dict[str, Held] = {}
"""Plugins of builds that are under way, by what they are as data: their own objects are timed."""
_LOCK = threading.Lock()


@contextmanager
def building(helds: Sequence[Held]) -> Iterator[None]:
    """Inside, steps of these plugins run clones of them, and need no creator."""
    own = {held.saved.digest: held for held in helds}
    with _LOCK:
        _BUILDING.update(own)
    try:
        yield
    finally:
        with _LOCK:
            for name in own:
                _BUILDING.pop(name, None)


def plugin_of(step: Step) -> PluginView:
    """The plugin for one context. Raises ExecutionError, also for params that tell none."""
    from tactix_tensorrt.plugin_steps.identity import Saved
    from tactix_tensorrt.plugin_steps.views import view_of

    params = dict(step.artifact.params)
    saved = Saved.from_json(params)
    held = _BUILDING.get(saved.digest)
    view = held.view if held else view_of(saved.create(step.name))
    own = view.attached()
    tactic = params.get("tactic", 0)
    own.choose(tactic if isinstance(tactic, int) else 0)
    return own


def check(plan: Plan) -> None:
    """Make each plugin of a plan, and of the plans in it, once. Raises ExecutionError for the first
    that cannot be made.
    """
    from tactix_tensorrt.plugin_steps.identity import Saved

    for step in plan.steps:
        if step.artifact.launcher in (HOST, CUDA):
            Saved.from_json(dict(step.artifact.params)).create(step.name)
        for inner in step.plans:
            check(inner)


def task_of(step: Step) -> Task:
    """Raises ExecutionError for params that are none."""
    from tactix_tensorrt.api.plugin_sizes import SizeTensor
    from tactix_tensorrt.plugin_steps.running import Task

    params: Mapping[str, Any] = step.artifact.params
    try:
        sizes = [
            SizeTensor(int(o), str(s), 0, dims.from_json(most)) for o, s, most in params["sizes"]
        ]
        workspace = int(params["workspace"])
    except (KeyError, TypeError, ValueError, TactixError) as e:
        raise ExecutionError("the plan tells no plugin", who=step.name, why=repr(e)) from None
    return Task([o.spec for o in step.outputs], sizes, step.artifact.in_place, workspace)


def _ended(view: PluginView) -> None:
    """What a plugin raises when it is given up has no consequence any more."""
    with suppress(TactixError):
        view.end()


class PluginStep:
    """One plugin at the shapes that are bound."""

    def __init__(self, step: Step) -> None:
        self.name = step.name
        self._view, self._task = plugin_of(step), task_of(step)
        self._inputs, self._outputs = step.inputs, step.outputs
        self._scratch = step.workspace
        self._env: dict[str, int] | None = None
        self._places: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        weakref.finalize(self, _ended, self._view)

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        """Raises ExecutionError."""
        from tactix_tensorrt.plugin_steps.running import desc

        own = (*self._inputs, *self._outputs)
        self._places = {o.buffer: addresses[o.buffer] for o in own if o.buffer >= 0}
        if self._scratch >= 0:
            self._places[self._scratch] = addresses[self._scratch]
        if self._env == dict(env):
            return
        self._sizes = {o.buffer: evaluate(o.spec.nbytes(o.format), env) for o in own}
        self._given = [desc(o.spec, env) for o in self._inputs]
        self._made = [desc(o.spec, env) for o in self._outputs]
        self._view.reshape(self._given, self._made)
        self._env = dict(env)

    def rebind(self, buffer: int, address: int) -> None:
        if buffer in self._places:
            self._places[buffer] = address

    def lends(self) -> dict[int, int]:
        """Bytes of what the plugin is given, by address."""
        sizes = {**self._sizes, self._scratch: self._task.workspace}
        return {place: sizes[buffer] for buffer, place in self._places.items()}

    def moves(self) -> list[tuple[int, int, int]]:
        """What is copied before a run, for plugins that change inputs where they lie: to, from,
        bytes. An input keeps its content that way, whoever reads it.
        """
        pairs = [(self._outputs[o].buffer, self._inputs[i].buffer) for o, i in self._task.aliases]
        places = self._places
        return [(places[o], places[i], self._sizes[i]) for o, i in pairs if places[o] != places[i]]

    def run(self, stream: int) -> None:
        """Raises ExecutionError."""
        from tactix_tensorrt.plugin_steps.views import Addresses

        reads, writes = self._at(self._inputs), self._at(self._outputs)
        for output, source in self._task.aliases:
            reads[source] = writes[output]
        at = Addresses(reads, writes, self._places.get(self._scratch, 0), stream)
        try:
            self._view.enqueue(self._given, self._made, at)
        except ExecutionError as e:
            e.who = f"{self.name}: {e.who}"
            raise

    def _at(self, operands: Sequence[Operand]) -> list[int]:
        return [self._places.get(o.buffer, 0) for o in operands]


class PluginRun:
    """Plugins in order, on the host."""

    def __init__(self, steps: Sequence[PluginStep]) -> None:
        self.steps = tuple(steps)

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        for s in self.steps:
            s.bind(env, addresses)

    def rebind(self, buffer: int, address: int) -> None:
        for s in self.steps:
            s.rebind(buffer, address)

    def __call__(self) -> None:
        from tactix_tensorrt.cuda_stand_in.machine import MACHINE

        for s in self.steps:
            for target, source, size in s.moves():
                ctypes.memmove(target, source, size)
            with MACHINE.memory.lent(s.lends()):
                s.run(0)

    def repeat(self, times: int) -> None:
        for _ in range(times):
            self()


class CudaPluginRun(PluginRun):
    """Plugins in order, in the stream that the thread submits to."""

    def __init__(self, steps: Sequence[PluginStep], device: StreamedDevice) -> None:
        super().__init__(steps)
        self._device = device

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        self._device.activate()
        super().bind(env, addresses)

    def __call__(self) -> None:
        device = self._device
        device.activate()
        stream = device.current().native
        for s in self.steps:
            for target, source, size in s.moves():
                device.driver.call("cuMemcpyDtoDAsync", target, source, size, stream)
            s.run(int(stream))
        device.settle()
