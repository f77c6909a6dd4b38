"""Steps of plans beside their references and beside the model: what departs, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import tactix
from tactix.base.errors import PlanCompatibilityError
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix_inspect.layers import MODEL, REFERENCE, LayersComparison, LayersReport, by_reference
from tactix_inspect.model_judge import ModelJudge
from tactix_inspect.replay import StepReplay, StepRun, check_replayable
from tactix_tools.cli import MISMATCH, OK, PLAN, main

RNG = np.random.default_rng(5)
SESSION = tactix.Session(group="build")
Feed = Mapping[str, Any]

LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 20, 9, 7] x) => (float[n, 6] y) <
  float[24, 20, 3, 3] w = {}, float[24] b = {}, float[24, 6] m = {}
> {
  c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  r = Relu (c)
  s = ReduceMean <axes = [2, 3], keepdims = 0> (r)
  p = MatMul (s, m)
  y = Softmax <axis = 1> (p)
}
"""
LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[3, 4] x, int64 times, bool odd) => (float[3, 4] y, float[3, 4] z) <float[4, 4] w = {}> {
  go = Constant <value = bool {1}> ()
  y = Loop (times, go, x) <body = b (int64 i, bool c, float[3, 4] a) => (bool d, float[3, 4] e) {
    d = Identity (c)
    f = MatMul (a, w)
    e = Tanh (f)
  }>
  z = If (odd) <then_branch = t () => (float[3, 4] u) { u = Neg (y) },
    else_branch = l () => (float[3, 4] v) { v = Exp (y) }>
}
"""
PRODUCED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x) => (float[m, 2] y) <float[1, 2] w = {}> {
  k = NonZero (x)
  f = Cast <to = 1> (k)
  t = Transpose <perm = [1, 0]> (f)
  y = MatMul (t, w)
}
"""
HALF = """
<ir_version: 8, opset_import: ["" : 17]>
g (float16[n, 8] x) => (float16[n, 5] y) <float16[8, 5] w = {}> {
  m = MatMul (x, w)
  y = Sigmoid (m)
}
"""
QUANTIZED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 16] x) => (float[4, 8] y) <
  float s = {0.05}, int8 o = {0}, int8[16, 8] w = {}, float t = {0.02}, float u = {0.1}
> {
  a = QuantizeLinear (x, s, o)
  b = DequantizeLinear (a, s, o)
  c = DequantizeLinear (w, t, o)
  m = MatMul (b, c)
  q = QuantizeLinear (m, u, o)
  y = DequantizeLinear (q, u, o)
}
"""


def parsed(text: str) -> onnx.ModelProto:
    """The model; its empty weights get random numbers."""
    model = onnx.parser.parse_model(text)
    for t in model.graph.initializer:
        if not t.dims or len(t.raw_data) + len(t.float_data) + len(t.int32_data):
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(t.data_type)
        numbers = RNG.standard_normal(list(t.dims)) * (40 if dtype == np.int8 else 1)
        t.CopyFrom(onnx.numpy_helper.from_array(numbers.astype(dtype), t.name))
    return model


def compared(
    plan: Plan,
    feed: Feed,
    model: Path | None = None,
    keep: Callable[[str, StepRun], None] | None = None,
) -> LayersReport:
    engine = tactix.Runtime(session=SESSION).load(plan)
    judges: dict[str, Any] = {REFERENCE: by_reference()}
    if model is not None:
        judges[MODEL] = ModelJudge(model)
        judges[MODEL].begin(feed)
    comparison = LayersComparison(engine.plan, judges, keep or (lambda what, run: None))
    context = engine.create_execution_context()
    context.observer = StepReplay(SESSION, comparison.visit)
    context.run(feed)
    return comparison.report()


def built(model: onnx.ModelProto) -> Plan:
    engine = tactix.build(model, level=0, timing_cache=False)
    assert isinstance(engine.plan, Plan)
    return engine.plan


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("layers") / "model.onnx"
    onnx.save(parsed(LAYERS), str(path))
    return path


@pytest.fixture(scope="module")
def plan(model: Path) -> Plan:
    return built(onnx.load(str(model)))


X = {"x": RNG.standard_normal((2, 20, 9, 7)).astype(np.float32)}


def test_no_step_of_a_right_plan_departs(plan: Plan, model: Path) -> None:
    report = compared(plan, X, model)
    assert report.passed
    assert len(report.layers) == len(plan.steps)
    compared_ones = [x for x in report.layers if "reformat" not in x.tactic]
    assert all(x.against[MODEL].budgets is not None for x in compared_ones)
    assert json.loads(json.dumps(report.to_json()))["first_departure"] is None


@pytest.mark.parametrize(
    ("text", "feed"),
    [
        (
            LOOP,
            {
                "x": RNG.standard_normal((3, 4), np.float32),
                "times": np.array(3),
                "odd": np.array(True),
            },
        ),
        (PRODUCED, {"x": np.array([1, 0, 2, 0, 3], np.float32)}),
        (HALF, {"x": RNG.standard_normal((3, 8)).astype(np.float16)}),
        (QUANTIZED, {"x": RNG.standard_normal((4, 16), np.float32)}),
    ],
    ids=["bodies", "produced", "float16", "int8"],
)
def test_plans_of_every_kind_are_replayed(text: str, feed: Feed, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = parsed(text)
    onnx.save(model, str(path))
    plan = built(model)
    report = compared(plan, feed, path)
    assert report.passed, report.to_json()
    ran = [s for p in plan.nested() for s in p.steps if not s.plans]
    assert len(report.layers) >= len(ran) - 1  # one branch of an If does not run


def _changed(plan: Plan, index: int, step: Callable[[Step[Plan]], Step[Plan]]) -> Plan:
    steps = list(plan.steps)
    steps[index] = step(steps[index])
    return replace(plan, steps=tuple(steps))


def _packed_step(plan: Plan) -> int:
    return next(i for i, s in enumerate(plan.steps) if s.constants)


def test_only_the_model_tells_that_weights_are_wrong(plan: Plan, model: Path) -> None:
    index = _packed_step(plan)
    buffers = list(plan.buffers)
    b = plan.steps[index].constants[
        next(n for n, p in plan.steps[index].artifact.constants if p.index == 1)
    ]
    moved = np.roll(np.frombuffer(plan.blobs[buffers[b].blob], np.uint8), 64)
    buffers[b] = replace(buffers[b], blob="moved")
    wrong = replace(plan, buffers=tuple(buffers), blobs={**plan.blobs, "moved": moved.data})
    assert compared(wrong, X).passed
    report = compared(wrong, X, model)
    assert report.first_departure is not None
    assert report.first_departure.name == plan.steps[index].name
    assert [x.name for x in report.layers if x.departs] == [plan.steps[index].name]


def _over_axis_0(step: Step[Plan]) -> Step[Plan]:
    """A softmax over the other axis, says its reference."""
    text = json.dumps(step.info["reference"]).replace('"axis": 1', '"axis": 0')
    return replace(step, info={**step.info, "reference": json.loads(text)})


def test_a_kernel_that_departs_from_its_reference_is_named_and_kept(plan: Plan) -> None:
    index = next(i for i, s in enumerate(plan.steps) if "tactix.Softmax@1" in s.info["layers"])  # type: ignore[operator]
    kept: dict[str, StepRun] = {}
    report = compared(_changed(plan, index, _over_axis_0), X, keep=kept.__setitem__)
    assert report.first_departure is not None
    assert report.first_departure.index == index
    assert kept["departure"].outputs[0].shape == (2, 6)


ODD = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x) => (float[n, 3] y) <float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}> {
  l = Log (x)
  m = MatMul (l, w)
  y = Softmax (m)
}
"""


def test_the_first_nan_is_named_with_its_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, inputs = tmp_path / "odd.plan", tmp_path / "x.npz"
    tactix.build(parsed(ODD), level=0, timing_cache=False).save(path)
    x = np.array([[1, 2, -3]], np.float32)
    np.savez(inputs, x=x)
    args = ["debug", "layers", str(path), "--inputs", str(inputs), "--save", str(tmp_path / "kept")]
    assert main([*args, "--json"]) == MISMATCH
    told = json.loads(capsys.readouterr().out)
    assert told["first_not_finite"]["fresh"] == "NaN"
    assert told["first_departure"] is None
    with np.load(told["saved"]["not_finite"]) as kept:
        np.testing.assert_array_equal(kept["input_0"], x)
        assert np.isnan(kept["output_0"]).any()
    assert main(args) == MISMATCH
    assert "first NaN: step 0" in capsys.readouterr().out


def test_a_plan_that_says_nothing_of_its_steps_is_refused(
    plan: Plan, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(step: Step[Plan]) -> Step[Plan]:
        return replace(step, info={k: v for k, v in step.info.items() if k != "reference"})

    mute = replace(plan, steps=tuple(map(silent, plan.steps)))
    with pytest.raises(PlanCompatibilityError, match="does not say what its steps compute"):
        check_replayable(mute)
    stripped = replace(plan, meta={**plan.meta, "stripped": ["w"]})
    with pytest.raises(PlanCompatibilityError, match="left out"):
        check_replayable(stripped)
    assert compared(mute, X, model).passed  # the model still tells
    path = tmp_path / "mute.plan"
    tactix.Runtime(session=SESSION).load(mute).save(path)
    assert main(["debug", "layers", str(path)]) == PLAN
    assert "--model" in capsys.readouterr().err


def test_the_command_compares_batches_of_data(
    plan: Plan, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = tmp_path / "right.plan", tmp_path / "x.npy"
    tactix.Runtime(session=SESSION).load(plan).save(path)
    np.save(data, np.concatenate([X["x"]] * 8))
    args = ["debug", "layers", str(path), "--model", str(model), "--data", str(data)]
    assert main([*args, "--batches", "2"]) == OK
    assert "no step departs" in capsys.readouterr().out
    assert main([*args, "--rtol", "1e-12", "--json"]) == MISMATCH
    assert json.loads(capsys.readouterr().out)["first_departure"]


def test_a_model_of_other_tensors_is_told(
    plan: Plan, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "right.plan", tmp_path / "other.onnx"
    tactix.Runtime(session=SESSION).load(plan).save(path)
    net = onnx.load(model)
    for n in net.graph.node:
        n.input[:], n.output[:] = ([x and f"its {x}" for x in xs] for xs in (n.input, n.output))
    for v in (*net.graph.input, *net.graph.output, *net.graph.initializer):
        v.name = f"its {v.name}"
    onnx.save(net, other)
    assert main(["debug", "layers", str(path), "--model", str(other)]) == OK
    assert "nothing was compared with the model" in capsys.readouterr().out
