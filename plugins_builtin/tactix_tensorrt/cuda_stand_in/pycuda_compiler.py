"""``pycuda.compiler``: sources of kernels are refused."""

from __future__ import annotations

from tactix_tensorrt.cuda_stand_in.machine import MACHINE
from tactix_tensorrt.cuda_stand_in.pycuda_driver import PycudaError
from tactix_tensorrt.cuda_stand_in.statuses import no_gpu


class CompileError(PycudaError):
    """A source that could not be compiled."""


class SourceModule:
    """Raises CompileError."""

    def __init__(self, source: str, *args: object, **options: object) -> None:
        refusal = no_gpu("a kernel")
        MACHINE.refused("SourceModule", refusal)
        raise CompileError(refusal.why)
