"""Inputs that stand for any, to run once before the first request comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tactix.base.dims import evaluate_shape
from tactix.base.errors import InvalidArgument
from tactix.plan.schema import Plan, TensorIO
from tactix.run.arrays import in_order
from tactix.run.shapes import shape_of


def zero_feeds(plan: Plan, sets: Sequence[Mapping[str, Sequence[int]]]) -> Iterator[dict[str, Any]]:
    """Zeros, and empty text, at each set of shapes; without one at those that the profiles are
    tuned for.

    Raises InvalidArgument for a plan whose shapes nobody told, and for inputs that are objects.
    """
    for shapes in sets or _tuned(plan):
        given = in_order(plan.inputs, (shapes,), {})
        yield {
            io.name: _zeros(io, shape_of(io.name, shape))
            for io, shape in zip(plan.inputs, given, strict=True)
        }


def _tuned(plan: Plan) -> list[dict[str, tuple[int, ...]]]:
    sizes = [{s: opt for s, (_, opt, _) in p.dims.items()} for p in plan.profiles] or [{}]
    open_symbols = sorted(plan.symbols - {s for env in sizes for s in env})
    asked = frozenset().union(*(_symbols_of(io) for io in plan.inputs))
    if missing := [s for s in open_symbols if s in asked]:
        what = f"no profile tells {', '.join(missing)}"
        do = "Give shapes by input name, as in {'x': (1, 3, 224, 224)}"
        raise InvalidArgument(what, who=plan.name, do=do)
    return [{io.name: evaluate_shape(io.shape, env) for io in plan.inputs} for env in sizes]


def _symbols_of(io: TensorIO) -> frozenset[str]:
    """All that its shape names."""
    from tactix.base.dims import symbols

    return frozenset().union(*(symbols(d) for d in io.shape))


def _zeros(io: TensorIO, shape: tuple[int, ...]) -> Any:
    import numpy as np

    if io.dtype.has_element:
        what = f"input {io.name!r} is {io.dtype.value}, of which there are no zeros"
        raise InvalidArgument(what, do="Run the engine on an example instead")
    return np.full(shape, "", object) if io.dtype.on_host else np.zeros(shape, io.dtype.numpy)
