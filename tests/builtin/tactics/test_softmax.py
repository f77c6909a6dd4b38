"""c_softmax: axes, lengths, special values, dtypes, epilogues, symbolic dims."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, devices, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.norm.softmax import SoftmaxTactic

TACTIC = SoftmaxTactic()
BOTH = ("Softmax", "LogSoftmax")


def _f32(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 4).astype(np.float32)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_lengths_of_the_last_axis(device):
    cases = []
    for op in BOTH:
        for length in (1, 3, 16, 17, 128, 190, 200, 1000):
            x = _f32(5, length)
            cases.append(Case(node(op, [x]), TACTIC, [x], device=device, nt=(1, 3)))
    check_all(cases)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -2])
def test_every_axis(axis):
    cases = []
    for shape in ((3, 5, 4, 37), (1, 1, 1, 1), (2, 1, 3, 1), (1, 40, 1, 1), (2, 1, 1, 40)):
        x = _f32(*shape)
        cases += [Case(node(op, [x], axis=axis), TACTIC, [x]) for op in BOTH]
    check_all(cases)


@pytest.mark.parametrize("axis", [0, 1])
def test_special_values(axis):
    x = _f32(8, 300)
    inf = np.inf
    x[0, 5], x[1], x[2, 7], x[3, 299], x[4, :] = np.nan, -inf, inf, -inf, 80.0
    x[5, 0], x[6] = 1e30, -1e30
    y = x.copy() if axis else x.T.copy()
    small = y[:, :20].copy()
    check_all([Case(node(op, [a], axis=axis), TACTIC, [a]) for op in BOTH for a in (y, small)])


def test_far_below_the_largest_gives_zero():
    x = np.array([[0, -104.5, -200, -50, -87.4]], np.float32)
    check(node("Softmax", [x]), TACTIC, [x], budget=1e-7)


@pytest.mark.parametrize("code", ["f16", "bf16"])
def test_16_bit_floats(code):
    cases = []
    for length, axis in ((40, 1), (500, 1), (50, 0)):
        x = _f32(5, length).astype(DType(code).numpy)
        cases += [Case(node(op, [x], axis=axis), TACTIC, [x]) for op in BOTH]
    check_all(cases)


@pytest.mark.parametrize("length", [40, 500])
@pytest.mark.parametrize("axis", [1, 2])
def test_epilogues(length, axis):
    x = _f32(3, 6, length)
    for shape in ((6, 1), (3, 1, length), (3, 6, length), ()):
        b = np.asarray(_f32(*shape, seed=1))
        n = fused([x, b], [("Softmax", [0], {"axis": axis}), ("Mul", [2, 1], {}), ("Cast", [3], {"to": DType.FP16})],
                  results=(3, 4), anchor=0)  # fmt: skip
        check(n, TACTIC, [x, b])


@pytest.mark.parametrize("env", [{"n": 1, "s": 1}, {"n": 2, "s": 37}, {"n": 0, "s": 3}])
def test_symbolic_dims(env):
    n, s = dims.sym("n"), dims.sym("s")
    x = TensorSpec(DType.FP32, (n, 3, s, s))
    check_all(
        [Case(node(op, [x], axis=axis), TACTIC, env=env) for op in BOTH for axis in (1, 2, 3)]
    )


def test_what_it_rejects():
    found = asked.variants(TACTIC, node("Softmax", [_f32(3, 4).astype(np.float64)]), NATIVE)
    assert isinstance(found, Reject)
    assert "f64" in found.reason
