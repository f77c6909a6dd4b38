"""c_norm: layers, axes, parameters, dtypes, epilogues, symbolic dims."""

from __future__ import annotations

import asked
import numpy as np
import pytest
from harness import NATIVE, Case, check, check_all, devices, fused, node

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject
from tactix_cpu.tactics.norm.norm import NormTactic

TACTIC = NormTactic()


def _f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("device", devices(), ids=lambda d: d.name)
def test_layer_and_rms_normalization(device):
    cases = []
    for shape, axis in [
        ((7, 100), -1),
        ((3, 5, 64), 2),
        ((3, 5, 7), 1),
        ((3, 5, 7), 0),
        ((4, 1), -1),
        ((1, 768), -1),
    ]:
        x, s, b = _f32(*shape) * 3 + 1, _f32(*shape[axis:], seed=1), _f32(*shape[axis:], seed=2)
        cases.append(
            Case(node("LayerNormalization", [x, s, b], axis=axis), TACTIC, [x, s, b], device=device)
        )
        cases.append(
            Case(
                node("LayerNormalization", [x, s], axis=axis),
                TACTIC,
                [x, s],
                device=device,
                nt=(3,),
            )
        )
        cases.append(
            Case(node("RMSNormalization", [x, s], axis=axis), TACTIC, [x, s], device=device)
        )
    check_all(cases)


def test_a_large_mean_does_not_cancel():
    x, s = _f32(4, 1000) + 1000, np.ones(1000, np.float32)
    check(node("LayerNormalization", [x, s]), TACTIC, [x, s], budget=1e-4)


def test_parameters_that_broadcast():
    x = _f32(3, 5, 20)
    for shape in ((1,), (5, 1), (3, 1, 1), (5, 20), ()):
        s, b = np.asarray(_f32(*shape, seed=1)), _f32(20, seed=2)
        check(node("LayerNormalization", [x, s, b], axis=1), TACTIC, [x, s, b])


@pytest.mark.parametrize("spatial", [(5, 7), (40,), (1, 1), (3, 2, 4)])
def test_instance_and_group_normalization(spatial):
    x, s, b = _f32(2, 6, *spatial) * 2 + 1, _f32(6, seed=1), _f32(6, seed=2)
    cases = [Case(node("InstanceNormalization", [x, s, b]), TACTIC, [x, s, b], nt=(1, 3))]
    cases += [
        Case(node("GroupNormalization", [x, s, b], num_groups=g), TACTIC, [x, s, b])
        for g in (1, 2, 3, 6)
    ]
    check_all(cases)


@pytest.mark.parametrize("code", ["f16", "bf16"])
def test_16_bit_floats(code):
    t = DType(code).numpy
    x, s, b = _f32(5, 200).astype(t), _f32(200, seed=1).astype(t), _f32(200, seed=2).astype(t)
    check_all(
        [
            Case(node("LayerNormalization", [x, s, b]), TACTIC, [x, s, b]),
            Case(node("RMSNormalization", [x, s]), TACTIC, [x, s]),
        ]
    )


def test_epilogues():
    x, s, b, r = _f32(4, 6, 50), _f32(50, seed=1), _f32(50, seed=2), _f32(6, 1, seed=3)
    n = fused(
        [x, s, b, r, x], [("LayerNormalization", [0, 1, 2], {}), ("Mul", [5, 3], {}), ("Add", [6, 4], {}),
                          ("Sigmoid", [7], {})], results=(8, 7), anchor=0,
    )  # fmt: skip
    check(n, TACTIC, [x, s, b, r, x])
    y = _f32(2, 6, 5, 7)
    g = fused([y, s[:6].copy(), b[:6].copy(), y], [("GroupNormalization", [0, 1, 2], {"num_groups": 2}),
                                     ("Add", [4, 3], {}), ("Relu", [5], {})], anchor=0)  # fmt: skip
    check(g, TACTIC, [y, s[:6].copy(), b[:6].copy(), y])


@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_stays_in_its_row():
    x, s = _f32(4, 60), np.ones(60, np.float32)
    x[1, 3], x[2, 50] = np.nan, np.inf
    check(node("LayerNormalization", [x, s]), TACTIC, [x, s])


@pytest.mark.parametrize("env", [{"n": 1, "s": 1}, {"n": 3, "s": 5}, {"n": 0, "s": 5}])
def test_symbolic_dims(env):
    n, s = dims.sym("n"), dims.sym("s")
    x, p = TensorSpec(DType.FP32, (n, s, 48)), TensorSpec(DType.FP32, (48,))
    y, q = TensorSpec(DType.FP32, (n, 6, s, s)), TensorSpec(DType.FP32, (6,))
    group = [node("GroupNormalization", [y, q, q], num_groups=3)] if env["n"] else []
    nodes = [
        node("LayerNormalization", [x, p, p]),
        node("InstanceNormalization", [y, q, q]),
        *group,
    ]
    check_all([Case(n, TACTIC, env=env) for n in nodes])


@pytest.mark.parametrize("name", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("code", ["f32", "f16"])
def test_parameters_of_which_only_running_tells_whether_they_repeat(name, code):
    a, b, c, d, e = (dims.sym(s) for s in "abcde")
    cases, t = [], DType(code)
    for last, axis, parameter in (
        (50, -1, (50,)),
        (50, -1, (1,)),
        (1, -1, (1,)),
        (33, 1, (4, 33)),
        (33, 1, (4, 1)),
        (33, 1, (1, 33)),
        (33, 0, (1, 1)),
    ):
        symbols = (d, e)[: len(parameter)]
        arrays = [_f32(3, 4, last), *(_f32(*parameter, seed=k) for k in (1, 2))]
        arrays = [x.astype(t.numpy) for x in arrays[: 3 if name[0] == "L" else 2]]
        specs = [TensorSpec(t, (a, b, c)), *(TensorSpec(t, symbols) for _ in arrays[1:])]
        env = {"a": 3, "b": 4, "c": last} | dict(zip("de", parameter, strict=False))
        cases.append(Case(node(name, specs, axis=axis), TACTIC, arrays, env=env, nt=(1, 3)))
    check_all(cases)


def test_a_parameter_larger_than_what_it_scales_is_refused():
    x, s = TensorSpec(DType.FP32, (2, 1)), TensorSpec(DType.FP32, (5,))
    with pytest.raises(ShapeError, match="does not broadcast"):
        node("LayerNormalization", [x, s])
    with dims.assumptions() as noted:
        node("LayerNormalization", [TensorSpec(DType.FP32, (2, dims.sym("n"))), s])
    assert not all(a.holds({"n": 1}) for a in noted)
    assert all(a.holds({"n": 5}) for a in noted)


def test_what_it_rejects():
    x = _f32(3, 4).astype(np.float64)
    found = asked.variants(TACTIC, node("LayerNormalization", [x, x[0]]), NATIVE)
    assert isinstance(found, Reject)
    assert "f64" in found.reason
