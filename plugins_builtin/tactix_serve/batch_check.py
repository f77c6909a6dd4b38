"""Whether a network gives each row of a batch what it gives the row alone."""

from __future__ import annotations

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dims import evaluate_shape
from tactix.base.dtypes import DType
from tactix.plan.schema import TensorIO
from tactix.run.engine import Engine
from tactix_serve.batch_axis import BatchAxes, BatchRefused

BITS = {DType.FP64: 23, DType.FP32: 13, DType.FP16: 6, DType.BF16: 4}
"""Of a mantissa, that must be the same relative to the largest magnitude: about half of those that
the dtype has, as sums run in another order where there are more rows.
"""
UNTUNED = 4
"""Size of open axes that no profile tells."""
SEED = 1


def check_rows(engine: Engine, axes: BatchAxes) -> None:
    """Run two rows alone and together. Raises BatchRefused where they differ by more than rounding,
    as where a network takes means over rows; TactixError where the engine cannot run them.
    """
    one, other = (_sample(engine, axes, seed) for seed in (SEED, SEED + 1))
    alone = [engine.run(feeds) for feeds in (one, other)]
    joined = axes.apart(engine.run(axes.together([one, other])), [one, other])
    for io in axes.outputs:
        for a, b in zip(alone, joined, strict=True):
            if not _agree(io, a[io.name], b[io.name]):
                raise BatchRefused(
                    f"output {io.name!r} of a row is another one beside other rows",
                    who=engine.name,
                    why="the network computes something over its first axis",
                    do="Serve it without batching",
                )


def _sample(engine: Engine, axes: BatchAxes, seed: int) -> dict[str, Array]:
    """One row: floats from 0 to 1, and zeros and ones."""
    dims = engine.profiles[0].dims if engine.profiles else {}
    env = {s: opt for s, (_, opt, _) in dims.items()}
    names = {s for s in engine.plan.symbols if s not in env}
    env |= dict.fromkeys(names, UNTUNED) | {axes.batch: 1}
    rng = np.random.default_rng(seed)
    return {io.name: _random(io, evaluate_shape(io.shape, env), rng) for io in axes.inputs}


def _random(io: TensorIO, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if io.dtype is DType.STRING:
        return np.full(shape, "", object)
    drawn = rng.random(shape) if io.dtype.is_float else rng.integers(0, 2, shape)
    return drawn.astype(io.dtype.numpy)


def _agree(io: TensorIO, a: Array, b: Array) -> bool:
    if io.dtype not in BITS or not a.size:
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    scale = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
    return bool(np.allclose(x, y, rtol=0, atol=scale * 2.0 ** -BITS[io.dtype], equal_nan=True))
