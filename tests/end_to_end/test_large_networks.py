"""Work grows with the size of a network, not with its square, and how deep a network is does not
matter.

Work is counted in lines of Python that run: a list comprehension over all readers counts each of
them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.config import BuilderConfig
from tactix.network.definition import NetworkDefinition
from tactix.plan import container
from tactix_tools.cli import main

SIZES = (60, 120, 240)
DEEP = 3000
"""More than Python calls lie in each other."""


def chain(net: NetworkDefinition, n: int, layer: str = "tactix.Add") -> None:
    """Each adds the input to what the one before gave."""
    x = y = net.add_input("x", "f32", [4])
    for _ in range(n):
        (y,) = net.add_layer(layer, [y, x] if layer == "tactix.Add" else [y])
    net.mark_output(y, "y")


def tree(net: NetworkDefinition, n: int) -> None:
    """Pairs of n tensors are added, then pairs of the sums; all tensors differ."""
    x = net.add_input("x", "f32", [4])
    level = [
        net.add_layer("tactix.Add", [x, net.add_constant(np.float32(i + 1))])[0] for i in range(n)
    ]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [
            *(net.add_layer("tactix.Add", pair)[0] for pair in pairs),
            *level[len(level) // 2 * 2 :],
        ]
    net.mark_output(level[0], "y")


def equal(net: NetworkDefinition, n: int) -> None:
    """All do the same work, so that one is left."""
    x = net.add_input("x", "f32", [4])
    sums = [net.add_layer("tactix.Add", [x, x])[0] for _ in range(n)]
    net.mark_output(net.add_layer("tactix.Concat", sums, axis=0)[0], "y")


def outputs(net: NetworkDefinition, n: int) -> None:
    """All do the same work, and the caller is given each."""
    x = net.add_input("x", "f32", [4])
    for i in range(n):
        net.mark_output(net.add_layer("tactix.Add", [x, x])[0], f"y{i}")


def settings() -> BuilderConfig:
    """Without kernels: what compilers do is not counted."""
    return BuilderConfig(
        builder_optimization_level=0, tactic_sources={"numpy", "view"}, timing_cache=False
    )


def made(make: Callable[..., None], n: int, **options: Any) -> bytes:
    """The bytes of a plan."""
    builder = tactix.Builder()
    net = builder.create_network()
    make(net, n, **options)
    return container.dump(builder.build_plan(net, settings()))


def counted(work: Callable[[], Any]) -> int:
    """The lines of Python that ran in this thread."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def is_linear(work: Callable[[int], Any]) -> bool:
    """Whether a second doubling adds about twice what the first one did: a square adds four times
    as much.
    """
    work(SIZES[0])  # what is done once in a process
    small, middle, large = (counted(lambda n=n: work(n)) for n in SIZES)  # type: ignore[misc]
    return large - middle < 2.6 * (middle - small)


@pytest.mark.parametrize("make", [chain, tree, equal, outputs])
def test_building_is_linear(make):
    assert is_linear(lambda n: made(make, n))


@pytest.mark.parametrize("make", [chain, tree, outputs])
def test_loading_is_linear(make):
    plans = {n: made(make, n) for n in SIZES}
    assert is_linear(lambda n: tactix.load(plans[n])(x=np.ones(4, np.float32)))


def test_whether_a_tensor_is_an_output_is_asked_of_no_list(monkeypatch):
    asked = dict.fromkeys(SIZES[:2], 0)
    found = NetworkDefinition.outputs
    for n in asked:

        def look(net: NetworkDefinition, n: int = n) -> Any:
            asked[n] += 1
            return found.__get__(net)

        with monkeypatch.context() as patch:
            patch.setattr(NetworkDefinition, "outputs", property(look))
            made(outputs, n)
    assert len(set(asked.values())) == 1


def test_a_deep_network_meets_no_limit_of_recursion(tmp_path, capsys):
    assert sys.getrecursionlimit() < DEEP
    path = tmp_path / "deep.plan"
    path.write_bytes(made(chain, DEEP, layer="tactix.Softmax"))
    engine = tactix.load(path)
    assert len(engine.plan.steps) == DEEP
    assert engine(x=np.ones(4, np.float32)) == pytest.approx(np.full(4, 0.25))
    for command in (["inspect"], ["explain"], ["check"], ["diff", str(path)]):
        assert main([*command, str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
