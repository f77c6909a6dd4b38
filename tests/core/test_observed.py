"""Runs that are observed: what an observer sees, and what it may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import InvalidArgument
from tactix.run.observed import RunningStep

X = np.random.default_rng(1).standard_normal((2, 5, 3, 4)).astype(np.float32)


def by_kernels(running: RunningStep) -> None:
    running.run()


class Seeing:
    """Keeps what each step reads and makes; ``instead`` of a step's kernels, if it is given."""

    def __init__(self, instead: Callable[[RunningStep], None] = by_kernels) -> None:
        self.instead = instead
        self.seen: list[tuple[str, list[Any], list[Any]]] = []

    def step(self, running: RunningStep, /) -> None:
        step = running.step
        read = [running.read(o) for o in step.inputs if o.buffer >= 0]
        self.instead(running)
        self.seen.append((step.name, read, [running.read(o) for o in step.outputs]))


@pytest.fixture(scope="module")
def engine() -> tactix.Engine:
    """A convolution, whose kernels may want blocked formats, a sum and a softmax."""
    builder = tactix.Builder()
    network = builder.create_network("small")
    w = np.random.default_rng(0).standard_normal((6, 5, 1, 1)).astype(np.float32)
    x = network.add_input("x", "f32", ("n", 5, 3, 4))
    (y,) = network.add_layer("tactix.Convolution", [x, network.add_constant(w)])
    (s,) = network.add_layer("tactix.ReduceMean", [y], axes=(2, 3), keepdims=False)
    (z,) = network.add_layer("tactix.Softmax", [s])
    network.mark_output(z, "z")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, device="cpu")
    engine = builder.build(network, config)
    assert isinstance(engine, tactix.Engine)
    return engine


def test_an_observer_sees_linear_operands_and_changes_no_result(engine: tactix.Engine) -> None:
    context, seeing = engine.create_execution_context(), Seeing()
    before = context.run({"x": X})["z"]
    context.observer = seeing
    np.testing.assert_array_equal(context.run({"x": X})["z"], before)
    assert [name for name, _, _ in seeing.seen] == [s.name for s in engine.plan.steps]
    np.testing.assert_array_equal(seeing.seen[0][1][0], X)
    np.testing.assert_array_equal(seeing.seen[-1][2][0], before)
    last = seeing.seen[-1][1][0]
    np.testing.assert_allclose(np.exp(last) / np.exp(last).sum(-1, keepdims=True), before, 1e-5)
    context.observer = None
    context.run({"x": X})
    assert len(seeing.seen) == len(engine.plan.steps)


def test_what_an_observer_writes_is_what_later_steps_read(engine: tactix.Engine) -> None:
    last = engine.plan.steps[-1]

    def flat(running: RunningStep) -> None:
        running.run()
        if running.step is not last and running.step.outputs[0].spec.rank == 2:
            running.write(running.step.outputs[0], np.zeros((2, 6), np.float32))

    context = engine.create_execution_context()
    context.observer = Seeing(flat)
    np.testing.assert_allclose(context.run({"x": X})["z"], np.full((2, 6), 1 / 6), 1e-5)


def test_a_step_may_run_on_other_weights(engine: tactix.Engine) -> None:
    zeros = np.zeros(4096, np.float32)

    def without(running: RunningStep) -> None:
        plan, step = running.plan, running.step
        read = (*step.constants.values(), *(o.buffer for o in step.inputs if o.buffer >= 0))
        weights = [b for b in read if plan.buffers[b].kind == "weight"]
        with running.placed(dict.fromkeys(weights, zeros.ctypes.data)):
            running.run()

    context = engine.create_execution_context()
    plain = context.run({"x": X})["z"]
    context.observer = Seeing(without)
    np.testing.assert_allclose(context.run({"x": X})["z"], np.full((2, 6), 1 / 6), 1e-5)
    context.observer = None
    np.testing.assert_array_equal(context.run({"x": X})["z"], plain)


def test_a_debug_listener_is_told_of_the_tensors_that_it_names(engine: tactix.Engine) -> None:
    told: dict[str, Any] = {}
    context = engine.create_execution_context()
    first = engine.plan.steps[0]
    made = first.info["makes"][0] or engine.plan.buffers[first.outputs[0].buffer].name
    context.set_debug_listener(told.__setitem__, ["z", made])
    out = context.run({"x": X})
    assert list(told) == [made, "z"]
    np.testing.assert_array_equal(told["z"], out["z"])
    context.set_debug_listener(None)
    told.clear()
    context.run({"x": X})
    assert not told
    with pytest.raises(InvalidArgument, match="no step of the plan makes a tensor 'y'"):
        context.set_debug_listener(told.__setitem__, ["y"])


LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[3] x, int64 times) => (float[3] y) {
  go = Constant <value = bool {1}> ()
  y = Loop (times, go, x) <body = b (int64 i, bool c, float[3] a) => (bool d, float[3] e) {
    d = Identity (c)
    e = Sin (a)
  }>
}
"""


def test_steps_of_a_body_are_seen_in_each_of_its_runs() -> None:
    import onnx.parser

    engine = tactix.build(onnx.parser.parse_model(LOOP), level=0, timing_cache=False)
    context, feed = engine.create_execution_context(), {"x": X[0, 0, 0, :3], "times": np.array(4)}
    before = context.run(feed)["y"]
    for _ in range(2):  # from the second run on the loop would be one native call
        context.observer = seeing = Seeing()
        np.testing.assert_array_equal(context.run(feed)["y"], before)
        inner = {s.name for p in engine.plan.nested() for s in p.steps} - {
            s.name for s in engine.plan.steps
        }
        assert [name for name, _, _ in seeing.seen if name in inner] == sorted(inner) * 4
        np.testing.assert_allclose(seeing.seen[-1][2][0], before)
