"""Rows that batches are padded to: which, for how long, and that the padding reaches no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import ConfigError, InvalidArgument
from tactix.run.engine import Engine
from tactix_serve.batch_axis import BatchRefused, batch_axes
from tactix_serve.batch_sizes import RETRY, BatchTimes, ladder, padded_to
from tactix_serve.batch_warm_up import shapes_of, warm_sizes
from tactix_serve.batching import Batcher, BatchOptions
from tactix_serve.config import read_config

FAR = 60.0
"""Seconds: a window that ends in no test."""


def x_of(rows: int, seed: int = 0) -> dict[str, Any]:
    drawn = np.random.default_rng(seed).standard_normal((rows, 4), dtype=np.float32)
    return {"x": drawn}


@pytest.fixture
def ran(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each batch that runs."""
    rows, run = list[int](), engine.run_async

    async def noted(feeds: Any, **more: Any) -> Any:
        rows.append(len(feeds["x"]))
        return await run(feeds, **more)

    monkeypatch.setattr(engine, "run_async", noted)
    return rows


def test_the_ladder() -> None:
    assert ladder(1, 64) == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    assert ladder(1, 1) == (1,)
    assert ladder(3, 20) == (3, 4, 6, 8, 12, 16, 20)
    assert ladder(5, 5) == (5,)


def test_what_rows_are_padded_to() -> None:
    assert [padded_to((1, 4, 8), n) for n in (0, 1, 2, 4, 5, 8, 9)] == [0, 1, 4, 4, 8, 8, 9]
    assert padded_to((), 5) == 5


def test_times_between_and_beyond_sizes() -> None:
    times = BatchTimes()
    assert times.estimate(3) == 0
    times.note(4, 1.0)
    assert [times.estimate(n) for n in (1, 4, 9)] == [1.0] * 3
    times.note(8, 2.0)
    assert [times.estimate(n) for n in (4, 5, 8, 20)] == [1.0, 1.25, 2.0, 2.0]
    times.note(6, 50.0)  # it was held up: eight rows take less
    assert times.estimate(6) == 2.0
    times.note(8, 1000.0)
    assert times.estimate(8) == pytest.approx(2.4)


def test_times_of_padded_sizes() -> None:
    times = BatchTimes((4, 8))
    times.note(4, 1.0)
    times.note(8, 2.0)
    assert [times.estimate(n) for n in (1, 4, 5, 8)] == [1.0, 1.0, 2.0, 2.0]
    assert times.in_time(7, 3.0, 0.0) == 7
    assert times.in_time(7, 1.5, 0.0) == 7  # once, after which the truth is known again
    times.note(8, 2.0)
    assert times.in_time(7, 1.5, 0.1) == 4
    assert times.in_time(3, 0.5, 0.1) == 3  # fewer would be late as well


def test_a_slow_first_run_does_not_keep_batches_small() -> None:
    """As it did: one row at a time for ever, as the first batch of two had bound its shapes."""
    times, now = BatchTimes(), RETRY
    times.note(1, 0.001)
    times.note(2, 0.1)
    assert times.in_time(64, 0.02, now) == 64
    times.note(2, 0.1)  # again, while larger ones are not known
    assert times.in_time(64, 0.02, now) == 1
    now += RETRY
    assert times.in_time(64, 0.02, now) == 64
    times.note(64, 0.005)
    assert times.in_time(64, 0.02, now) == 64
    assert times.estimate(2) < 0.005


@pytest.mark.parametrize("rows", [[1], [3], [1, 1, 1], [2, 3], [5, 1, 2], [4, 0, 1], [0], [1, 8]])
def test_padding_reaches_no_answer(
    engine: Engine, ran: list[int], rows: list[int], expected: Callable[..., Any]
) -> None:
    async def work() -> Any:
        batcher = Batcher(engine, BatchOptions(max_batch=9, window=0.001, sizes=[2, 4, 8]))
        asked = [batcher.infer(x_of(n, seed)) for seed, n in enumerate(rows)]
        return await asyncio.gather(*asked), batcher.stats()

    answers, stats = asyncio.run(work())
    for seed, (n, answer) in enumerate(zip(rows, answers, strict=True)):
        assert answer["y"].shape == (n, 3)
        np.testing.assert_allclose(answer["y"], expected(x_of(n, seed)["x"]), rtol=1e-5)
    want = padded_to((2, 4, 8, 9), sum(rows))
    assert ran == [want]
    assert stats.sizes == {want: 1}
    assert (stats.rows, stats.padding) == (sum(rows), want - sum(rows))


def test_padded_rows_beside_padded_lengths(plans: Any) -> None:
    xs = [np.arange(n, dtype=np.int64).reshape(1, n) + 1 for n in (3, 1, 5)]

    async def work() -> Any:
        with tactix.load(plans.path("lengths"), max_threads=1) as engine:
            options = BatchOptions(max_batch=3, window=FAR, pad={"x": {1: 0}}, sizes=[8])
            batcher = Batcher(engine, options)
            assert batcher.sizes == [3]  # no larger than a batch may be
            options = BatchOptions(max_batch=8, window=0.001, pad={"x": {1: 0}}, sizes=[8])
            batcher = Batcher(engine, options)
            return await asyncio.gather(*(batcher.infer({"x": x}) for x in xs)), batcher.stats()

    answers, stats = asyncio.run(work())
    assert stats.sizes == {8: 1}
    assert all(np.array_equal(a["y"], x * 2) for a, x in zip(answers, xs, strict=True))


def test_lengths_are_padded_to_sizes(plans: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer one than any stays as it is; one alone is padded and cut back, too."""
    ran = list[tuple[int, ...]]()

    async def work() -> Any:
        with tactix.load(plans.path("lengths"), max_threads=1) as engine:
            run = engine.run_async

            async def noted(feeds: Any, **more: Any) -> Any:
                ran.append(feeds["x"].shape)
                return await run(feeds, **more)

            monkeypatch.setattr(engine, "run_async", noted)
            sizes = {"pad": {"x": {1: 0}}, "pad_sizes": {"x": {1: [8, 4]}}, "sizes": [4]}
            batcher = Batcher(engine, BatchOptions(max_batch=4, window=0.001, **sizes))
            assert shapes_of(batcher) == 2
            out = []
            for lengths in ((3, 1), (2,), (5, 3, 1, 8), (9,)):
                xs = [np.arange(n, dtype=np.int64).reshape(1, n) + 1 for n in lengths]
                out.append((xs, await asyncio.gather(*(batcher.infer({"x": x}) for x in xs))))
            return out

    for xs, answers in asyncio.run(work()):
        assert all(np.array_equal(a["y"], x * 2) for a, x in zip(answers, xs, strict=True))
    assert ran == [(4, 4), (4, 4), (4, 8), (4, 9)]


def test_sizes_of_what_nothing_pads(plans: Any) -> None:
    with tactix.load(plans.path("lengths"), max_threads=1) as engine:
        for where in ({"x": {0: [4]}}, {"x": {1: [4]}}, {"z": {1: [4]}}):
            with pytest.raises(BatchRefused, match="nothing pads axis"):
                batch_axes(engine.plan, {}, where)
    with pytest.raises(InvalidArgument, match="nothing is padded to"):
        BatchOptions(pad_sizes={"x": {1: [0]}})


def test_the_last_row_is_what_pads(engine: Engine) -> None:
    one, other = x_of(2, 1), x_of(1, 2)
    made = batch_axes(engine.plan).together([one, other], 6)["x"]
    np.testing.assert_array_equal(made, np.concatenate([one["x"], *[other["x"]] * 4]))


def test_one_of_a_batch_is_cancelled_while_it_runs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, expected: Callable[..., Any]
) -> None:
    async def work() -> Any:
        begun, go, run = asyncio.Event(), asyncio.Event(), engine.run_async

        async def held(feeds: Any, **more: Any) -> Any:
            begun.set()
            await go.wait()
            return await run(feeds, **more)

        monkeypatch.setattr(engine, "run_async", held)
        batcher = Batcher(engine, BatchOptions(max_batch=3, window=FAR, sizes=[4, 3]))
        asked = [asyncio.create_task(batcher.infer(x_of(1, seed))) for seed in range(3)]
        await begun.wait()
        asked[1].cancel()
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    first, second, third = asyncio.run(work())
    assert isinstance(second, asyncio.CancelledError)
    for seed, answer in ((0, first), (2, third)):
        np.testing.assert_allclose(answer["y"], expected(x_of(1, seed)["x"]), rtol=1e-5)


def test_a_host_runs_batches_as_they_are(engine: Engine, ran: list[int]) -> None:
    async def work() -> Any:
        batcher = Batcher(engine, BatchOptions(max_batch=8, window=0.001))
        assert not batcher.sizes
        await asyncio.gather(*(batcher.infer(x_of(1)) for _ in range(5)))
        return batcher.stats()

    assert asyncio.run(work()).padding == 0
    assert ran == [5]


def test_sizes_are_timed_before_the_first_batch(engine: Engine) -> None:
    batcher = Batcher(engine, BatchOptions(max_batch=4, sizes=[1, 2]))
    warm_sizes(engine, batcher)
    assert batcher.sizes == [1, 2, 4]
    assert 0 < batcher.times.estimate(1) <= batcher.times.estimate(4)


def test_sizes_in_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for text, sizes in (("sizes = [4, 8]", [4, 8]), ("sizes = []", []), ("", None)):
        path.write_text(f"[batching]\nmax_batch = 8\n{text}\n")
        batching = read_config(tmp_path).batching
        assert batching is not None
        assert batching.sizes == sizes
    for wrong in ("0", "[0]", "[true]", '["a"]', "8"):
        path.write_text(f"[batching]\nsizes = {wrong}\n")
        with pytest.raises(ConfigError):
            read_config(tmp_path)
    path.write_text("[batching]\npad.x = { axis = 1, sizes = [4, 8] }\n")
    batching = read_config(tmp_path).batching
    assert batching is not None
    assert (batching.pad, batching.pad_sizes) == ({"x": {1: 0}}, {"x": {1: [4, 8]}})
    path.write_text("[batching]\npad.x = { axis = 1, sizes = 4 }\n")
    with pytest.raises(ConfigError, match="sizes is 4"):
        read_config(tmp_path)
    with pytest.raises(InvalidArgument, match="nothing is padded to"):
        BatchOptions(sizes=[-1])
