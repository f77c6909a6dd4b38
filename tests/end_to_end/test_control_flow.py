"""Branches and loops: models in ONNX's text form, built with every tactic source, compared with
ONNX Runtime.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import tactix
from tactix.base.errors import AllocationError, ExecutionError, InvalidArgument, TactixError

ort = pytest.importorskip("onnxruntime")

BRANCH = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, bool which) => (float[m, k] y, float[n, 4] z) {
  w = Constant <value = float[4, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3}> ()
  r = Relu (x)
  y = If (which) <
    then_branch = yes () => (float[a, b] t) { p = MatMul (r, w)  t = Tanh (p) },
    else_branch = no () => (float[c, d] e) { e = Concat <axis = 0> (r, x) }
  >
  z = Neg (r)
}
"""

GROWING = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 2] x, int64 times) => (float[m, 2] y, float[k] sums, int64 last) {
  go = Constant <value = bool {1}> ()
  zero = Constant <value = int64 {0}> ()
  y, last, sums = Loop (times, go, x, zero) <
    body = b (int64 i, bool c, float[a, 2] grown, int64 before) => (bool more, float[d, 2] out, int64 now, float s) {
      row = Cast <to = 1> (i)
      one = Constant <value = float[1, 2] {1, 1}> ()
      scaled = Mul (one, row)
      out = Concat <axis = 0> (grown, scaled)
      s = ReduceSum <keepdims = 0> (out)
      limit = Constant <value = float {40}> ()
      more = Less (s, limit)
      now = Identity (i)
    }
  >
}
"""

CELL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[t, b, 8] x, float[b, 8] h0) => (float[b, 8] h, float[t, b, 8] all, float[b, t, 4] back) <
  float[8, 8] u = {}, float[8, 4] v = {}
> {
  h, all, back = Scan <num_scan_inputs = 1, scan_output_axes = [0, 1], scan_output_directions = [0, 1],
    body = b (float[b, 8] hp, float[b, 8] xt) => (float[b, 8] hn, float[b, 8] o, float[b, 4] q) {
      m = MatMul (hp, u)
      s = Add (m, xt)
      hn = Tanh (s)
      o = Identity (hn)
      q = MatMul (hn, v)
    }
  > (h0, x)
}
"""

SQUEEZED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[t, 3, 1, 4] x, float[1] s0) => (float[1] s, float[t, 3, 2] y) <float[4, 2] w = {}> {
  s, y = Scan <num_scan_inputs = 1,
    body = b (float[1] before, float[3, 1, 4] row) => (float[1] after, float[3, 2] o) {
      after = Identity (before)
      axes = Constant <value = int64[1] {1}> ()
      p = MatMul (row, w)
      o = Squeeze (p, axes)
    }
  > (s0, x)
}
"""

NESTED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x, int64 outer) => (float[4] y) {
  go = Constant <value = bool {1}> ()
  three = Constant <value = int64 {3}> ()
  y = Loop (outer, go, x) <
    body = b (int64 i, bool c, float[4] v) => (bool c2, float[4] v2) {
      c2 = Identity (c)
      two = Constant <value = int64 {2}> ()
      odd = Mod (i, two)
      is_odd = Cast <to = 9> (odd)
      v2 = If (is_odd) <
        then_branch = yes () => (float[4] t) {
          t = Loop (three, go, v) <
            body = inner (int64 j, bool d, float[4] u) => (bool d2, float[4] u2) {
              d2 = Identity (d)
              k = Cast <to = 1> (i)
              u1 = Add (u, k)
              u2 = Mul (u1, x)
            }
          >
        },
        else_branch = no () => (float[4] e) { e = Add (v, x) }
      >
    }
  >
}
"""


def text(inputs: str, outputs: str, nodes: str) -> str:
    return f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({outputs}) {{ {nodes} }}'


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for t in model.graph.initializer:
        t.CopyFrom(
            onnx.numpy_helper.from_array(
                rng.standard_normal(list(t.dims)).astype(np.float32) / 3, t.name
            )
        )
    return model


def build(text: str, **fields: Any) -> tactix.Engine:
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, **fields)
    builder = tactix.Builder()
    return builder.build(builder.import_model(parsed(text)), config)


def check(engine: tactix.Engine, text: str, **feeds: Any) -> dict[str, Any]:
    """The engine's outputs, which must be ONNX Runtime's."""
    session = ort.InferenceSession(
        parsed(text).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    want = session.run(None, feeds)
    got = engine(**feeds)
    got = got if isinstance(got, dict) else {engine.outputs[0].name: got}
    for name, w in zip([o.name for o in session.get_outputs()], want, strict=True):
        assert got[name].dtype == w.dtype
        np.testing.assert_allclose(got[name], w, rtol=1e-5, atol=1e-5, err_msg=name)
    return got


def rand(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_branch_that_the_data_picks(n: int) -> None:
    engine = build(BRANCH)
    for which in (True, False, True):
        y = check(engine, BRANCH, x=rand(n, 4, seed=n), which=np.array(which))["y"]
        assert y.shape == ((n, 3) if which else (2 * n, 4))


def test_a_loop_whose_state_grows_and_that_stops_by_itself() -> None:
    engine = build(GROWING)
    for n, times in ((2, 5), (1, 0), (3, 100), (2, 1), (2, 5)):
        check(engine, GROWING, x=rand(n, 2, seed=n), times=np.array(times))


def test_a_recurrent_cell_in_a_scan() -> None:
    engine = build(CELL)
    for t, b in ((5, 2), (1, 1), (9, 3)):
        check(engine, CELL, x=rand(t, b, 8, seed=t), h0=rand(b, 8))
    step, turned = engine.inspect()["steps"]
    assert (step["kind"], turned["kind"]) == ("tactix.Scan@1", "tactix.Transpose@1")
    sources = {s["source"] for s in step["bodies"][0]}
    assert "numpy" not in sources
    assert "c" in sources


def test_loops_and_branches_in_each_other() -> None:
    engine = build(NESTED)
    for outer in (0, 1, 2, 5):
        check(engine, NESTED, x=rand(4, seed=outer) / 2, outer=np.array(outer))


def test_a_body_gives_a_view_of_what_a_step_makes() -> None:
    engine = build(SQUEEZED)
    for t in (3, 3, 1):  # the second run of a shape is one native call
        check(engine, SQUEEZED, x=rand(t, 3, 1, 4), s0=rand(1))


def test_a_plan_file_holds_the_bodies(tmp_path: Path) -> None:
    engine = build(CELL)
    engine.save(tmp_path / "cell.plan")
    again = tactix.load(tmp_path / "cell.plan")
    check(again, CELL, x=rand(4, 2, 8), h0=rand(2, 8))
    again.save(tmp_path / "again.plan")
    assert (tmp_path / "again.plan").read_bytes() == (tmp_path / "cell.plan").read_bytes()


def test_threads_have_contexts_of_their_own() -> None:
    engine = build(NESTED)
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for outer in (3, 4):
                check(engine, NESTED, x=rand(4, seed=seed) / 2, outer=np.array(outer))
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_fault_in_a_body_names_the_step() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[6] x, int64 times, int64[2] shape) => (float[m, k] y) {
      go = Constant <value = bool {1}> ()
      y0 = Constant <value = float[1, 1] {0}> ()
      y = Loop (times, go, y0) <
        body = b (int64 i, bool c, float[p, q] before) => (bool c2, float[r, s] after) {
          c2 = Identity (c)
          after = Reshape (x, shape)
        }
      >
    }
    """
    engine = build(text)
    assert engine(rand(6), np.array(2), np.array([2, 3])).shape == (2, 3)
    with pytest.raises(ExecutionError, match="Loop_2/Reshape_1"):
        engine(rand(6), np.array(2), np.array([4, 4]))
    assert engine(rand(6), np.array(1), np.array([3, 2])).shape == (3, 2)


def test_an_exported_decoding_loop() -> None:
    path = Path(__file__).parents[1] / "models" / "loops" / "greedy.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    engine = tactix.build(path, level=0, timing_cache=False)
    lengths = set()
    for batch, steps, end in ((3, 7, 3), (1, 12, 3), (5, 1, 0), (2, 0, 0), (1, 40, 7)):
        feed = {"tokens": np.arange(batch) + 1, "steps": np.array(steps), "end": np.array(end)}
        found, hidden = session.run(None, feed)
        got = engine(**feed)
        np.testing.assert_array_equal(got["found"], found)
        np.testing.assert_allclose(got["hidden"], hidden, rtol=1e-5, atol=1e-6)
        lengths.add(len(found))
    assert len(lengths) > 3


class Output:
    """An output allocator over numpy memory."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.memory: Any = None

    def reallocate_output(self, name: str, memory: int, size: int, alignment: int) -> int:
        self.memory = np.empty(size + alignment, np.uint8)
        start = self.memory.ctypes.data
        return int(start + -start % alignment)

    def notify_shape(self, name: str, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def array(self, dtype: Any) -> Any:
        start = -self.memory.ctypes.data % 64
        size = int(np.prod(self.shape)) * np.dtype(dtype).itemsize
        return self.memory[start : start + size].view(dtype).reshape(self.shape)


def test_output_allocators_place_what_only_running_sizes() -> None:
    engine = build(GROWING)
    context = engine.create_execution_context()
    x, times, outputs = rand(3, 2), np.array(4), {io.name: Output() for io in engine.outputs}
    context.set_tensor_address("x", x)
    context.set_tensor_address("times", times)
    for name, output in outputs.items():
        context.set_output_allocator(name, output)
    context.execute_async_v3(0)
    want = engine(x, times)
    for io in engine.outputs:
        np.testing.assert_array_equal(outputs[io.name].array(io.dtype.numpy), want[io.name])
    with pytest.raises(InvalidArgument):
        context.set_output_allocator("x", Output())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (0, "gave no address"),
        (None, "gave None, which is no address"),
        (4097, "is no multiple of"),
    ],
)
def test_output_allocators_that_give_no_address(given: Any, told: str) -> None:
    engine = build(GROWING)
    context, output = engine.create_execution_context(), Output()
    output.reallocate_output = lambda *_: given  # type: ignore[method-assign]
    context.set_tensor_address("x", rand(3, 2))
    context.set_tensor_address("times", np.array(4))
    for io in engine.outputs:
        context.set_output_allocator(io.name, output)
    with pytest.raises(AllocationError, match=rf"allocator of output '.*': cannot have .*{told}"):
        context.execute_async_v3(0)


def test_memory_that_depends_on_data_is_the_contexts_own() -> None:
    engine = build(BRANCH)
    with pytest.raises(InvalidArgument, match="the plan's memory depends on data"):
        engine.create_execution_context_without_device_memory()
    with pytest.raises(InvalidArgument, match="the plan's memory depends on data"):
        engine.create_execution_context().set_device_memory(64, 1 << 20)


def test_output_allocators_where_shapes_are_known() -> None:
    builder = tactix.Builder()
    net = builder.create_network("plain")
    (y,) = net.add_layer("tactix.Relu", [net.add_input("x", "f32", ("n", 3))])
    net.mark_output(y, "y")
    engine = builder.build(
        net, tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    )
    context, output, x = engine.create_execution_context(), Output(), rand(5, 3)
    context.set_tensor_address("x", x)
    context.set_output_allocator("y", output)
    context.execute_async_v3(0)
    np.testing.assert_array_equal(output.array(np.float32), np.maximum(x, 0))
    context.set_output_allocator("y", None)
    with pytest.raises(InvalidArgument, match="no address"):
        context.execute_async_v3(0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "b (int64 i, bool c) => (bool c2, float[2] v2) { c2 = Identity (c)  v2 = Neg (x) }",
            "takes 2 inputs",
        ),
        (
            "b (int64 i, bool c, float[2] v) => (bool c2) { c2 = Identity (c) }",
            "1 outputs for 1 states",
        ),
        (
            "b (int64 i, bool c, float[2] v) => (bool c2, int64 v2) { c2 = Identity (c) v2 = Identity (i) }",
            "state 0",
        ),
        (
            "b (int64 i, bool c, float[2] v) => (bool c2, float[2] v2) { c2 = Identity (c) v2 = Neg (none) }",
            "none",
        ),
    ],
)
def test_a_wrong_body_is_named(body: str, why: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x, int64 times) => (float[2] y) {
      go = Constant <value = bool {1}> ()
      y = Loop (times, go, x) < body = BODY >
    }"""
    with pytest.raises(TactixError, match=why):
        tactix.Builder().import_model(parsed(text.replace("BODY", body)))
