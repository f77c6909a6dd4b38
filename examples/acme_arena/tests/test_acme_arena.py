"""The pack's own test: needs tactix and the pack installed."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import numpy as np
import pytest
from acme_arena import Pool
from acme_arena.pool import GRAIN

import tactix
from tactix_cpu.allocator import ArenaAllocator
from tactix_sdk import errors
from tactix_sdk.testing import PackTests


class TestPack(PackTests):
    pack = "acme-arena"


@pytest.fixture(scope="module")
def plan() -> Any:
    """Two products with 512 KiB between them at a batch of 256."""
    builder = tactix.Builder()
    network = builder.create_network("deep")
    rng = np.random.default_rng(2)
    y = network.add_input("x", "f32", ("n", 16))
    for k, n in ((16, 512), (512, 16)):
        (y,) = network.add_layer(
            "tactix.MatMul", [y, network.add_constant(rng.standard_normal((k, n), "f"))]
        )
    network.mark_output(y, "y")
    return builder.build_plan(
        network, tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    )


def run(plan: Any, allocator: Any, n: int = 256) -> Any:
    return (
        tactix.Runtime(allocator=allocator)
        .load(plan)
        .create_execution_context()
        .run({"x": np.ones((n, 16), "f")})
    )


def test_a_plan_runs_in_it_and_the_next_takes_the_same_memory(plan: Any) -> None:
    pool = Pool()
    want = run(plan, "")["y"]
    for turn in range(3):
        np.testing.assert_array_equal(run(plan, pool)["y"], want)
        gc.collect()
        assert pool.used == 0
        assert pool.kept == pool.peak >= 256 * 512 * 4
        assert (pool.reused > 0) == (turn > 0)
    pool.trim()
    assert pool.kept == 0


def test_the_limit_holds_and_says_so(plan: Any) -> None:
    context = tactix.Runtime(allocator=Pool(limit=4 * GRAIN)).load(plan).create_execution_context()
    small = context.run({"x": np.ones((32, 16), "f")})["y"]
    with pytest.raises(errors.AllocationError, match=f"of {4 * GRAIN} are in use") as caught:
        context.run({"x": np.ones((256, 16), "f")})
    assert "raise the limit" in str(caught.value)
    np.testing.assert_array_equal(context.run({"x": np.ones((32, 16), "f")})["y"], small)


def test_what_lies_ready_does_not_stand_against_the_limit() -> None:
    pool = Pool(limit=4 * GRAIN)
    pool.deallocate(pool.allocate(3 * GRAIN))
    pool.allocate(2 * GRAIN)
    assert (pool.used, pool.kept) == (2 * GRAIN, 0)


def test_pieces_that_come_back_while_others_go_to_the_source() -> None:
    class Source(ArenaAllocator):
        def deallocate(self, address: int, stream: int = 0) -> None:
            super().deallocate(address, stream)
            if spare:  # as the garbage collector may
                pool.deallocate(spare.pop())

    pool = Pool(source=Source())
    spare = [pool.allocate(n * GRAIN) for n in (1, 2, 1)]
    pool.deallocate(pool.allocate(GRAIN))
    pool.trim()
    assert (spare, pool.used, pool.kept) == ([], 0, 0)


def test_by_key_and_only_if_asked_for(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_ARENA_LIMIT", str(4 * GRAIN))
    assert run(plan, "")["y"].shape == (256, 16)
    with pytest.raises(errors.AllocationError, match=r"acme_arena\.pool"):
        run(plan, "acme_arena.pool")


@pytest.mark.parametrize("alignment", [64, 4096])
def test_pieces_are_aligned_apart_and_from_several_threads(alignment: int) -> None:
    pool, held = Pool(), list[int]()

    def work(value: int) -> None:
        mine = [pool.allocate(1000 + 70000 * i, alignment) for i in range(4)]
        for i, address in enumerate(mine):
            ctypes.memset(address, value, 1000 + 70000 * i)
        assert all(ctypes.string_at(a, 1000) == bytes([value]) * 1000 for a in mine)
        held.extend(mine)

    threads = [threading.Thread(target=work, args=(v,)) for v in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(held)) == 32
    assert all(a % alignment == 0 for a in held)
    for a in held:
        pool.deallocate(a)
    with pytest.raises(errors.InvalidArgument, match="not in use"):
        pool.deallocate(held[0])
