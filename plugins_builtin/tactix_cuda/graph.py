"""A run of kernels as one executable CUDA graph: nodes in branches, their arguments in one table.

The driver copies arguments into a node when the node is made or set, so that runs that are under
way are not touched by what is bound later.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Env
from tactix.base.errors import ExecutionError, TactixError, punctuated
from tactix.contracts.launcher import LinkContext
from tactix_cuda.capture import CapturedNode, Placed
from tactix_cuda.driver import CudaFailure, places_of
from tactix_cuda.graph_dependencies import LANES, Follows, Regions, follows, in_lanes
from tactix_cuda.launcher import AXES, SHARED, KernelTable, Start
from tactix_cuda.modules import CudaKernel
from tactix_cuda.persisting import AccessPolicyWindow, windows
from tactix_cuda.tensor_maps import MapMemory

if TYPE_CHECKING:
    from tactix_cuda.device import CudaDevice

GRID, BLOCK, THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024
"""What a launch may have at most, on every device (CUDA C++ Programming Guide, "Technical
Specifications").
"""
COPIES, MOST_NODES = 20, 100
"""How often a graph for measuring runs the kernels, and how many nodes it has at most: one launch
of a graph takes the caller longer than a small kernel takes the device (2.4 us on the machine of an
H200), so a graph of one run would measure the caller; and a graph takes 4 ms to make for 1,000
nodes.
"""
LAUNCHED = 2
"""CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER: where an edge leaves a kernel once all of its blocks have
begun. The other port, PROGRAMMATIC, waits for ``griddepcontrol.launch_dependents`` or the end of
each block; our kernels have no such instruction (CUDA C++ Programming Guide, "Programmatic
Dependent Launch").
"""
UNGRAPHABLE = frozenset({801, *range(900, 909), 910})
"""CUDA_ERROR_NOT_SUPPORTED, those of stream capture, and GRAPH_EXEC_UPDATE_FAILURE: kernels go one
by one then.
"""


class KernelNode:
    """A kernel at bound shapes. ``params``: what the driver takes for a kernel node; they point
    into the table.

    ``window``: memory to keep in the L2 cache.
    """

    window: AccessPolicyWindow | None = None

    def __init__(
        self,
        start: Start,
        kernel: CudaKernel,
        geometry: Sequence[int],
        arguments: int,
        device: CudaDevice,
    ):
        self.start, self.kernel, self.device = start, kernel, device
        self.grid, self.block = geometry[:AXES], geometry[AXES : 2 * AXES]
        self.cluster, self.shared = geometry[2 * AXES : SHARED], geometry[SHARED]
        self.arguments = arguments
        self._check()
        with blaming(start.step):
            kernel.allow_shared(self.shared)
        self.params = device.driver.api.CUDA_KERNEL_NODE_PARAMS()
        self.params.func = kernel.native
        self.params.gridDimX, self.params.gridDimY, self.params.gridDimZ = self.grid
        self.params.blockDimX, self.params.blockDimY, self.params.blockDimZ = self.block
        self.params.sharedMemBytes = self.shared
        self.params.kernelParams = arguments

    def _check(self) -> None:
        """The driver finds it out as well, but names no step."""
        wide = any(
            n > most for n, most in zip((*self.grid, *self.block), (*GRID, *BLOCK), strict=True)
        )
        if wide or math.prod(self.block) > THREADS or min(*self.grid, *self.block) < 1:
            what = f"a launch of {tuple(self.grid)} blocks of {tuple(self.block)} threads"
            why = f"a device takes {GRID} of {BLOCK}, of no more than {THREADS} threads"
            raise ExecutionError(what, who=self.start.step, why=why)

    def attributes(self, of_node: bool) -> list[tuple[Any, Any]]:
        """Ids and values: the cluster dimensions and the window, of a launch that has them."""
        api, out = self.device.driver.api, []
        make = api.CUkernelNodeAttrValue if of_node else api.CUlaunchAttributeValue
        kind = api.CUkernelNodeAttrID if of_node else api.CUlaunchAttributeID
        if self.cluster != [1] * AXES:
            value = make()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = self.cluster
            out.append((kind.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value))
        if self.window is not None:
            out.append(
                (kind.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, self.window.fill(make(), api))
            )
        return out

    def add(self, graph: Any, after: Sequence[Any]) -> Placed:
        """Put it into a graph behind others."""
        call = self.device.driver.call
        made = call("cuGraphAddKernelNode", graph, after, len(after), self.params)
        for attribute in self.attributes(of_node=True):
            call("cuGraphKernelNodeSetAttribute", made, *attribute)
        return Placed([made], is_kernel=True)

    def update(self, executable: Any, places: Sequence[Placed]) -> None:
        """Give what ``add`` made the arguments that the table has now."""
        for place in places:
            self.device.driver.call(
                "cuGraphExecKernelNodeSetParams", executable, place.nodes[0], self.params
            )

    def launch(self, stream: Any) -> None:
        """Without a graph."""
        call = self.device.driver.call
        with blaming(self.start.step):
            if attributes := self.attributes(of_node=False):
                call(
                    "cuLaunchKernelEx",
                    self._config(stream, attributes),
                    self.params.func,
                    self.arguments,
                    0,
                )
            else:
                more = (self.shared, stream, self.arguments, 0)
                call("cuLaunchKernel", self.kernel.native, *self.grid, *self.block, *more)

    def _config(self, stream: Any, attributes: Sequence[tuple[Any, Any]]) -> Any:
        api = self.device.driver.api
        config, made = api.CUlaunchConfig(), [api.CUlaunchAttribute() for _ in attributes]
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = self.block
        config.sharedMemBytes, config.hStream = self.shared, stream
        for one, (kind, value) in zip(made, attributes, strict=True):
            one.id, one.value = kind, value
        config.attrs, config.numAttrs = made, len(made)
        return config


class CudaGraph:
    """Nodes in the order that ``order`` asks for, ``copies`` times one after the other,
    instantiated.
    """

    def __init__(
        self,
        nodes: Sequence[KernelNode | CapturedNode],
        order: Follows,
        device: CudaDevice,
        copies: int = 1,
    ) -> None:
        call = self._call = device.driver.call
        self._device = device
        graph = call("cuGraphCreate", 0)
        last = sorted(set(range(len(nodes))) - {k for before in order for k in before})
        made: list[list[Placed]] = []
        try:
            for _ in range(copies):
                ends = [made[-1][k] for k in last] if made else []
                made.append([])
                for node, before in zip(nodes, order, strict=True):
                    with blaming(node.start.step):
                        made[-1].append(
                            self._add(graph, node, [made[-1][k] for k in before] or ends)
                        )
            self._exec = call("cuGraphInstantiate", graph, 0)
        except TactixError:
            call("cuGraphDestroy", graph)
            raise
        self._places = {id(n): [own[i] for own in made] for i, n in enumerate(nodes)}
        weakref.finalize(self, _destroy, device, graph, self._exec, tuple(nodes)).atexit = False

    def _add(self, graph: Any, node: KernelNode | CapturedNode, after: Sequence[Placed]) -> Placed:
        """Behind others; a kernel that waits itself may begin as soon as all blocks of the one
        before have begun.

        Such an edge orders starts, not memory: the kernel's ``griddepcontrol.wait`` is what waits
        until the kernels before are over and what they wrote is visible (PTX ISA). It does so in
        every thread before anything that others write is touched. Only behind a single kernel: with
        several edges, or behind a child graph, none is of that kind. BERT-base at batch 8 took 525
        us so, and 557 without (H200; docs/benchmarks.md, "Single layers").
        """
        waits = (
            node.start.waits
            and len(after) == 1
            and after[0].is_kernel
            and self._device.programmatic
        )
        placed = node.add(graph, [] if waits else [a.nodes[-1] for a in after])
        if waits:
            api = self._device.driver.api
            edge = api.CUgraphEdgeData()
            edge.type = int(api.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
            edge.from_port = LAUNCHED
            self._call(
                "cuGraphAddDependencies", graph, [after[0].nodes[-1]], [placed.nodes[0]], [edge], 1
            )
        return placed

    def update(self, node: KernelNode | CapturedNode) -> None:
        """Give a node its new arguments, for runs that are launched from now on."""
        with blaming(node.start.step):
            node.update(self._exec, self._places[id(node)])

    def launch(self, stream: Any) -> None:
        self._call("cuGraphLaunch", self._exec, stream)


def _destroy(device: CudaDevice, graph: Any, executable: Any, _nodes: object) -> None:
    """Runs that are under way come to their end: the driver waits with it. Code of the nodes is
    there until then.
    """
    # after a fatal error there is nothing left to destroy
    with contextlib.suppress(TactixError), device.visited():
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
    """All launches of some steps. ``plain``: why they are launched one by one; empty if they are
    one graph.

    ``order``: what each of ``nodes`` follows, once there is a graph.
    """

    def __init__(
        self, table: KernelTable, device: CudaDevice, ctx: LinkContext, plain: str = ""
    ) -> None:
        import numpy as np

        self.plain = plain
        self.nodes: list[KernelNode | CapturedNode] = []
        self.order: Follows = []
        self._table, self._device, self._ctx = table, device, ctx
        self._regions: Regions | None = None
        self._slots = np.zeros(max(1, table.size), np.int64)
        # what a kernel gets is a list of where its arguments are, 8 bytes each: the driver copies
        # them when a node is made or set, so the table can change while a graph runs
        self._places = places_of(self._slots)
        self._maps, self._map_index = (
            MapMemory(len(table.maps)),
            {slot: i for i, slot in enumerate(table.maps)},
        )
        self._places[list(table.maps)] = self._maps.places
        self._values: list[int] = []
        self._by_start: dict[int, KernelNode | CapturedNode] = {}
        self._stale: set[int] = set()
        self._graph: CudaGraph | None = None
        self._many: tuple[CudaGraph, int] | None = None

    def bind(self, env: Env, addresses: Sequence[int]) -> None:
        """Raises ShapeError, ExecutionError naming the step."""
        import numpy as np

        table, device = self._table, self._device
        device.count(binds=1)
        self._values = table.evaluate(env)
        values = np.array(self._values, np.int64)
        slots, buffers, offsets = table.pointers
        self._slots[slots] = np.array(addresses, np.int64)[buffers] + values[offsets]
        slots, scalars = table.scalars
        self._slots[slots] = values[scalars]
        device.activate()
        for slot in table.maps:
            self._encode(slot)
        self._by_start = {
            i: self._node(start, geometry)
            for i, (start, geometry) in enumerate(
                zip(table.starts, table.geometry_at(self._values), strict=True)
            )
            if 0 not in geometry[:AXES]
        }
        self.nodes = list(self._by_start.values())
        self._regions = (
            Regions(addresses, table.sizes_at(self._values)) if self._ctx.max_aux_streams else None
        )
        for i, window in windows(table.users, addresses, self._ctx, device).items():
            if isinstance(node := self._by_start.get(i), KernelNode):
                node.window = window
        self._stale.clear()
        self._many = self._graph = None

    def _node(self, start: Start, geometry: Sequence[int]) -> KernelNode | CapturedNode:
        if isinstance(start.kernel, CudaKernel):
            arguments = int(self._places.ctypes.data) + 8 * start.first
            return KernelNode(start, start.kernel, geometry, arguments, self._device)
        with blaming(start.step):
            return CapturedNode(
                start, start.kernel, self._slots[start.first :][: start.count], self._device
            )

    def rebind(self, buffer: int, address: int) -> None:
        for slot, offset, start in self._table.users.get(buffer, ()):
            self._slots[slot] = address + self._values[offset]
            self._stale.add(start)
            if slot in self._map_index:
                self._encode(slot)
        self._many = None
        if self._regions is not None and self._regions.move(buffer, address):
            self._graph = None  # what must follow what has changed

    def _encode(self, slot: int) -> None:
        """Make the tensor map that an argument stands for, once its address is known."""
        address = int(self._slots[slot])
        if address:
            made, numbers = self._table.maps[slot]
            encoded = made.encode(self._device.driver, address, [self._values[i] for i in numbers])
            self._maps.put(self._map_index[slot], encoded)

    def __call__(self) -> None:
        """In the stream that the thread submits to; outside of ``submit`` the results are there at
        return.
        """
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
                self._many = CudaGraph(self.nodes, self._ordered(), self._device, copies), copies
            for _ in range(times // copies):
                self._many[0].launch(stream)
            left = times % copies
        for _ in range(left):
            self._once(stream)
        self._device.settle()

    def _once(self, stream: Any) -> None:
        """One run. Where the driver turns out to make no graph of it, all from then on are launched
        kernel by kernel: a launch that failed has started nothing.
        """
        if not self.nodes:
            return
        try:
            if not self.plain:
                self._fresh_graph().launch(stream)
        except CudaFailure as e:
            if e.status not in UNGRAPHABLE:
                raise
            self.plain = f"no CUDA graph: {e}"
            told = f"kernels are launched one by one, which takes longer: {self.plain}"
            self._ctx.warn(punctuated((told, "A newer driver may make a graph of them")))
        if self.plain:
            self._launch_all(stream)

    def _fresh_graph(self) -> CudaGraph:
        """The graph, with the addresses of now."""
        if self._graph is None:
            self._device.count(graphs=1)
            self._graph = CudaGraph(self.nodes, self._ordered(), self._device)
            self._stale.clear()
        elif self._stale:
            self._freshen()
        return self._graph

    def _ordered(self) -> Follows:
        """What every node follows, at the addresses of now."""
        if self._regions is None:
            self.order = [[i - 1] if i else [] for i in range(len(self.nodes))]
            return self.order
        accesses = self._table.accesses
        self.order = follows([accesses[i] for i in self._by_start], self._regions.spans())
        most, wide = self._ctx.max_aux_streams + 1, [False] * len(self.nodes)
        if not most:
            cores = self._device.properties().cores
            # a launch with a block for each multiprocessor leaves nothing to run beside it; calls
            # of libraries do not tell how many blocks they have
            most, wide = (
                LANES,
                [not isinstance(n, KernelNode) or math.prod(n.grid) >= cores for n in self.nodes],
            )
        self.order = in_lanes(self.order, most, wide)
        return self.order

    def _freshen(self) -> None:
        """Bring new addresses to the nodes that use them."""
        self._device.count(changed_nodes=len(self._stale))
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
