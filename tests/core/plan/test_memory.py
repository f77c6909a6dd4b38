"""Placement: never an overlap in time and space, and close to the lower bound."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tactix.base.arithmetic import ArithmeticWriter, python
from tactix.base.errors import InvalidArgument
from tactix.plan.memory import CROWD, Stacking, lower_bound, plan_memory

BUFFERS = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 8)), max_size=60
)


@given(BUFFERS, st.sampled_from([1, 16, 64, 4096]))
@settings(max_examples=200, deadline=None)
def test_what_lives_together_lies_apart(
    buffers: list[tuple[int, int, int]], alignment: int
) -> None:
    sizes = [n for n, _, _ in buffers]
    lifetimes = [(first, first + more) for _, first, more in buffers]
    offsets, total = plan_memory(sizes, lifetimes, alignment)
    assert all(o % alignment == 0 for o in offsets)
    assert max((o + n for o, n in zip(offsets, sizes, strict=True)), default=0) <= total
    assert lower_bound(sizes, lifetimes, alignment) <= total
    _check_apart(sizes, lifetimes, offsets)


def _check_apart(
    sizes: list[int], lifetimes: list[tuple[int, int]], offsets: Sequence[int]
) -> None:
    for i in range(len(sizes)):
        for j in range(i):
            together = lifetimes[i][0] <= lifetimes[j][1] and lifetimes[j][0] <= lifetimes[i][1]
            apart = offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
            assert apart or not together or 0 in (sizes[i], sizes[j])


@given(BUFFERS, st.lists(st.tuples(*[st.integers(0, 5000)] * 2), min_size=4, max_size=4))
@settings(max_examples=200, deadline=None)
def test_at_other_sizes_tensors_keep_their_order(
    buffers: list[tuple[int, int, int]], kinds: list[tuple[int, int]]
) -> None:
    """Every tensor is of one of four kinds, each with a size now and another one later."""
    kind_of = [n % len(kinds) for n, _, _ in buffers]
    lifetimes = [(first, first + more) for _, first, more in buffers]
    now, later = ([pair[i] for pair in kinds] for i in range(2))
    placed = [now[k] for k in kind_of]
    offsets, total = plan_memory(placed, lifetimes)
    stacking = Stacking(offsets, placed, lifetimes)
    assert _stacked(stacking, placed)[1] <= total
    sizes = [later[k] for k in kind_of]
    again, arena = _stacked(stacking, sizes)
    _check_apart(sizes, lifetimes, again)
    assert all(o % 64 == 0 and o + n <= arena for o, n in zip(again, sizes, strict=True))


def _stacked(stacking: Stacking, sizes: list[int]) -> tuple[list[int], int]:
    """Offsets, and the bytes of the arena."""
    writer = ArithmeticWriter([str(i) for i in range(len(sizes))])
    offsets, arena = stacking.write(writer, range(len(sizes)))
    found = python(writer.arithmetic([*offsets, arena]))(sizes)
    assert found is not None
    return list(found[:-1]), found[-1]


def test_a_tensor_larger_than_before_pushes_what_lies_above_it() -> None:
    offsets, total = plan_memory([64, 128], [(0, 1), (1, 2)])
    assert (offsets, total) == ([128, 0], 192)
    stacking = Stacking(offsets, [64, 128], [(0, 1), (1, 2)])
    assert _stacked(stacking, [64, 1000]) == ([1024, 0], 1088)
    assert _stacked(stacking, [64, 0]) == ([0, 0], 64)


def test_what_was_empty_pushes_nothing_up() -> None:
    """The second tensor is empty and lives with both others, which do not live together."""
    sizes, lifetimes = [64, 0, 64], [(0, 1), (1, 2), (2, 3)]
    offsets, total = plan_memory(sizes, lifetimes)
    assert total == 64
    assert _stacked(Stacking(offsets, sizes, lifetimes), [64, 0, 64])[1] == 64


def test_the_lower_bound_is_the_peak_of_what_is_live() -> None:
    assert lower_bound([64, 100, 1], [(0, 1), (1, 2), (2, 5)]) == 64 + 128
    assert lower_bound([], []) == 0
    assert plan_memory([], []) == ([], 0)


def test_a_chain_needs_its_two_largest_neighbours() -> None:
    sizes = [640, 1280, 320, 960, 64]
    offsets, total = plan_memory(sizes, [(i, i + 1) for i in range(5)])
    assert total == 1280 + 640
    assert len(set(offsets)) >= 2


@pytest.mark.parametrize("seed", range(8))
def test_networks_with_skip_connections_stay_near_the_bound(seed: int) -> None:
    """Shapes as in encoders and decoders: sizes fall and rise again, some tensors live long."""
    rng = random.Random(seed)
    n = 120
    sizes = [64 * (1 + abs(n // 2 - i)) * rng.choice([8, 16, 16, 32]) for i in range(n)]
    lifetimes = [
        (i, n - i if i % 10 == 0 and i < n // 2 else i + rng.choice([1, 1, 2])) for i in range(n)
    ]
    _, total = plan_memory(sizes, lifetimes)
    assert total <= 1.2 * lower_bound(sizes, lifetimes)


def test_nonsense_is_refused() -> None:
    for sizes, lifetimes in (([-1], [(0, 1)]), ([1], [(1, 0)]), ([1, 2], [(0, 1)])):
        with pytest.raises(InvalidArgument):
            plan_memory(sizes, lifetimes)


def test_a_crowd_lies_apart_too() -> None:
    n = CROWD + 200
    offsets, total = plan_memory([64 + 64 * (i % 3) for i in range(n)], [(0, 1)] * n)
    taken = sorted((o, o + 64 + 64 * (i % 3)) for i, o in enumerate(offsets))
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(taken))
    assert total == taken[-1][1]
