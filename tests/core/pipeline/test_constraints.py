"""What a network asks of its symbols."""

from __future__ import annotations

from typing import Any

import pytest

import tactix
from tactix.network.definition import NetworkDefinition
from tactix.pipeline.constraints import demands


def sums(first: tuple[Any, ...], second: tuple[Any, ...]) -> NetworkDefinition:
    net = tactix.Builder().create_network()
    inputs = [net.add_input("x", "f32", first), net.add_input("y", "f32", second)]
    (z,) = net.add_layer("tactix.Add", inputs)
    net.mark_output(z, "z")
    return net


def test_layers_without_symbols_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    net = sums((2, 3), (2, 3))

    def asked(*args: Any) -> Any:
        raise AssertionError("it is inferred again")

    monkeypatch.setattr(type(net.nodes[0].layer), "infer", asked)
    assert demands(net) == {}


def test_sizes_that_must_be_equal_are_demanded_by_the_first_node() -> None:
    net = sums(("n", 3), ("m", 3))
    assert list(demands(net).values()) == [net.nodes[0].name]
