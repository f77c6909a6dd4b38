"""Requests that coroutines wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tactix.base.errors import DeadlineExceeded, InvalidArgument, QueueFull
from tactix.run.request_stats import RequestLog, RequestOutcome

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tactix.base.arrays import Array
    from tactix.run.request_pool import RequestPool


async def answered(
    pool: RequestPool,
    log: RequestLog,
    inputs: Mapping[str, ArrayLike],
    timeout: float | None,
    wait: bool,
) -> dict[str, Array]:
    """As ``Engine.run_async``."""
    _check(inputs, timeout)
    log.came()
    start, outcome = time.perf_counter(), RequestOutcome.FAILED
    try:
        results = await _in_time(pool, inputs, timeout, wait)
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
        log.ended(outcome, time.perf_counter() - start)
    return results


def _check(inputs: Mapping[str, ArrayLike], timeout: float | None) -> None:
    if not isinstance(inputs, Mapping):
        what = f"inputs are a {type(inputs).__name__}"
        raise InvalidArgument(what, do="Give arrays by input name")
    if timeout is None:
        return
    if not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidArgument(f"a timeout of {timeout!r}", do="Give seconds, or None")


async def _in_time(
    pool: RequestPool, inputs: Mapping[str, ArrayLike], timeout: float | None, wait: bool
) -> dict[str, Array]:
    request = pool.submit(inputs, wait)
    try:
        async with asyncio.timeout(timeout) as limit:
            return await asyncio.wrap_future(request.answer)
    except TimeoutError:
        if not limit.expired():  # the run itself raised it
            raise
    raise DeadlineExceeded(
        f"no answer within {timeout:g} s",
        who=pool.name,
        do="Give it more time, or more contexts: engine.set_pool",
    )
