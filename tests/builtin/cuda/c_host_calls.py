"""What a C library for a GPU says and does: ``c_host_calls.py DRIVER LIBRARY``, in a process of its
own, as the driver is that of the tests (fake_libcuda.c), which others in this process would find.

The library is of test_c_hosts.py: z = tanh(x @ w), and its sums, in float16.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "shared"))

from c_libraries import CContext, CLibrary, CLibraryError

DEPTH, WIDTH, ROWS = 1024, 64, 3
LOST, NO_GRAPH, OTHER, FULL, ABSENT = 700, 801, 209, 2, 100


def weights() -> Any:
    return np.random.default_rng(0).standard_normal((DEPTH, WIDTH)).astype(np.float16)


def rows(count: int, seed: int = 0) -> Any:
    found = np.random.default_rng(seed).standard_normal((count, DEPTH)) / 16
    return found.astype(np.float16)


def check(x: Any, z: Any, total: Any) -> None:
    """Against float32: sums of 1024 products, rounded to 11 bits; then sums of 64 such numbers."""
    want = np.tanh(x.astype(np.float32) @ weights().astype(np.float32))
    np.testing.assert_allclose(z, want, atol=1e-3)
    np.testing.assert_allclose(total, want.sum(1), atol=0.05)


class Memory:
    """Arrays of the device, which is the host's memory here."""

    def __init__(self, driver: Any, *arrays: Any) -> None:
        self.places = []
        for x in arrays:
            place = ctypes.c_uint64()
            assert driver.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(x.nbytes)) == 0
            ctypes.memmove(place.value, x.ctypes.data, x.nbytes)
            self.places.append(place.value)

    def array(self, index: int, like: Any) -> Any:
        out = np.empty_like(like)
        ctypes.memmove(out.ctypes.data, self.places[index], out.nbytes)
        return out


class Calls:
    def __init__(self, driver: str, library: str) -> None:
        self.driver: Any = ctypes.CDLL(driver, mode=ctypes.RTLD_GLOBAL)
        self.library = CLibrary(Path(library), "net")

    def fail(self, name: str, status: int, after: int = 0) -> None:
        self.driver.fake_fail(name.encode(), status, after)

    def refused(self, status: str, part: str, call: Callable[..., Any], *args: Any) -> None:
        with pytest.raises(CLibraryError) as told:
            call(*args)
        assert told.value.status == status, told.value
        assert part in told.value.text, told.value
        self.fail("", 0)

    # -- creating ---------------------------------------------------------------------------------

    def devices_that_do_not_fit_are_told(self) -> None:
        create, driver = self.library.create, self.driver
        self.fail("cuInit", ABSENT)
        self.refused("NO_DEVICE", "CUDA_ERROR_NO_DEVICE (100): the text", create)
        driver.fake_device(0, 90, 13000)
        self.refused("NO_DEVICE", "there is no GPU 0: the driver shows 0", create)
        driver.fake_device(1, 80, 13000)
        told = "Fake GPU has compute capability 8.0, the kernels are for 9.0. Export"
        self.refused("OTHER_PROCESSOR", told, create)
        driver.fake_device(1, 90, 13000)
        for device in (-1, 1):
            self.refused("NO_DEVICE", f"no GPU {device}", lambda n=device: create(device=n))
        self.fail("cuModuleLoadData", OTHER)
        self.refused("OTHER_PROCESSOR", "NO_BINARY_FOR_GPU (209)", create)
        self.fail("cuMemAlloc_v2", FULL)
        self.refused("OUT_OF_MEMORY", "copying the weights to the device: cuMemAlloc", create)
        self.fail("cuStreamCreate", 999)
        self.refused("DRIVER_ERROR", "an error without a name (999)", create)
        assert driver.fake_live() == 0

    # -- running ----------------------------------------------------------------------------------

    def memory_of_the_host_is_copied(self, context: CContext, *counts: int) -> None:
        for count in counts or (ROWS,):
            x, z, total = rows(count, count), self.made(count, WIDTH), self.made(count)
            context.shape(0, x.shape)
            for index, y in enumerate((z, total)):
                context.bind("output", index, y)
            context.bind("input", 0, x)
            context.run()
            check(x, z, total)

    def made(self, *shape: int) -> Any:
        return np.zeros(shape, np.float16)

    def copies_stay_on_the_device(self) -> None:
        context = self.library.create()
        x, z, total = rows(ROWS, 7), self.made(ROWS, WIDTH), self.made(ROWS)
        context.shape(0, x.shape)
        context.call("copy_input", 0, ctypes.c_void_p(x.ctypes.data), x.nbytes)
        given = self.driver.fake_calls(b"cuMemcpyHtoDAsync_v2")
        for _ in range(2):
            context.run()
        for index, y in enumerate((z, total)):
            context.call("copy_output", index, ctypes.c_void_p(y.ctypes.data), y.nbytes)
        assert self.driver.fake_calls(b"cuMemcpyHtoDAsync_v2") == given
        check(x, z, total)

    def memory_of_the_device_is_used_where_it_lies(self, context: CContext) -> None:
        """In a stream of the caller's; another address goes into the graph that is there."""
        driver, stream = self.driver, ctypes.c_void_p(12345)
        context.call("set_stream", stream)
        context.shape(0, (ROWS, DEPTH))
        copies = [driver.fake_calls(f"cuMemcpy{way}Async_v2".encode()) for way in ("HtoD", "DtoH")]
        graphs = driver.fake_calls(b"cuGraphInstantiateWithFlags")
        for seed in range(4):
            x, z, total = rows(ROWS, seed), self.made(ROWS, WIDTH), self.made(ROWS)
            there = Memory(driver, x, z, total)
            for kind, index, place, y in zip(
                ("input", "output", "output"), (0, 0, 1), there.places, (x, z, total), strict=True
            ):
                context.call(f"bind_device_{kind}", index, ctypes.c_void_p(place), y.nbytes)
            context.call("enqueue")
            context.call("wait")
            check(x, there.array(1, z), there.array(2, total))
            for place in there.places:
                driver.cuMemFree_v2(ctypes.c_uint64(place))
        assert driver.fake_calls(b"cuGraphInstantiateWithFlags") == graphs + 1
        assert driver.fake_calls(b"cuGraphExecKernelNodeSetParams_v2") >= 2
        now = [driver.fake_calls(f"cuMemcpy{way}Async_v2".encode()) for way in ("HtoD", "DtoH")]
        assert now == copies
        context.call("set_stream", None)

    def memory_that_is_no_devices_is_told(self, context: CContext) -> None:
        x = rows(ROWS)
        place = ctypes.c_void_p(x.ctypes.data)
        told = "is no memory that CUDA knows. Call net_bind_input"
        self.refused("INVALID_ARGUMENT", told, context.call, "bind_device_input", 0, place, 64)
        there = Memory(self.driver, x)
        odd = ctypes.c_void_p(there.places[0] + 8)
        told = "Align it to 16 bytes"
        self.refused("INVALID_ARGUMENT", told, context.call, "bind_device_input", 0, odd, 64)
        self.driver.cuMemFree_v2(ctypes.c_uint64(there.places[0]))

    # -- what goes wrong --------------------------------------------------------------------------

    def errors_of_the_driver_are_told(self, context: CContext) -> None:
        step = "matmul + tanh: "
        failing = {
            "cuStreamSynchronize": (LOST, "FAILED_EXECUTION", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
            "cuLaunchKernelEx": (1, "DRIVER_ERROR", f"{step}cuLaunchKernelEx failed: CUDA_ERROR"),
            "cuMemcpyHtoDAsync_v2": (1, "DRIVER_ERROR", "x: cuMemcpyHtoDAsync failed"),
            "cuTensorMapEncodeTiled": (1, "DRIVER_ERROR", f"{step}cuTensorMapEncodeTiled failed"),
        }
        for name, (status, kind, part) in failing.items():
            self.again(context)
            self.fail(name, status)
            self.refused(kind, part, context.run)
            self.memory_of_the_host_is_copied(context)
        self.fail("cuGraphInstantiateWithFlags", NO_GRAPH)
        self.memory_of_the_host_is_copied(context, 1, 1)
        self.fail("", 0)

    def again(self, context: CContext) -> None:
        """Another shape, so that all is set up again."""
        x, z, total = rows(2), self.made(2, WIDTH), self.made(2)
        context.shape(0, x.shape)
        context.bind("input", 0, x)
        context.bind("output", 0, z)
        context.bind("output", 1, total)

    def too_little_memory_is_told(self) -> None:
        """And the context is of use once there is more."""
        context = self.library.create()
        self.again(context)
        self.driver.fake_room(ctypes.c_size_t(1))
        self.refused("OUT_OF_MEMORY", "bytes of device memory for", context.run)
        self.driver.fake_room(ctypes.c_size_t(1 << 40))
        self.memory_of_the_host_is_copied(context)


def main(driver: str, library: str) -> None:
    """The caller has a context of its own, which stays current all the time."""
    calls = Calls(driver, library)
    calls.driver.cuCtxPushCurrent_v2(ctypes.c_void_p(0x77))
    calls.devices_that_do_not_fit_are_told()
    uploads = calls.driver.fake_calls(b"cuMemcpyHtoDAsync_v2")
    contexts = [calls.library.create() for _ in range(2)]
    assert calls.driver.fake_calls(b"cuMemcpyHtoDAsync_v2") == uploads + 1  # weights are there once
    calls.memory_of_the_host_is_copied(contexts[0], ROWS, ROWS, ROWS, 1, 70)
    calls.memory_of_the_host_is_copied(contexts[1])
    calls.copies_stay_on_the_device()
    calls.memory_of_the_device_is_used_where_it_lies(contexts[1])
    calls.memory_that_is_no_devices_is_told(contexts[0])
    calls.errors_of_the_driver_are_told(contexts[0])
    calls.too_little_memory_is_told()
    del contexts
    gc.collect()  # what is in the frames of errors
    assert calls.driver.fake_live() == 0
    before = ctypes.c_void_p()
    calls.driver.cuCtxPopCurrent_v2(ctypes.byref(before))
    assert (before.value, calls.driver.fake_depth()) == (0x77, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
