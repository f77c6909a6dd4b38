"""Dynamic batching: what goes together, when, what each gets back, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import (
    DeadlineExceeded,
    DTypeError,
    EngineClosed,
    InvalidArgument,
    QueueFull,
    ShapeError,
)
from tactix.plan.schema import TensorIO
from tactix.run.engine import Engine
from tactix_serve.batch_axis import BatchAxes, BatchRefused, batch_axes
from tactix_serve.batch_check import check_rows
from tactix_serve.batching import Batcher, BatchOptions, Crowd

FAR = 60.0
"""Seconds: a window that ends in no test."""


def in_loop(work: Coroutine[Any, Any, Any]) -> Any:
    async def within_a_minute() -> Any:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(within_a_minute())


def x_of(rows: int, seed: int = 0) -> dict[str, Any]:
    drawn = np.random.default_rng(seed).standard_normal((rows, 4), dtype=np.float32)
    return {"x": drawn}


@pytest.fixture
def lengths(plans: Any) -> Iterator[Engine]:
    with tactix.load(plans.path("lengths"), max_threads=1) as engine:
        engine.set_pool(contexts=1)
        yield engine


def test_requests_go_together_and_each_gets_its_own(
    engine: Engine, expected: Callable[..., Any]
) -> None:
    rows = [1, 3, 2, 0, 1]

    async def work() -> Any:
        batcher = Batcher(engine, BatchOptions(max_batch=7, window=FAR))
        asked = [batcher.infer(x_of(n, seed)) for seed, n in enumerate(rows)]
        return await asyncio.gather(*asked), batcher.stats()

    answers, stats = in_loop(work())
    for seed, (n, answer) in enumerate(zip(rows, answers, strict=True)):
        assert answer["y"].shape == (n, 3)
        np.testing.assert_allclose(answer["y"], expected(x_of(n, seed)["x"]), rtol=1e-5)
        alone = engine(x_of(n, seed)["x"])
        np.testing.assert_allclose(answer["y"], alone, rtol=1e-6, atol=1e-6)
    assert (stats.batches, stats.requests, stats.rows) == (1, 5, 7)


def test_a_batch_is_never_larger_than_the_maximum(engine: Engine) -> None:
    async def work() -> Any:
        batcher = Batcher(engine, BatchOptions(max_batch=4, window=0.001))
        await asyncio.gather(*(batcher.infer(x_of(3, i)) for i in range(4)))
        assert (await batcher.infer(x_of(9)))["y"].shape == (9, 3)  # alone, as it is
        return batcher.stats()

    assert in_loop(work()).batches == 5


def test_the_window_ends(engine: Engine) -> None:
    async def work() -> Any:
        batcher = Batcher(engine, BatchOptions(max_batch=100, window=0.01))
        return await batcher.infer(x_of(2)), batcher.stats()

    answer, stats = in_loop(work())
    assert answer["y"].shape == (2, 3)
    assert stats.batches == 1


def test_a_target_ends_the_window(engine: Engine) -> None:
    async def work() -> Any:
        options = BatchOptions(max_batch=100, window=FAR, target=0.01)
        return await Batcher(engine, options).infer(x_of(2))

    assert in_loop(work())["y"].shape == (2, 3)


def test_one_alone_waits_once(engine: Engine) -> None:
    async def work() -> None:
        batcher = Batcher(engine, BatchOptions(max_batch=100, window=0.05))
        await batcher.infer(x_of(2))  # whose window ends without others
        alone = asyncio.create_task(batcher.infer(x_of(1)))
        for _ in range(2):  # it asks, and what was asked in that turn goes
            await asyncio.sleep(0)
        assert batcher.stats().queued == 0
        other = asyncio.create_task(batcher.infer(x_of(1)))
        await asyncio.gather(alone, other)
        together = [batcher.infer(x_of(1)) for _ in range(2)]
        await asyncio.gather(*together)
        assert batcher.stats().requests == 5

    in_loop(work())


def test_who_is_expected() -> None:
    crowd = Crowd()
    crowd.came()
    assert not crowd.all_wait(1)  # nothing is known yet
    crowd.window_ended()
    assert crowd.all_wait(1)
    crowd.came()
    assert not crowd.all_wait(1)
    assert crowd.all_wait(2)
    crowd.left()
    assert not crowd.all_wait(1)  # it may ask again
    crowd.window_ended()
    assert crowd.all_wait(1)


def test_padded_lengths_are_cut_back(lengths: Engine) -> None:
    sizes = [3, 1, 5]
    xs = [np.arange(n, dtype=np.int64).reshape(1, n) + 1 for n in sizes]

    async def work() -> Any:
        options = BatchOptions(max_batch=3, window=FAR, pad={"x": {1: 0}})
        batcher = Batcher(lengths, options)
        return await asyncio.gather(*(batcher.infer({"x": x}) for x in xs)), batcher.stats()

    answers, stats = in_loop(work())
    assert stats.batches == 1
    assert all(np.array_equal(a["y"], x * 2) for a, x in zip(answers, xs, strict=True))


def test_no_rows_are_padded_too(lengths: Engine) -> None:
    async def work() -> Any:
        options = BatchOptions(max_batch=4, pad={"x": {1: 0}}, pad_sizes={"x": {1: [4, 8]}})
        return await Batcher(lengths, options).infer({"x": np.ones((0, 3), np.int64)})

    assert in_loop(work())["y"].shape == (0, 3)


def test_outputs_that_nobody_asked_for_are_not_cut(lengths: Engine) -> None:
    axes = batch_axes(lengths.plan, {"x": {1: 0}})
    feeds = [{"x": np.ones((1, n), np.int64)} for n in (2, 3)]
    assert axes.apart({}, feeds) == [{}, {}]


def test_without_padding_other_shapes_go_apart(lengths: Engine) -> None:
    async def work() -> Any:
        batcher = Batcher(lengths, BatchOptions(max_batch=2, window=0.01))
        xs = [np.ones((1, n), np.int64) for n in (2, 3, 2, 3)]
        answers = await asyncio.gather(*(batcher.infer({"x": x}) for x in xs))
        assert [a["y"].shape for a in answers] == [x.shape for x in xs]
        return batcher.stats()

    assert in_loop(work()).batches == 2


def test_cancelled_and_late_requests_never_run(engine: Engine) -> None:
    async def work() -> Any:
        batcher = Batcher(engine, BatchOptions(max_batch=2, window=FAR))
        cancelled = asyncio.create_task(batcher.infer(x_of(1)))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(DeadlineExceeded):
            await batcher.infer(x_of(1), timeout=0.01)
        assert batcher.stats().queued == 0
        await asyncio.gather(batcher.infer(x_of(1)), batcher.infer(x_of(1)))
        return batcher.stats()

    assert in_loop(work()).rows == 2


def test_a_full_queue_and_a_closed_batcher(engine: Engine) -> None:
    async def work() -> None:
        batcher = Batcher(engine, BatchOptions(max_batch=9, window=FAR, max_queue=2))
        waiting = [asyncio.create_task(batcher.infer(x_of(1))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="2 requests wait already"):
            await batcher.infer(x_of(1))
        await batcher.close()  # what waits runs, though its window has not ended
        assert len(await asyncio.gather(*waiting)) == 2
        with pytest.raises(EngineClosed):
            await batcher.infer(x_of(1))

    in_loop(work())


def test_inputs_that_disagree_are_told_of_what() -> None:
    shape = (sym("n"), sym("m"))
    axes = BatchAxes(tuple(TensorIO(x, 0, DType.FP32, shape) for x in "ab"), (), "n", 1, None)
    with pytest.raises(ShapeError, match=r"'b' is \(n, m\), got \(1, 3\): n is 2"):
        axes.checked({"a": np.zeros((2, 3), np.float32), "b": np.zeros((1, 3), np.float32)})


@pytest.mark.parametrize(
    ("feeds", "error"),
    [
        ({}, InvalidArgument),
        ({"z": np.zeros((1, 4), np.float32)}, InvalidArgument),
        ({"x": np.zeros((1, 4))}, DTypeError),
        ({"x": [[0.0] * 4]}, DTypeError),
        ({"x": np.zeros((1, 5), np.float32)}, ShapeError),
        ({"x": np.zeros(4, np.float32)}, ShapeError),
    ],
)
def test_a_wrong_request_fails_alone(engine: Engine, feeds: Any, error: type[Exception]) -> None:
    async def work() -> Any:
        batcher = Batcher(engine, BatchOptions(max_batch=1))
        with pytest.raises(error):
            await batcher.infer(feeds)
        return await batcher.infer(x_of(1))

    assert in_loop(work())["y"].shape == (1, 3)


@pytest.mark.parametrize(
    "wrong",
    [{"outputs": ["z"]}, {"outputs": "y"}, {"outputs": 3}, {"timeout": "1"}, {"timeout": -1}],
)
def test_what_is_asked_wrongly_joins_no_batch(engine: Engine, wrong: Any) -> None:
    """Not even one whose other requests ask for all outputs."""

    async def work() -> int:
        batcher = Batcher(engine, BatchOptions(max_batch=2, window=FAR))
        right = asyncio.ensure_future(batcher.infer(x_of(1)))
        await asyncio.sleep(0)
        with pytest.raises(InvalidArgument):
            await batcher.infer(x_of(1), **wrong)
        with pytest.raises(InvalidArgument, match="inputs are a list"):
            await batcher.infer([x_of(1)])  # type: ignore[arg-type]
        await asyncio.gather(right, batcher.infer(x_of(1)))
        return batcher.stats().requests

    assert in_loop(work()) == 2


def test_networks_that_cannot_be_batched(plans: Any) -> None:
    with (
        tactix.load(plans.path("fixed")) as fixed,
        pytest.raises(BatchRefused, match="'x' has no open first axis"),
    ):
        Batcher(fixed)
    with tactix.load(plans.path("lengths")) as lengths:
        for pads, why in (
            ({"x": {0: 0}}, "axis 0 of 'x' is that of rows"),
            ({"x": {2: 0}}, "axis 2 of 'x' is not open"),
            ({"z": {1: 0}}, "no input is named 'z'"),
            ({"x": {1: 0.5}}, "0.5 is no i64"),
            ({"x": {1: 1e30}}, "1e.30 is no i64"),
        ):
            with pytest.raises(BatchRefused, match=why):
                batch_axes(lengths.plan, pads)
    for options in (
        {"window": -1.0},
        {"target": float("inf")},
        {"max_queue": 0},
        {"max_batch": "8"},
    ):
        with pytest.raises(InvalidArgument):
            BatchOptions(**options)  # type: ignore[arg-type]


def test_a_network_that_mixes_rows_is_found(plans: Any, engine: Engine, lengths: Engine) -> None:
    check_rows(engine, batch_axes(engine.plan))
    check_rows(lengths, batch_axes(lengths.plan, {"x": {1: 0}}))
    with tactix.load(plans.path("centred")) as centred:
        axes = batch_axes(centred.plan)
        with pytest.raises(BatchRefused, match="another one beside other rows"):
            check_rows(centred, axes)
