"""Products of two computed matrices of bytes against numpy: every integer is the same."""

from __future__ import annotations

from typing import Any

import asked
import harness as h
import numpy as np
import pytest

from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.matmul.byte_product import ByteProductTactic

BYTES = ByteProductTactic()
RNG = np.random.default_rng(39)
KINDS = [(a, b) for a in (np.uint8, np.int8) for b in (np.uint8, np.int8)]


def numbers(kind: Any, *shape: int) -> Any:
    """Over the whole range, its ends often."""
    ends = np.iinfo(kind)
    drawn = RNG.integers(ends.min, ends.max, shape, endpoint=True)
    return np.where(RNG.random(shape) < 0.2, ends.min, drawn).astype(kind)


def product(
    a: tuple[int, ...],
    b: tuple[int, ...],
    kinds: tuple[Any, Any] = (np.uint8, np.int8),
    zeros: Any = (3, -5),
    symbols: Any = None,
    **more: Any,
) -> h.Case:
    arrays: list[Any] = [numbers(kinds[0], *a), numbers(kinds[1], *b)]
    arrays += [None if z is None else np.array([z], np.int32) for z in zeros]
    while arrays[-1] is None:
        arrays.pop()
    specs, env = list(arrays), {}
    if symbols:
        specs[:2] = [h.spec(x, s) for x, s in zip(arrays, symbols, strict=False)]
        pairs = zip((*symbols[0], *symbols[1]), (*a, *b), strict=True)
        env = {name: size for name, size in pairs if isinstance(name, str)}
    node = h.node("ByteMatMul", specs, [])
    return h.Case(node, BYTES, [x for x in arrays if x is not None], env=env, **more)


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_bytes_of_either_sign(kinds: Any) -> None:
    cases = [product((5, 9), (9, 21), kinds, z) for z in ((3, -5), (128, 255), (-128, 0))]
    cases += [product((5, 9), (9, 21), kinds, z) for z in ((None, None), (7, None), (None, 7))]
    h.check_all(cases)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 64, 67])
def test_odd_sizes(k: int) -> None:
    sizes = ((1, 1), (3, 17), (15, 32), (29, 33))
    h.check_all([product((m, k), (k, n), nt=(1, 2, 3)) for m, n in sizes])


def test_matrices_of_a_batch() -> None:
    """One for all, one for each, and broadcast over either axis."""
    shapes = [
        ((2, 3, 5, 8), (8, 7)),
        ((2, 3, 5, 8), (2, 3, 8, 7)),
        ((2, 1, 5, 8), (1, 3, 8, 7)),
        ((5, 8), (3, 8, 7)),
        ((8,), (3, 8, 7)),
        ((3, 5, 8), (8,)),
    ]
    h.check_all([product(a, b, (np.int8, np.uint8), nt=(1, 2)) for a, b in shapes])


def test_symbolic_sizes() -> None:
    names = (("n", "m", "k"), ("n", "k", "o"))
    sizes = ((1, 1, 1, 1), (2, 17, 10, 40), (3, 5, 33, 3))
    cases = [product((n, m, k), (n, k, o), symbols=names, nt=(1, 2)) for n, m, k, o in sizes]
    h.check_all(cases)


def test_every_instruction_set() -> None:
    cases = [product((5, 11), (11, 19), kinds, device=d) for d in h.devices() for kinds in KINDS]
    h.check_all(cases)


def test_sums_that_wrap() -> None:
    """255 times -128, 70000 times, is beyond int32."""
    a, b = np.full((2, 70000), 255, np.uint8), np.full((70000, 3), -128, np.int8)
    h.check(h.node("ByteMatMul", [a, b], []), BYTES, [a, b])


def test_empty_ones_are_left_to_others() -> None:
    node = h.node("ByteMatMul", [numbers(np.uint8, 0, 3), numbers(np.int8, 3, 4)], [])
    offered = asked.variants(BYTES, node, h.NATIVE)
    assert isinstance(offered, Reject)
    assert offered.reason


def test_cost_grows_with_the_size() -> None:
    costs = []
    for k in (64, 640):
        node = product((64, k), (k, 64)).node
        variant = asked.variants(BYTES, node, h.NATIVE)[0]  # type: ignore[index]
        costs.append(asked.cost(BYTES, node, variant, CompileContext(h.NATIVE)) or 0.0)
    assert 0 < 2 * costs[0] < costs[1]
