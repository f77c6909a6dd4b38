"""One plan on several devices of one host behind one engine: a replica for each."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tactix.base.dims import evaluate_shape
from tactix.base.errors import InvalidArgument
from tactix.contracts.device import Device
from tactix.plan.batch_axis import batch_axis
from tactix.plan.schema import Plan
from tactix.run.arrays import as_input, check_named, in_order
from tactix.run.closed_part import ClosedPart
from tactix.run.context import BOUND, ExecutionContext
from tactix.run.engine import MAX_QUEUE, Engine
from tactix.run.engine_facts import EngineFacts
from tactix.run.outputs import check_inputs_apart, check_outputs, check_shape
from tactix.run.replica_loads import ReplicaLoads, ReplicaState
from tactix.run.request_stats import RequestLog, RequestOutcome
from tactix.run.shapes import solve
from tactix.run.warm_up import zero_feeds

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tactix.base.arrays import Array
    from tactix.run.request_pool import RequestPool


class ReplicatedEngine(EngineFacts):
    """An engine whose calls run on the device that has least to do; may be used from any thread,
    and in ``with``.

    Calls, ``run``, ``run_async``, ``set_pool``, ``warm_up``, ``stats`` and ``close`` are those of
    ``Engine``, and raise the same. All share one pool of contexts, so that threads that call beside
    each other wait for one of ``set_pool``'s. ``run`` with ``split=True`` parts one batch over all
    devices. A call whose input lies in the memory of one of the devices runs there, so that nothing
    is copied between devices. An error that a device may have caused names it; a device that is
    lost to the process gets no more calls.

    ``engines``: the replicas, each an engine of its own, in the order of the devices that were
    asked for. All have their weights of the same file.
    """

    def __init__(self, engines: Sequence[Engine]) -> None:
        super().__init__(engines[0].plan)
        self.engines = tuple(engines)
        self._loads = ReplicaLoads([e.device.label for e in engines])
        self._log, self._pool = RequestLog(), cast("RequestPool | None", None)
        self._births = threading.RLock()  # held while the pool is made, or while none may be
        self._turn, self._max_queue = 0, MAX_QUEUE
        self.survive_forks()

    # -- facts ------------------------------------------------------------------------------------

    @property
    def devices(self) -> tuple[Device, ...]:
        """In the order of ``engines``."""
        return tuple(e.device for e in self.engines)

    @property
    def device(self) -> Device:
        """The first of them; all are of one kind."""
        return self.engines[0].device

    @property
    def replicas(self) -> tuple[ReplicaState, ...]:
        """What each replica has to do now, and has done."""
        return self._loads.states()

    @property
    def pool_size(self) -> int:
        """Contexts of all replicas that requests of ``run_async`` run on."""
        return sum(e.pool_size for e in self.engines)

    def device_memory_size(self, shapes: Mapping[str, Sequence[int]] | None = None) -> int:
        """Of a context on one of the devices: see ``Engine``."""
        return self.engines[0].device_memory_size(shapes)

    def inspect(self) -> dict[str, Any]:
        """As ``Engine``, of the first replica."""
        return self.engines[0].inspect()

    def save(self, path: str | Path) -> None:
        """Write the plan file: see ``Engine``. It can be loaded on any number of devices."""
        self.engines[0].save(path)

    # -- running ----------------------------------------------------------------------------------

    def create_execution_context(self, device: str = "") -> ExecutionContext:
        """A context of the caller's own, on the device of that label, as ``cuda:1``; without one on
        the next device in turn. Raises InvalidArgument; as ``Engine``.
        """
        labels = self._loads.labels
        if device and device not in labels:
            what = f"no replica is on {device!r}"
            raise InvalidArgument(what, who=self.name, do=f"There are: {', '.join(labels)}")
        with self._births:
            usable = self._loads.usable()
            home = labels.index(device) if device else usable[self._turn % len(usable)]
            self._turn += not device
        return self.engines[home].create_execution_context()

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        given = in_order(self.inputs, args, named)
        with self._context(given) as context:
            outputs = context.infer(given)
        if len(outputs) == 1:
            return outputs[0]
        return {io.name: y for io, y in zip(self.outputs, outputs, strict=True)}

    def run(
        self,
        inputs: Mapping[str, ArrayLike],
        out: Mapping[str, Array] | None = None,
        *,
        split: bool = False,
    ) -> dict[str, Array]:
        """As ``Engine.run``. ``split``: part the rows along the first axis over all devices, and
        join their results in order.

        That needs arrays of the host, and a plan whose inputs and outputs all have the same open
        first axis and no other that hangs on it. Each part is a shape of its own to be tuned,
        warmed up and cached; rows of a model that looks across its batch depend on how it is
        parted. Raises InvalidArgument where the plan cannot be parted, ShapeError.
        """
        check_named(inputs)
        self._log.came()
        start, outcome = time.perf_counter(), RequestOutcome.FAILED
        begun = start
        try:
            if split:
                results = self._parted(inputs, {} if out is None else out)
            else:
                with self._context(inputs.values()) as context:
                    begun = time.perf_counter()
                    results = context.run(inputs) if out is None else context.run_into(inputs, out)
            outcome = RequestOutcome.ANSWERED
        finally:
            end = time.perf_counter()
            self._log.ended(outcome, end - start, begun - start, end - begun)
        return results

    async def run_async(
        self,
        inputs: Mapping[str, ArrayLike],
        *,
        timeout: float | None = None,
        wait: bool = False,
        outputs: Collection[str] | None = None,
    ) -> dict[str, Array]:
        """As ``Engine.run_async``: requests start in the order in which they came, each on a
        context of the device that has least to do, or of the one where its arrays lie.
        """
        from tactix.run.async_requests import answered

        check_named(inputs)
        home = self._home(inputs.values())
        pool = self._running_pool()
        return await answered(pool, self._log, inputs, timeout, wait, outputs, home)

    @contextmanager
    def _context(self, given: Any) -> Iterator[ExecutionContext]:
        """A context for a call on these arrays, of the replica that has least to do, for which the
        thread waits.
        """
        queue = self._running_pool().queue
        context = queue.take(self._home(given))
        try:
            yield context
        except Exception as e:
            queue.failed(context, e)
            raise
        finally:
            queue.give_back(context)

    def _home(self, given: Any) -> int | None:
        """The replica in whose device's memory an array lies; None where any will do."""
        import numpy as np

        for x in given:
            if type(x) is not np.ndarray:
                for i, engine in enumerate(self.engines):
                    if engine.device.holds(x):
                        return i
        return None

    # -- one batch on several devices -------------------------------------------------------------

    def _parted(
        self, inputs: Mapping[str, ArrayLike], out: Mapping[str, Array]
    ) -> dict[str, Array]:
        import numpy as np

        from tactix.run.request_pool import PartRequest

        axis = batch_axis(self.plan)
        if axis.reasons:
            do = "Export the model with an open first axis, or call without split"
            why = "; ".join(axis.reasons)
            raise InvalidArgument("a batch cannot be parted", who=self.name, why=why, do=do)
        check_outputs(self.outputs, out)
        check_inputs_apart(inputs, out)
        given = in_order(self.inputs, (inputs,), {})
        arrays = {
            io.name: as_input(io, x) for io, x in zip(self.inputs, given, strict=True)
        }  # contiguous, so that their rows are
        # parts must lie in a profile, the whole need not
        env = solve(self.inputs, [x.shape for x in arrays.values()], ())
        results = self._places(env, out)
        homes = self._loads.usable()
        cuts = axis.cuts(self.plan, env[axis.symbol], len(homes))
        # one part for each device, or whichever is free first where parts are more
        placed = homes if len(cuts) - 1 == len(homes) else [None] * (len(cuts) - 1)
        requests = [
            PartRequest(
                {name: x[first:last] for name, x in arrays.items()},
                {name: y[first:last] for name, y in results.items()},
                home,
            )
            for (first, last), home in zip(pairwise(cuts), placed, strict=True)
        ]
        parts = self._running_pool().parts(requests)
        for name in (io.name for io in self.outputs if io.name not in results):
            joined = np.concatenate([p[name] for p in parts])
            if name in out:
                check_shape(name, joined.shape, out[name])
                out[name][...] = joined
            results[name] = out.get(name, joined)
        return {io.name: results[io.name] for io in self.outputs}

    def _places(self, env: Mapping[str, int], out: Mapping[str, Array]) -> dict[str, Array]:
        """Where outputs are written whose shapes the inputs tell: the caller's arrays, or new ones.
        Raises ShapeError.
        """
        import numpy as np

        if self.plan.produced:
            return {}
        places = {}
        for io in self.outputs:
            shape = evaluate_shape(io.shape, env)
            if io.name in out:
                check_shape(io.name, shape, out[io.name])
            if not io.dtype.on_host:
                places[io.name] = out.get(io.name, np.empty(shape, io.dtype.numpy))
        return places

    # -- the pool ---------------------------------------------------------------------------------

    def set_pool(
        self, contexts: int = 0, max_queue: int = MAX_QUEUE, shape_cache_size: int = BOUND
    ) -> None:
        """As ``Engine.set_pool``; ``contexts`` are those of each device."""
        with self._births:
            if self.closed:
                raise self._ended()
            if self._pool is not None:
                do = "Call set_pool before run_async and warm_up"
                raise InvalidArgument("the pool runs already", who=self.name, do=do)
            for engine in self.engines:
                engine.set_pool(contexts, max_queue, shape_cache_size)
            self._max_queue = max_queue

    def _running_pool(self) -> RequestPool:
        """The pool of this process, made when it is first needed. Raises EngineClosed."""
        if (pool := self._pool) is not None:
            return pool
        from tactix.run.request_pool import RequestPool

        with self._births:
            if self.closed:
                raise self._ended()
            if self._pool is None:
                made = [(i, c) for i, e in enumerate(self.engines) for c in e.pool_contexts()]
                homes, contexts = [i for i, _ in made], [c for _, c in made]
                name = self.name or "engine"
                self._pool = RequestPool(name, contexts, self._max_queue, homes, self._loads)
            return self._pool

    def warm_up(
        self, shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]] = ()
    ) -> None:
        """As ``Engine.warm_up``, on all devices."""
        contexts = self._running_pool().contexts
        for feeds in zero_feeds(self.plan, shapes):
            for context in contexts:
                context.run(feeds)

    # -- ending, and other processes --------------------------------------------------------------

    def close(self) -> None:
        """As ``Engine.close``, of all replicas."""
        with self._births:
            if self.closed:
                return
            self.closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(self._ended)
        for engine in self.engines:
            engine.close()
        self.plan = cast(Plan, ClosedPart(self._ended))

    def after_fork(self) -> None:
        self._births = threading.RLock()
        if self._pool is not None:
            self._pool.after_fork()
        self._log, self._pool = RequestLog(), None
        self._loads = ReplicaLoads(self._loads.labels)
