"""Inputs that stand for any, to run once before the first request comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tactix.base.dims import evaluate_shape, show
from tactix.base.errors import AllocationError, InvalidArgument, ShapeError
from tactix.plan.schema import Plan, TensorIO
from tactix.run.arrays import in_order
from tactix.run.shapes import shape_of


def zero_feeds(
    plan: Plan, given: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]]
) -> Iterator[dict[str, Any]]:
    """Zeros, and empty text, at shapes by input name, or at each of several such; without one at
    those that the profiles are tuned for.

    Raises InvalidArgument for a plan whose shapes nobody told, and for inputs that are objects;
    ShapeError, AllocationError.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        what = f"shapes are a {type(given).__name__}"
        raise InvalidArgument(what, do="Give them by input name, as in {'x': (1, 3, 224, 224)}")
    sets = [given] if isinstance(given, Mapping) else list(given)
    for shapes in sets or _tuned(plan):
        ordered = in_order(plan.inputs, (shapes,), {})
        yield {
            io.name: _zeros(io, shape_of(io.name, shape))
            for io, shape in zip(plan.inputs, ordered, strict=True)
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
    if any(n < 0 for n in shape):
        raise ShapeError(f"input {io.name!r} is {show(io.shape)}, got {show(shape)}")
    try:
        return np.full(shape, "", object) if io.dtype.on_host else np.zeros(shape, io.dtype.numpy)
    except (MemoryError, ValueError) as e:  # ValueError: more bytes than addresses
        raise AllocationError(f"no memory for input {io.name!r}", why=str(e)) from None
