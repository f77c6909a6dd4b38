"""The driver: order, fixpoint, exclusivity, several outputs, dead code, errors, trace."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dtypes import DType
from tactix.base.errors import InternalError, PluginError, ShapeError
from tactix.contracts import expr
from tactix.contracts.rule import P, Rule, any_of, const, literal, var
from tactix.fuse.rewrite import fuse
from tactix_sdk.evaluate import evaluate
from tactix_sdk.scalar_layer import PointwiseLayer

DOUBLE_NEG = Rule("toy.double_neg", P.toy.Neg(P.toy.Neg(var("x"))), lambda x: x)
RELU_TWICE = Rule(
    "toy.relu_twice", P.toy.Relu(P.toy.Relu(var("x"))), lambda x: P.toy.Relu(x), benefit=2
)


def chain(net, x, *names):
    for name in names:
        (x,) = net.add_layer(f"toy.{name}", [x])
    return x


@pytest.fixture
def x(net):
    return net.add_input("x", "f32", ["n", 4])


def names(net):
    return [n.layer.name for n in net.nodes]


def test_replaces_and_sweeps(net, x, run):
    net.mark_output(chain(net, x, "Relu", "Neg", "Neg", "Leaky"), "y")
    out, trace = run(net, DOUBLE_NEG)
    assert names(out) == ["Relu", "Leaky"]
    assert trace.counts == {"toy.double_neg": 1}
    assert trace.firings[0].removed == ("neg_1", "neg")
    assert trace.firings[0].added == ()
    assert names(net) == ["Relu", "Neg", "Neg", "Leaky"], "the network given is left alone"


def test_goes_on_to_a_fixpoint(net, x, run):
    net.mark_output(chain(net, x, *["Neg"] * 9, *["Relu"] * 7, *["Neg"] * 4, "Leaky"), "y")
    out, trace = run(net, DOUBLE_NEG, RELU_TWICE)
    assert names(out) == ["Neg", "Relu", "Leaky"]
    assert trace.counts == {"toy.double_neg": 6, "toy.relu_twice": 6}


def test_a_change_far_below_the_root_is_seen(net, x):
    """The root has been looked at when, four layers before it, its pattern begins to fit."""
    far = P.toy.Relu(P.toy.Leaky(P.toy.Leaky(P.toy.Leaky(P.toy.Neg(var("x"))))))
    deep = Rule("toy.deep", far, lambda x: P.toy.Neg(x))
    alone = Rule(
        "toy.alone",
        P.toy.Relu(var("x")),
        lambda x: P.toy.Neg(x),
        lambda root, graph: _one_reader(root, graph),
    )
    zero = Rule(
        "toy.zero", P.toy.Sub(var("x"), var("x")), lambda: literal(np.zeros((1, 4), np.float32))
    )
    a = chain(net, x, "Relu")
    y = chain(net, a, "Leaky", "Leaky", "Leaky", "Relu")
    net.mark_output(net.add_layer("toy.Add", [y, net.add_layer("toy.Sub", [a, a])[0]])[0], "y")
    net.mark_output(chain(net, y, "Leaky"), "z")
    out, trace = fuse(net, [alone, zero, deep])
    assert trace.counts == {"toy.alone": 1, "toy.deep": 1, "toy.zero": 1}
    assert sorted(names(out)) == ["Add", "Leaky", "Neg"]


def _one_reader(root, graph):
    return graph.only_use(root.outputs[0]) is not None


def test_higher_benefit_goes_first_then_the_key(net, x):
    fired = []

    def rule(key, benefit):
        return Rule(
            key,
            P.toy.Relu(var("x")),
            lambda x: P.toy.Leaky(x, alpha=0.0),
            lambda: fired.append(key) or False,
            benefit,
        )

    net.mark_output(chain(net, x, "Relu"), "y")
    fuse(net, [rule("toy.c", 1), rule("toy.b", 1), rule("toy.a", 1), rule("toy.d", 9)])
    assert fired == ["toy.d", "toy.a", "toy.b", "toy.c"]


def test_canonical_rules_are_exhausted_before_fuse_rules(net, x, run):
    late = Rule(
        "toy.late",
        P.toy.Neg(P.toy.Relu(var("x"))),
        lambda x: P.toy.Neg(P.toy.Leaky(x, alpha=0.0)),
        benefit=99,
        phase="fuse",
    )
    net.mark_output(chain(net, x, "Relu", "Relu", "Neg", "Neg", "Neg"), "y")
    out, trace = run(net, late, RELU_TWICE, DOUBLE_NEG)
    assert [f.rule for f in trace.firings][-1] == "toy.late"
    assert names(out) == ["Leaky", "Neg"]


def test_interior_tensors_must_not_be_used_elsewhere(net, x, run):
    a = chain(net, x, "Neg")
    net.mark_output(net.add_layer("toy.Add", [chain(net, a, "Neg"), chain(net, a, "Relu")])[0], "y")
    out, trace = run(net, DOUBLE_NEG)
    assert sorted(names(out)) == ["Add", "Neg", "Neg", "Relu"]
    (miss,) = trace.near_misses
    assert (miss.rule, miss.node) == ("toy.double_neg", "neg_1")
    assert "used elsewhere" in miss.reason


def test_an_interior_output_of_the_network_is_a_use(net, x, run):
    a = chain(net, x, "Neg")
    net.mark_output(a, "a")
    net.mark_output(chain(net, a, "Neg", "Relu"), "y")
    out, _ = run(net, DOUBLE_NEG)
    assert names(out) == ["Neg", "Neg", "Relu"]


def test_a_rule_may_allow_other_uses(net, x, run):
    a = chain(net, x, "Neg")
    net.mark_output(net.add_layer("toy.Add", [chain(net, a, "Neg"), chain(net, a, "Relu")])[0], "y")
    out, _ = run(net, Rule("toy.shared", DOUBLE_NEG.pattern, lambda x: x, exclusive=False))
    assert sorted(names(out)) == ["Add", "Neg", "Relu"]


def test_when_tells_why_not(net, x, run):
    rule = Rule(
        "toy.shy",
        P.toy.Relu(var("x")),
        lambda x: x,
        lambda root, x: f"{root.name} has rank {x.spec.rank}",
    )
    net.mark_output(chain(net, x, "Relu"), "y")
    _, trace = run(net, rule)
    assert [(m.rule, m.node, m.reason) for m in trace.near_misses] == [
        ("toy.shy", "relu", "relu has rank 2")
    ]
    assert trace.to_json()["nearly"] == [
        {"rule": "toy.shy", "node": "relu", "reason": "relu has rank 2"}
    ]


def test_the_view_of_the_rest(net, x):
    seen = {}

    def look(root, x, graph):
        (a,) = root.given
        seen["uses"] = [(n.name, i) for n, i in graph.uses(a)]
        seen["owner"] = graph.only_use(root.outputs[0])
        seen["needs"] = graph.depends(root, a.producer), graph.depends(a.producer, root)
        seen["output"] = graph.is_output(root.outputs[0]), graph.is_output(a)
        seen["order"] = graph.position(a.producer) < graph.position(root)
        seen["symbols"], seen["held"] = graph.symbols(), [graph.holds(n) for n in (root, gone)]
        return False

    a = chain(net, x, "Neg")
    net.mark_output(chain(net, a, "Relu"), "y")
    net.mark_output(chain(net, a, "Leaky"), "z")
    gone = chain(net, a, "Neg").producer
    fuse(net, [Rule("toy.look", P.toy.Relu(var("x")), lambda x: x, look)])
    assert seen["uses"] == [("relu", 0), ("leaky", 0)]
    assert seen["owner"] is None, "an output of the network has a reader outside"
    assert (seen["needs"], seen["output"], seen["order"]) == ((True, False), (True, False), True)
    assert seen["symbols"] == {"n"}
    assert seen["held"] == [True, False]


def test_templates_make_constants_of_the_right_dtype(net, run):
    x = net.add_input("x", "f16", ["n", 4])
    (y,) = net.add_layer("toy.Neg", [x])
    net.mark_output(y, "y")
    out, _ = fuse(net, [Rule("toy.minus", P.toy.Neg(var("x")), lambda x: P.toy.Sub(0.0, x))])
    assert [v.spec.dtype.value for v in out.constants] == ["f16"]
    arrays = {"x": np.array([[1, -2, 3, 0]], np.float16)}
    np.testing.assert_array_equal(evaluate(out, arrays)["y"], evaluate(net, arrays)["y"])


def test_a_shared_template_is_made_once(net, x, run):
    def replace(x):
        half = P.toy.Neg(P.toy.Leaky(x))
        return P.toy.Add(half, half)

    net.mark_output(chain(net, x, "Relu"), "y")
    out, _ = fuse(net, [Rule("toy.twice", P.toy.Relu(var("x")), replace)])
    assert sorted(names(out)) == ["Add", "Leaky", "Neg"]


def test_several_outputs(net, x, run):
    head, tail = net.add_layer("toy.Cut", [chain(net, x, "Neg")], at=1)
    net.mark_output(chain(net, head, "Relu"), "h")
    net.mark_output(chain(net, tail, "Relu"), "t")

    def replace(x):
        cut = P.toy.Cut(x, at=1)
        return P.toy.Neg(cut), P.toy.Neg(cut.out(1))

    out, trace = run(net, Rule("toy.swap", P.toy.Cut(P.toy.Neg(var("x"))), replace))
    assert sorted(names(out)) == ["Cut", "Neg", "Neg", "Relu", "Relu"]
    assert len(trace.firings[0].added) == 3


def test_the_new_node_takes_the_name_and_the_origin(net, x, run):
    (a,) = net.add_layer("toy.Relu", [x], name="first", origin=("onnx_a",))
    (b,) = net.add_layer("toy.Relu", [a], name="second", origin=("onnx_b",))
    net.mark_output(b, "y")
    out, _ = run(net, RELU_TWICE)
    (n,) = out.nodes
    assert n.name == "second"
    assert set(n.origin) == {"onnx_a", "onnx_b"}
    assert out.output_names == ("y",)


def test_dead_layers_leave_no_use_behind(net, x, run):
    """A chain that dies frees what it read, so that what is exclusive only then is seen."""
    a = chain(net, x, "Neg")
    dead = chain(net, a, "Leaky", "Relu")
    (y,) = net.add_layer(
        "toy.Sub", [chain(net, a, "Neg"), net.add_layer("toy.Sub", [dead, dead])[0]]
    )
    net.mark_output(y, "y")
    zero = Rule(
        "toy.zero", P.toy.Sub(var("x"), var("x")), lambda: literal(np.zeros((1, 4), np.float32))
    )
    out, trace = run(net, zero, DOUBLE_NEG)
    assert names(out) == ["Sub"]
    assert trace.counts == {"toy.double_neg": 1, "toy.zero": 1}


def test_a_long_dead_chain(net, x):
    net.mark_output(net.add_layer("toy.Sub", [chain(net, x, *["Leaky"] * 3000), x])[0], "y")
    out, _ = fuse(net, [Rule("toy.cut", P.toy.Sub(var("a"), var("b")), lambda b: P.toy.Relu(b))])
    assert names(out) == ["Relu"]


def test_constants_that_nothing_reads_are_dropped(net, x, run):
    kept, gone = (net.add_constant(np.full(4, v, np.float32)) for v in (1, 0))
    (y,) = net.add_layer("toy.Add", [net.add_layer("toy.Sub", [x, gone])[0], kept])
    net.mark_output(y, "y")
    rule = Rule(
        "toy.minus_zero", P.toy.Sub(var("x"), const("c")), lambda x: x, lambda c: not c.const.any()
    )
    out, _ = run(net, rule)
    assert [v.name for v in out.constants] == [kept.name]


@pytest.mark.parametrize("case", ["input", "constant", "output"])
def test_an_output_keeps_a_tensor_of_its_own(net, x, run, case):
    rule = DOUBLE_NEG
    y = chain(net, x, "Neg", "Neg")
    if case == "constant":
        rule = Rule("toy.nil", P.toy.Neg(var("x")), lambda x: literal(np.zeros((3, 4), np.float32)))
    if case == "output":
        a = chain(net, x, "Relu")
        net.mark_output(a, "a")
        y = chain(net, a, "Neg", "Neg")
    net.mark_output(y, "y")
    out, trace = fuse(net, [rule])
    assert names(out)[-1:] == ["Neg"]
    assert "its output must stay a tensor of its own" in [m.reason for m in trace.near_misses]


def test_a_rule_that_changes_nothing_has_not_fired(net, x, run):
    nothing = Rule("toy.nothing", P.toy.Relu(var("x")), lambda root: root.outputs[0], benefit=9)
    net.mark_output(chain(net, x, "Relu", "Relu"), "y")
    out, trace = run(net, nothing, RELU_TWICE)
    assert names(out) == ["Relu"]
    assert trace.counts == {"toy.relu_twice": 1}


def test_rules_without_end(net, x):
    a = Rule("toy.there", P.toy.Relu(var("x")), lambda x: P.toy.Leaky(x))
    b = Rule("toy.back", P.toy.Leaky(var("x")), lambda x: P.toy.Relu(x))
    net.mark_output(chain(net, x, "Relu"), "y")
    with pytest.raises(
        InternalError, match=r"toy\.(there|back): rewriting does not end: \d+ rewrites"
    ):
        fuse(net, [a, b])


def test_a_rule_that_fails_is_named(net, x):
    net.mark_output(chain(net, x, "Relu"), "y")
    broken = Rule("toy.broken", P.toy.Relu(var("x")), lambda x: x.missing)
    with pytest.raises(
        InternalError, match=r"toy\.broken \(.*test_rewrite\.py:\d+\): a rule failed: .*'relu'"
    ):
        fuse(net, [broken])


@pytest.mark.parametrize("which", ["replace", "when"])
def test_a_parameter_that_the_pattern_does_not_bind_is_named(net, x, which):
    net.mark_output(chain(net, x, "Relu"), "y")
    functions = {"replace": lambda x: x, which: lambda x, y=1, *, given: x}
    with pytest.raises(PluginError, match=r"toy\.r \(.*test_rewrite\.py:\d+\) .* takes 'given'.*x"):
        fuse(net, [Rule("toy.r", P.toy.Relu(var("x")), **functions)])


def test_a_replacement_that_is_none_is_told(net, x):
    net.mark_output(chain(net, x, "Relu"), "y")
    with pytest.raises(PluginError, match=r"toy\.r \(.*\) at 'relu': its replace gave None.*when="):
        fuse(net, [Rule("toy.r", P.toy.Relu(var("x")), lambda x: None)])


def test_a_template_that_does_not_infer(net, x):
    z = net.add_input("z", "f32", ["n", 3])
    (y,) = net.add_layer("toy.Relu", [x])
    net.mark_output(y, "y")
    net.mark_output(chain(net, z, "Neg"), "w")
    odd = Rule(
        "toy.odd", P.toy.Relu(var("x")), lambda x: P.toy.Add(x, literal(np.ones(3, np.float32)))
    )
    with pytest.raises(ShapeError, match=r"toy\.odd \(.*:\d+\) at 'relu': .*do not broadcast"):
        fuse(net, [odd])


def test_a_template_that_is_none(net, x):
    net.mark_output(chain(net, x, "Relu"), "y")
    with pytest.raises(InternalError, match=r"toy\.text \(.*\): a rule failed: ValueError.*'relu'"):
        fuse(net, [Rule("toy.text", P.toy.Relu(var("x")), lambda x: "relu")])


@pytest.mark.parametrize(
    ("pattern", "fields", "message"),
    [(var("x"), {}, "its pattern is no layer"), ("toy.Relu", {}, "its pattern is no layer"),
     (any_of(P.toy.Relu(var("x")), var("x")), {}, "its pattern is no layer"),
     (P.toy.Relu(var("x")), {"numerics": "sloppy"}, "its numerics is 'sloppy'. There are: exact, "),
     (P.toy.Relu(var("x")), {"benefit": "much"}, "its benefit is 'much'. Give a number"),
     (P.toy.Relu(var("x")), {"phase": "late"}, "its phase is 'late'. There are: canonical, fuse")],
)  # fmt: skip
def test_a_rule_that_makes_no_sense(pattern, fields, message):
    with pytest.raises(PluginError, match=rf"toy\.odd: {message}"):
        Rule("toy.odd", pattern, lambda x: x, **fields)


@pytest.mark.parametrize(
    "array", [np.zeros((3, 5), np.float32), np.zeros(4, np.float32), np.zeros((3, 4), np.int32)]
)
def test_the_type_of_a_tensor_must_stay(net, x, array):
    net.mark_output(chain(net, x, "Relu", "Neg"), "y")
    with pytest.raises(InternalError, match="a rule changed a tensor's type: 'relu' was"):
        fuse(net, [Rule("toy.wrong", P.toy.Relu(var("x")), lambda: literal(array))])


def test_fits_is_asked_where_when_agrees(net, x):
    asked = []

    def fits(c, root):
        asked.append(float(c.array))
        return True if c.array < 3 else "three is too much"

    rule = Rule(
        "toy.factor",
        P.toy.Add(var("x"), const("c")),
        lambda x: P.toy.Neg(x),
        lambda c: bool(c.array > 1),
        fits=fits,
    )
    for k in (1, 2, 3):
        (y,) = net.add_layer("toy.Add", [x, net.add_constant(np.float32(k))])
        net.mark_output(y, f"y{k}")
    out, trace = fuse(net, [rule])
    assert set(asked) == {2, 3}
    assert names(out) == ["Add", "Neg", "Add"]
    assert [m.reason for m in trace.near_misses] == ["three is too much"]


def called(net):
    return {v.name: v.called for v in net.values if v.called}


def test_what_takes_the_place_of_a_tensor_has_its_names(net, x):
    moved = Rule(
        "toy.moved", P.toy.Relu(P.toy.Neg(var("x"))), lambda x: P.toy.Neg(P.toy.Leaky(x, alpha=2.0))
    )
    (n,) = net.add_layer("toy.Neg", [x])
    (r,) = net.add_layer("toy.Relu", [n])
    (y,) = net.add_layer("toy.Sub", [r, x])
    net.mark_output(y, "y")
    for v, name in ((n, "negative"), (r, "positive"), (y, "last")):
        net.call(v, name)
    out, _ = fuse(net, [moved])
    assert names(out) == ["Leaky", "Neg", "Sub"]
    found = {n.layer.name: n.outputs[0].called for n in out.nodes}
    assert found == {"Leaky": (), "Neg": ("positive",), "Sub": ("last",)}


def test_a_tensor_that_takes_the_place_of_another_has_the_names_of_both(net, x):
    v = chain(net, x, "Relu", "Neg", "Neg")
    net.mark_output(chain(net, v, "Leaky"), "y")
    net.call(v.producer.given[0].producer.given[0], "first")
    net.call(v, "again")
    out, _ = fuse(net, [DOUBLE_NEG])
    assert called(out) == {"x": ("x",), "relu": ("first", "again")}


CAST = PointwiseLayer("toy.Half@1", lambda x: expr.cast(x, DType.FP16))
WIDE = PointwiseLayer("toy.Wide@1", lambda x: expr.cast(x, DType.FP32))
FIXED = PointwiseLayer("toy.Fixed@1", lambda x: expr.cast(x, DType.INT8))


def test_roundings_to_16_bits_are_the_tensor_still(net, x):
    net.layers = {**net.layers, **{layer.key: layer for layer in (CAST, WIDE, FIXED)}}
    low = Rule(
        "toy.low",
        P.toy.Neg(var("x")),
        lambda x: P.toy.Wide(P.toy.Relu(P.toy.Half(x))),
        lambda x: x.spec.dtype is DType.FP32,
    )
    (n,) = net.add_layer("toy.Neg", [x])
    net.call(n, "negative")
    net.mark_output(net.add_layer("toy.Fixed", [n])[0], "y")
    out, _ = fuse(net, [low])
    found = {n.layer.name: n.outputs[0].called for n in out.nodes}
    assert found == {"Half": ("x",), "Relu": ("negative",), "Wide": ("negative",), "Fixed": ()}
