"""The arithmetic of sizes without its constants gives what it gave with them."""

from __future__ import annotations

import random

import pytest

from tactix.base.arithmetic import ArithmeticWriter, IntegerArithmetic, python
from tactix_ship.c_library.arithmetic import folded

KINDS = ("+", "*", "//", "%", "max", "min", "bcast")


def _line(seed: int) -> IntegerArithmetic:
    """Random operations of two symbols and some constants."""
    rng = random.Random(seed)
    writer = ArithmeticWriter(["m", "n"])
    places = [0, 1, *map(writer.constant, (0, 1, 3, 64, -2))]
    for _ in range(12):
        left, right = rng.choice(places), rng.choice(places)
        places.append(writer.operation(rng.choice(KINDS), left, right))
    for kind in (">=", "!="):
        writer.operation(kind, rng.choice(places), rng.choice(places))
    return writer.arithmetic(rng.sample(places, 5))


@pytest.mark.parametrize("seed", range(40))
def test_results_stay(seed: int) -> None:
    line = _line(seed)
    short = folded(line, {}).line
    assert len(short.operations) <= len(line.operations)
    long, other = python(line), python(short)
    for values in ((1, 1), (2, 5), (7, 1), (0, 3)):
        assert other(values) == long(values)


def test_constants_are_folded_and_texts_follow_their_operations() -> None:
    writer = ArithmeticWriter(["n"])
    n, three, four = 0, writer.constant(3), writer.constant(4)
    twelve = writer.operation("*", three, four)
    writer.operation(">=", twelve, three)
    room = writer.operation("*", n, twelve)
    writer.operation(">=", twelve, room)
    made = folded(writer.arithmetic([room]), {1: "never", 3: "too many"})
    assert [(o.kind, o.left) for o in made.line.operations] == [("*", 0), (">=", 1)]
    assert [(c.operation, c.text) for c in made.checks] == [(1, "too many")]
    assert made.line.values[:2] == (0, 12)
