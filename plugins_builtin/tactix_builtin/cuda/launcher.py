"""Runs cubins: one table of arguments for all launches of the steps, and one CUDA graph that makes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tactix.contracts.artifact import Arg, Binary, Launch
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step
from tactix.words.dims import Dim, Env, evaluate
from tactix.words.errors import ExecutionError, ShapeError
from tactix_builtin.cuda.modules import Kernel

if TYPE_CHECKING:
    from tactix_builtin.cuda.device import CudaDevice

AXES = 3
SHARED = 3 * AXES
"""Where the geometry of a launch has its shared memory: after grid, block and cluster."""


class CubinLauncher(Launcher):
    """Steps whose code is a cubin.

    Every argument of a kernel is eight bytes: an address, or a ``long long``. ``Launch.symbol`` x names the kernel
    ``TX_NAME(x)``. A launch whose grid has a zero is left out: there is nothing to do.
    """

    key = "tactix.cuda.cubin@1"
    device = "cuda"

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError for code that is missing, cannot be loaded, or lacks a kernel."""
        from tactix_builtin.cuda.device import CudaDevice
        from tactix_builtin.cuda.graph import CudaRun

        if not isinstance(ctx.device, CudaDevice):
            raise ExecutionError(f"{self.key} runs on {CudaDevice.key}, not on {ctx.device.key}", who=steps[0].name)
        return CudaRun(KernelTable(steps, ctx.device), ctx.device, why_plain())


def why_plain() -> str:
    """Why kernels are launched one by one instead of as a graph; empty if they are not."""
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return "CUDA_LAUNCH_BLOCKING=1: every kernel is waited for, so that errors name their step"
    return "TACTIX_CUDA_GRAPH=0" if os.environ.get("TACTIX_CUDA_GRAPH") == "0" else ""


@dataclass(frozen=True)
class Start:
    """One launch: the step that it belongs to, its kernel, its first argument's slot, how many it has."""

    step: str
    kernel: Kernel
    first: int
    count: int


class KernelTable:
    """Argument slots of all launches in a row, and what goes into each: what does not depend on shapes."""

    def __init__(self, steps: Sequence[Step], device: CudaDevice) -> None:
        import numpy as np

        self.starts: list[Start] = []
        self.size = 0
        self.users: dict[int, list[tuple[int, int, int]]] = {}
        pointers: list[tuple[int, int, int]] = []  # slot, buffer, index of the offset
        scalars: list[tuple[int, int]] = []  # slot, index of the value
        geometry: list[list[int]] = []  # indices of grid, block, cluster, shared memory
        known: dict[Dim, int] = {}
        for step, launch, kernel in _launches(steps, device):
            start = Start(step.name, kernel, self.size, len(launch.args))
            for slot, arg in enumerate(launch.args, self.size):
                value = known.setdefault(arg.value, len(known))
                if arg.kind == "scalar" or (arg.kind == "workspace" and step.workspace < 0):  # of no bytes
                    scalars.append((slot, value))
                else:
                    buffer = buffer_of(step, arg)
                    pointers.append((slot, buffer, value))
                    self.users.setdefault(buffer, []).append((slot, value, len(self.starts)))
            self.size += start.count
            self.starts.append(start)
            geometry.append([known.setdefault(d, len(known)) for d in _geometry(launch, step)])
        self.dims = list(known)
        self.pointers = np.array(pointers, np.int64).reshape(-1, 3).T
        self.scalars = np.array(scalars, np.int64).reshape(-1, 2).T
        self.geometry = np.array(geometry, np.int64).reshape(-1, SHARED + 1)

    def evaluate(self, env: Env) -> list[int]:
        """Every number that the launches need, at these shapes. Raises ShapeError."""
        return [evaluate(d, env) for d in self.dims]

    def geometry_at(self, values: Sequence[int]) -> list[list[int]]:
        """Grid, block, cluster, shared memory of every launch."""
        return [[values[i] for i in row] for row in self.geometry.tolist()]


def buffer_of(step: Step, arg: Arg) -> int:
    """The buffer that an address argument means. Raises ExecutionError if the step has none."""
    try:
        if arg.kind == "constant":
            found = step.constants[arg.name]
        elif arg.kind == "workspace":
            found = step.workspace
        else:
            found = (step.inputs if arg.kind == "input" else step.outputs)[arg.index].buffer
    except (KeyError, IndexError):
        found = -1
    if found < 0:
        what = f"{arg.kind} {arg.name or arg.index}"
        raise ExecutionError(f"a kernel asks for {what}, which has no buffer", who=step.name)
    return found


def _launches(steps: Sequence[Step], device: CudaDevice) -> Iterator[tuple[Step, Launch, Kernel]]:
    for s in steps:
        code = s.artifact.code
        if not isinstance(code, Binary):
            raise ExecutionError("it has no machine code", who=s.name, do="Compile it when the plan is built")
        for launch in s.artifact.launches:
            try:
                yield s, launch, device.modules.kernel(code, launch.symbol)
            except ExecutionError as e:
                e.who = e.who or s.name
                raise


def _geometry(launch: Launch, step: Step) -> list[Dim]:
    """Grid, block and cluster with three axes each, and the bytes of shared memory."""
    out: list[Dim] = []
    for dims in (launch.grid, launch.block, launch.cluster):
        if len(dims) > AXES:
            raise ShapeError(f"a launch has {len(dims)} axes", who=step.name, why=f"CUDA has {AXES}")
        out += [*dims, *([1] * (AXES - len(dims)))]
    return [*out, launch.shared_bytes]
