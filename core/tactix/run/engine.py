"""Engine: a plan ready to run, shared by any number of contexts."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Shape, evaluate, show
from tactix.base.dtypes import DType
from tactix.base.error_recorder import Recorded
from tactix.base.errors import InvalidArgument, PlanCompatibilityError, PluginError, ShapeError
from tactix.contracts.device import Device
from tactix.contracts.flavour import Options
from tactix.contracts.session import SessionView
from tactix.plan import container
from tactix.plan.schema import Plan, TensorIO
from tactix.plugins.names import OWN
from tactix.run.admission import signer_of
from tactix.run.arrays import in_order
from tactix.run.context import ExecutionContext
from tactix.run.layout import Layout
from tactix.run.link import LinkedPlan
from tactix.run.memory import Weights
from tactix.run.memory_log import memory_told
from tactix.run.shapes import shape_of, solve

if TYPE_CHECKING:
    from tactix.contracts.shadow import OnDrift, ShadowedView


class Engine(Recorded):
    """Immutable; may be used from any thread.

    ``engine(x)``, ``engine(x, y)``, ``engine(name=x)`` and ``engine({"name": x})`` run it on numpy
    arrays, objects with ``__dlpack__`` or ``__array__``, or lists of numbers. The result is one new
    array if there is one output, else a dict of arrays by name: numpy's, or the device's for inputs
    that lie in its memory. Dtypes must fit exactly. Each calling thread has a context of its own.

    ``weights``: what to have in place of ``tactix.run.memory.Weights``. Raises
    PlanCompatibilityError, PluginError, AllocationError when made; InvalidArgument, ShapeError,
    DTypeError, AllocationError, ExecutionError when called.
    """

    def __init__(
        self,
        plan: Plan,
        session: SessionView,
        device: Device,
        options: Options,
        context: type[ExecutionContext] = ExecutionContext,
        weights: Weights | None = None,
    ) -> None:
        import numpy as np

        if plan.produced and not context.segmented:
            why = "it has shapes that follow from data, branches or loops"
            raise PlanCompatibilityError(
                "this flavour cannot run the plan", reasons=(why,), do="Use flavour 'default'"
            )
        self._context = context
        self._program = LinkedPlan(plan, session, device, options, weights)
        self.plan = plan = self._program.plan
        self.name, self.inputs, self.outputs, self.profiles = (
            plan.name,
            plan.inputs,
            plan.outputs,
            plan.profiles,
        )
        self._own = threading.local()
        self._ndarray = np.ndarray
        self._names = [io.name for io in plan.outputs]
        self._session, self._sign = session, options.sign and plan.seal is None

    # -- facts ------------------------------------------------------------------------------------

    @property
    def device(self) -> Device:
        return self._program.device

    def get_used_plugin_libraries(self) -> list[str]:
        """As of the plan."""
        return self.plan.get_used_plugin_libraries()

    @property
    def num_io_tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    def get_tensor_name(self, index: int) -> str:
        """Inputs come first. Raises InvalidArgument."""
        if index not in range(self.num_io_tensors):
            raise InvalidArgument(
                f"no tensor {index!r}", why=f"the engine has {self.num_io_tensors}"
            )
        return (*self.inputs, *self.outputs)[index].name

    def get_tensor_shape(self, name: str) -> Shape:
        """Symbolic where it depends on the input shapes. Raises InvalidArgument."""
        return self._tensor(name).shape

    def get_tensor_dtype(self, name: str) -> DType:
        """Raises InvalidArgument."""
        return self._tensor(name).dtype

    def get_tensor_mode(self, name: str) -> str:
        """``input`` or ``output``. Raises InvalidArgument."""
        return self.plan.buffers[self._tensor(name).buffer].kind

    def _tensor(self, name: str) -> TensorIO:
        for io in (*self.inputs, *self.outputs):
            if io.name == name:
                return io
        known = ", ".join(io.name for io in (*self.inputs, *self.outputs))
        raise InvalidArgument(f"no tensor is named {name!r}", do=f"There are: {known}")

    def device_memory_size(self, shapes: Mapping[str, Sequence[int]] | None = None) -> int:
        """Bytes of intermediate memory at those input shapes, for as full states as they allow;
        without them, at the highest of all profiles.

        Raises ShapeError, also if a profile has no highest; InvalidArgument.
        """
        if self.plan.produced:
            raise ShapeError("the engine's memory depends on data", who=self.name)
        if shapes is not None:
            given = zip(self.inputs, in_order(self.inputs, (shapes,), {}), strict=True)
            env = self._fullest([shape_of(io.name, s) for io, s in given])
            return self._program.at(env).layout(env).arena
        tops = [{s: high for s, (_, _, high) in p.dims.items()} for p in self.profiles]
        if self.plan.symbols and (not tops or any(None in t.values() for t in tops)):
            raise ShapeError("the profile has no highest shape", do="Give the input shapes")
        found = (self._at(t, i)[1].arena for i, t in enumerate(tops or [{}]))
        return max(found, default=0)

    def _fullest(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Symbols at these input shapes, with states that the run fills. Raises ShapeError."""
        states = self.plan.states
        if states is None:
            return solve(self.inputs, shapes, ())
        env = solve(self.inputs, shapes, (), {states.length: 0})
        env[states.length] = max(0, env[states.room] - evaluate(states.after, env))
        return env

    def _at(self, env: Mapping[str, int | None], profile: int) -> tuple[LinkedPlan, Layout]:
        """What runs at the sizes of a profile, and how its memory lies."""
        known = {s: n for s in self.plan.symbols if (n := env.get(s)) is not None}
        program = self._program.at(known, profile)
        return program, program.layout(known)

    # -- running ----------------------------------------------------------------------------------

    def create_execution_context(self) -> ExecutionContext:
        """A context of the caller's own."""
        with memory_told(self._program.logger, f"context of {self.name}", self.device):
            context = self._context(self._program)
        context.inherit_recorder(self)
        return context

    def create_execution_context_without_device_memory(self) -> ExecutionContext:
        """One that runs in what ``set_device_memory`` gives it. Raises InvalidArgument where that
        depends on data.
        """
        context = self.create_execution_context()
        context.set_device_memory(0, 0)
        return context

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        try:
            context = self._own.context
        except AttributeError:
            context = self._own.context = self.create_execution_context()
        if (
            named
            or len(args) != len(self.plan.inputs)
            or (args and args[0].__class__ is not self._ndarray)
        ):
            args = tuple(in_order(self.plan.inputs, args, named))
        outputs = context.infer(args)
        return outputs[0] if len(outputs) == 1 else dict(zip(self._names, outputs, strict=True))

    def save(self, path: str | Path) -> None:
        """Write the plan file, signed by the local key if it was made in this process. Raises
        ConfigError, OSError.

        One that was loaded keeps its signature.
        """
        container.save(self.plan, path, signer_of(self._session) if self._sign else None)

    # -- looking ----------------------------------------------------------------------------------

    def shadow(
        self, rate: float = 0.001, on_drift: OnDrift | None = None, **bounds: Any
    ) -> ShadowedView:
        """The same engine, of whose calls a share runs again on references beside it; this one
        stays as it is.

        ``rate``: the share. ``on_drift``: is called with a DriftReport of each that departs, in a
        thread of its own. ``bounds``: the other ``ShadowOptions``. Raises InvalidArgument,
        PlanCompatibilityError where a step has no reference, PluginError where nothing in use does
        that.
        """
        from tactix.contracts.shadow import ShadowFlavour, ShadowOptions

        options = ShadowOptions(rate, on_drift, **bounds)
        for flavour in self._session.flavours.values():
            if isinstance(flavour, ShadowFlavour):
                return flavour.shadow(self, self._session, options)
        why, do = self._session.why_missing(OWN, "tactix_flavours")
        raise PluginError("no flavour in use shadows engines", who=self.name, why=why, do=do)

    def inspect(self) -> dict[str, Any]:
        """io, steps and memory as JSON, in flavours that have an inspector. Raises PluginError in
        others.
        """
        raise PluginError(
            "the runtime's flavour has no inspector", who=self.name, do="Use the flavour 'default'"
        )

    def _repr_html_(self) -> str | None:
        """What a notebook shows: a picture of the plan, if a pack makes one."""
        return self._session.presented(self)

    def __repr__(self) -> str:
        taken, given = (
            ", ".join(f"{io.name}: {io.dtype.value}{show(io.shape)}" for io in ios)
            for ios in (self.inputs, self.outputs)
        )
        return f"<engine {self.name or 'without name'}: {taken} -> {given}>"
