"""What contexts of one engine must do on any CUDA device: memory of the caller's, streams,
branches, caches.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cuda_engine as e
import numpy as np
import pytest

from tactix.base.errors import InvalidArgument


class Placed:
    """A context whose inputs and outputs lie in device memory; ``offset``: bytes that they are
    moved by.
    """

    def __init__(self, engine: Any, memory: Any, n: int, offset: int = 0) -> None:
        self.engine, self.device, self.n = engine, engine.device, n
        self.context = engine.create_execution_context()
        self.want = e.expected(e.feeds(n))
        arrays = {**e.feeds(n), **self.want}
        self.address = {
            name: memory.allocate(x.nbytes + offset) + offset for name, x in arrays.items()
        }
        for name in e.feeds(n):
            self.context.set_input_shape(name, arrays[name].shape)
        for name, address in self.address.items():
            self.context.set_tensor_address(name, address)

    def feed(self, seed: int) -> None:
        for name, x in e.feeds(self.n, seed).items():
            self.device.copy_in(self.address[name], x)
        for name, y in self.want.items():
            self.device.copy_in(self.address[name], np.zeros_like(y))
        self.want = e.expected(e.feeds(self.n, seed))

    def check(self) -> None:
        for name, y in self.want.items():
            got = np.empty_like(y)
            self.device.copy_out(got, self.address[name])
            np.testing.assert_array_equal(got, y)


def check_users_memory(engine: Any, memory: Any) -> None:
    """A context without memory, with too little, with enough, and with other memory between runs."""
    context = engine.create_execution_context_without_device_memory()
    assert context.device_memory == 0
    f = e.feeds(40)
    size = engine.device_memory_size({name: x.shape for name, x in f.items()})
    assert size
    with pytest.raises(
        InvalidArgument,
        match=f"0 bytes of device memory: these shapes need {size}.*set_device_memory",
    ):
        context.run(f)
    for _ in range(2):
        room = memory.allocate(size)
        context.set_device_memory(room, size - 1)
        with pytest.raises(
            InvalidArgument, match=f"{size - 1} bytes of device memory: these shapes need {size}"
        ):
            context.run(f)
        context.set_device_memory(room, size)
        assert context.device_memory == room
        for name, y in context.run(f).items():
            np.testing.assert_array_equal(y, e.expected(f)[name])
    context.device_memory = memory.allocate(2 * size)
    for name, y in context.run(f).items():
        np.testing.assert_array_equal(y, e.expected(f)[name])


def check_alignment(engine: Any, memory: Any) -> None:
    """An address that kernels cannot read is an error before anything runs."""
    p = Placed(engine, memory, 9, offset=8)
    for run in (
        lambda: p.context.execute_async_v3(0),
        lambda: p.context.execute_v2(list(p.address.values())),
    ):
        with pytest.raises(
            InvalidArgument, match=rf"tensor 'x' lies at {p.address['x']:#x}. Align it to 16 bytes"
        ):
            run()
    fit = Placed(engine, memory, 9, offset=16)
    fit.feed(1)
    assert fit.context.execute_v2(list(fit.address.values()))
    fit.check()


def check_streams(engine: Any, memory: Any, count: int = 6, rounds: int = 5) -> None:
    """Contexts of one engine, each in a thread and a stream of its own, at shapes of their own, at
    the same time.
    """

    def work(k: int) -> None:
        p, stream = Placed(engine, memory, 10 + 17 * k), engine.device.create_stream()
        for seed in range(rounds):
            p.feed(100 * k + seed)
            for _ in range(3):
                assert p.context.execute_async_v3(stream.handle)
            stream.synchronize()
            p.check()

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, k) for k in range(count)]:
            done.result()


def check_cache(engine: Any) -> None:
    """Weights kept in the L2 cache change no result; more of it than there is is refused."""
    context, most = engine.create_execution_context(), engine.device.persistent_cache()
    assert context.persistent_cache_limit == 0
    for limit in (min(1 << 20, most), 0):
        context.persistent_cache_limit = limit
        f = e.feeds(12, seed=limit)
        for name, y in context.run(f).items():
            np.testing.assert_array_equal(y, e.expected(f)[name])
    for limit in (-1, most + 1):
        with pytest.raises(InvalidArgument, match=f"the device has {most}"):
            context.persistent_cache_limit = limit
