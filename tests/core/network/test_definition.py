"""Building a network: inputs, constants, layers, names, order, copies."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument, NetworkError, PluginError, ShapeError
from tactix.network.definition import NetworkDefinition
from tactix_sdk.evaluate import evaluate
from tactix_sdk.scalar_layer import PointwiseLayer


def test_inputs_name_their_dims(net):
    x = net.add_input("x", "f16", ["batch", 3, None, -1, sym("s") * 2])
    assert [str(d) for d in x.spec.shape] == ["batch", "3", "x_2", "x_3", "2*s"]
    assert x.spec.dtype is DType.FP16
    assert net.symbols() == ("batch", "s", "x_2", "x_3")


@pytest.mark.parametrize(
    ("name", "shape", "why"),
    [("x", [1], "taken"), ("", [1], "empty"), ("z", [1, -2], "cannot be -2")],
)
def test_inputs_that_cannot_be(net, name, shape, why):
    net.add_input("x", "f32", [1])
    with pytest.raises(InvalidArgument, match=why):
        net.add_input(name, "f32", shape)


def test_constants_are_known(net):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    v = net.add_constant(array, "table")
    assert (v.name, v.spec.dtype, v.spec.shape, v.producer) == ("table", DType.INT32, (2, 3), None)
    assert v.const is array, "large weights are not copied"
    assert net.add_constant(2.5).spec.dtype is DType.FP64


def test_layers_infer_at_once(net):
    x = net.add_input("x", "f32", ["n", 1])
    (y,) = net.add_layer("toy.Add", [x, net.add_input("z", "f32", [4])])
    assert str(y.spec) == "f32(n, 4)"
    assert (y.producer.layer.key, y.producer.inputs[0], y.index) == ("toy.Add@1", x, 0)


def test_shapes_flow_as_data(net):
    x = net.add_input("x", "f32", ["n", 4])
    (size,) = net.add_layer("toy.Size", [x])
    (twice,) = net.add_layer("toy.Add", [size, size])
    assert [str(v) for v in twice.spec.value] == ["2*n", "8"]


def test_a_short_name_means_the_highest_version(net):
    x = net.add_input("x", "f32", [2])
    assert net.add_layer("toy.Neg", [x])[0].producer.layer.key == "toy.Neg@10"
    assert net.add_layer("toy.Neg@1", [x])[0].producer.layer.key == "toy.Neg@1"
    own = PointwiseLayer("own.Thing@1", lambda x: x + 1)
    assert net.add_layer(own, [x])[0].producer.layer is own


def test_unknown_layers_are_the_registrys_matter(net):
    for key in ("toy.Nothing", "toy.Nothing@2"):
        with pytest.raises(KeyError, match=r"toy\.Nothing@"):
            net.add_layer(key, [])


def test_attributes_are_checked(net):
    x = net.add_input("x", "f32", [2])
    with pytest.raises(
        InvalidArgument, match=r"toy\.Scale@1: no attribute 'faktor'\. It has: factor"
    ):
        net.add_layer("toy.Scale", [x], faktor=2.0)
    with pytest.raises(InvalidArgument, match="It has: none"):
        net.add_layer("toy.Add", [x, x], factor=2.0)


def test_errors_of_inference_name_the_layer(net):
    x = net.add_input("x", "f32", ["n", 3])
    with pytest.raises(ShapeError, match="3 is odd") as e:
        net.add_layer("toy.Halves", [x], "cut")
    assert e.value.__notes__ == ["in layer 'cut' (toy.Halves@1) of f32(n, 3)"]
    with pytest.raises(
        PluginError,
        match=r"odd one \(toy\.Broken@1\): cannot infer its outputs from f32\(n, 3\), None: "
        r"infer of the pack toy failed: .*conftest\.py:\d+: [A-Za-z]+: .*tactix-sdk check DIST",
    ):
        net.add_layer("toy.Broken", [x, None], "odd one")


def test_names_are_unique(net):
    x = net.add_input("x", "f32", [2])
    names = [
        net.add_layer("toy.Neg", [x], name)[0].name for name in ("x", "", "", "neg", "mine", "mine")
    ]
    assert len({*names, "x"}) == 7
    assert names[1] == "neg"
    assert names[4:] == ["mine", "mine_1"]


def test_several_outputs_share_the_name(net):
    a, b = net.add_layer("toy.Halves", [net.add_input("x", "f32", ["n", 6])], "cut")
    assert (a.name, b.name, a.index, b.index) == ("cut:0", "cut:1", 0, 1)
    assert a.producer is b.producer


def test_outputs_have_names_of_their_own(net):
    x = net.add_input("x", "f32", [2])
    (y,) = net.add_layer("toy.Neg", [x])
    net.mark_output(y, "first")
    net.mark_output(y)
    assert net.output_names == ("first", "neg")
    assert net.outputs == (y, y)
    with pytest.raises(InvalidArgument, match="output name 'first' is taken"):
        net.mark_output(x, "first")


def test_nodes_come_producers_first_and_only_if_needed(net):
    x = net.add_input("x", "f32", [2])
    (a,) = net.add_layer("toy.Neg", [x], "a")
    net.add_layer("toy.Neg", [x], "unused")
    (b,) = net.add_layer("toy.Neg", [x], "b", position=-1.0)
    (c,) = net.add_layer("toy.Add", [b, a], "c", position=-5.0)
    net.mark_output(c)
    assert [n.name for n in net.nodes] == ["b", "a", "c"]
    assert list(net) == list(net.nodes)
    assert net.position(c.producer) == -5.0


def test_uses_are_counted_per_operand(net):
    x = net.add_input("x", "f32", [2])
    (y,) = net.add_layer("toy.Add", [x, x])
    (z,) = net.add_layer("toy.Optional", [y, None, x])
    net.mark_output(z)
    add, opt = y.producer, z.producer
    assert net.users() == {x: [(add, 0), (add, 1), (opt, 2)], y: [(opt, 0)]}
    assert opt.given == (y, x)


def test_a_cycle_is_named(net):
    x = net.add_input("x", "f32", [2])
    (a,) = net.add_layer("toy.Neg", [x], "a")
    (b,) = net.add_layer("toy.Neg", [a], "b")
    a.producer.inputs = (b,)
    net.mark_output(b)
    with pytest.raises(NetworkError, match="a, b: the layers form a cycle"):
        _ = net.nodes


def test_a_long_chain(net):
    x = net.add_input("x", "f32", [2])
    for _ in range(5000):
        (x,) = net.add_layer("toy.Neg", [x])
    net.mark_output(x, "y")
    assert len(net.nodes) == 5000
    assert len(net.copy().nodes) == 5000


def test_a_copy_is_independent(net):
    x = net.add_input("x", "f32", ["n", 4])
    c = net.add_constant(np.ones(4, np.float32))
    (y,) = net.add_layer("toy.Add", [x, c], origin=("onnx_add",))
    a, b = net.add_layer("toy.Halves", [y])
    net.mark_output(a, "a")
    net.mark_output(b, "b")
    other = net.copy()
    assert not {*other.nodes} & {*net.nodes}
    assert [n.name for n in other.nodes] == [n.name for n in net.nodes]
    assert other.nodes[0].origin == ("onnx_add",)
    assert other.constants[0].const is c.const
    net.mark_output(net.add_layer("toy.Neg", [a])[0], "more")
    assert other.output_names == ("a", "b")
    assert other.add_layer("toy.Neg", [other.inputs[0]])[0].name == "neg", (
        "names go separate ways too"
    )
    arrays = {"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    for k, want in evaluate(other, arrays).items():
        np.testing.assert_array_equal(evaluate(net, arrays)[k], want)


def test_a_symbol_may_be_limited(net):
    net.add_input("x", "f32", ["n"])
    net.limit("n", 9)
    net.limit("n", 7)
    net.limit("n", 8)
    assert net.limits == net.copy().limits == {"n": 7}


def test_an_output_follows_its_replacement(net):
    x = net.add_input("x", "f32", [2])
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Scale", [x], factor=-1.0)
    net.mark_output(a, "y")
    net.redirect_output(a, b)
    assert (net.output_names, net.outputs) == (("y",), (b,))


def test_an_output_can_be_taken_back(net):
    x = net.add_input("x", "f32", (2,))
    net.mark_output(x, "a")
    net.mark_output(x, "b")
    net.unmark_output("a")
    assert net.output_names == ("b",)
    assert net.is_output(x)
    net.unmark_output("b")
    assert not net.is_output(x)
    with pytest.raises(InvalidArgument, match="no output is named 'b'"):
        net.unmark_output("b")


def test_the_order_is_worked_out_again_only_where_something_changed(net, monkeypatch):
    found = []
    ordered = NetworkDefinition._ordered
    monkeypatch.setattr(NetworkDefinition, "_ordered", lambda net: found.append(1) or ordered(net))
    x = net.add_input("x", "f32", [4])
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Neg", [a])
    net.mark_output(b, "y")
    assert net.nodes == net.nodes == (a.producer, b.producer)
    assert len(found) == 1
    net.redirect_uses(a, x)
    assert net.nodes == (b.producer,)
    net.mark_output(a, "z")
    assert net.nodes == (a.producer, b.producer)
    assert len(found) == 3
