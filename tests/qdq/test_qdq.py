"""Networks with QuantizeLinear and DequantizeLinear at random places give what ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import pytest
from qdq_networks import OPERATORS, grown
from qdq_trial import Difference, Trial, difference

CHUNKS, RULES, ENGINES = 8, 400, 24
"""Networks that are rewritten, and networks that are built: in tests of so many."""


@pytest.fixture(scope="module")
def rewriting() -> Trial:
    return Trial(engines=False)


@pytest.fixture(scope="module")
def building() -> Trial:
    return Trial()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_rewritten_networks(rewriting: Trial, chunk: int) -> None:
    found = {seed: rewriting(grown(seed)).faults for seed in range(chunk, RULES, CHUNKS)}
    assert {seed: faults for seed, faults in found.items() if faults} == {}


@pytest.mark.compiler
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_engines(building: Trial, chunk: int) -> None:
    found = {seed: building(grown(seed)).faults for seed in range(chunk, ENGINES, CHUNKS)}
    assert {seed: faults for seed, faults in found.items() if faults} == {}


@pytest.mark.compiler
def test_a_product_with_a_long_epilogue_has_a_kernel(building: Trial) -> None:
    found = building(grown(707))
    assert (found.faults, found.references) == ([], "")


def test_networks_follow_from_their_seed_and_hold_every_operator() -> None:
    networks = [grown(seed) for seed in range(RULES)]
    assert {name for n in networks for name in n.operators} == OPERATORS.keys()
    assert grown(7).model.SerializeToString() == networks[7].model.SerializeToString()


def test_a_network_without_its_quantisation_has_the_same_layers() -> None:
    for seed in range(50):
        with_, without = grown(seed), grown(seed, quantized=False)
        assert with_.operators == without.operators
        kinds = {n.op_type for n in without.model.graph.node}
        assert kinds & {"QuantizeLinear", "DequantizeLinear"} == set()


def test_differences_are_told_in_steps() -> None:
    want = np.array([3, 250, 0, 7], np.uint8)
    assert difference(np.array([3, 251, 2, 7], np.uint8), want) == Difference(4, 1, 1, 0)
    assert difference(np.array([3, 250, 40, 7], np.uint8), want) == Difference(4, 0, 1, 1)
    assert Difference(100, 16, 0).wrong
    assert Difference(100, 0, 3, 3).wrong
    assert not Difference(100, 10, 2, 2).wrong
    assert difference(np.float32([1, 2.01]), np.float32([1, 2])) == Difference(2, 0, 1, 0)
