"""Many dims evaluated at once: their arithmetic as one, made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tactix.base.arithmetic import ArithmeticWriter, Evaluator, IntegerArithmetic, python
from tactix.base.dims import Dim, Env, evaluate, symbols

PATIENCE = 2
"""Evaluations term by term before that is made: that takes as long as several of them, and
many plans only ever run at one shape.
"""


class Formulas:
    """Dims in a fixed order. Thread-safe; at worst their arithmetic is made twice.

    ``make``: what runs that, in place of a function of Python.
    """

    def __init__(
        self, dims: Iterable[Dim], make: Callable[[IntegerArithmetic], Evaluator] = python
    ) -> None:
        self.dims = tuple(dims)
        self.symbols = sorted(frozenset[str]().union(*map(symbols, self.dims)))
        self._make = make
        self._evaluations = 0
        self._evaluator: Evaluator | None = None

    def at(self, env: Env) -> Sequence[int]:
        """The values. Raises ShapeError as ``evaluate``: for symbols without a value, divisions by
        zero, and sizes that do not broadcast.
        """
        evaluator = self._evaluator or self._made()
        if evaluator is not None:
            try:
                found = evaluator([env[s] for s in self.symbols])
            except KeyError:
                found = None
            if found is not None:
                return found
        return tuple([evaluate(d, env) for d in self.dims])  # what is wrong has a name

    def _made(self) -> Evaluator | None:
        self._evaluations += 1
        if self._evaluations > PATIENCE:
            writer = ArithmeticWriter(self.symbols)
            self._evaluator = self._make(writer.arithmetic([writer.dim(d) for d in self.dims]))
        return self._evaluator
