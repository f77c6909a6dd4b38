"""c_rows_of_doubles: softmaxes and normalisations of float64: axes, parameters, epilogues."""

from __future__ import annotations

import numpy as np
from harness import Case, check_all, fused, node

from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.norm.doubles import RowsOfDoublesTactic

TACTIC = RowsOfDoublesTactic()


def _f64(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape) * 3 + 1


def test_softmaxes_over_any_axis():
    cases = []
    for shape, axis in (((7, 5), -1), ((3, 5, 4), 1), ((3, 4), 0), ((2, 1), 1), ((6,), 0)):
        x = _f64(*shape)
        for name in ("Softmax", "LogSoftmax"):
            cases.append(Case(node(name, [x], axis=axis), TACTIC, [x], nt=(1, 3)))
    check_all(cases)


def test_normalisations():
    cases = []
    for shape, axis in (((7, 10), -1), ((3, 5, 4), 1), ((3, 5), 0), ((4, 1), -1)):
        x, s, b = _f64(*shape), _f64(*shape[axis:], seed=1), _f64(*shape[axis:], seed=2)
        cases += [
            Case(node("LayerNormalization", [x, s, b], axis=axis), TACTIC, [x, s, b]),
            Case(node("RMSNormalization", [x, s], axis=axis), TACTIC, [x, s], nt=(3,)),
        ]
    x, s, b = _f64(2, 6, 3, 5), _f64(6, seed=1), _f64(6, seed=2)
    cases += [
        Case(node("InstanceNormalization", [x, s, b]), TACTIC, [x, s, b]),
        Case(node("GroupNormalization", [x, s, b], num_groups=3), TACTIC, [x, s, b]),
    ]
    check_all(cases)


def test_an_epilogue_and_a_number_that_is_none():
    x, c = _f64(4, 5), _f64(5, seed=3)
    x[1, 2] = np.nan
    steps = [("Softmax", [0], {"axis": -1}), ("Mul", [2, 1], {}), ("Relu", [3], {})]
    made = fused([x, c], steps, anchor=0)
    check_all([Case(made, TACTIC, [x, c])])


def test_narrower_numbers_are_left_to_vectors():
    x = _f64(4, 5).astype(np.float32)
    assert isinstance(TACTIC.match(node("Softmax", [x]), None), Reject)
