"""A cuDNN that computes operation by operation with numpy, convolutions by the layer's reference,
in the host's memory.

It keeps descriptors as what was set, knows which attributes are of which type, and refuses what is
not finalized. A plan's text is the operation graph in JSON.
"""

from __future__ import annotations

import ctypes
import json
from itertools import count
from typing import Any

import harness as h
import numpy as np
from fake_driver import FakeApi, Work

from tactix.base.dtypes import DType
from tactix_cuda.library import LoadedLibrary
from tactix_cudnn import library as dnn
from tactix_cudnn.library import C_TYPES, PRODUCT, Cudnn

NUMPY = {number: dtype for dtype, number in dnn.TYPES.items()}
ATTRIBUTES: dict[int, dict[int, int]] = {
    dnn.POINTWISE: {0: dnn.POINTWISE_MODE, 1: dnn.DATA_TYPE, 9: dnn.INT64},
    dnn.MATMUL: {1500: dnn.DATA_TYPE},
    dnn.REDUCTION: {1600: dnn.REDUCTION_MODE, 1601: dnn.DATA_TYPE},
    dnn.CONVOLUTION: {
        100: dnn.DATA_TYPE, 101: dnn.CONVOLUTION_MODE, **dict.fromkeys((102, 103, 104, 105, 106), dnn.INT64)
    },
    dnn.HEURISTICS: {200: dnn.HEUR_MODE, 201: dnn.DESCRIPTOR, 202: dnn.DESCRIPTOR},
    dnn.ENGINE_CONFIG: {300: dnn.DESCRIPTOR, 303: dnn.INT64},
    dnn.ENGINE: {1305: dnn.BEHAVIOR_NOTE},
    dnn.PLAN: {400: dnn.HANDLE, 401: dnn.DESCRIPTOR, 402: dnn.INT64, 405: dnn.CHAR},
    dnn.OPERATION_CONVOLUTION: {
        700: dnn.FLOAT, 701: dnn.FLOAT, 702: dnn.DESCRIPTOR, 703: dnn.DESCRIPTOR, 704: dnn.DESCRIPTOR,
        705: dnn.DESCRIPTOR,
    },
    dnn.OPERATION_POINTWISE: dict.fromkeys((750, 751, 752, 753, 758), dnn.DESCRIPTOR),
    dnn.OPERATION_MATMUL: dict.fromkeys((1520, 1521, 1522, 1523), dnn.DESCRIPTOR),
    dnn.OPERATION_REDUCTION: dict.fromkeys((1610, 1611, 1612), dnn.DESCRIPTOR),
    dnn.OPERATION_GRAPH: {800: dnn.HANDLE, 801: dnn.DESCRIPTOR},
    dnn.VARIANT_PACK: {1000: dnn.INT64, 1001: dnn.VOID_PTR, 1003: dnn.VOID_PTR},
    dnn.TENSOR: {
        900: dnn.INT64, 901: dnn.DATA_TYPE, 902: dnn.INT64, 903: dnn.INT64, 906: dnn.INT64, 907: dnn.BOOLEAN,
        908: dnn.BOOLEAN,
    },
}  # fmt: skip
OPERATIONS: dict[int, tuple[Any, ...]] = {
    dnn.OPERATION_CONVOLUTION: ("convolution", 702, 705, 704, 703),
    dnn.OPERATION_POINTWISE: ("pointwise", 750, 753, 751, 752, 758),
    dnn.OPERATION_MATMUL: ("matmul", 1523, 1522, 1520, 1521),
    dnn.OPERATION_REDUCTION: ("reduction", 1612, 1611, 1610),
}
"""Name, and attributes: what it is about, y, and what is given."""
WRITTEN = {202, 300, 303, 402, 1305}


class FakeCudnnFunctions:
    """``offered``: how many engines; the last one compiles; ``wants``: their workspace; ``broken``:
    has no plan.
    """

    def __init__(
        self,
        api: FakeApi,
        offered: int = 3,
        wants: int = 64,
        version: int = 91900,
        broken: int = -1,
    ) -> None:
        self.api, self.offered, self.wants, self.broken = api, offered, wants, broken
        self.fail: dict[str, int] = {}
        self.made: dict[int, dict[Any, Any]] = {}
        self._numbers, self._stream = count(1), 0
        self.cudnnGetVersion = _Version(version)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cudnn"):
            raise AttributeError(name)
        own = getattr(self, f"_{name}")

        def call(*args: Any) -> int:
            assert len(args) == len(PRODUCT.signatures[name])
            return self.fail.get(name, 0) or own(*args) or 0

        return call

    def cudnnGetErrorString(self, status: int) -> bytes:
        return f"text of {status}".encode()

    def _cudnnCreate(self, place: Any) -> None:
        place._obj.value = 7777

    def _cudnnSetStream(self, handle: Any, stream: int) -> None:
        assert handle.value == 7777
        self._stream = int(stream)

    def _cudnnBackendCreateDescriptor(self, kind: int, place: Any) -> None:
        handle = next(self._numbers)
        self.made[handle] = {"kind": kind, "final": False}
        place._obj.value = handle

    def _cudnnBackendDestroyDescriptor(self, native: Any) -> None:
        del self.made[native.value]

    def _of(self, native: Any) -> dict[Any, Any]:
        return self.made[getattr(native, "value", native)]

    def _cudnnBackendSetAttribute(
        self, native: Any, attribute: int, kind: int, size: int, values: Any
    ) -> None:
        d = self._of(native)
        assert not d["final"]
        assert ATTRIBUTES[d["kind"]][attribute] == kind
        assert attribute not in WRITTEN
        if kind == dnn.CHAR:
            d[attribute] = bytes(values[:size])
            return
        assert len(values) == size
        assert isinstance(values, ctypes.Array)
        assert values._type_ is C_TYPES[kind]
        d[attribute] = list(values)
        if kind == dnn.DESCRIPTOR:
            assert all(self.made[v]["final"] for v in values)

    def _cudnnBackendFinalize(self, native: Any) -> int:
        d = self._of(native)
        assert not d["final"]
        d["final"] = True
        return self._planned(d) if d["kind"] == dnn.PLAN else 0

    def _planned(self, d: dict[Any, Any]) -> int:
        if 405 not in d:
            configuration = self._of(d[401][0])
            if configuration["rank"] == self.broken:
                return 3000
            d[405] = json.dumps(configuration["graph"]).encode()
        d["graph"], d[402] = json.loads(d[405]), [self.wants]
        return 0

    def _cudnnBackendGetAttribute(
        self, native: Any, attribute: int, kind: int, size: int, found: Any, values: Any
    ) -> None:
        d = self._of(native)
        assert ATTRIBUTES[d["kind"]][attribute] == kind
        assert d["final"] or d["kind"] in (dnn.ENGINE_CONFIG, dnn.ENGINE)
        if attribute == 202 and values is not None:
            for rank, handle in enumerate(values):
                self.made[handle] |= {
                    "rank": rank,
                    "final": True,
                    303: [self.wants],
                    "graph": self._graph(self._of(d[201][0])),
                }
        if attribute == 300:
            self.made[values[0]] |= {
                "final": True,
                1305: [0] if d["rank"] == self.offered - 1 else [3],
            }
        have: Any = {202: range(self.offered), 300: range(1)}.get(attribute)
        have = d[attribute] if have is None else have
        found._obj.value = len(have)
        if values is not None and attribute not in (202, 300):
            assert size >= len(have)
            for i, v in enumerate(have):
                values[i] = v

    # -- what a graph computes --------------------------------------------------------------------

    def _graph(self, d: dict[Any, Any]) -> list[Any]:
        assert d[800] == [7777]
        return [self._operation(self._of(o)) for o in d[801]]

    def _tensor(self, handle: int) -> dict[str, Any]:
        t = self._of(handle)
        assert t[900] == [16]
        assert len(t[902]) == len(t[903]) == 4
        known = {
            "id": t[906][0],
            "shape": t[902],
            "strides": t[903],
            "type": t[901][0],
            "virtual": t[907][0],
        }
        return known | {"host": t.get(908, [False])[0]}

    def _operation(self, d: dict[Any, Any]) -> dict[str, Any]:
        name, about, *tensors = OPERATIONS[d["kind"]]
        kind = self._of(d[about][0])
        given = [self._tensor(d[key][0]) for key in tensors[1:] if key in d]
        made = {"name": name, "y": self._tensor(d[tensors[0]][0]), "given": given}
        if name == "convolution":
            assert (d[700], d[701], kind[101], kind[100], kind[106]) == (
                [1.0],
                [0.0],
                [1],
                [0],
                [2],
            )
            return made | {
                "dilations": kind[102],
                "strides": kind[103],
                "pads": [*kind[105], *kind[104]],
            }
        if name == "pointwise":
            return made | {"mode": kind[0][0], "axis": kind.get(9, [-1])[0]}
        return made | {"mode": kind.get(1600, [-1])[0]}

    def _cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> None:
        d, p = self._of(plan), self._of(pack)
        assert d["final"]
        assert p["final"]
        assert p[1003][0] or not self.wants
        graph, places = d["graph"], dict(zip(p[1000], p[1001], strict=True))
        self.api.enqueue(self._stream, Work("cudnnBackendExecute", lambda: _run(graph, places)))


class _Version:
    restype: Any = None

    def __init__(self, version: int) -> None:
        self._version = version

    def __call__(self) -> int:
        return self._version


def _view(t: dict[str, Any], place: int) -> Any:
    """A tensor that lies in memory as its strides say."""
    assert t["host"] or place % 16 == 0
    dtype = np.dtype(NUMPY[t["type"]].numpy)
    size = 1 + sum((n - 1) * s for n, s in zip(t["shape"], t["strides"], strict=True))
    raw = (ctypes.c_ubyte * (size * dtype.itemsize)).from_address(place)
    strides = [s * dtype.itemsize for s in t["strides"]]
    return np.lib.stride_tricks.as_strided(np.frombuffer(raw, dtype), t["shape"], strides)


def _run(graph: list[Any], places: dict[int, int]) -> None:
    known: dict[int, Any] = {}

    def read(t: dict[str, Any]) -> Any:
        if t["virtual"]:
            return known[t["id"]]
        x = _view(t, places[t["id"]])
        return x if t["type"] == dnn.TYPES[DType.INT32] else x.astype(np.float32)

    for o in graph:
        given, y = [read(t) for t in o["given"]], o["y"]
        made = np.asarray(COMPUTE[o["name"]](o, *given))
        assert list(made.shape) == y["shape"]
        made = made.astype(NUMPY[y["type"]].numpy)
        if y["virtual"]:
            known[y["id"]] = made
        else:
            _view(y, places[y["id"]])[...] = made


def _convolution(o: dict[str, Any], x: Any, w: Any) -> Any:
    layer = h.layer("Convolution")
    attrs: Any = layer.Attrs(  # type: ignore[call-arg]
        strides=tuple(o["strides"]),
        dilations=tuple(o["dilations"]),
        pads=tuple(o["pads"]),
        group=x.shape[1] // w.shape[1],
    )
    return layer.reference(attrs, x, w)[0]


def _index(o: dict[str, Any], x: Any) -> Any:
    return np.indices(x.shape)[o["axis"]]


POINTWISE: dict[int, Any] = {
    dnn.ADD: np.add, dnn.MUL: np.multiply, dnn.DIV: lambda a, b: np.nan_to_num(a / b), dnn.SUB: np.subtract,
    dnn.EXP: np.exp, dnn.LOG: np.log,
    dnn.RELU: lambda x: np.maximum(x, 0), dnn.NOT_LESS: np.greater_equal,
    dnn.SELECT: lambda x, other, where: np.where(where, x, other),
}  # fmt: skip
COMPUTE: dict[str, Any] = {
    "convolution": _convolution,
    "pointwise": lambda o, *x: (
        _index(o, *x) if o["mode"] == dnn.INDEX else POINTWISE[o["mode"]](*x)
    ),
    "matmul": lambda o, a, b: np.matmul(a.astype(np.float32), b),
    "reduction": lambda o, x: (np.max if o["mode"] == dnn.LARGEST else np.sum)(
        x, axis=3, keepdims=True
    ),
}


def fake_cudnn(api: FakeApi, **more: Any) -> tuple[Cudnn, FakeCudnnFunctions]:
    """The library over the fake driver, and its functions."""
    functions = FakeCudnnFunctions(api, **more)
    return Cudnn(LoadedLibrary(PRODUCT, functions)), functions
