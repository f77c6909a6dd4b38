"""What programs implement: they subclass these, call ``Base.__init__(self)``, and override."""

from __future__ import annotations

from dataclasses import dataclass

from tactix_tensorrt.api.enums import (
    AllocatorFlag,
    APILanguage,
    CalibrationAlgoType,
    DataType,
    SeekPosition,
    TensorLocation,
)
from tactix_tensorrt.api.values import Dims


class Implemented:
    """Base of them: constructed without arguments."""

    def __init__(self) -> None: ...


@dataclass
class InterfaceInfo:
    """Which interface of which version something implements."""

    kind: str = ""
    major: int = 1
    minor: int = 0


class IVersionedInterface(Implemented):
    """What says which interface it implements; ``_kind`` is the interface's own name by default."""

    _kind, _major = "", 1

    @property
    def api_language(self) -> APILanguage:
        return APILanguage.PYTHON

    @property
    def interface_info(self) -> InterfaceInfo:
        own = (c.__name__ for c in type(self).__mro__ if c.__module__.startswith(__package__))
        return InterfaceInfo(self._kind or next(own), self._major)


class IProfiler(Implemented):
    """Told how long layers took."""

    def report_layer_time(self, layer_name: str, ms: float) -> None: ...


class Profiler(IProfiler):
    """Prints what it is told."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        print(f"{layer_name}: {ms}ms")


class IProgressMonitor(IVersionedInterface):
    """Told how a build goes; ``step_complete`` returns whether to go on."""

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None: ...

    def step_complete(self, phase_name: str, step: int) -> bool:
        return True

    def phase_finish(self, phase_name: str) -> None: ...


class IOutputAllocator(IVersionedInterface):
    """Gives outputs memory once their sizes are known: 0 is a failure."""

    def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
        return 0

    def reallocate_output_async(
        self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
    ) -> int:
        return self.reallocate_output(tensor_name, memory, size, alignment)

    def notify_shape(self, tensor_name: str, shape: Dims) -> None: ...


class IGpuAllocator(IVersionedInterface):
    """Gives engines memory: ``allocate`` returns an address, 0 is a failure."""

    def allocate(self, size: int, alignment: int, flags: AllocatorFlag | int) -> int:
        return 0

    def deallocate(self, memory: int) -> bool:
        return False


class IGpuAsyncAllocator(IGpuAllocator):
    """One that allocates in streams."""

    def allocate_async(
        self, size: int, alignment: int, flags: AllocatorFlag | int, stream: int
    ) -> int:
        return 0

    def deallocate_async(self, memory: int, stream: int) -> bool:
        return False


class IDebugListener(IVersionedInterface):
    """Told of debug tensors."""

    def process_debug_tensor(
        self,
        addr: int,
        location: TensorLocation,
        type: DataType,
        shape: Dims,
        name: str,
        stream: int,
    ) -> bool:
        return True


class IStreamReader(IVersionedInterface):
    """Gives a plan piece by piece."""

    def read(self, size: int) -> bytes:
        return b""


class IStreamReaderV2(IVersionedInterface):
    """Gives a plan piece by piece, and goes where it is told."""

    def read(self, num_bytes: int, stream: int) -> bytes:
        return b""

    def seek(self, offset: int, where: SeekPosition) -> bool:
        return False


class IStreamWriter(IVersionedInterface):
    """Takes a plan piece by piece; returns how many bytes it took."""

    def write(self, data: bytes) -> int:
        return 0


class IInt8Calibrator(Implemented):
    """Gives sample inputs, and keeps what was found with them."""

    ALGORITHM = CalibrationAlgoType.ENTROPY_CALIBRATION_2

    def get_batch_size(self) -> int:
        return 0

    def get_batch(self, names: list[str]) -> list[int] | None:
        """Addresses of one batch, or None when there are no more."""
        return None

    def read_calibration_cache(self) -> bytes | None:
        return None

    def write_calibration_cache(self, cache: memoryview) -> None: ...

    def get_algorithm(self) -> CalibrationAlgoType:
        return self.ALGORITHM


class IInt8LegacyCalibrator(IInt8Calibrator):
    ALGORITHM = CalibrationAlgoType.LEGACY_CALIBRATION


class IInt8EntropyCalibrator(IInt8Calibrator):
    ALGORITHM = CalibrationAlgoType.ENTROPY_CALIBRATION


class IInt8EntropyCalibrator2(IInt8Calibrator): ...


class IInt8MinMaxCalibrator(IInt8Calibrator):
    ALGORITHM = CalibrationAlgoType.MINMAX_CALIBRATION


class IAlgorithmIOInfo:
    """How an input or output of an algorithm lies."""

    def __init__(self, dtype: DataType, strides: Dims, axis: int, components: int) -> None:
        self._dtype, self._strides = dtype, strides
        self._axis, self._components = axis, components

    @property
    def dtype(self) -> DataType:
        return self._dtype

    @property
    def strides(self) -> Dims:
        return self._strides

    @property
    def vectorized_dim(self) -> int:
        """The axis that lies in blocks, -1 for none."""
        return self._axis

    @property
    def components_per_element(self) -> int:
        """Of a block, -1 where there is none."""
        return self._components


class IAlgorithmVariant:
    """Which algorithm it is."""

    def __init__(self, implementation: int, tactic: int) -> None:
        self._numbers = implementation, tactic

    @property
    def implementation(self) -> int:
        return self._numbers[0]

    @property
    def tactic(self) -> int:
        return self._numbers[1]


class IAlgorithmContext:
    """The layer that an algorithm is for."""

    def __init__(self, name: str, shapes: list[list[Dims]], inputs: int) -> None:
        self.name, self._shapes = name, shapes
        self.num_inputs, self.num_outputs = inputs, len(shapes) - inputs

    def get_shape(self, index: int) -> list[Dims]:
        """Lowest, tuned for, highest."""
        return self._shapes[index]


class IAlgorithm:
    """One way to run a layer."""

    def __init__(
        self, variant: IAlgorithmVariant, io: list[IAlgorithmIOInfo], seconds: float | None
    ) -> None:
        self._variant, self._io = variant, io
        self._seconds = seconds

    @property
    def timing_msec(self) -> float:
        """What is estimated: nothing is measured before the choice."""
        return 0.0 if self._seconds is None else self._seconds * 1e3

    @property
    def algorithm_variant(self) -> IAlgorithmVariant:
        return self._variant

    @property
    def workspace_size(self) -> int:
        return 0

    def get_algorithm_io_info(self, index: int) -> IAlgorithmIOInfo:
        return self._io[index]


class IAlgorithmSelector(Implemented):
    """Chooses among algorithms."""

    def select_algorithms(self, context: IAlgorithmContext, choices: list[IAlgorithm]) -> list[int]:
        return list(range(len(choices)))

    def report_algorithms(
        self, contexts: list[IAlgorithmContext], choices: list[IAlgorithm]
    ) -> None: ...
