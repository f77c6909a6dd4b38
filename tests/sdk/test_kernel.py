"""Tactics written as the text of a body: fused neighbours, symbolic shapes, dtypes, constants,
knobs, refusals.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import asked
import numpy as np
import pytest
from sdk_packs import Pack, builder

import tactix
from tactix.base.dims import prod
from tactix.contracts.artifact import Packed, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import CompileContext, Offer
from tactix_sdk import (
    ALIAS,
    NHWC,
    DType,
    Kernel,
    Operation,
    Reject,
    TensorSpec,
    c_tactic,
    errors,
    layer,
    mod,
)

RNG = np.random.default_rng(11)
GEMM = """
int64_t begin, end;
tx_split(m, rows, tid, nt, &begin, &end);
for (int64_t i = begin; i < end; i++)
    for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int64_t p = 0; p < k; p++) sum += TX_IN0(i * k + p) * c_w[p * n + j];
        TX_STORE(i * n + j, sum);
    }
"""


@c_tactic("acme.gemm@1", "tactix.MatMul@1", knobs={"rows": (4, 8)})
def gemm(op: Operation, rows: int) -> Kernel | Reject:
    a, b = op.inputs
    if b.const is None or b.rank != 2:
        return Reject("a tensor times a constant matrix")
    sizes = {"m": prod(a.shape[:-1]), "k": a.shape[-1], "n": b.shape[1], "rows": rows}
    return Kernel(GEMM, sizes=sizes, constants={"w": op.packed(1, ("cast", "f32"))})


def built(b: tactix.Builder, net: Any, shapes: Any = None) -> Any:
    profile = tactix.OptimizationProfile()
    for name, rows in (shapes or {}).items():
        profile.set_shape(name, *rows)
    config = tactix.BuilderConfig(
        profiles=[profile] if shapes else [],
        timing_cache=False,
        tactic_sources={"acme"},
        builder_optimization_level=1,
    )
    config.enable("acme")
    return b.build(net, config)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_what_is_fused_behind_is_stored(dtype: str) -> None:
    b = builder(Pack(gemm))
    net, kind = b.create_network("dense"), DType.of(dtype)
    w, bias = ((RNG.standard_normal(s) / 4).astype(kind.numpy) for s in ((24, 17), (17,)))
    x, rest = (
        net.add_input("x", dtype, ("b", "m", 24)),
        net.add_input("rest", dtype, ("b", "m", 17)),
    )
    (y,) = net.add_layer("tactix.MatMul", [x, net.add_constant(w)])
    (y,) = net.add_layer("tactix.Add", [y, net.add_constant(bias)])
    (y,) = net.add_layer("tactix.Relu", [y])
    (y,) = net.add_layer("tactix.Add", [y, rest])
    net.mark_output(y, "y")
    ranges = {
        "x": ((1, 1, 24), (2, 5, 24), (3, 9, 24)),
        "rest": ((1, 1, 17), (2, 5, 17), (3, 9, 17)),
    }
    # float16 is read as it is, not widened before the product
    rules = [r for r in b.session.active_rules() if r.key != "tactix.half_widened"]
    with mock.patch.object(b.session, "active_rules", return_value=rules):
        engine = built(b, net, ranges)
    assert [s.info["tactic"] for s in engine.plan.steps] == ["acme.gemm@1"]
    for shape in ((1, 1), (2, 5), (3, 9), (3, 7)):
        x_, rest_ = (RNG.standard_normal((*shape, n)).astype(kind.numpy) for n in (24, 17))
        wide = [a.astype(np.float32) for a in (x_, w, bias, rest_)]
        want = np.maximum(wide[0] @ wide[1] + wide[2], 0) + wide[3]
        got = np.asarray(engine(x_, rest_), np.float32)
        np.testing.assert_allclose(
            got, want, rtol=0, atol={"f32": 1e-5, "f16": 1e-2, "bf16": 8e-2}[dtype]
        )


def test_every_combination_of_knobs_is_offered() -> None:
    assert [v.knob("rows") for v in gemm.space] == [4, 8]
    with pytest.raises(errors.PluginError, match="65 variants"):
        c_tactic("acme.many@1", "tactix.MatMul@1", knobs={"a": range(65)})(lambda op, a: "")


def test_the_function_is_called_once_for_each_combination() -> None:
    calls = []

    @c_tactic(
        "acme.steps@1", "tactix.Relu@1", knobs={"step": (1, 2)}, cost=lambda op, at, step: step
    )
    def steps(op: Operation, step: int) -> str:
        calls.append(step)
        return f"TX_STORE({step}, 0);"

    net = builder(Pack()).create_network("n")
    net.mark_output(*net.add_layer("tactix.Relu", [net.add_input("x", "f32", (3, 4))]))
    device = DeviceProperties("cpu", "made up")
    offer, ctx = steps.offers(net.nodes[0], device), CompileContext(device)
    assert isinstance(offer, Offer)
    for v, want in zip(offer.variants, (1, 2), strict=True):
        code = offer.compile(v, ctx).code
        assert isinstance(code, Source)
        assert f"TX_STORE({want}, 0)" in code.text
        assert offer.cost(v, ctx) == want
    assert calls == [1, 2]


def test_reasons_are_the_authors() -> None:
    b = builder(Pack(gemm))
    net = b.create_network("both")
    x, w = net.add_input("x", "f32", (3, 4)), net.add_input("w", "f32", (4, 5))
    net.mark_output(*net.add_layer("tactix.MatMul", [x, w]))
    with pytest.raises(errors.TactixError, match="a tensor times a constant matrix"):
        built(b, net)


def test_a_function_that_gives_something_else_is_named() -> None:
    wrong = c_tactic("acme.gemm@1", "tactix.MatMul@1")(lambda op: 3)
    net = builder(Pack()).create_network("n")
    x, w = net.add_input("x", "f32", (3, 4)), net.add_input("w", "f32", (4, 5))
    net.mark_output(*net.add_layer("tactix.MatMul", [x, w]))
    with pytest.raises(errors.PluginError, match=r"acme\.gemm@1 gave 3"):
        asked.variants(wrong, net.nodes[0], None)  # type: ignore[arg-type]


def test_results_of_several_outputs() -> None:
    @layer("acme.Halves@1", infer=lambda x: [x.plain(), x.plain()])
    def halves(x: Any) -> Any:
        return x / 2, x - x / 2

    @c_tactic("acme.halves@1", "acme.Halves@1")
    def halved(op: Operation) -> Kernel:
        body = "for (int64_t i = tid; i < n; i += nt) { TX_STORE(i, in0[i] / 2); TX_STORE1(i, in0[i] - in0[i] / 2); }"
        return Kernel(body, sizes={"n": op.output.numel})

    b = builder(Pack(halved, layers=(halves,)))
    net = b.create_network("halves")
    for i, y in enumerate(net.add_layer("acme.Halves", [net.add_input("x", "f32", ("n", 3))])):
        net.mark_output(y, f"y{i}")
    x = RNG.standard_normal((5, 3)).astype(np.float32)
    got = built(b, net, {"x": ((1, 3), (5, 3), (5, 3))})(x)
    np.testing.assert_array_equal(got["y0"], x / 2)
    np.testing.assert_array_equal(got["y1"], x - x / 2)


def test_scratch_and_helpers() -> None:
    @layer("acme.Reverse@1")
    def reverse(x: Any) -> Any:
        return x[..., ::-1]

    @c_tactic("acme.reverse@1", "acme.Reverse@1")
    def reversed_(op: Operation) -> Kernel:
        body = """
        if (tid) return;
        for (int64_t i = 0; i < rows * n; i++) scratch[i] = in0[i];
        for (int64_t i = 0; i < rows * n; i++) TX_STORE(i, scratch[TX_NAME(mirror)(i, n)]);
        """
        helper = "static int64_t TX_NAME(mirror)(int64_t i, int64_t n) { return i / n * n + n - 1 - i % n; }"
        n = op.output.shape[-1]
        return Kernel(
            body, helper, {"rows": op.output.shape[0], "n": n}, scratch=4 * op.output.numel
        )

    b = builder(Pack(reversed_, layers=(reverse,)))
    net = b.create_network("reverse")
    net.mark_output(*net.add_layer("acme.Reverse", [net.add_input("x", "f32", ("m", 7))]), name="y")
    x = RNG.standard_normal((4, 7)).astype(np.float32)
    np.testing.assert_array_equal(built(b, net, {"x": ((1, 7), (4, 7), (4, 7))})(x), x[:, ::-1])
    empty = b.create_network("nothing")
    empty.mark_output(
        *empty.add_layer("acme.Reverse", [empty.add_input("x", "f32", (0, 7))]), name="y"
    )
    assert built(b, empty)(x[:0]).shape == (0, 7)  # scratch of no bytes is there by name


def test_a_result_that_is_the_inputs_memory() -> None:
    @layer("acme.Same@1")
    def same(x: Any) -> Any:
        return x

    alias = c_tactic("acme.same@1", "acme.Same@1")(lambda op: ALIAS)
    b = builder(Pack(alias, gemm, layers=(same,)))
    net = b.create_network("same")
    (y,) = net.add_layer(
        "tactix.MatMul", [net.add_input("x", "f32", (2, 3)), net.add_constant(np.eye(3, dtype="f"))]
    )
    (y,) = net.add_layer("acme.Same", [y])
    (y,) = net.add_layer("tactix.MatMul", [y, net.add_constant(np.eye(3, dtype="f") * 2)])
    net.mark_output(y, "y")
    engine = built(b, net)
    assert len(engine.plan.steps) == 2
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(engine(x), 2 * x)


def test_formats_other_than_linear() -> None:
    @layer("acme.Double@1")
    def double(x: Any) -> Any:
        return x * 2

    @c_tactic("acme.double@1", "acme.Double@1", formats=[((NHWC,), (NHWC,))])
    def doubled(op: Operation) -> Kernel:
        body = "for (int64_t i = tid; i < n; i += nt) TX_STORE(i, 2 * TX_IN0(i));"
        return Kernel(body, sizes={"n": op.output.numel})

    b = builder(Pack(doubled, layers=(double,)))
    net = b.create_network("double")
    net.mark_output(
        *net.add_layer("acme.Double", [net.add_input("x", "f32", ("b", 3, 5, 4))]), name="y"
    )
    profile = tactix.OptimizationProfile()
    profile.set_shape("x", (1, 3, 5, 4), (2, 3, 5, 4), (4, 3, 5, 4))
    engine = b.build(
        net,
        tactix.BuilderConfig(profiles=[profile], timing_cache=False, builder_optimization_level=1),
    )
    (step,) = (s for s in engine.plan.steps if s.info["tactic"] == "acme.double@1")
    assert [o.format for o in (*step.inputs, *step.outputs)] == [NHWC, NHWC]
    x = RNG.standard_normal((3, 3, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(engine(x), 2 * x)


NAMES = ("d0", "d1", "x0", "y0", "a", "q", "phase", "fault")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_sizes_are_the_authors(name: str) -> None:
    """Also those that generated text of other kernels has, with shapes that are known only when it
    runs.
    """

    @c_tactic("acme.named@1", "tactix.MatMul@1")
    def named(op: Operation) -> Kernel:
        body = f"""
        for (int64_t i = tid; i < {name}; i += nt) for (int64_t j = 0; j < n; j++) {{
            float sum = 0;
            for (int64_t p = 0; p < k; p++) sum += TX_IN0(i * k + p) * TX_IN1(p * n + j);
            TX_STORE(i * n + j, sum);
        }}"""
        (m, k), n = op.inputs[0].shape, op.inputs[1].shape[1]
        return Kernel(body, sizes={name: m, "k": k, "n": n})

    b = builder(Pack(named))
    net = b.create_network("named")
    w = RNG.standard_normal((4, 3)).astype(np.float32)
    (y,) = net.add_layer(
        "tactix.MatMul", [net.add_input("x", "f32", ("rows", 4)), net.add_constant(w)]
    )
    net.mark_output(
        *net.add_layer("tactix.Add", [y, net.add_input("rest", "f32", ("rows", 3))]), name="y"
    )
    engine = built(b, net, {"x": ((0, 4), (5, 4), (9, 4)), "rest": ((0, 3), (5, 3), (9, 3))})
    assert [s.info["tactic"] for s in engine.plan.steps] == ["acme.named@1"]
    for m in (0, 1, 5, 9):
        x, rest = (RNG.standard_normal((m, n)).astype(np.float32) for n in (4, 3))
        np.testing.assert_allclose(engine(x, rest), x @ w + rest, rtol=0, atol=1e-5)


REFUSED = (
    "in0",
    "scratch",
    "tid",
    "c_w",
    "tx_split",
    "TX_LANES",
    "int",
    "new",
    "uint16_t",
    "2m",
    "\u00e9",
)


@pytest.mark.parametrize("name", REFUSED)
def test_a_name_that_means_something_is_refused_at_once(name: str) -> None:
    with pytest.raises(errors.PluginError, match=f"no name for a size: '{name}'.*Rename it"):
        Kernel("", sizes={name: 1})


def test_a_size_is_an_integer() -> None:
    with pytest.raises(errors.PluginError, match=r"the size 'n' is 3\.5: sizes are integers"):
        Kernel("", sizes={"n": 3.5})  # type: ignore[dict-item]


def test_a_constant_needs_a_name_of_c() -> None:
    with pytest.raises(errors.PluginError, match="no name for a constant: 'w-t'"):
        Kernel("", constants={"w-t": (Packed(1), DType.FP32)})


def test_a_body_does_not_run_for_an_empty_result() -> None:
    """It may divide by a size of 0 there: the process would die of it."""

    @layer("acme.Double@1")
    def double(x: Any) -> Any:
        return x * 2

    @c_tactic("acme.double@1", "acme.Double@1")
    def doubled(op: Operation) -> Kernel:
        body = """
        volatile int64_t left = 64 % columns;
        for (int64_t i = tid; i < m * columns; i += nt) TX_STORE(i, TX_IN0(i) * (left < columns ? 2 : 0));
        """
        return Kernel(body, sizes={"m": op.output.shape[0], "columns": op.output.shape[1]})

    b = builder(Pack(doubled, layers=(double,)))
    net = b.create_network("double")
    net.mark_output(
        *net.add_layer("acme.Double", [net.add_input("x", "f32", ("m", "n"))]), name="y"
    )
    engine = built(b, net, {"x": ((0, 0), (3, 5), (9, 9))})
    assert [s.info["tactic"] for s in engine.plan.steps] == ["acme.double@1"]
    for shape in ((3, 0), (0, 0), (0, 4), (3, 5)):
        x = RNG.standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(engine(x), x * 2)


@pytest.mark.parametrize("takes", [False, True])
def test_a_packs_own_layer_takes_epilogues_if_it_says_so(takes: bool) -> None:
    @layer("acme.Double@1", takes_epilogue=takes)
    def double(x: Any) -> Any:
        return x * 2

    @c_tactic("acme.double@1", "acme.Double@1")
    def doubled(op: Operation) -> Kernel:
        body = "for (int64_t i = tid; i < n; i += nt) TX_STORE(i, 2 * TX_IN0(i));"
        return Kernel(body, sizes={"n": op.output.numel})

    b = builder(Pack(doubled, layers=(double,)))
    net = b.create_network("double")
    x, rest = (net.add_input(name, "f32", (3, 5)) for name in ("x", "rest"))
    (y,) = net.add_layer("tactix.Relu", [net.add_layer("acme.Double", [x])[0]])
    (y,) = net.add_layer("tactix.Add", [y, rest])
    net.mark_output(y, "y")
    engine = b.build(net, tactix.BuilderConfig(timing_cache=False, builder_optimization_level=1))
    assert engine.plan.steps[0].info["tactic"] == "acme.double@1"
    together = ["acme.Double@1", "tactix.Relu@1", "tactix.Add@1"]
    assert engine.plan.steps[0].info["layers"] == (together if takes else together[:1])
    x, rest = (RNG.standard_normal((3, 5)).astype(np.float32) for _ in range(2))
    np.testing.assert_array_equal(engine(x, rest), np.maximum(2 * x, 0) + rest)


@c_tactic("acme.shared@1", "acme.Shared@1")
def shared(op: Operation) -> Kernel | Reject:
    """As the layer: what is left of the first tensor's rows when those of the second take them
    evenly.
    """
    x, y = op.inputs
    return Kernel(
        "for (int64_t i = tid; i < n; i += nt) TX_STORE(i, r);",
        sizes={"n": op.output.numel, "r": mod(x.shape[0], y.shape[0])},
    )


@layer("acme.Shared@1", infer=lambda x, y: TensorSpec(DType.FP32, (2,)))
def left(x: Any, y: Any) -> Any:
    return np.full(2, len(x) % len(y) if len(y) else 0, np.float32)


def test_a_size_that_divides_by_an_open_dimension_of_zero_names_the_node_and_the_dimension() -> (
    None
):
    b = builder(Pack(shared, layers=(left,)))
    net = b.create_network("it")
    x, y = net.add_input("x", "f32", ("n", 3)), net.add_input("y", "f32", ("m", 3))
    net.mark_output(net.add_layer("acme.Shared", [x, y], "left over")[0], "z")
    ranges = {
        name: ((0, 3), (7, 3), (9, 3)) if name == "x" else ((0, 3), (4, 3), (9, 3)) for name in "xy"
    }
    engine = built(b, net, ranges)
    run = lambda n, m: engine(  # noqa: E731
        {"x": np.zeros((n, 3), np.float32), "y": np.zeros((m, 3), np.float32)}
    )
    assert run(9, 4).tolist() == [1, 1]
    with pytest.raises(errors.ShapeError, match=r"\(n % m\) divides by zero") as e:
        run(9, 0)
    assert e.value.who == "left over"
    assert "'m' is 0" in str(e.value)
