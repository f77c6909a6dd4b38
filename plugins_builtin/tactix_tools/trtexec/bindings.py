"""Inputs and outputs of one context: arrays of the host, and where they lie for the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tactix.base.errors import InvalidArgument
from tactix.run.link import allocator_of
from tactix.run.memory import Memory
from tactix_tensorrt import api as trt
from tactix_tools import arrays
from tactix_tools.options import Shapes
from tactix_tools.trtexec.lines import ReportLines, as_trtexec
from tactix_tools.trtexec.models import TrtexecFailure, check_values
from tactix_tools.trtexec.options import InferenceOptions

if TYPE_CHECKING:
    from tactix.contracts.allocator import Allocator


def inputs_of(
    engine: trt.ICudaEngine, options: InferenceOptions, lines: ReportLines
) -> dict[str, Any]:
    """Arrays by name: of files, else random. Raises InvalidArgument, ShapeError, OSError."""
    native = engine.native
    told = _values(engine, options.profile)
    given = {n: s for n, s in options.shapes.items() if n not in told}
    shapes = _tuned(engine, options.profile) | given
    symbols = arrays.sizes(native.plan, shapes)
    out = arrays.random(native.plan, symbols)
    if unknown := options.inputs.keys() - out.keys():
        raise InvalidArgument(
            f'Cannot find input tensor with name "{min(unknown)}" in the engine bindings!',
            do=f"There are {', '.join(out)}",
        )
    for name, array in out.items():
        if name in options.inputs:
            out[name] = _read(options.inputs[name], array)
            lines.info(f"Using values loaded from {options.inputs[name]} for input {name}")
        elif name in told:
            values = options.shapes.get(name, told[name])
            check_values(name, values, array.size)
            out[name] = _filled(array, values)
            lines.info(f"Using {as_trtexec(values)} for the shape tensor {name}")
        else:
            lines.info(f"Using random values for input {name}")
    return out


def _tuned(engine: trt.ICudaEngine, profile: int) -> Shapes:
    """Shapes that a profile is tuned for. Raises InvalidArgument for one that there is not."""
    count = engine.num_optimization_profiles
    if profile >= count:
        raise InvalidArgument(f"no profile {profile}", do=f"The engine has {count}")
    if not engine.native.profiles:
        return {}
    names = [io.name for io in engine.native.inputs]
    return {n: tuple(engine.get_tensor_profile_shape(n, profile)[1]) for n in names}


def _values(engine: trt.ICudaEngine, profile: int) -> Shapes:
    """Of shape tensors those that a profile is tuned for."""
    names = [io.name for io in engine.native.inputs]
    rows = {n: engine.get_tensor_profile_values(n, profile) for n in names}
    return {n: tuple(found[1]) for n, found in rows.items() if found}


def _filled(like: Any, values: Sequence[int]) -> Any:
    """These values as an array of that dtype and shape."""
    import numpy as np

    return np.array(values, like.dtype).reshape(like.shape)


def _read(path: str, like: Any) -> Any:
    """Raw bytes as an array of that dtype and shape. Raises InvalidArgument, OSError."""
    import numpy as np

    content = Path(path).read_bytes()
    if len(content) != like.nbytes:
        raise InvalidArgument(
            f"{path} has {len(content)} bytes", why=f"the input takes {like.nbytes}"
        )
    return np.frombuffer(content, like.dtype).reshape(like.shape)


class TakenOutput(trt.IOutputAllocator):
    """Memory for an output whose shape follows from data."""

    def __init__(self, allocator: Allocator) -> None:
        super().__init__()
        self._allocator = allocator
        self.memory = Memory(0, 0)
        self.shape: tuple[int, ...] = ()

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        if size > self.memory.size or not self.memory.address:
            self.memory = Memory.allocate(self._allocator, max(1, size))
        return self.memory.address

    def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
        self.shape = tuple(shape)


class Bindings:
    """Memory for one context, which is told of it. ``inputs``: arrays by name. Raises
    TrtexecFailure, AllocationError.
    """

    def __init__(
        self, engine: trt.ICudaEngine, context: trt.IExecutionContext, inputs: Mapping[str, Any]
    ) -> None:
        self.device = engine.native.device
        self._allocator = allocator_of(engine.session, self.device)
        self._context = context
        self._outputs = engine.native.outputs
        self.inputs = {name: _contiguous(array) for name, array in inputs.items()}
        self._places: dict[str, Memory] = {}
        self._taken: dict[str, TakenOutput] = {}
        for name, array in self.inputs.items():
            if not context.set_input_shape(name, array.shape):
                raise TrtexecFailure(f"Input {name} cannot have shape {as_trtexec(array.shape)}")
            self._place(name, array.nbytes)
        for io in self._outputs:
            self._place_output(io.name)
        self.upload()

    def _place(self, name: str, size: int) -> None:
        """Inputs lie where they are if the device's memory is the host's."""
        if self.device.host_memory and name in self.inputs:
            address = int(self.inputs[name].ctypes.data)
        else:
            self._places[name] = Memory.allocate(self._allocator, max(1, size))
            address = self._places[name].address
        if not self._context.set_tensor_address(name, address):
            raise TrtexecFailure(f"{name} has no address")

    def _place_output(self, name: str) -> None:
        size = self._context.get_max_output_size(name)
        if size >= 0:
            self._place(name, size)
            return
        self._taken[name] = TakenOutput(self._allocator)
        self._context.set_output_allocator(name, self._taken[name])

    def upload(self) -> None:
        """Inputs to the device, unless they lie there."""
        for name, array in self.inputs.items():
            if name in self._places:
                self.device.copy_in(self._places[name].address, array)

    def download(self) -> dict[str, Any]:
        """Outputs of the last query, by name."""
        import numpy as np

        out = {}
        for io in self._outputs:
            taken = self._taken.get(io.name)
            memory = taken.memory if taken else self._places[io.name]
            shape = taken.shape if taken else tuple(self._context.get_tensor_shape(io.name))
            array = np.empty(shape, io.dtype.numpy)
            if self.device.host_memory:
                array = memory.view(0, array.nbytes).view(io.dtype.numpy).reshape(shape)
            else:
                self.device.copy_out(array, memory.address)
            out[io.name] = array
        return out


def _contiguous(array: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(array)
