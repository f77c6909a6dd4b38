"""Other forms of nodes: rules of the phase ``rival`` change no network, but know what could stand in
a node's place.
"""

from __future__ import annotations

import numpy as np

from tactix.contracts.rule import RIVAL, P, Rule, fuse, pointwise, var
from tactix.fuse import rewrite
from tactix.fuse.rivals import rival
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify
from tactix_sdk.evaluate import evaluate

TOGETHER = Rule(
    "toy.together",
    pointwise(pointwise() >> "first") >> "second",
    lambda first, second: fuse(first, second),
    phase="fuse",
)
LESS = Rule(
    "toy.less",
    P.toy.Sub(var("a"), var("b")),
    lambda a, b: P.toy.Add(a, P.toy.Neg(b)),
    phase=RIVAL,
)


def fused(net: NetworkDefinition) -> NetworkDefinition:
    """Of a difference and what follows it one node, beside another."""
    x = net.add_input("x", "f32", ("n", 4))
    (d,) = net.add_layer("toy.Sub", [x, net.add_constant(np.full((1, 4), 0.5, np.float32))])
    (y,) = net.add_layer("toy.Relu", [d], "positive")
    net.mark_output(y, "y")
    net.mark_output(net.add_layer("toy.Neg", [x], "beside")[0], "z")
    out, trace = rewrite.fuse(net, [TOGETHER, LESS])
    assert trace.counts == {"toy.together": 1}
    return out


def test_a_form_is_rewritten_by_all_rules_and_takes_the_nodes_place(net: NetworkDefinition) -> None:
    out = fused(net)
    inputs = {"x": np.random.default_rng(0).standard_normal((3, 4), dtype=np.float32)}
    wanted = evaluate(out, inputs)
    group = next(n for n in out.nodes if n.is_fused)
    form = rival(out, group, [TOGETHER, LESS])
    assert form is not None
    assert form.rules == ("toy.less",)
    assert [[b.layer.name for b in n.body.nodes] for n in form.nodes] == [["Neg", "Add", "Relu"]]
    assert group in out.nodes
    (part,) = form.take_its_place(out)
    verify(out, deep=True)
    assert group not in out.nodes
    assert part in out.nodes
    assert part.origin == group.origin
    for name, y in evaluate(out, inputs).items():
        np.testing.assert_array_equal(y, wanted[name])


def test_a_node_that_no_rule_has_a_form_for_has_no_rival(net: NetworkDefinition) -> None:
    out = fused(net)
    beside = next(n for n in out.nodes if not n.is_fused)
    assert rival(out, beside, [TOGETHER, LESS]) is None
    assert all(rival(out, n, [TOGETHER]) is None for n in out.nodes)
