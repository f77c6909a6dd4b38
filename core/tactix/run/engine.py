"""Engine: a plan ready to run, shared by any number of contexts."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tactix.base.cores import usable_cores
from tactix.base.dims import evaluate
from tactix.base.errors import (
    InvalidArgument,
    PlanCompatibilityError,
    PluginError,
    ShapeError,
)
from tactix.contracts.device import Device
from tactix.contracts.flavour import Options
from tactix.contracts.session import SessionView
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.names import OWN
from tactix.run.admission import signer_of
from tactix.run.arrays import check_named, in_order
from tactix.run.closed_part import ClosedPart
from tactix.run.context import BOUND, ExecutionContext
from tactix.run.engine_facts import EngineFacts
from tactix.run.layout import Layout
from tactix.run.link import LinkedPlan
from tactix.run.memory import Weights
from tactix.run.memory_log import memory_told
from tactix.run.plan_file import PlanFile
from tactix.run.request_stats import RequestLog, RequestOutcome
from tactix.run.shapes import shape_of, solve
from tactix.run.warm_up import zero_feeds

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tactix.base.arrays import Array
    from tactix.contracts.allocator import Allocator
    from tactix.contracts.shadow import OnDrift, ShadowedView
    from tactix.run.request_pool import RequestPool

MAX_QUEUE = 64
"""Requests that wait for a context before others are refused, unless ``set_pool`` says otherwise.
No measurement is on record: a handful of batches.
"""
MOST_CONTEXTS = 1024
"""Of a pool: each has a thread and intermediate memory, and all are made before the first request
runs.
"""


class Engine(EngineFacts):
    """Immutable, until it is closed; may be used from any thread, and in ``with``.

    ``engine(x)``, ``engine(x, y)``, ``engine(name=x)`` and ``engine({"name": x})`` run it on numpy
    arrays, objects with ``__dlpack__`` or ``__array__``, or lists of numbers. The result is one new
    array if there is one output, else a dict of arrays by name: numpy's, or the device's for inputs
    that lie in its memory. Dtypes must fit exactly. Each calling thread has a context of its own.
    ``run`` is the same with types, and arrays to write into; ``await engine.run_async(...)`` runs
    on a pool of contexts.

    ``closed``: whether it can run no more.

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
        super().__init__(plan := self._program.plan)
        self._own = threading.local()
        self._ndarray = np.ndarray
        self._names = [io.name for io in plan.outputs]
        self._session, self._sign = session, options.sign and plan.seal is None
        self._options = options
        self._log, self._pool = RequestLog(), cast("RequestPool | None", None)
        self._pool_size, self._max_queue, self._pool_shapes = 0, MAX_QUEUE, BOUND
        self._contexts: weakref.WeakSet[ExecutionContext] = weakref.WeakSet()
        self._births = threading.RLock()  # held while a context is made, or while none may be
        self.survive_forks()

    # -- facts ------------------------------------------------------------------------------------

    @property
    def device(self) -> Device:
        return self._program.device

    @property
    def devices(self) -> tuple[Device, ...]:
        """The one, as an engine of several has all."""
        return (self.device,)

    @property
    def allocator(self) -> Allocator:
        """What its memory is from."""
        return self._program.allocator

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
        """A context of the caller's own. Raises what making it raises; EngineClosed."""
        with self._births:
            with memory_told(self._program.logger, f"context of {self.name}", self.device):
                context = self._context(self._program)
            context.inherit_recorder(self)
            self._contexts.add(context)
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
            context = self._own_context()
        if (
            named
            or len(args) != len(self.plan.inputs)
            or (args and args[0].__class__ is not self._ndarray)
        ):
            args = tuple(context.ordered(args, named))
        outputs = context.infer(args)
        return outputs[0] if len(outputs) == 1 else dict(zip(self._names, outputs, strict=True))

    def run(
        self, inputs: Mapping[str, ArrayLike], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Outputs by name for inputs by name, on the calling thread's own context.

        ``out``: arrays that outputs are written into, some or all, by name; see
        ``ExecutionContext.run_into``. The results are these, and new arrays for the others.
        Arrays as for a call, and raises as that.
        """
        check_named(inputs)
        self._log.came()
        start, outcome = time.perf_counter(), RequestOutcome.FAILED
        try:
            context = self._own_context()
            results = context.run(inputs) if out is None else context.run_into(inputs, out)
            outcome = RequestOutcome.ANSWERED
        finally:
            seconds = time.perf_counter() - start
            self._log.ended(outcome, seconds, 0.0, seconds)
        return results

    def _own_context(self) -> ExecutionContext:
        """The calling thread's."""
        if not hasattr(self._own, "context"):
            self._own.context = self.create_execution_context()
        context: ExecutionContext = self._own.context
        return context

    async def run_async(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        timeout: float | None = None,
        wait: bool = False,
        outputs: Collection[str] | None = None,
    ) -> dict[str, Array]:
        """As ``run``, on a context of the pool: see ``set_pool``. Arrays must stay as they are
        until it returns, or, if it is cancelled, until the request has run.

        ``timeout``: seconds. ``wait``: wait behind any number of requests; else one that finds
        ``max_queue`` waiting is refused. ``outputs``: names of those that are asked for, None for
        all; see ``ExecutionContext.run``. Cancelled, or late, a request that waits never starts,
        and one that runs goes on and its results are dropped. There is no ``out``, as these would
        then still be written. Raises as ``run``; QueueFull, DeadlineExceeded, EngineClosed.
        """
        from tactix.run.async_requests import answered

        return await answered(self._running_pool(), self._log, inputs, timeout, wait, outputs)

    def set_pool(
        self, contexts: int = 0, max_queue: int = MAX_QUEUE, shape_cache_size: int = BOUND
    ) -> None:
        """How ``run_async`` runs, before it first does.

        ``contexts``: how many requests run at once, at most MOST_CONTEXTS; 0, the default, stands
        for the cores that this process may use by the threads that a context has, and for 2 on a
        device with memory of its own, so that one copies while the other runs. ``max_queue``: how
        many others may wait.
        Raises InvalidArgument, EngineClosed.
        """
        if not isinstance(contexts, int) or not 0 <= contexts <= MOST_CONTEXTS:
            do = f"Give an integer from 0 to {MOST_CONTEXTS}"
            raise InvalidArgument(f"a pool of {contexts!r} contexts", do=do)
        for name, n in (("max_queue", max_queue), ("shape_cache_size", shape_cache_size)):
            if not isinstance(n, int) or n < 1:
                raise InvalidArgument(f"{name} is {n!r}", do="Give an integer from 1 up")
        with self._births:
            if self.closed:
                raise self._ended()
            if self._pool is not None:
                do = "Call set_pool before run_async and warm_up"
                raise InvalidArgument("the pool runs already", who=self.name, do=do)
            self._pool_size, self._max_queue = contexts, max_queue
            self._pool_shapes = shape_cache_size

    def _running_pool(self) -> RequestPool:
        """The pool of this process, made when it is first needed. Raises EngineClosed."""
        if (pool := self._pool) is not None:
            return pool
        from tactix.run.request_pool import RequestPool

        with self._births:
            if self._pool is None:
                contexts = self.pool_contexts()
                self._pool = RequestPool(self.name or "engine", contexts, self._max_queue)
            return self._pool

    def pool_contexts(self) -> list[ExecutionContext]:
        """New ones, as many as a pool of requests has and as ``set_pool`` says, which do not keep
        the engine. Raises EngineClosed.
        """
        contexts = [self.create_execution_context() for _ in range(self.pool_size)]
        for context in contexts:
            context.shape_cache_size = self._pool_shapes
            context.inherit_recorder(weakref.proxy(self))  # threads keep no engine
        return contexts

    @property
    def pool_size(self) -> int:
        """Contexts of the pool: see ``set_pool``."""
        if self._pool_size:
            return self._pool_size
        if not self.device.host_memory:
            return 2
        return max(1, usable_cores() // self._program.context.threads)

    def warm_up(
        self, shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]] = ()
    ) -> None:
        """Run the calling thread's context, and all of the pool, on zeros: what a first run at a
        shape has to do is done then.

        ``shapes``: of all inputs by name, or several such; without them those that each profile is
        tuned for. Raises InvalidArgument where nothing tells a shape; as ``run``.
        """
        contexts = [self._own_context(), *self._running_pool().contexts]
        for feeds in zero_feeds(self.plan, shapes):
            for context in contexts:
                context.run(feeds)

    # -- ending, and other processes --------------------------------------------------------------

    def close(self) -> None:
        """Give back contexts, memory and code, and unmap the weights, but for what callers still
        hold of ``plan``.

        Calls and requests that run are waited for; not what they have left in a stream. Requests
        that wait, and whatever is asked later, of its contexts as well, are an EngineClosed. A
        second call does nothing. Not to be called by what looks on at a run of this engine.
        """
        with self._births:
            if self.closed:
                return
            self.closed = True
            pool, self._pool = self._pool, None
            contexts = list(self._contexts)
            self._program = cast(LinkedPlan, ClosedPart(self._ended))
        if pool is not None:
            pool.close(self._ended)
        for context in contexts:
            context.end(self._ended)
        contexts.clear()
        self._let_go()

    def _let_go(self) -> None:
        """Of all that refers to weights and code; no context runs any more."""
        self._own = threading.local()
        self.plan = cast(Plan, ClosedPart(self._ended))

    def after_fork(self) -> None:
        """In the child: locks that other threads may have held, and threads, are of the parent."""
        self._births, self._own = threading.RLock(), threading.local()
        if self._pool is not None:
            self._pool.after_fork()
        self._log, self._pool = RequestLog(), None
        for context in list(self._contexts):
            context.after_fork()
        if not self.closed:
            self._program.after_fork()

    def save(self, path: str | Path) -> None:
        """Write the plan file, signed by the local key if it was made in this process. Raises
        ConfigError, OSError.

        One that was loaded keeps its signature. It can be pickled from then on.
        """
        container.save(self.plan, path, signer_of(self._session) if self._sign else None)
        if self._file is None:
            given = self._options
            self._file = PlanFile.written(
                path,
                {
                    "device": f"{self.device.key}:{self.device.ordinal}",
                    "allocator": given.allocator,
                    "max_threads": given.threads,
                    "copy_weights": given.copy_weights,
                },
            )

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
