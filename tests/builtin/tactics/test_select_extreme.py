"""c_extreme: ties, NaN, every dtype and axis, empty and symbolic sizes."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, node
from select_cases import CODES, drawn, wild

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.select.extreme import ExtremeTactic

TACTIC = ExtremeTactic()
FIRST_AND_LAST = ({}, {"select_last_index": True})


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("code", CODES)
def test_every_dtype_and_axis(name, code):
    x = drawn(code, 3, 300, 70)
    check_all(
        [
            Case(node(name, [x], axis=axis, **last), TACTIC, [x], nt=(1, 3))
            for axis in (0, 1, -1)
            for last in FIRST_AND_LAST
        ]
    )


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("code", ["f32", "f16", "bf16", "f64"])
def test_ties_nan_infinities_and_signed_zeros(name, code):
    some, zeros = wild(code), np.tile([0.0, -0.0], 300).astype(DType(code).numpy)
    numbers = some[np.isfinite(some.astype(np.float64))]
    cases = []
    for x in (some, zeros, numbers):
        for shaped, axis in ((x, 0), (np.stack([x, x[::-1]]).T.copy(), 0)):
            made = [node(name, [shaped], axis=axis, **last) for last in FIRST_AND_LAST]
            cases += [Case(n, TACTIC, [shaped]) for n in made]
    check_all(cases)


@pytest.mark.parametrize("code", ["f64", "f32", "f16", "bf16"])
def test_hardmax(code):
    x, z = drawn(code, 3, 40, 70), wild(code)
    cases = [Case(node("Hardmax", [x], axis=axis), TACTIC, [x], nt=(1, 3)) for axis in (0, 1, 2)]
    check_all([*cases, Case(node("Hardmax", [z], axis=0), TACTIC, [z])])


@pytest.mark.parametrize("env", [{"n": 0, "s": 9}, {"n": 3, "s": 1}, {"n": 70, "s": 200}])
def test_symbolic_sizes(env):
    n, s = dims.sym("n"), dims.sym("s")
    x = TensorSpec(DType.FP32, (n, s))
    for name in ("ArgMax", "Hardmax"):
        check(node(name, [x], axis=1), TACTIC, env=env)
    check(node("ArgMin", [TensorSpec(DType.INT32, (s, n))], axis=0), TACTIC, env=env)


@pytest.mark.parametrize("shape", [("n", "s"), ("s", "n")])
def test_an_axis_that_turns_out_empty_is_reported(shape):
    x = TensorSpec(DType.FP32, tuple(dims.sym(d) for d in shape))
    case = Case(node("ArgMax", [x], axis=shape.index("s")), TACTIC)
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    for n, reported in ((2, True), (0, False)):
        sizes = {"n": n, "s": 0}
        run = Run(case.node, variant, artifact, sizes)
        empty = np.zeros([sizes[d] for d in shape], np.float32)
        run(getattr(_library(binary), binary.symbol), [empty], 1)
        assert run.reported == reported


def test_what_it_rejects():
    empty = node("ArgMax", [np.zeros((3, 0), np.float32)], axis=1)
    assert isinstance(asked.variants(TACTIC, empty, NATIVE), Reject)
