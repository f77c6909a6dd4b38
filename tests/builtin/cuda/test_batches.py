"""Batches on a CUDA device: once a model is ready nothing is bound, captured or allocated."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from fake_driver import FakeApi, fake_device
from test_engine import combine

import tactix
from tactix.run.runtime import Runtime
from tactix_codegen.compiling import symbol
from tactix_cuda import caller_arrays
from tactix_cuda import device as real
from tactix_cuda.nvrtc import why_missing
from tactix_serve.batching import Batcher, BatchOptions
from tactix_serve.config import ModelConfig
from tactix_serve.served_model import EngineModel, warm

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

MOST = 24
COSTLY = ("cuGraphInstantiate", "cuGraphCreate", "cuGraphExecKernelNodeSetParams", "cuMemAllocAsync",
          "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate", "cuModuleLoadData")  # fmt: skip


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    device, api = fake_device({symbol(e.RIGHT.code): combine(1), symbol(e.WRONG.code): combine(-1)})
    monkeypatch.setattr(real, "the_device", lambda: device)
    return api


def engine_of(lowest: int = 1) -> Any:
    """s = a + b and v = s + a, of ``lowest`` to MOST rows."""
    built = e.builder()
    net = built.create_network("rows")
    a, b = (net.add_input(name, "f32", ("n", 7)) for name in "ab")
    (s,) = net.add_layer("tactix.Add", [a, b], name="first")
    net.mark_output(s, "s")
    net.mark_output(net.add_layer("tactix.Add", [s, a], name="second")[0], "v")
    profile = tactix.OptimizationProfile()
    for name in "ab":
        profile.set_shape(name, (lowest, 7), (8, 7), (MOST, 7))
    plan = built.build_plan(net, e.config(profiles=[profile]))
    return Runtime(session=built.session).load(plan)


def feeds(rows: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal((rows, 7)).astype(np.float32) for k in "ab"}


def test_batches_of_changing_sizes_cost_their_runs(api: FakeApi) -> None:
    model = warm(engine_of(), ModelConfig(batching=BatchOptions(window=0.0005)))
    assert isinstance(model, EngineModel)
    assert model.batcher is not None
    assert model.batcher.sizes == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    assert model.batcher.times.estimate(MOST) > 0
    api.log.clear()

    async def work() -> Any:
        rng = np.random.default_rng(0)
        for turn in range(40):
            asked = [feeds(int(rng.integers(1, 4)), 100 * turn + i) for i in range(turn % 14)]
            found = await asyncio.gather(*(model.infer(f, None) for f in asked))
            for f, y in zip(asked, found, strict=True):
                np.testing.assert_array_equal(y["s"], f["a"] + f["b"])
                np.testing.assert_array_equal(y["v"], (f["a"] + f["b"]) + f["a"])
        return model.batcher.stats()

    stats, calls = asyncio.run(work()), Counter(api.log)
    assert stats.padding
    assert len(stats.sizes) > 5
    assert {name: calls[name] for name in COSTLY if calls[name]} == {}
    assert calls["cuGraphLaunch"] == stats.batches
    assert calls["cuMemcpyHtoDAsync"] == calls["cuMemcpyDtoHAsync"] == stats.batches
    asyncio.run(model.close())


def test_lengths_are_bound_before_the_first_batch(api: FakeApi) -> None:
    built = e.builder()
    net = built.create_network("lengths")
    a, b = (net.add_input(name, "f32", ("n", "l")) for name in "ab")
    net.mark_output(net.add_layer("tactix.Add", [a, b], name="first")[0], "s")
    profile = tactix.OptimizationProfile()
    for name in "ab":
        profile.set_shape(name, (1, 1), (4, 8), (6, 40))
    plan = built.build_plan(net, e.config(profiles=[profile]))
    pads = {name: {1: 0.0} for name in "ab"}
    options = BatchOptions(window=0.0005, pad=pads, pad_sizes={"a": {1: [8, 40, 16]}})
    model = warm(Runtime(session=built.session).load(plan), ModelConfig(batching=options))
    api.log.clear()

    async def work() -> None:
        rng = np.random.default_rng(0)
        for turn in range(30):
            lengths = rng.integers(1, 41, turn % 7)
            asked = [{k: np.ones((1, n), np.float32) for k in "ab"} for n in lengths]
            found = await asyncio.gather(*(model.infer(f, None) for f in asked))
            for f, y in zip(asked, found, strict=True):
                np.testing.assert_array_equal(y["s"], f["a"] + f["b"])
        await model.close()

    asyncio.run(work())
    assert "cuGraphLaunch" in api.log
    assert {name for name in COSTLY if name in api.log} == set()


def test_too_few_rows_for_the_profile_are_padded(api: FakeApi) -> None:
    async def work() -> Any:
        batcher = Batcher(engine_of(lowest=4), BatchOptions(window=0.0005, sizes=[2, 6]))
        assert batcher.sizes == [6, MOST]
        return await batcher.infer(feeds(1, 0))

    f = feeds(1, 0)
    np.testing.assert_array_equal(asyncio.run(work())["v"], (f["a"] + f["b"]) + f["a"])


def test_outputs_that_nobody_asks_for_stay_on_the_device(api: FakeApi) -> None:
    """Whatever is asked for, the graph stays as it is."""
    engine, f, size = engine_of(), feeds(3, 1), 3 * 7 * 4
    want = {"s": f["a"] + f["b"], "v": (f["a"] + f["b"]) + f["a"]}

    async def asked(*several: Any) -> tuple[list[Any], float]:
        before = engine.device.counters().get("to_host_bytes", 0.0)
        batcher = Batcher(engine, BatchOptions(max_batch=3 * len(several), window=0.01))
        found = await asyncio.gather(*(batcher.infer(f, outputs=names) for names in several))
        return found, engine.device.counters()["to_host_bytes"] - before

    for names in (["s"], ["v"], [], ["v", "s"], None):
        (found,), copied = asyncio.run(asked(names))
        wanted = ["s", "v"] if names is None else names
        assert sorted(found) == sorted(wanted)
        assert copied == size * len(wanted)
        assert all(np.array_equal(found[name], want[name]) for name in wanted)
    (first, second), copied = asyncio.run(asked(["s"], ["v"]))
    assert np.array_equal(first["s"], want["s"])
    assert np.array_equal(second["v"], want["v"])
    assert copied == 2 * 2 * size
    context = engine.create_execution_context()
    context.run(f)
    api.log.clear()
    for chosen in (["s"], ["v"], None):
        context.run(f, outputs=chosen)
    assert {name for name in COSTLY if name in api.log} == set()


def test_long_waits_sleep(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    f = feeds(2, 3)

    def waits(context: Any) -> list[str]:
        api.log.clear()
        np.testing.assert_array_equal(context.run(f)["s"], f["a"] + f["b"])
        return [name for name in api.log if name.endswith("Synchronize")][-1:]

    engine = engine_of()
    with engine.create_execution_context() as context:
        monkeypatch.setattr(caller_arrays, "LONG_WAIT", float("inf"))
        assert [waits(context) for _ in range(3)] == [["cuStreamSynchronize"]] * 3
        monkeypatch.setattr(caller_arrays, "LONG_WAIT", 0.0)
        assert waits(context) == ["cuEventSynchronize"]


def test_counters(api: FakeApi) -> None:
    engine = engine_of()
    before = engine.device.counters()
    for rows in (2, 3, 2):
        engine(feeds(rows, 0))
    after = engine.device.counters()
    more = {name: after[name] - before.get(name, 0) for name in after}
    assert (more["host_runs"], more["binds"], more["graphs"]) == (3, 2, 2)
    assert (more["to_device_bytes"], more["to_host_bytes"]) == (7 * 7 * 4 * 2, 7 * 7 * 4 * 2)
    assert min(more["submit_seconds"], more["wait_seconds"], more["take_seconds"]) > 0
