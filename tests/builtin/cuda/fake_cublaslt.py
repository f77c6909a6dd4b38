"""A cuBLASLt in which numbers are computed by numpy, in memory of the host: column-major, as the
real one.

Descriptors are what was set; algorithms name their place in the list and the rows that they were
offered for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_int64, c_uint64
from itertools import count
from typing import Any

import numpy as np
from fake_driver import FakeApi, Work

from tactix.base.dtypes import DType
from tactix_cublaslt.library import PRODUCT, CublasLt
from tactix_cuda.library import LoadedLibrary

NUMPY = {0: DType.FP32, 2: DType.FP16, 14: DType.BF16}
DESC = {3: c_int, 4: c_int, 7: c_int, 8: c_uint64, 26: c_int}
LAYOUT = {5: c_int, 6: c_int64}
ACTIVATIONS: dict[int, Callable[[Any], Any]] = {
    0: lambda x: x,
    2: lambda x: np.maximum(x, 0),
    32: lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def _of(place: Any) -> Any:
    """What a pointer argument points to."""
    return place._obj


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


class FakeFunctions:
    """``offered``: how many algorithms; ``wants``: their workspace; ``fail``: status by function.

    ``given``: bytes of workspace of every product.
    """

    def __init__(
        self, api: FakeApi, offered: int = 3, wants: int = 256, version: int = 130100
    ) -> None:
        self.api, self.offered, self.wants, self.version = api, offered, wants, version
        self.fail: dict[str, int] = {}
        self.made: dict[int, dict[Any, Any]] = {}
        self.asked: list[dict[int, int]] = []
        self.given: list[int] = []
        self._numbers = count(1)
        self.cublasLtGetVersion = _Version(self)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cublasLt"):
            raise AttributeError(name)
        own = getattr(self, f"_{name}")

        def call(*args: Any) -> int:
            assert name in PRODUCT.signatures
            assert len(args) == len(PRODUCT.signatures[name])
            return self.fail.get(name, 0) or own(*args) or 0

        return call

    def cublasLtGetStatusString(self, status: int) -> bytes:
        return f"text of {status}".encode()

    def _new(self, place: Any, **what: Any) -> None:
        handle = next(self._numbers)
        self.made[handle] = what
        _of(place).value = handle

    def _get(self, handle: Any) -> dict[Any, Any]:
        return self.made[_number(handle)]

    def _destroy(self, handle: Any) -> None:
        del self.made[_number(handle)]

    _cublasLtMatmulDescDestroy = _cublasLtMatrixLayoutDestroy = _cublasLtMatmulPreferenceDestroy = (
        _destroy
    )

    def _cublasLtCreate(self, place: Any) -> None:
        self._new(place)

    _cublasLtMatmulPreferenceCreate = _cublasLtCreate

    def _cublasLtMatmulDescCreate(self, place: Any, compute: int, scale: int) -> None:
        assert scale == 0
        self._new(place, compute=compute)

    def _cublasLtMatrixLayoutCreate(
        self, place: Any, dtype: int, rows: int, cols: int, ld: int
    ) -> None:
        assert min(rows, cols) > 0
        assert ld >= rows
        self._new(place, dtype=NUMPY[dtype].numpy, rows=rows, cols=cols, ld=ld)

    def _set(self, handle: Any, key: int, value: Any, size: int) -> None:
        assert ctypes.sizeof(_of(value)) == size
        self._get(handle)[key] = _of(value).value

    def _cublasLtMatmulDescSetAttribute(self, handle: Any, key: int, value: Any, size: int) -> None:
        assert size == ctypes.sizeof(DESC[key])
        self._set(handle, key, value, size)

    def _cublasLtMatrixLayoutSetAttribute(
        self, handle: Any, key: int, value: Any, size: int
    ) -> None:
        assert size == ctypes.sizeof(LAYOUT[key])
        self._set(handle, key, value, size)

    _cublasLtMatmulPreferenceSetAttribute = _set

    def _cublasLtMatmulAlgoGetHeuristic(self, *args: Any) -> int:
        _handle, operation, _b, _a, c, d, preference, most, found, number = args
        wanted = self._get(preference)
        self.asked.append(dict(wanted))
        assert _number(c) == _number(d)
        assert bool(self._get(operation)[7] & 4) == (8 in self._get(operation))
        fits = self.offered if wanted[1] >= self.wants else 0
        for i in range(min(most, fits)):
            found[i].algo[0], found[i].algo[1] = i + 1, self._get(d)["cols"]
            found[i].workspace = self.wants
        _of(number).value = min(most, fits)
        return 0 if fits else 15

    def _cublasLtMatmulAlgoCheck(self, *args: Any) -> int:
        code, result = _of(args[6]), _of(args[7])
        result.workspace = self.wants
        return 0 if code[1] == self._get(args[5])["cols"] and 1 <= code[0] <= self.offered else 15

    def _cublasLtMatmul(self, *args: Any) -> int:
        _handle, op, alpha, b, lb, a, la, beta, c, lc, d, ld, code, scratch, size, stream = args
        if self._cublasLtMatmulAlgoCheck(
            None, None, None, None, None, ld, code, ctypes.byref(_Result())
        ):
            return 15
        self.given.append(size)
        assert size >= self.wants
        assert scratch or not size
        assert not any(_number(x) % 16 for x in (a, b, c, d, scratch))
        frozen = dict(self._get(op))
        factors = _of(alpha).value, _of(beta).value
        places = [(x, dict(self._get(y))) for x, y in ((b, lb), (a, la), (c, lc), (d, ld))]
        self.api.enqueue(
            _number(stream), Work("cublasLtMatmul", lambda: _product(frozen, factors, places))
        )
        return 0


class _Result(ctypes.Structure):
    _fields_ = [("workspace", ctypes.c_size_t)]


class _Version:
    """A function whose result type can be set."""

    restype: Any = None

    def __init__(self, owner: FakeFunctions) -> None:
        self._owner = owner

    def __call__(self) -> int:
        return self._owner.version


def _matrices(place: int, layout: dict[Any, Any]) -> Any:
    """A view (batch, rows, columns) of column-major memory."""
    size, batch = np.dtype(layout["dtype"]).itemsize, layout.get(5, 1)
    stride, ld = layout.get(6, 0), layout["ld"]
    total = (batch - 1) * stride + (layout["cols"] - 1) * ld + layout["rows"]
    raw = (ctypes.c_ubyte * (total * size)).from_address(place)
    flat = np.frombuffer(raw, layout["dtype"])
    shape = (batch, layout["rows"], layout["cols"])
    return np.lib.stride_tricks.as_strided(flat, shape, (stride * size, size, ld * size))


def _product(
    op: dict[int, int], factors: tuple[float, float], places: list[tuple[int, dict[Any, Any]]]
) -> None:
    left, right, c, d = (_matrices(p, layout) for p, layout in places)
    wide = [x.astype(np.float64) for x in (left, right)]
    wide = [x.transpose(0, 2, 1) if op[key] else x for x, key in zip(wide, (3, 4), strict=True)]
    y = factors[0] * (wide[0] @ wide[1])
    if factors[1]:
        y = y + factors[1] * c.astype(np.float64)
    if op[7] & 4:
        rows = places[3][1]["rows"]
        kind = NUMPY[op[26]].numpy
        raw = (ctypes.c_ubyte * (rows * np.dtype(kind).itemsize)).from_address(op[8])
        y = y + np.frombuffer(raw, kind).astype(np.float64)[None, :, None]
    d[...] = ACTIVATIONS[op[7] & ~5](y).astype(d.dtype)


def fake_cublaslt(api: FakeApi, **more: Any) -> tuple[CublasLt, FakeFunctions]:
    """The library over the fake driver, and its functions."""
    functions = FakeFunctions(api, **more)
    return CublasLt(LoadedLibrary(PRODUCT, functions)), functions
