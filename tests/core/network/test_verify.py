"""Each condition of a well-formed network, broken once."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.errors import NetworkError
from tactix.base.tensor import TensorSpec
from tactix.network.definition import NetworkDefinition
from tactix.network.verify import verify


@pytest.fixture
def y(net):
    x = net.add_input("x", "f32", ["n", 4])
    (y,) = net.add_layer("toy.Add", [x, net.add_constant(np.ones(4, np.float32))])
    net.mark_output(net.add_layer("toy.Neg", [y])[0], "y")
    return y


def test_a_good_network(net, y):
    verify(net)
    verify(net, deep=True)


def test_no_outputs(net):
    net.add_input("x", "f32", [2])
    with pytest.raises(
        NetworkError, match="toy: the network is not well formed: it has no outputs"
    ):
        verify(net)


def test_a_tensor_of_another_network(net, y):
    other = NetworkDefinition(net.layers)
    stray = other.add_input("stray", "f32", ["n", 4])
    net.mark_output(net.add_layer("toy.Add", [y, stray])[0], "z")
    with pytest.raises(
        NetworkError, match="layer 'add_1' reads 'stray', which belongs to another network"
    ):
        verify(net)


def test_two_layers_of_one_name(net, y):
    net.free_name("neg")
    net.mark_output(net.add_layer("toy.Neg", [y], "neg")[0], "z")
    with pytest.raises(NetworkError, match="two layers are named 'neg'"):
        verify(net)


def test_a_spec_that_no_longer_holds(net, y):
    y.spec = TensorSpec(y.spec.dtype, (3, 4))
    verify(net)
    with pytest.raises(
        NetworkError, match=r"add: .* output 'add' is f32\(3, 4\), but its inputs give f32\(n, 4\)"
    ):
        verify(net, deep=True)
