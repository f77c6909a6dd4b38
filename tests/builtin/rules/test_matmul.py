"""Gemm as MatMul and Add; factors in constant weights."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix_ops.rules import matmul


@pytest.mark.parametrize(("ta", "tb"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_every_gemm_is_a_product(net, apply, ta, tb, constant, scaled):
    a = net.x(*((5, "n") if ta else ("n", 5)))
    shape = (3, 5) if tb else (5, 3)
    b = net.random(*shape) if constant else net.x(*shape, name="w")
    factors = {"alpha": 0.5, "beta": 3.0} if scaled else {}
    net.mark_output(net.add("Gemm", a, b, net.random(3), transA=ta, transB=tb, **factors), "y")
    kinds = apply(net)[0]
    product = "MatMul+Mul+Add" if scaled and not constant else "MatMul+Add"
    assert kinds == ["Transpose"] * (ta + (tb and not constant)) + [product]


@pytest.mark.parametrize("c", [None, (), (1,), (3,), (1, 3), (4, 1), (4, 3)])
def test_terms_of_a_gemm(net, apply, c):
    inputs = [net.x(4, 5), net.random(5, 3), *([] if c is None else [net.random(*c)])]
    net.mark_output(net.add("Gemm", *inputs), "y")
    assert apply(net)[0] == ["MatMul" if c is None else "MatMul+Add"]


def test_a_term_without_weight_is_not_read(net, apply):
    net.mark_output(
        net.add("Gemm", net.x("n", 5), net.random(5, 3), net.c([np.nan] * 3), beta=0.0), "y"
    )
    assert [n.layer.name for n in fuse(net, matmul.RULES)[0].nodes] == ["MatMul"]


@pytest.mark.parametrize("layer", ["Mul", "Div"])
@pytest.mark.parametrize("shape", [(), (3,), (1, 1, 3)])
def test_factors_of_columns_join_the_weights(net, apply, layer, shape):
    y = net.add("MatMul", net.x("n", 4, 5), net.random(5, 3))
    net.mark_output(net.add(layer, y, net.c(net.rng.random(shape) + 0.5)), "y")
    assert apply(net)[0] == ["MatMul"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("layer", ["Mul", "Div"])
def test_factors_join_weights_and_bias_behind_a_move(net, apply, layer, moved, bias):
    y = net.add("MatMul", net.x("n", 4, 5), net.random(5, 3))
    if bias:
        y = net.add("Add", net.random(3), y)
    if moved:
        y = net.add("Transpose", y, perm=(0, 2, 1))
    c = net.c(net.rng.random((3, 1) if moved else (3,)) + 0.5)
    net.mark_output(net.add("Softmax", net.add(layer, y, c)), "y")
    product = "MatMul+Add" if bias else "MatMul"
    assert apply(net)[0] == [product, *(["Transpose"] if moved else []), "Softmax"]


def test_factors_of_a_sum_with_rows_stay(net, apply):
    y = net.add("MatMul", net.x("n", 4, 5), net.random(5, 3))
    y = net.add("Mul", net.add("Add", y, net.random(4, 1)), net.random(3))
    net.mark_output(y, "y")
    assert "tactix.factor_into_weights" not in apply(net)[2].counts


@pytest.mark.parametrize("shape", [(4, 1), (4, 3), (2, 1, 1, 1)])
def test_factors_of_rows_do_not(net, apply, shape):
    y = net.add("MatMul", net.x("n", 4, 5), net.random(5, 3))
    net.mark_output(net.add("Mul", y, net.random(*shape)), "y")
    assert not {"tactix.factor_into_weights"} & set(apply(net)[2].counts)


def test_a_quotient_the_other_way_round(net, apply):
    y = net.add("MatMul", net.x("n", 5), net.c(np.ones((5, 3))))
    net.mark_output(net.add("Div", net.c(2), net.add("Exp", y)), "y")
    assert apply(net)[0] == ["MatMul+Exp+Div"]


@pytest.mark.parametrize("layer", ["Mul", "Div"])
def test_a_factor_of_the_input_joins_the_weights(net, apply, layer):
    y = net.add(layer, net.x("n", 4, 5), net.c(0.125))
    net.mark_output(net.add("MatMul", y, net.random(5, 3)), "y")
    assert apply(net)[0] == ["MatMul"]


def test_a_number_over_the_input_does_not(net, apply):
    y = net.add("Div", net.c(0.125), net.add("Exp", net.x("n", 5)))
    net.mark_output(net.add("MatMul", y, net.random(5, 3)), "y")
    assert apply(net)[0] == ["Exp+Div", "MatMul"]


def test_factors_of_the_inputs_columns_do_not(net, apply):
    y = net.add("Mul", net.x("n", 5), net.random(5))
    net.mark_output(net.add("MatMul", y, net.random(5, 3)), "y")
    assert apply(net)[0] == ["Mul", "MatMul"]


BEYOND = [
    (np.float16, 1e3, 1e3),
    (np.float16, 1e-3, 1e-4),
    (np.float32, 1e20, 1e20),
    (np.float32, 1e-25, 1e-25),
]


@pytest.mark.parametrize(("dtype", "first", "second"), BEYOND)
@pytest.mark.parametrize("layer", ["Mul", "Div"])
def test_what_the_weights_cannot_hold_stays_apart(net, dtype, first, second, layer):
    w = net.c(net.rng.standard_normal((4, 6)) * first, dtype)
    y = net.add("MatMul", net.x("n", 4, dtype="f16" if dtype == np.float16 else "f32"), w)
    other = 1 / second if layer == "Div" else second
    c = net.c(other, dtype)
    net.mark_output(net.add(layer, y, c), "y")
    rules = [r for r in matmul.RULES if r.key != "tactix.gemm"]
    out, _ = fuse(net, rules)
    assert [n.layer.name for n in out.nodes] == ["MatMul", layer]


def test_columns_of_zeros_keep_no_factor_apart(net, apply):
    w = net.rng.standard_normal((4, 6)).astype(np.float32)
    w[:, 2] = 0
    y = net.add("MatMul", net.x("n", 4), net.c(w))
    net.mark_output(net.add("Mul", y, net.c(0.5)), "y")
    assert apply(net, "factor_into_weights")[0] == ["MatMul"]


def test_a_factor_before_that_the_weights_cannot_hold_stays(net):
    x = net.add("Mul", net.x("n", 4, dtype="f16"), net.c(1e-5, np.float16))
    net.mark_output(net.add("MatMul", x, net.c(np.full((4, 5), 0.01), np.float16)), "y")
    out, _ = fuse(net, matmul.RULES)
    assert [n.layer.name for n in out.nodes] == ["Mul", "MatMul"]


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("positions", True),
        ("twice", True),
        ("a vector", False),
        ("read by others", False),
        ("an output", False),
        ("wide", False),
    ],
)
def test_positions_are_added_behind_products(net, apply, case, found):
    """Constant rows beside tokens, as encoders add them before q and k."""
    rows, width = (20, 100) if case == "wide" else (3, 4)
    x = net.x("n", rows, 8)
    y = net.add("Add", x, net.random(8) if case == "a vector" else net.random(rows, 8))
    y2 = net.add("Add", net.add("MatMul", y, net.random(8, width)), net.random(width))
    net.mark_output(y2, "y")
    if case == "twice":
        net.mark_output(net.add("MatMul", y, net.random(8, 4)), "z")
    if case == "read by others":
        net.mark_output(net.add("Exp", y), "z")
    if case == "an output":
        net.mark_output(y, "z")
    kinds = apply(net)[0]
    assert (set(kinds) == {"MatMul+Add"}) is found
