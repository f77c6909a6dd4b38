"""c_cumulative against its reference: axes that are known or told, every dtype."""

from __future__ import annotations

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check_all, node
from select_cases import CODES, drawn

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.scan.cumulative import CumulativeTactic

TACTIC = CumulativeTactic()
WAYS = [{"exclusive": a, "reverse": b} for a in (False, True) for b in (False, True)]


@pytest.mark.parametrize("code", [c for c in CODES if c != "bool"])
@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
def test_every_dtype_and_axis(name, code):
    x = drawn(code, 5, 30, 70)
    if DType(code).is_float:
        x = (1 + x.astype(np.float64) / 100).astype(x.dtype)
    cases = []
    for axis in (0, 1, -1):
        for way in WAYS:
            cases.append(Case(node(name, [x], axis=axis, **way), TACTIC, [x], nt=(1, 3)))
        told = [x, np.array(axis, np.int32)]
        cases.append(Case(node("DynamicCumulative", told, fold=name), TACTIC, told))
    check_all(cases)


@pytest.mark.parametrize("env", [{"n": 0, "s": 9}, {"n": 3, "s": 0}, {"n": 7, "s": 70}])
def test_symbolic_sizes(env):
    x = TensorSpec(DType.FP32, (dims.sym("n"), dims.sym("s")))
    cases = [Case(node("CumSum", [x], axis=axis), TACTIC, env=env) for axis in (0, 1)]
    axis = TensorSpec(DType.INT64, ())
    check_all([*cases, Case(node("DynamicCumulative", [x, axis]), TACTIC, env=env)])


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_that_is_not_there_is_refused(axis):
    arrays = [drawn("f32", 3, 4), np.array(axis)]
    case = Case(node("DynamicCumulative", arrays), TACTIC, arrays)
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(case.node, variant, artifact, {})
    run(getattr(_library(binary), binary.symbol), arrays, 1)
    assert run.fault.array(np.int64, (5,)).tolist()[:3] == [2, axis, 2]
