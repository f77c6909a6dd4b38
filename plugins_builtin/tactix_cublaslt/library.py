"""cuBLASLt: its functions and numbers (cublasLt.h of CUDA 12 and 13), a handle for a device, its
version.
"""

from __future__ import annotations

import functools
from ctypes import Structure, byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import TYPE_CHECKING

from tactix.base.dtypes import DType
from tactix_cuda.library import LibraryDescription, LoadedLibrary, load

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

P = c_void_p

PRODUCT = LibraryDescription(
    "cuBLASLt",
    "cublasLt",
    ("libcublasLt.so.13", "libcublasLt.so.12"),
    {
        "cublasLtCreate": (P,),
        "cublasLtMatmulDescCreate": (P, c_int, c_int),
        "cublasLtMatmulDescSetAttribute": (P, c_int, P, c_size_t),
        "cublasLtMatmulDescDestroy": (P,),
        "cublasLtMatrixLayoutCreate": (P, c_int, c_uint64, c_uint64, c_int64),
        "cublasLtMatrixLayoutSetAttribute": (P, c_int, P, c_size_t),
        "cublasLtMatrixLayoutDestroy": (P,),
        "cublasLtMatmulPreferenceCreate": (P,),
        "cublasLtMatmulPreferenceSetAttribute": (P, c_int, P, c_size_t),
        "cublasLtMatmulPreferenceDestroy": (P,),
        "cublasLtMatmulAlgoGetHeuristic": (P, P, P, P, P, P, P, c_int, P, P),
        "cublasLtMatmulAlgoCheck": (P, P, P, P, P, P, P, P),
        "cublasLtMatmul": (P, P, P, P, P, P, P, P, P, P, P, P, P, P, c_size_t, P),
        "cublasLtGetVersion": (),
    },
    "cublasLtGetStatusString",
    "nvidia-cublas",
)

TYPES = {DType.FP32: 0, DType.FP16: 2, DType.BF16: 14}
"""cudaDataType_t."""
COMPUTE = {"float32": 68, "tf32": 77}
"""cublasComputeType_t: sums in float32, and of operands rounded to 10 bits of mantissa."""
NOT_SUPPORTED = 15
DESC_TRANS_A, DESC_TRANS_B, DESC_EPILOGUE, DESC_BIAS, DESC_BIAS_TYPE = 3, 4, 7, 8, 26
LAYOUT_BATCH, LAYOUT_STRIDE = 5, 6
PREFER_WORKSPACE, PREFER_ALIGNMENTS = 1, (5, 6, 7, 8)
EPILOGUE_DEFAULT, EPILOGUE_BIAS = 1, 4
EPILOGUES = {"": 0, "relu": 2, "gelu": 32}
"""Besides EPILOGUE_BIAS; ``gelu`` is the form by tanh."""


class Heuristic(Structure):
    """cublasLtMatmulHeuristicResult_t; ``algo`` is opaque, and may be kept and given to the same
    version.
    """

    _fields_ = [
        ("algo", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


class CublasLt(LoadedLibrary):
    """The library with a handle for one device, which must be active wherever it is called."""

    def __init__(self, library: LoadedLibrary) -> None:
        super().__init__(library.product, library.functions)
        self.functions.cublasLtGetVersion.restype = c_size_t

    @functools.cached_property
    def handle(self) -> c_void_p:
        """Raises LibraryFailure."""
        made = c_void_p()
        self.call("cublasLtCreate", byref(made))
        return made

    @property
    def version(self) -> tuple[int, int, int]:
        """Major, minor, patch."""
        n = int(self.functions.cublasLtGetVersion())
        return n // 10000, n // 100 % 100, n % 100


@functools.cache
def cublaslt(device: CudaDevice) -> CublasLt:
    """The library for that device. Raises ExecutionError if it is not here."""
    device.activate()
    return CublasLt(load(PRODUCT))
