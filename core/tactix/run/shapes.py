"""From input shapes to the values of the symbols, with the errors that a user can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import index
from typing import Any

from tactix.base.arithmetic import ArithmeticWriter, Evaluator, python
from tactix.base.dims import Env, Expr, evaluate_shape, show, symbol_name
from tactix.base.errors import ShapeError
from tactix.base.formulas import PATIENCE
from tactix.plan.schema import Profile, TensorIO

Shapes = Sequence[tuple[int, ...]]
_NONE: Env = {}
REBUILD = "Build with a profile that takes it"


def solve(
    inputs: Sequence[TensorIO], shapes: Shapes, profiles: Sequence[Profile], given: Env = _NONE
) -> dict[str, int]:
    """Values of the symbols; ``shapes`` stand beside ``inputs``.

    They must lie in one of the profiles, if there are any. ``given``: some more values. Raises
    ShapeError.
    """
    env = dict(given)
    owner: dict[str, str] = {}
    for io, shape in zip(inputs, shapes, strict=True):
        _match(io, shape, env, owner)
    for io, shape in zip(inputs, shapes, strict=True):
        if any(isinstance(d, Expr) for d in io.shape) and evaluated(io, env) != shape:
            raise ShapeError(
                f"input {io.name!r} is {show(io.shape)}, got {show(shape)}", why=_values(env)
            )
    check_profiles(env, owner, profiles)
    return env


class Solver:
    """``solve`` for the inputs of a plan, by one function of all dims: of Python, as all it does is
    to compare them.
    """

    def __init__(self, inputs: Sequence[TensorIO]) -> None:
        self._inputs = inputs
        self._names: list[str] = []
        self._ranks: list[int] = []
        self._calls = 0
        self._evaluator: Evaluator | None = None

    def solve(
        self, shapes: Shapes, profiles: Sequence[Profile], given: Env = _NONE
    ) -> dict[str, int]:
        """As the function ``solve``, which says what is wrong."""
        evaluator = self._evaluator or self._made()
        if evaluator is not None and self._ranks == [*map(len, shapes)]:
            found = evaluator([*chain.from_iterable(shapes)])
            if found is not None:
                told = dict(zip(self._names, found))
                env = {**told, **given}
                agree = given.keys().isdisjoint(told) or told.items() <= env.items()
                if agree and (not profiles or any(admits(p, env) for p in profiles)):
                    return env
        return solve(self._inputs, shapes, profiles, given)

    def _made(self) -> Evaluator | None:
        """After some calls, and where all dims are sizes and bare symbols."""
        self._calls += 1
        bare = all(isinstance(d, int) or symbol_name(d) for io in self._inputs for d in io.shape)
        if self._calls <= PATIENCE or not bare:
            return None
        dims = [d for io in self._inputs for d in io.shape]
        writer = ArithmeticWriter([str(i) for i in range(len(dims))])
        places: dict[str, int] = {}
        for i, d in enumerate(dims):
            name = symbol_name(d)
            first = places.setdefault(name, i) if name else writer.dim(d)
            if first != i:
                writer.operation("==", i, first)
        self._names, self._ranks = list(places), [len(io.shape) for io in self._inputs]
        self._evaluator = python(writer.arithmetic([*places.values()]))
        return self._evaluator


def shape_of(who: str, given: Any) -> tuple[int, ...]:
    """A shape that a user gave. Raises ShapeError."""
    try:
        return tuple(map(index, given))
    except TypeError as e:
        raise ShapeError(
            f"{given!r} is no shape", who=who, why=str(e), do="Give integers, as in (1, 3)"
        ) from None


def _match(
    io: TensorIO, shape: tuple[int, ...], env: dict[str, int], owner: dict[str, str]
) -> None:
    if len(shape) != len(io.shape):
        raise ShapeError(
            f"input {io.name!r} is {show(io.shape)}, of rank {len(io.shape)}, got {show(shape)}"
        )
    for d, n in zip(io.shape, shape, strict=True):
        symbol = symbol_name(d)
        if isinstance(d, int) and d != n:
            raise ShapeError(f"input {io.name!r} is {show(io.shape)}, got {show(shape)}")
        if symbol is not None and env.setdefault(symbol, n) != n:
            first = owner.get(symbol, io.name)
            if first == io.name:
                raise ShapeError(
                    f"input {first!r} is {show(io.shape)}, got {show(shape)}: "
                    f"{symbol!r} has two values"
                )
            why = f"{env[symbol]} and {n}"
            raise ShapeError(
                f"inputs {first!r} and {io.name!r} disagree on dimension {symbol!r}", why=why
            )
        if symbol is not None:
            owner.setdefault(symbol, io.name)


def evaluated(io: TensorIO, env: Env) -> tuple[int, ...]:
    """The shape of an input or output. Raises ShapeError."""
    try:
        return evaluate_shape(io.shape, env)
    except ShapeError as e:
        e.who = e.who or f"{io.name!r}, which is {show(io.shape)}"
        raise


def check_profiles(env: Env, owner: Mapping[str, str], profiles: Sequence[Profile]) -> None:
    """Raises ShapeError if no profile admits the values; the ranges are told."""
    if not profiles or any(admits(p, env) for p in profiles):
        return
    for symbol, (low, _, high) in profiles[0].dims.items():
        n = env.get(symbol, low)
        if len(profiles) == 1 and not _within(n, low, high):
            what, why = (
                f"dimension {symbol!r} of input {owner.get(symbol, '?')!r} is {n}",
                _range(low, high),
            )
            raise ShapeError(what, why=f"profile {profiles[0].name!r} takes {why}", do=REBUILD)
    ranges = "; ".join(f"{p.name!r} takes {describe(p)}" for p in profiles)
    raise ShapeError(f"no profile takes {_values(env)}", why=ranges, do=REBUILD)


def describe(p: Profile) -> str:
    """``batch 1 to 32, seq 1 to 512``."""
    return (
        ", ".join(f"{s} {_range(low, high)}" for s, (low, _, high) in p.dims.items()) or "any size"
    )


def admits(p: Profile, env: Env) -> bool:
    """Whether a profile takes these values."""
    return all(_within(env[s], low, high) for s, (low, _, high) in p.dims.items() if s in env)


def _within(n: int, low: int, high: int | None) -> bool:
    return low <= n and (high is None or n <= high)


def _range(low: int, high: int | None) -> str:
    return f"{low} or more" if high is None else f"{low} to {high}"


def _values(env: Env) -> str:
    return ", ".join(f"{k} = {v}" for k, v in env.items())
