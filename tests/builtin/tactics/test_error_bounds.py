"""The judge of kernels: honest ones pass, whatever they keep in float32; wrong ones do not,
whatever rounds inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import harness as h
import numpy as np
import pytest
from rounding_cases import GROUPS, KINDS, WIDER, group

from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.expr import Scalar
from tactix.contracts.graph import Node
from tactix.contracts.region import program
from tactix.select.bench import Expected
from tactix_codegen.numerics import evaluate
from tactix_cpu.tactics.pointwise.tactic import CpuPointwiseTactic

Arrays = Sequence[Any]
Nodes = Sequence[tuple[str, Sequence[int], Mapping[str, Any]]]
HALF: Mapping[str, Any] = {"to": DType.FP16}

LONGER: Mapping[str, tuple[Nodes, tuple[int, ...]]] = {
    "residual": (
        [("Mul", [0, 1], {}), ("Tanh", [2], {}), ("Add", [3, 0], {}), ("Cast", [4], WIDER)],
        (4, 5),
    ),
    "gate": (
        [("Sigmoid", [0], {}), ("Mul", [2, 1], {}), ("Sub", [3, 0], {}), ("Cast", [4], WIDER)],
        (3, 5),
    ),
    "two jumps": (
        [("Add", [0, 1], {}), ("Floor", [2], {}), ("Less", [3, 1], {}), ("Where", [4, 0, 3], {})],
        (5,),
    ),
    "long": (
        [("Mul", [0, 1], {}), *((("Add", "Mul")[k % 2], [k + 2, k % 2], {}) for k in range(4))],
        (6,),
    ),
    "amplified": (
        [("Sub", [0, 1], {}), ("Exp", [2], {}), ("Cast", [3], WIDER), ("Mul", [4, 4], {})],
        (5,),
    ),
}
ALL = {**GROUPS, **LONGER}


def made(name: str, kind: str) -> tuple[Node, Arrays]:
    if name in GROUPS:
        return group(name, kind)
    nodes, results = LONGER[name]
    rng = np.random.default_rng(len(name))
    arrays = [rng.standard_normal((7, 211)).astype(DType(kind).numpy) for _ in range(2)]
    return h.fused(arrays, nodes, results), arrays


def worst(node: Node, arrays: Arrays, got: Arrays) -> float:
    want = Expected(node, arrays, {})
    return max(want.departure(j, np.asarray(g)) for j, g in enumerate(got))


def in_float32(node: Node, arrays: Arrays, change: Any = lambda s: s) -> list[Any]:
    """What generated code gives: the scalar program, rounded where it says so, and where it is
    stored.
    """
    p = program(node.body, node.specs)
    return [np.asarray(evaluate(change(r), [arrays[i] for i in p.leaves])) for r in p.results]


# -- honest kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_what_rounds_everywhere_and_what_rounds_where_it_shows_passes(name: str, kind: str) -> None:
    node, arrays = made(name, kind)
    assert worst(node, arrays, list(Expected(node, arrays, {}))) == 0
    assert worst(node, arrays, in_float32(node, arrays)) <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_arithmetic_that_is_off_by_some_units_in_the_last_place_passes(
    name: str, kind: str
) -> None:
    node, arrays = made(name, kind)
    rng = np.random.default_rng(1)

    def shaky(s: Scalar) -> Scalar:
        return _rebuilt(
            s,
            lambda op, y: _off(rng, y) if op in ("mul", "add", "sub", "tanh", "exp", "div") else y,
        )

    assert worst(node, arrays, in_float32(node, arrays, shaky)) <= 1


def _off(rng: Any, y: Any) -> Any:
    return (y * (1 + rng.uniform(-4, 4, np.shape(y)) * 2.0**-24)).astype(np.float32)


def _rebuilt(s: Scalar, through: Any) -> Scalar:
    """The expression with every result of an operation sent through a function."""
    args = [_rebuilt(a, through) for a in s.args]
    again = expr._make(s.op, tuple(args), s.value)
    if s.op in ("var", "const", "cast"):
        return again
    return expr.Primitive(f"through {s.op}", 1, lambda y: through(s.op, y))(again)


# -- wrong kernels -------------------------------------------------------------------------------


def unrounded(node: Node, arrays: Arrays) -> list[Any]:
    """All in float32, rounded nowhere but where 16 bits are stored."""

    def bare(s: Scalar) -> Scalar:
        if s.op == "cast" and s.value.bits == 16:
            return bare(s.args[0])
        return expr._make(s.op, tuple(bare(a) for a in s.args), s.value) if s.args else s

    wide = [a.astype(np.float32) for a in arrays]
    p = program(node.body, node.specs)
    raw = [np.asarray(evaluate(bare(r), [wide[i] for i in p.leaves])) for r in p.results]
    return [y.astype(v.spec.dtype.numpy) for y, v in zip(raw, node.outputs, strict=True)]


UNROUNDED = (
    "wider",
    "wider of a sum",
    "both widths",
    "beside a reader",
    "wide and on",
    "residual",
    "gate",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", UNROUNDED)
def test_a_cast_that_was_not_rounded_is_rejected(name: str, kind: str) -> None:
    node, arrays = made(name, kind)
    assert worst(node, arrays, unrounded(node, arrays)) > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_a_dropped_term_is_rejected(name: str, kind: str) -> None:
    node, arrays = made(name, kind)
    first = next(k for k, n in enumerate(node.body.nodes) if len(n.inputs) == 2)
    wrong = _with(node, first, lambda n: replace(n, layer=h.layer("Max"), inputs=n.inputs[:1] * 2))
    assert worst(node, arrays, in_float32(wrong, arrays)) > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_a_wrong_operand_is_rejected(name: str, kind: str) -> None:
    """As a wrong broadcast gives: the operand of the row, or of the element, beside it."""
    node, arrays = made(name, kind)
    for axis in (0, 1):
        assert worst(node, arrays, in_float32(node, [arrays[0], np.roll(arrays[1], 1, axis)])) > 1


def _with(node: Node, k: int, change: Any) -> Node:
    body = node.body
    nodes = tuple(change(n) if i == k else n for i, n in enumerate(body.nodes))
    return Node(node.name, node.layer, replace(body, nodes=nodes), node.inputs, node.outputs)


SCALED: Mapping[str, tuple[Nodes, tuple[int, ...]]] = {
    "floor": ([("Mul", [0, 1], {}), ("Floor", [2], {})], (3,)),
    "wider": ([("Mul", [0, 1], {}), ("Cast", [2], WIDER)], (3,)),
    "jump between": ([("Mul", [0, 1], {}), ("Round", [2], {}), ("Add", [3, 0], {})], (4,)),
    "long": (
        [("Tanh", [0], {}), ("Add", [2, 0], {}), ("Mul", [3, 1], {}), ("Sub", [4, 0], {})],
        (5,),
    ),
    "both": ([("Mul", [0, 1], {}), ("Add", [2, 0], {}), ("Cast", [3], WIDER)], (3, 4)),
}


CLEAR = [
    *(("f16", n) for n in SCALED),
    ("bf16", "floor"),
    ("bf16", "jump between"),
    ("bf16", "wider"),
]


@pytest.mark.parametrize(("kind", "name"), CLEAR)
def test_a_constant_wrong_by_a_hundredth_is_rejected(kind: str, name: str) -> None:
    nodes, results = SCALED[name]
    rng = np.random.default_rng(4)
    x, c = (
        (rng.standard_normal((40, 100)) * 2).astype(DType(kind).numpy),
        np.full((1,), 1.5, DType(kind).numpy),
    )
    node = h.fused([x, c], nodes, results, constants=[1])
    assert worst(node, [x, c], in_float32(node, [x, c])) <= 1
    wrong = (c.astype(np.float32) * np.float32(1.01)).astype(np.float32)
    assert (
        worst(
            node,
            [x, c],
            [
                y.astype(v.spec.dtype.numpy)
                for y, v in zip(in_float32(node, [x, wrong]), node.outputs, strict=True)
            ],
        )
        > 1
    )


# -- where numbers are ill-conditioned -----------------------------------------------------------


def chain(names: Sequence[str], x: Any) -> Node:
    return h.fused([x], [(n, [k], {}) for k, n in enumerate(names)])


STEEP = (
    ["Tan", "Sin"],
    ["Exp", "Sin"],
    ["Tan", "Tan"],
    ["Reciprocal", "Cos"],
    ["Exp", "Exp", "Log", "Sin"],
)


@pytest.mark.parametrize("names", STEEP, ids=" ".join)
@pytest.mark.parametrize("seed", range(5))
def test_the_budget_follows_the_conditioning(names: Sequence[str], seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal((100, 640)) * 1.5).astype(np.float32)
    node = chain(names, x)
    (y,) = Expected(node, [x], {})
    once = x.astype(np.float64)
    for n in node.body.nodes:
        (once,) = n.layer.reference(n.attrs, once)
    assert worst(node, [x], [once.astype(np.float32)]) <= 1
    assert worst(node, [x], [np.nan_to_num(y) * np.float32(1.01)]) > 1
    if names[-1] != "Tan":
        assert worst(node, [x], [y + np.float32(1e-3)]) > 1


def test_kernels_of_a_steep_chain_pass_at_any_size() -> None:
    cases = []
    for size in (64, 1000, 100_003):
        x = np.random.default_rng(size).standard_normal(size, dtype=np.float32)
        cases.append((h.fused([x], [("Tan", [0], {}), ("Sin", [1], {})]), x))
    made = [h._compile(h.Case(n, CpuPointwiseTactic(), [x]))[0] for n, x in cases]
    binaries = h.COMPILER.compile([a.code for _, a in made], h.NATIVE)
    for (node, x), (variant, artifact), binary in zip(cases, made, binaries, strict=True):
        run = h.Run(node, variant, artifact, {})
        got = run(getattr(h._library(binary), binary.symbol), [x], 1)
        assert worst(node, [x], got) <= 1


def test_either_side_of_a_jump_is_right_only_within_the_error() -> None:
    """1/3 + 2/3 is 1 or a little less; 0.9 is always less."""
    x, y = np.array([1 / 3, 0.4], np.float32), np.array([2 / 3, 0.5], np.float32)
    node = h.fused(
        [x, y], [("Add", [0, 1], {}), ("Floor", [2], {}), ("Cast", [3], {"to": DType.INT32})]
    )
    for first, second, right in ((0, 0, True), (1, 0, True), (3, 0, False), (0, 1, False)):
        assert (worst(node, [x, y], [np.array([first, second], np.int32)]) <= 1) is right


def test_overflow_of_16_bits_may_come_or_not() -> None:
    x = np.array([60000, 2], np.float16)
    node = h.fused([x], [("Add", [0, 0], {}), ("Reciprocal", [1], {})])
    right = np.array([1 / 120000, 0.25], np.float16)
    assert worst(node, [x], [right]) <= 1
    assert worst(node, [x], [np.array([0, 0.25], np.float16)]) <= 1
    assert worst(node, [x], [np.array([0, 0.3], np.float16)]) > 1
    assert worst(node, [x], [np.array([0, np.nan], np.float16)]) > 1


# -- infinities, and what is no number -----------------------------------------------------------

DOMAIN: Mapping[str, Nodes] = {
    "Sqrt": [("Sqrt", [0], {})],
    "Log": [("Log", [0], {})],
    "on": [("Sqrt", [0], {}), ("Mul", [1, 0], {}), ("Tanh", [2], {})],
    "16 bits": [("Log", [0], {}), ("Cast", [1], HALF), ("Add", [2, 2], {})],
}


@pytest.mark.parametrize("name", DOMAIN)
def test_what_is_no_number_must_not_become_one(name: str) -> None:
    x = np.linspace(-4, 4, 160, dtype=np.float32)
    node = h.fused([x], DOMAIN[name])
    (y,) = Expected(node, [x], {})
    assert np.isnan(y).any()
    assert worst(node, [x], [y]) == 0
    assert worst(node, [x], in_float32(node, [x])) <= 1
    for wrong in (np.nan_to_num(y), np.where(np.isnan(y), np.inf, y), np.full_like(y, np.nan)):
        assert worst(node, [x], [wrong.astype(y.dtype)]) > 1


def test_an_infinity_must_be_the_same() -> None:
    x = np.array([0.0, -0.0, 2.0, 1e30], np.float32)
    node = h.fused([x], [("Reciprocal", [0], {}), ("Mul", [1, 1], {}), ("Sub", [2, 0], {})])
    right = np.array([np.inf, np.inf, -1.75, -1e30], np.float32)
    assert worst(node, [x], [right]) <= 1
    for k, wrong in product((0, 1), (-np.inf, np.nan, 0.0, np.finfo(np.float32).max)):
        assert worst(node, [x], [np.where(np.arange(4) == k, np.float32(wrong), right)]) > 1


UNCERTAIN: Mapping[str, tuple[Nodes, Sequence[float]]] = {
    "Reciprocal": ([("Reciprocal", [4], {}), ("Tanh", [5], {})], (1, -1)),
    "Sqrt": ([("Sqrt", [4], {}), ("Sin", [5], {}), ("Add", [6, 2], {})], (1, np.nan)),
    "Log": ([("Log", [4], {}), ("Exp", [5], {})], (0, np.nan)),
}


@pytest.mark.parametrize("name", UNCERTAIN)
@pytest.mark.parametrize("least", [-(2.0**-25), 0.0, 2.0**-25])
def test_either_side_of_a_pole_or_of_a_domain_is_right_only_within_the_error(
    name: str, least: float
) -> None:
    """0.5 + 0.5 - 1 is nothing, or next to nothing on either side of it."""
    x, y = np.array([0.5, 3, -3], np.float32), np.array([0.5 + least, 1, 1], np.float32)
    given = [x, y, np.ones(3, np.float32)]
    nodes, near = UNCERTAIN[name]
    node = h.fused(given, [("Add", [0, 1], {}), ("Sub", [3, 2], {}), *nodes])
    (right,) = Expected(node, given, {})
    for first in near:
        assert worst(node, given, [np.array([first, *right[1:]], np.float32)]) <= 1
        assert worst(node, given, [np.array([first, np.nan, right[2]], np.float32)]) > 1
        assert worst(node, given, [np.array([first, right[1], 0.5], np.float32)]) > 1


def test_overflow_of_float32_may_come_or_not() -> None:
    """A kernel may compute wider; but what it gives is float32."""
    x = np.array([100, 9], np.float32)
    node = h.fused([x], [("Exp", [0], {}), ("Sin", [1], {})])
    wide = np.sin(np.exp(x.astype(np.float64))).astype(np.float32)
    for first in (wide[0], np.nan):
        assert worst(node, [x], [np.array([first, wide[1] + 0.005], np.float32)]) <= 1
        assert worst(node, [x], [np.array([first, wide[1] + 1], np.float32)]) > 1
        assert worst(node, [x], [np.array([first, np.nan], np.float32)]) > 1


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_an_overflow_that_is_shown_is_infinite(kind: str) -> None:
    x = np.array([60000, 1, -60000] if kind == "f16" else [3e38, 1, -3e38], DType(kind).numpy)
    node = h.fused([x, x], [("Mul", [0, 0], {}), ("Mul", [0, 1], {}), ("Sub", [0, 3], {})], (2, 4))
    square, rest = np.array([np.inf, 1, np.inf], x.dtype), np.array([-np.inf, 0, -np.inf], x.dtype)
    assert worst(node, [x, x], [square, rest]) <= 1
    for k, wrong in product((0, 2), (0, np.nan, -np.inf, float(x[0]))):
        changed = np.where(np.arange(3) == k, x.dtype.type(wrong), square)
        assert worst(node, [x, x], [changed, rest]) > 1


def test_a_row_that_is_no_number_stays_none_behind_an_anchor() -> None:
    x = np.array([[60000, -60000, 1], [-1, 2, 3], [4, 5, 6]], np.float16)
    node = h.fused([x], [("Add", [0, 0], {}), ("Sqrt", [1], {}), ("Softmax", [2], {})], anchor=2)
    (y,) = Expected(node, [x], {})
    assert np.isnan(y[1]).all()
    assert worst(node, [x], [np.where(np.isnan(y), 0, y).astype(y.dtype)]) > 1


# -- around an anchor ----------------------------------------------------------------------------


def softmax(kind: str, nodes: Nodes, results: Sequence[int], anchor: int) -> tuple[Node, Arrays]:
    x = (np.random.default_rng(2).standard_normal((9, 40)) * 2).astype(DType(kind).numpy)
    return h.fused([x], nodes, results, anchor=anchor), [x]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wide_result_behind_an_anchor(kind: str) -> None:
    node, (x,) = softmax(kind, [("Softmax", [0], {}), ("Cast", [1], WIDER)], (2,), 0)
    exact = np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum(1, keepdims=True)
    narrow = exact.astype(np.float32).astype(x.dtype)
    assert worst(node, [x], [narrow.astype(np.float32)]) <= 1
    bits = np.asarray(narrow).view(np.uint16) + np.uint16(1)
    assert worst(node, [x], [bits.view(x.dtype).astype(np.float32)]) <= 1  # sums in another order
    assert worst(node, [x], [exact.astype(np.float32)]) > 1
    assert worst(node, [x], [np.roll(narrow, 1, 1).astype(np.float32)]) > 1
    assert (
        worst(node, [x], [(narrow.astype(np.float32) * 1.1).astype(x.dtype).astype(np.float32)]) > 1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_layers_before_an_anchor_may_keep_float32(kind: str) -> None:
    nodes: Nodes = [("Mul", [0, 0], {}), ("Sigmoid", [1], {}), ("Softmax", [2], {})]
    node, (x,) = softmax(kind, nodes, (3,), 2)
    y = np.exp(1 / (1 + np.exp(-(x.astype(np.float64) ** 2))))
    assert worst(node, [x], [(y / y.sum(1, keepdims=True)).astype(x.dtype)]) <= 1
    assert worst(node, [x], [np.full(x.shape, 1 / 40, x.dtype)]) > 1
