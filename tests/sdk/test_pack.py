"""``Pack``: what it is given is what sessions get, keys are made of its namespace and of names of
functions, and what makes no sense is refused where it is written.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sdk_site import Site

import tactix
from tactix.plugins.hookspecs import HOOKS
from tactix.plugins.loader import reset_scan
from tactix.plugins.registry import KINDS
from tactix_sdk import (
    BuildStage,
    Converter,
    Flavour,
    Importer,
    Kernel,
    Layer,
    P,
    Pack,
    Presenter,
    Reject,
    Rule,
    Tactic,
    TensorSpec,
    Tool,
    errors,
    exp,
    log1p,
    tanh,
    var,
)
from tactix_sdk.testing import FAILED, outcomes

pack = Pack("acme")
BODY = "if (tid == 0) for (int64_t i = 0; i < n; i++) TX_STORE(i, TX_IN0(n - 1 - i));"


@pack.layer(onnx="acme::TurnAround", takes_epilogue=True, examples=[({}, "f32 5")])
def turn_around(x: Any) -> Any:
    return x[::-1]


@turn_around.kernel("c")
def on_cpu(op: Any) -> Kernel | Reject:
    return Kernel(BODY, sizes={"n": op.output.numel}) if op.output.rank == 1 else Reject("a vector")


@turn_around.kernel("numpy")
def in_numpy(x: Any) -> Any:
    return np.flip(x, 0)


def with_key(key: str, **more: Any) -> Any:
    return SimpleNamespace(key=key, **more)


class Stage(BuildStage[Any, Any, Any, Any]):
    key, serves = "acme.stage", "acme.flag"

    def join(self, *given: Any) -> Any:
        raise AssertionError("nobody asks for it")


class Through(Flavour[Any]):
    key = "acme.through"

    def load(self, *given: Any) -> Any:
        raise AssertionError("nobody asks for it")


class Drawn(Presenter):
    key = "acme.drawn"

    def html(self, subject: object) -> str | None:
        return None


class Lines(Importer[Any]):
    key, format = "acme.lines@1", "lines"

    def claims(self, source: object) -> bool:
        return False

    def load(self, *given: Any) -> None:
        raise AssertionError("it claims nothing")


class Plain(Layer):
    key = "acme.Plain@1"


def plain() -> list[Layer]:
    return [Plain()]


class Own(Tactic):
    key, implements = "acme.own@1", ("acme.Plain@1",)


x = var("x")
RULE = Rule("plain_once", P.acme.Plain(P.acme.Plain(x)), replace=lambda x: P.acme.Plain(x))


@dataclass(frozen=True)
class One:
    """How a pack is given a thing of each kind, and the key under which a session has it."""

    kind: str
    give: Callable[[Pack], object]
    key: str


def tool(p: Pack) -> object:
    @p.tool
    def audit() -> None:
        """Looks at plans."""

    return audit


ONES = [
    One("layers", lambda p: p.layer(Plain()), "acme.Plain@1"),
    One("layers", lambda p: p.layer(plain), "acme.Plain@1"),
    One("layers", lambda p: p.layer()(turn_around.function), "acme.TurnAround@1"),
    One("layers", lambda p: p.pointwise("Twice", version=2)(lambda x: x + x), "acme.Twice@2"),
    One("importers", lambda p: p.importer(Lines()), "acme.lines@1"),
    One("converters", lambda p: p.onnx_converter("acme::Op", 3)(len), "onnx:acme::Op@3"),
    One("converters", lambda p: p.converter(Converter("csv", "a::B", len)), "csv:a::B@1"),
    One("rules", lambda p: p.rule(RULE), "acme.plain_once"),
    One("tactics", lambda p: p.tactic(Own()), "acme.own@1"),
    One("tactics", lambda p: p.kernel("c", "acme.Plain@1")(on_cpu.author), "acme.on_cpu_c@1"),
    One("tactics", lambda p: p.kernel("cuda", "acme.Plain@1", name="g")(len), "acme.g@1"),
    One("compilers", lambda p: p.compiler(with_key("acme.cc@1", language="x")), "acme.cc@1"),
    One("calibrators", lambda p: p.calibrator(with_key("acme.widest")), "acme.widest"),
    One("build_stages", lambda p: p.build_stage(Stage()), "acme.stage"),
    One("tools", tool, "acme.audit"),
    One("tools", lambda p: p.tool(Tool("see", "Shows plans.", len)), "acme.see"),
    One("launchers", lambda p: p.launcher(with_key("acme.run@1")), "acme.run@1"),
    One("launchers", lambda p: p.kernel("numpy", "a.B@1", name="f")(len), "acme.f_python@1"),
    One("devices", lambda p: p.device(with_key("acme.board@1", kind="b")), "acme.board@1"),
    One("allocators", lambda p: p.allocator(with_key("acme.pool")), "acme.pool"),
    One("flavours", lambda p: p.flavour(Through()), "acme.through"),
    One("trust_stores", lambda p: p.trust_store(with_key("acme.trust")), "acme.trust"),
    One("presenters", lambda p: p.presenter(Drawn()), "acme.drawn"),
]


def test_every_kind_that_there_is_can_be_given() -> None:
    assert {one.kind for one in ONES} == set(KINDS)


@pytest.mark.parametrize("group", HOOKS)
@pytest.mark.parametrize("one", ONES, ids=lambda one: f"{one.kind}-{one.key}")
def test_what_it_is_given_is_in_sessions_of_the_kinds_groups(one: One, group: str) -> None:
    mine = Pack("acme")
    one.give(mine)
    session = tactix.Session(group, plugins=[mine], discover=False, strict=True)
    if one.kind in session.kinds:
        assert one.key in getattr(session, one.kind)
    else:
        assert group == "runtime"
        assert f"tactix_{one.kind}" not in HOOKS["runtime"]


@pytest.mark.parametrize("kind", ["layers", "launchers", "devices", "allocators", "flavours"])
def test_what_running_needs_is_in_both_groups(kind: str) -> None:
    for group in HOOKS:
        assert kind in tactix.Session(group, discover=False).kinds


def test_it_has_hooks_for_what_it_was_given_alone() -> None:
    mine = Pack("acme")
    assert [n for n in dir(mine) if n.startswith("tactix_")] == []
    mine.allocator(with_key("acme.pool"))
    assert [n for n in dir(mine) if n.startswith("tactix_")] == ["tactix_allocators"]


def test_a_function_is_called_when_a_session_first_needs_what_it_gives() -> None:
    mine, called = Pack("acme"), []

    @mine.rule
    def rules() -> list[Rule]:
        called.append("rules")
        return [RULE]

    @mine.launcher
    def launcher() -> Any:
        called.append("launcher")
        return with_key("acme.run@1")

    session = tactix.Session("build", plugins=[mine], discover=False, strict=True)
    session.found()
    assert called == []
    assert list(session.rules) == ["acme.plain_once"]
    assert called == ["rules"]
    assert list(session.launchers) == ["acme.run@1"]


def test_keys_are_made_of_the_namespace_and_the_names() -> None:
    session = tactix.Session(plugins=[pack], discover=False, strict=True)
    own = [key for key in session.layers if key.startswith("acme.")]
    assert own == ["acme.TurnAround@1"]
    assert list(session.tactics) == ["acme.turn_around_c@1", "acme.turn_around_numpy@1"]
    assert list(session.launchers) == ["acme.turn_around_numpy_python@1"]
    assert turn_around.imports == ("onnx:acme::TurnAround",)


def test_its_kernels_compete_and_fuse() -> None:
    builder = tactix.Builder(session=tactix.Session(plugins=[pack]))
    network = builder.create_network("turned")
    (y,) = network.add_layer("acme.TurnAround", [network.add_input("x", "f32", ("n",))])
    network.mark_output(*network.add_layer("tactix.Relu", [y]), name="y")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=4)
    engine = builder.build(network, config)
    (node,) = engine.plan.ledger["nodes"].values()
    bids = {c["tactic"] for c in node["candidates"]}
    assert {"acme.turn_around_c@1", "acme.turn_around_numpy@1"} <= bids
    assert engine(np.array([1, -2, 3], np.float32)).tolist() == [3, 0, 1]


def test_what_it_makes_goes_to_another_process_by_name() -> None:
    for made in (turn_around, in_numpy.launcher):
        assert pickle.loads(pickle.dumps(made)).key == made.key


def not_there(p: Pack) -> object:
    def told() -> None: ...

    del told.__doc__
    return p.tool(told)


def twice(p: Pack) -> object:
    p.pointwise("Mish")(lambda x: x * tanh(log1p(exp(x))))
    return p.pointwise("Mish")(lambda x: x)


MISUSES: list[tuple[str, Callable[[Any], object], tuple[str, ...]]] = [
    ("namespace", lambda p: Pack("Acme"), ("'Acme' is no namespace",)),
    ("reserved", lambda p: Pack("onnx"), ("'onnx' is reserved",)),
    ("layer name", lambda p: p.layer("a b")(abs), ("'acme.a b@1' is no key",)),
    ("no name", lambda p: p.pointwise()(lambda x: x), ("has no name", "give name=")),
    ("bare", lambda p: p.layer(lambda x: x), ("is no name", "@pack.layer()")),
    ("bare pointwise", lambda p: p.pointwise(abs), ("@pack.pointwise()",)),
    ("operator", lambda p: p.pointwise(onnx="Mish")(abs), ("names no operator", "acme::Mish")),
    ("converter", lambda p: p.onnx_converter("Op"), ("no operator 'Op'",)),
    ("attribute", lambda p: p.layer("L")(lambda x, *, axis: x), ("'axis' needs a default",)),
    (
        "changeable",
        lambda p: p.layer("L")(lambda x, *, g={}: x),
        ("default of attribute 'g' is {}", "a tuple"),
    ),
    ("infer", lambda p: p.layer("L")(lambda *, n=1: n), ("acme.L@1", "reads no tensor", "infer=")),
    ("key", twice, ("layer 'acme.Mish@1' is there already", "given at", "its own name")),
    ("language", lambda p: p.kernel("rust", "a.B@1"), ("no kernels in 'rust'", "cuda")),
    ("option", lambda p: p.kernel("numpy", "a.B@1", fused=True), ("'fused'", "numpy_tactic")),
    ("missing", lambda p: p.kernel("triton", "a.B@1"), ("'kernel'", "triton_tactic")),
    ("variants", lambda p: p.kernel("c", "a.B@1", knobs={"r": ()})(len), ("0 variants",)),
    ("no tool", lambda p: p.tool(with_key("see")), ("is no tool", "no function", "@pack.tool")),
    ("docstring", not_there, ("tool 'told'", "no docstring")),
    ("namespace of a key", lambda p: p.launcher(with_key("b.run@1")), ("another namespace",)),
    ("form of a key", lambda p: p.device(with_key("acme.board")), ("no key of a device",)),
    ("no key", lambda p: p.allocator(object()), ("is no allocator", "no key")),
    ("class", lambda p: p.tactic(Own), ("Own is a class", "Own()")),
    ("other kind", lambda p: p.rule(with_key("acme.rule")), ("is no rule", "Rule")),
]


@pytest.mark.parametrize(
    ("misuse", "said"), [pytest.param(m, s, id=name) for name, m, s in MISUSES]
)
def test_misuse_is_refused_with_the_place(
    misuse: Callable[[Any], object], said: tuple[str, ...]
) -> None:
    with pytest.raises(errors.TactixError) as e:
        misuse(Pack("acme"))
    assert isinstance(e.value, errors.PluginError | errors.InvalidArgument | errors.ConfigError)
    assert [text for text in said if text not in str(e.value)] == []
    assert str(e.value).startswith(f"{__file__}:")


def test_two_of_a_key_name_both_places() -> None:
    with pytest.raises(errors.PluginError) as e:
        twice(Pack("acme"))
    assert str(e.value).count(f"{Path(__file__).name}:") == 2


def test_a_kernel_says_which_layer_it_is_for() -> None:
    # a pack of its own: another test counts what the module's has
    own = Pack("acme").layer()(turn_around.function)
    own.kernel("c")(on_cpu.author)
    with pytest.raises(errors.PluginError, match="there already"):
        own.kernel("c")(on_cpu.author)
    other = own.kernel("c", name="turn_around_other", version=2)(on_cpu.author)
    assert other.implements == ("acme.TurnAround@1",)
    assert other.key == "acme.turn_around_other@2"


def test_one_that_is_found_by_another_name_says_so(site: Site) -> None:
    subject = site.new("acme-swish", layer=True)
    points = next(site.root.glob("*.dist-info/entry_points.txt"))
    points.write_text(points.read_text().replace("acme_swish =", "swish ="))
    reset_scan()
    with pytest.raises(errors.PluginError, match=r"of the namespace 'acme_swish'.*as 'swish'"):
        subject.fresh("build").found()


def test_one_in_the_wrong_group_says_which(site: Site) -> None:
    subject = site.new("acme-swish", layer=True, tactic="numpy")
    points = next(site.root.glob("*.dist-info/entry_points.txt"))
    points.write_text(points.read_text().partition("[tactix.runtime.v1]")[0])
    reset_scan()
    with pytest.raises(errors.PluginError, match=r"tactix_launchers belongs .* tactix.runtime.v1"):
        subject.fresh("build").found()


def test_the_checks_take_an_object(site: Site) -> None:
    subject = site.new("acme-swish", layer=True)
    found = list(outcomes(subject, ["import-light", "hooks", "deterministic"]))
    assert [(o.check.name, o.said) for o in found if o.state == FAILED] == []
    assert [f.module for f in subject.found] == ["acme_swish:pack"] * 2


def test_infer_is_the_layers_own() -> None:
    def halved(x: TensorSpec) -> TensorSpec:
        return TensorSpec(x.dtype, (x.shape[0] // 2,))

    made = Pack("acme").layer("Half", infer=halved)(lambda x: x[::2])
    (spec,) = made.infer(made.Attrs(), [TensorSpec(tactix.DType.FP32, (6,))])
    assert spec.shape == (3,)
