"""Fusing nodes into one: flat bodies, kept results, the anchor, cycles."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import InternalError, NetworkError
from tactix.base.tensor import TensorSpec
from tactix.contracts import expr
from tactix.contracts.layer import Layer, NoAttrs
from tactix.contracts.region import FUSED, program
from tactix.contracts.rule import P, Rule, anchor, anything, fuse, pointwise, var
from tactix.fuse import rewrite
from tactix.fuse.region import known_specs, merge
from tactix.fuse.split import apart

CHAIN = Rule(
    "toy.chain",
    pointwise() >> "last",
    lambda last, graph: fuse(_before(last, graph), last),
    lambda last, graph: _before(last, graph) is not None,
    phase="fuse",
)
HOST = Rule(
    "toy.host",
    pointwise(anchor() >> "host") >> "last",
    lambda host, last: fuse(host, last),
    phase="fuse",
)


def _before(last, graph):
    """A pointwise producer that the node alone reads."""
    for v in last.given:
        p = v.producer
        if p is not None and p.anchor is None and graph.only_use(v) is last:
            return p
    return None


@pytest.fixture
def x(net):
    return net.add_input("x", "f32", ["n", 4])


def dense(net, x, width=4):
    rng = np.random.default_rng(width)
    return net.add_layer(
        "toy.Dense", [x, net.add_constant(rng.standard_normal((4, width), dtype=np.float32))]
    )[0]


def test_a_chain_becomes_one_node(net, x, run):
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Add", [a, x])
    net.mark_output(net.add_layer("toy.Relu", [b])[0], "y")
    out, _ = run(net, CHAIN)
    (n,) = out.nodes
    assert (n.name, n.kind, n.is_fused) == ("neg + add + relu", "pointwise", True)
    assert n.inputs == (out.inputs[0],)
    assert n.origin == ("neg", "add", "relu")
    assert [(b.layer.name, b.inputs) for b in n.body.nodes] == [
        ("Neg", (0,)),
        ("Add", (1, 0)),
        ("Relu", (2,)),
    ]
    assert str(program(n.body, n.specs).results[0]) == "max(add(neg(x0), x0), 0.0)"


def test_an_anchor_takes_what_follows(net, x, run):
    (y,) = net.add_layer("toy.Relu", [dense(net, x)])
    net.mark_output(net.add_layer("toy.Leaky", [y], alpha=0.125)[0], "y")
    out, _ = run(net, HOST)
    (n,) = out.nodes
    assert (n.kind, n.body.anchor, n.name) == ("toy.Dense@1", 0, "dense + relu + leaky")
    assert n.anchor.layer.name == "Dense"
    p = program(n.body, n.specs)
    assert p.leaves == (n.body.first_id(0),)
    assert expr.result_dtype(p.results[0], [out.inputs[0].spec.dtype]) is out.inputs[0].spec.dtype


def test_tensors_read_outside_are_results(net, x, run):
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Relu", [a])
    net.mark_output(a, "a")
    net.mark_output(net.add_layer("toy.Leaky", [a])[0], "c")
    net.mark_output(b, "b")
    rule = Rule(
        "toy.pair",
        P.toy.Relu(P.toy.Neg() >> "first") >> "last",
        lambda first, last: fuse(last, first),
        exclusive=False,
    )
    out, _ = run(net, rule)
    fused = next(n for n in out.nodes if n.is_fused)
    assert [v.name for v in fused.outputs] == ["neg + relu:0", "neg + relu:1"]
    assert fused.body.results == (1, 2)
    assert len(out.nodes) == 2, "the nodes that were fused are gone"


def test_nodes_beside_the_match_are_swept_too(net, x, run):
    """Only the last node is matched; the first is found through the graph and still read elsewhere."""
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Relu", [a])
    net.mark_output(b, "b")
    net.mark_output(net.add_layer("toy.Leaky", [a])[0], "c")
    rule = Rule(
        "toy.reach", P.toy.Relu() >> "last", lambda last: fuse(last.given[0].producer, last)
    )
    out, trace = run(net, rule)
    assert sorted(n.layer.name for n in out.nodes) == ["Fused", "Leaky"]
    assert trace.firings[0].added == ("neg + relu",)
    assert sorted(trace.firings[0].removed) == ["neg", "relu"]


def test_fused_nodes_merge_flat(net, x, run):
    (a,) = net.add_layer("toy.Neg", [dense(net, x)])
    (b,) = net.add_layer("toy.Relu", [a])
    (c,) = net.add_layer("toy.Add", [b, x])
    net.mark_output(c, "y")
    out, _ = run(net, HOST)
    (n,) = out.nodes
    assert [b.layer.name for b in n.body.nodes] == ["Dense", "Neg", "Relu", "Add"]
    assert n.body.arity == 2 == len(n.inputs)
    assert n.body.nodes[3].inputs == (4, 0)


def test_two_anchors_cannot_be_one(net, x):
    a = dense(net, x)
    b = dense(net, a)
    with pytest.raises(NetworkError, match=r"dense \+ dense_1: a fused layer can have one anchor"):
        merge([a.producer, b.producer], [b])


def test_merge_numbers_inputs_and_results(net, x):
    z = net.add_input("z", "f32", ["n", 4])
    head, tail = net.add_layer("toy.Cut", [x], at=1)
    (y,) = net.add_layer("toy.Add", [head, z])
    body, inputs = merge([head.producer, y.producer], [tail, y])
    assert inputs == [x, z]
    assert (body.arity, body.anchor, body.results) == (2, 0, (3, 4))
    assert body.nodes[1].inputs == (2, 1)
    assert body.title == "cut + add"
    arrays = [np.ones((2, 4), np.float32), np.full((2, 4), 3, np.float32)]
    known = body.run(arrays)
    np.testing.assert_array_equal(known[4], np.full((2, 4), 4))
    assert [tuple(map(str, s.shape)) for s in FUSED.infer(body, [x.spec, z.spec])] == [
        ("n", "3"),
        ("n", "4"),
    ]


def test_a_tensor_that_is_read_twice_is_one_input(net, x):
    (twice,) = net.add_layer("toy.Add", [x, x])
    (y,) = net.add_layer("toy.Neg", [twice])
    body, inputs = merge([twice.producer, y.producer], [y])
    assert inputs == [x]
    assert [n.inputs for n in body.nodes] == [(0, 0), (1,)]


def test_an_absent_input_stays_absent(net, x):
    (y,) = net.add_layer("toy.Dense", [x, net.add_constant(np.eye(4, dtype=np.float32)), None])
    body, inputs = merge([y.producer, net.add_layer("toy.Neg", [y])[0].producer], [y])
    assert body.nodes[0].inputs == (0, 1, -1)
    assert len(inputs) == 2


def test_a_rule_must_not_make_a_cycle(net, x):
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Add", [dense(net, a), a])
    net.mark_output(b, "y")
    rule = Rule(
        "toy.loop",
        P.toy.Add(anything() >> "middle", P.toy.Neg() >> "first") >> "last",
        lambda first, last: fuse(first, last),
        exclusive=False,
    )
    with pytest.raises(InternalError, match=r"toy\.loop .*a rule made a cycle: neg \+ add"):
        rewrite.fuse(net, [rule])


def test_a_cycle_of_what_is_put_in_place_is_named_after_its_rule(net, x):
    """A value in place of the one that it is made of, beside rules that did nothing wrong."""
    (a,) = net.add_layer("toy.Neg", [dense(net, x)])
    net.mark_output(net.add_layer("toy.Relu", [net.add_layer("toy.Relu", [a])[0]])[0], "y")
    sound = Rule("toy.sound", P.toy.Relu(P.toy.Relu(var("x"))), lambda x: P.toy.Relu(x))
    rule = Rule(
        "toy.behind",
        P.toy.Neg(),
        lambda root, graph: graph.uses(root.outputs[0])[0][0].outputs[0],
        lambda root, graph: bool(graph.uses(root.outputs[0])),
    )
    with pytest.raises(InternalError, match=r"toy\.behind .*a rule made a cycle"):
        rewrite.fuse(net, [sound, rule])


def test_a_reader_of_both_results_is_no_cycle(net, x, run):
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Relu", [a])
    net.mark_output(net.add_layer("toy.Sub", [a, b])[0], "y")
    rule = Rule(
        "toy.pair",
        P.toy.Relu(P.toy.Neg(var("x")) >> "first") >> "last",
        lambda first, last: fuse(first, last),
        exclusive=False,
    )
    out, _ = run(net, rule)
    assert [n.layer.name for n in out.nodes] == ["Fused", "Sub"]


class Total(Layer[NoAttrs]):
    """The sum of the last axis."""

    key = "toy.Total@1"
    summarizes = True

    def infer(self, attrs, inputs):
        (x,) = inputs
        return [TensorSpec(x.dtype, (*x.shape[:-1], 1))]


def summed(net, x):
    y = dense(net, x)
    (z,) = net.add_layer("toy.Relu", [y])
    (total,) = net.add_layer(Total(), [z])
    return merge([v.producer for v in (y, z, total)], [z, total])[0]


def test_the_last_layer_may_sum_up_what_the_others_make(net, x):
    body = summed(net, x)
    assert (body.anchor, body.results) == (0, (3, 4))
    before = body.unsummarized
    assert before is not None
    assert ([n.layer.name for n in before.nodes], before.results) == (["Dense", "Relu"], (3,))
    assert before.unsummarized is None


def test_what_is_summed_up_is_a_variable(net, x):
    body = summed(net, x)
    specs = body.infer([x.spec, TensorSpec(DType.FP32, (4, 4))])
    found = program(body, specs)
    assert found.leaves == (2, 4)
    assert (found.results[1].op, found.results[1].index) == ("var", 1)


def test_nothing_stands_behind_a_sum(net, x):
    (total,) = net.add_layer(Total(), [dense(net, x)])
    (y,) = net.add_layer("toy.Relu", [total])
    dense_, total_ = (v.producer for v in (total.producer.inputs[0], total))
    with pytest.raises(NetworkError, match="a fused layer can have one anchor"):
        merge([dense_, total_, y.producer], [y])


class Largest(Total):
    """The largest of the last axis."""

    key = "toy.Largest@1"
    summarizes = False
    chains = True


def chained(net, x):
    """Two layers that are not pointwise, and something behind each."""
    (z,) = net.add_layer("toy.Relu", [dense(net, x)])
    (most,) = net.add_layer(Largest(), [z])
    (y,) = net.add_layer("toy.Neg", [most])
    return [v.producer for v in (z.producer.inputs[0], z, most, y)]


def test_the_second_of_two_anchors_may_chain(net, x):
    nodes = chained(net, x)
    body = merge(nodes, nodes[-1].outputs)[0]
    assert (body.anchor, body.is_chain, body.results) == (2, True, (5,))
    specs = body.infer([x.spec, TensorSpec(DType.FP32, (4, 4))])
    assert program(body, specs).leaves == (4,)
    assert not merge(nodes[:2], nodes[1].outputs)[0].is_chain


def test_a_chain_may_be_summed_up(net, x):
    nodes = chained(net, x)
    (total,) = net.add_layer(Total(), [nodes[2].outputs[0]])
    body = merge([*nodes[:3], total.producer], [nodes[2].outputs[0], total])[0]
    assert (body.anchor, body.is_chain) == (2, True)
    assert body.unsummarized is not None


def test_three_anchors_are_too_many(net, x):
    nodes = chained(net, x)
    (more,) = net.add_layer(Largest(), [nodes[2].outputs[0]])
    with pytest.raises(NetworkError, match="a fused layer can have one anchor"):
        merge([*nodes[:3], more.producer], [more])


def test_a_chain_is_halved_before_its_anchor(net, x):
    nodes = chained(net, x)
    body, inputs = merge(nodes, nodes[-1].outputs)
    outputs = net.add_layer(FUSED, inputs, body.title, (), body)
    first, last = apart(outputs[0].producer)
    assert [[b.layer.name for b in n.body.nodes] for n in (first, last)] == [
        ["Dense", "Relu"],
        ["Largest", "Neg"],
    ]
    assert first.given == outputs[0].producer.given
    assert last.given == first.outputs
    assert (first.is_fused, last.is_fused, last.body.anchor) == (True, True, 0)


def test_specs_of_a_merged_body_follow_from_those_of_its_parts(net, x):
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Add", [a, x])
    nodes = [a.producer, b.producer]
    body, inputs = merge(nodes, [b])
    assert known_specs(nodes, inputs) == []  # nobody has asked for theirs
    assert [len(n.specs) for n in nodes] == [2, 3]
    assert known_specs(nodes, inputs) == body.infer([x.spec])


def test_specs_are_inferred_anew_where_a_tensor_between_is_described_otherwise(net, x):
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Add", [a, x])
    nodes = [a.producer, b.producer]
    assert a.producer.specs[1] == a.spec
    a.spec = TensorSpec(DType.FP32, (3, 4))
    assert b.producer.specs[0] == a.spec
    assert known_specs(nodes, merge(nodes, [b])[1]) == []
