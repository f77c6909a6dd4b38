"""What a batcher's batches cost before the first of them comes: each size is bound, and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import product

from tactix.base.dims import evaluate_shape
from tactix.run.engine import Engine
from tactix.run.warm_up import zero_feeds
from tactix_serve.batching import Batcher

Shapes = dict[str, tuple[int, ...]]
TIMED = 3
"""Runs of a size, of which the fastest counts."""


def warm_sizes(engine: Engine, batcher: Batcher) -> None:
    """Run all contexts at each of the sizes that batches are padded to, with each of those of other
    axes, and tell the batcher how long each takes. Does nothing where batches are not padded.
    Raises what running raises.

    Other open axes are as the profiles are tuned. The largest size comes first: memory of contexts
    that grows afterwards would have the others bound again.
    """
    for rows in reversed(batcher.sizes):
        for shapes in _shapes(engine, batcher, rows):
            engine.warm_up(shapes)
            (feeds,) = zero_feeds(engine.plan, shapes)
            took = []
            for _ in range(TIMED):
                start = time.perf_counter()
                engine.run(feeds)
                took.append(time.perf_counter() - start)
            batcher.times.note(rows, min(took))


def _shapes(engine: Engine, batcher: Batcher, rows: int) -> Iterator[Shapes]:
    """Of all inputs, at the sizes that each profile is tuned for but for rows and padded axes."""
    axes = batcher.axes
    for tuned in [p.dims for p in engine.profiles] or [{}]:
        sizes = {symbol: opt for symbol, (_, opt, _) in tuned.items()} | {axes.batch: rows}
        for lengths in product(*(reversed(n) for n in axes.lengths.values())):
            padded = dict(zip(axes.lengths, lengths, strict=True))
            yield {io.name: evaluate_shape(io.shape, sizes | padded) for io in axes.inputs}


def shapes_of(batcher: Batcher) -> int:
    """How many a context runs at where batches are padded; where they are not, at most."""
    rows = len(batcher.sizes) or batcher.max_batch
    return rows * math.prod(map(len, batcher.axes.lengths.values()))
