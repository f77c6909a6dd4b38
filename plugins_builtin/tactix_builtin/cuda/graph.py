"""A run of kernels as one executable CUDA graph: kernel nodes in a chain, their arguments in one table.

The driver copies arguments into a node when the node is made or set, so that runs that are under way are not touched by
what is bound later.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tactix.words.dims import Env
from tactix.words.errors import ExecutionError, TactixError
from tactix_builtin.cuda.launcher import AXES, SHARED, KernelTable, Start

if TYPE_CHECKING:
    from tactix_builtin.cuda.device import CudaDevice

GRID, BLOCK, THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024
"""What a launch may have at most, on every device (CUDA C++ Programming Guide, "Technical Specifications")."""
COPIES, MOST_NODES = 20, 2000
"""How often a graph for measuring runs the kernels, and how many nodes it has at most."""


class Node:
    """A launch at bound shapes. ``params``: what the driver takes for a kernel node; they point into the table."""

    def __init__(self, start: Start, geometry: Sequence[int], arguments: int, device: CudaDevice) -> None:
        self.start, self.device = start, device
        self.grid, self.block = geometry[:AXES], geometry[AXES : 2 * AXES]
        self.cluster, self.shared = geometry[2 * AXES : SHARED], geometry[SHARED]
        self.arguments = arguments
        self._check()
        with blaming(start.step):
            start.kernel.allow_shared(self.shared)
        self.params = device.driver.api.CUDA_KERNEL_NODE_PARAMS()
        self.params.func = start.kernel.native
        self.params.gridDimX, self.params.gridDimY, self.params.gridDimZ = self.grid
        self.params.blockDimX, self.params.blockDimY, self.params.blockDimZ = self.block
        self.params.sharedMemBytes = self.shared
        self.params.kernelParams = arguments

    def _check(self) -> None:
        """The driver finds it out as well, but names no step."""
        wide = any(n > most for n, most in zip((*self.grid, *self.block), (*GRID, *BLOCK), strict=True))
        if wide or math.prod(self.block) > THREADS or min(*self.grid, *self.block) < 1:
            what = f"a launch of {tuple(self.grid)} blocks of {tuple(self.block)} threads"
            why = f"a device takes {GRID} of {BLOCK}, of no more than {THREADS} threads"
            raise ExecutionError(what, who=self.start.step, why=why)

    @property
    def clustered(self) -> bool:
        return self.cluster != [1] * AXES

    def attribute(self, of_node: bool) -> tuple[Any, Any]:
        """The cluster dimensions as a launch attribute: id and value."""
        api = self.device.driver.api
        value = (api.CUkernelNodeAttrValue if of_node else api.CUlaunchAttributeValue)()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = self.cluster
        kind = api.CUkernelNodeAttrID if of_node else api.CUlaunchAttributeID
        return kind.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value

    def launch(self, stream: Any) -> None:
        """Without a graph."""
        call = self.device.driver.call
        with blaming(self.start.step):
            if self.clustered:
                call("cuLaunchKernelEx", self._config(stream), self.params.func, self.arguments, 0)
            else:
                more = (self.shared, stream, self.arguments, 0)
                call("cuLaunchKernel", self.start.kernel.native, *self.grid, *self.block, *more)

    def _config(self, stream: Any) -> Any:
        api = self.device.driver.api
        config, attribute = api.CUlaunchConfig(), api.CUlaunchAttribute()
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.block
        config.sharedMemBytes, config.hStream = self.shared, stream
        attribute.id, attribute.value = self.attribute(of_node=False)
        config.attrs, config.numAttrs = [attribute], 1
        return config


class Graph:
    """Nodes in a chain, ``copies`` times over, instantiated."""

    def __init__(self, nodes: Sequence[Node], device: CudaDevice, copies: int = 1) -> None:
        call = self._call = device.driver.call
        graph = call("cuGraphCreate", 0)
        handles: list[Any] = []
        try:
            for node in [*nodes] * copies:
                with blaming(node.start.step):
                    handles.append(call("cuGraphAddKernelNode", graph, handles[-1:], len(handles[-1:]), node.params))
                    if node.clustered:
                        call("cuGraphKernelNodeSetAttribute", handles[-1], *node.attribute(of_node=True))
            self._exec = call("cuGraphInstantiate", graph, 0)
        except TactixError:
            call("cuGraphDestroy", graph)
            raise
        self._handles = {id(n): handles[i :: len(nodes)] for i, n in enumerate(nodes)}
        weakref.finalize(self, _destroy, device, graph, self._exec).atexit = False

    def update(self, node: Node) -> None:
        """Give a node its new arguments, for runs that are launched from now on."""
        for handle in self._handles[id(node)]:
            self._call("cuGraphExecKernelNodeSetParams", self._exec, handle, node.params)

    def launch(self, stream: Any) -> None:
        self._call("cuGraphLaunch", self._exec, stream)


def _destroy(device: CudaDevice, graph: Any, executable: Any) -> None:
    """Runs that are under way come to their end: the driver waits with it."""
    with contextlib.suppress(TactixError):  # after a fatal error there is nothing left to destroy
        device.activate()
        device.driver.call("cuGraphExecDestroy", executable)
        device.driver.call("cuGraphDestroy", graph)


@contextlib.contextmanager
def blaming(step: str) -> Iterator[None]:
    """Name the step in an error that names nobody."""
    try:
        yield
    except TactixError as e:
        e.who = e.who or step
        raise


class CudaRun:
    """All launches of some steps. ``plain``: why they are launched one by one; empty if they are one graph."""

    def __init__(self, table: KernelTable, device: CudaDevice, plain: str = "") -> None:
        import numpy as np

        self.plain = plain
        self.nodes: list[Node] = []
        self._table, self._device = table, device
        self._slots = np.zeros(max(1, table.size), np.int64)
        # what a kernel gets is a list of where its arguments are
        self._places = self._slots.ctypes.data + 8 * np.arange(max(1, table.size), dtype=np.int64)
        self._values: list[int] = []
        self._by_start: dict[int, Node] = {}
        self._stale: set[int] = set()
        self._graph: Graph | None = None
        self._many: tuple[Graph, int] | None = None

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        """Raises ShapeError, ExecutionError naming the step."""
        import numpy as np

        table, device = self._table, self._device
        self._values = table.evaluate(env)
        values = np.array(self._values, np.int64)
        slots, buffers, offsets = table.pointers
        self._slots[slots] = np.array(addresses, np.int64)[buffers] + values[offsets]
        slots, scalars = table.scalars
        self._slots[slots] = values[scalars]
        device.activate()
        first = int(self._places.ctypes.data)
        self._by_start = {
            i: Node(start, geometry, first + 8 * start.first, device)
            for i, (start, geometry) in enumerate(zip(table.starts, table.geometry_at(self._values), strict=True))
            if 0 not in geometry[:AXES]
        }
        self.nodes = list(self._by_start.values())
        self._stale.clear()
        self._many = self._graph = None

    def rebind(self, buffer: int, address: int) -> None:
        for slot, offset, start in self._table.users.get(buffer, ()):
            self._slots[slot] = address + self._values[offset]
            self._stale.add(start)
        self._many = None

    def __call__(self) -> None:
        """In the stream that the thread submits to; outside of ``submit`` the results are there at return."""
        device = self._device
        if not device.local.active:
            device.activate()
        self._once(device.current().native)
        device.settle()

    def repeat(self, times: int) -> None:
        """Many of the runs are made by a graph that holds COPIES of them."""
        self._device.activate()
        stream, left = self._device.current().native, times
        copies = min(COPIES, MOST_NODES // max(1, len(self.nodes)))
        if not self.plain and self.nodes and times >= copies > 1:
            if self._many is None:
                self._many = Graph(self.nodes, self._device, copies), copies
            for _ in range(times // copies):
                self._many[0].launch(stream)
            left = times % copies
        for _ in range(left):
            self._once(stream)
        self._device.settle()

    def _once(self, stream: Any) -> None:
        if not self.nodes:
            return
        if self.plain:
            self._launch_all(stream)
            return
        if self._graph is None:
            self._graph = Graph(self.nodes, self._device)
            self._stale.clear()
        elif self._stale:
            self._freshen()
        self._graph.launch(stream)

    def _freshen(self) -> None:
        """Bring new addresses to the nodes that use them."""
        for i in self._stale:
            if i in self._by_start and self._graph is not None:
                self._graph.update(self._by_start[i])
        self._stale.clear()

    def _launch_all(self, stream: Any) -> None:
        waiting = self.plain.startswith("CUDA_LAUNCH_BLOCKING")
        for node in self.nodes:
            node.launch(stream)
            if waiting:
                with blaming(node.start.step):
                    self._device.driver.call("cuStreamSynchronize", stream)
