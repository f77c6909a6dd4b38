"""ExecutionContext: the mutable side of running: shapes, addresses, intermediate memory."""

from __future__ import annotations

import math
import numbers
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

from tactix.base.arrays import Array
from tactix.base.dims import Shape, show
from tactix.base.error_recorder import Recorded, recording
from tactix.base.errors import (
    AllocationError,
    ExecutionError,
    InvalidArgument,
    ShapeError,
    TactixError,
)
from tactix.base.logger import LogEvent, Severity
from tactix.contracts.allocator import checked_address
from tactix.contracts.device import Exchange
from tactix.contracts.launcher import Runnable
from tactix.plan.extents import SIZE_LIMIT
from tactix.run.arrays import address_of, as_input, check_asked, crossing, in_order
from tactix.run.bound import BoundPlan
from tactix.run.closed_part import ClosedPart
from tactix.run.layout import Layout
from tactix.run.link import LinkedPlan
from tactix.run.memory import ALIGNMENT, Memory
from tactix.run.observed import DebugListener, DebugTensors, StepObserver, check_made
from tactix.run.outputs import check_inputs_apart, check_outputs, check_shape, overlap
from tactix.run.segments import Profiler
from tactix.run.shapes import shape_of
from tactix.run.state_memory import RESERVE, StateMemory
from tactix.run.watchers import UNWATCHED, Watchers

Addressed = Callable[[list[int]], None]
"""What runs at the addresses of inputs and outputs."""

BOUND = 8
"""Shapes that stay linked in a context, unless ``shape_cache_size`` says otherwise."""

GROWTH = 1.5
"""By so much intermediate memory grows at least, once it does: a text that grows by a token in each
run would have new memory in each, whose pages the system clears first.
"""


class ExecutionContext(Recorded):
    """Runs an engine. Runs are one after the other: to run in parallel take one context per thread.

    Intermediate memory is allocated when the first shape is bound, unless ``set_device_memory``
    gave some. Inputs and outputs must be aligned to their element size, and to what the device asks
    for. ``segmented``: whether it runs steps by ``Launcher.produce``, and what lies between them as
    segments. ``closed``: whether it can run no more.
    """

    segmented = False

    def __init__(self, program: LinkedPlan, name: str = "") -> None:
        import numpy as np

        plan = program.plan
        self.name = name or plan.name
        if plan.stripped:
            raise ExecutionError(
                f"{len(plan.stripped)} weights are missing",
                who=self.name,
                do="Refit the plan first",
            )
        self._program, self._empty = program, np.empty
        self._inputs, self._outputs = plan.inputs, plan.outputs
        self._names = [io.name for io in plan.outputs]
        self._index = {io.name: i for i, io in enumerate((*plan.inputs, *plan.outputs))}
        self._shapes: Sequence[tuple[int, ...] | None] = [_fixed(io.shape) for io in plan.inputs]
        self._addresses = [0] * len(self._index)
        self._arrays: dict[str, Any] = {}
        self._allocators: dict[int, Any] = {}
        self._profile = -1
        self._watch = UNWATCHED
        self._length: int | None = None
        self._kept: StateMemory | None = None
        self._active: tuple[BoundPlan, Memory] | None = None
        self._known: OrderedDict[tuple[Any, ...], BoundPlan] = OrderedDict()
        self._memory: Memory | None = None
        self._user_memory = False
        device = program.device
        self._exchange = None if device.host_memory else device.exchange(program.allocator)
        self._later: tuple[tuple[BoundPlan, Memory], list[int], dict[str, Any]] | None = None
        self.closed, self._cached, self._shape_cache_size = False, 0, BOUND
        self._why_closed: Callable[[], TactixError] | None = None
        self._multiples = [
            max(device.alignment, min(8, io.dtype.itemsize)) for io in (*plan.inputs, *plan.outputs)
        ]
        self._state = threading.RLock()
        self._running = (
            threading.Lock()
        )  # held while tables are changed and used; never waited for to queue work

    @property
    def profiler(self) -> Profiler | None:
        """What is told how long each step took, after each run, which then waits for each step:
        ``report_layer_time(name, milliseconds)``. None, the default: steps are not timed.
        """
        return self._watch.profiler

    @profiler.setter
    def profiler(self, profiler: Profiler | None) -> None:
        self._watched(replace(self._watch, profiler=profiler))

    @property
    def observer(self) -> StepObserver | None:
        """What runs the steps of the plan, in each run, one by one and with their operands as
        arrays: by their own kernels, or by others. None, the default: nothing looks on. Meanwhile a
        profiler is not told anything.
        """
        return self._watch.observer

    @observer.setter
    def observer(self, observer: StepObserver | None) -> None:
        self._watched(replace(self._watch, observer=observer))

    def set_debug_listener(
        self, listener: DebugListener | None, names: Collection[str] = ()
    ) -> None:
        """Let ``listener(name, array)`` see tensors that the plan makes on the way, as each is
        made, by the model's names. None ends that.

        The plan and its kernels stay as they are; the steps run one by one. Arrays are numpy's,
        linear, of the tensor's dtype in the plan. In a loop it is called in each iteration. Raises
        InvalidArgument for a tensor that no step makes, as it lies inside a fused layer.
        """
        if listener is None:
            self.observer = None
            return
        check_made(self._program.plan, names)
        self.observer = DebugTensors(names, listener)

    def _watched(self, watch: Watchers) -> None:
        """From the next run on."""
        with self._state:
            self._watch, self._active, self._later = watch, None, None
            self._known.clear()

    # -- shapes and profiles ----------------------------------------------------------------------

    @property
    def active_optimization_profile(self) -> int:
        """Index of the profile that shapes must lie in; -1 while any of them will do."""
        return self._profile

    def set_optimization_profile(self, index: int) -> None:
        """Hold shapes to one profile. Raises InvalidArgument."""
        count = len(self._program.plan.profiles)
        if index not in range(count):
            raise InvalidArgument(f"no profile {index!r}", why=f"the engine has {count}")
        with self._state:
            self._profile, self._active = index, None
            self._known.clear()

    def set_input_shape(self, name: str, shape: Sequence[int]) -> None:
        """The shape of an input from now on. Raises InvalidArgument, ShapeError for what the input
        can never be.
        """
        index = self._input_index(name)
        io = self._inputs[index]
        wanted = shape_of(name, shape)
        fits = [n == d or (n >= 0 and not isinstance(d, int)) for n, d in zip(wanted, io.shape)]
        if len(wanted) != len(io.shape) or not all(fits):
            raise ShapeError(f"input {name!r} is {show(io.shape)}, got {show(wanted)}")
        with self._state:
            if self._shapes[index] != wanted:
                self._shapes = [wanted if i == index else s for i, s in enumerate(self._shapes)]
                self._active = None

    def get_tensor_shape(self, name: str) -> Shape:
        """The shape at the set input shapes; symbolic while some input has none. Raises
        InvalidArgument, ShapeError.
        """
        index = self._tensor_index(name)
        if index < len(self._inputs):
            return self._shapes[index] or self._inputs[index].shape
        if None in self._shapes:
            return self._outputs[index - len(self._inputs)].shape
        return self._layout(self._shapes)[1].shapes[name]

    # -- states -----------------------------------------------------------------------------------

    def reserve(self, length: int) -> None:
        """Keep the states of the plan in this context, with room for so many elements along the
        axes that grow; all of them are empty then.

        From now on ``run`` takes the other inputs, gives the other outputs, and appends to the
        states. Raises InvalidArgument for a plan without states.
        """
        states = self._program.plan.states
        if states is None:
            do = "Build with BuilderFlag.RESERVE_STATES"
            raise InvalidArgument("the plan keeps no states", who=self.name, do=do)
        if not isinstance(length, int) or length < 1:
            raise InvalidArgument(f"room for {length!r} elements", do="Give an integer from 1 up")
        with self._state:
            self._kept = StateMemory(self._program.plan, states, length)
            self.state_length = 0

    @property
    def state_length(self) -> int:
        """How many elements of the states are filled. Set it to go back, to 0 to begin again, or
        after filling what ``state`` gives; who gives states their addresses sets it for each run.
        """
        return self._length or 0

    @state_length.setter
    def state_length(self, length: int) -> None:
        """Raises InvalidArgument for a plan without states, and for more than is reserved."""
        if self._program.plan.states is None:
            raise InvalidArgument("the plan keeps no states", who=self.name)
        most = self._kept.room if self._kept else SIZE_LIMIT
        if not isinstance(length, int) or not 0 <= length <= most:
            raise InvalidArgument(f"states of {length!r} elements", why=f"there is room for {most}")
        with self._state:
            self._length, self._active = length, None

    def state(self, name: str) -> Any:
        """What is filled of a state, by the name of its input or output, as an array of numpy's
        over its memory. Raises InvalidArgument before the first run.
        """
        if self._kept is None:
            raise InvalidArgument("nothing is reserved for states", who=self.name, do=RESERVE)
        return self._kept.view(name, self.state_length)

    # -- addresses --------------------------------------------------------------------------------

    def set_tensor_address(self, name: str, address: Any) -> None:
        """Where an input or output lies: an address, or a contiguous array, which is kept and gives
        an input's shape.

        The array must lie in the device's memory, ready. Raises InvalidArgument, DTypeError,
        ShapeError.
        """
        index = self._tensor_index(name)
        array = None
        if not isinstance(address, numbers.Integral):
            io = (*self._inputs, *self._outputs)[index]
            array = (self._exchange.locate if self._exchange else as_input)(io, address)
            if index < len(self._inputs):
                self.set_input_shape(name, array.shape)
            elif self._exchange is None and (array is not address or not array.flags.writeable):
                raise InvalidArgument(
                    f"output {name!r} needs a contiguous numpy array that can be written"
                )
        with self._state:
            self._later, self._arrays[name] = None, array
            self._addresses[index] = int(address) if array is None else address_of(array)

    def set_output_allocator(self, name: str, allocator: Any) -> None:
        """Let an object place an output in ``execute_async_v3``; None ends that. Raises
        InvalidArgument.

        Once the shape is known, ``allocator.reallocate_output(name, memory, size, alignment)``
        gives the address (``memory``: the one that is set, 0 for none; ``size`` in bytes), and
        ``notify_shape(name, shape)`` is called.
        """
        index = self._tensor_index(name)
        if index < len(self._inputs):
            raise InvalidArgument(f"{name!r} is an input")
        with self._state:
            self._allocators[index], self._later = allocator, None
            if allocator is None:
                del self._allocators[index]

    def _placed(self, addresses: Sequence[int], shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
        """The addresses, some by output allocators."""
        out = list(addresses)
        for i, allocator in self._allocators.items():
            io = self._outputs[i - len(self._inputs)]
            size = math.prod(shapes[io.name]) * io.dtype.itemsize
            given = allocator.reallocate_output(io.name, out[i], max(1, size), ALIGNMENT)
            least = max(1, int(io.dtype.itemsize))  # as of addresses that a caller sets himself
            out[i] = checked_address(given, size, least, f"of output {io.name!r}")
            allocator.notify_shape(io.name, shapes[io.name])
        return out

    def get_tensor_address(self, name: str) -> int:
        """0 if none was set. Raises InvalidArgument."""
        return self._addresses[self._tensor_index(name)]

    def set_device_memory(self, address: int, size: int) -> None:
        """Use the caller's memory for intermediate tensors; it must outlive the context. Raises
        InvalidArgument.

        Contexts that never run at the same time may share it.

        ``address``: a multiple of 64. ``size``: at least ``engine.device_memory_size`` of the
        shapes to come.
        """
        if self.segmented:
            raise InvalidArgument(
                "the plan's memory depends on data", who=self.name, do="Let the context allocate it"
            )
        if address % ALIGNMENT or address < 0 or size < 0 or (size and not address):
            do = f"Align it to {ALIGNMENT} bytes; at 0 there is nothing"
            raise InvalidArgument(f"device memory of {size} bytes at {address:#x}", do=do)
        with self._state:
            self._user_memory = True
            self._use(Memory(address, size))

    @property
    def device_memory(self) -> int:
        """Address of the intermediate memory, 0 if there is none. Who sets it answers for the size;
        0 takes it away.
        """
        return self._memory.address if self._memory else 0

    @device_memory.setter
    def device_memory(self, address: int) -> None:
        self.set_device_memory(address, SIZE_LIMIT if address else 0)

    @property
    def persistent_cache_limit(self) -> int:
        """Bytes of the device's cache in which weights stay from run to run; 0, the default: none.
        InvalidArgument.
        """
        return self._cached

    @persistent_cache_limit.setter
    def persistent_cache_limit(self, size: int) -> None:
        most = self._program.device.persistent_cache()
        if size not in range(most + 1):
            raise InvalidArgument(
                f"a persistent cache of {size!r} bytes", why=f"the device has {most}"
            )
        with self._state:
            self._cached, self._active = size, None
            self._known.clear()

    @property
    def shape_cache_size(self) -> int:
        """Input shapes that stay bound: running at one of them again costs the run alone."""
        return self._shape_cache_size

    @shape_cache_size.setter
    def shape_cache_size(self, count: int) -> None:
        """Raises InvalidArgument for less than one."""
        if not isinstance(count, int) or count < 1:
            raise InvalidArgument(
                f"a shape cache of {count!r} shapes", who=self.name, do="Give an integer from 1 up"
            )
        with self._state:
            self._shape_cache_size = count
            self._forget(count)

    # -- running ----------------------------------------------------------------------------------

    def execute_v2(self, bindings: list[int]) -> bool:
        """Run at once on addresses in the engine's order of inputs and outputs; True, or an error
        is raised.

        Raises InvalidArgument, ShapeError, AllocationError, ExecutionError.
        """
        try:
            with self._running:  # the common case: all is as it was in the last run
                active = self._active
                if (
                    active is not None
                    and active[0].memory is active[1]
                    and active[0].current == bindings
                ):
                    active[0].runnable()
                    return True
            bound, memory = active or self._activated(self._shapes)
            bindings = [*map(operator.index, bindings)]
            self._check_addresses(bindings)
            self._check_apart(bindings, bound.layout.shapes)
            with self._running:
                bound.run(bindings, memory)
        except TactixError:
            with recording(self):
                raise
        except (TypeError, ValueError) as e:
            do = "Give integers, as in [x.ctypes.data, y.ctypes.data]"
            raise InvalidArgument("these are no addresses", who=self.name, why=str(e), do=do) from e
        return True

    def execute_async_v3(self, stream: Any = 0) -> bool:
        """Run on the set addresses: in a stream, or before it returns with 0. Later changes do not
        touch this run.

        ``stream``: a handle, or an object that the device knows as a stream. True, or an error is
        raised; what fails in a stream is raised when it is synchronized.
        """
        with recording(self):
            queue, later = self._program.device.stream_of(stream), self._later
            if later is None or later[0] is not self._active:
                later = self._settled()
            queue.submit(partial(self._run_later, *later))
        return True

    def _settled(self) -> tuple[tuple[BoundPlan, Memory], list[int], dict[str, Any]]:
        """A run at the addresses as they are; kept for as long as nothing is set. Raises as
        ``execute_async_v3``.
        """
        with self._state:
            active = self._active or self._activated(self._shapes)
            shapes = active[0].layout.shapes
            addresses, arrays = self._placed(self._addresses, shapes), dict(self._arrays)
            self._check_addresses(addresses)
            self._check_apart(addresses, shapes)
            for name, array in arrays.items():
                if array is not None and array.shape != (wanted := shapes[name]):
                    raise ShapeError(
                        f"{name!r} is {show(wanted)}, its array is {show(array.shape)}"
                    )
            later = active, addresses, arrays
            self._later = None if self._allocators else later
            return later

    def _run_later(
        self, active: tuple[BoundPlan, Memory], addresses: list[int], arrays: dict[str, Any]
    ) -> None:
        """``arrays`` keeps the caller's arrays alive until then."""
        bound, memory = active
        with recording(self), self._running:
            bound.run(addresses, memory)

    def run(
        self,
        feeds: Mapping[str, Any],
        stream: Any = None,
        outputs: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Arrays by name in, new arrays by name out: numpy's, and the device's own for inputs that
        lie on it.

        ``stream``: where the device has some. ``outputs``: names of those that are asked for: the
        others are not returned, nor copied to the host; None, the default, stands for all. After
        ``reserve`` states are neither given nor returned. Raises as ``execute_v2``, and DTypeError.
        """
        left_out = self._left_out(outputs) if outputs is not None else ()
        if self._kept is not None:
            with recording(self):
                made = self._appended(self._kept, feeds)
            return {name: y for name, y in made.items() if outputs is None or name in outputs}
        found = self.infer(self.ordered((feeds,), {}), stream, left_out)
        results = dict(zip(self._names, found, strict=True))
        for i in left_out:
            del results[self._names[i]]
        return results

    def ordered(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """What was given by place, by name or as one mapping, in the order of the inputs. Raises
        InvalidArgument.
        """
        try:
            return in_order(self._inputs, args, named)
        except InvalidArgument:
            self._told()  # whoever leaves states out has reserved nothing for them
            raise

    def _left_out(self, asked: Collection[str]) -> Collection[int]:
        """Places of the outputs that are not asked for. Raises InvalidArgument."""
        known = [io.name for io in self._outputs]
        check_asked(asked, known, self.name)
        return [i for i, name in enumerate(known) if name not in asked]

    def run_into(self, feeds: Mapping[str, Any], out: Mapping[str, Array]) -> dict[str, Array]:
        """As ``run``, with outputs in the caller's arrays, by name; those that have none there get
        new ones.

        An array of ``out`` must be numpy's, of the output's dtype and shape, contiguous, aligned
        and writable, and share no byte with an input or another output, unless the plan makes that
        output in place. After an error its content is undefined. Raises as ``run``.
        """
        with recording(self):
            kept = self._kept.outputs if self._kept else ()
            check_outputs([io for io in self._outputs if io.name not in kept], out)
            if self.segmented or self._kept is not None:
                return self._copied_into(feeds, out)
            given = self.ordered((feeds,), {})
            if self._exchange is not None:
                return self._exchanged_into(self._exchange, given, feeds, out)
            fed = [as_input(io, x) for io, x in zip(self._inputs, given, strict=True)]
            bound, memory = self._activated([x.shape for x in fed])
            results = {
                io.name: out[io.name] if io.name in out else self._empty(*made)
                for io, made in zip(self._outputs, bound.results, strict=True)
            }
            shapes = bound.layout.shapes
            for name, array in out.items():
                check_shape(name, shapes[name], array)
            addresses = [address_of(x) for x in (*fed, *results.values())]
            self._check_addresses(addresses)
            self._check_apart(addresses, shapes)
            with self._running:
                bound.run(addresses, memory)
            return results

    def _exchanged_into(
        self,
        exchange: Exchange,
        given: Sequence[Any],
        feeds: Mapping[str, Any],
        out: Mapping[str, Array],
    ) -> dict[str, Array]:
        """Where the device has memory of its own, from which results go to the caller's arrays, or
        are copied where an input lay on the device.
        """
        check_inputs_apart(feeds, out)
        places = [out.get(io.name) for io in self._outputs]

        def bind(shapes: list[tuple[int, ...]]) -> tuple[Sequence[Any], Addressed]:
            results, run = self._prepared(shapes)
            for io, array, (shape, _) in zip(self._outputs, places, results, strict=True):
                if array is not None:
                    check_shape(io.name, shape, array)
            return results, run

        with self._running:
            found = exchange.run(self._inputs, given, None, bind, out=places)
        results: dict[str, Any] = {}
        for io, array, y in zip(self._outputs, places, found, strict=True):
            if array is not None and y is not array:
                array[...] = exchange.fetch(io, y)
            results[io.name] = y if array is None else array
        return results

    def _copied_into(self, feeds: Mapping[str, Any], out: Mapping[str, Array]) -> dict[str, Array]:
        """Where the device, or the data, says where outputs lie."""
        check_inputs_apart(feeds, out)
        results = self.run(feeds)
        for name, array in out.items():
            found = results[name] if self._exchange is None else self._fetched(name, results)
            check_shape(name, found.shape, array)
            array[...] = found
            results[name] = array
        return results

    def _fetched(self, name: str, results: Mapping[str, Any]) -> Any:
        """An output in the host's memory."""
        assert self._exchange is not None
        io = self._outputs[self._index[name] - len(self._inputs)]
        return self._exchange.fetch(io, results[name])

    def _appended(self, kept: StateMemory, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs beside the states, which have grown then."""
        ordered = in_order(kept.fed, (feeds,), {})
        fed = [as_input(io, x) for io, x in zip(kept.fed, ordered, strict=True)]
        after = kept.after(fed, self.state_length)
        given = dict(zip([io.name for io in kept.fed], fed, strict=True))
        shapes = kept.shapes | {name: x.shape for name, x in given.items()}
        bound, memory = self._activated([shapes[io.name] for io in self._inputs])
        outputs = {
            io.name: self._empty(*made)
            for io, made in zip(self._outputs, bound.results, strict=True)
            if io.name not in kept.outputs
        }
        places = kept.addresses | {n: address_of(x) for n, x in (*given.items(), *outputs.items())}
        with self._running:
            bound.run([places[name] for name in self._index], memory)
        self.state_length = after
        return outputs

    def infer(
        self, given: Sequence[Any], stream: Any = None, left_out: Collection[int] = ()
    ) -> list[Any]:
        """New output arrays for inputs in the engine's order. ``left_out``: places of outputs that
        may be None. Raises as ``run``.
        """
        try:
            if self._exchange is not None:
                with self._running:
                    return self._exchange.run(self._inputs, given, stream, self._prepared, left_out)
            active = self._active
            if active is None or not active[0].accepts(given):
                ordered = in_order(self._inputs, given, {})
                given = [as_input(io, x) for io, x in zip(self._inputs, ordered, strict=True)]
                active = self._activated([x.shape for x in given])
            with self._running:
                return active[0].infer(given, active[1])
        except TactixError:
            with recording(self):
                raise
        except MemoryError as e:
            raise AllocationError(
                "no memory for inputs and outputs", who=self.name, why=str(e)
            ) from None

    def _prepared(
        self, shapes: list[tuple[int, ...]]
    ) -> tuple[Sequence[tuple[tuple[int, ...], Any]], Addressed]:
        """What outputs of these input shapes will be, and what runs at addresses."""
        bound, memory = (self._active if shapes == self._shapes else None) or self._activated(
            shapes
        )
        return bound.results, partial(bound.run, memory=memory)

    # -- how long runs take -----------------------------------------------------------------------

    def quick(self, feeds: Mapping[str, Any]) -> bool:
        """Whether a run on these arrays is likely to take less than to hand it to another thread:
        runs at their shapes did, and are bound still.
        """
        bound = self._bound_for(feeds)
        return bound is not None and bound.times.quick

    def took(self, feeds: Mapping[str, Any], seconds: float) -> None:
        """``seconds`` of a run that has ended, for ``quick``."""
        bound = self._bound_for(feeds)
        if bound is not None:
            bound.times.note(seconds)

    def _bound_for(self, feeds: Mapping[str, Any]) -> BoundPlan | None:
        """What runs these arrays; None for what are none, and where runs are the device's."""
        if self._exchange is not None:
            return None
        try:
            shapes = [feeds[io.name].shape for io in self._inputs]
            return self._known.get((*shapes, self._length))
        except (AttributeError, KeyError, TypeError):
            return None

    # -- binding ----------------------------------------------------------------------------------

    def _activated(self, shapes: Sequence[tuple[int, ...] | None]) -> tuple[BoundPlan, Memory]:
        """The plan linked at these input shapes, and memory for it. After an error the context is
        as it was.
        """
        with self._state:
            self._check_open()
            key = (*shapes, self._length)
            bound = self._known.get(key)
            if bound is None:
                program, layout = self._layout(shapes)
                link = partial(program.link, self._cached, self._watch)
                bound = BoundPlan(program, layout, link, self._spare(program))
            memory = self._needed_memory(bound.layout)
            self._known[key] = bound
            self._known.move_to_end(key)
            self._forget(self._shape_cache_size)
            self._shapes, self._active = shapes, (bound, memory)
            return bound, memory

    def _spare(self, program: LinkedPlan) -> Runnable | None:
        """Linked steps of the shape that is forgotten next, where nothing may still run them, and
        they are those of the program. While states grow in this context the last length does not
        come again, and what it ran with is in the caches still.
        """
        grown = self._kept is not None
        if not self._known or not (grown or len(self._known) >= self._shape_cache_size):
            return None
        key = next(reversed(self._known) if grown else iter(self._known))
        if self._known[key].program is not program:
            return None
        if not (self._program.device.host_memory and self._running.acquire(False)):
            return None
        try:
            return self._known.pop(key).surrender()
        finally:
            self._running.release()

    def _forget(self, kept: int) -> None:
        """All bound shapes but the last ones; a run that waits in a stream binds its own again."""
        while len(self._known) > kept:
            self._known.popitem(last=False)[1].memory = None

    def _layout(self, shapes: Sequence[tuple[int, ...] | None]) -> tuple[LinkedPlan, Layout]:
        """What runs at these shapes of the inputs, and how its memory lies."""
        known = [s for s in shapes if s is not None]
        if len(known) < len(shapes):
            unset = self._inputs[shapes.index(None)]
            raise ShapeError(f"input {unset.name!r} has no shape yet", do="Call set_input_shape")
        profiles = self._program.plan.profiles
        chosen = profiles if self._profile < 0 else (profiles[self._profile],)
        env = self._program.solve(known, chosen, self._told())
        program = self._program.at(env, self._profile)
        return program, program.layout(env)

    def _told(self) -> dict[str, int]:
        """Symbols that no shape gives a value. Raises InvalidArgument if nobody told it."""
        states = self._program.plan.states
        if states is None:
            return {}
        if self._length is None:
            what = "nobody has told how much of the states is filled"
            do = f"{RESERVE}, or set state_length"
            raise InvalidArgument(what, who=self.name, do=do)
        return {states.length: self._length}

    def _needed_memory(self, layout: Layout) -> Memory:
        """The context's memory, larger than before if the shape needs it."""
        memory = self._memory
        if memory is None or (memory.size < layout.arena and not self._user_memory):
            before = memory.size if memory else 0
            text = f"{self.name}: {layout.arena} bytes for a context, {before} before"
            sizes = {"engine": self.name, "bytes": layout.arena, "bytes_before": before}
            self._program.logger.tell(Severity.INFO, LogEvent("context_memory", text, sizes))
            size = max(layout.arena, int(before * GROWTH))
            memory = Memory.allocate(self._program.allocator, size)
            self._use(memory)
        if memory.size < layout.arena:
            what, why = f"{memory.size} bytes of device memory", f"these shapes need {layout.arena}"
            raise InvalidArgument(what, who=self.name, why=why, do="Call set_device_memory")
        return memory

    def _use(self, memory: Memory | None) -> None:
        """From now on; shapes that were bound let go of the memory before."""
        self._memory, self._active, self._later = memory, None, None
        for bound in self._known.values():
            bound.memory = None

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Between two runs: one that has begun is waited for, but not what it left in a stream;
        others wait.
        """
        with self._running, self._state:
            yield

    def move(self, addresses: Mapping[int, int]) -> None:
        """Weights lie elsewhere, by buffer; inside of ``halted``. Plans of profiles, whose buffers
        are others, are bound again.
        """
        for bound in self._known.values():
            if bound.program is self._program:
                bound.move(addresses)
            else:
                bound.memory = None

    def _tensor_index(self, name: str) -> int:
        if name not in self._index:
            raise InvalidArgument(
                f"no tensor is named {name!r}", do=f"There are: {', '.join(self._index)}"
            )
        return self._index[name]

    def _input_index(self, name: str) -> int:
        index = self._tensor_index(name)
        if index >= len(self._inputs):
            raise InvalidArgument(f"{name!r} is an output", why="its shape follows from the inputs")
        return index

    def _check_addresses(self, addresses: Sequence[int]) -> None:
        if len(addresses) != len(self._index):
            what = f"{len(addresses)} addresses for {len(self._index)} tensors"
            raise InvalidArgument(what, do=f"In order: {', '.join(self._index)}")
        for name, address, multiple in zip(self._index, addresses, self._multiples, strict=True):
            if not isinstance(address, int) or address <= 0:
                raise InvalidArgument(
                    f"tensor {name!r} has no address", do="Call set_tensor_address, or give it"
                )
            if address % multiple:
                raise InvalidArgument(
                    f"tensor {name!r} lies at {address:#x}", do=f"Align it to {multiple} bytes"
                )

    def _check_apart(self, addresses: Sequence[int], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises InvalidArgument for an output in the memory of an input, unless the plan makes
        that output in place, or has read the input by then.
        """
        ios = (*self._inputs, *self._outputs)
        sizes = [math.prod(shapes[io.name]) * io.dtype.itemsize for io in ios]
        count = len(self._inputs)
        for i, j in crossing(addresses, sizes, count):
            read, written = ios[i].name, ios[j].name
            together = addresses[i] == addresses[j]
            if not together or (read, written) not in self._program.plan.one_memory:
                raise overlap(written, read, self.name)

    def _check_open(self) -> None:
        if self.closed:
            if self._why_closed is not None:
                raise self._why_closed()
            raise ExecutionError("the context is closed", who=self.name, do="Create another one")

    def close(self) -> None:
        """Give back memory and links; the context cannot run any more. A run that has begun is
        waited for, but not what it left in a stream.
        """
        with self._running, self._state:
            if self.closed:
                return
            self.closed = True
            self._use(None)
            self._known.clear()
            self._arrays.clear()
            self._exchange = self._exchange and self._program.device.exchange(
                self._program.allocator
            )

    def after_fork(self) -> None:
        """In the child, where nothing runs: the threads that held locks are not there."""
        self._running, self._state = threading.Lock(), threading.RLock()

    def end(self, error: Callable[[], TactixError]) -> None:
        """Close it with its engine: it keeps neither weights nor code, and whatever is asked of it
        from then on raises that error.
        """
        self._why_closed = error
        self.close()
        with self._running, self._state:
            self._program = cast(LinkedPlan, ClosedPart(error))

    def __enter__(self) -> ExecutionContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fixed(shape: Shape) -> tuple[int, ...] | None:
    """A shape without symbols."""
    return (
        tuple(d for d in shape if isinstance(d, int))
        if all(isinstance(d, int) for d in shape)
        else None
    )
