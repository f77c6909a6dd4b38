"""Refitting built engines: the same constants and answers as of a build with the new weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from refit_models import conv_bn, model, normal

import tactix
from tactix import BuilderFlag
from tactix.base.errors import (
    ConfigError,
    DTypeError,
    InvalidArgument,
    ModelImportError,
    ShapeError,
    UntrustedPlan,
)
from tactix_refit.refitter import Refitter

from .conftest import REFIT, Feeds, Model, assert_same, built, constants, run


def conv(channels: int, size: int, kernel: int = 3) -> Model:
    def made(seed: int) -> bytes:
        node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
        return model(
            [node],
            {"x": [1, channels, size, size]},
            ["y"],
            normal(seed, w=(channels, channels, kernel, kernel), b=(channels,)),
        )

    return made


def lstm(seed: int) -> bytes:
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y", "h"], hidden_size=7, direction="bidirectional"
    )
    return model(
        [node],
        {"x": ["s", "n", 5]},
        ["y", "h"],
        normal(seed, w=(2, 28, 5), r=(2, 28, 7), b=(2, 56)),
    )


def qkv(seed: int) -> bytes:
    """Three products of one input, as attention has them, the heads turned to the front."""
    nodes = []
    for k in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{k}"], [f"p{k}"]),
            helper.make_node("Add", [f"p{k}", f"b{k}"], [f"s{k}"]),
            helper.make_node("Reshape", [f"s{k}", "split"], [f"r{k}"]),
            helper.make_node(
                "Transpose", [f"r{k}"], [f"t{k}"], perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3]
            ),
        ]
    nodes += [
        helper.make_node("MatMul", ["tq", "tk"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["soft"], axis=-1),
        helper.make_node("MatMul", ["soft", "tv"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "join"], ["flat"]),
        helper.make_node("Gemm", ["flat", "wo", "bo"], ["y"], transB=1, alpha=0.5),
    ]
    shapes = {f"{kind}{k}": shape for k in "qkv" for kind, shape in (("w", (12, 12)), ("b", (12,)))}
    w = normal(seed, **shapes, wo=(5, 12), bo=(5,))
    w |= {
        "split": np.array([0, 0, 3, 4]),
        "join": np.array([-1, 12]),
        "scale": np.full((1,), 0.5, np.float32),
    }
    return model(nodes, {"x": ["n", 6, 12]}, ["y"], w)


def shared(seed: int) -> bytes:
    """One matrix read twice, once turned around; and a table of rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["a", "wt"], ["b"]),
        helper.make_node("Gather", ["table", "rows"], ["c"], axis=0),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    w: Feeds = normal(seed, w=(6, 6), table=(9, 6)) | {"rows": np.array([7, 0, 3])}
    return model(nodes, {"x": [3, 6]}, ["y"], w)


def folded(seed: int) -> bytes:
    """Weights that the model itself computes of others."""
    nodes = [
        helper.make_node("Mul", ["v", "g"], ["vg"]),
        helper.make_node("Concat", ["vg", "u"], ["w"], axis=1),
        helper.make_node("Slice", ["w", "begin", "end", "axes"], ["cut"]),
        helper.make_node("Cast", ["cut"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Sqrt", ["wide"], ["root"]),
        helper.make_node("Cast", ["root"], ["narrow"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "narrow"], ["y"]),
    ]
    w = {n: abs(a) for n, a in normal(seed, v=(40, 20), g=(1, 20), u=(40, 13)).items()}
    w |= {"begin": np.array([2]), "end": np.array([31]), "axes": np.array([1])}
    return model(nodes, {"x": ["n", 40]}, ["y"], w)


def conv_scaled(seed: int) -> bytes:
    """Numbers for each channel behind convolutions, by every layer that folds into them."""
    w = normal(seed, w1=(5, 3, 3, 3), b1=(5,), a=(5, 1, 1), w2=(7, 5, 1, 1), t=(7, 1, 1))
    rng = np.random.default_rng(seed + 100)
    w |= {n: rng.random((k, 1, 1), np.float32) + np.float32(0.5) for n, k in (("s", 5), ("d", 7))}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "s"], ["cs"]),
        helper.make_node("Add", ["cs", "a"], ["csa"]),
        helper.make_node("Relu", ["csa"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["e"]),
        helper.make_node("Div", ["e", "d"], ["ed"]),
        helper.make_node("Sub", ["ed", "t"], ["y"]),
    ]
    return model(nodes, {"x": ["n", 3, 9, 8]}, ["y"], w)


MODELS: dict[str, tuple[Model, Feeds]] = {
    "conv_bn": (conv_bn, normal(0, x=(2, 3, 9, 8))),
    "conv_scaled": (conv_scaled, normal(0, x=(2, 3, 9, 8))),
    "winograd": (conv(32, 28), normal(0, x=(1, 32, 28, 28))),
    "odd conv": (conv(19, 11, kernel=7), normal(0, x=(1, 19, 11, 11))),
    "lstm": (lstm, normal(0, x=(4, 3, 5))),
    "qkv": (qkv, normal(0, x=(2, 6, 12))),
    "shared": (shared, normal(0, x=(3, 6))),
    "folded": (folded, normal(0, x=(3, 40))),
}


@pytest.mark.parametrize("flags", [set(), {BuilderFlag.BF16}], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_refitted_is_built_anew(name: str, flags: set[BuilderFlag]) -> None:
    make, feeds = MODELS[name]
    engine, fresh = (built(make(seed), REFIT | flags) for seed in (1, 2))
    before, first = constants(engine), run(engine, feeds)
    context = engine.create_execution_context()
    assert_same(context.run(feeds), first)
    refitter = Refitter(engine)
    stored = {b.blob for b in engine.plan.buffers if b.blob and b.dtype.is_float}
    assert stored <= refitter._recipes.constants.keys()
    refitter.refit_from_onnx(make(2))
    assert constants(engine) == constants(fresh)
    assert_same(context.run(feeds), run(fresh, feeds))
    assert any((first[k] != y).any() for k, y in context.run(feeds).items())
    refitter.refit_from_onnx(make(1))
    assert constants(engine) == before
    assert_same(context.run(feeds), first)


def test_what_is_tested_is_there() -> None:
    tactics = {
        name: [s.info["tactic"] for s in built(make(1)).plan.steps]
        for name, (make, _) in MODELS.items()
    }
    assert "tactix.c_winograd@1" in tactics["winograd"]
    assert "tactix.c_winograd@1" not in tactics["odd conv"]  # no patch of it is that long
    merged = Refitter(built(qkv(1)))._recipes
    joined = [k for k, t in enumerate(merged.terms) if t.op == "concatenate"]
    assert merged.needs[joined[0]] in ({"wq", "wk", "wv"}, {"bq", "bk", "bv"})
    scaled = {k for s in built(conv_scaled(1)).plan.steps for k in s.info["layers"]}
    assert scaled.isdisjoint(f"tactix.{k}@1" for k in ("Add", "Sub", "Mul", "Div"))
    assert not any("BatchNorm" in k for s in built(conv_bn(1)).plan.steps for k in s.info["layers"])


@pytest.mark.parametrize("name", MODELS)
def test_the_same_rules_fire(name: str) -> None:
    plain, refittable = (built(MODELS[name][0](1), flags).plan for flags in (set(), REFIT))
    assert refittable.ledger["rules"] == plain.ledger["rules"]
    assert [s.info["tactic"] for s in refittable.steps] == [s.info["tactic"] for s in plain.steps]


def test_the_flag_costs_nothing_and_plans_without_it_are_as_before() -> None:
    plain, refittable = (built(conv_bn(1), flags) for flags in (set(), REFIT))
    feeds = MODELS["conv_bn"][1]
    assert_same(run(refittable, feeds), run(plain, feeds))
    assert sorted(constants(plain).values()) == sorted(constants(refittable).values())
    assert "refit" not in plain.plan.meta
    with pytest.raises(InvalidArgument, match=r"cannot be refitted.*BuilderFlag.REFIT"):
        Refitter(plain)


# -- weights by name -----------------------------------------------------------------------------


def test_names_and_prototypes() -> None:
    refitter = Refitter(built(conv_bn(1)))
    assert refitter.get_all_weights() == sorted(
        ["w1", "b1", "s1", "t1", "m1", "v1", "w2", "s2", "t2", "m2", "v2"]
    )
    assert refitter.get_missing_weights() == []
    assert refitter.get_weights_prototype("w1").shape == (5, 3, 3, 3)
    assert refitter.get_weights_prototype("w1").dtype is tactix.DType.FP32
    assert refitter.get_named_weights("w1") is None


def test_some_weights_and_those_that_they_were_stored_with() -> None:
    engine, feeds = built(conv_bn(1)), MODELS["conv_bn"][1]
    refitter, rng = Refitter(engine), np.random.default_rng(5)
    new = rng.standard_normal(7, dtype=np.float32)
    before = constants(engine)
    refitter.set_named_weights("t2", new)
    assert refitter.get_named_weights("t2") is new
    assert refitter.get_missing_weights() == [
        "m2",
        "s2",
        "v2",
    ]  # of the term alone; w2 is not made of t2
    with pytest.raises(InvalidArgument, match=r"3 weights are missing.*Set m2, s2, v2"):
        refitter.refit()
    assert constants(engine) == before
    from tactix.builder import Builder

    old = {v.name: v.const for v in Builder().import_model(conv_bn(1)).constants}
    for name in ("m2", "s2", "v2"):
        refitter.set_named_weights(name, old[name])
    refitter.unset_named_weights("t2")
    refitter.set_named_weights("t2", new)
    assert refitter.get_missing_weights() == ["w2"]
    refitter.set_named_weights("w2", old["w2"])
    refitter.refit()
    changed = [blob for blob, content in constants(engine).items() if content != before[blob]]
    assert len(changed) == 1
    y, first = run(engine, feeds)["y"], run(built(conv_bn(1)), feeds)["y"]
    np.testing.assert_allclose(
        y - first, np.broadcast_to((new - old["t2"]).reshape(7, 1, 1), y.shape), atol=1e-4
    )
    refitter.set_named_weights("t2", old["t2"])  # the others stay set
    refitter.refit()
    assert constants(engine) == before


def test_wrong_weights_are_refused() -> None:
    engine = built(conv_bn(1))
    refitter, before = Refitter(engine), constants(engine)
    with pytest.raises(InvalidArgument, match=r"no weight is named 'q'.*There are: b1, m1"):
        refitter.set_named_weights("q", np.zeros(1))
    with pytest.raises(ShapeError, match=r"'w1' is \(5, 3, 3, 3\), got \(5, 3, 3\)"):
        refitter.set_named_weights("w1", np.zeros((5, 3, 3), np.float32))
    with pytest.raises(DTypeError, match="'b1' is f32, got float64"):
        refitter.set_named_weights("b1", np.zeros(5))
    with pytest.raises(InvalidArgument, match="'b1' is not finite"):
        refitter.set_named_weights("b1", np.array([1, 2, np.nan, 3, 4], np.float32))
    refitter.set_named_weights("b1", np.full(5, 3e38, np.float32))  # whose sum is not finite
    with pytest.raises(ShapeError, match=r"'s1' is \(5\), got \(\)"):
        refitter.set_named_weights("s1", np.float32(1))
    with pytest.raises(InvalidArgument, match="the model has no weight 'b1' and 10 more"):
        refitter.refit_from_onnx(shared(1))
    with pytest.raises(ModelImportError):
        refitter.refit_from_onnx("missing.onnx")
    assert constants(engine) == before


def test_arrays_of_any_layout() -> None:
    engine, other = built(shared(1)), built(shared(2))
    from tactix.builder import Builder

    new = {v.name: v.const for v in Builder().import_model(shared(2)).constants}
    refitter = Refitter(engine)
    refitter.set_named_weights("w", np.asfortranarray(new["w"]))
    refitter.set_named_weights("table", np.repeat(new["table"], 2, axis=0)[::2])
    refitter.refit()
    assert constants(engine) == constants(other)


# -- what cannot be replaced ---------------------------------------------------------------------


def test_zeros_and_equal_weights_stay_weights() -> None:
    """A bias of zeros is not left out, and equal weights are not made one."""

    def made(seed: int) -> bytes:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["c"]),
                 helper.make_node("Mul", ["c", "s"], ["d"]), helper.make_node("Mul", ["c", "t"], ["e"]),
                 helper.make_node("Sub", ["d", "e"], ["y"])]  # fmt: skip
        w = normal(seed, w=(4, 4), b=(4,), s=(4,), t=(4,))
        w |= (
            {"b": np.zeros(4, np.float32), "s": np.ones(4, np.float32), "t": np.ones(4, np.float32)}
            if seed == 1
            else {}
        )
        return model(nodes, {"x": ["n", 4]}, ["y"], w)

    engine, feeds = built(made(1)), normal(3, x=(2, 4))
    refitter = Refitter(engine)
    assert refitter.get_all_weights() == ["b", "s", "t", "w"]
    assert not run(engine, feeds)["y"].any()
    refitter.refit_from_onnx(made(2))
    new = normal(2, w=(4, 4), b=(4,), s=(4,), t=(4,))
    want = (feeds["x"] @ new["w"] + new["b"]) * (new["s"] - new["t"])
    np.testing.assert_allclose(run(engine, feeds)["y"], want, atol=1e-5)


@pytest.mark.parametrize(("field", "fires"), [("when", False), ("fits", True)])
def test_rules_that_look(field: str, fires: bool) -> None:
    """A rule that looks at a weight before it fires does not, unless it only asks whether a dtype
    holds what it makes of it.
    """
    from tactix.contracts.rule import P, Rule, const, literal, var
    from tactix.fuse.rewrite import fuse
    from tactix_refit.build import RefitBuild

    rule = Rule(
        "test.halve",
        P.tactix.Mul(var("x"), const("c")),
        replace=lambda x, c: P.tactix.Add(
            x, literal(c.const.astype(np.float16).astype(np.float32))
        ),
        **{field: lambda c: bool((np.abs(c.const) < 65504).all())},
    )
    net = tactix.Builder().create_network()
    x = net.add_input("x", "f32", ["n", 3])
    net.mark_output(
        net.add_layer("tactix.Mul", [x, net.add_constant(np.float32([1, 2, 3]), "c")])[0], "y"
    )
    build = RefitBuild(identical=False, strip=False)
    made, trace = fuse(build.network(net), build.rules([rule]))
    assert (trace.counts == {"test.halve": 1}) is fires
    assert not build.fixed
    assert all(type(v.const).__name__ == "Traced" for v in made.constants)


def test_numbers_that_a_rule_built_in_are_named() -> None:
    def made(factor: float) -> bytes:
        nodes = [helper.make_node("Mul", ["x", "half"], ["h"]), helper.make_node("Div", ["x", "root"], ["d"]),
                 helper.make_node("Erf", ["d"], ["e"]), helper.make_node("Add", ["e", "one"], ["f"]),
                 helper.make_node("Mul", ["h", "f"], ["g"]), helper.make_node("Mul", ["g", "free"], ["y"])]  # fmt: skip
        numbers = {"half": 0.5, "root": 2**0.5, "one": 1.0, "free": factor}
        return model(nodes, {"x": ["n", 4]}, ["y"], {n: np.float32(v) for n, v in numbers.items()})

    engine, feeds = built(made(3.0)), normal(3, x=(2, 4))
    refitter = Refitter(engine)
    assert refitter.fixed.keys() >= {"half", "root", "one"}
    assert "rule tactix.gelu" in refitter.fixed["half"]
    with pytest.raises(InvalidArgument, match=r"'one' cannot be replaced.*tactix.gelu"):
        refitter.set_named_weights("one", np.float32(2))
    before = run(engine, feeds)["y"]
    if "free" in refitter.get_all_weights():
        refitter.set_named_weights("free", np.float32(6))
        refitter.refit()
        np.testing.assert_allclose(run(engine, feeds)["y"], 2 * before, rtol=1e-6)
    else:
        assert "free" in refitter.fixed


def test_what_the_importer_built_in_is_named() -> None:
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["c"]),
        helper.make_node("Mul", ["c", "high"], ["y"]),
    ]
    content = model(nodes, {"x": ["n", 4]}, ["y"], {"low": np.float32(0), "high": np.float32(6)})
    refitter = Refitter(built(content))
    assert refitter.get_all_weights() == []
    assert refitter.fixed == dict.fromkeys(
        ("low", "high"), "the importer built its values into a layer"
    )


def test_quantized_layers_are_left_out_with_a_reason() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        helper.make_node("DequantizeLinear", ["qx", "sx", "zx"], ["dx"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=1),
        helper.make_node("MatMul", ["dx", "dw"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("MatMul", ["q", "v"], ["y"]),
    ]
    rng = np.random.default_rng(1)
    w: Any = {"sx": np.float32(0.05), "zx": np.uint8(128), "sw": rng.random(6, np.float32) / 50,
              "zw": np.zeros(6, np.int8), "w": rng.integers(-9, 9, (4, 6)).astype(np.int8)}  # fmt: skip
    engine = built(model(nodes, {"x": ["n", 4]}, ["y"], w | normal(1, b=(6,), v=(6, 3))))
    plain = built(model(nodes, {"x": ["n", 4]}, ["y"], w | normal(1, b=(6,), v=(6, 3))), set())
    assert [s.info["kind"] for s in engine.plan.steps] == [s.info["kind"] for s in plain.plan.steps]
    refitter = Refitter(engine)
    assert "v" in refitter.get_all_weights()
    assert {"w", "sw", "sx"} <= refitter.fixed.keys()
    with pytest.raises(InvalidArgument, match="'w' cannot be replaced"):
        refitter.set_named_weights("w", w["w"])


def test_a_model_in_which_more_differs_is_refused() -> None:
    def made(rows: list[int], half: float) -> bytes:
        nodes = [
            helper.make_node("Gather", ["x", "rows"], ["g"], axis=1),
            helper.make_node("MatMul", ["g", "w"], ["m"]),
            helper.make_node("Pow", ["m", "power"], ["y"]),
        ]
        w: Feeds = normal(1, w=(3, 4)) | {"rows": np.array(rows), "power": np.float32(half)}
        return model(nodes, {"x": ["n", 5]}, ["y"], w)

    engine = built(made([0, 2, 4], 2.0))
    refitter, before = Refitter(engine), constants(engine)
    with pytest.raises(
        InvalidArgument,
        match="'rows' differs and cannot be replaced: it is no floating-point weight",
    ):
        refitter.refit_from_onnx(made([0, 2, 3], 2.0))
    with pytest.raises(
        InvalidArgument, match=r"'power' differs and cannot be replaced: .* rule tactix.power"
    ):
        refitter.refit_from_onnx(made([0, 2, 4], 3.0))
    refitter.refit_from_onnx(made([0, 2, 4], 2.0))
    assert constants(engine) == before


def test_identical_weights(tmp_path: Path) -> None:
    engine = built(conv_bn(1), {BuilderFlag.REFIT_IDENTICAL, BuilderFlag.STRIP_PLAN})
    refitter = Refitter(engine)
    with pytest.raises(InvalidArgument, match=r"is another one.*REFIT_IDENTICAL"):
        refitter.refit_from_onnx(conv_bn(2))
    refitter.refit_from_onnx(conv_bn(1))
    feeds = MODELS["conv_bn"][1]
    assert_same(run(engine, feeds), run(built(conv_bn(1), set()), feeds))


def test_settings_that_contradict() -> None:
    with pytest.raises(ConfigError, match="STRIP_PLAN without REFIT"):
        built(conv_bn(1), {BuilderFlag.STRIP_PLAN})


def test_a_refitted_plan_is_trusted_no_more_than_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "maker"))
    path = tmp_path / "it.plan"
    built(conv(8, 6)(0), REFIT).save(path)
    refitter = Refitter(path)
    refitter.set_named_weights("b", np.ones(8, np.float32))
    refitter.refit()
    assert tactix.Runtime().load(refitter.plan), "of one's own"
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "other"))
    with pytest.raises(UntrustedPlan):
        tactix.Runtime().load(refitter.plan)
