"""Groups taken apart again: the halves compute the same, under the names that the layers had
before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tactix.contracts.rule import Rule, anchor, fuse, pointwise
from tactix.fuse import rewrite
from tactix.fuse.split import can_split, split
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_sdk.evaluate import evaluate


def _producer(node: Any, graph: Any) -> Any:
    made = [v.producer for v in node.given if v.producer is not None and graph.only_use(v) is node]
    return made[0] if made else None


CHAIN = Rule(
    "toy.chain",
    pointwise() >> "last",
    lambda last, graph: fuse(_producer(last, graph), last),
    lambda last, graph: _producer(last, graph) is not None,
    phase="fuse",
)
BESIDE = Rule(
    "toy.beside",
    pointwise(anchor() >> "host") >> "last",
    lambda host, last: fuse(host, last),
    phase="fuse",
    exclusive=False,
)


def halved(net: NetworkDefinition) -> list[str]:
    """Split whatever can be, once; the names of all nodes."""
    for n in [n for n in net.nodes if can_split(n)]:
        split(net, n)
    verify(net, deep=True)
    return [n.name for n in net.nodes]


def same(net: NetworkDefinition, other: NetworkDefinition) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)
    wanted, got = evaluate(net, {"x": x}), evaluate(other, {"x": x})
    assert wanted.keys() == got.keys()
    for name, y in wanted.items():
        np.testing.assert_array_equal(got[name], y)


def test_a_group_that_is_split_keeps_the_names_of_what_it_gives(
    net: NetworkDefinition, x: Any
) -> None:
    v = x
    for i in range(3):
        (v,) = net.add_layer("toy.Neg", [v], f"n{i}")
        net.call(v, f"t{i}")
    net.mark_output(v, "y")
    fused, _ = rewrite.fuse(net, [CHAIN])
    halved(fused)
    assert [n.outputs[0].called for n in fused.nodes] == [(), ("t2",)]


def test_a_chain_is_halved_until_each_part_is_one_layer(net: NetworkDefinition, x: Any) -> None:
    v = x
    for i in range(5):
        (v,) = net.add_layer("toy.Leaky" if i % 2 else "toy.Neg", [v], f"n{i}")
    (y,) = net.add_layer("toy.Add", [v, x], "sum")
    net.mark_output(y, "y")
    out, _ = rewrite.fuse(net, [CHAIN])
    assert [n.name for n in out.nodes] == ["n0 + n1 + n2 + n3 + n4 + sum"]
    assert halved(out) == ["n0 + n1 + n2", "n3 + n4 + sum"]
    same(net, out)
    assert halved(out) == ["n0 + n1", "n2", "n3 + n4", "sum"]
    assert [n.origin for n in out.nodes] == [("n0", "n1"), ("n2",), ("n3", "n4"), ("sum",)]
    same(net, out)
    assert halved(out) == ["n0", "n1", "n2", "n3", "n4", "sum"]
    assert not any(map(can_split, out.nodes))
    same(net, out)


def test_what_is_read_elsewhere_stays_an_output(net: NetworkDefinition, x: Any) -> None:
    w = net.add_constant(np.eye(4, 4, dtype=np.float32) * 3)
    (d,) = net.add_layer("toy.Dense", [x, w, net.add_constant(np.ones(4, np.float32))], "dense")
    (r,) = net.add_layer("toy.Relu", [d], "relu")
    (z,) = net.add_layer("toy.Sub", [r, d], "sub")
    net.mark_output(d, "d")
    net.mark_output(z, "z")
    out, _ = rewrite.fuse(net, [BESIDE, CHAIN])
    assert any(len(n.outputs) > 1 for n in out.nodes)
    while any(map(can_split, out.nodes)):
        halved(out)
        same(net, out)
    assert [n.name for n in out.nodes] == ["dense", "relu", "sub"]


def test_a_name_that_another_took_is_not_taken_again(net: NetworkDefinition, x: Any) -> None:
    (a,) = net.add_layer("toy.Neg", [x], "neg")
    net.mark_output(*net.add_layer("toy.Relu", [a], "relu"), "y")
    out, _ = rewrite.fuse(net, [CHAIN])
    out.free_name("neg")
    out.mark_output(*out.add_layer("toy.Neg", [out.inputs[0]], "neg"), "z")
    assert sorted(halved(out)) == ["neg", "neg_1", "relu"]


@pytest.fixture
def x(net: NetworkDefinition) -> Any:
    return net.add_input("x", "f32", ["n", 4])
