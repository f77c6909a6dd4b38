"""The search for layers that must stay wide, and the roundings that it replays plans with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

import tactix
from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError, InvalidArgument, PlanCompatibilityError
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Operand, Step
from tactix.contracts.region import FUSED, Body, BodyNode, encode
from tactix.plan.schema import Plan
from tactix.run.observed import RunningStep
from tactix_inspect.emulation import Emulation, to_bf16, to_fp16, to_int8
from tactix_inspect.precision import LoweredRuns, PrecisionSearch, departed, escaped
from tactix_tools.cli import OK, PLAN, USAGE, main

RNG = np.random.default_rng(3)
FIND = tactix.Session(group="build").layers.__getitem__


# -- the search, over errors that are known ---------------------------------------------------------


def independent(errors: list[float]) -> Callable[[frozenset[int]], float]:
    return lambda lowered: math.sqrt(sum(errors[i] ** 2 for i in lowered))


def searched(errors: list[float], max_error: float, budget: float = 1e9) -> PrecisionSearch:
    return PrecisionSearch(len(errors), independent(errors), max_error, budget)


def test_nothing_stays_wide_where_all_may_be_lowered() -> None:
    assert searched([1e-3] * 9, 0.01).run() == frozenset()


@pytest.mark.parametrize("culprits", [(0,), (99,), (7, 8), (3, 50, 51, 98)])
@pytest.mark.parametrize("bad", [0.5, math.inf])
def test_the_culprits_alone_stay_wide(culprits: tuple[int, ...], bad: float) -> None:
    errors = [bad if i in culprits else 1e-4 for i in range(100)]
    asked = list[frozenset[int]]()
    known = independent(errors)
    search = PrecisionSearch(100, lambda s: (asked.append(s), known(s))[1], 0.01, 1e9)
    assert search.run() == frozenset(culprits)
    assert search.settled
    assert len(asked) <= 5 + 15 * len(culprits)


def test_no_smaller_set_would_do_where_all_are_alike() -> None:
    errors = [float(x) for x in RNG.uniform(0.5e-3, 2e-3, 40)]
    wide = searched(errors, 0.006).run()
    known = independent(errors)
    everything = frozenset(range(40))
    assert known(everything - wide) <= 0.006
    assert all(known(everything - (wide - {i})) > 0.006 for i in wide)
    assert len(wide) <= 1 + sum(
        math.sqrt(sum(e**2 for e in sorted(errors)[: 40 - k])) > 0.006 for k in range(40)
    )


def test_a_search_without_time_keeps_what_is_good_enough() -> None:
    search = searched([0.5 if i == 4 else 1e-3 for i in range(20)], 0.01, 1e-9)
    wide = search.run()
    assert not search.settled
    assert 4 in wide


# -- roundings ------------------------------------------------------------------------------------


def test_roundings_are_those_of_the_dtypes() -> None:
    x = (RNG.standard_normal(10000) * np.exp(RNG.uniform(-20, 12, 10000))).astype(np.float32)
    x[:4] = [np.inf, -np.inf, np.nan, 0]
    np.testing.assert_array_equal(to_bf16(x), x.astype(ml_dtypes.bfloat16).astype(np.float32))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(to_fp16(x), x.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(to_fp16(np.float32([1e6])), [np.inf])
    y = np.float32([-254, 0, 1, 1.1, 200])
    np.testing.assert_array_equal(to_int8(y), [-254, 0, 0, 2, 200])
    np.testing.assert_array_equal(to_int8(np.zeros(3, np.float32)), np.zeros(3))


def test_an_error_is_relative_and_infinite_where_a_number_is_none() -> None:
    want = np.float32([3, 4, np.inf])
    assert departed(np.float32([3, 4.5, np.inf]), want) == pytest.approx(0.1)
    assert departed(np.float32([3, np.nan, np.inf]), want) == math.inf
    assert departed(np.array([1]), np.array([2])) == 0.0


def test_a_pattern_fits_a_name_alone() -> None:
    assert escaped("a/b[0]*") == "a/b[[]0][*]"


# -- a model --------------------------------------------------------------------------------------

CANCELLING = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 16] x) => (float[n, 8] y) <
  float[16, 16] a = {}, float[16, 16] b = {}, float[16, 8] c = {}, float s = {1000}, float[16] k = {}
> {
  f = MatMul (x, a)
  g = Tanh (f)
  h = Add (g, s)
  i = MatMul (h, b)
  j = Sub (i, k)
  l = Relu (j)
  y = MatMul (l, c)
}
"""
"""The second product reads shifted numbers, and the share of the shift is taken away again."""
OVERFLOWING = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 16] x) => (float[n, 8] y) <float[16, 16] a = {}, float[16, 16] b = {}, float[16, 8] c = {}> {
  f = MatMul (x, a)
  h = Mul (f, f)
  i = MatMul (h, b)
  l = Relu (i)
  y = MatMul (l, c)
}
"""
"""The second product reads squares beyond what float16 holds."""
LARGE = 1000


def model(text: str) -> onnx.ModelProto:
    found = onnx.parser.parse_model(text)
    a, b = (RNG.standard_normal((16, 16), np.float32) / 4 for _ in range(2))
    c = RNG.standard_normal((16, 8), np.float32) / 4
    arrays = {"a": a, "b": b, "c": c, "k": LARGE * b.sum(0, np.float64)}
    if text is OVERFLOWING:
        arrays |= {"a": a * LARGE, "b": b / LARGE}
    for t in found.graph.initializer:
        if t.name in arrays:
            t.CopyFrom(onnx.numpy_helper.from_array(arrays[t.name].astype(np.float32), t.name))
    for node in found.graph.node:
        node.name = f"layer {node.output[0]}"
    return found


@pytest.mark.parametrize(
    ("text", "precision"),
    [(CANCELLING, "bf16"), (CANCELLING, "int8"), (OVERFLOWING, "fp16")],
)
def test_the_layer_that_fewer_bits_ruin_is_named(
    text: str,
    precision: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, plan, data = (tmp_path / name for name in ("m.onnx", "m.plan", "x.npy"))
    onnx.save(model(text), str(path))
    tactix.build(path, level=0, timing_cache=False).save(plan)
    np.save(data, RNG.standard_normal((8, 16), np.float32))
    args = ["debug", "precision", str(path), "--plan", str(plan), "--precision", precision]
    args += ["--max-error", "0.1", "--data", str(data)]
    assert main([*args, "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert "layer i:fp32" in told["options"]
    assert "layer y:fp32" not in told["options"]
    assert told["error"] == "inf" if precision == "fp16" else told["error"] > 0.1
    assert told["reached"] <= 0.1
    assert main(args) == OK
    assert "--layer-precision 'layer i:fp32'" in capsys.readouterr().out


def test_a_plan_is_built_where_none_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(OVERFLOWING), str(path))
    assert main(["debug", "precision", str(path), "--shapes", "x:4x16", "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] == 3
    assert told["options"] == []


def test_plans_that_cannot_be_replayed_are_refused(tmp_path: Path) -> None:
    engine = tactix.build(model(OVERFLOWING), level=0, timing_cache=False)
    context = engine.create_execution_context()
    with pytest.raises(ConfigError, match="no precision 'fp8'"):
        Emulation("fp8", FIND)
    gpu = replace(engine.plan, device={"kind": "cuda"})
    with pytest.raises(PlanCompatibilityError, match="on the CPU"):
        LoweredRuns(gpu, context, [], Emulation("bf16", FIND))
    mute = replace(engine.plan, steps=tuple(replace(s, info={}) for s in engine.plan.steps))
    with pytest.raises(PlanCompatibilityError, match="no step of the plan could be lowered"):
        LoweredRuns(mute, context, [], Emulation("bf16", FIND))
    nameless = (replace(s, info={**s.info, "origin": []}) for s in engine.plan.steps)
    with pytest.raises(PlanCompatibilityError, match="does not name its layers"):
        LoweredRuns(
            replace(engine.plan, steps=tuple(nameless)), context, [], Emulation("bf16", FIND)
        )
    path = tmp_path / "mute.plan"
    tactix.Runtime().load(mute).save(path)
    model_path = tmp_path / "m.onnx"
    onnx.save(model(OVERFLOWING), str(model_path))
    assert main(["debug", "precision", str(model_path), "--plan", str(path)]) == PLAN


def test_a_plan_of_another_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its inputs and layers are some of the model's, as of a smaller network of one family."""
    ours, theirs, plan = (tmp_path / name for name in ("a.onnx", "b.onnx", "b.plan"))
    onnx.save(model(CANCELLING), str(ours))
    smaller = model(CANCELLING)
    product = next(n for n in smaller.graph.node if n.name == "layer i")
    product.name, product.op_type, product.input[1] = "other", "Add", "k"
    onnx.save(smaller, str(theirs))
    tactix.build(theirs, level=0, timing_cache=False).save(plan)
    assert main(["debug", "precision", str(ours), "--plan", str(plan)]) == USAGE
    said = " ".join(capsys.readouterr().err.split())
    assert "is of another model: the plan has no layer 'layer i'. Give a plan of this one" in said
    renamed = model(CANCELLING)
    renamed.graph.input[0].name = renamed.graph.node[0].input[0] = "z"
    onnx.save(renamed, str(ours))
    assert main(["debug", "precision", str(ours), "--plan", str(plan)]) == USAGE
    assert "the model has no input 'x'" in " ".join(capsys.readouterr().err.split())


BRANCHING = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 16] x, bool c) => (float[4, 8] y) <float[16, 8] w = {}> {
  y = If (c) <
    then_branch = t () => (float[4, 8] p) { p = MatMul (x, w) },
    else_branch = e () => (float[4, 8] q) { s = Slice (x, i, j) q = Relu (s) }
  >
}
"""


def test_steps_that_do_not_run_are_no_advice() -> None:
    text = BRANCHING.replace("w = {}>", "w = {}, int64[2] i = {0, 0}, int64[2] j = {4, 8}>")
    found = onnx.parser.parse_model(text)
    w = RNG.standard_normal((16, 8)).astype(np.float32)
    found.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(w, "w"))
    engine = tactix.build(found, level=0, timing_cache=False)
    x = RNG.standard_normal((4, 16)).astype(np.float32)
    with engine.create_execution_context() as context:
        runs = LoweredRuns(
            engine.plan, context, [{"x": x, "c": np.array(True)}], Emulation("bf16", FIND)
        )
        assert (len(runs.steps), runs.idle) == (1, 0)
        with pytest.raises(InvalidArgument, match="no step that could be lowered runs"):
            LoweredRuns(
                engine.plan, context, [{"x": x, "c": np.array(False)}], Emulation("bf16", FIND)
            )


class _Arrays(RunningStep):
    """A step over arrays by buffer."""

    def __init__(self, step: Step[Plan], arrays: dict[int, np.ndarray]) -> None:
        self.step, self.env, self.arrays = step, {}, arrays

    def stored(self, o: Operand) -> np.ndarray:
        return self.arrays[o.buffer]

    def store(self, o: Operand, x: np.ndarray) -> None:
        self.arrays[o.buffer] = x


def test_what_a_product_reads_inside_of_a_step_is_rounded_by_its_reference() -> None:
    tanh, product = FIND("tactix.Tanh@1"), FIND("tactix.MatMul@1")
    nodes = (
        BodyNode("t", tanh, tanh.Attrs(), (0,)),
        BodyNode("m", product, product.Attrs(), (2, 1)),
    )
    specs = [TensorSpec(DType.FP32, s) for s in ((4, 16), (16, 8), (4, 8))]
    x, w, y = (Operand(i, spec, LINEAR) for i, spec in enumerate(specs))
    info = {"reference": encode(FUSED, Body(2, nodes, (3,), 1)), "origin": ["t", "m"]}
    step: Step[Plan] = Step("t + m", KernelArtifact("none"), (x, w), (y,), info=info)
    plan = Plan("p", (), (), (), (), (step,))
    (lower,) = Emulation("bf16", FIND).lowerable(plan)
    assert (lower.layers, lower.inner) == (("m",), True)
    a, b = (RNG.standard_normal(s.at({})).astype(np.float32) for s in specs[:2])
    running = _Arrays(step, {0: a, 1: b})
    Emulation("bf16", FIND).run(running, lower)
    want = to_bf16(np.tanh(a)) @ to_bf16(b)
    np.testing.assert_allclose(running.arrays[2], want, rtol=1e-5, atol=1e-6)
