"""Plans whose code is not trusted: the references that run in its place, and what they need."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import tactix
from tactix.base import dtypes
from tactix.base.errors import (
    ExecutionError,
    PlanCompatibilityError,
    PlanFormatError,
    TactixError,
    UntrustedPlan,
)
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.hookspecs import hookimpl
from tactix_cpu.tactics.conv.winograd import WinogradTactic
from tactix_runtime.references import on_references
from tactix_sdk import layer, numpy_tactic, pointwise, tanh

RNG = np.random.default_rng(8)
QUIET = tactix.Logger(tactix.Severity.INTERNAL_ERROR)

LAYERS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 20, 9, 7] x) => (float[n, 6] y, float[n, 24, 7] z) <
  float[24, 20, 3, 3] w = {}, float[24] b = {}, float[24, 1, 3, 3] d = {}, float[24, 6] m = {}
> {
  c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  r = Relu (c)
  e = Conv <pads = [1, 1, 1, 1], strides = [2, 1], group = 24> (r, d)
  low = Constant <value = float {-0.5}> ()
  k = Clip (e, low)
  s = ReduceMean <axes = [2, 3], keepdims = 0> (k)
  p = MatMul (s, m)
  y = Softmax <axis = 1> (p)
  z = ReduceMax <axes = [2], keepdims = 0> (k)
}
"""

BODIES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, bool which, int64 times) => (float[m, k] y, float[n, 3] last, int64[2, q] found) <
  float[4, 3] w = {}
> {
  r = Relu (x)
  y = If (which) <
    then_branch = yes () => (float[a, b] t) { p = MatMul (r, w)  t = Tanh (p) },
    else_branch = no () => (float[c, d] e) { e = Concat <axis = 0> (r, x) }
  >
  go = Constant <value = bool {1}> ()
  first = MatMul (x, w)
  last = Loop (times, go, first) <
    body = b (int64 i, bool c, float[n, 3] before) => (bool more, float[n, 3] now) {
      step = MatMul (r, w)
      now = Add (before, step)
      more = Identity (c)
    }
  >
  found = NonZero (r)
}
"""

BYTES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 8, 6, 6] x) => (float[n, 8, 6, 6] y) <int8[8, 8, 3, 3] w = {}> {
  xs = Constant <value = float {0.03}> ()
  xz = Constant <value = uint8 {120}> ()
  ws = Constant <value = float {0.01}> ()
  wz = Constant <value = int8 {0}> ()
  q = QuantizeLinear (x, xs, xz)
  f = DequantizeLinear (q, xs, xz)
  v = DequantizeLinear (w, ws, wz)
  c = Conv <pads = [1, 1, 1, 1]> (f, v)
  o = QuantizeLinear (c, xs, xz)
  y = DequantizeLinear (o, xs, xz)
}
"""


def model(text: str) -> onnx.ModelProto:
    """With random weights where the text leaves them empty."""
    out = onnx.parser.parse_model(text)
    for t in out.graph.initializer:
        whole = t.data_type == onnx.TensorProto.INT8
        drawn = (
            RNG.integers(-60, 60, tuple(t.dims))
            if whole
            else RNG.standard_normal(tuple(t.dims)) / 4
        )
        t.CopyFrom(
            onnx.numpy_helper.from_array(drawn.astype(np.int8 if whole else np.float32), t.name)
        )
    return out


def plan_of(network: Any, session: Any = None, **options: Any) -> Plan:
    builder = tactix.Builder(QUIET, session)
    if isinstance(network, onnx.ModelProto):
        network = builder.import_model(network)
    options = {"timing_cache": False, "builder_optimization_level": 0, **options}
    return builder.build_plan(network, tactix.BuilderConfig(**options))


def halved() -> Plan:
    """Products in bfloat16 whatever the processor: under the flag alone it says whether that gains
    anything.
    """
    return plan_of(model(LAYERS), layer_precisions={"*": "bf16"})


def foreign(plan: Plan, **options: Any) -> tactix.Engine:
    """Its engine after a way through a file that nobody has signed."""
    return tactix.load(
        container.dump(plan), logger=QUIET, **{"on_untrusted": "references", **options}
    )


def changed(plan: Plan, change: Callable[[Any], object]) -> bytes:
    """The file with another header."""
    data = container.dump(plan)
    length = int.from_bytes(data[16:24], "little")
    header = json.loads(data[64 : 64 + length])
    change(header)
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    rest = data[container.align(64 + length) :]
    at = container.align(64 + len(text))
    digest = container.hashlib.sha256(text).digest()
    prologue = container.PROLOGUE.pack(container.MAGIC, 1, 0, len(text), at + len(rest), digest)
    return prologue + text + bytes(at - 64 - len(text)) + rest


def launchers(plan: Plan) -> set[str]:
    return {s.artifact.launcher for s in plan.steps}.union(
        *(launchers(p) for s in plan.steps for p in s.plans)
    )


def agree(engine: Any, source: onnx.ModelProto, feed: dict[str, Any], atol: float = 1e-5) -> None:
    session = onnxruntime.InferenceSession(
        source.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    got = engine(**feed)
    for i, want in enumerate(session.run(None, feed)):
        y = got[session.get_outputs()[i].name] if isinstance(got, dict) else got
        assert y.dtype == want.dtype
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("options", [{}, {"copy_weights": True}, {"max_threads": 1}])
def test_layers_with_weights_in_many_forms(options: dict[str, Any]) -> None:
    source = model(LAYERS)
    engine = foreign(plan_of(source), **options)
    assert launchers(engine.plan) == {"tactix.numpy@1"}
    for n in (1, 3):
        agree(engine, source, {"x": RNG.standard_normal((n, 20, 9, 7), np.float32)})


def test_bodies_and_what_only_running_tells() -> None:
    source = model(BODIES)
    plan = plan_of(source)
    assert "tactix.cpu.elf@1" in launchers(plan)
    assert "tactix.cpu.elf@1" in {k for s in plan.steps for p in s.plans for k in launchers(p)}
    engine = foreign(plan)
    assert launchers(engine.plan) == {"tactix.numpy@1", "tactix.control@1"}
    for n, which, times in ((2, True, 0), (3, False, 4), (1, True, 2)):
        x = RNG.standard_normal((n, 4), np.float32)
        agree(engine, source, {"x": x, "which": np.array(which), "times": np.array(times)})


def test_int8() -> None:
    """A step of the quantised output apart, as sums of floats may round to either side."""
    source = model(BYTES)
    engine = foreign(plan_of(source))
    assert launchers(engine.plan) == {"tactix.numpy@1"}
    agree(engine, source, {"x": RNG.standard_normal((2, 8, 6, 6), np.float32)}, atol=0.0301)


def test_bfloat16_weights_are_those_of_the_kernels() -> None:
    plan = halved()
    assert "bf16" in {b.dtype.value for b in plan.buffers if b.kind == "weight"}
    x = RNG.standard_normal((2, 20, 9, 7), np.float32)
    got, want = foreign(plan)(x), tactix.Runtime(QUIET).load(plan)(x)
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, atol=0.05)


def test_a_function_of_weights_needs_them_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transformed weights of a Winograd convolution cannot be taken back: the plan holds the plain
    ones as well.
    """
    builder = tactix.Builder(QUIET)
    session = builder.session
    only = [t for t in session.active_tactics() if t.key in (WinogradTactic.key, "tactix.numpy@1")]
    reformat = [t for t in session.active_tactics() if "tactix.Reformat@1" in t.implements]
    monkeypatch.setattr(session, "active_tactics", lambda: [*only, *reformat])
    net = builder.create_network("winograd")
    w = RNG.standard_normal((32, 32, 3, 3), np.float32) / 8
    x = net.add_input("x", "f32", (1, 32, 16, 16))
    net.mark_output(
        net.add_layer("tactix.Convolution", [x, net.add_constant(w)], pads=(1, 1, 1, 1))[0], "y"
    )
    plan = plan_of(net, session)
    (step,) = [s for s in plan.steps if s.info["tactic"] == WinogradTactic.key]
    assert bytes(plan.blobs[plan.buffers[step.inputs[1].buffer].blob]) == w.tobytes()
    x = RNG.standard_normal((1, 32, 16, 16), np.float32)
    np.testing.assert_allclose(
        foreign(plan)(x), tactix.Runtime(QUIET).load(plan)(x), rtol=1e-4, atol=1e-4
    )


def test_weights_that_can_be_taken_back_are_stored_once() -> None:
    builder = tactix.Builder(QUIET)
    net = builder.create_network("once")
    w = RNG.standard_normal((96, 80), np.float32)
    (y,) = net.add_layer(
        "tactix.MatMul", [net.add_input("x", "f32", ("n", 96)), net.add_constant(w)]
    )
    net.mark_output(y, "y")
    plan = plan_of(net, builder.session)
    assert sum(b.nbytes for b in plan.buffers if b.kind == "weight") < 1.3 * w.nbytes
    assert foreign(plan)(np.eye(96, dtype=np.float32)).tobytes() == w.tobytes()


def test_numpy_steps_do_not_hold_their_layer_twice() -> None:
    plan = plan_of(model(LAYERS), tactic_sources={"numpy"})
    assert [s for s in plan.steps if "reference" in s.info] == []
    assert plan.meta["references"] == {}


def test_what_runs_is_what_is_saved(tmp_path: Path) -> None:
    """Without machine code, and without weights in the form that it needs."""
    source = model(LAYERS)
    plan = plan_of(source)
    engine = foreign(plan)
    engine.save(tmp_path / "slow.plan")
    codes = {s.artifact.code.digest for s in plan.steps}  # type: ignore[union-attr]
    assert codes <= container.load(container.dump(plan)).blobs.keys()
    assert not codes & engine.plan.blobs.keys()
    weights = sum(4 * int(np.prod(t.dims)) for t in source.graph.initializer)
    assert sum(map(len, map(container.raw, engine.plan.blobs.values()))) <= weights + 64
    assert {s["tactic"] for s in engine.inspect()["steps"]} == {"tactix.numpy@1"}
    assert container.load(tmp_path / "slow.plan").seal.signature == b""
    again = tactix.load(tmp_path / "slow.plan")
    assert launchers(again.plan) == {"tactix.numpy@1"}
    agree(again, source, {"x": RNG.standard_normal((2, 20, 9, 7), np.float32)})


# -- what cannot run -----------------------------------------------------------------------------


@pointwise("acme.Bend@1")
def bend(x: Any) -> Any:
    return x * tanh(x)


class Acme:
    TACTIX_NAMESPACE = "acme"

    @hookimpl
    def tactix_layers(self) -> list[Any]:
        return [bend]


def test_a_layer_that_is_not_installed() -> None:
    """Its kernel would run without it; its reference cannot."""
    session = tactix.Session(group="build", plugins=[("acme", Acme())], enable=["acme"])
    builder = tactix.Builder(QUIET, session)
    net = builder.create_network("bent")
    net.mark_output(net.add_layer("acme.Bend@1", [net.add_input("x", "f32", ("n",))])[0], "y")
    plan = plan_of(net, session)
    assert plan.meta["references"].keys() == {"acme.Bend@1"}
    x = np.float32([-2, 3])
    for engine in (foreign(plan, session=session), foreign(plan, on_untrusted="allow")):
        np.testing.assert_allclose(engine(x), x * np.tanh(x), rtol=1e-6)
    told = replace(plan, meta={**plan.meta, "references": {"acme.Bend@1": ["acme-bend", "2.1"]}})
    with pytest.raises(UntrustedPlan, match=r"no layer 'acme.Bend@1'.*pip install acme-bend==2\.1"):
        foreign(told)
    runtime = tactix.Runtime(QUIET, on_untrusted="references")
    assert any(
        "acme.Bend@1" in reason for reason in runtime.check(container.load(container.dump(told)))
    )


@numpy_tactic("acme.product@1", implements="tactix.MatMul@1")
def product(a: Any, b: Any) -> Any:
    """Not quite what the reference gives, so that it is seen which one ran."""
    return a @ b * np.float32(1 + 1e-5)


class AcmeNumpy:
    TACTIX_NAMESPACE = "acme"

    @hookimpl
    def tactix_tactics(self) -> list[Any]:
        return [product]

    @hookimpl
    def tactix_launchers(self) -> list[Any]:
        return [product.launcher]


@pytest.mark.parametrize("embedded", [True, False])
def test_a_function_of_a_pack_that_is_not_installed(embedded: bool) -> None:
    """Its launcher is not here, so it may run anything; the layer of its step is here."""
    session = tactix.Session(group="build", plugins=[AcmeNumpy()], enable=["acme"])
    net = tactix.Builder(QUIET, session).create_network("function")
    w = RNG.standard_normal((4, 3), np.float32)
    net.mark_output(
        *net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ("n", 4)), net.add_constant(w)]),
        "y",
    )
    plan = plan_of(net, session, tactic_sources={"acme"}, builder_optimization_level=1)
    assert launchers(plan) == {"acme.product_python@1"}
    x = RNG.standard_normal((2, 4), np.float32)
    want = x @ w
    np.testing.assert_allclose(foreign(plan, session=session)(x), want * (1 + 1e-5), rtol=1e-6)
    if embedded:
        rows = tuple(
            replace(r, digest="0" * 64, embedded=r.key == "acme.product_python@1")
            for r in plan.requirements
        )
        plan = replace(plan, requirements=rows, blobs={**plan.blobs, "0" * 64: b"no wheel"})
    engine = foreign(plan)
    assert launchers(engine.plan) == {"tactix.numpy@1"}
    np.testing.assert_allclose(engine(x), want, rtol=1e-6)
    with pytest.raises(
        UntrustedPlan,
        match=r"acme\.product_python@1.*Python of" if embedded else r"acme\.product_pyth",
    ):
        foreign(plan, on_untrusted="refuse")


def test_a_plan_of_an_earlier_build_is_refused() -> None:
    """It does not say what its steps compute."""
    data = changed(
        plan_of(model(LAYERS)), lambda h: [s["info"].pop("reference") for s in h["steps"]]
    )
    with pytest.raises(
        UntrustedPlan,
        match=r"sha256.*references cannot run in its place.*holds no reference.*trust",
    ):
        tactix.load(data, on_untrusted="references")
    assert launchers(tactix.load(data, on_untrusted="allow").plan) == {"tactix.cpu.elf@1"}


def test_another_device_has_no_references() -> None:
    plan = plan_of(model(LAYERS))
    with pytest.raises(PlanCompatibilityError, match="the plan is for toy"):
        on_references(replace(plan, device={"kind": "toy"}), plan.steps)


def test_a_launcher_that_is_not_there_is_not_needed() -> None:
    source = model(LAYERS)

    def renamed(header: Any) -> None:
        for s in header["steps"]:
            s["artifact"].update(launcher="nobody.knows@1", requires=["cold_fusion"])

    data = changed(plan_of(source), renamed)
    agree(
        tactix.load(data, logger=QUIET, on_untrusted="references"),
        source,
        {"x": RNG.standard_normal((2, 20, 9, 7), np.float32)},
    )
    with pytest.raises(PlanCompatibilityError, match="cold_fusion"):
        tactix.load(data, logger=QUIET, on_untrusted="allow")


@pytest.mark.parametrize(
    "reference",
    [
        7,
        {},
        {"layer": "os.system"},
        {"layer": "tactix.Relu@1"},
        {"layer": "tactix.Relu@1", "attrs": {"__class__": 1}},
        {"layer": "tactix.Softmax@1", "attrs": {"axis": {"__reduce__": ["os.system", "true"]}}},
        {"layer": "tactix.Softmax@1", "attrs": {"axis": "__import__('os')"}},
        {
            "layer": "tactix.Fused@1",
            "body": {"arity": 1, "nodes": [], "results": [9], "anchor": None},
        },
        {
            "layer": "tactix.Fused@1",
            "body": {"arity": 1, "nodes": [{"layer": "tactix.Fused@1"}], "results": [0]},
        },
        {"layer": "tactix.If@1", "attrs": {"then_branch": {"scoped": "x"}}},
        {"layer": ["tactix.Relu@1"], "attrs": {}},
    ],
)
def test_a_changed_reference_is_a_typed_error(reference: Any) -> None:
    plan = plan_of(model(LAYERS))

    def spoiled(header: Any) -> None:
        for s in header["steps"]:
            s["info"]["reference"] = reference

    with pytest.raises(
        (UntrustedPlan, PlanCompatibilityError, PlanFormatError, ExecutionError)
    ) as caught:
        tactix.load(changed(plan, spoiled), logger=QUIET, on_untrusted="references")(
            np.zeros((1, 20, 9, 7), np.float32)
        )
    assert isinstance(caught.value, TactixError)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["artifact"]["constants"][0].__setitem__(2, [["reshape", [7]]]),
        lambda s: s["artifact"]["constants"][0].__setitem__(2, [["pad", [[-1, 1 << 60]]]]),
        lambda s: s["artifact"]["constants"][0].__setitem__(2, [["cast", {"dtype": "str"}]]),
        lambda s: s["artifact"]["constants"][0].__setitem__(2, [["eval", "1"]]),
        lambda s: s["artifact"]["constants"].clear(),
        lambda s: [o.__setitem__(2, [1 << 40]) for o in s["inputs"] if o[0] == -1],
        lambda s: [o.__setitem__(1, "str") for o in s["inputs"] if o[0] == -1],
        lambda s: [o.__setitem__(2, ["n"]) for o in s["inputs"] if o[0] == -1],
    ],
)
def test_a_changed_packing_is_a_typed_error(change: Callable[[Any], object]) -> None:
    def spoiled(header: Any) -> None:
        for s in header["steps"]:
            if s["artifact"]["constants"]:
                change(s)

    with pytest.raises(UntrustedPlan, match=r"cannot be had|holds no weight"):
        tactix.load(
            changed(plan_of(model(LAYERS)), spoiled), logger=QUIET, on_untrusted="references"
        )


def test_a_small_file_does_not_ask_for_much_memory() -> None:
    """One weight that is read in hundreds of shapes, each of which would have room of its own."""
    builder = tactix.Builder(QUIET)
    net = builder.create_network("many")
    w = net.add_constant(RNG.standard_normal((96, 80), np.float32))
    net.mark_output(
        net.add_layer("tactix.MatMul", [net.add_input("x", "f32", ("n", 96)), w])[0], "y"
    )

    def multiplied(header: Any) -> None:
        (step,) = header["steps"]
        operand, ((name, _, steps),) = step["inputs"][1], step["artifact"]["constants"]
        assert operand[0] == -1
        for i in range(200):
            shape = [["reshape", [96, 80]]] * (i % 50 + 1)
            step["inputs"].append([-1, "f32", [96, 80, *[1] * (i // 50 % 20)], "linear"])
            step["artifact"]["constants"].append([f"c{i}", i + 2, [*shape, *steps]])
            step["constants"][f"c{i}"] = step["constants"][name]

    with pytest.raises(UntrustedPlan, match="16 times what the plan holds"):
        tactix.load(
            changed(plan_of(net, builder.session), multiplied),
            logger=QUIET,
            on_untrusted="references",
        )


def test_a_type_that_numpy_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = halved()
    assert "bf16" in {o.spec.dtype.value for s in plan.steps for o in (*s.inputs, *s.outputs)}
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtypes._numpy.cache_clear()
    with pytest.raises(UntrustedPlan, match="no numpy type for bf16"):
        foreign(plan)
    dtypes._numpy.cache_clear()


@pytest.mark.parametrize(
    "told", [7, [], {"a": 1}, {"a": ["b"]}, {"a": ["b", "c", "d"]}, {"a": [1, 2]}]
)
def test_notes_of_another_form_are_no_requirements(told: Any) -> None:
    plan = plan_of(model(LAYERS))
    spoiled = changed(plan, lambda h: h["meta"].update(references=told))
    engine = tactix.load(spoiled, logger=QUIET, on_untrusted="references")
    assert [r.key for r in engine.plan.requirements] == [r.key for r in plan.requirements]


def test_notes_that_name_no_package() -> None:
    spoiled = changed(
        plan_of(model(LAYERS)), lambda h: h["meta"].update(references={"a": ["b; rm", "1"]})
    )
    with pytest.raises(UntrustedPlan, match="no name and version of a package"):
        tactix.load(spoiled, logger=QUIET, on_untrusted="references")


@pytest.mark.parametrize("embedded", [True, False])
def test_a_layer_of_a_pack_that_may_not_run_names_the_cure(embedded: bool) -> None:
    twice = layer("acme.Twice@1")(lambda x: x * 2)
    pack = SimpleNamespace(TACTIX_NAMESPACE="acme", tactix_layers=hookimpl(lambda: [twice]))
    session = tactix.Session(group="build", plugins=[pack])
    net = tactix.Builder(QUIET, session).create_network("twice")
    net.mark_output(*net.add_layer("acme.Twice", [net.add_input("x", "f32", (4,))]), "y")
    plan = plan_of(net, session)
    rows = tuple(
        replace(r, dist="acme-twice", version="1.0", digest="0" * 64, embedded=embedded)
        if r.key == "acme.Twice@1"
        else r
        for r in plan.requirements
    )
    plan = replace(plan, requirements=rows, blobs={**plan.blobs, "0" * 64: b"no wheel"})
    told = (
        "the plan brings its packs, which run here once it is trusted"
        if embedded
        else "pip install acme-twice==1.0"
    )
    with pytest.raises(tactix.TactixError, match=told) as e:
        foreign(plan)
    assert ("--embed" in str(e.value)) is not embedded
