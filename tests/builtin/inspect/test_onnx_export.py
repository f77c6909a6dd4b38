"""A plan's ONNX file computes what the plan computes, in ONNX Runtime."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tactix
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Step
from tactix.network.definition import NetworkDefinition
from tactix.plan.schema import Plan
from tactix_inspect.onnx_export.graph import FUSED
from tactix_inspect.onnx_export.plan import Exported, exported

OPSET = '<ir_version: 9, opset_import: ["" : 20]>'

FAMILIES = {
    "product": """(float[n, 6, 16] x) => (float[n, 6, 12] y, float[n, 6, 6] z) <float[16, 12] w, float[12] b> {
        p = MatMul (x, w) a = Add (p, b) y = Relu (a) t = Transpose <perm = [0, 2, 1]> (y) z = MatMul (y, t) }""",
    "convolution": """(float[n, 8, 9, 9] x) => (float[n, 8, 5, 5] y)
        <float[16, 8, 3, 3] w, float[16] b, float[16, 1, 5, 5] d, float[8, 16, 1, 1] p> {
        c = Conv <pads = [1, 1, 1, 1]> (x, w, b) r = Relu (c)
        e = Conv <pads = [2, 2, 2, 2], strides = [2, 2], group = 16> (r, d) f = Conv (e, p) y = Sigmoid (f) }""",
    "transposed": """(float[n, 4, 5, 5] x) => (float[n, 3, 11, 11] y) <float[4, 3, 3, 3] w, float[3] b> {
        y = ConvTranspose <strides = [2, 2]> (x, w, b) }""",
    "attention": """(float[n, 2, s, 8] q, float[n, 2, s, 8] k, float[n, 2, s, 8] v) => (float[n, 2, s, 8] y) {
        t = Transpose <perm = [0, 1, 3, 2]> (k) p = MatMul (q, t) r = Constant <value_float = 0.35> ()
        m = Mul (p, r) a = Softmax <axis = -1> (m) y = MatMul (a, v) }""",
    "recurrent": """(float[5, n, 4] x) => (float[5, 2, n, 3] y, float[5, 1, n, 3] z)
        <float[2, 12, 4] w, float[2, 12, 3] r, float[1, 9, 4] v, float[1, 9, 3] s> {
        y = LSTM <hidden_size = 3, direction = "bidirectional"> (x, w, r)
        z = GRU <hidden_size = 3, linear_before_reset = 1> (x, v, s) }""",
    "norm": """(float[n, 5, 8] x) => (float[n, 5, 8] y, float[n, 5, 8] z) <float[8] w, float[8] b> {
        y = LayerNormalization (x, w, b) a = Add (x, y) s = Softmax <axis = 1> (a) z = Gelu (s) }""",
    "pool": """(float[n, 4, 9, 9] x) => (float[n, 4, 4, 4] y, float[n, 4, 1, 1] z) {
        m = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (x)
        y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (m) z = GlobalAveragePool (x) }""",
    "resize": """(float[n, 2, 4, 5] x) => (float[n, 2, 8, 10] y) {
        s = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> () y = Resize <mode = "linear"> (x, , s) }""",
    "gather": """(int64[n, s] i, float[n, 6] x, int64[n, 3] j) => (float[n, s, 4] y, float[n, 6] u) <float[9, 4] w> {
        y = Gather (w, i) z = GatherElements <axis = 1> (x, j) u = ScatterElements <axis = 1> (x, j, z) }""",
    "moves": """(float[n, 6, 8] x, float[n, 2, 8] v) => (float[8, n, 8] y, float[n, 3, 4] z, float[n, m] f) {
        c = Concat <axis = 1> (x, v) y = Transpose <perm = [2, 0, 1]> (c)
        a = Constant <value_ints = [0, 0]> () b = Constant <value_ints = [6, 8]> ()
        d = Constant <value_ints = [1, 2]> () e = Constant <value_ints = [2, 2]> ()
        z = Slice (x, a, b, d, e) f = Flatten (x) }""",
    "told": """(float[n, 7] x) => (float[n, 2] y, int64[n, 2] i, float[n, 7] c, int64[m, 2] z) {
        k = Constant <value_ints = [2]> () y, i = TopK (x, k) a = Constant <value_int = 1> () c = CumSum (x, a)
        t = NonZero (x) z = Transpose (t) }""",
    "control": """(float[n, 4] x) => (float[n, 4] y, float[n, 4] z) {
        times = Constant <value_int = 3> () go = Constant <value = bool {1}> ()
        y = Loop (times, go, x) <body = g (int64 i, bool c, float[n, 4] s) => (bool d, float[n, 4] t) {
            d = Identity (c) e = Tanh (s) f = Constant <value_float = 0.25> () t = Mul (e, f) }>
        sum = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0> () b = Greater (sum, zero)
        z = If (b) <then_branch = a () => (float[n, 4] p) { p = Relu (y) },
                    else_branch = o () => (float[n, 4] q) { q = Softmax <axis = 1> (y) }> }""",
    "sequence": """(float[n, 4] x, float[n, 4] v) => (float[m, 4] y) {
        s = SequenceConstruct (x, v, x) y = ConcatFromSequence <axis = 0> (s) }""",
    "sizes": """(float[n, s, 4] x) => (float[s, n, 4] y, float[m] r) {
        h = Shape (x) a = Constant <value_ints = [1, 0, 2]> () g = Gather (h, a) y = Reshape (x, g)
        c = Constant <value_int = 1> () d = Gather (h, c) z = Constant <value_int = 0> ()
        o = Range (z, d, c) f = Cast <to = 1> (o) e = Constant <value_ints = [1]> () k = Mul (d, e)
        r = Expand (f, k) }""",
    "quantised": """(float[n, 8] x) => (float[n, 4] y) <float[8, 4] w> {
        s = Constant <value_float = 0.05> () o = Constant <value = int8 {3}> () e = Constant <value = int8 {0}> ()
        a = QuantizeLinear (x, s, o) b = DequantizeLinear (a, s, o)
        c = QuantizeLinear (w, s, e) d = DequantizeLinear (c, s, e) y = MatMul (b, d) }""",
}  # fmt: skip
"""Models in onnx's text form; their weights are random."""


@functools.cache
def session() -> tactix.Session:
    return tactix.Session(group="build")


def model(name: str) -> onnx.ModelProto:
    """A family's model, with numbers for what nothing makes."""
    found = onnx.parser.parse_model(f"{OPSET} {name} {FAMILIES[name]}")
    rng = np.random.default_rng(0)
    made = {x for n in found.graph.node for x in n.output}
    for v in (v for v in found.graph.value_info if v.name not in made):
        shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
        array = (rng.standard_normal(shape) * 0.3).astype(np.float32)
        found.graph.initializer.append(onnx.numpy_helper.from_array(array, v.name))
    return found


def plan_of(network: NetworkDefinition, **settings: Any) -> Plan:
    builder = tactix.Builder(session=session())
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0, **settings)
    return builder.build_plan(network, config)


def imported(found: onnx.ModelProto) -> NetworkDefinition:
    return tactix.Builder(session=session()).import_model(found)


def feed_of(plan: Plan, n: int, s: int) -> dict[str, Any]:
    rng, sizes = np.random.default_rng(n), {"n": n, "s": s}
    out = {}
    for io in plan.inputs:
        shape = [sizes[str(d)] if not isinstance(d, int) else d for d in io.shape]
        whole = io.dtype.is_int
        drawn = rng.integers(0, 3, shape) if whole else rng.standard_normal(shape)
        out[io.name] = drawn.astype(io.dtype.numpy)
    return out


def runs(made: Exported, feed: dict[str, Any]) -> list[Any]:
    onnx.checker.check_model(made.model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    content = made.model.SerializeToString()
    ran = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    found: list[Any] = ran.run(None, feed)
    return found


def check(plan: Plan, made: Exported, feed: dict[str, Any], rtol: float = 1e-4) -> None:
    """The file against the plan."""
    engine = tactix.Runtime(session=session()).load(plan)
    want = engine.create_execution_context().run(feed)
    for (name, w), g in zip(want.items(), runs(made, feed), strict=True):
        assert g.shape == w.shape
        assert g.dtype == w.dtype
        assert float(np.abs(g - w).max()) <= rtol * float(np.abs(w).max()), name


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name: str) -> None:
    plan = plan_of(imported(model(name)))
    made = exported(plan, session().layers.__getitem__)
    assert not made.strange
    for n, s in ((1, 4), (3, 5)):
        check(plan, made, feed_of(plan, n, s))


@pytest.fixture(scope="module")
def fused() -> tuple[Plan, Exported]:
    plan = plan_of(imported(model("product")))
    return plan, exported(plan, session().layers.__getitem__)


def test_fused_steps_are_functions_of_their_layers(fused: tuple[Plan, Exported]) -> None:
    plan, made = fused
    called = {n.name: n.op_type for n in made.model.graph.node if n.domain == FUSED}
    bodies = {f.name: [n.op_type for n in f.node] for f in made.model.functions}
    step = next(s for s in plan.steps if len(s.info["layers"]) > 1)  # type: ignore[arg-type]
    ops = [op for op in bodies[called[step.name]] if op != "Constant"]
    assert ops == ["MatMul", "Add", "Relu"]


def test_a_node_tells_what_runs_it(fused: tuple[Plan, Exported]) -> None:
    plan, made = fused
    told = {n.name: {p.key: p.value for p in n.metadata_props} for n in made.model.graph.node}
    for s in plan.steps:
        assert told[s.name]["tactic"] == s.info["tactic"]


def test_symbols_and_names_stay(fused: tuple[Plan, Exported]) -> None:
    graph = fused[1].model.graph
    assert [v.name for v in (*graph.input, *graph.output)] == ["x", "y", "z"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert {t.name for t in graph.initializer} == {"w", "b"}


def test_a_plan_for_a_gpu_is_written_by_what_its_steps_tell(fused: tuple[Plan, Exported]) -> None:
    plan, made = fused
    other = exported(replace(plan, device={"kind": "cuda"}), session().layers.__getitem__)
    assert other.model.graph == made.model.graph


def test_a_step_that_tells_nothing_is_a_custom_node(fused: tuple[Plan, Exported]) -> None:
    plan, _ = fused
    first, *others = plan.steps
    silent = {k: v for k, v in first.info.items() if k != "reference"}
    artifact = replace(first.artifact, params={})
    plan = replace(plan, steps=(replace(first, info=silent, artifact=artifact), *others))
    made = exported(plan, session().layers.__getitem__)
    assert sum(made.strange.values()) == 1
    node = next(n for n in made.model.graph.node if n.domain == "tactix")
    assert node.name == first.name
    onnx.checker.check_model(made.model)


def test_the_first_set_of_kernels_is_written(fused: tuple[Plan, Exported]) -> None:
    plan, made = fused
    artifact = KernelArtifact("sets", params={"kernel_sets": [0]})
    whole = replace(plan, steps=(Step("sets", artifact, (), (), plans=(plan,)),))
    other = exported(whole, session().layers.__getitem__)
    assert other.model.graph == made.model.graph


def test_equal_steps_share_a_function() -> None:
    text = """(float[n, 8] x) => (float[n, 8] y) <float[8, 8] a, float[8, 8] b> {
        p = MatMul (x, a) q = Relu (p) r = MatMul (q, b) y = Relu (r) }"""
    FAMILIES["twice"] = text
    try:
        made = exported(plan_of(imported(model("twice"))), session().layers.__getitem__)
    finally:
        del FAMILIES["twice"]
    calls = [n.op_type for n in made.model.graph.node if n.domain == FUSED]
    assert len(calls) == 2
    assert len(set(calls)) == len(made.model.functions) == 1


Network = Callable[[NetworkDefinition], None]


def drawn(make: Network) -> NetworkDefinition:
    net = tactix.Builder(session=session()).create_network("made")
    make(net)
    return net


def parts(net: NetworkDefinition) -> None:
    """Channels that are joined, and cut again, in place."""
    x, v = (net.add_input(name, "f32", (1, 32, 4, 4)) for name in "xv")
    rng = np.random.default_rng(0)
    w = net.add_constant((rng.standard_normal((32, 32, 3, 3)) * 0.1).astype(np.float32), "w")
    same = {"pads": (1, 1, 1, 1)}
    made = [net.add_layer("tactix.Convolution", [a, w], **same)[0] for a in (x, v)]
    (joined,) = net.add_layer("tactix.Concat", made, axis=1)
    for i, y in enumerate(net.add_layer("tactix.Split", [joined], axis=1, sizes=(16, 48))):
        wide = net.add_constant(np.ones((4, y.spec.shape[1], 1, 1), np.float32), f"o{i}")  # type: ignore[arg-type]
        net.mark_output(net.add_layer("tactix.Convolution", [y, wide])[0], f"y{i}")


def tokens(net: NetworkDefinition) -> None:
    """An image that becomes tokens, and these an image: views between formats."""
    x = net.add_input("x", "f32", ("n", 32, 4, 4))
    w = net.add_constant(np.full((32, 32, 1, 1), 0.1, np.float32), "w")
    (c,) = net.add_layer("tactix.Convolution", [x, w])
    (r,) = net.add_layer("tactix.Reshape", [c], shape=(x.spec.shape[0], 32, 16))
    (t,) = net.add_layer("tactix.Transpose", [r], perm=(0, 2, 1))
    (s,) = net.add_layer("tactix.Softmax", [t], axis=-1)
    (u,) = net.add_layer("tactix.Transpose", [s], perm=(0, 2, 1))
    (i,) = net.add_layer("tactix.Reshape", [u], shape=(x.spec.shape[0], 32, 4, 4))
    net.mark_output(net.add_layer("tactix.Convolution", [i, w])[0], "y")


@pytest.mark.parametrize("make", [parts, tokens])
def test_views_and_formats_vanish(make: Network) -> None:
    plan = plan_of(drawn(make))
    made = exported(plan, session().layers.__getitem__)
    check(plan, made, feed_of(plan, 2, 1))


def samples(net: NetworkDefinition) -> None:
    x, grid = net.add_input("x", "f32", (1, 2, 5, 6)), net.add_input("g", "f32", (1, 3, 4, 2))
    net.mark_output(net.add_layer("tactix.GridSample", [x, grid], mode="bilinear")[0], "y")


def simple(net: NetworkDefinition) -> None:
    x = net.add_input("x", "f32", (1, 2, 5, 6))
    attrs: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric"}
    attrs |= {"nearest_mode": "simple", "sizes": (1, 2, 2, 3), "scales": (1.0, 1.0, 0.5, 0.5)}
    net.mark_output(net.add_layer("tactix.Resize", [x], **attrs)[0], "y")


def rolled(net: NetworkDefinition) -> None:
    x = net.add_input("x", "f32", ("n", 4, 6))
    net.mark_output(net.add_layer("tactix.Roll", [x], axes=(1, 2), begins=(1, 4))[0], "y")


def channels_as_pixels(net: NetworkDefinition) -> None:
    x = net.add_input("x", "f32", ("n", 12, 5, 3))
    for name, blocks in (("y", (2, 2)), ("z", (3, 2))):
        net.mark_output(net.add_layer("tactix.DepthToSpace", [x], blocks=blocks)[0], name)


def rotated(net: NetworkDefinition) -> None:
    x, c, s = (net.add_input(name, "f32", (2, 3, 8)) for name in "xcs")
    net.mark_output(net.add_layer("tactix.RotaryEmbedding", [x, c, s])[0], "y")
    wide = net.add_input("w", "f32", (2, 3, 10))
    net.mark_output(net.add_layer("tactix.RotaryEmbedding", [wide, c, s], heads=2)[0], "z")
    q, k = (net.add_input(name, "f32", (2, 3, n)) for name, n in (("q", 24), ("k", 8)))
    attrs = {"heads": 6, "key_heads": 2, "dim": 4, "value_dim": 4}
    net.mark_output(net.add_layer("tactix.TokenAttention", [q, k, k], **attrs)[0], "a")


def rooted(net: NetworkDefinition) -> None:
    x = net.add_input("x", "f32", ("n", 3, 8))
    w = net.add_constant(np.linspace(0.5, 1.5, 8, dtype=np.float32), "w")
    net.mark_output(net.add_layer("tactix.RMSNormalization", [x, w])[0], "y")


def looked_up(net: NetworkDefinition) -> None:
    """Rows of two bits and of four, with zero points and a part of a block at the end."""
    rng, indices = np.random.default_rng(9), np.array([[1, -2], [8, 0]])
    for i, (bits, columns) in enumerate(((2, 32), (4, 40))):
        table = net.add_constant(rng.integers(0, 256, (9, columns * bits // 8), np.uint8))
        scales = net.add_constant(rng.uniform(0.1, 0.2, (9, -(-columns // 16))).astype(np.float32))
        points = net.add_constant(rng.integers(0, 4, (9, -(-columns // 16))).astype(np.uint8))
        given = [table, net.add_constant(indices), scales, points]
        fields = {"columns": columns, "bits": bits, "block_size": 16}
        (y,) = net.add_layer("tactix.FewBitsGather", given, **fields)
        x = net.add_input(f"x{i}", "f32", (2, 2, columns))
        net.mark_output(net.add_layer("tactix.Mul", [x, y])[0], f"y{i}")


@pytest.mark.parametrize(
    "make", [samples, simple, rolled, channels_as_pixels, rotated, rooted, looked_up]
)
def test_a_composition(make: Network) -> None:
    plan = plan_of(drawn(make), tactic_sources={"numpy", "view"})
    made = exported(plan, session().layers.__getitem__)
    assert not made.strange
    check(plan, made, feed_of(plan, 2, 1))


def integers(net: NetworkDefinition) -> None:
    x = net.add_input("x", "i32", (1, 2, 5, 5))
    w = net.add_constant(np.ones((2, 2, 3, 3), np.int32), "w")
    net.mark_output(net.add_layer("tactix.Convolution", [x, w])[0], "y")


def shifts(net: NetworkDefinition) -> None:
    x, n = net.add_input("x", "i32", (4,)), net.add_input("n", "i32", (4,))
    net.mark_output(net.add_layer("tactix.BitShift", [x, n])[0], "y")


@pytest.mark.parametrize("make", [integers, shifts])
def test_what_onnx_lacks_for_a_dtype_is_a_custom_node(make: Network) -> None:
    plan = plan_of(drawn(make), tactic_sources={"numpy", "view"})
    made = exported(plan, session().layers.__getitem__)
    assert sum(made.strange.values()) == 1
    onnx.checker.check_model(made.model)


def test_steps_in_bfloat16_have_their_casts() -> None:
    settings = {"layer_precisions": {"*": "bf16"}, "flags": {tactix.BuilderFlag.BF16}}
    plan = plan_of(imported(model("product")), **settings)
    made = exported(plan, session().layers.__getitem__)
    nodes = [n for f in (made.model.graph, *made.model.functions) for n in f.node]
    casts = [n for n in nodes if n.op_type == "Cast"]
    assert onnx.TensorProto.BFLOAT16 in {n.attribute[0].i for n in casts}
    check(plan, made, feed_of(plan, 2, 1), rtol=6e-2)


def exponents(net: NetworkDefinition) -> None:
    x = net.add_input("x", "f32", ("n", 4))
    (e,) = net.add_layer("tactix.CastToExponent", [x])
    (y,) = net.add_layer("tactix.Cast", [e], to=tactix.DType.FP32)
    net.mark_output(y, "y")


def test_a_layer_without_operators_is_a_custom_node() -> None:
    made = exported(plan_of(drawn(exponents)), session().layers.__getitem__)
    assert made.strange == {"tactix.CastToExponent@1": 1}
    nodes = [n for f in (made.model.graph, *made.model.functions) for n in f.node]
    (custom,) = [n for n in nodes if n.domain == "tactix"]
    assert custom.op_type == "CastToExponent"
    assert {a.name for a in custom.attribute} == {"rounding", "saturate"}


def test_many_bytes_of_weights_lie_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = exported(plan_of(imported(model("product"))), session().layers.__getitem__)
    x = {"x": np.ones((2, 6, 16), np.float32)}
    want = runs(made, x)
    monkeypatch.setattr("tactix_inspect.onnx_export.plan.LARGEST", 64)
    path, beside = tmp_path / "large.onnx", tmp_path / "large.onnx.data"
    beside.write_bytes(b"old" * 1000)
    made.save(str(path))
    assert beside.stat().st_size == made.nbytes
    ran = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for a, b in zip(ran.run(None, x), want, strict=True):
        np.testing.assert_array_equal(a, b)
