"""Locks: frozen builds give the same bytes wherever they run, and name whatever stands against
that.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.base.errors import BuildCancelled, LockError
from tactix.plan import container
from tactix.plan.precision import precision
from tactix.plugins.identity import Provider
from tactix.select.bench import Bench
from tactix.select.precision import LOCKED
from tactix_cpu import device as cpu
from tactix_cpu.compiler import CCompiler
from tactix_lock import document, facts, frozen
from tactix_tools import cli

MODELS = Path(__file__).resolve().parents[2] / "models"
QUICK = ["-O1", "--threads", "1", "--no-timing-cache", "--quiet", "--json"]
Tool = Callable[..., tuple[Any, int]]


def write(path: Path, scale: float = 0.05, seed: int = 1, width: int = 12) -> str:
    """Quantized input, product, Relu, product; (n, 9) to (n, 5)."""
    rng = np.random.default_rng(seed)
    consts = {
        "s": np.float32(scale), "z": np.int8(0),
        "w0": rng.standard_normal((9, width), np.float32), "w1": rng.standard_normal((width, 5), np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantize"),
        helper.make_node("MatMul", ["d", "w0"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w1"], ["y"], "second"),
    ]
    given, made = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", k])
        for n, k in (("x", 9), ("y", 5))
    )
    inits = [numpy_helper.from_array(np.asarray(a), k) for k, a in consts.items()]
    graph = helper.make_graph(nodes, "small", [given], [made], inits)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write(tmp_path / "m.onnx")


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    def run(*args: Any) -> tuple[Any, int]:
        code = cli.main([*map(str, args), "--json"])
        return json.loads(capsys.readouterr().out), code

    return run


@pytest.fixture
def lock(model: str, tool: Tool) -> Path:
    found, code = tool("lock", model, *QUICK)
    assert code == 0
    return Path(found["lock"])


def build(model: str, lock: Path, **options: Any) -> tactix.Plan:
    builder = tactix.Builder()
    return builder.build_plan(
        builder.import_model(model), tactix.BuilderConfig(frozen=lock, **options)
    )


def refused(model: str, lock: Path, **options: Any) -> str:
    with pytest.raises(LockError) as caught:
        build(model, lock, **options)
    assert caught.value.do
    assert caught.value.who == str(lock)
    return str(caught.value)


# -- the same bytes ------------------------------------------------------------------------------


ELSEWHERE = [
    {"PYTHONHASHSEED": "1", "TZ": "UTC"},
    {"PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "TACTIX_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"},
]


def built_elsewhere(model: Path, lock: Path, folder: Path, env: dict[str, str]) -> bytes:
    """By a process of its own, in a folder of its own, with nothing cached."""
    (folder / "tmp").mkdir(parents=True)
    env = {
        **os.environ,
        "TACTIX_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
        **env,
    }
    command = [
        sys.executable,
        "-m",
        "tactix",
        "build",
        os.path.relpath(model, folder),
        "-o",
        "out.plan",
        "--no-sign",
    ]
    command += ["--quiet", "--frozen", "--lock", os.path.relpath(lock, folder)]
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=300, capture_output=True)
    return (folder / "out.plan").read_bytes()


@pytest.mark.parametrize(
    ("name", "options"),
    [("mlp", ["--precision", "bf16"]), ("loops/greedy", ["--version-compatible", "-O0"])],
)
def test_two_frozen_builds_are_the_same_bytes(
    name: str, options: list[str], tmp_path: Path, tool: Tool
) -> None:
    model, lock = MODELS / f"{name}.onnx", tmp_path / "plan.lock"
    facts, code = tool("lock", model, "-o", lock, *QUICK, *options)
    assert code == 0
    one, two = (
        built_elsewhere(model, lock, tmp_path / str(i) / "in", env)
        for i, env in enumerate(ELSEWHERE)
    )
    assert one == two
    assert container.digest(container.load(one)).hex() == facts["plan"]


def test_a_frozen_build_measures_nothing_and_chooses_as_the_lock_says(
    model: str, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("trial", "prepare", "measure"):
        monkeypatch.setattr(
            Bench, name, lambda *args, name=name: pytest.fail(f"Bench.{name} was called")
        )
    plan, held = build(model, lock), document.read(lock)
    assert {s.info["status"] for s in plan.steps} == {"locked"}
    for s in plan.steps:
        c = held.choices.nodes[s.name]
        assert (s.info["tactic"], s.info["variant"], s.info["seconds"]) == (
            c.tactic,
            c.variant,
            c.seconds,
        )
    x = np.random.default_rng(0).standard_normal((4, 9), np.float32)
    assert tactix.Runtime().load(plan)(x).shape == (4, 5)


def test_the_api_takes_a_lock(model: str, lock: Path) -> None:
    plan = tactix.build(model, frozen=str(lock)).plan
    assert container.digest(plan) == container.digest(build(model, lock))


def test_a_cached_plan_is_of_the_lock_as_it_is_now(model: str, lock: Path, tmp_path: Path) -> None:
    first = tactix.load_or_build(model, cache=tmp_path / "cache", frozen=lock)
    assert first.plan.seal is None
    assert tactix.load_or_build(model, cache=tmp_path / "cache", frozen=lock).plan.seal is not None
    lock.write_text(lock.read_text().replace(document.read(lock).plan, "cd" * 32))
    with pytest.raises(LockError):
        tactix.load_or_build(model, cache=tmp_path / "cache", frozen=lock)


def test_a_build_that_calibrates_is_refused_before_it_begins(model: str) -> None:
    builder = tactix.Builder()
    config = tactix.BuilderConfig(flags={tactix.BuilderFlag.INT8})
    config.calibration = tactix.Calibration("nowhere")
    with pytest.raises(LockError, match=r"cannot be locked\. Write the model .*tactix quantize"):
        frozen.make(builder, builder.import_model(model), config)


def test_a_node_that_stays_wide_does(tmp_path: Path, tool: Tool) -> None:
    """What is measured not to gain from a lower precision is kept in the lock."""
    model, lock = MODELS / "mlp.onnx", tmp_path / "m.lock"
    pattern = "node_linear_1*"
    assert (
        tool(
            "lock",
            model,
            "-o",
            lock,
            *QUICK,
            "--precision",
            "bf16",
            "--layer-precision",
            f"{pattern}:bf16",
        )[1]
        == 0
    )
    held, plan = document.read(lock), build(str(model), lock)
    assert held.options["layer_precisions"] == [[pattern, "bf16"]]
    nearly = {m["node"] for m in plan.ledger["fusion"]["nearly"] if m["reason"] == LOCKED}
    assert nearly == set(held.choices.wide)
    assert not fnmatch.filter(nearly, pattern)
    told = {s.name: precision(s) for s in plan.steps}
    assert {name: c.precision for name, c in held.choices.nodes.items() if name in told} == told
    assert "bf16" in told.values()


# -- what is held --------------------------------------------------------------------------------


def test_what_a_lock_holds(lock: Path, model: str) -> None:
    held = document.read(lock)
    assert set(held.calibration) == {"s", "z"}
    assert set(held.weights) == {"w0", "w1"}
    assert held.model["layers"] == 5
    assert held.options["threads"] == 1
    assert list(held.toolchain) == ["tactix.cc@1"]
    assert held.distributions.keys() == {"tactix"}
    assert held.device["features"] == sorted(cpu.CpuDevice().properties().features)
    assert all(c.id and c.digest and c.seconds >= 0 for c in held.choices.nodes.values())


def test_a_lock_is_the_same_text_after_reading(lock: Path) -> None:
    text = lock.read_text()
    assert document.read(lock).text() == text
    assert str(Path(__file__).parents[3]) not in text
    assert json.loads(text)["lock"] == document.VERSION


@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda j: j.pop("device"), "device"),
     (lambda j: j.update(lock=9), "version 9"),
     (lambda j: j["choices"]["nodes"].update(x=3), "expected an object"),
     (lambda j: j["device"].update(cores="many"), "expected an integer"),
     (lambda j: j["weights"].update(w=1), "expected text"),
     (lambda j: j.update(more=1), "more")],
)  # fmt: skip
def test_a_damaged_lock_is_named(lock: Path, model: str, change: Any, words: str) -> None:
    j = json.loads(lock.read_text())
    change(j)
    lock.write_text(json.dumps(j))
    text = refused(model, lock)
    assert "not a lock file" in text
    assert words in text
    lock.write_bytes(b"\x00")
    assert "not a lock file" in refused(model, lock)


def test_a_device_is_not_read() -> None:
    with pytest.raises(OSError, match="no regular file"):
        document.read(os.devnull)


# -- misses --------------------------------------------------------------------------------------


def test_another_model_is_named(lock: Path, tmp_path: Path) -> None:
    assert "the model is another one: 5 layers" in refused(
        write(tmp_path / "wide.onnx", width=13), lock
    )


def test_other_weights_and_another_calibration_are_named(lock: Path, tmp_path: Path) -> None:
    text = refused(write(tmp_path / "other.onnx", scale=0.07, seed=2), lock)
    assert "2 of 2 weights differ (w0, w1)" in text
    assert "1 of 2 scales and zero points of the calibration differ (s)" in text


def test_another_compiler_is_named(lock: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = CCompiler().identity()
    monkeypatch.setattr(CCompiler, "identity", lambda self: own.replace("-O3", "-O2"))
    assert "compiler tactix.cc@1 is -O2, the lock has -O3" in refused(model, lock)


def test_other_features_are_named(lock: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cpu._properties()
    gone = sorted(here.features)[0]
    monkeypatch.setattr(
        cpu, "_properties", lambda: replace(here, features=(here.features - {gone}) | {"x9"})
    )
    text = refused(model, lock)
    assert f"lacks {gone}" in text
    assert "has x9 beside" in text


def test_softer_facts_of_the_device_are_taken_from_the_lock(
    lock: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = cpu._properties()
    monkeypatch.setattr(
        cpu, "_properties", lambda: replace(here, name="a twin", cores=97, memory=1, facts={})
    )
    assert container.digest(build(model, lock)).hex() == document.read(lock).plan


def test_a_missing_tactic_is_named(lock: Path, model: str) -> None:
    j = json.loads(lock.read_text())
    choice = next(iter(j["choices"]["nodes"].values()))
    choice["tactic"] = "acme.quick@1"
    j["distributions"]["acme-kernels"] = ["1.2", "00"]
    lock.write_text(json.dumps(j))
    text = refused(model, lock)
    assert "there is no tactic acme.quick@1" in text
    assert "pip install acme-kernels==1.2" in text


@pytest.mark.parametrize(
    ("field", "words"), [("id", "does not bid"), ("digest", "gives another kernel")]
)
def test_a_tactic_that_does_something_else_is_named(
    lock: Path, model: str, field: str, words: str
) -> None:
    j = json.loads(lock.read_text())
    name, choice = next(iter(j["choices"]["nodes"].items()))
    choice[field] = "0" * len(choice[field])
    lock.write_text(json.dumps(j))
    text = refused(model, lock)
    assert name in text
    assert words in text


def test_another_version_of_a_distribution_is_named(
    lock: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (version, digest) = document.read(lock).distributions["tactix"]
    other = Provider("tactix", "9.9")
    monkeypatch.setattr(facts, "providers", lambda session: {"tactix": other})
    assert f"tactix is 9.9, the lock has {version}" in refused(model, lock)
    edited = Provider("tactix", version, lambda: [("a.py", Path(__file__))])
    assert edited.digest != digest
    monkeypatch.setattr(facts, "providers", lambda session: {"tactix": edited})
    assert "has other files than it had" in refused(model, lock)


def test_options_that_contradict_the_lock_are_named(lock: Path, model: str) -> None:
    text = refused(model, lock, threads=3, flags={tactix.BuilderFlag.EXACT_NUMERICS})
    assert "option threads is 3, the lock has 1" in text
    assert "option flags is ['exact_numerics'], the lock has []" in text
    assert build(model, lock, threads=1, builder_optimization_level=1).meta["threads"] == 1


def test_a_plan_that_departs_from_the_lock_is_refused(lock: Path, model: str) -> None:
    lock.write_text(lock.read_text().replace(document.read(lock).plan, "ab" * 32))
    text = refused(model, lock)
    assert "the build gave another plan" in text
    assert "ab" * 32 in text
    assert "the linker is not locked" in text
    lock.write_text(lock.read_text().replace(f'"numpy": "{np.__version__}"', '"numpy": "1.0"'))
    assert f"numpy is {np.__version__}, was 1.0" in refused(model, lock)


# -- the commands --------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACTIX_HOME", str(tmp_path / "home"))
    return tmp_path


def test_the_command_builds_by_a_lock(home: Path, lock: Path, model: str, tool: Tool) -> None:
    assert (
        tool("build", model, "--frozen", "--lock", lock, "-o", home / "p.plan", "--quiet")[1] == 0
    )
    assert container.load(home / "p.plan").seal.digest.hex() == document.read(lock).plan  # type: ignore[union-attr]
    other = write(home / "other.onnx", seed=3)
    error, code = tool("build", other, "--frozen", "--lock", lock, "-o", home / "q.plan", "--quiet")
    assert (code, error["error"]["type"]) == (cli.BUILD, "LockError")
    assert not (home / "q.plan").exists()


def test_the_command_refuses_what_makes_no_sense(
    lock: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["build", model, "--lock", str(lock)]) == cli.USAGE
    assert "--frozen" in capsys.readouterr().err
    assert cli.main(["lock", model, "-o", model]) == cli.USAGE
    assert "overwrite the model" in capsys.readouterr().err


def test_a_build_that_was_stopped_gives_no_lock(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tactix.base.progress import SilentProgress

    monitor = SilentProgress()
    builder = tactix.Builder()
    network = builder.import_model(model)
    real = builder.build_plan
    monkeypatch.setattr(
        builder, "build_plan", lambda *a: (real(*a), setattr(monitor, "cancelled", lambda: True))[0]
    )
    config = tactix.BuilderConfig(
        builder_optimization_level=0, timing_cache=False, progress_monitor=monitor
    )
    with pytest.raises(BuildCancelled, match="no lock is written"):
        frozen.make(builder, network, config)
