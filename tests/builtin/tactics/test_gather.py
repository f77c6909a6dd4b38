"""c_gather: axes, index dtypes, negative and wild indices, symbolic dims."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.move.gather import GatherTactic

TACTIC = GatherTactic()


def _f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("code", ["i64", "i32", "i8"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_gather_along_every_axis(axis, code):
    x = _f32(5, 7, 20)
    n = x.shape[axis]
    cases = []
    for shape in ((), (3,), (2, 4), (0,)):
        i = np.asarray(np.random.default_rng(1).integers(-n, n, shape)).astype(DType(code).numpy)
        cases.append(Case(node("Gather", [x, i], axis=axis), TACTIC, [x, i], nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("code", ["f64", "f16", "i64", "u8", "bool"])
def test_gather_in_other_widths(code):
    x = (_f32(9, 300) > 0).astype(DType(code).numpy)
    i = np.array([8, 0, -1, 3])
    check_all([Case(node("Gather", [x, i], axis=a), TACTIC, [x, i]) for a in (0, 1)])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements(axis):
    x = _f32(4, 6, 5)
    i = np.random.default_rng(1).integers(-x.shape[axis], x.shape[axis], (3, 2, 5))
    check(node("GatherElements", [x, i], axis=axis), TACTIC, [x, i])
    y, j = _f32(300), np.random.default_rng(2).integers(-300, 300, 77).astype(np.int32)
    check(node("GatherElements", [y, j], axis=0), TACTIC, [y, j])


@pytest.mark.parametrize(("batch", "depth"), [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1)])
def test_gather_nd(batch, depth):
    x = _f32(4, 6, 5)
    lead = x.shape[:batch]
    bound = np.array(x.shape[batch : batch + depth])
    i = np.random.default_rng(1).integers(-bound, bound, (*lead, 3, 2, depth))
    check(node("GatherND", [x, i], batch_dims=batch), TACTIC, [x, i])


@pytest.mark.parametrize(
    ("op", "wild", "fields", "kept"),
    [
        ("Gather", [7, 1, 2**40], {"axis": 0}, [1]),
        ("Gather", [2, -99, -(2**63)], {"axis": 0}, [0]),
        ("GatherND", [[2], [7], [-6]], {}, [0]),
        ("GatherElements", [[2] * 20, [7] * 20, [-6] * 20], {"axis": 0}, [0]),
    ],
)
def test_wild_indices_are_reported_and_read_nothing(op, wild, fields, kept):
    x, wild = _f32(5, 20), np.array(wild)
    case = Case(node(op, [x, wild], **fields), TACTIC, [x, wild])
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(case.node, variant, artifact, {})
    (y,) = run(getattr(_library(binary), binary.symbol), [x, wild], 1)
    wanted = np.full((3, 20), np.nan, np.float32)
    wanted[kept] = x[wild.reshape(3, -1)[kept][:, 0]]
    np.testing.assert_array_equal(y, wanted)
    reported, index, size, _, flag = run.fault.array(np.int64, (5,)).tolist()
    assert (reported, flag, size) == (1, 1, 5)
    assert index == next(i for i in wild.flat if not -5 <= i < 5)


@pytest.mark.parametrize("env", [{"n": 1, "s": 1}, {"n": 3, "s": 7}, {"n": 0, "s": 3}])
def test_symbolic_dims(env):
    n, s = dims.sym("n"), dims.sym("s")
    table, ids = TensorSpec(DType.FP32, (50, 24)), TensorSpec(DType.INT64, (n, s))
    hidden = TensorSpec(DType.FP32, (n, s, 24))
    first = np.array(0)
    check_all(
        [
            Case(node("Gather", [table, ids], axis=0), TACTIC, env=env),
            Case(node("Gather", [hidden, first], constants=(1,), axis=1), TACTIC, env=env),
        ]
    )


def test_what_it_rejects():
    found = asked.variants(
        TACTIC, node("Gather", [TensorSpec(DType.STRING, (3,)), np.array([0])], axis=0), NATIVE
    )
    assert isinstance(found, Reject)
