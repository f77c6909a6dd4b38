"""Python's search for cycles while a network is built."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import tactix
from tactix.base.garbage import RARE, rarely_collected
from tactix.base.progress import SilentProgress


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_cycles_are_searched_for_rarely_inside_and_as_before_after_that() -> None:
    gc.set_threshold(700, 11, 12)
    with rarely_collected:
        with rarely_collected:
            assert gc.get_threshold()[0] == RARE
        assert gc.get_threshold() == (RARE, 11, 12)
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("first", [0, RARE + 1])
def test_what_a_caller_turned_off_or_made_rarer_stays_so(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    with rarely_collected:
        assert gc.get_threshold()[0] == first
    assert gc.get_threshold()[0] == first


def test_an_error_leaves_it_as_before() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ZeroDivisionError), rarely_collected:
        _ = 1 / 0
    assert gc.get_threshold()[0] == 700


class Asking(SilentProgress):
    def __init__(self) -> None:
        self.found: set[int] = set()

    def phase(self, name: str, total: int) -> None:
        self.found.add(gc.get_threshold()[0])


def test_builds_search_rarely() -> None:
    builder, monitor = tactix.Builder(), Asking()
    net = builder.create_network()
    (y,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", (2,))])
    net.mark_output(y, "y")
    gc.set_threshold(700, 10, 10)
    config = tactix.BuilderConfig(timing_cache=False, tactic_sources={"numpy"})
    config.builder_optimization_level, config.progress_monitor = 0, monitor
    builder.build_plan(net, config)
    assert monitor.found == {RARE}
    assert gc.get_threshold()[0] == 700
