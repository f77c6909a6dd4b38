"""What happens to an engine under refit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Infer = Callable[[threading.Event], None]


@contextlib.contextmanager
def inferring(infer: Infer, threads: int = 3) -> Iterator[None]:
    """Threads infer meanwhile, until their event is set; raises what they raise."""
    stop, failed = threading.Event(), list[BaseException]()

    def guarded() -> None:
        try:
            infer(stop)
        except BaseException as e:
            failed.append(e)

    pool = [threading.Thread(target=guarded) for _ in range(threads)]
    for t in pool:
        t.start()
    try:
        yield
    finally:
        stop.set()
        for t in pool:
            t.join()
    if failed:
        raise failed[0]


def one_of(engine: Any, x: Any, allowed: Sequence[float], more: Any = 0) -> Infer:
    """Runs whose output y has one number ``more`` everywhere, one of those: never of some old
    weights and some new.
    """

    def infer(stop: threading.Event) -> None:
        context = engine.create_execution_context()
        while not stop.is_set():
            found = set(np.round(np.unique(context.run({"x": x})["y"] - more), 3).tolist())
            assert len(found) == 1, found
            assert found <= set(allowed), found

    return infer


def refitted_apart(engine: Any, refitter: Any, times: int) -> None:
    """``engine``: of ``chain`` with three layers, one of which, by chance, gets random weights each
    time.
    """
    rng, x = np.random.default_rng(2), np.random.default_rng(1).standard_normal((2, 64), np.float32)
    own = {f"w{i}": np.full((64, 64), 1 / 64, np.float32) for i in range(3)}
    for _ in range(times):
        name = f"w{rng.integers(3)}"
        own[name] = rng.random((64, 64), np.float32) / 32
        refitter.set_named_weights(name, own[name])
        refitter.refit()
        want = x
        for w in own.values():
            want = np.maximum(want @ w, 0)
        np.testing.assert_allclose(engine(x), want, rtol=1e-4, atol=1e-5)
