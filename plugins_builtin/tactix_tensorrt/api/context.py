"""IExecutionContext: shapes, addresses, and runs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, substitute, symbol_name, symbols
from tactix.base.errors import AllocationError, ExecutionError, TactixError
from tactix_tensorrt.api import limits, told_sizes
from tactix_tensorrt.api.callbacks import IDebugListener, IOutputAllocator, IProfiler
from tactix_tensorrt.api.converting import Converted
from tactix_tensorrt.api.debug import DebugTensors, Seen
from tactix_tensorrt.api.enums import ExecutionContextAllocationStrategy, TensorLocation
from tactix_tensorrt.api.layer_times import LayerTimes
from tactix_tensorrt.api.logger import ILogger, Reporting, returns
from tactix_tensorrt.api.profile import ShapeRange
from tactix_tensorrt.api.room import RoomCheck
from tactix_tensorrt.api.values import Dims, as_dims
from tactix_tensorrt.levels import at_this_level

if TYPE_CHECKING:
    from tactix.run.context import ExecutionContext
    from tactix_tensorrt.api.engine import ICudaEngine, IRuntimeConfig
    from tactix_tensorrt.api.values import Unsigned


ALIGNMENT = 64
"""Bytes, of what output allocators are asked for where tactix does not ask itself."""


class AskedAllocator:
    """tactix's view of a program's output allocator, which is told what it gave last. ``stream``:
    of the run that is under way; ``address``, ``shape``: of the last one.
    """

    stream = 0

    def __init__(self, allocator: IOutputAllocator) -> None:
        self.allocator = allocator
        self.address, self.shape = 0, Dims()

    def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
        self.address = self._asked(name, self.address or memory, size, alignment)
        return self.address

    def _asked(self, name: str, memory: int, size: int, alignment: int) -> int:
        """Raises AllocationError for no address, and for what the program's code fails with."""
        who, cls = f"{type(self.allocator).__name__} for {name!r}", type(self.allocator)
        given = (name, memory, size, alignment)
        try:
            if cls.reallocate_output_async is not IOutputAllocator.reallocate_output_async:
                found = self.allocator.reallocate_output_async(*given, self.stream)
            else:
                found = self.allocator.reallocate_output(*given)
            address = int(found or 0)
        except Exception as e:  # the program's code
            what = f"the output allocator fails with {type(e).__name__}"
            raise AllocationError(what, who=who, why=str(e)) from e
        if not address:
            raise AllocationError(f"{size} bytes cannot be had", who=who, why=f"it gives {found}")
        return address

    def notify_shape(self, name: str, shape: tuple[int, ...]) -> None:
        self.shape = Dims(shape)
        self.allocator.notify_shape(name, Dims(shape))


@at_this_level
class IExecutionContext(Reporting):
    """Made by engines. On the host, addresses are those of host memory, and streams are no matter:
    a run is over when the call returns. ``native``: tactix's context.
    """

    debug_sync = False
    enqueue_emits_profile = True
    nvtx_verbosity: object = None
    temporary_allocator: object = None

    def __init__(
        self,
        engine: ICudaEngine,
        native: ExecutionContext,
        logger: ILogger,
        strategy: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy.STATIC,
    ) -> None:
        super().__init__(logger)
        self._engine, self.native, self._strategy = engine, native, strategy
        self._debug = DebugTensors(engine.native.plan, engine.facts, engine.allocator())
        for name in engine.facts.hidden:
            native.set_output_allocator(name, self._debug.memory)
        self._asserted = engine.facts.asserted
        self._times: LayerTimes | None = None
        self._allocators: dict[str, AskedAllocator] = {}
        self._ranges: dict[tuple[str, int], ShapeRange] = {}
        self._streams = not engine.native.device.host_memory
        self._room = None if self._streams else RoomCheck()
        self._run = native.execute_async_v3
        self._converted = self._made_converted()
        if self._converted is not None:
            self._run = self._run_converted
        if len(engine.native.plan.profiles) > 1:
            native.set_optimization_profile(0)
        self._take_only_shapes()

    def _take_only_shapes(self) -> None:
        """Set shapes of inputs for which the profile holds one alone."""
        for io in self._engine.native.inputs:
            low, _, high = self._engine.get_tensor_profile_shape(
                io.name, self.active_optimization_profile
            )
            if low == high and -1 not in low:
                self.native.set_input_shape(io.name, tuple(low))

    def _made_converted(self) -> Converted | None:
        """What holds tensors in other formats; None if there are none."""
        layouts, engine = self.engine.layouts, self.engine.native
        if not layouts:
            return None
        dtypes = {io.name: io.dtype.numpy for io in (*engine.inputs, *engine.outputs)}
        return Converted(self.native, layouts, dtypes, self._place)

    def _run_converted(self, stream: object = 0) -> bool:
        assert self._converted is not None
        names = frozenset(io.name for io in self.engine.native.inputs)
        return self._converted.run(lambda: self.native.execute_async_v3(stream), names)

    def _place(self, name: str, address: int, size: int, shape: tuple[int, ...]) -> int:
        """Where an output in another format goes."""
        asked = self._allocators.get(name)
        if asked is None:
            return address
        found = asked.reallocate_output(name, address, max(1, size), ALIGNMENT)
        asked.notify_shape(name, shape)
        return found

    @property
    def engine(self) -> ICudaEngine:
        return self._engine

    @property
    def name(self) -> str:
        return self.native.name

    @name.setter
    def name(self, name: str) -> None:
        self.native.name = name

    def get_runtime_config(self) -> IRuntimeConfig:
        """How it was made."""
        from tactix_tensorrt.api.engine import IRuntimeConfig

        found = IRuntimeConfig()
        found.set_execution_context_allocation_strategy(self._strategy)
        return found

    # -- profiles and shapes ----------------------------------------------------------------------

    @property
    def active_optimization_profile(self) -> int:
        return max(0, self.native.active_optimization_profile)

    @active_optimization_profile.setter
    def active_optimization_profile(self, index: int) -> None:
        self.set_optimization_profile_async(index, 0)

    @returns(False)
    def set_optimization_profile_async(self, profile_index: int, stream_handle: Unsigned) -> bool:
        self.native.set_optimization_profile(profile_index)
        self._take_only_shapes()
        self._moved()
        return True

    @returns(False)
    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool:
        """False for a shape that the input cannot have, or that the profile does not hold."""
        wanted = tuple(Dims(shape))
        if not self.engine.has(name):
            return False
        profile = self.active_optimization_profile
        held = self._held(name, profile)
        fits = len(wanted) == len(held.min) and all(
            a <= n <= b for a, n, b in zip(held.min, wanted, held.max, strict=True)
        )
        if not fits:
            self.fail(
                f"shape {wanted} of {name!r} is not within profile {profile}: "
                f"min {held.min}, max {held.max}"
            )
            return False
        self.native.set_input_shape(name, wanted)
        self._moved()
        return True

    def _held(self, name: str, profile: int) -> ShapeRange:
        """The shapes of a tensor that a profile holds."""
        found = self._ranges.get((name, profile))
        if found is None:
            found = ShapeRange(*self.engine.get_tensor_profile_shape(name, profile))
            self._ranges[name, profile] = found
        return found

    def get_tensor_shape(self, name: str) -> Dims:
        """-1 where it is not known yet; empty for a name that is none."""
        if not self.engine.has(name):
            return Dims()
        try:
            told = self._told_sizes()
            if told and not all(isinstance(d, int) for d in self.engine.native_shape(name)):
                return self._by_told_sizes(name, told)
            return as_dims(self.native.get_tensor_shape(name))
        except TactixError as e:
            self.fail(e)
            return Dims()

    def _told_sizes(self) -> dict[str, Dim]:
        """What inputs on the host tell, by symbol; none where nothing is there, or on a GPU."""
        sizes = self.engine.facts.sizes
        if not sizes or self._streams:
            return {}
        dtypes = {io.name: io.dtype for io in self.engine.native.inputs}
        found: dict[str, Dim] = {}
        for symbol, size in sizes.items():
            n = size.read(self.native.get_tensor_address(size.name), dtypes[size.name])
            if n > 0:
                found[symbol] = n
        return found

    def _by_told_sizes(self, name: str, told: Mapping[str, Dim]) -> Dims:
        """A shape by these sizes and those of inputs that are set, not by those of the last run."""
        env = self._sizes(told)
        return as_dims(tuple(substitute(d, env) for d in self.engine.native_shape(name)))

    def _sizes(self, told: Mapping[str, Dim]) -> dict[str, Dim]:
        """These, and those of inputs that are set, by symbol."""
        env = dict(told)
        for io in self.engine.native.inputs:
            sizes = self.native.get_tensor_shape(io.name)
            for d, n in zip(io.shape, sizes, strict=True):
                env[symbol_name(d) or ""] = n
        return env

    def get_tensor_strides(self, name: str) -> Dims:
        """In elements; in groups of channels where the format has some."""
        layout = self.engine.layouts.get(name)
        if layout is not None:
            return Dims(layout.strides(self.get_tensor_shape(name)))
        out: list[int] = []
        step = 1
        for n in reversed(self.get_tensor_shape(name)):
            out.insert(0, step)
            step *= n
        return Dims(out)

    def get_max_output_size(self, name: str) -> int:
        """Bytes of an output at the set shapes, or the most where a run finds how many elements
        there are; -1 if shapes are not set or there is no limit.
        """
        shape = self._at_most(name)
        itemsize = self.engine.get_tensor_dtype(name).itemsize
        if -1 in shape:
            return -1
        layout = self.engine.layouts.get(name)
        stored = Dims(layout.storage_shape(shape)) if layout else shape
        return int(stored.numel * itemsize)

    def _at_most(self, name: str) -> Dims:
        """The largest shape, -1 where there is no limit."""
        shape, engine = self.get_tensor_shape(name), self.engine.native
        symbolic = next((io.shape for io in engine.outputs if io.name == name), ())
        found = {s for d in symbolic for s in symbols(d)} & set(self._limits)
        if not found or self._unset():
            return shape
        inputs = [(io.shape, self.get_tensor_shape(io.name)) for io in engine.inputs]
        return Dims(limits.at_most(symbolic, inputs, self._limits))

    @cached_property
    def _limits(self) -> dict[str, Dim]:
        return limits.of(self.engine.native.plan)

    def infer_shapes(self) -> list[str]:
        """Names of inputs whose shape is not set; empty if outputs' shapes follow. Raises
        RuntimeError where no outputs follow from shapes that are all set; the log tells why.
        """
        unset = self._unset()
        try:
            for io in () if unset else self.engine.native.outputs:
                self.native.get_tensor_shape(io.name)
            if not unset and not self._streams:
                self._write_shapes()
        except TactixError as e:
            self.fail(e)
            raise RuntimeError("infer_shapes error code: -1") from e
        return unset

    def _write_shapes(self) -> None:
        """Values of outputs for shapes to the addresses that were given for them."""
        native, held = self.engine.native, self.engine.facts.shapes
        env = self._sizes(self._told_sizes())
        for io in (io for io in native.outputs if io.name in held):
            numbers = [substitute(d, env) for d in held[io.name]]
            kind = told_sizes.INTEGERS.get(io.dtype)
            address = self.get_tensor_address(io.name)
            if address and kind is not None and all(isinstance(n, int) for n in numbers):
                room = (kind * len(numbers)).from_address(address)
                room[:] = [int(str(n)) for n in numbers]

    def _unset(self) -> list[str]:
        """Inputs without a shape."""
        names = [io.name for io in self.engine.native.inputs]
        return [n for n in names if -1 in self.get_tensor_shape(n)]

    @property
    def all_binding_shapes_specified(self) -> bool:
        return not self._unset()

    @property
    def all_shape_inputs_specified(self) -> bool:
        return True

    # -- addresses --------------------------------------------------------------------------------

    @returns(False)
    def set_tensor_address(self, name: str, memory: Unsigned) -> bool:
        self._moved()
        if self._converted is not None and name in self._converted:
            self._converted.addresses[name] = int(memory)
            return True
        self.native.set_tensor_address(name, int(memory))
        return True

    set_input_tensor_address = set_tensor_address

    def _moved(self) -> None:
        """Tensors may lie elsewhere, or be larger, from now on."""
        if self._room is not None:
            self._room.due = True

    def _placed(self) -> Iterator[tuple[str, int, int]]:
        """Names, addresses and bytes of tensors whose place and size are known before a run."""
        for name in self.engine:
            size = 0 if name in self._allocators else self.get_max_output_size(name)
            if size > 0:
                yield name, self.get_tensor_address(name), size

    def _bound(self, bindings: Sequence[int]) -> Iterator[tuple[str, int, int]]:
        """As ``_placed``, at the addresses of a run."""
        for name, address in zip(self.engine, bindings, strict=False):  # the run counts them
            yield name, address, max(0, self.get_max_output_size(name))

    @returns(0)
    def get_tensor_address(self, name: str) -> int:
        if self._converted is not None and name in self._converted:
            return self._converted.addresses[name]
        return self.native.get_tensor_address(name)

    @returns(False)
    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator | None) -> bool:
        """Ask it for memory in each run; None ends that."""
        self._moved()
        if output_allocator is None:
            self._allocators.pop(name, None)
            self.native.set_output_allocator(name, None)
            return True
        placed = AskedAllocator(output_allocator)
        if self._converted is None or name not in self._converted:
            self.native.set_output_allocator(name, placed)
        self._allocators[name] = placed
        return True

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        found = self._allocators.get(name)
        return found.allocator if found else None

    @property
    def device_memory(self) -> int:
        return self.native.device_memory

    @device_memory.setter
    def device_memory(self, memory: Unsigned) -> None:
        self.set_device_memory(int(memory), self.engine.device_memory_size_v2)

    @returns(None)
    def set_device_memory(self, memory: Unsigned, size: Unsigned) -> None:
        self.native.set_device_memory(int(memory), int(size))

    @returns(0)
    def update_device_memory_size_for_shapes(self) -> int:
        """Bytes that the set shapes need."""
        shapes = {io.name: self.get_tensor_shape(io.name) for io in self.engine.native.inputs}
        return self.engine.native.device_memory_size(shapes)

    @property
    def persistent_cache_limit(self) -> int:
        return self.native.persistent_cache_limit

    @persistent_cache_limit.setter
    @returns(None)
    def persistent_cache_limit(self, size: Unsigned) -> None:
        """One that the device does not have is logged, and changes nothing."""
        self.native.persistent_cache_limit = size

    # -- running ----------------------------------------------------------------------------------

    def execute_async_v3(self, stream_handle: Unsigned) -> bool:
        """Run on the set addresses, in a stream; False if that fails."""
        try:
            if self._allocators:
                for placed in self._allocators.values():
                    placed.stream = int(stream_handle)
            if self._room is not None and self._room.is_due():
                self._room.check(self._placed())
            stream = int(stream_handle) if self._streams else 0
            done = self._run(stream) if self._times is None else self._timed(stream)
            if done and self._asserted:
                self._check_asserted()
            return self._told(int(stream_handle)) if self._debug.listener else done
        except TactixError as e:
            self.fail(e)
            return False

    def _check_asserted(self) -> None:
        """Raises ExecutionError for what does not hold of a run that is over."""
        for name, message in self._asserted.items():
            seen = self._debug.memory.seen(name)
            if not all(ctypes.string_at(seen.address, seen.shape.numel)):
                raise ExecutionError(message, who=name)

    def _timed(self, stream: int) -> bool:
        assert self._times is not None
        self._times.begin()
        done = self._run(stream)
        if self.enqueue_emits_profile:
            self._times.tell()
        return done

    @returns(False)
    def execute_v2(self, bindings: Sequence[Unsigned]) -> bool:
        """Run on addresses in the engine's order; it is over when this returns, and told to a
        profiler.
        """
        told = self.engine.facts.hidden or self._debug.listener is not None
        if told or self._converted is not None or self._allocators:
            return self._execute_named(bindings)
        if self._times is not None:
            self._times.begin()
        addresses = [int(b) for b in bindings]
        if self._room is not None and self._room.is_due(addresses):
            self._room.check(self._bound(addresses))
        done = self.native.execute_v2(addresses)
        if self._times is not None:
            self._times.tell()
        return done

    def _execute_named(self, bindings: Sequence[int]) -> bool:
        """On addresses of all that the engine shows, but for outputs with an allocator."""
        for name, address in zip(self.engine, bindings, strict=True):
            if name not in self._allocators and not self.set_tensor_address(name, address):
                return False
        return self.execute_async_v3(0)

    def set_input_consumed_event(self, event: int) -> bool:
        """False but for 0: inputs are read until the run is over."""
        if event:
            do = "Record an event behind execute_async_v3"
            self.fail(f"set_input_consumed_event: inputs are read until a run is over: {do}")
        return not event

    def get_input_consumed_event(self) -> int:
        return 0

    def set_aux_streams(self, aux_streams: Sequence[int]) -> None:
        """Runs take streams of their own."""

    # -- looking ----------------------------------------------------------------------------------

    @property
    def profiler(self) -> IProfiler | None:
        """What is told how long each step of a run took: steps then run one by one."""
        return self._times.profiler if self._times else None

    @profiler.setter
    def profiler(self, profiler: IProfiler | None) -> None:
        self._times = None if profiler is None else LayerTimes(profiler)
        self.native.profiler = self._times

    def set_debug_listener(self, listener: IDebugListener | None) -> bool:
        """What is told of debug tensors whose state is on, after each run; None ends that."""
        self._debug.listener = listener
        return True

    def get_debug_listener(self) -> IDebugListener | None:
        return self._debug.listener

    def set_all_tensors_debug_state(self, flag: bool) -> bool:
        """Of those that were marked one by one."""
        self._debug.states = dict.fromkeys(self._debug.states, flag)
        return True

    def set_tensor_debug_state(self, name: str, flag: bool) -> bool:
        """False for what is no debug tensor."""
        if name not in self._debug.states:
            self.fail(f"{name!r} is no debug tensor: Call mark_debug before the build")
            return False
        self._debug.states[name] = flag
        return True

    def get_debug_state(self, name: str) -> bool:
        """Off at first."""
        return self._debug.states.get(name, False)

    @property
    def unfused_tensors_debug_state(self) -> bool:
        """Of those that fusions left, if the network marked them."""
        return self._debug.unfused

    @unfused_tensors_debug_state.setter
    def unfused_tensors_debug_state(self, flag: bool) -> None:
        self._debug.unfused = flag

    def _told(self, stream: int) -> bool:
        """Tell the listener of a run; False where it could not take a tensor."""
        on_host = self.engine.native.device.host_memory
        location = TensorLocation.HOST if on_host else TensorLocation.DEVICE
        failed = self._debug.tell(self._seen, stream, location)
        if failed:
            self.fail(f"the debug listener could not take {', '.join(failed)}")
        return not failed

    def _seen(self, name: str) -> Seen:
        """Where an input or output lies after a run, linear."""
        placed = self._allocators.get(name)
        if placed is not None:
            return Seen(placed.address, placed.shape)
        return Seen(self.native.get_tensor_address(name), self.get_tensor_shape(name))

    def report_to_profiler(self) -> bool:
        """Tell the profiler of the last run, where ``enqueue_emits_profile`` is off; False without
        a run or a profiler.
        """
        if self._times is None:
            self.fail("report_to_profiler: the context has no profiler. Set one before the run")
            return False
        return self._times.tell()

    def set_communicator(self, communicator: object) -> bool:
        """False: an engine is on one device."""
        self.fail("set_communicator: an engine of tactix runs on one device")
        return False

    # -- before TensorRT 10 -----------------------------------------------------------------------

    def execute_async_v2(self, bindings: Sequence[Unsigned], stream_handle: Unsigned) -> bool:
        for name, address in zip(self.engine, bindings, strict=True):
            if not self.set_tensor_address(name, address):
                return False
        return self.execute_async_v3(stream_handle)

    def set_binding_shape(self, binding: int, shape: Sequence[int]) -> bool:
        return self.set_input_shape(self.engine[binding], shape)

    def get_binding_shape(self, binding: int) -> Dims:
        return self.get_tensor_shape(self.engine[binding])
