"""Random numbers in C are numpy's own of the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from harness import (
    COMPILER,
    NATIVE,
    Case,
    Run,
    _compile,
    _library,
    arrays_of,
    check_all,
    layer,
    node,
)

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.graph import Node, Value
from tactix_cpu.tactics.draws import DrawTactic, DropoutTactic, MultinomialTactic, ziggurat

DRAW, MULTINOMIAL, DROPOUT = DrawTactic(), MultinomialTactic(), DropoutTactic()
FLOATS = (DType.FP64, DType.FP32, DType.FP16, DType.BF16)


def drawn(name, **attrs):
    """A node without inputs."""
    op = layer(name)
    made = op.Attrs(**attrs)
    out = [Value("out0", op.infer(made, [])[0])]
    return Node(name.lower(), op, made, [], out)


def runs(case, nt=1):
    """Results of the kernel, from its library."""
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    function = getattr(_library(binary), binary.symbol)
    run = Run(case.node, variant, artifact, dict(case.env))
    return lambda: run(function, arrays_of(case), nt)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.value)
def test_uniform_and_normal_numbers_are_those_of_numpy(dtype):
    cases = []
    for shape, seed in (((3, 1001), 0.5), ((), 7.0), ((5, 0), 1.0)):
        for made in (
            drawn("RandomUniform", shape=shape, dtype=dtype, low=-1.5, high=3.25, seed=seed),
            drawn("RandomNormal", shape=shape, dtype=dtype, mean=-2.0, scale=0.3, seed=seed),
        ):
            cases.append(Case(made, DRAW, [], nt=(1, 3), budget=0.0))
    check_all(cases)


def test_long_streams_are_numpys_to_the_bit():
    """Of the normal distribution a draw in 4,000 is beyond the last layer."""
    for name in ("RandomNormal", "RandomUniform"):
        made = drawn(name, shape=(1 << 18,), dtype=DType.FP64, seed=3.0)
        (got,) = runs(Case(made, DRAW, []))()
        (want,) = made.layer.reference(made.attrs)
        np.testing.assert_allclose(got, want, rtol=3e-16, atol=0)


def test_the_layers_of_the_ziggurat_have_the_same_area():
    width, height, inner = ziggurat()
    x = width * 2.0**52
    areas = x[2:] * (height[1:-1] - height[2:])
    np.testing.assert_allclose(areas, areas[0], rtol=1e-12)
    assert (np.diff(width[1:]) > 0).all()
    np.testing.assert_allclose(inner[2:] / 2.0**52, x[1:-1] / x[2:], rtol=1e-15)


def test_a_symbolic_number_of_draws():
    shape = (dims.sym("n"), 3)
    for name in ("RandomUniform", "RandomNormal"):
        made = drawn(name, shape=shape, seed=2.0)
        check_all([Case(made, DRAW, [], env={"n": 70}, nt=(1, 4), budget=0.0)])


def test_hits_have_the_probability_of_their_element():
    cases = []
    for code, to in (
        ("f32", DType.FP32),
        ("f16", DType.INT64),
        ("f64", DType.BOOL),
        ("bf16", DType.FP16),
    ):
        p = np.random.default_rng(1).random((7, 100)).astype(DType(code).numpy)
        p.flat[:4] = 0, 1, np.nan, -1
        made = node("RandomBernoulli", [p], dtype=to, seed=9.0)
        cases.append(Case(made, DRAW, [p], nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("code", ["f32", "f16", "f64"])
def test_classes_are_drawn_by_weight(code):
    rng, cases = np.random.default_rng(4), []
    for rows, classes, sample, to in (
        (4, 10, 300, "i32"),
        (1, 1, 5, "i64"),
        (0, 3, 2, "i32"),
        (3, 5, 0, "i64"),
    ):
        x = rng.standard_normal((rows, classes)).astype(DType(code).numpy)
        if rows == 4:
            x[1, 3:], x[2, 4], x[3] = -np.inf, np.nan, -np.inf
        made = node("RandomMultinomial", [x], sample_size=sample, dtype=DType(to), seed=6.0)
        cases.append(Case(made, MULTINOMIAL, [x], nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize(
    "name", ["RandomUniform", "RandomNormal", "RandomBernoulli", "RandomMultinomial"]
)
def test_without_a_seed_each_run_gives_other_numbers(name):
    p = np.full((2, 64), 0.5, np.float32)
    if name == "RandomBernoulli":
        made = node(name, [p])
    elif name == "RandomMultinomial":
        made = node(name, [p], sample_size=64)
    else:
        made = drawn(name, shape=(2, 64))
    arrays = [p] if made.given else []
    run = runs(Case(made, MULTINOMIAL if name == "RandomMultinomial" else DRAW, arrays), nt=3)
    found = [run()[0].copy() for _ in range(3)]
    assert len({x.tobytes() for x in found}) == 3
    for x in found:
        assert not np.array_equal(x[0], x[1])


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.value)
def test_dropout_keeps_what_numpy_keeps(dtype):
    x = np.random.default_rng(2).standard_normal((40, 30)).astype(dtype.numpy)
    cases = []
    for ratio, training in ((0.3, True), (0.5, False), (0.0, True), (1.0, True)):
        arrays = [x, np.array(ratio, dtype.numpy), np.array(training)]
        cases.append(Case(node("TrainingDropout", arrays, seed=5), DROPOUT, arrays, nt=(1, 2)))
    empty = [x[:0], np.array(0.5, np.float32), np.array([True])]
    without = [x]
    cases += [
        Case(node("TrainingDropout", empty, seed=5), DROPOUT, empty),
        Case(node("TrainingDropout", without), DROPOUT, without),
        Case(node("TrainingDropout", [x, None, np.array(True)]), DROPOUT, [x, np.array(True)]),
    ]
    check_all(cases)
