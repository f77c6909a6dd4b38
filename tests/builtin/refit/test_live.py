"""Refitting while contexts run, and plans without their weights."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from refit_models import chain, conv_bn, model, normal
from refit_threads import inferring, one_of, refitted_apart

import tactix
from tactix import BuilderFlag
from tactix.base.errors import ExecutionError, InvalidArgument, PlanFormatError
from tactix.plan import container
from tactix_refit.engine import RefittableEngine
from tactix_refit.refitter import Refitter
from tactix_tools import cli
from tactix_trust import trust_digest

from .conftest import REFIT, Feeds, assert_same, built, constants, run

STRIPPED = {BuilderFlag.REFIT, BuilderFlag.STRIP_PLAN}
FEEDS = normal(0, x=(2, 3, 9, 8))


def test_a_run_sees_old_weights_or_new_ones() -> None:
    engine = built(chain(1.0))
    refitter = Refitter(engine)
    x, allowed, wrong = np.ones((3, 64), np.float32), {1.0, 64.0}, list[Any]()
    stop, runs = threading.Event(), [0] * 4

    def infer(k: int) -> None:
        context = None
        while not stop.is_set():
            if context is None or runs[k] % 50 == 0:
                context = engine.create_execution_context()
            y = context.run({"x": x[: 1 + runs[k] % 3]})["y"]
            found = set(np.round(np.unique(y), 3).tolist())
            if len(found) != 1 or not found <= allowed:
                wrong.append(found)
            runs[k] += 1

    threads = [threading.Thread(target=infer, args=(k,)) for k in range(len(runs))]
    for t in threads:
        t.start()
    try:
        for i in range(60):
            refitter.refit_from_onnx(chain(2.0 if i % 2 == 0 else 1.0))
            seen = float(engine(x)[0, 0])  # of the calling thread: new at once
            assert seen == pytest.approx(64.0 if i % 2 == 0 else 1.0)
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not wrong
    assert min(runs) > 0


def segmented(number: float) -> bytes:
    """Products before and after a step whose shape follows from data; ``number`` becomes a part of
    that.
    """
    w = {"w": np.full((4, 4), number / 4, np.float32), "u": np.full((8, 8), number / 8, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Shape", ["places"], ["size"]),
        helper.make_node("Cast", ["size"], ["wide"], to=1),
        helper.make_node("ReduceSum", ["wide"], ["count"], keepdims=0),
        helper.make_node("Mul", ["count", "number"], ["c"]),
        helper.make_node("ReduceMax", ["a"], ["m"], keepdims=0),
        helper.make_node("Expand", ["m", "eight"], ["e"]),
        helper.make_node("MatMul", ["e", "u"], ["f"]),
        helper.make_node("Add", ["f", "c"], ["y"]),
    ]
    w |= {"number": np.full((1,), number, np.float32), "eight": np.array([1, 8])}
    return model(nodes, {"x": ["n", 4]}, ["y"], w)


def set_all(refitter: Refitter, numbers: dict[str, float]) -> None:
    for name, number in numbers.items():
        refitter.set_named_weights(
            name, np.full(refitter.get_weights_prototype(name).shape, number, np.float32)
        )
    refitter.refit()


def test_runs_in_phases_see_one_set_of_weights() -> None:
    engine, x = built(segmented(1.0)), np.ones((2, 4), np.float32)
    assert engine.plan.produced
    refitter, allowed = Refitter(engine), {1.0: 11.0, 2.0: 14.0}
    with pytest.raises(InvalidArgument, match="'number' differs and cannot be replaced"):
        refitter.refit_from_onnx(segmented(2.0))
    with inferring(one_of(engine, x, [*allowed.values()])):
        for i in range(40):
            number = 2.0 if i % 2 == 0 else 1.0
            set_all(refitter, {"w": number / 4, "u": number / 8})
            assert engine(x)[0, 0] == pytest.approx(allowed[number])


def test_what_runs_in_a_stream_and_at_addresses() -> None:
    engine = built(chain(1.0))
    context, refitter, stream = (
        engine.create_execution_context(),
        Refitter(engine),
        engine.device.create_stream(),
    )
    x, y = np.ones((2, 64), np.float32), np.empty((2, 64), np.float32)
    context.set_tensor_address("x", x)
    context.set_tensor_address("y", y)
    for number, want in ((1.0, 1.0), (2.0, 64.0), (1.0, 1.0)):
        refitter.refit_from_onnx(chain(number))
        context.execute_async_v3(stream)
        stream.synchronize()
        assert y == pytest.approx(want)
    bindings = [x.ctypes.data, y.ctypes.data]
    for number, want in ((2.0, 64.0), (1.0, 1.0)):
        context.execute_v2(bindings)
        refitter.refit_from_onnx(chain(number))
        context.execute_v2(bindings)
        assert y == pytest.approx(want)


def test_memory_does_not_grow() -> None:
    engine = built(conv_bn(1))
    refitter, places = Refitter(engine), set()
    for seed in (2, 1, 2, 1, 2):
        refitter.refit_from_onnx(conv_bn(seed))
        places.add(tuple(engine._program.addresses))  # type: ignore[attr-defined]
    assert len(places) == 2
    assert_same(run(engine, FEEDS), run(built(conv_bn(2)), FEEDS))


def test_parts_that_are_refitted_apart() -> None:
    """Each constant changes places on its own."""
    engine = built(chain(1.0, layers=3))
    refitted_apart(engine, Refitter(engine), 12)


def test_an_error_changes_nothing() -> None:
    engine = built(conv_bn(1))
    refitter, before, context = (
        Refitter(engine),
        constants(engine),
        engine.create_execution_context(),
    )
    first = context.run(FEEDS)
    refitter.refit_from_onnx(conv_bn(2))
    after, second = constants(engine), context.run(FEEDS)
    broken = Refitter(engine)
    broken._replay.terms = (*broken._replay.terms[:-1], broken._replay.terms[0])
    with pytest.raises(PlanFormatError, match="a recipe cannot be followed"):
        broken.refit_from_onnx(conv_bn(3))
    assert constants(engine) == after != before
    assert_same(context.run(FEEDS), second)
    assert any((first[k] != second[k]).any() for k in first)
    Refitter(engine).refit_from_onnx(conv_bn(1))
    assert_same(context.run(FEEDS), first)


def test_a_model_whose_weights_do_not_fit_sets_none_of_them(tmp_path: Path) -> None:
    engine = built(chain(1.0, layers=3))
    x = np.ones((1, 64), np.float32)
    refitter, before = Refitter(engine), engine(x)
    proto = onnx.load_from_string(chain(2.0, layers=3))
    bad = numpy_helper.to_array(proto.graph.initializer[-1]).copy()
    bad[3, 5] = np.nan
    proto.graph.initializer[-1].CopyFrom(numpy_helper.from_array(bad, "w2"))
    onnx.save(proto, tmp_path / "bad.onnx")
    with pytest.raises(InvalidArgument, match=r"bad\.onnx: weight 'w2' is not finite"):
        refitter.refit_from_onnx(tmp_path / "bad.onnx")
    assert [
        n for n in refitter.get_all_weights() if refitter.get_named_weights(n) is not None
    ] == []
    refitter.set_named_weights("w0", np.full((64, 64), 1 / 64, np.float32))
    refitter.refit()
    np.testing.assert_array_equal(engine(x), before)


def test_what_cannot_be_refitted_is_named() -> None:
    with pytest.raises(InvalidArgument, match="NoneType objects cannot be refitted"):
        Refitter(None)  # type: ignore[arg-type]
    lean = tactix.Runtime(flavour="lean", on_untrusted="allow").deserialize(
        container.dump(built(chain(1.0, layers=1)).plan)
    )
    with pytest.raises(
        InvalidArgument, match="Engine objects cannot be refitted: an engine of the default flavour"
    ):
        Refitter(lean)


# -- plans ---------------------------------------------------------------------------------------


def saved(engine: Any, path: Path) -> Path:
    engine.save(path)
    return path


def test_a_plan_and_its_file(tmp_path: Path) -> None:
    path = saved(built(conv_bn(1)), tmp_path / "a.plan")
    want = run(built(conv_bn(2)), FEEDS)
    refitter = Refitter(path)
    refitter.refit_from_onnx(conv_bn(2))
    refitter.save(tmp_path / "b.plan")
    allowed = tactix.load(tmp_path / "b.plan", on_untrusted="allow")
    assert_same(run(allowed, FEEDS), want)
    assert isinstance(allowed, RefittableEngine)
    Refitter(allowed).refit_from_onnx(conv_bn(1))
    assert_same(run(allowed, FEEDS), run(tactix.load(path), FEEDS))
    Refitter(allowed).save(tmp_path / "c.plan")  # as the file before: the recipes are the same
    assert container.load(tmp_path / "c.plan").blobs.keys() == container.load(path).blobs.keys()


def test_stripped_plans(tmp_path: Path) -> None:
    whole = saved(built(chain(1.0, 4, 256)), tmp_path / "whole.plan")
    path = saved(built(chain(1.0, 4, 256), STRIPPED), tmp_path / "stripped.plan")
    assert path.stat().st_size < whole.stat().st_size - 4 * 256 * 256 * 4
    engine = tactix.load(path)
    refitter = Refitter(engine)
    assert refitter.get_missing_weights() == refitter.get_all_weights() == ["w0", "w1", "w2", "w3"]
    assert tactix.Runtime().check(path) == [
        "4 weights are missing: it was stripped. Refit the plan first"
    ]
    assert tactix.Runtime().check(whole) == []
    x = np.ones((2, 256), np.float32)
    for start in (lambda: engine(x), engine.create_execution_context):
        with pytest.raises(ExecutionError, match=r"4 weights are missing. Refit the plan first"):
            start()
    refitter.set_named_weights("w0", np.zeros((256, 256), np.float32))
    with pytest.raises(InvalidArgument, match="Set w1, w2, w3"):
        refitter.refit()
    refitter.refit_from_onnx(chain(2.0, 4, 256))
    assert refitter.get_missing_weights() == []
    assert engine(x) == pytest.approx(16.0)
    refitter.save(tmp_path / "full.plan")
    assert tactix.load(tmp_path / "full.plan", on_untrusted="allow")(x) == pytest.approx(16.0)
    assert (tmp_path / "full.plan").stat().st_size > whole.stat().st_size - 4096
    strange = tactix.load(tmp_path / "full.plan", on_untrusted="references")  # not signed
    assert all(s.artifact.launcher == "tactix.numpy@1" for s in strange.plan.steps)
    assert strange(x) == pytest.approx(16.0)


def test_a_file_that_is_trusted_here_is_signed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(built(chain(1.0, 2)), tmp_path / "a.plan")
    x = np.ones((2, 64), np.float32)
    for source in (path, path.read_bytes()):
        refitter = Refitter(source)
        refitter.refit_from_onnx(chain(2.0, 2))
        refitter.save(tmp_path / "b.plan")
        assert tactix.load(tmp_path / "b.plan")(x) == pytest.approx(4.0)
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "nobody"))
    refitter = Refitter(path)
    refitter.refit_from_onnx(chain(3.0, 2))
    refitter.save(tmp_path / "c.plan")
    assert container.load(tmp_path / "c.plan").seal.signature == b""  # type: ignore[union-attr]


def test_what_changes_after_the_check_is_not_signed(tmp_path: Path) -> None:
    """Another process writes the file while a refitter has it: weights that it does not touch, and
    the runtime.
    """
    flags = {BuilderFlag.REFIT, BuilderFlag.VERSION_COMPATIBLE}
    path = saved(built(chain(1.0, 2), flags), tmp_path / "a.plan")
    before = container.load(path, private=True)
    refitter = Refitter(path)
    with open(path, "r+b") as f:
        at = path.read_bytes().index(bytes(before.blobs["lean_runtime"]))
        f.seek(at)
        f.write(b"PK not what was trusted")
    refitter.refit_from_onnx(chain(2.0, 2))
    refitter.save(tmp_path / "b.plan")
    after = container.load(tmp_path / "b.plan", verify=True)
    assert tactix.Runtime().judge(after).trusted_by
    assert bytes(after.blobs["lean_runtime"]) == bytes(before.blobs["lean_runtime"])


def test_weights_of_a_file_are_checked_before_it_is_signed_again(tmp_path: Path) -> None:
    """Also where its digest is trusted, of which running reads no more than the header."""
    path = tmp_path / "bare.plan"
    container.save(built(chain(1.0, 2)).plan, path)
    plan = container.load(path)
    trust_digest(plan.seal.digest.hex())  # type: ignore[union-attr]
    data = bytearray(path.read_bytes())
    first = next(b.blob for b in plan.buffers if b.blob)
    at = data.find(bytes(plan.blobs[first])[:64])
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(PlanFormatError, match="does not fit its sha256"):
        Refitter(path)


def test_stripped_plans_of_the_lean_runtime_and_of_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(built(conv_bn(1), STRIPPED), tmp_path / "stripped.plan")
    with pytest.raises(tactix.TactixError, match="weights are missing"):
        tactix.load(path, flavour="lean")(FEEDS["x"])
    container.save(container.load(path), tmp_path / "bare.plan")
    plan = container.load(path)
    container.save(plan, tmp_path / "unsigned.plan", None)
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "nobody"))
    with pytest.raises(tactix.TactixError):
        tactix.load(tmp_path / "unsigned.plan")(FEEDS["x"])


def test_a_plan_that_lacks_what_it_did_not_leave_out(tmp_path: Path) -> None:
    plan = built(conv_bn(1), STRIPPED).plan
    from dataclasses import replace

    lost = replace(plan, meta={k: v for k, v in plan.meta.items() if k != "stripped"})
    with pytest.raises(PlanFormatError, match="no blob"):
        tactix.Runtime().load(lost)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda j: j["terms"].append(["eval", [], [], "f32", []]), "no operation 'eval'"),
        (lambda j: j["terms"][0].__setitem__(1, [0]), "an integer from 0 to -1"),
        (lambda j: j["weights"].pop("w1"), "no weight 'w1' of that type and shape"),
        (lambda j: j["terms"][-1].__setitem__(4, [1 << 39]), "gives [0-9]+ bytes"),
        (lambda j: j["constants"].update(x=10**6), "an integer from"),
        (lambda j: j.pop("fixed"), "missing or unknown"),
    ],
)
def test_recipes_that_are_none(change: Any, message: str) -> None:
    import hashlib
    from dataclasses import replace

    plan = built(conv_bn(1)).plan
    body = json.loads(bytes(plan.blobs[plan.meta["refit"]]))
    change(body)
    text = json.dumps(body).encode()
    name = hashlib.sha256(text).hexdigest()
    with pytest.raises(PlanFormatError, match=message):
        Refitter(replace(plan, blobs={**plan.blobs, name: text}, meta={**plan.meta, "refit": name}))


def leaves(j: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in JSON something stands that is no container."""
    if isinstance(j, (dict, list)):
        pairs = j.items() if isinstance(j, dict) else enumerate(j)
        return [found for k, v in pairs for found in leaves(v, (*path, k))]
    return [path]


def test_damaged_recipes_give_typed_errors_alone() -> None:
    import hashlib
    from dataclasses import replace

    plan, rng = built(conv_bn(1)).plan, np.random.default_rng(11)
    text = bytes(plan.blobs[plan.meta["refit"]])
    places = leaves(
        {k: v for k, v in json.loads(text).items() if k in ("terms", "constants", "weights")}
    )
    values = [
        0,
        -1,
        1,
        2,
        3,
        7,
        1 << 40,
        "",
        "f64",
        "pad",
        "matmul",
        "transpose",
        [],
        [0],
        [[0, 1]],
        {},
        None,
        True,
    ]
    refused = 0
    for _ in range(400):
        body = json.loads(text)
        for place in rng.choice(len(places), rng.integers(1, 3)):
            holder = body
            for k in places[place][:-1]:
                holder = holder[k]
            holder[places[place][-1]] = values[rng.integers(len(values))]
        content = json.dumps(body).encode()
        name = hashlib.sha256(content).hexdigest()
        meta = {**plan.meta, "refit": name}
        try:
            Refitter(replace(plan, blobs={**plan.blobs, name: content}, meta=meta)).refit_from_onnx(
                conv_bn(2)
            )
        except tactix.TactixError:
            refused += 1
    assert refused > 300


def test_a_recipe_that_grows_is_not_followed() -> None:
    import hashlib
    from dataclasses import replace

    plan = built(chain(1.0, 1)).plan
    body = json.loads(bytes(plan.blobs[plan.meta["refit"]]))
    constant, place = next(iter(body["constants"].items()))
    body["terms"].append(["broadcast", [0], [[1 << 30, 64, 64]], "f32", body["terms"][place][4]])
    body["constants"][constant] = len(body["terms"]) - 1
    text = json.dumps(body).encode()
    name = hashlib.sha256(text).hexdigest()
    refitter = Refitter(
        replace(plan, blobs={**plan.blobs, name: text}, meta={**plan.meta, "refit": name})
    )
    with pytest.raises(PlanFormatError, match="gives more than"):
        refitter.refit_from_onnx(chain(1.0, 1))


# -- the tool ------------------------------------------------------------------------------------


def test_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, out = tmp_path / "1.onnx", tmp_path / "2.onnx", tmp_path / "out.plan"
    first.write_bytes(conv_bn(1))
    second.write_bytes(conv_bn(2))
    path = tmp_path / "a.plan"
    options = ["-O", "0", "--no-timing-cache", "--refit", "--strip-plan"]
    assert cli.main(["build", str(first), "-o", str(path), *options]) == 0
    capsys.readouterr()
    assert cli.main(["refit", str(path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["weights"]["w1"] == {"dtype": "f32", "shape": [5, 3, 3, 3]}
    assert listed["missing"] == sorted(listed["weights"])
    assert listed["fixed"] == {}
    assert cli.main(["refit", str(path)]) == 0
    assert "w1: f32(5, 3, 3, 3) missing" in capsys.readouterr().out
    assert cli.main(["refit", str(path), str(second), "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"plan": str(out), "weights": 11, "signed": True}
    assert_same(run(tactix.load(out), FEEDS), run(built(conv_bn(2)), FEEDS))
    container.save(container.load(path), tmp_path / "same.plan")
    assert cli.main(["refit", str(out), str(first)]) == 0
    assert "11 weights, signed by the local key" in capsys.readouterr().out
    assert_same(run(tactix.load(out), FEEDS), run(built(conv_bn(1)), FEEDS))


def test_the_tool_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(built(conv_bn(1), set()), tmp_path / "a.plan")
    assert cli.main(["refit", str(path)]) != 0
    assert "cannot be refitted" in capsys.readouterr().err
    assert cli.main(["refit", "--help"]) == 0
    assert "Usage: tactix refit" in capsys.readouterr().out


def test_shapes_that_follow_from_data() -> None:
    """A plan with phases: weights are taken anew by each run."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["found"], to=1),
        helper.make_node("MatMul", ["v", "found"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["c"], keepdims=0),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]

    def made(seed: int) -> bytes:
        return model(nodes, {"x": ["n", 5]}, ["y"], normal(seed, w=(5, 3), v=(4, 2)))

    feeds: Feeds = {"x": (np.arange(10).reshape(2, 5) % 3).astype(np.float32)}
    engine, fresh = built(made(1)), built(made(2))
    assert engine.plan.produced
    context = engine.create_execution_context()
    first = context.run(feeds)
    Refitter(engine).refit_from_onnx(made(2))
    assert_same(context.run(feeds), fresh.create_execution_context().run(feeds))
    Refitter(engine).refit_from_onnx(made(1))
    assert_same(context.run(feeds), first)


def test_flags_of_a_plan_that_was_built_without() -> None:
    assert type(built(conv_bn(1), set())) is not RefittableEngine
    assert isinstance(built(conv_bn(1), REFIT), RefittableEngine)
