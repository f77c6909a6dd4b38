"""A driver in which device memory is the host's, and kernels are Python functions of their
arguments.

It may show several devices. Then each call needs a current context, and what it is given must be of
that context's device: streams, events, code, graphs, memory, and the addresses among the arguments
of kernels. What is not is an AssertionError, and in ``misplaced``, as finalizers raise nothing.

As the real one it copies arguments when a graph's node is made or set, and runs what was
instantiated: of the nodes that may run, the one that was made last goes first.
"""

from __future__ import annotations

import copy
import ctypes
import heapq
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from tactix_cuda import row_twins
from tactix_cuda.device import CudaDevice
from tactix_cuda.driver import Driver

ERRORS = {1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
          222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", 719: "CUDA_ERROR_LAUNCH_FAILED",
          500: "CUDA_ERROR_NOT_FOUND", 700: "CUDA_ERROR_ILLEGAL_ADDRESS", 801: "CUDA_ERROR_NOT_SUPPORTED"}  # fmt: skip
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536, "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "L2_CACHE_SIZE": 60 << 20,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144, "INTEGRATED": 0, "COMPUTE_MODE": 0,
    "MEMORY_POOLS_SUPPORTED": 1, "MAX_PERSISTING_L2_CACHE_SIZE": 37 << 20, "MAX_ACCESS_POLICY_WINDOW_SIZE": 128 << 20,
}  # fmt: skip


CONTEXT = 50
"""The primary context of the first device; those of others follow."""
ANYWHERE = frozenset({
    "cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem",
    "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuCtxGetCurrent",
    "cuPointerGetAttribute", "cuDeviceGetDefaultMemPool",
})  # fmt: skip
"""What needs no current context."""
MAKES = frozenset({
    "cuStreamCreate", "cuEventCreate", "cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc", "cuMemAllocAsync",
    "cuGraphCreate", "cuGraphInstantiate", "cuStreamEndCapture",
})  # fmt: skip
"""What gives a thing of the device whose context is current."""


class Names:
    """Stands for an enumeration: every member is its name."""

    def __getattr__(self, name: str) -> str:
        return name


class PlainTypes:
    """In place of the binding's types: handles are integers, structures hold what is set."""

    CUdevice_attribute = CUmemPool_attribute = CUfunction_attribute = Names()
    CUpointer_attribute = Names()
    CUkernelNodeAttrID = CUlaunchAttributeID = CUstreamCaptureMode = Names()
    CUtensorMapDataType = CUtensorMapInterleave = CUtensorMapSwizzle = Names()
    CUtensorMapL2promotion = CUtensorMapFloatOOBfill = CUaccessProperty = CUlimit = Names()
    CUgraphNodeType = Names()
    CUgraphDependencyType = SimpleNamespace(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC=1)
    CUgraphEdgeData = SimpleNamespace
    CUstream = CUdeviceptr = cuuint64_t = cuuint32_t = CUfunction = int
    CUDA_KERNEL_NODE_PARAMS = CUlaunchConfig = CUlaunchAttribute = SimpleNamespace

    @staticmethod
    def CUkernelNodeAttrValue() -> Any:
        return SimpleNamespace(clusterDim=SimpleNamespace(), accessPolicyWindow=SimpleNamespace())

    CUlaunchAttributeValue = CUkernelNodeAttrValue


@dataclass
class FakeKernel:
    """What a symbol runs: ``body(grid, *args)``, with so many arguments."""

    arity: int
    body: Callable[..., None] = lambda grid, *args: None


def view(address: int, shape: Sequence[int], dtype: Any) -> Any:
    """Memory as an array."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype).reshape(shape)


def twins_of(dtype: str) -> FakeKernel:
    """What the kernel of row_twins.py does, of a grid of rows and parts."""

    def body(grid: Any, made: int, twins: int, differ: int, width: int) -> None:
        assert (grid[1] - 1) * row_twins.PART < width <= grid[1] * row_twins.PART
        rows, said = view(made, (grid[0], width), dtype), view(differ, (grid[0],), np.uint8)
        said |= (rows != rows[view(twins, (grid[0],), np.uint32)]).any(1)

    return FakeKernel(4, body)


TWINS = {f"tx_twins_of_u{size * 8}": twins_of(f"u{size}") for size in (1, 2, 4)}
"""Of every device, as builds ask for them."""


@dataclass
class Ran:
    """A launch as the driver keeps it."""

    symbol: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    args: tuple[int, ...]
    cluster: tuple[int, ...] = ()
    window: tuple[Any, ...] = ()


@dataclass
class Work:
    """What a library put into a stream. ``kind``: of the node; ``memset``: the driver's structure,
    of one that is.
    """

    symbol: str
    run: Callable[[], None]
    kind: str = "KERNEL"
    memset: Any = None


@dataclass
class FakeApi:
    """``log``: names of the functions called; ``ran``: what was launched; ``fail``: status by
    function name.

    ``devices``: how many there are. ``ordinals``: devices of addresses, where they are not those of
    ``memory``, else 0; ``launched``: streams of graphs;
    ``waits``: streams, and those that they wait for.
    """

    kernels: dict[str, FakeKernel] = field(default_factory=dict)
    types: Any = PlainTypes
    log: list[str] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    fail: dict[str, int] = field(default_factory=dict)
    memory: dict[int, Any] = field(default_factory=dict)
    maps: list[tuple[Any, ...]] = field(default_factory=list)
    ordinals: dict[int, int] = field(default_factory=dict)
    launched: list[int] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    devices: int = 1
    misplaced: list[str] = field(default_factory=list)
    failing: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # neither a status nor a handle with a meaning of its own; with several devices no size
        self._numbers = count(1000 if self.devices == 1 else 1 << 40)
        self._owners: dict[int, int] = {}
        self._contexts = {CONTEXT + i: i for i in range(self.devices)}
        self._local = threading.local()
        self._symbols: dict[int, str] = {}
        self._graphs: dict[int, list[Ran]] = {}
        self.edges: dict[int, list[list[int]]] = {}
        self.early: dict[int, list[tuple[int, int]]] = {}
        self._limits: dict[str, int] = {}
        self._recorded: dict[int, int] = {}
        self._capturing: dict[int, list[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name in ("cuuint32_t", "cuuint64_t"):
            return getattr(self.types, name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.log.append(name)
            status = self.fail.get(name) or self.failing.get((name, self.device))
            if status:
                return (status, None)
            if self.devices > 1 and name not in ANYWHERE:
                self._check(name, args)
            made = getattr(self, f"_{name}", lambda *_: ())(*args)
            if name in MAKES:
                self._owners[int(made[0])] = self.device
            return made if isinstance(made, tuple) and made[:1] == (500,) else (0, *made)

        return call

    # -- whose a thing is -------------------------------------------------------------------------

    @property
    def device(self) -> int:
        """The device whose context is current on this thread; -1 for none."""
        return self._contexts.get(getattr(self._local, "context", 0), -1)

    def owner(self, thing: int) -> int:
        """The device of a handle, of a node of a graph, or of memory that an address is in; -1 for
        what is none of these.
        """
        if thing < 1 << 40:
            return -1
        for handle in (thing, thing // 10000):
            if handle in self._owners:
                return self._owners[handle]
        held = (a for a, m in list(self.memory.items()) if a <= thing < a + max(1, len(m) - 512))
        return self._owners.get(next(held, 0), -1)

    def _check(self, name: str, args: Sequence[Any]) -> None:
        here = self.device
        things = [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]
        owners = {self.owner(x) for x in things if isinstance(x, int)} - {-1, here}
        if here < 0 or owners:
            self._misplaced(f"{name} with what is of {sorted(owners)}")

    def _misplaced(self, what: str) -> None:
        self.misplaced.append(f"{what}, on device {self.device}")
        raise AssertionError(self.misplaced[-1])

    def _cuCtxSetCurrent(self, context: int) -> tuple[()]:
        assert context == 0 or context in self._contexts
        self._local.context = context
        return ()

    def _cuCtxGetCurrent(self) -> tuple[int]:
        return (getattr(self._local, "context", 0),)

    # -- errors, devices --------------------------------------------------------------------------

    def cuGetErrorName(self, status: int) -> tuple[int, bytes]:
        return 0, ERRORS[int(status)].encode()

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, b"the text"

    def _cuDeviceGetCount(self) -> tuple[int]:
        return (self.devices,)

    def _cuDeviceGet(self, ordinal: int) -> tuple[int]:
        return (ordinal,)

    def _cuDeviceGetName(self, size: int, device: int) -> tuple[bytes]:
        return (b"Fake GPU".ljust(size, b"\0"),)

    def _cuDeviceTotalMem(self, device: int) -> tuple[int]:
        return (1 << 30,)

    def _cuDeviceGetAttribute(self, key: Any, device: int) -> tuple[int]:
        name = getattr(key, "name", key)
        return (ATTRIBUTES[str(name).removeprefix("CU_DEVICE_ATTRIBUTE_")],)

    def _cuDriverGetVersion(self) -> tuple[int]:
        return (13000,)

    def _cuDevicePrimaryCtxRetain(self, device: int) -> tuple[int]:
        return (CONTEXT + device,)

    def _cuStreamCreate(self, given: Any) -> tuple[int]:
        return (next(self._numbers),)

    _cuEventCreate = _cuModuleLoadData = _cuDeviceGetDefaultMemPool = _cuStreamCreate

    def _cuEventElapsedTime(self, a: int, b: int) -> tuple[float]:
        return (1000.0 * (b - a),)

    # -- memory -----------------------------------------------------------------------------------

    def _cuMemAlloc(self, size: int) -> tuple[int]:
        held = (ctypes.c_ubyte * (size + 512))()
        address = -(-ctypes.addressof(held) // 512) * 512
        self.memory[address] = held
        return (address,)

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return (1 << 30) - sum(map(len, self.memory.values())), 1 << 30

    def _cuMemHostAlloc(self, size: int, flags: int) -> tuple[int]:
        return self._cuMemAlloc(size)  # of no device: it is not in MAKES

    def _cuPointerGetAttribute(self, key: Any, address: int) -> tuple[int]:
        return (self.ordinals.get(address, max(0, self.owner(address))),)

    def _cuMemAllocAsync(self, size: int, stream: Any) -> tuple[int]:
        return self._cuMemAlloc(size)

    def _cuMemFree(self, address: Any, stream: Any = 0) -> tuple[()]:
        del self.memory[int(address)]
        self._owners.pop(int(address), None)
        return ()

    _cuMemFreeAsync = _cuMemFreeHost = _cuMemFree

    def _cuMemcpyHtoDAsync(self, to: Any, source: Any, size: int, stream: Any) -> tuple[()]:
        ctypes.memmove(int(to), int(source), size)
        return ()

    _cuMemcpyDtoHAsync = _cuMemcpyDtoDAsync = _cuMemcpyHtoDAsync

    def _cuMemsetD8Async(self, to: Any, byte: int, size: int, stream: Any) -> tuple[()]:
        ctypes.memset(int(to), byte, size)
        return ()

    # -- tensor maps: the first word is the address -----------------------------------------------

    def _cuTensorMapEncodeTiled(
        self, kind: Any, rank: int, address: int, *given: Any
    ) -> tuple[Any]:
        return self._map("tiled", address, *given[:4])

    def _cuTensorMapEncodeIm2col(
        self, kind: Any, rank: int, address: int, *given: Any
    ) -> tuple[Any]:
        return self._map("windows", address, *given[:7])

    def _map(self, name: str, address: int, *given: Any) -> tuple[Any]:
        plain = [tuple(int(n) for n in x) if isinstance(x, list) else int(x) for x in given]
        self.maps.append((name, address, *plain))
        return (SimpleNamespace(opaque=[address, *range(15)]),)

    # -- kernels ----------------------------------------------------------------------------------

    def _cuModuleGetFunction(self, module: int, name: bytes) -> tuple[Any, ...]:
        if name.decode() not in self.kernels:
            return (500, None)
        handle = next(self._numbers)
        self._symbols[handle] = name.decode()
        return (self.types.CUfunction(handle),)

    def _cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> tuple[()]:
        self._limits[self._symbols[int(function)]] = value
        return ()

    def _kept(self, function: Any, grid: Any, block: Any, shared: int, arguments: int) -> Ran:
        symbol = self._symbols[int(function)]
        assert min(*grid, *block) > 0
        assert shared <= self._limits.get(symbol, 48 << 10)
        places = (ctypes.c_void_p * self.kernels[symbol].arity).from_address(arguments)
        args = tuple(ctypes.c_int64.from_address(p or 0).value for p in places)
        if self.devices > 1:
            self._check(symbol, [int(function), *args])
        return Ran(symbol, tuple(grid), tuple(block), shared, args)

    def _of(self, p: Any) -> Ran | Work:
        if isinstance(p, Work):
            return p
        grid, block = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
        return self._kept(p.func, grid, block, p.sharedMemBytes, p.kernelParams)

    def _run(self, launches: Sequence[Any]) -> tuple[()]:
        for r in launches:
            if isinstance(r, list):
                self._run(r)
                continue
            self.ran.append(copy.copy(r))
            if isinstance(r, Work):
                r.run()
            else:
                self.kernels[r.symbol].body(r.grid, *r.args)
        return ()

    # -- libraries --------------------------------------------------------------------------------

    def enqueue(self, stream: int, work: Work) -> None:
        """What a library does: the work is recorded by a stream that captures, else done."""
        if stream in self._capturing:
            self._capturing[stream].append(work)
        else:
            self._run([work])

    def _cuStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[()]:
        assert int(stream) not in self._capturing
        self._capturing[int(stream)] = []
        return ()

    def _cuCtxSynchronize(self) -> tuple[()]:
        assert not self._capturing, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        return ()

    def _cuStreamEndCapture(self, stream: Any) -> tuple[int]:
        graph = next(self._numbers)
        self._graphs[graph] = self._capturing.pop(int(stream))
        return (graph,)

    def _cuGraphAddChildGraphNode(
        self, graph: int, after: Any, number: int, child: int
    ) -> tuple[int]:
        nodes = self._graphs[graph]
        self._link(graph, after, number)
        nodes.append(list(self._graphs[child]))
        return (graph * 10000 + len(nodes) - 1,)

    def _cuGraphExecChildGraphNodeSetParams(
        self, executable: int, node: int, child: int
    ) -> tuple[()]:
        assert len(self._graphs[executable][node % 10000]) == len(self._graphs[child])
        self._graphs[executable][node % 10000] = list(self._graphs[child])
        return ()

    def _cuLaunchKernel(self, function: Any, *rest: Any) -> tuple[()]:
        shared, _stream, arguments, _extra = rest[6:]
        return self._run([self._kept(function, rest[:3], rest[3:6], shared, arguments)])

    def _cuLaunchKernelEx(
        self, config: Any, function: Any, arguments: int, extra: int
    ) -> tuple[()]:
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        made = self._kept(function, grid, block, config.sharedMemBytes, arguments)
        for a in config.attrs:
            _attribute(made, a.id, a.value)
        return self._run([made])

    # -- graphs: a node's handle is its graph's times 10000 and its place -------------------------

    def _cuGraphCreate(self, flags: int) -> tuple[int]:
        graph = next(self._numbers)
        self._graphs[graph], self.edges[graph], self.early[graph] = [], [], []
        return (graph,)

    def _cuGraphAddDependencies(
        self, graph: int, a: Any, b: Any, edges: Any, number: int
    ) -> tuple[()]:
        """From nodes that are all launched, to nodes that wait themselves."""
        for before, node, edge in zip(a, b, edges, strict=True):
            assert (number, edge.type, edge.from_port) == (1, 1, 2)
            assert not isinstance(self._graphs[graph][before % 10000], list)
            self.edges[graph][node % 10000].append(before % 10000)
            self.early[graph].append((before % 10000, node % 10000))
        return ()

    def _cuGraphGetNodes(self, graph: int, number: int = 0) -> tuple[list[int], int]:
        nodes = self._graphs[graph]
        return [graph * 10000 + i for i in range(number)], len(nodes)

    def _cuGraphGetRootNodes(self, graph: int, number: int = 0) -> tuple[list[int], int]:
        return [graph * 10000][:number], min(1, len(self._graphs[graph]))

    def _cuGraphNodeGetDependentNodes(
        self, node: int, number: int = 0
    ) -> tuple[list[int], list[Any], int]:
        more = node % 10000 + 1 < len(self._graphs[node // 10000])
        return [node + 1][:number], [], int(more)

    def _cuGraphNodeGetType(self, node: int) -> tuple[str]:
        work = self._graphs[node // 10000][node % 10000]
        return (f"CU_GRAPH_NODE_TYPE_{work.kind if isinstance(work, Work) else 'KERNEL'}",)

    def _cuGraphMemsetNodeGetParams(self, node: int) -> tuple[Any]:
        return (self._graphs[node // 10000][node % 10000].memset,)

    def _cuGraphKernelNodeGetParams(self, node: int) -> tuple[Any]:
        return (self._graphs[node // 10000][node % 10000],)

    def _cuGraphAddKernelNode(self, graph: int, after: Any, number: int, params: Any) -> tuple[int]:
        nodes = self._graphs[graph]
        self._link(graph, after, number)
        nodes.append(self._of(params))
        return (graph * 10000 + len(nodes) - 1,)

    def _link(self, graph: int, after: Any, number: int) -> None:
        own = [a % 10000 for a in after]
        assert number == len(set(own))
        assert all(a // 10000 == graph for a in after)
        self.edges[graph].append(own)

    def _cuGraphKernelNodeSetAttribute(self, node: int, kind: Any, value: Any) -> tuple[()]:
        _attribute(self._graphs[node // 10000][node % 10000], kind, value)
        return ()

    def _cuGraphInstantiate(self, graph: int, flags: int) -> tuple[int]:
        made = next(self._numbers)
        self._graphs[made], self.edges[made] = (
            [copy.copy(r) for r in self._graphs[graph]],
            self.edges[graph],
        )
        return (made,)

    def _cuGraphExecKernelNodeSetParams(self, executable: int, node: int, params: Any) -> tuple[()]:
        kept, fresh = self._graphs[executable][node % 10000], self._of(params)
        if isinstance(kept, Ran) and isinstance(fresh, Ran):
            fresh.cluster, fresh.window = kept.cluster, kept.window
        self._graphs[executable][node % 10000] = fresh
        return ()

    def _cuEventRecord(self, event: Any, stream: Any) -> tuple[()]:
        self._recorded[int(event)] = int(stream)
        return ()

    def _cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> tuple[()]:
        self.waits.append((int(stream), self._recorded[int(event)]))
        return ()

    def _cuGraphLaunch(self, executable: int, stream: Any) -> tuple[()]:
        self.launched.append(int(stream))
        nodes, edges = self._graphs[executable], self.edges[executable]
        waits = [len(before) for before in edges]
        behind: list[list[int]] = [[] for _ in nodes]
        for k, before in enumerate(edges):
            for i in before:
                behind[i].append(k)
        ready = [-k for k, n in enumerate(waits) if not n]
        heapq.heapify(ready)
        while ready:
            i = -heapq.heappop(ready)
            self._run([nodes[i]])
            for k in behind[i]:
                waits[k] -= 1
                if not waits[k]:
                    heapq.heappush(ready, -k)
        return ()

    def _cuGraphExecDestroy(self, graph: int) -> tuple[()]:
        del self._graphs[graph]
        return ()

    _cuGraphDestroy = _cuGraphExecDestroy


def _attribute(launch: Ran, kind: Any, value: Any) -> None:
    if "CLUSTER" in str(kind):
        launch.cluster = (value.clusterDim.x, value.clusterDim.y, value.clusterDim.z)
    else:
        w = value.accessPolicyWindow
        launch.window = (int(w.base_ptr), w.num_bytes, w.hitRatio, str(w.hitProp))


def fake_device(
    kernels: dict[str, FakeKernel] | None = None, types: Any = PlainTypes, devices: int = 1
) -> tuple[CudaDevice, FakeApi]:
    """The first device, which runs these kernels, as its siblings do, and the driver under them."""
    api = FakeApi({**TWINS, **(kernels or {})}, types, devices=devices)
    return CudaDevice(driver=Driver(api)), api
