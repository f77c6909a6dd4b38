"""cuDNN 9: its backend's functions and numbers (cudnn_graph.h), a handle for a device, its version,
descriptors.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Sequence
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p
from typing import TYPE_CHECKING, Any

from tactix.base.dtypes import DType
from tactix_cuda.library import LibraryDescription, LoadedLibrary, load

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

P = c_void_p

PRODUCT = LibraryDescription(
    "cuDNN",
    "cudnn",
    ("libcudnn.so.9",),
    {
        "cudnnCreate": (P,),
        "cudnnSetStream": (P, P),
        "cudnnBackendCreateDescriptor": (c_int, P),
        "cudnnBackendDestroyDescriptor": (P,),
        "cudnnBackendFinalize": (P,),
        "cudnnBackendSetAttribute": (P, c_int, c_int, c_int64, P),
        "cudnnBackendGetAttribute": (P, c_int, c_int, c_int64, P, P),
        "cudnnBackendExecute": (P, P, P),
        "cudnnGetVersion": (),
    },
    "cudnnGetErrorString",
    "nvidia-cudnn-cu13",
)

TYPES = {DType.FP32: 0, DType.FP16: 2, DType.INT32: 4, DType.BF16: 9, DType.BOOL: 11}
"""cudnnDataType_t."""
POINTWISE, CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTICS, PLAN = 0, 1, 2, 3, 4, 5
OPERATION_CONVOLUTION, OPERATION_POINTWISE, OPERATION_GRAPH, VARIANT_PACK, TENSOR = (
    10,
    13,
    15,
    16,
    17,
)
MATMUL, OPERATION_MATMUL, REDUCTION, OPERATION_REDUCTION = 18, 19, 21, 22
"""cudnnBackendDescriptorType_t."""
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, VOID_PTR, CONVOLUTION_MODE, HEUR_MODE = (
    0,
    1,
    2,
    3,
    4,
    6,
    7,
    8,
)
POINTWISE_MODE, DESCRIPTOR, REDUCTION_MODE, BEHAVIOR_NOTE, CHAR = 14, 15, 18, 19, 24
"""cudnnBackendAttributeType_t."""
C_TYPES: dict[int, Any] = {
    HANDLE: c_void_p,
    DATA_TYPE: c_int,
    BOOLEAN: ctypes.c_bool,
    INT64: c_int64,
    FLOAT: ctypes.c_float,
    VOID_PTR: c_void_p,
    CONVOLUTION_MODE: c_int,
    HEUR_MODE: c_int,
    POINTWISE_MODE: c_int,
    DESCRIPTOR: c_void_p,
    REDUCTION_MODE: c_int,
    BEHAVIOR_NOTE: c_int,
    CHAR: ctypes.c_char,
}
CROSS_CORRELATION, MODE_A, RUNTIME_COMPILATION = 1, 3, 0
ADD, MUL, DIV, SUB, EXP, LOG, RELU, NOT_LESS, INDEX, SELECT = 0, 1, 6, 9, 13, 15, 100, 303, 501, 601
"""cudnnPointwiseMode_t."""
SUMS, LARGEST = 0, 3
"""cudnnReduceTensorOp_t."""


class Cudnn(LoadedLibrary):
    """The library with a handle for one device, which must be active wherever it is called."""

    def __init__(self, library: LoadedLibrary) -> None:
        super().__init__(library.product, library.functions)
        self.functions.cudnnGetVersion.restype = c_size_t
        self.lock = threading.Lock()

    @functools.cached_property
    def handle(self) -> c_void_p:
        """Raises LibraryFailure."""
        made = c_void_p()
        self.call("cudnnCreate", byref(made))
        return made

    @property
    def version(self) -> tuple[int, int, int]:
        """Major, minor, patch."""
        n = int(self.functions.cudnnGetVersion())
        return n // 10000, n // 100 % 100, n % 100

    def execute(self, plan: Descriptor, pack: Descriptor, stream: int) -> None:
        """Enqueue a plan with its addresses. Raises LibraryFailure."""
        with self.lock:  # the stream is the handle's
            self.call("cudnnSetStream", self.handle, stream)
            self.call("cudnnBackendExecute", self.handle, plan.native, pack.native)


class Descriptor:
    """One of the backend's descriptors, given back with this object. All functions raise
    LibraryFailure.
    """

    def __init__(self, library: Cudnn, kind: int) -> None:
        self._library, self.native = library, c_void_p()
        self._keep_alive: list[Any] = []
        library.call("cudnnBackendCreateDescriptor", kind, byref(self.native))
        weakref.finalize(
            self, library.call, "cudnnBackendDestroyDescriptor", self.native
        ).atexit = False

    def set(self, attribute: int, kind: int, *values: Any) -> Descriptor:
        """Values of one type; descriptors by themselves. Returns self."""
        self._keep_alive += [v for v in values if isinstance(v, Descriptor)]
        plain = [v.native if isinstance(v, Descriptor) else v for v in values]
        plain = [v.value if isinstance(v, c_void_p) else v for v in plain]
        array = (C_TYPES[kind] * len(values))(*plain)
        self._library.call(
            "cudnnBackendSetAttribute", self.native, attribute, kind, len(values), array
        )
        return self

    def text(self, attribute: int, value: bytes) -> Descriptor:
        """Set characters; returns self."""
        self._library.call(
            "cudnnBackendSetAttribute", self.native, attribute, CHAR, len(value), value
        )
        return self

    def finalize(self) -> Descriptor:
        """No attribute can be set any more; returns self."""
        self._library.call("cudnnBackendFinalize", self.native)
        return self

    def count(self, attribute: int, kind: int) -> int:
        """How many values there are."""
        found = c_int64()
        self._library.call(
            "cudnnBackendGetAttribute", self.native, attribute, kind, 0, byref(found), None
        )
        return found.value

    def get(self, attribute: int, kind: int) -> list[Any]:
        """All values."""
        size, found = self.count(attribute, kind), c_int64()
        values = (C_TYPES[kind] * size)()
        self._library.call(
            "cudnnBackendGetAttribute", self.native, attribute, kind, size, byref(found), values
        )
        return list(values[: found.value])

    def descriptors(self, attribute: int, made: Sequence[Descriptor]) -> int:
        """Fill descriptors that are there already; gives how many."""
        found, array = c_int64(), (c_void_p * len(made))(*(d.native.value for d in made))
        self._library.call(
            "cudnnBackendGetAttribute",
            self.native,
            attribute,
            DESCRIPTOR,
            len(made),
            byref(found),
            array,
        )
        return found.value


@functools.cache
def cudnn(device: CudaDevice) -> Cudnn:
    """The library for that device. Raises ExecutionError if it is not here."""
    device.activate()
    return Cudnn(load(PRODUCT))
