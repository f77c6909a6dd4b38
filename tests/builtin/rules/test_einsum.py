"""Einsum as products, factors and sums; the fixture compares the numbers with numpy's einsum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix_ops.rules import einsum
from tactix_sdk.evaluate import evaluate

EQUATIONS = [
    # products, with every order of axes
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,kj->ki", (3, 4), (5, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bthd,bshd->bhts", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("bhts,bshd->bthd", (2, 2, 3, 5), (2, 5, 2, 4)),
    ("abcd,cdef->abef", (2, 3, 4, 2), (4, 2, 3, 2)),
    ("abc,cbd->da", (2, 3, 4), (4, 3, 5)),
    ("ij,j->i", (3, 4), (4,)),
    ("i,i->", (5,), (5,)),
    ("i,j->ij", (5,), (3,)),
    ("bi,bi->b", (3, 5), (3, 5)),
    # factors, sums and orders
    ("ij,ij->ji", (3, 4), (3, 4)),
    ("ijk->ki", (3, 4, 5)),
    ("ijk->", (3, 4, 5)),
    ("ij->ij", (3, 4)),
    ("ij,k->k", (3, 4), (5,)),
    ("ij", (3, 4)),
    ("ba", (3, 4)),
    ("ij,jk", (3, 4), (4, 5)),
    # diagonals
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("bii->bi", (2, 3, 3)),
    ("ibi->b", (3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("iijj->ji", (3, 3, 2, 2)),
    ("ii,ij->j", (3, 3), (3, 4)),
    # axes that are not named
    ("...ij,...jk->...ik", (2, 3, 4, 5), (3, 5, 2)),
    ("...ij,jk->...ik", (2, 3, 4, 5), (5, 2)),
    ("i...,i...->...", (4, 2, 3), (4, 2, 3)),
    ("...i->...", (4, 2, 3)),
    ("a...b,b...->a...", (2, 3, 4), (4, 3)),
    # axes of size 1 repeat
    ("bij,bjk->bik", (1, 3, 4), (2, 4, 5)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("ij,ij->i", (3, 4), (1, 4)),
    ("...ij,...jk->...ik", (2, 1, 4, 5), (3, 5, 2)),
    ("ii->i", (1, 1)),
    # more than two
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("b,bi,bij->bj", (2,), (2, 3), (2, 3, 4)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("ab,cd,ac,bd->", (2, 3), (4, 2), (2, 4), (3, 2)),
    # nothing
    ("ij,jk->ik", (3, 0), (0, 5)),
    ("ij,jk->ik", (0, 4), (4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=str)
def test_every_equation(net, apply, case):
    equation, *shapes = case
    given = [net.x(*s, name=f"x{i}") for i, s in enumerate(shapes)]
    net.mark_output(net.add("Einsum", *given, equation=equation), "y")
    assert not any("Einsum" in k for k in apply(net)[0])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bki", [("b", "s", 4), ("b", 4, "t")]),
        ("...ij,jk->...ik", [("b", "s", 4), (4, 5)]),
        ("bii->b", [("b", "s", "s")]),
        ("ij,j,i->", [("b", "s"), ("s",), ("b",)]),
    ],
)
def test_sizes_that_only_running_tells(net, apply, equation, shapes):
    given = [net.x(*s, name=f"x{i}") for i, s in enumerate(shapes)]
    net.mark_output(net.add("Einsum", *given, equation=equation), "y")
    assert not any("Einsum" in k for k in apply(net)[0])


@pytest.mark.parametrize("equation", ["".join(p) for p in itertools.permutations("bij")])
def test_every_order_of_the_result_turns_at_most_once(net, apply, equation):
    x, y = net.x(2, 3, 4), net.x(2, 4, 5, name="w")
    net.mark_output(net.add("Einsum", x, y, equation=f"bik,bkj->{equation}"), "y")
    kinds = apply(net)[0]
    assert sum("MatMul" in k for k in kinds) == 1
    assert kinds.count("Transpose") <= (3 if equation == "bji" else 1)


def test_attention_is_seen_through_it(net, apply):
    q, k, v = (net.x(2, 8, 4, 16, name=n) for n in "qkv")
    scores = net.add("Einsum", q, k, equation="bthd,bshd->bhts")
    weights = net.add("Softmax", net.add("Mul", scores, net.c(0.25)), axis=-1)
    net.mark_output(net.add("Einsum", weights, v, equation="bhts,bshd->bthd"), "y")
    assert any("Attention" in k for k in apply(net)[0])


@pytest.mark.parametrize("dtype", ["f64", "i32", "i64", "f16"])
def test_every_dtype(net, apply, dtype):
    given = [net.x(3, 4, name="a", dtype=dtype), net.x(4, 5, name="b", dtype=dtype)]
    net.mark_output(net.add("Einsum", *given, equation="ij,jk->ki"), "y")
    assert not any("Einsum" in k for k in apply(net, rtol=2e-3)[0])


def test_halves_of_three_tensors_are_joined_as_float32(net, apply):
    given = [net.x(2, 300, name=n, dtype="f16") for n in "abc"]
    net.mark_output(net.add("Einsum", *given, equation="ij,ij,ij->i"), "y")
    apply(net, "einsum", rtol=1e-3)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)]),
        ("bij,bjk->bik", [(2, 3, 1), (2, 4, 5)]),
        ("bij,bjk->bik", [(1, 1, 1), (1, 1, 1)]),
        ("bij,bjk->bik", [(0, 3, 4), (1, 4, 5)]),
        ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 1, 5)]),
        ("ij,ij->i", [(3, 4), (3, 4)]),
        ("ij,ij->i", [(3, 1), (1, 4)]),
        ("bii->bi", [(2, 3, 3)]),
        ("i,i", [(7,), (7,)]),
        ("...ij,...jk->...ik", [(2, 4, 5), (1, 5, 2)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (1, 5)]),
    ],
)
def test_axes_of_which_only_running_tells_whether_they_repeat(net, equation, shapes):
    rng, inputs = np.random.default_rng(3), {}
    for i, shape in enumerate(shapes):
        net.x(*(f"x{i}_{k}" for k in range(len(shape))), name=f"x{i}")
        inputs[f"x{i}"] = rng.standard_normal(shape).astype(np.float32)
    net.mark_output(net.add("Einsum", *net.inputs, equation=equation), "y")
    out, _ = fuse(net, einsum.RULES)
    verify(out, deep=True)
    assert not any("Einsum" in n.layer.name for n in out.nodes)
    found, wanted = (evaluate(each, inputs)["y"] for each in (out, net))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
