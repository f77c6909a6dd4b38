"""Symbols of input shapes: the quick way says what the slow one says, errors among it."""

from __future__ import annotations

import itertools

from tactix.base.dims import Dim, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.plan.schema import Profile, TensorIO
from tactix.run.shapes import Shapes, Solver, solve

N, M = sym("n"), sym("m; import os")
"""Names come from files: anything may stand in them."""


def _inputs(*shapes: tuple[Dim, ...]) -> list[TensorIO]:
    return [TensorIO(f"x{i}", i, DType.FP32, shape) for i, shape in enumerate(shapes)]


def _told(solver: Solver, shapes: Shapes, profiles: list[Profile], given: dict[str, int]) -> object:
    try:
        return solver.solve(shapes, profiles, given)
    except ShapeError as e:
        return str(e)


def _agree(inputs: list[TensorIO], profiles: list[Profile], given: dict[str, int]) -> None:
    """At all small shapes, ranks that are wrong among them."""
    quick = Solver(inputs)
    sizes = [range(4)] * len([d for io in inputs for d in io.shape])
    for dims in itertools.product(*sizes):
        left = iter(dims)
        shapes = [tuple(itertools.islice(left, len(io.shape))) for io in inputs]
        for some in (shapes, [shapes[0][:-1], *shapes[1:]]):
            try:
                wanted: object = solve(inputs, some, profiles, given)
            except ShapeError as e:
                wanted = str(e)
            assert _told(quick, some, profiles, given) == wanted


def test_sizes_and_symbols() -> None:
    _agree(_inputs((N, 2), (N, M)), [], {})


def test_profiles() -> None:
    _agree(_inputs((N, 2)), [Profile("p", {"n": (1, 1, 2)})], {})


def test_what_is_told_beside_the_shapes() -> None:
    _agree(_inputs((N, 2)), [], {"length": 3})
    _agree(_inputs((N, 2)), [], {"n": 1})


def test_expressions() -> None:
    _agree(_inputs((N, N + 1)), [], {})
