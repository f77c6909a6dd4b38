"""Words for packs that run libraries: what is fused behind a layer as a chain, and launchers of
calls from Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tactix
from tactix.fuse.rewrite import fuse
from tactix.plugins.session import Session
from tactix_sdk import Calls, DeviceProperties, Follower, Operation, Reject, Variant, array_at

CPU = DeviceProperties("cpu", "any")


def operation(*behind: str) -> Operation:
    """A product, and layers that the session fuses behind it."""
    session = Session()
    net = tactix.Builder(session=session).create_network("n")
    x, rest = net.add_input("x", "f32", ("m", 4)), net.add_input("rest", "f32", ("m", 5))
    (y,) = net.add_layer("tactix.MatMul", [x, net.add_constant(np.ones((4, 5), np.float32))])
    for name in behind:
        operands = {"rest": [rest, y], "square": [y, y]}.get(name, [y])
        (y,) = net.add_layer(
            "tactix.Sub" if name in ("rest", "square") else f"tactix.{name}", operands
        )
    net.mark_output(y, "y")
    made, _ = fuse(net, [session.rules["tactix.epilogue"]])
    (node,) = made.nodes
    return Operation(node, CPU, Variant())


def test_what_is_fused_behind_is_a_chain() -> None:
    assert operation().followers() == ()
    found = operation("Relu", "rest", "Tanh").followers()
    assert isinstance(found, tuple)
    assert [f.key for f in found] == ["tactix.Relu@1", "tactix.Sub@1", "tactix.Tanh@1"]
    assert found[0] == Follower("tactix.Relu@1", found[0].attrs)
    assert (found[1].place, found[1].other) == (1, 2)


def test_what_is_no_chain_is_refused() -> None:
    found = operation("Relu", "square").followers()
    assert isinstance(found, Reject)
    assert "no chain" in found.reason


class Doubled:
    """What lies in one buffer, twice, into another."""

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target

    def size(self, env: Any) -> None:
        self.shape = (env["n"],)

    def run(self, addresses: Any) -> None:
        x, y = (
            array_at(addresses[i], self.shape, np.dtype(np.float32))
            for i in (self.source, self.target)
        )
        np.add(x, x, out=y)


def test_calls_run_in_order_where_they_are_bound() -> None:
    buffers = [np.full(4, v, np.float32) for v in (1, 0, 0, 5)]
    at = [b.__array_interface__["data"][0] for b in buffers]
    calls = Calls([Doubled(0, 1), Doubled(1, 2)])
    calls.bind({"n": 3}, at[:3])
    calls()
    np.testing.assert_array_equal(buffers[2], [4, 4, 4, 0])
    calls.rebind(0, at[3])
    calls.bind({"n": 4}, calls.addresses)
    calls.repeat(2)
    np.testing.assert_array_equal(buffers[2], [20, 20, 20, 20])


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), ()])
def test_elements_at_an_address(shape: tuple[int, ...]) -> None:
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    seen = array_at(x.__array_interface__["data"][0], shape, x.dtype)
    np.testing.assert_array_equal(seen, x)
    seen[...] = 7
    assert (x == 7).all()
