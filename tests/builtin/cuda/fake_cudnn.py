"""A cuDNN in which convolutions are computed by the layer's reference, in memory of the host.

It keeps descriptors as what was set, knows which attributes are of which type, and refuses what is not finalized. A
plan's text is the operation graph in JSON.
"""

from __future__ import annotations

import ctypes
import json
from itertools import count
from typing import Any

import harness as h
import numpy as np
from fake_driver import FakeApi, Work

from tactix.words.dtypes import DType
from tactix_builtin.cuda.cudnn import library as dnn
from tactix_builtin.cuda.cudnn.library import C_TYPES, PRODUCT, Cudnn
from tactix_builtin.cuda.library import Library

NUMPY = {0: DType.FP32, 2: DType.FP16, 9: DType.BF16}
ATTRIBUTES: dict[int, dict[int, int]] = {
    dnn.POINTWISE: {0: dnn.POINTWISE_MODE, 1: dnn.DATA_TYPE},
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
    dnn.OPERATION_POINTWISE: dict.fromkeys((750, 751, 752, 753), dnn.DESCRIPTOR),
    dnn.OPERATION_GRAPH: {800: dnn.HANDLE, 801: dnn.DESCRIPTOR},
    dnn.VARIANT_PACK: {1000: dnn.INT64, 1001: dnn.VOID_PTR, 1003: dnn.VOID_PTR},
    dnn.TENSOR: {
        900: dnn.INT64, 901: dnn.DATA_TYPE, 902: dnn.INT64, 903: dnn.INT64, 906: dnn.INT64, 907: dnn.BOOLEAN
    },
}  # fmt: skip
WRITTEN = {202, 300, 303, 402, 1305}


class FakeCudnnFunctions:
    """``offered``: how many engines; the last one compiles; ``wants``: their workspace; ``broken``: has no plan."""

    def __init__(self, api: FakeApi, offered: int = 3, wants: int = 64, version: int = 91900, broken: int = -1) -> None:
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

    def _cudnnBackendSetAttribute(self, native: Any, attribute: int, kind: int, size: int, values: Any) -> None:
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
                    "rank": rank, "final": True, 303: [self.wants],
                    "graph": self._graph(self._of(d[201][0])),
                }  # fmt: skip
        if attribute == 300:
            self.made[values[0]] |= {"final": True, 1305: [0] if d["rank"] == self.offered - 1 else [3]}
        have: Any = {202: range(self.offered), 300: range(1)}.get(attribute)
        have = d[attribute] if have is None else have
        found._obj.value = len(have)
        if values is not None and attribute not in (202, 300):
            assert size >= len(have)
            for i, v in enumerate(have):
                values[i] = v

    # -- what a graph computes -------------------------------------------------------------------------------------

    def _graph(self, d: dict[Any, Any]) -> list[Any]:
        assert d[800] == [7777]
        return [self._operation(self._of(o)) for o in d[801]]

    def _tensor(self, handle: int) -> dict[str, Any]:
        t = self._of(handle)
        _n, c, rows, columns = t[902]
        assert t[903] == [c * rows * columns, 1, columns * c, c]
        assert t[900] == [16]
        return {"id": t[906][0], "shape": t[902], "type": t[901][0], "virtual": t[907][0]}

    def _operation(self, d: dict[Any, Any]) -> dict[str, Any]:
        if d["kind"] == dnn.OPERATION_CONVOLUTION:
            about = self._of(d[702][0])
            assert (d[700], d[701], about[101], about[100], about[106]) == ([1.0], [0.0], [1], [0], [2])
            tensors = {name: self._tensor(d[key][0]) for name, key in (("w", 703), ("x", 704), ("y", 705))}
            return tensors | {"dilations": about[102], "strides": about[103], "pads": [*about[105], *about[104]]}
        about = self._of(d[750][0])
        names = {"x": 751, "b": 752, "y": 753}
        return {n: self._tensor(d[k][0]) for n, k in names.items() if k in d} | {"mode": about[0][0]}

    def _cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> None:
        d, p = self._of(plan), self._of(pack)
        assert d["final"]
        assert p["final"]
        assert p[1003][0] or not self.wants
        assert not any(a % 16 for a in p[1001])
        graph, places = d["graph"], dict(zip(p[1000], p[1001], strict=True))
        self.api.enqueue(self._stream, Work("cudnnBackendExecute", lambda: _run(graph, places)))


class _Version:
    restype: Any = None

    def __init__(self, version: int) -> None:
        self._version = version

    def __call__(self) -> int:
        return self._version


def _view(t: dict[str, Any], place: int) -> Any:
    """A tensor (n, c, rows, columns) of memory with channels last."""
    n, c, rows, columns = t["shape"]
    dtype = NUMPY[t["type"]].numpy
    raw = (ctypes.c_ubyte * (n * c * rows * columns * np.dtype(dtype).itemsize)).from_address(place)
    return np.frombuffer(raw, dtype).reshape(n, rows, columns, c).transpose(0, 3, 1, 2)


def _run(graph: list[Any], places: dict[int, int]) -> None:
    known: dict[int, Any] = {}

    def read(t: dict[str, Any]) -> Any:
        return known[t["id"]] if t["virtual"] else _view(t, places[t["id"]]).astype(np.float32)

    layer = h.layer("Convolution")
    for o in graph:
        if "mode" not in o:
            x, w = read(o["x"]), read(o["w"])
            attrs: Any = layer.Attrs(  # type: ignore[call-arg]
                strides=tuple(o["strides"]), dilations=tuple(o["dilations"]), pads=tuple(o["pads"]),
                group=x.shape[1] // w.shape[1],
            )  # fmt: skip
            (y,) = layer.reference(attrs, x, w)
        else:
            y = read(o["x"]) + read(o["b"]) if o["mode"] == dnn.ADD else np.maximum(read(o["x"]), 0)
        assert list(y.shape) == o["y"]["shape"]
        if o["y"]["virtual"]:
            assert o["y"]["type"] == 0
            known[o["y"]["id"]] = y
        else:
            target = _view(o["y"], places[o["y"]["id"]])
            target[...] = y.astype(target.dtype)


def fake_cudnn(api: FakeApi, **more: Any) -> tuple[Cudnn, FakeCudnnFunctions]:
    """The library over the fake driver, and its functions."""
    functions = FakeCudnnFunctions(api, **more)
    return Cudnn(Library(PRODUCT, functions)), functions
