"""Arrays of other libraries in device memory, and results there, over a driver that stands for
CUDA's.
"""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from fake_driver import FakeApi
from test_engine import here as _here

from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, InvalidArgument, TactixError
from tactix.run.runtime import Runtime
from tactix_cuda import dlpack
from tactix_cuda.arrays import DeviceArray
from tactix_cuda.device import CudaDevice
from tactix_cuda.memory import PoolAllocator
from tactix_cuda.nvrtc import why_missing

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
here = _here
SIDE = 77
"""The stream that other libraries work in."""


class Shared:
    """As a library shares its arrays by DLPack. ``streams``: those of the takers."""

    def __init__(self, x: Any, ordinal: int = 0, fails: str = "") -> None:
        self.x, self.ordinal, self.fails = x, ordinal, fails
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal

    def __dlpack__(self, *, stream: int) -> Any:
        if self.fails:
            raise BufferError(self.fails)
        self.streams.append(stream)
        return self.x.__dlpack__()


class Told:
    """As a library tells where its arrays are by the CUDA array interface."""

    def __init__(self, x: Any, **more: Any) -> None:
        place = x.__array_interface__
        strides = None if x.flags.c_contiguous else x.strides
        told = {
            "shape": x.shape,
            "typestr": place["typestr"],
            "data": (place["data"][0], False),
            "strides": strides,
        }
        self.x, self.__cuda_array_interface__ = x, {**told, "version": 3, **more}


@pytest.fixture
def engine(here: tuple[CudaDevice, FakeApi]) -> Any:
    built = e.builder()
    made = Runtime(session=built.session).load(built.build_plan(e.sums(built), e.config()))
    del here[1].launched[:]
    return made


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package of that name, whose caller works in SIDE."""
    current = SimpleNamespace(cuda_stream=SIDE)
    made = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda ordinal: current))
    monkeypatch.setitem(sys.modules, "torch", made)
    return type("Tensor", (Shared,), {"__module__": "torch"})


def check(got: dict[str, Any], f: dict[str, Any]) -> None:
    for name, want in e.expected(f).items():
        assert isinstance(got[name], DeviceArray)
        assert got[name].shape == want.shape
        np.testing.assert_array_equal(got[name].numpy(), want)
        np.testing.assert_array_equal(np.asarray(got[name]), want)


# -- capsules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u4", "u8", "?", "c8"]
)
def test_capsules_of_numpy_are_read(dtype: str) -> None:
    x = np.zeros((3, 5, 7), dtype)
    for view in (x, x[1:], x[:, ::2], x.transpose(2, 0, 1), x[0, 0, :0], x[1, 1, 1:2]):
        address, shape, strides, (code, bits, lanes) = dlpack.read(view.__dlpack__())
        assert address == view.__array_interface__["data"][0]
        assert shape == view.shape
        assert strides is None or strides == tuple(s // x.itemsize for s in view.strides)
        assert (code, bits) == dlpack.CODES[DType.of(x.dtype)]
        assert lanes == 1


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3), (4, 1, 5)])
def test_numpy_reads_capsules(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]) -> None:
    """As of host memory, which is all that numpy takes."""
    monkeypatch.setattr(dlpack, "CUDA", 1)
    x = np.arange(max(1, int(np.prod(shape))), dtype=np.float32)

    class Owner:
        def __dlpack__(self, **_: Any) -> Any:
            return dlpack.make(self, x.__array_interface__["data"][0], shape, DType.FP32, 0)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    owner = Owner()
    gone = weakref.ref(owner)
    y = np.from_dlpack(owner)
    del owner
    gc.collect()
    assert gone() is not None
    np.testing.assert_array_equal(y, x[: y.size].reshape(shape))
    del y
    assert gone() is None


def test_a_capsule_that_nobody_takes() -> None:
    class Owner: ...

    owner = Owner()
    gone = weakref.ref(owner)
    capsule = dlpack.make(owner, 512, (2,), DType.FP32, 0)
    del owner
    assert gone() is not None
    del capsule
    assert gone() is None
    with pytest.raises(BufferError, match="i4"):
        dlpack.make(None, 512, (2,), DType.INT4, 0)


# -- inputs --------------------------------------------------------------------------------------


def test_arrays_are_used_where_they_lie(
    here: tuple[CudaDevice, FakeApi], engine: Any, torch: Any
) -> None:
    for n in (50, 50, 3, 0):
        f = e.feeds(n, seed=n)
        given = {k: torch(x) for k, x in f.items()}
        engine(given)
        del here[1].log[:], here[1].launched[:]
        got = engine(given)
        assert not [
            c for c in here[1].log if c.startswith(("cuMemcpy", "cuStreamSync", "cuCtxSync"))
        ]
        assert here[1].launched == [SIDE]
        assert all(x.streams == [SIDE, SIDE] for x in given.values())
        check(got, f)


def test_the_stream_that_was_asked_for(
    here: tuple[CudaDevice, FakeApi], engine: Any, torch: Any
) -> None:
    device, api = here
    context, f, own = engine.create_execution_context(), e.feeds(4), device.create_stream()
    given = {k: torch(x) for k, x in f.items()}
    for stream in (own, own.handle, SimpleNamespace(__cuda_stream__=lambda: (0, own.handle))):
        check(context.run(given, stream=stream), f)
    own.submit(lambda: check(context.run(given), f))
    assert api.launched == [own.handle] * 4
    check(context.run(given), f)
    assert (SIDE, own.handle) in api.waits  # they share intermediate memory
    del api.log[:]
    context.run(given, stream=own)
    assert "cuStreamSynchronize" in api.log  # the arrays are another stream's, which may free them


def test_the_default_stream_where_nobody_tells_one(
    here: tuple[CudaDevice, FakeApi], engine: Any
) -> None:
    f = e.feeds(5)
    given = {k: Shared(x) for k, x in f.items()}
    check(engine(given), f)
    assert given["x"].streams == [1]
    assert here[1].launched == [0]
    assert "cuStreamSynchronize" in here[1].log


def test_the_cuda_array_interface(here: tuple[CudaDevice, FakeApi], engine: Any) -> None:
    f = e.feeds(6)
    check(engine({k: Told(x) for k, x in f.items()}), f)
    check(engine({k: Told(x, stream=1) for k, x in f.items()}), f)
    del here[1].waits[:]
    check(engine({k: Told(x, stream=SIDE) for k, x in f.items()}), f)
    assert set(here[1].waits) == {(0, SIDE)}


def test_host_arrays_among_them_are_copied(
    here: tuple[CudaDevice, FakeApi], engine: Any, torch: Any
) -> None:
    f = e.feeds(7)
    del here[1].log[:]
    check(engine({"x": f["x"], "y": torch(f["y"]), "a": torch(f["a"]), "b": f["b"].tolist()}), f)
    assert here[1].log.count("cuMemcpyHtoDAsync") == 1


def test_engines_in_a_chain(here: tuple[CudaDevice, FakeApi], engine: Any, torch: Any) -> None:
    f = e.feeds(8)
    given = {k: torch(x) for k, x in f.items()}
    first = engine(given)
    del here[1].log[:]
    got = engine({**given, "x": first["u"], "a": first["v"]})
    assert "cuStreamSynchronize" not in here[1].log
    check(got, {**f, "x": e.expected(f)["u"], "a": e.expected(f)["v"]})


def wrong(x: Any) -> dict[str, tuple[Any, type[TactixError], str]]:
    flat = np.zeros(x.size + 4, np.float32)
    shifted = flat[1 : x.size + 1]
    return {
        "device": (
            Shared(x, ordinal=3),
            InvalidArgument,
            r"'x' lies on CUDA device 3.*device 0.*to\('cuda:0'\)",
        ),
        "order": (
            Shared(np.zeros(602, np.float32)[::2]),
            InvalidArgument,
            "'x' is not contiguous.*strides",
        ),
        "dtype": (
            Shared(x.astype(np.float16)),
            DTypeError,
            r"'x' is f32, got f16.*x\.to\(torch\.float32\)",
        ),
        "start": (
            Shared(shifted),
            InvalidArgument,
            "'x' does not start at a multiple of 16 bytes.*clone",
        ),
        "export": (
            Shared(x, fails="requires grad"),
            InvalidArgument,
            "'x' cannot be taken.*requires grad.*detach",
        ),
        "told device": (Told(x), InvalidArgument, "'x' lies on CUDA device 1"),
        "told order": (
            Told(np.zeros(602, np.float32)[::2]),
            InvalidArgument,
            "'x' is not contiguous",
        ),
        "told dtype": (Told(x.astype(np.int32)), DTypeError, "'x' is f32, got <i4"),
    }


@pytest.mark.parametrize("name", wrong(np.zeros(301, np.float32)))
def test_what_cannot_be_taken(here: tuple[CudaDevice, FakeApi], engine: Any, name: str) -> None:
    f = e.feeds(4)
    given, kind, text = wrong(f["x"])[name]
    if name == "told device":
        here[1].ordinals[given.__cuda_array_interface__["data"][0]] = 1
    with pytest.raises(kind, match=text):
        engine({**f, "x": given})
    check(engine({k: Shared(x) for k, x in f.items()}), f)


# -- results -------------------------------------------------------------------------------------


def test_results_are_shared(here: tuple[CudaDevice, FakeApi], engine: Any, torch: Any) -> None:
    api = here[1]
    y = engine({k: torch(x) for k, x in e.feeds(9).items()})["v"]
    assert (y.ndim, y.size, y.nbytes, y.dtype) == (2, 63, 252, DType.FP32)
    assert y.__dlpack_device__() == (2, 0)
    told = y.__cuda_array_interface__
    assert told == {
        "shape": (9, 7),
        "typestr": "<f4",
        "data": (y.address, False),
        "strides": None,
        "version": 3,
        "stream": SIDE,
    }
    del api.waits[:]
    for stream, waits in (
        (SIDE, []),
        (5, [(5, SIDE)]),
        (-1, []),
        (1, [(0, SIDE)]),
        (None, [(0, SIDE)]),
    ):
        address, shape, _, code = dlpack.read(
            y.__dlpack__(stream=stream, max_version=(1, 0), dl_device=(2, 0))
        )
        assert (address, shape, code) == (y.address, (9, 7), (2, 32, 1))
        assert api.waits == waits
        del api.waits[:]
    for refused in ({"copy": True}, {"dl_device": (1, 0)}):
        with pytest.raises(BufferError, match="numpy"):
            y.__dlpack__(**refused)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(y, copy=False)
    assert np.asarray(y, np.float64).dtype == np.float64


@pytest.mark.parametrize("share", ["nobody", "same", "other", "unknown"])
def test_results_go_back_in_order(
    here: tuple[CudaDevice, FakeApi], engine: Any, torch: Any, share: str
) -> None:
    api = here[1]
    given = {k: torch(x) for k, x in e.feeds(9).items()}
    y = engine(given)["v"]
    gc.collect()
    address, taken = y.address, None
    if share in ("same", "other"):
        taken = y.__dlpack__(stream=SIDE if share == "same" else 5)
    elif share == "unknown":
        assert y.__cuda_array_interface__
    del y
    assert (address in api.memory) is (taken is not None)
    del api.log[:], api.waits[:]
    del taken
    assert address not in api.memory or share == "unknown"
    assert api.waits == ([(SIDE, 5)] if share == "other" else [])
    assert "cuCtxSynchronize" not in api.log


def test_dtypes_that_only_dlpack_has(here: tuple[CudaDevice, FakeApi]) -> None:
    device, _ = here
    y = DeviceArray(device, PoolAllocator(device), (3,), DType.BF16, device.default_stream)
    assert not hasattr(y, "__cuda_array_interface__")
    assert dlpack.read(y.__dlpack__())[3] == (4, 16, 1)


# -- host arrays, addresses, streams -------------------------------------------------------------


def test_host_arrays_go_through_pinned_memory(
    here: tuple[CudaDevice, FakeApi], engine: Any
) -> None:
    e.check_engine(engine)
    del here[1].log[:]
    got = engine(e.feeds(60))
    assert all(isinstance(y, np.ndarray) for y in got.values())
    counts = {
        c: here[1].log.count(c)
        for c in ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemHostAlloc")
    }
    assert counts == {"cuMemcpyHtoDAsync": 1, "cuMemcpyDtoHAsync": 1, "cuMemHostAlloc": 0}
    assert here[1].log.count("cuStreamSynchronize") == 1


def test_addresses_by_arrays(here: tuple[CudaDevice, FakeApi], engine: Any) -> None:
    f = e.feeds(11)
    context, out = (
        engine.create_execution_context(),
        {k: np.zeros_like(y) for k, y in e.expected(f).items()},
    )
    with pytest.raises(InvalidArgument, match="'x' needs an array in device memory, got a ndarray"):
        context.set_tensor_address("x", f["x"])
    for name, x in (f | out).items():
        context.set_tensor_address(name, Shared(x))
    assert context.execute_async_v3(SimpleNamespace(ptr=SIDE))
    for name, want in e.expected(f).items():
        np.testing.assert_array_equal(out[name], want)
    del here[1].log[:]
    for stream in (
        SIDE,
        SimpleNamespace(cuda_stream=SIDE),
        SimpleNamespace(__cuda_stream__=(0, SIDE)),
    ):
        assert context.execute_async_v3(stream)
    assert here[1].log == ["cuGraphLaunch"] * 3
    assert here[1].launched == [SIDE] * 4
    with pytest.raises(InvalidArgument, match=r"is no CUDA stream.*__cuda_stream__"):
        context.execute_async_v3("s")
    g = e.feeds(11, seed=4)
    for name, x in g.items():
        context.set_tensor_address(name, Shared(x))
    assert context.execute_async_v3(SIDE)
    for name, want in e.expected(g).items():
        np.testing.assert_array_equal(out[name], want)
