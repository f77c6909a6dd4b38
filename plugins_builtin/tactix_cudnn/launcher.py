"""Runs plans of cuDNN inside the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tactix.base.dims import evaluate
from tactix.base.errors import ExecutionError, PlanFormatError
from tactix.contracts.artifact import Binary, Launch
from tactix.contracts.launcher import Step
from tactix_cuda.launcher import GraphLauncher, LibraryCall
from tactix_cuda.modules import CudaKernel
from tactix_cudnn import FUNCTION, LAUNCHER

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice
    from tactix_cudnn.library import Cudnn


class CudnnLauncher(GraphLauncher):
    """``params``: ``version`` of the library and a Binding; the code is the plan as the library
    wrote it.

    ``library``: None for the one of the device.
    """

    key = LAUNCHER

    def __init__(self, library: Cudnn | None = None) -> None:
        self._given = library

    def starts(
        self, step: Step, device: CudaDevice
    ) -> Iterable[tuple[Launch, CudaKernel | LibraryCall]]:
        """Raises PlanCompatibilityError for another version of the library, ExecutionError if there
        is none.
        """
        from tactix_cuda.library import check_version, version_in
        from tactix_cudnn.library import PRODUCT, cudnn
        from tactix_cudnn.plan import FAILED, Binding, CudnnPlan

        device.activate()
        artifact, library = step.artifact, self._given or cudnn(device)
        try:
            (launch,), version = artifact.launches, version_in(artifact.params)
        except (KeyError, TypeError, ValueError) as e:
            raise PlanFormatError("not a call of cuDNN", who=step.name, why=str(e)) from None
        binding = Binding.from_json(artifact.params)
        places = len(binding.tensors) + 1
        if (
            not isinstance(artifact.code, Binary)
            or launch.symbol != FUNCTION
            or len(launch.args) != places
        ):
            raise PlanFormatError(
                "not a call of cuDNN", who=step.name, why="it has no plan of the library"
            )
        check_version(PRODUCT, version, library.version)
        text = bytes(artifact.code.blob)
        if text.startswith(FAILED.encode()):
            raise ExecutionError(
                "cuDNN has no plan", who=step.name, why=text[len(FAILED) :].decode()
            )
        plan = CudnnPlan(library, binding, text)
        if plan.workspace > evaluate(artifact.workspace, {}):
            why = f"it takes {plan.workspace} bytes"
            raise ExecutionError(
                "a plan of cuDNN takes more workspace than it was given", who=step.name, why=why
            )
        return [(launch, plan)]
