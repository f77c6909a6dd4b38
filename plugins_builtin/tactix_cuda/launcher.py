"""Launchers whose steps become one CUDA graph: one table of arguments for all launches. The first
runs cubins.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tactix.base.dims import Dim, Env, evaluate
from tactix.base.errors import ExecutionError, ShapeError, TactixError
from tactix.contracts.artifact import Arg, Binary, Launch
from tactix.contracts.launcher import Launcher, LinkContext, Runnable, Step
from tactix_cuda.graph_dependencies import Access, access, extents
from tactix_cuda.modules import CudaKernel
from tactix_cuda.tensor_maps import TensorMap, maps_of

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

AXES = 3
"""Of grids, blocks and clusters: x, y, z."""
SHARED = 3 * AXES
"""Where the geometry of a launch has its shared memory: after grid, block and cluster."""


class BoundLibraryCall(Protocol):
    """A library's call for shapes that are fixed."""

    def enqueue(self, arguments: Sequence[int], stream: int) -> None:
        """Put the work into the stream of that handle, which may be capturing. Raises
        ExecutionError.
        """


class LibraryCall(Protocol):
    """A library's function instead of a kernel: what it puts into a stream becomes part of the
    graph.
    """

    def bind(self, arguments: Sequence[int]) -> BoundLibraryCall:
        """Settle what follows from the numbers among the arguments. Raises ExecutionError."""


class GraphLauncher(Launcher):
    """Steps of all such launchers that follow each other run as one CUDA graph.

    Every argument is eight bytes: an address, or a ``long long``. A launch whose grid has a zero is
    left out: there is nothing to do. Launches run beside each other where the memory of their
    arguments allows it; with ``params["cooperative"]`` never beside another one that has it (see
    order.py). With ``params["waits"]`` a launch may begin before the one that it follows is over:
    each thread waits by griddepcontrol.wait before it touches memory that another launch writes, or
    writes any.
    """

    device = "cuda"
    host_code = False

    def starts(
        self, step: Step, device: CudaDevice
    ) -> Iterable[tuple[Launch, CudaKernel | LibraryCall]]:
        """The step's launches in order, and what each starts. Raises ExecutionError."""
        raise NotImplementedError(f"{self.key}: starts")

    def link(self, steps: Sequence[Step], ctx: LinkContext) -> Runnable:
        """Raises ExecutionError for code that is missing, cannot be loaded, or lacks a kernel."""
        return link([(self, s) for s in steps], ctx)


class CubinLauncher(GraphLauncher):
    """Steps whose code is a cubin; ``Launch.symbol`` x names the kernel ``TX_NAME(x)``.

    A launch's first arguments may be tensor maps of what lies at the address, see maps.py.
    """

    key = "tactix.cuda.cubin@1"

    def starts(
        self, step: Step, device: CudaDevice
    ) -> Iterable[tuple[Launch, CudaKernel | LibraryCall]]:
        return [(x, kernel_of(step, x, device)) for x in step.artifact.launches]


def link(steps: Sequence[tuple[GraphLauncher, Step]], ctx: LinkContext) -> Runnable:
    """One run of steps with their launchers. Raises ExecutionError."""
    from tactix_cuda.device import CudaDevice
    from tactix_cuda.graph import CudaRun

    launcher, first = steps[0]
    if not isinstance(ctx.device, CudaDevice):
        raise ExecutionError(
            f"{launcher.key} runs on {CudaDevice.key}, not on {ctx.device.key}", who=first.name
        )
    table = KernelTable(steps, ctx.device)
    ctx.device.modules.keep(
        ctx, (s.kernel for s in table.starts if isinstance(s.kernel, CudaKernel))
    )
    return CudaRun(table, ctx.device, ctx, why_plain())


def why_plain() -> str:
    """Why kernels are launched one by one instead of as a graph; empty if they are not."""
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return "CUDA_LAUNCH_BLOCKING=1: every kernel is waited for, so that errors name their step"
    return "TACTIX_CUDA_GRAPH=0" if os.environ.get("TACTIX_CUDA_GRAPH") == "0" else ""


@dataclass(frozen=True)
class Start:
    """One launch: the step that it belongs to, what it starts, its first argument's slot, how many
    it has.

    ``waits``: the kernel waits itself for those that it follows.
    """

    step: str
    kernel: CudaKernel | LibraryCall
    first: int
    count: int
    waits: bool = False


class LaunchTable:
    """Argument slots of all launches in a row, and what goes into each: what depends neither on
    shapes nor on a device.

    ``starts``: the first slot of each launch. ``pointers``: slot, buffer, and index of what is
    added to its address; ``scalars``: slot, and index of the value. ``maps``: by slot, with the
    indices of their dims. ``geometry``: of each launch the indices of grid, block, cluster, shared
    memory. All indices are places in ``dims``.
    """

    def __init__(self) -> None:
        self.size = 0
        self.starts: list[int] = []
        self.pointers: list[tuple[int, int, int]] = []
        self.scalars: list[tuple[int, int]] = []
        self.maps: dict[int, tuple[TensorMap, list[int]]] = {}
        self.geometry: list[list[int]] = []
        self._known: dict[Dim, int] = {}

    @property
    def dims(self) -> Sequence[Dim]:
        return tuple(self._known)

    def index(self, number: Dim) -> int:
        """Of a number among those that shapes give."""
        return self._known.setdefault(number, len(self._known))

    def add(self, step: Step, launch: Launch, maps: Sequence[TensorMap]) -> None:
        """One launch more; ``maps``: of its first arguments. Raises ExecutionError, ShapeError."""
        self.starts.append(self.size)
        for slot, m in enumerate(maps, self.size):
            self.maps[slot] = m, [self.index(d) for d in m.dims]
        for slot, arg in enumerate(launch.args, self.size):
            self._argument(slot, step, arg)
        self.size += len(launch.args)
        self.geometry.append([self.index(d) for d in _geometry(launch, step)])

    def _argument(self, slot: int, step: Step, arg: Arg) -> None:
        value = self.index(arg.value)
        if arg.kind == "scalar" or (arg.kind == "workspace" and step.workspace < 0):  # of no bytes
            self.scalars.append((slot, value))
        else:
            self.pointers.append((slot, buffer_of(step, arg), value))


class KernelTable:
    """The slots with the kernels that take them, and what their order hangs on."""

    def __init__(self, steps: Sequence[tuple[GraphLauncher, Step]], device: CudaDevice) -> None:
        import numpy as np

        self.starts: list[Start] = []
        self.accesses: list[Access] = []
        self.extents: dict[
            int, set[int]
        ] = {}  # by buffer that something writes; indices of its sizes
        table = LaunchTable()
        for step, launch, kernel, maps in _launches(steps, device):
            waits = bool(step.artifact.params.get("waits"))
            start = Start(step.name, kernel, table.size, len(launch.args), waits)
            self.starts.append(start)
            self.accesses.append(access(step, launch))
            for buffer, nbytes in extents(step):
                self.extents.setdefault(buffer, set()).add(table.index(nbytes))
            table.add(step, launch, maps)
        self.size, self.maps, self.dims = table.size, table.maps, table.dims
        self.users: dict[int, list[tuple[int, int, int]]] = {}
        for slot, buffer, value in table.pointers:
            launch_of_slot = bisect_right(table.starts, slot) - 1
            self.users.setdefault(buffer, []).append((slot, value, launch_of_slot))
        self.pointers = np.array(table.pointers, np.int64).reshape(-1, 3).T
        self.scalars = np.array(table.scalars, np.int64).reshape(-1, 2).T
        self.geometry = np.array(table.geometry, np.int64).reshape(-1, SHARED + 1)

    def evaluate(self, env: Env) -> list[int]:
        """Every number that the launches need, at these shapes. Raises ShapeError."""
        return [evaluate(d, env) for d in self.dims]

    def sizes_at(self, values: Sequence[int]) -> dict[int, int]:
        """Bytes that the launches touch of every buffer but constants."""
        return {b: max(values[i] for i in indices) for b, indices in self.extents.items()}

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


def kernel_of(step: Step, launch: Launch, device: CudaDevice) -> CudaKernel:
    """The kernel that a launch names in the step's machine code. Raises ExecutionError."""
    code = step.artifact.code
    if not isinstance(code, Binary):
        raise ExecutionError(
            "it has no machine code", who=step.name, do="Compile it when the plan is built"
        )
    return device.modules.kernel(code, launch.symbol)


def _launches(
    steps: Sequence[tuple[GraphLauncher, Step]], device: CudaDevice
) -> Iterator[tuple[Step, Launch, CudaKernel | LibraryCall, Sequence[TensorMap]]]:
    for launcher, s in steps:
        try:
            maps = maps_of(s.artifact)
            for i, (launch, start) in enumerate(launcher.starts(s, device)):
                yield s, launch, start, maps[i] if maps else ()
        except TactixError as e:
            e.who = e.who or s.name
            raise


def _geometry(launch: Launch, step: Step) -> list[Dim]:
    """Grid, block and cluster with three axes each, and the bytes of shared memory."""
    out: list[Dim] = []
    for dims in (launch.grid, launch.block, launch.cluster):
        if len(dims) > AXES:
            raise ShapeError(
                f"a launch has {len(dims)} axes", who=step.name, why=f"CUDA has {AXES}"
            )
        out += [*dims, *([1] * (AXES - len(dims)))]
    return [*out, launch.shared_bytes]
