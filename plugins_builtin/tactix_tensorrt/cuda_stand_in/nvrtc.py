"""``cuda.bindings.nvrtc`` where NVIDIA's is not installed: programs are taken, none is compiled."""

from __future__ import annotations

import ctypes
import enum

from tactix_tensorrt.cuda_stand_in import addresses
from tactix_tensorrt.cuda_stand_in.answers import CudaAnswers
from tactix_tensorrt.cuda_stand_in.handles import Handle, HandleTable
from tactix_tensorrt.cuda_stand_in.statuses import STANDS_IN, CudaRefusal

__all__ = ["STANDS_IN"]

_WHY = (
    "kernels are not compiled, as there is no GPU here and no NVRTC is installed; "
    "`pip install nvidia-cuda-nvrtc cuda-python` compiles them, a machine with a GPU runs them"
)


class nvrtcResult(enum.IntEnum):
    """Statuses."""

    NVRTC_SUCCESS = 0
    NVRTC_ERROR_OUT_OF_MEMORY = 1
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2
    NVRTC_ERROR_INVALID_INPUT = 3
    NVRTC_ERROR_INVALID_PROGRAM = 4
    NVRTC_ERROR_INVALID_OPTION = 5
    NVRTC_ERROR_COMPILATION = 6
    NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7
    NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8
    NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9
    NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10
    NVRTC_ERROR_INTERNAL_ERROR = 11


class nvrtcProgram(Handle):
    """A source text that was handed over."""


_PROGRAMS = HandleTable[None]("program")
_status = CudaAnswers(nvrtcResult, 0)
_value = CudaAnswers(nvrtcResult, 1)
_two_values = CudaAnswers(nvrtcResult, 2)


def _check(prog: object) -> None:
    try:
        _PROGRAMS.state(addresses.address(prog))
    except CudaRefusal as e:
        raise CudaRefusal(nvrtcResult.NVRTC_ERROR_INVALID_PROGRAM, e.why) from None


@_two_values
def nvrtcVersion() -> tuple[int, int]:
    return 12, 9


@_value
def nvrtcCreateProgram(
    src: object, name: object, numHeaders: object, headers: object, includeNames: object
) -> nvrtcProgram:
    return nvrtcProgram(_PROGRAMS.new(None))


@_status
def nvrtcDestroyProgram(prog: object) -> None:
    _check(prog)
    _PROGRAMS.destroy(addresses.address(prog))


@_status
def nvrtcCompileProgram(prog: object, numOptions: object, options: object) -> None:
    _check(prog)
    raise CudaRefusal(nvrtcResult.NVRTC_ERROR_COMPILATION, _WHY)


@_value
def nvrtcGetProgramLogSize(prog: object) -> int:
    _check(prog)
    return len(_WHY) + 1


@_status
def nvrtcGetProgramLog(prog: object, log: bytes | bytearray) -> None:
    """``log``: written in place, even if it is ``bytes``, as programs that follow cuda-python's
    examples give.
    """
    _check(prog)
    if len(log) < 2:  # CPython shares bytes of one character
        raise CudaRefusal(nvrtcResult.NVRTC_ERROR_INVALID_INPUT, f"a log of {len(log)} bytes")
    text = _WHY.encode()[: len(log) - 1] + b"\0"
    ctypes.memmove(addresses.copy_end(log).address, text, len(text))


@_value
def nvrtcGetPTXSize(prog: object) -> int:
    raise CudaRefusal(nvrtcResult.NVRTC_ERROR_INVALID_PROGRAM, _WHY)


@_status
def nvrtcGetPTX(prog: object, ptx: object) -> None:
    raise CudaRefusal(nvrtcResult.NVRTC_ERROR_INVALID_PROGRAM, _WHY)


@_value
def nvrtcGetCUBINSize(prog: object) -> int:
    raise CudaRefusal(nvrtcResult.NVRTC_ERROR_INVALID_PROGRAM, _WHY)


@_status
def nvrtcGetCUBIN(prog: object, cubin: object) -> None:
    raise CudaRefusal(nvrtcResult.NVRTC_ERROR_INVALID_PROGRAM, _WHY)


def nvrtcGetErrorString(result: int) -> tuple[nvrtcResult, bytes]:
    """The name of a status."""
    return nvrtcResult.NVRTC_SUCCESS, nvrtcResult(result).name.encode()
