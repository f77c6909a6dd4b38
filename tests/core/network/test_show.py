"""The text of a network."""

from __future__ import annotations

import textwrap

import numpy as np

from tactix.base.dims import sym
from tactix.contracts.region import FUSED
from tactix.fuse.region import merge
from tactix_sdk.show import show, show_node


def test_every_line(net):
    x = net.add_input("x", "f32", ["n", 4])
    w = net.add_constant(np.ones(4, np.float32), "w")
    (y,) = net.add_layer("toy.Add", [x, w], "plus")
    (y,) = net.add_layer("toy.Scale", [y], "half", factor=0.5)
    (y,) = net.add_layer("toy.Flat", [y], "flat", shape=(sym("n") * 4,), note="all")
    (y,) = net.add_layer("toy.Optional", [y, None, y], "maybe")
    a, b = net.add_layer("toy.Halves", [y], "cut")
    net.mark_output(a, "first")
    net.mark_output(b)
    assert show(net) == textwrap.dedent("""\
        input x: f32(n, 4)
        plus: Add(x, w) -> f32(n, 4)
        half: Scale(plus) {factor=0.5} -> f32(n, 4)
        flat: Flat(half) {shape=(4*n), note=all} -> f32(4*n)
        maybe: Optional(flat, -, flat) -> f32(4*n)
        cut: Halves(maybe) -> f32(2*n), f32(2*n)
        output first: cut:0
        output cut:1: cut:1""")


def test_a_fused_node_lists_its_layers(net):
    x = net.add_input("x", "f32", ["n", 4])
    (a,) = net.add_layer("toy.Neg", [x])
    (b,) = net.add_layer("toy.Scale", [a], factor=2.0)
    body, inputs = merge([a.producer, b.producer], [b])
    (y,) = net.add_layer(FUSED, inputs, body.title, attrs=body)
    assert show_node(y.producer) == "neg + scale: [Neg, Scale](x) -> f32(n, 4)"
