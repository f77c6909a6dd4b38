"""Initial states of zero are left out; samples come behind steps."""

from __future__ import annotations

import numpy as np
import pytest
from tests.builtin.rules.conftest import arrays, compare, names

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix_ops.rules import all_rules, processor_rules

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(net, layer, *states):
    """A layer of hidden size 2 over (t, n, 3); all of its outputs."""
    w, r = net.random(1, GATES[layer] * 2, 3), net.random(1, GATES[layer] * 2, 2)
    made = net.add_layer(
        f"tactix.{layer}", [net.x("t", "n", 3), w, r, None, None, *states], hidden_size=2
    )
    for i, v in enumerate(made):
        net.mark_output(v, f"y{i}")


def zeros(net):
    return net.add("Fill", shape=(1, sym("n"), 2), value=0.0, dtype=DType.FP32)


@pytest.mark.parametrize("layer", GATES)
def test_zero_states_vanish(net, apply, layer):
    recurrent(net, layer, *[zeros(net)] * (2 if layer == "LSTM" else 1))
    kinds, out, _ = apply(net)
    assert kinds == [layer]
    assert len(out.nodes[0].inputs) == 3


def test_zeros_cut_from_more_zeros(net, apply):
    both = net.add("Fill", shape=(2, sym("n"), 2), value=0.0, dtype=DType.FP32)
    cuts = [
        net.add("Slice", both, begins=(i,), sizes=(1,), axes=(0,), steps=(1,)) for i in range(2)
    ]
    recurrent(net, "LSTM", *cuts)
    assert apply(net)[0] == ["LSTM"]


def test_one_of_two_states(net, apply):
    recurrent(net, "LSTM", zeros(net), net.x(1, "n", 2, name="c0"))
    kinds, out, _ = apply(net)
    assert kinds == ["LSTM"]
    assert [v is None for v in out.nodes[0].inputs] == [
        False,
        False,
        False,
        True,
        True,
        True,
        False,
    ]


def test_other_states_stay(net, apply):
    ones = net.add("Fill", shape=(1, sym("n"), 2), value=1.0, dtype=DType.FP32)
    recurrent(net, "GRU", ones)
    assert apply(net)[0] == ["Expand", "GRU"]


def test_constant_states(net, apply):
    w, r = net.random(1, 6, 3), net.random(1, 6, 2)
    for i, state in enumerate((np.zeros((1, 4, 2)), np.eye(4, 2)[None])):
        x = net.x("t", 4, 3, name=f"x{i}")
        made = net.add_layer("tactix.GRU", [x, w, r, None, None, net.c(state)], hidden_size=2)
        net.mark_output(made[0], f"y{i}")
    _, out, _ = apply(net)
    assert sorted(len(n.inputs) for n in out.nodes) == [3, 6]


@pytest.mark.parametrize("layer", GATES)
def test_samples_come_behind_steps(net, layer):
    gates = GATES[layer]
    weights = [net.random(2, gates * 2, 3), net.random(2, gates * 2, 2), net.random(2, gates * 4)]
    lengths = net.c(np.array([4, 1, 3], np.int32))
    states = [net.x(3, 2, 2, name=f"s{i}") for i in range(2 if layer == "LSTM" else 1)]
    inputs = [net.x(3, 4, 3), *weights, lengths, *states]
    fields = {"hidden_size": 2, "direction": "bidirectional", "layout": 1}
    for i, v in enumerate(net.add_layer(f"tactix.{layer}", inputs, **fields)):
        net.mark_output(v, f"y{i}")
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    assert names(out).count(layer) == 1
    assert set(names(out)) == {layer, "Transpose"}
    compare(net, out, arrays(net, 4, ()))
    assert next(n for n in out.nodes if n.layer.name == layer).attrs.layout == 0
