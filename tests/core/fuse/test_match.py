"""Patterns: what matches, in which order of operands, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.errors import InvalidArgument
from tactix.contracts.rule import ANY, P, Rule, anchor, any_of, anything, const, pointwise, var
from tactix.fuse import rewrite
from tactix.fuse.match import match_node, needs


def matches(pattern, value):
    return list(match_node(pattern, value.producer))


@pytest.fixture
def x(net):
    return net.add_input("x", "f32", ["n", 4])


def test_binds_tensors_and_nodes(net, x):
    (a,) = net.add_layer("toy.Neg", [x])
    (y,) = net.add_layer("toy.Relu", [a])
    (m,) = matches(P.toy.Relu(P.toy.Neg(var("x")) >> "inner"), y)
    assert m.bound == {"x": x, "inner": a.producer}
    assert m.nodes == (y.producer, a.producer)


def test_a_commutative_layer_matches_in_both_orders(net, x):
    (a,) = net.add_layer("toy.Neg", [x])
    pattern = P.toy.Add(P.toy.Neg(var("x")), var("other"))
    for inputs in ([a, x], [x, a]):
        (m,) = matches(pattern, net.add_layer("toy.Add", inputs)[0])
        assert m.bound["other"] is x


def test_another_layer_matches_in_its_own_order_only(net, x):
    (a,) = net.add_layer("toy.Neg", [x])
    pattern = P.toy.Sub(P.toy.Neg(var("x")), var("other"))
    assert matches(pattern, net.add_layer("toy.Sub", [a, x])[0])
    assert not matches(pattern, net.add_layer("toy.Sub", [x, a])[0])


def test_the_same_name_means_the_same_tensor(net, x):
    z = net.add_input("z", "f32", ["n", 4])
    pattern = P.toy.Add(var("a"), var("a"))
    assert matches(pattern, net.add_layer("toy.Add", [x, x])[0])
    assert not matches(pattern, net.add_layer("toy.Add", [x, z])[0])


def test_the_same_bound_node_means_the_same_node(net, x):
    one, two = (net.add_layer("toy.Neg", [x])[0] for _ in range(2))
    inner = P.toy.Neg(var("x")) >> "inner"
    assert matches(P.toy.Add(inner, inner), net.add_layer("toy.Add", [one, one])[0])
    assert not matches(P.toy.Add(inner, inner), net.add_layer("toy.Add", [one, two])[0])


def test_attributes_are_compared(net, x):
    (y,) = net.add_layer("toy.Leaky", [x], alpha=0.25)
    assert matches(P.toy.Leaky(var("x"), alpha=0.25), y)
    assert not matches(P.toy.Leaky(var("x"), alpha=0.5), y)
    assert not matches(P.toy.Leaky(var("x"), beta=0.25), y)


def test_an_attribute_that_is_not_written_is_the_layers_default(net, x):
    default, other = (net.add_layer("toy.Leaky", [x], alpha=a)[0] for a in (0.5, 0.25))
    assert matches(P.toy.Leaky(var("x")), default)
    assert not matches(P.toy.Leaky(var("x")), other)
    assert matches(P.toy.Leaky(var("x"), alpha=ANY), other)
    assert matches(P.toy.Leaky(var("x")) >> "seen", other)


@pytest.mark.parametrize(
    ("when", "fires"), [(None, False), (lambda x: True, False), (lambda root: True, True)]
)
def test_a_rule_that_looks_at_the_root_sees_every_value(net, x, when, fires):
    rule = Rule("toy.drop", P.toy.Leaky(var("x")), lambda x: x, when)
    (y,) = net.add_layer("toy.Leaky", [x], alpha=0.25)
    assert bool(list(match_node(rule.pattern, y.producer, rule.captures_root))) is fires


def test_a_constant_is_not_any_tensor(net, x):
    c = net.add_constant(np.ones((1, 4), np.float32))
    pattern = P.toy.Sub(var("x"), const("c"))
    assert matches(pattern, net.add_layer("toy.Sub", [x, c])[0])
    assert not matches(pattern, net.add_layer("toy.Sub", [c, x])[0])


@pytest.mark.parametrize(
    ("array", "fits"), [([2.0], True), (2.0, True), ([2.0, 2.0], False), (2.5, False)]
)
def test_a_number_matches_a_constant_of_one_element(net, x, array, fits):
    c = net.add_constant(np.array(array, np.float32))
    flat = net.add_input("flat", "f32", ["n", 1])
    assert bool(matches(P.toy.Sub(var("x"), 2.0), net.add_layer("toy.Sub", [flat, c])[0])) is fits


def test_alternatives_are_tried_in_order(net, x):
    (a,) = net.add_layer("toy.Neg", [x])
    (y,) = net.add_layer("toy.Relu", [a])
    found = matches(P.toy.Relu(any_of(P.toy.Neg(var("deep")), var("shallow"))), y)
    assert [list(m.bound) for m in found] == [["deep"], ["shallow"]]


def test_alternatives_at_the_root(net, x):
    pattern = any_of(P.toy.Neg(var("x")), P.toy.Relu(var("x")))
    assert Rule("toy.any", pattern, lambda x: x).roots() == {"toy.Neg", "toy.Relu"}
    assert matches(pattern, net.add_layer("toy.Relu", [x])[0])
    assert not matches(pattern, net.add_layer("toy.Leaky", [x])[0])


def test_traits(net, x):
    w = net.add_constant(np.ones((4, 2), np.float32))
    (d,) = net.add_layer("toy.Dense", [x, w])
    (y,) = net.add_layer("toy.Relu", [d])
    assert matches(pointwise(anchor() >> "host"), y)[0].bound == {"host": d.producer}
    assert not matches(pointwise(), d)
    assert not matches(anchor(), y)
    assert matches(anything(), y)
    assert matches(anything(), d)


def test_inputs_match_from_the_front(net, x):
    w, b = net.add_constant(np.ones((4, 2), np.float32)), net.add_constant(np.ones(2, np.float32))
    (y,) = net.add_layer("toy.Dense", [x, w, b])
    assert matches(P.toy.Dense(var("x")), y)
    assert not matches(P.toy.Dense(var("x"), var("w"), var("b"), var("more")), y)


def test_a_layer_by_version(net, x):
    (y,) = net.add_layer("toy.Relu", [x])
    assert matches(getattr(P.toy, "Relu@1")(var("x")), y)
    assert not matches(getattr(P.toy, "Relu@2")(var("x")), y)


def test_another_output_of_a_node(net, x):
    head, tail = net.add_layer("toy.Cut", [x], at=1)
    pattern = P.toy.Neg(P.toy.Cut(var("x")).out(1))
    assert matches(pattern, net.add_layer("toy.Neg", [tail])[0])
    assert not matches(pattern, net.add_layer("toy.Neg", [head])[0])


def test_a_pattern_holds_no_strings(net, x):
    with pytest.raises(InvalidArgument, match="a pattern cannot hold 'x'"):
        matches(P.toy.Relu("x"), net.add_layer("toy.Relu", [x])[0])


def test_a_pattern_needs_what_its_inputs_name():
    pattern = P.toy.Add(P.toy.Neg(var("x")), any_of(const("c"), P.toy.Relu(var("y"))))
    assert needs(pattern) == ({"toy.Neg", "constant"}, {"toy.Neg", "toy.Relu"})
    assert needs(any_of(P.toy.Add(pointwise(), var("x")), pattern)) == (frozenset(),)


def test_a_trait_may_say_what_one_input_is_made_by(net, x):
    pattern = pointwise().reading("toy.Neg")
    assert needs(pattern) == ({"toy.Neg"},)
    (a,) = net.add_layer("toy.Neg", [x])
    assert not matches(pattern, a)
    assert matches(pattern, net.add_layer("toy.Add", [x, a])[0])


def test_rules_are_tried_where_a_node_reads_what_they_need(net, x, monkeypatch):
    tried = []
    monkeypatch.setattr(rewrite, "match_node", lambda pattern, *_: tried.append(pattern) or ())
    rule = Rule("toy.far", P.toy.Relu(P.toy.Neg(var("x"))), lambda x: x)
    (y,) = net.add_layer("toy.Relu", [net.add_layer("toy.Relu", [x])[0]])
    net.mark_output(y, "y")
    rewrite.fuse(net, [rule])
    assert not tried
    net.mark_output(net.add_layer("toy.Relu", [net.add_layer("toy.Neg", [y])[0]])[0], "z")
    rewrite.fuse(net, [rule])
    assert tried == [rule.pattern]
