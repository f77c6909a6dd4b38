"""c_nonzero and c_compress: kernels that tell the sizes of their outputs, and whole builds of them."""

from __future__ import annotations

import numpy as np
import pytest
from harness import COMPILER, NATIVE, Case, Run, _compile, _library, check, check_all, learned, node
from select_cases import CODES, drawn

import tactix
from tactix.api import configure
from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError
from tactix.base.tensor import TensorSpec
from tactix_cpu.tactics.select.nonzero import CompressTactic, NonZeroTactic

NONZERO, COMPRESS = NonZeroTactic(), CompressTactic()


@pytest.mark.parametrize("code", CODES)
def test_places_that_are_not_zero(code):
    holes = np.random.default_rng(5).integers(0, 3, (5, 7, 70)) > 0
    x = np.where(holes, 0, drawn(code, 5, 7, 70)).astype(DType(code).numpy)
    shapes = ((5, 7, 70), (2450,), (35, 70), (2450, 1))
    arrays = [x.reshape(s) for s in shapes]
    check_all([Case(node("NonZero", [a]), NONZERO, [a], nt=(1, 3)) for a in arrays])


def test_scalars_nan_and_signed_zeros():
    wild = np.array([np.nan, 0.0, -0.0, 1e-45, -np.inf], np.float32)
    arrays = [wild, *(np.array(v, np.float32) for v in (0, 3)), np.zeros((0, 3), np.float32)]
    check_all([Case(node("NonZero", [a]), NONZERO, [a]) for a in arrays])


@pytest.mark.parametrize("env", [{"n": 0, "s": 9}, {"n": 3, "s": 1}, {"n": 70, "s": 300}])
def test_symbolic_sizes(env):
    x = TensorSpec(DType.INT32, (dims.sym("n"), dims.sym("s")))
    check(node("NonZero", [x]), NONZERO, env=env)
    some = np.random.default_rng(1).integers(0, 2, env["s"]).astype(bool)
    x = np.arange(env["n"] * env["s"], dtype=np.int32).reshape(env["n"], env["s"])
    specs = [TensorSpec(DType.INT32, (dims.sym("n"), dims.sym("s"))),
             TensorSpec(DType.BOOL, (dims.sym("s"),))]  # fmt: skip
    check(node("Compress", specs, axis=1), COMPRESS, [x, some], env=env)


@pytest.mark.parametrize("code", ["f64", "f32", "f16", "u8", "bool"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_slices_that_are_kept(code, axis):
    x = drawn(code, 6, 90, 5)
    size = x.size if axis is None else x.shape[axis]
    cases = []
    for keep in (np.ones(size, bool), np.zeros(size, bool), np.arange(size - 2) % 3 > 0):
        made = node("Compress", [x, keep], axis=axis)
        cases.append(Case(made, COMPRESS, [x, keep], nt=(1, 3)))
    check_all(cases)


def test_a_condition_may_be_longer_but_not_hold_there():
    x, keep = drawn("f32", 5), np.array([1, 0, 1, 0, 1, 0, 0], bool)
    check(node("Compress", [x, keep]), COMPRESS, [x, keep])
    case = Case(node("Compress", [x, keep]), COMPRESS)
    ((variant, artifact),) = _compile(case)
    (binary,) = COMPILER.compile([artifact.code], NATIVE)
    run = Run(case.node, variant, artifact, learned(case, [x]))
    run(getattr(_library(binary), binary.symbol), [x, ~keep], 1)
    assert run.reported


def _engine(layer, *inputs, **attrs):
    builder = tactix.Builder()
    net = builder.create_network()
    values = [net.add_input(f"x{i}", x.dtype, x.shape) for i, x in enumerate(inputs)]
    for y in net.add_layer(f"tactix.{layer}@1", values, **attrs):
        net.mark_output(y)
    return builder.build(net, configure(level=0, timing_cache=False))


@pytest.mark.compiler
def test_a_plan_runs_them_at_one_size_after_another():
    n = dims.sym("n")
    engine = _engine("NonZero", TensorSpec(DType.FP32, (n, 3)))
    assert [s.info["source"] for s in engine.plan.steps] == ["c"]
    for size, seed in ((4, 0), (4, 1), (0, 2), (50, 3), (4, 4)):
        x = np.random.default_rng(seed).integers(0, 2, (size, 3)).astype(np.float32)
        y = engine(x)
        np.testing.assert_array_equal(y, np.argwhere(x).T)


@pytest.mark.compiler
def test_a_plan_refuses_what_its_kernels_refuse_and_goes_on():
    x, keep = drawn("f32", 5), np.array([1, 0, 1, 0, 1, 0, 1], bool)
    engine = _engine("Compress", *(TensorSpec(DType.of(a.dtype), a.shape) for a in (x, keep)))
    with pytest.raises(
        ExecutionError, match="the condition of 7 asks for slices behind the last of 5"
    ):
        engine(x, keep)
    keep[6] = False
    y = engine(x, keep)
    np.testing.assert_array_equal(y, x[[0, 2, 4]])
