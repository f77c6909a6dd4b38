"""Weights that pass through a window of device memory, over a driver that does what is queued as
late as it may.
"""

from __future__ import annotations

import gc
import io
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import streamed as s
from cuda_engine import RIGHT
from lazy_driver import LazyApi
from test_engine import combine

from tactix.base.errors import AllocationError, InvalidArgument
from tactix.base.logger import Logger, Severity
from tactix.run.weight_schedule import Group
from tactix_codegen.compiling import symbol
from tactix_cuda import device as real
from tactix_cuda.device import CudaDevice
from tactix_cuda.driver import Driver
from tactix_cuda.memory import RecyclingAllocator
from tactix_cuda.nvrtc import why_missing
from tactix_cuda.weight_windows import Passage
from tactix_refit.refitter import Refitter
from tactix_runtime.streaming.engine import StreamedEngine

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())

Built = Any
Here = tuple[CudaDevice, LazyApi]


@pytest.fixture(params=[0, 1])
def here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    api = LazyApi({symbol(RIGHT.code): combine(1)}, order=random.Random(request.param))
    device = CudaDevice(driver=Driver(api))
    monkeypatch.setattr(real, "the_device", lambda: device)
    yield device, api
    assert not api.torn


@pytest.fixture
def built(here: Here) -> Built:
    return s.plan_of()


def test_answers_are_the_same_at_any_budget(built: Built) -> None:
    engine = s.engine_of(*built)
    assert isinstance(engine, StreamedEngine)
    sizes = [-(-4 * n // 64) * 64 for n in s.WIDTHS.values()]
    # packed constants and the weights that they are made of are told apart, but only one of them is
    # read
    assert engine.streamable_weights_size == s.LAYERS * sum(sizes)
    assert engine.minimum_weight_streaming_budget == max(sizes)
    for budget in s.budgets(engine):
        engine.weight_streaming_budget_v2 = budget
        for seed, n in enumerate((3, 40, 3, 0, 40)):
            with engine.create_execution_context() as context:
                s.check_run(context, n, seed)
                s.check_run(context, n + 1, seed + 7)
                s.check_run(context, n, seed + 9)
            del context
        got = engine(**s.feeds(2, 5))
        np.testing.assert_array_equal(got["ab"], s.expected(s.feeds(2, 5))["ab"])


def test_contexts_in_streams_of_their_own(here: Here, built: Built) -> None:
    engine, memory = s.engine_of(*built), RecyclingAllocator(here[0])
    for budget in s.budgets(engine):
        engine.weight_streaming_budget_v2 = budget
        s.check_streams(engine, memory, count=3, rounds=4)


def test_execute_v2_is_over_when_it_returns(here: Here, built: Built) -> None:
    device, _api = here
    engine, memory = s.engine_of(*built), RecyclingAllocator(device)
    engine.weight_streaming_budget_v2 = engine.streamable_weights_size // 3
    placed = s.Placed(engine, memory, 5)
    for seed in range(3):
        f = s.feeds(5, seed)
        for name, x in f.items():
            device.copy_in(placed.address[name], x)
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        assert placed.context.execute_v2([placed.address[name] for name in names])
        placed.want = s.expected(f)
        placed.check()


@pytest.mark.parametrize("which", ["take", "leave"])
def test_the_driver_shows_where_an_order_is_missing(
    which: str, here: Here, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests above would see without the one wait or the other."""
    monkeypatch.setattr(Passage, which, lambda *_: None)
    engine, memory = s.engine_of(*built), RecyclingAllocator(here[0])
    engine.weight_streaming_budget_v2 = 2 * engine.minimum_weight_streaming_budget
    with pytest.raises(AssertionError, match="not equal"):
        s.check_streams(engine, memory, count=2, rounds=30)


def test_device_memory_keeps_to_the_budget(here: Here, built: Built) -> None:
    _device, api = here
    engine = s.engine_of(*built)
    before = api.used
    assert engine.inspect()["memory"]["weights"] == 0
    for budget in (*s.budgets(engine), *s.budgets(engine)[::-1]):
        engine.weight_streaming_budget_v2 = budget
        assert api.used == before
        context = engine.create_execution_context()
        assert budget - s.WIDTHS["x"] * 4 - 128 <= api.used - before <= budget
        assert engine.inspect()["memory"]["weights"] <= api.used - before
        s.check_run(context, 2, budget)
        context.close()
        del context


def test_what_passes_is_copied_once_a_run_and_ahead_of_its_group(here: Here, built: Built) -> None:
    _device, api = here
    engine = s.engine_of(*built)
    low, sizes = engine.minimum_weight_streaming_budget, engine._backing.sizes
    engine.weight_streaming_budget_v2 = budget = 7 * low
    schedule = engine._streamer.schedule
    placed = s.Placed(engine, RecyclingAllocator(engine.device), 2)
    placed.start(0)
    placed.check()
    api.queued.clear()
    placed.start(1)
    own = [kind for stream, kind, _ in api.queued if stream == placed.stream.handle][
        len(s.feeds(2, 1)) :
    ]
    count = len(own) // 3
    assert count >= 6
    assert own == ["wait", "launch", "record"] * count
    passing = sum(n for b, n in sizes.items() if b not in schedule.kept)
    assert passing < sum(sizes.values()) - budget + schedule.window + low
    window = [(kind, n) for stream, kind, n in api.queued if stream != placed.stream.handle]
    copies = [n for kind, n in window if kind == "copy"]
    assert sum(copies) == passing
    assert len(copies) == count  # what a group needs lies together
    launched = came = 0
    for stream, kind, _ in api.queued:
        launched += kind == "launch"
        came += kind == "record" and stream != placed.stream.handle
        # the first ones are there since the last run, and what comes is as far ahead as there are
        # slots
        assert kind != "launch" or came >= min(launched - 1, count - schedule.slots)
    assert schedule.slots == 3
    assert came == count
    placed.check()


class Hasty:
    """An allocator that waits for nothing."""

    key, device = "test.hasty@1", "cuda"

    def __init__(self, device: CudaDevice) -> None:
        self._call = device.driver.call

    def allocate(self, size: int, alignment: int = 64, stream: int = 0) -> int:
        return int(self._call("cuMemAlloc", size))

    def deallocate(self, address: int, stream: int = 0) -> None:
        self._call("cuMemFree", address)


def test_weights_go_back_behind_the_copies(here: Here, built: Built) -> None:
    """With the budget, and with the engine."""
    device, api = here
    gc.collect()
    before = api.used
    for budget in (0.3, 0.5, 1.0):
        engine = s.engine_of(*built, allocator=Hasty(device))
        engine.weight_streaming_budget_v2 = int(budget * engine.streamable_weights_size)
        placed = s.Placed(engine, RecyclingAllocator(engine.device), 2)
        placed.start(0)
        placed.check()
        placed.context.close()
        engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
        assert not api.torn
        engine(**s.feeds(2, 1))
        del engine, placed
        gc.collect()
        assert not api.torn
    assert api.used - before == 3 * sum(
        -(-x.nbytes // 512) * 512 for x in s.arrays(2).values()
    )  # the caller's


def test_more_than_the_device_has_room_for(here: Here, built: Built) -> None:
    _device, api = here
    engine = s.engine_of(*built)
    before, size = api.used, engine.streamable_weights_size
    api.room = before + size - 1
    with pytest.raises(AllocationError, match="device memory"):
        engine(**s.feeds(2, 1))
    engine.weight_streaming_budget_v2 = size // 2
    api.room = (
        before + size // 2 - engine.weight_streaming_scratch_memory_size
    )  # not for the window
    for _ in range(2):
        with pytest.raises(AllocationError, match="device memory"):
            engine(**s.feeds(2, 1))
        assert api.used == before
    api.room = before + size
    engine.weight_streaming_budget_v2 = engine.minimum_weight_streaming_budget
    with engine.create_execution_context() as context:
        s.check_run(context, 2, 1)


def test_budgets_that_cannot_be(built: Built) -> None:
    engine = s.engine_of(*built)
    low = engine.minimum_weight_streaming_budget
    with pytest.raises(InvalidArgument, match=f"a budget of {low - 1} bytes.*a step needs {low}"):
        engine.weight_streaming_budget_v2 = low - 1
    context = engine.create_execution_context()
    with pytest.raises(InvalidArgument, match="contexts are there"):
        engine.weight_streaming_budget_v2 = low
    s.check_run(context, 1, 1)
    with pytest.raises(InvalidArgument, match="cannot be refitted"):
        Refitter(engine)


def test_what_is_told(built: Built) -> None:
    out = io.StringIO()
    engine = s.engine_of(*built, logger=Logger(Severity.INFO, out))
    engine.weight_streaming_budget_v2 = engine.streamable_weights_size // 2
    engine(**s.feeds(2, 1))
    there = engine.inspect()["memory"]["weights"]
    window = engine.weight_streaming_scratch_memory_size
    assert "chains: 0 bytes of weights on cuda" in out.getvalue()
    assert f"bytes of weights pass through {window} on cuda, {there} are there" in out.getvalue()


def test_slots_do_not_overlap(here: Here, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs, and what comes meanwhile, lie beside each other in the window."""
    seen: list[tuple[Group, dict[str, int]]] = []
    places = Passage.places

    def noted(self: Passage, group: Group) -> dict[str, int]:
        seen.append((group, places(self, group)))
        return seen[-1][1]

    monkeypatch.setattr(Passage, "places", noted)
    engine = s.engine_of(*built)
    for budget in s.budgets(engine)[2:-1]:
        engine.weight_streaming_budget_v2 = budget
        seen.clear()
        engine(**s.feeds(2, 1))
        slots, limit = engine._streamer.schedule.slots, engine._streamer.schedule.limit
        assert engine.weight_streaming_scratch_memory_size == slots * limit
        starts = {g.slot: min(p.values()) for g, p in seen if p}
        assert [starts[k] - starts[0] for k in range(slots)] == [k * limit for k in range(slots)]
        assert slots == 2 + (budget >= 6 * engine.minimum_weight_streaming_budget)
        for g, p in seen:
            spans = sorted((a, a + engine._backing.sizes[b]) for b, a in p.items())
            assert all(a >= end for (_, end), (a, _) in pairwise(spans))
            assert not spans or starts[g.slot] <= spans[0][0]
            assert not spans or spans[-1][1] <= starts[g.slot] + limit
