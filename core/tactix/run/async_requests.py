"""Requests that coroutines wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tactix.base.errors import DeadlineExceeded, InvalidArgument, QueueFull
from tactix.run.arrays import check_named
from tactix.run.request_stats import RequestLog, RequestOutcome
from tactix.run.run_times import LONG

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tactix.base.arrays import Array
    from tactix.run.request_pool import AwaitedRequest, RequestPool


async def answered(
    pool: RequestPool,
    log: RequestLog,
    inputs: Mapping[str, ArrayLike],
    timeout: float | None,
    wait: bool,
    outputs: Collection[str] | None,
    home: int | None = None,
) -> dict[str, Array]:
    """As ``Engine.run_async``. ``home``: the replica that it must run on."""
    check_named(inputs)
    check_timeout(timeout)
    log.came()
    start, outcome, waited, ran = time.perf_counter(), RequestOutcome.FAILED, 0.0, 0.0
    try:
        # an early deadline is the queue's, where a request can be late
        here = home is None and (timeout is None or timeout > LONG)
        results = pool.run_here(inputs, outputs) if here else None
        if results is None:
            request = pool.submit(inputs, outputs, wait, home)
            results = await _in_time(pool, request, timeout)
            waited, ran = request.began - start, request.seconds
        else:
            ran = time.perf_counter() - start
            if pool.held > LONG:
                pool.held = 0.0
                await asyncio.sleep(0)
        outcome = RequestOutcome.ANSWERED
    except QueueFull:
        outcome = RequestOutcome.REFUSED
        raise
    except DeadlineExceeded:
        outcome = RequestOutcome.EXPIRED
        raise
    except asyncio.CancelledError:
        outcome = RequestOutcome.CANCELLED
        raise
    finally:
        log.ended(outcome, time.perf_counter() - start, waited, ran)
    return results


def check_timeout(timeout: float | None) -> None:
    """Raises InvalidArgument for what are no seconds."""
    if timeout is None:
        return
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidArgument(f"a timeout of {timeout!r}", do="Give seconds, or None")


async def _in_time(
    pool: RequestPool, request: AwaitedRequest, timeout: float | None
) -> dict[str, Array]:
    """Cancelled or late, it is taken out of the queue if it waits still."""
    if timeout is None:
        late = None
    else:
        late = asyncio.get_running_loop().call_later(timeout, _expire, request, timeout, pool.name)
    ended = False
    try:
        results = await request.answer
        ended = True
        return results
    finally:
        if late is not None:
            late.cancel()
        if not ended:
            pool.queue.forget(request)


def _expire(request: AwaitedRequest, timeout: float, who: str) -> None:
    if not request.answer.done():
        request.answer.set_exception(
            DeadlineExceeded(
                f"no answer within {timeout:g} s",
                who=who,
                do="Give it more time, or more contexts: engine.set_pool",
            )
        )
