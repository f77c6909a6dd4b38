"""What a plan calls the tensors of its steps: they are those that the model has under these names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from named_values import differing, named_values, runtime_values
from onnx import parser
from onnx.helper import make_node as node
from small_models import engine, model
from test_models import feed

import tactix
from tactix.plan.schema import Plan

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from cpu_peers import make_inputs

F = np.float32
SMALL = Path(__file__).parents[1] / "models"
FOLDER = os.environ.get("TACTIX_MODELS", "")
NAMELESS = {"mobile": 0, "encoder": 5, "decoder": 3, "lstm": 1, "unet": 0}
"""Steps of small models that make what the model does not have: parts of sums, flat products."""


def sides(plan: Plan, side: str) -> Iterator[list[str]]:
    for step in plan.steps:
        names = step.info[side]
        assert isinstance(names, list)
        yield names


def check(built: tactix.Engine, path: Path, feeds: Mapping[str, Any]) -> None:
    seen = list(named_values(built, feeds))
    names = sorted({v.name for v in seen})
    want = runtime_values(onnx.load(path), names, feeds, str(path.parent))
    assert differing(seen, want) == []


@pytest.mark.parametrize("name", sorted(NAMELESS))
def test_tensors_of_steps_are_those_of_the_model(name: str) -> None:
    path = SMALL / f"{name}.onnx"
    built = tactix.build(path, level=0, timing_cache=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    check(built, path, feed(name, session, 2, 7))
    nameless = [s.name for s in built.plan.steps if not all(s.info["makes"])]
    assert len(nameless) <= NAMELESS[name], nameless
    for side, io in (("makes", built.plan.outputs), ("consumes", built.plan.inputs)):
        known = {n for names in sides(built.plan, side) for n in names}
        assert name == "lstm" or {o.name for o in io} <= known


@pytest.mark.models
@pytest.mark.skipif(not FOLDER, reason="TACTIX_MODELS names no folder")
@pytest.mark.parametrize(
    "name", ["mobilenet_v2", "bert_base", "gpt2", "efficientnet_b0", "lstm_tagger"]
)
def test_tensors_of_large_models(name: str) -> None:
    path = Path(FOLDER) / f"{name}.onnx"
    built = tactix.build(path, level=0, timing_cache=False)
    check(built, path, make_inputs(path, 1, length=31))


def test_an_output_that_has_two_names_is_told_by_its_own() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Identity", ["p"], ["y"]),
        node("Relu", ["p"], ["z"]),
    ]
    w = np.ones((3, 4), F)
    plan = engine(model(nodes, {"x": (F, (2, 3))}, ["y", "z"], {"w": w})).plan
    made = dict(zip((s.name for s in plan.steps), sides(plan, "makes"), strict=True))
    assert sorted(n for names in made.values() for n in names) == ["y", "z"]
    assert ["x", "w"] in list(sides(plan, "consumes"))


LOOP = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[2, 3] x, float[3, 3] w, int64 n) => (float[2, 3] y) {
  going = Constant <value = bool {1}> ()
  more = Exp (x)
  y = Loop (n, going, x) <
    body = body (int64 i, bool c, float[2, 3] s) => (bool d, float[2, 3] t) {
      d = Identity (c)
      p = MatMul (s, w)
      q = Softmax (p)
      t = Add (q, more)
    }
  >
}
"""


def test_bodies_have_the_names_of_their_graphs() -> None:
    plan = engine(parser.parse_model(LOOP)).plan
    (loop,) = [s for s in plan.steps if s.plans]
    assert loop.info["makes"] == ["y"]
    assert loop.info["consumes"] == ["n", "going", "x", "w", "more"]
    (body,) = loop.plans
    read = {n for names in sides(body, "consumes") for n in names}
    made = {n for names in sides(body, "makes") for n in names}
    assert {"s", "w", "more"} <= read
    assert "t" in made
    assert made <= {"", "c", "d", "p", "q", "t"}


def test_a_branch_of_lower_rank_is_no_tensor_of_the_model() -> None:
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    g (float[3] x, float[2, 3] z, bool which) => (float[2, 3] y) {
      u = If (which) <
        then_branch = yes () => (float[3] a) { a = Softmax (x) },
        else_branch = no () => (float[2, 3] b) { b = Softmax (z) }
      >
      y = Add (u, z)
    }
    """
    plan = engine(parser.parse_model(text)).plan
    (branch,) = [s for s in plan.steps if s.plans]
    assert branch.info["makes"] == [""]
    assert list(sides(branch.plans[1], "makes")) == [["b"]]


def test_a_network_made_by_hand_has_the_names_of_its_inputs_and_outputs() -> None:
    builder = tactix.Builder()
    net = builder.create_network()
    x = net.add_input("x", "f32", (2, 3))
    w = net.add_constant(np.ones((3, 4), F), "w")
    (y,) = net.add_layer("tactix.MatMul", [x, w], "product")
    (z,) = net.add_layer("tactix.Softmax", [y], "soft")
    net.mark_output(z, "z")
    config = tactix.BuilderConfig(builder_optimization_level=0, timing_cache=False)
    plan = builder.build_plan(net, config)
    assert list(sides(plan, "consumes")) == [["x", ""], [""]]
    assert list(sides(plan, "makes")) == [[""], ["z"]]
