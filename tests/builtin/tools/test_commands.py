"""The tools through the command line's own entry, on a small model."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import tactix
import tactix_tools
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.plugins.hookspecs import hookimpl
from tactix_sdk import layer
from tactix_tools import arrays, cli
from tactix_tools.progress import BuildProgress

FAST = ["-O0", "--no-timing-cache"]
Run = Callable[..., Any]


def write_model(path: Path, op: str = "Relu", domain: str = "") -> str:
    """conv -> op -> conv, with a residual add; (n, 3, h, 6) to (n, 3, h, 6)."""
    rng = np.random.default_rng(3)
    weights = [
        rng.standard_normal(shape).astype(np.float32) / 4 for shape in ((8, 3, 3, 3), (3, 8, 3, 3))
    ]
    pads = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "conv0", **pads),
        helper.make_node(op, ["c0"], ["r0"], "act0", domain=domain),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "conv1", **pads),
        helper.make_node("Add", ["c1", "x"], ["y"], "add0"),
        helper.make_node("ArgMax", ["y"], ["best"], "argmax0", axis=1),
    ]
    shape = ["n", 3, "h", 6]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape),
         helper.make_tensor_value_info("best", TensorProto.INT64, ["n", 1, "h", 6])],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write_model(tmp_path / "small.onnx")


@pytest.fixture
def plan(model: str, capsys: pytest.CaptureFixture[str]) -> str:
    out = model.replace(".onnx", ".plan")
    assert cli.main(["build", model, "-o", out, "--quiet", *FAST]) == 0
    capsys.readouterr()
    return out


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text there")
def test_a_file_name_that_is_no_text(model: str, tool: Run) -> None:
    """Plans are named for their models, and hold text alone."""
    odd = os.path.join(os.path.dirname(model), os.fsdecode(b"\xff\xc3\xa9.onnx"))
    os.rename(model, odd)
    tool("build", odd, *FAST)
    assert container.load(odd.replace(".onnx", ".plan"), verify=True).name == "\ufffdé"
    assert tool("run", odd.replace(".onnx", ".plan"), "--shapes", "x:1x3x4x6")["outputs"]


@pytest.mark.parametrize("command", [["inspect"], ["compare", "PLAN"]])
def test_what_is_named_as_a_plan_is_none(
    command: list[str], plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (text := tmp_path / "text.plan").write_text("no plan at all\n" * 40)
    words = [plan if word == "PLAN" else word for word in command]
    assert cli.main([*words, str(text)]) == cli.PLAN
    assert "text.plan: not a tactix plan" in capsys.readouterr().err


def test_a_peer_is_given_no_model(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    (text := tmp_path / "text").write_text("no model")
    assert cli.main(["compare", plan, str(text), "--shapes", "x:1x3x4x6"]) == cli.MODEL
    assert "text: not an ONNX model" in capsys.readouterr().err


def test_what_is_no_file_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", os.devnull, "-o", str(tmp_path / "a.plan"), *FAST]) == cli.USAGE
    assert f"error: {os.devnull}: that is no regular file" in capsys.readouterr().err
    with pytest.raises(tactix.TactixError, match=r"nothere\.onnx: no such file"):
        tactix.build(tmp_path / "nothere.onnx")


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a tool with --json and give its document."""

    def run(*args: str, code: int = 0) -> Any:
        got = cli.main([*args, "--json"])
        out, err = capsys.readouterr()
        assert got == code, err
        return json.loads(out)

    return run


@pytest.mark.parametrize(
    "name", ["build", "check", "run", "bench", "diff", "inspect", "lock", "compare", "plugins"]
)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert "Usage: tactix" in capsys.readouterr().out


def test_build_writes_a_plan_and_tells_what_is_in_it(model: str, tool: Run) -> None:
    found = tool("build", model, *FAST)
    path = Path(model).with_suffix(".plan")
    assert found["plan"] == str(path)
    assert found["bytes"] == path.stat().st_size
    assert found["steps"] == sum(found["tactics"].values()) > 0
    assert sum(found["rules"].values()) > 0
    x = np.ones((1, 3, 4, 6), np.float32)
    assert tactix.load(path)(x=x)["y"].shape == x.shape


def test_build_shows_stages_and_a_summary(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build", model, *FAST]) == 0
    out, err = capsys.readouterr()
    assert "small.plan: " in out
    assert "measure tactics" in err


@pytest.mark.parametrize(
    ("args", "heard"),
    [([], ""), (["--log-level", "info"], "I"), (["-v"], "IV"), (["--log-level", "error"], "")],
)
def test_build_tells_as_much_as_is_asked(
    model: str, capsys: pytest.CaptureFixture[str], args: list[str], heard: str
) -> None:
    options = ["--quiet", "--tactics", "numpy,view", *FAST]
    assert cli.main(["build", model, "-o", f"{model}.plan", *options, *args]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert {x[10] for x in lines if not x.startswith("[tactix] [W]")} == set(heard)
    assert any("fused by tactix." in x for x in lines) == ("I" in heard)
    assert any("nearly fired" in x or " becomes " in x for x in lines) == ("V" in heard)
    assert any("[MemUsageChange] End build" in x for x in lines) == ("I" in heard)


def test_an_error_is_told_once_however_much_is_asked(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["build", model, "--quiet", "-v", "--shapes", "x:1x4x4x6", *FAST]) != 0
    assert capsys.readouterr().err.count("a fixed dimension 3") == 1


def test_build_does_not_overwrite_the_model(model: str) -> None:
    before = Path(model).read_bytes()
    assert cli.main(["build", model, "-o", model, *FAST]) == 2
    assert Path(model).read_bytes() == before


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--tactics", "quantum"], 2, "quantum"),
        (["--frozen"], 2, "frozen"),
        (["--shapes", "z:1x3x4x6"], 2, "'z'"),
        (["--shapes", "x:1x4x4x6"], 2, "fixed dimension"),
        (["--enable", "nobody"], 2, "nobody"),
        (["--device", "abacus"], 2, "no plugin provides device 'abacus'. There are: cpu"),
    ],
)
def test_build_errors(
    model: str, capsys: pytest.CaptureFixture[str], args: list[str], code: int, words: str
) -> None:
    assert cli.main(["build", model, "--no-timing-cache", "-O0", *args]) == code
    assert words in capsys.readouterr().err


def test_options_of_builds_beside_a_plan(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--device", "cuda", "--hardware-compatibility-level", "sm_90", "--threads", "1"]
    assert cli.main(["run", plan, "--shapes", "x:1x3x4x6", *asked]) == 0
    told = f"{plan} is a plan: --device, --target only tells how to build a model. Leave that out"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("command", ["build", "lock", "run"])
def test_a_place_that_takes_no_file_is_told_before_anything_is_built(
    command: str, model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tactix.Builder, "build_plan", lambda *a: pytest.fail("it builds"))
    os.mkfifo(fifo := f"{model}.fifo")
    for place, why in ((f"{model}/inside", "its folder is a file"), (fifo, "it is no file")):
        assert cli.main([command, model, "-o", place, *FAST]) == cli.USAGE
        assert f"nothing can be written there: {why}" in capsys.readouterr().err
    assert sorted(p.name for p in Path(model).parent.iterdir()) == ["small.onnx", "small.onnx.fifo"]


@pytest.mark.parametrize("command", [["build"], ["lock"], ["refit", "PLAN"]])
def test_a_plan_in_place_of_a_model(
    command: list[str], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(tmp_path / "small.plan")
    assert cli.main(["build", model, "-o", plan, "--quiet", "--refit", *FAST]) == 0
    where = ["-o", str(tmp_path / "other")]
    assert (
        cli.main([*(plan if word == "PLAN" else word for word in command), plan, *where])
        == cli.USAGE
    )
    assert "that is a plan, not a model. Give the model" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_frozen_build_misses_its_timings(model: str, tmp_path: Path) -> None:
    cache = str(tmp_path / "timings.json")
    assert cli.main(["build", model, "-O1", "--frozen", "--timing-cache", cache]) == cli.BUILD
    assert cli.main(["build", model, "-O1", "--timing-cache", cache]) == 0
    assert cli.main(["build", model, "-O1", "--frozen", "--timing-cache", cache]) == 0


def interrupt_in(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    """Ctrl-C when a phase begins."""
    begin = BuildProgress.phase

    def interrupted(self: BuildProgress, name: str, total: int) -> None:
        begin(self, name, total)
        if name == phase:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(BuildProgress, "phase", interrupted)


@pytest.mark.parametrize("phase", ["fuse", "bid", "measure", "assemble"])
def test_interrupted_build_writes_what_it_has(
    model: str, phase: str, monkeypatch: pytest.MonkeyPatch, tool: Run
) -> None:
    interrupt_in(monkeypatch, phase)
    found = tool("build", model, "-O1", "--no-timing-cache", code=cli.INTERRUPTED)
    steps = tool("inspect", found["plan"])["steps"]
    assert steps
    assert phase == "assemble" or not {s["status"] for s in steps} & {"measured", "cached"}


def test_an_interrupted_import_gives_no_plan(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_in(monkeypatch, "import")
    assert cli.main(["build", model, *FAST]) == cli.INTERRUPTED
    assert not Path(model).with_suffix(".plan").exists()


def test_a_plan_that_is_being_written_is_written(
    model: str, monkeypatch: pytest.MonkeyPatch, tool: Run
) -> None:
    save = container.save

    def interrupted(plan: Plan, path: Path, *more: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save(plan, path, *more)

    monkeypatch.setattr(container, "save", interrupted)
    found = tool("build", model, *FAST, code=cli.INTERRUPTED)
    assert tool("inspect", found["plan"])["steps"]


def test_fixed_shapes_and_profiles(model: str, tmp_path: Path, tool: Run) -> None:
    out = str(tmp_path / "p.plan")
    tool(
        "build",
        model,
        "-o",
        out,
        *FAST,
        "--min-shapes",
        "x:1x3x2x6",
        "--opt-shapes",
        "x:4x3x5x6",
        "--max-shapes",
        "x:8x3x9x6",
    )
    (profile,) = tool("inspect", out)["profiles"]
    assert profile["dims"] == {"n": [1, 4, 8], "h": [2, 5, 9]}
    tool("build", model, "-o", out, *FAST, "--shapes", "x:2x3x5x6")
    assert tool("inspect", out)["profiles"][0]["dims"] == {"n": [2, 2, 2], "h": [5, 5, 5]}


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no model at all")
    assert cli.main(["build", str(path), *FAST]) == cli.MODEL
    assert "bad.onnx" in capsys.readouterr().err


def test_inspect_plan(plan: str, tool: Run) -> None:
    found = tool("inspect", plan, "--shapes", "x:4x3x10x6")
    assert found["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["n", 3, "h", 6]}]
    assert [o["name"] for o in found["outputs"]] == ["y", "best"]
    memory = found["memory"]
    assert memory["symbols"] == {"h": 10, "n": 4}
    assert memory["arena"] >= memory["lower_bound"] > 0
    assert memory["ratio"] == pytest.approx(memory["arena"] / memory["lower_bound"])
    assert memory["weights"] >= 2 * 8 * 3 * 9 * 4
    assert all(s["tactic"] for s in found["steps"])


def test_inspect_plan_for_people(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["inspect", plan]) == 0
    out = capsys.readouterr().out
    for text in ("Layers", "conv0", "rules that fired", "lower bound", "needs at run time"):
        assert text in out


def test_inspect_damaged_plan(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(Path(plan).read_bytes())
    data[100] ^= 1
    Path(plan).write_bytes(data)
    assert cli.main(["inspect", plan]) == cli.PLAN
    assert cli.main(["run", plan]) == cli.PLAN
    assert "sha256" in capsys.readouterr().err


def test_inspect_model_names_every_unknown_operator(tmp_path: Path, tool: Run) -> None:
    found = tool("inspect", write_model(tmp_path / "m.onnx", "Wobble", "nobody"), code=cli.OTHER)
    assert found["unsupported"] == ["nobody::Wobble"]
    rows = {r["operator"]: r for r in found["operators"]}
    assert rows["ai.onnx::Conv"]["count"] == 2
    assert rows["ai.onnx::Conv"]["supported"]
    assert rows["nobody::Wobble"]["nodes"] == ["act0"]
    assert found["parameters"] == 2 * 8 * 3 * 9
    assert found["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["n", 3, "h", 6]}]


def test_unknown_operator_stops_the_build(tmp_path: Path, tool: Run) -> None:
    found = tool(
        "build", write_model(tmp_path / "m.onnx", "Wobble", "nobody"), *FAST, code=cli.MODEL
    )
    assert found["error"]["type"] == "UnsupportedOperator"
    assert "nobody::Wobble" in json.dumps(found)


@pytest.mark.parametrize("use_plan", [True, False])
def test_run_saves_outputs(
    model: str, plan: str, tool: Run, tmp_path: Path, use_plan: bool
) -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 5, 6)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    out = str(tmp_path / "out.npz")
    args = ["--inputs", str(tmp_path / "in.npz"), "-o", out]
    found = tool("run", plan if use_plan else model, *args, *FAST)
    with np.load(out) as saved:
        assert set(saved.files) == {"y", "best"}
        assert saved["y"].shape == x.shape
        np.testing.assert_array_equal(saved["best"], saved["y"].argmax(1)[:, None])
    assert [o["name"] for o in found["outputs"]] == ["y", "best"]
    assert found["outputs"][0]["shape"] == [2, 3, 5, 6]


def test_run_random_inputs_follow_seed_and_shapes(plan: str, tool: Run) -> None:
    first = tool("run", plan, "--shapes", "x:2x3x4x6", "--seed", "1")
    assert first["inputs"][0]["shape"] == [2, 3, 4, 6]
    assert tool("run", plan, "--shapes", "x:2x3x4x6", "--seed", "1") == first
    assert tool("run", plan, "--shapes", "x:2x3x4x6", "--seed", "2") != first


@pytest.mark.parametrize("shapes", ["q:1x3x4x6", "x:1x3x4", "x:1x5x4x6"])
def test_run_wrong_shapes(plan: str, capsys: pytest.CaptureFixture[str], shapes: str) -> None:
    assert cli.main(["run", plan, "--shapes", shapes]) == cli.USAGE
    assert "error: " in capsys.readouterr().err


def test_run_inputs_that_cannot_be_read(plan: str, tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    assert cli.main(["run", plan, "--inputs", str(tmp_path / "bad.npz")]) == cli.USAGE
    np.save(tmp_path / "one.npy", np.zeros(3))
    assert cli.main(["run", plan, "--inputs", str(tmp_path / "one.npy")]) == cli.USAGE
    np.savez(tmp_path / "other.npz", other=np.zeros(3))
    assert cli.main(["run", plan, "--inputs", str(tmp_path / "other.npz")]) == cli.USAGE


def test_bench(model: str, plan: str, tool: Run) -> None:
    args = ["--iterations", "5", "--warmup", "0", "--shapes", "x:2x3x4x6", "--streams", "2"]
    found = tool("bench", plan, *args, "--compare-ort", "--model", model)
    assert found["shapes"] == {"x": [2, 3, 4, 6]}
    assert set(found["results"]) == {"tactix", "onnxruntime"}
    for row in found["results"].values():
        assert row["calls"] == 10
        assert 0 < row["min"] <= row["median"] <= row["p90"] <= row["p99"]
        assert row["calls_per_second"] > 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--iterations", "0"),
        ("--iterations", "-1"),
        ("--warmup", "-1"),
        ("--seconds", "0"),
        ("--seconds", "-3s"),
        ("--streams", "0"),
    ],
)
def test_bench_measures_something_or_is_refused(
    plan: str, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    assert cli.main(["bench", plan, option, value]) == cli.USAGE
    said = capsys.readouterr().err
    assert f"Invalid value for '{option}'" in said
    assert value in said


@pytest.mark.parametrize(
    ("option", "value"), [("--rtol", "-1"), ("--rtol", "nan"), ("--atol", "-1e-3")]
)
def test_compare_refuses_a_tolerance_that_nothing_meets(
    plan: str, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    assert cli.main(["compare", plan, plan, option, value]) == cli.USAGE
    assert f"Invalid value for '{option}'" in capsys.readouterr().err


def test_bench_of_a_plan_needs_the_model_for_onnxruntime(plan: str) -> None:
    assert cli.main(["bench", plan, "--iterations", "1", "--compare-ort"]) == cli.USAGE


def test_bench_for_people(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["bench", model, "--iterations", "2", "--warmup", "0", "--compare-ort", *FAST])
        == 0
    )
    assert "times as long as ONNX Runtime" in capsys.readouterr().out


def test_compare_passes(model: str, tool: Run) -> None:
    found = tool(
        "compare",
        model,
        "--against",
        "onnxruntime",
        "--against",
        "reference",
        "--shapes",
        "x:3x3x5x6",
        *FAST,
    )
    assert found["passed"]
    assert [(r["output"], r["peer"]) for r in found["outputs"]] == [
        ("y", "onnxruntime"),
        ("best", "onnxruntime"),
        ("y", "reference"),
        ("best", "reference"),
    ]
    assert found["inputs"] == {"x": [3, 3, 5, 6]}


def test_compare_of_a_plan_with_a_model_whose_inputs_are_others(
    model: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.load(model)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = proto.graph.node[3].input[1] = "z"
    onnx.save(proto, tmp_path / "other.onnx")
    for peer in ("onnxruntime", "reference"):
        assert (
            cli.main(["compare", plan, str(tmp_path / "other.onnx"), "--against", peer])
            == cli.MISMATCH
        )
        assert f"{peer} cannot run the model on these inputs" in capsys.readouterr().err


def test_compare_needs_two_things(plan: str, tool: Run) -> None:
    assert "a plan alone has nothing" in tool("compare", plan, code=cli.USAGE)["error"]["what"]
    found = tool("compare", plan, plan, "--against", "reference", code=cli.USAGE)
    assert "reference cannot run a plan" in found["error"]["what"]


def test_plans_are_compared_by_their_outputs(
    model: str, plan: str, tmp_path: Path, tool: Run
) -> None:
    found = tool("compare", plan, plan)
    assert found["passed"]
    assert {r["peer"] for r in found["outputs"]} == {plan}
    other = str(tmp_path / "other.plan")
    tool("build", write_model(tmp_path / "other.onnx", "Sigmoid"), "-o", other, *FAST)
    assert not tool("compare", plan, other, code=cli.MISMATCH)["passed"]


def test_the_tolerance_follows_from_the_precision(
    model: str, plan: str, tmp_path: Path, tool: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("compare", plan, model)["rtol"] == 1e-4
    lowered = str(tmp_path / "bf16.plan")
    tool("build", model, "-o", lowered, "--layer-precision", "*:bf16", *FAST)
    cli.main(["compare", lowered, model, "--json"])  # the index of a maximum may be another one
    found = json.loads(capsys.readouterr().out)
    assert found["rtol"] == 6e-2
    assert [r["passed"] for r in found["outputs"] if r["output"] == "y"] == [True]
    found = tool("compare", lowered, model, "--rtol", "1e-6", code=cli.MISMATCH)
    assert [r["passed"] for r in found["outputs"] if r["output"] == "y"] == [False]


def test_bench_beside_another_model(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["z"], ["y"])], "g",
        [onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [2])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
    )  # fmt: skip
    path = str(tmp_path / "other.onnx")
    onnx.save(
        onnx.helper.make_model(
            other, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
        ),
        path,
    )
    found = cli.main(
        ["bench", plan, "--iterations", "1", "--warmup", "0", "--compare-ort", "--model", path]
    )
    assert found == cli.MISMATCH
    assert "onnxruntime cannot run the model on these inputs" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "bench", "compare"])
def test_wrong_inputs_are_told_before_the_build(
    command: str, model: str, tmp_path: Path, tool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tactix.builder.Builder.build_plan", lambda *_: pytest.fail("found too late")
    )
    np.savez(tmp_path / "z.npz", z=np.zeros(3))
    wrong = [(["--shapes", "z:1x3x5x6"], "no input 'z'"), (["--shapes", "x:3x5x6"], "input 'x' is "),
             (["--inputs", str(tmp_path / "z.npz")], "no input is named 'z'; no array for 'x'"),
             (["--inputs", model], "cannot read arrays")]  # fmt: skip
    for options, words in wrong:
        assert tool(command, model, *options, code=cli.USAGE)["error"]["what"].startswith(words)


def test_random_inputs_that_cannot_be(plan: str, tool: Run) -> None:
    assert "not in the range" in tool("run", plan, "--seed", "-1", code=cli.USAGE)["error"]["what"]
    error = tool("run", plan, "--shapes", f"x:{1 << 40}x3x5x6", code=cli.MISMATCH)["error"]
    assert error["what"].startswith("no random input 'x' of shape")


def test_a_folder_that_is_not_there_is_not_made(model: str, tmp_path: Path, tool: Run) -> None:
    error = tool("build", model, "-o", str(tmp_path / "none" / "x.plan"), *FAST, code=cli.USAGE)[
        "error"
    ]
    assert error["why"] == f"there is no folder {str(tmp_path / 'none')!r}"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("command", [["run"], ["report"], ["export", "--onnx"]])
def test_a_plan_is_not_written_over(command: list[str], plan: str) -> None:
    before = Path(plan).read_bytes()
    assert cli.main([*command, plan, "-o", plan]) == cli.USAGE
    assert Path(plan).read_bytes() == before


def test_reduce_does_not_write_over_the_model(model: str) -> None:
    before = Path(model).read_bytes()
    assert cli.main(["debug", "reduce", model, "--check", "true", "-o", model]) == cli.USAGE
    assert Path(model).read_bytes() == before


def test_arrays_that_cannot_be_written_leave_no_file(tmp_path: Path) -> None:
    class Broken:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arrays.save(str(tmp_path / "y.npz"), {"a": np.zeros(3), "b": Broken()})
    assert list(tmp_path.iterdir()) == []


def test_compare_sees_a_difference(plan: str, tmp_path: Path, tool: Run) -> None:
    other = write_model(tmp_path / "other.onnx", "Sigmoid")
    found = tool("compare", plan, other, code=cli.MISMATCH)
    assert not found["passed"]
    assert found["outputs"][0]["outside"] > 0


def test_plugins_list(tool: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = tool("plugins", "list")
    own = {p["part"]: p for p in found["packs"] if p["namespace"] == "tactix"}
    assert {
        "cpu",
        "cublaslt",
        "cuda",
        "cudnn",
        "onnx",
        "ops",
        "runtime",
        "ship",
        "tools",
        "trust",
    } <= own.keys()
    assert {p["status"] for p in own.values()} == {"active"}
    assert own["cpu"]["groups"] == ["build", "runtime"]
    assert "tactix.Convolution@1" in own["ops"]["provides"]["layers"]
    assert own["tools"]["provides"]["tools"] == sorted(t.name for t in tactix_tools.tools())
    assert cli.main(["plugins", "list", "--keys"]) == 0
    assert "tactix.Convolution@1" in capsys.readouterr().out


LOOPED = """
<ir_version: 8, opset_import: ["" : 20]>
g (float[n] x, int64 times, string[2] words) => (float[m] y, string[2] twice) {
  go = Constant <value = bool {1}> ()
  twice = StringConcat (words, words)
  y = Loop (times, go, x) <
    body = b (int64 i, bool c, float[a] v) => (bool c2, float[d] v2) { c2 = Identity (c) v2 = Concat <axis = 0> (v, x) }
  >
}
"""


def test_bodies_and_text_pass_through_the_tools(
    tmp_path: Path, tool: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    path, plan = str(tmp_path / "looped.onnx"), str(tmp_path / "looped.plan")
    onnx.save(onnx.parser.parse_model(LOOPED), path)
    tool("build", path, "-o", plan, *FAST)
    assert cli.main(["inspect", plan]) == 0
    text = capsys.readouterr().out
    assert "Concat" in text
    assert "depends on data" in text
    steps = tool("inspect", plan)["steps"]
    assert [len(s["bodies"]) for s in steps if s["kind"] == "tactix.Loop@1"] == [1]
    assert {x["name"] for x in tool("run", plan)["outputs"]} == {"y", "twice"}
    tool("compare", path, *FAST)


def test_a_model_with_operators_of_a_pack_is_compared_with_its_references(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cube = layer("acme.Cube@1", onnx="acme::Cube")(lambda x: x**3)
    pack = SimpleNamespace(TACTIX_NAMESPACE="acme", tactix_layers=hookimpl(lambda: [cube]))
    monkeypatch.setattr(cli, "_session", lambda: tactix.Session(plugins=[pack]))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph(
        [helper.make_node("Cube", ["x"], ["y"], domain="acme")], "cube", [x], [y]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    path = str(tmp_path / "cube.onnx")
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    for more in ([], ["--against", "tactix-reference"]):
        assert cli.main(["compare", path, "--json", *FAST, *more]) == cli.OK
        out, err = capsys.readouterr()
        assert [row["peer"] for row in json.loads(out)["outputs"]] == ["tactix-reference"]
        assert ("cannot run acme::Cube: compared with tactix's own references" in err) is (not more)
    assert cli.main(["compare", path, "--against", "reference", *FAST]) == cli.MISMATCH
    assert "--against tactix-reference" in " ".join(capsys.readouterr().err.split())
