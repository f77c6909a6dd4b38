"""Runs products of cuBLASLt inside the graph, and the kernels behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tactix.base.errors import PlanFormatError
from tactix.contracts.artifact import Launch
from tactix.contracts.launcher import Step
from tactix_cublaslt import FUNCTION, LAUNCHER
from tactix_cuda.launcher import GraphLauncher, LibraryCall, kernel_of
from tactix_cuda.modules import CudaKernel

if TYPE_CHECKING:
    from tactix_cublaslt.library import CublasLt
    from tactix_cublaslt.matmul import Product
    from tactix_cuda.device import CudaDevice

ARGUMENTS = 10


class CublasLtLauncher(GraphLauncher):
    """``params``: ``version`` of the library, ``problem``, ``algorithm`` (64 bytes in hex),
    ``workspace`` in bytes.

    ``library``: None for the one of the device.
    """

    key = LAUNCHER

    def __init__(self, library: CublasLt | None = None) -> None:
        self._given = library

    def starts(
        self, step: Step, device: CudaDevice
    ) -> Iterable[tuple[Launch, CudaKernel | LibraryCall]]:
        """Raises PlanCompatibilityError for another version of the library, ExecutionError if there
        is none.
        """
        return [
            (x, self._call(step, x, device) if x.symbol == FUNCTION else kernel_of(step, x, device))
            for x in step.artifact.launches
        ]

    def _call(self, step: Step, launch: Launch, device: CudaDevice) -> Product:
        from tactix_cublaslt.library import PRODUCT, cublaslt
        from tactix_cublaslt.matmul import Problem, Product
        from tactix_cuda.library import check_version, version_in

        params, library = step.artifact.params, self._given or cublaslt(device)
        try:
            version, size, algorithm = version_in(params), params["workspace"], params["algorithm"]
            if not isinstance(size, int) or not isinstance(algorithm, str):
                raise TypeError(f"workspace {size!r}, algorithm {algorithm!r}")
            code, problem = bytes.fromhex(algorithm), Problem.from_json(params["problem"])
        except (KeyError, TypeError, ValueError) as e:
            raise PlanFormatError("not a call of cuBLASLt", who=step.name, why=str(e)) from None
        if len(code) != 64 or size < 0 or len(launch.args) != ARGUMENTS:
            raise PlanFormatError("not a call of cuBLASLt", who=step.name, why="a length is wrong")
        check_version(PRODUCT, version, library.version)
        return Product(library, problem, code, size)
