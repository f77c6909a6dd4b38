"""trtexec: its flags, whole runs on the processor, its reports and files, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tactix.base.errors import InvalidArgument
from tactix.plan import container
from tactix_tensorrt import api as trt
from tactix_tools import cli
from tactix_tools.trtexec import program
from tactix_tools.trtexec.arguments import Arguments, shapes, size
from tactix_tools.trtexec.bindings import Bindings
from tactix_tools.trtexec.flags import KNOWN, Standing
from tactix_tools.trtexec.installing import install
from tactix_tools.trtexec.options import AllOptions, read
from tactix_tools.trtexec.program import main
from tactix_tools.trtexec.queries import DeviceQuery, QueryTimes
from tactix_tools.trtexec.reports import LayerTimes, spread

QUICK = ("--builderOptimizationLevel=0", "--iterations=3", "--duration=0", "--warmUp=0")
STAMP = r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[IWEV]\] "


@pytest.fixture
def onnx(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(model)
    return "--onnx=m.onnx"


@pytest.fixture(scope="module")
def plan(model: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan for batches of 1 to 4, and of 6 to 8, that can be refitted."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "m.onnx").write_bytes(model)
    ranges = ("--profile=0", "--minShapes=x:1x3x8x8", "--optShapes=x:2x3x8x8")
    ranges += ("--maxShapes=x:4x3x8x8", "--profile=1", "--optShapes=x:7x3x8x8")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("TACTIX_TENSORRT_DEVICE", "cpu")
        flags = ("--skipInference", "--refit", *ranges, f"--saveEngine={folder / 'm.plan'}")
        assert main([f"--onnx={folder / 'm.onnx'}", *QUICK, *flags]) == 0
    return folder / "m.plan"


def options(*words: str) -> AllOptions:
    return read(Arguments(["--onnx=m.onnx", *words]))


# -- flags ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["--fp16", "--bf16"], {"FP16", "BF16"}),
        (["--best"], {"FP16", "BF16", "INT8"}),
        (["--best", "--stronglyTyped"], set()),
        (["--stripWeights"], {"STRIP_PLAN", "REFIT_IDENTICAL"}),
        (["--stripWeights", "--refit"], {"STRIP_PLAN", "REFIT"}),
        (["--stripAllWeights"], {"STRIP_PLAN", "REFIT"}),
        (["--vc", "--excludeLeanRuntime"], {"VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"}),
        (["--sparsity=enable"], {"SPARSE_WEIGHTS"}),
        (["--precisionConstraints=obey"], {"OBEY_PRECISION_CONSTRAINTS"}),
        (["--noBuilderCache", "--allowWeightStreaming"], {"DISABLE_TIMING_CACHE", "WEIGHT_STREAMING"}),
    ],
)  # fmt: skip
def test_switches_set_flags_of_the_builder(words: list[str], flags: set[str]) -> None:
    assert options(*words).build.flags == flags


def test_shapes_make_profiles() -> None:
    (only,) = options("--optShapes=x:2x3,'a:b':4").build.profiles
    assert only.low == only.opt == only.high == {"x": (2, 3), "a:b": (4,)}
    (of_shapes,) = options("--shapes=x:5").build.profiles
    assert of_shapes.opt == {"x": (5,)}
    first, second = options(
        "--profile=1", "--optShapes=x:7", "--profile=0",
        "--minShapes=x:1", "--optShapes=x:2", "--maxShapes=x:3",
    ).build.profiles  # fmt: skip
    assert (first.low, first.opt, first.high) == ({"x": (1,)}, {"x": (2,)}, {"x": (3,)})
    assert second.opt == {"x": (7,)}


def test_sizes_have_units() -> None:
    assert size("512") == 512 << 20
    assert size("0.5G") == size("512MiB") == 512 << 20
    assert size("64K") == 64 << 10
    assert size("7B") == 7
    pools = options("--memPoolSize=workspace:1,tacticSharedMem:2K").build.pools
    assert pools == {"WORKSPACE": 1 << 20, "TACTIC_SHARED_MEMORY": 2 << 10}
    assert options("--workspace=4096").build.pools == {"WORKSPACE": 4 << 30}
    assert shapes("s:scalar") == {"s": ()}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--fp61", "Did you mean '--fp16'"),
        ("m.onnx", "Unknown option: m.onnx"),
        ("--fp16=1", "it takes none. Write --fp16"),
        ("--saveEngine", "it needs a value. Write --saveEngine=FILE"),
        ("--iterations=many", "--iterations=many cannot be read"),
        ("--builderOptimizationLevel=6", "5 at most"),
        ("--shapes=x:1xa", "'x:1xa' is not of the form"),
        ("--maxShapes=x:1", "Must specify only --optShapes or all"),
        ("--percentile=101", "between 0 and 100"),
        ("--profilingVerbosity=loud", "detailed"),
        ("--inputIOFormats=fp16:hwc8", "the format is chw here"),
        ("--outputIOFormats=fp17:chw", "types are fp32"),
        ("--memPoolSize=heap:1", "pools are workspace"),
        ("--layerPrecisions=a:int4", "int4 of 'a'"),
        ("--sparsity=force", "would change the weights"),
        ("--device=1", "Set CUDA_VISIBLE_DEVICES"),
        ("--tacticSources=CUDNN", "write + or - before CUBLAS"),
        ("--runtimePlatform=Linux", "WindowsAMD64"),
        ("--loadInputs=x", "not of the form name:value"),
        ("--optShapesCalib=x:1x3x8x8", "tactix quantize --cache"),
        ("--buildDLAStandalone", "There is no DLA here"),
        ("--setPluginsToSerialize=p.so", "Make a pack of it"),
        ("--atol=1e-3", "tactix compare"),
        ("--tuningTimeOut=5", "Tune with --builderOptimizationLevel"),
        ("--saveAllDebugTensors=xml", "formats are summary, numpy, string, raw"),
        ("--layerOutputTypes=a:fp16", "Put Cast nodes"),
        ("--saveEngine=a --loadEngine=b", "Incompatible load and save"),
    ],
)
def test_what_cannot_be_is_told(word: str, told: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(told)):
        options(*word.split())


def test_a_model_is_needed() -> None:
    with pytest.raises(InvalidArgument, match="Model missing"):
        read(Arguments(["--fp16"]))


def test_flags_that_are_not_served_say_why() -> None:
    for flag in KNOWN.values():
        assert bool(flag.why) is (flag.standing is not Standing.SERVED), flag.name


# -- runs -----------------------------------------------------------------------------------------


def test_a_model_is_built_run_and_reported(
    onnx: str, capsys: pytest.CaptureFixture[str], model: bytes
) -> None:
    x = np.random.default_rng(3).standard_normal((3, 3, 8, 8)).astype(np.float32)
    x.tofile("x.raw")
    flags = (
        "--shapes=x:3x3x8x8", "--loadInputs=x:x.raw", "--exportTimes=t.json", "--exportOutput=o.json",
        "--exportLayerInfo=l.json", "--dumpOutput", "--dumpLayerInfo", "--dumpRawBindingsToFile",
        "--timingCacheFile=c.cache", "--avgRuns=2", "--percentile=50,99", "--useCudaGraph", "--verbose",
        "--profilingVerbosity=detailed", "--tacticSources=-CUDNN,+CUBLAS", "--maxTactics=2",
        "--outputIOFormats=fp32:chw", "--layerPrecisions=head:fp32", "--precisionConstraints=obey",
    )  # fmt: skip
    assert main([onnx, *QUICK, *flags]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert re.match(r"&&&& RUNNING TensorRT\.trtexec \[TensorRT v101600\] ", lines[0])
    assert lines[-1].startswith("&&&& PASSED TensorRT.trtexec [TensorRT v101600] ")
    assert all(re.match(STAMP, line) for line in lines[1:-1])
    for part in ("Model", "Build", "System", "Inference", "Reporting"):
        assert f"=== {part} Options ===" in out
    assert "[I] Input build shape (profile 0): x=3x3x8x8+3x3x8x8+3x3x8x8" in out
    assert re.search(r"\[I\] Throughput: [\d.e+]+ qps\n", out)
    number = r"[\d.e-]+ ms"
    kinds = f"min = {number}, max = {number}, mean = {number}, median = {number}"
    shares = rf"percentile\(50%\) = {number}, percentile\(99%\) = {number}"
    for row in ("Latency", "Enqueue Time", "H2D Latency", "GPU Compute Time", "D2H Latency"):
        assert re.search(rf"\[I\] {row}: {kinds}, {shares}\n", out), row
    assert "[I] Average on 2 runs - GPU latency: " in out
    assert "--useCudaGraph changes nothing here" in out
    assert "[V] === Explanations of the performance metrics ===" in out

    (y,) = json.loads(Path("o.json").read_text())
    assert (y["name"], y["dimensions"]) == ("y", "3x4")
    import onnxruntime

    (want,) = onnxruntime.InferenceSession(model).run(None, {"x": x})
    np.testing.assert_allclose(y["values"], want.ravel(), rtol=1e-4, atol=1e-5)
    raw = np.fromfile("y.output.3.4.float32.raw", np.float32)
    np.testing.assert_allclose(raw, want.ravel(), rtol=1e-4, atol=1e-5)
    assert Path("x.input.3.3.8.8.float32.raw").read_bytes() == x.tobytes()

    times = json.loads(Path("t.json").read_text())
    assert len(times) >= 3
    for q in times:
        assert q["latencyMs"] == q["h2dMs"] + q["computeMs"] + q["d2hMs"]
        assert q["endComputeMs"] - q["startComputeMs"] == q["computeMs"] > 0
        assert {"startEnqMs", "endEnqMs", "startH2dMs", "endH2dMs", "startD2hMs"} <= q.keys()
    layers = json.loads(Path("l.json").read_text())
    assert [layer["Name"] for layer in layers["Layers"]][-1] == "head"
    assert layers["Bindings"] == ["x", "y"]
    assert json.loads(Path("c.cache").read_text())["version"] == 1


def test_layers_for_a_dla_run_beside_the_others(
    onnx: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([onnx, *QUICK, "--skipInference", "--useDLACore=1", "--allowGPUFallback"]) == 0
    assert "[I] DLACore: 1" in capsys.readouterr().out


def test_an_open_shape_is_1_with_a_warning(onnx: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([onnx, *QUICK, "--infStreams=2", "--threads", "--noDataTransfers"]) == 0
    found = capsys.readouterr()
    assert "no shapes were provided. Automatically overriding shape to: 1x3x8x8" in found.err
    assert "Input binding for x with dimensions 1x3x8x8 is created." in found.out


def test_shapes_of_a_shape_tensor_are_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])
    sizes = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    graph = helper.make_graph([node], "net", [x, sizes], [y])
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(helper.make_model(graph, ir_version=10).SerializeToString())
    assert main(["--onnx=m.onnx", *QUICK, "--shapes=x:2x6,s:3x4", "--dumpOutput"]) == 0
    told = capsys.readouterr().out
    assert "Using 3x4 for the shape tensor s" in told
    assert "y: (3x4)" in told
    assert main(["--onnx=m.onnx", *QUICK, "--shapes=x:2x6,s:2"]) == 1
    assert "'s' holds 2 values, not 1" in capsys.readouterr().err


def test_a_plan_is_loaded_at_its_profiles(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = f"--loadEngine={plan}"
    assert main([load, *QUICK, "--dumpOptimizationProfile", "--dumpRefit"]) == 0
    out = capsys.readouterr().out
    assert "Input binding for x with dimensions 2x3x8x8 is created." in out
    assert "x: min=1x3x8x8, opt=2x3x8x8, max=4x3x8x8" in out
    assert "x: min=7x3x8x8, opt=7x3x8x8, max=7x3x8x8" in out
    assert re.search(r"Refittable weights:\n.* m\n", out)
    assert main([load, *QUICK, "--useProfile=1", "--idleTime=1"]) == 0
    assert "with dimensions 7x3x8x8" in capsys.readouterr().out
    assert main([load, *QUICK, "--shapes=x:5x3x8x8"]) == 1
    assert main([load, *QUICK, "--useProfile=2"]) == 1
    assert "The engine has 2" in capsys.readouterr().err


def test_a_plan_is_refitted_and_timed(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = f"--loadEngine={plan}"
    flags = (f"--refitFromOnnx={plan.with_name('m.onnx')}", "--timeRefit", "--skipInference")
    assert main([load, *flags]) == 0
    out = capsys.readouterr().out
    assert re.search(r"Engine refitted in [\d.]+ ms", out)
    assert "Skipped inference phase" in out
    assert main([load, "--timeDeserialize"]) == 0
    out = capsys.readouterr().out
    assert "Engine deserialized in" in out
    assert "Starting inference" not in out


def test_times_of_layers_are_told(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.json"
    assert main([f"--loadEngine={plan}", *QUICK, "--dumpProfile", f"--exportProfile={path}"]) == 0
    out = capsys.readouterr().out
    assert "=== Profile (10 iterations ) ===" in out
    assert re.search(r"\[I\] +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+   head\n", out)
    count, *layers = json.loads(path.read_text())
    assert count == {"count": 10}
    assert layers[-1]["name"] == "head"
    assert layers[-1].keys() == {"name", "timeMs", "averageMs", "medianMs", "percentage"}
    assert sum(layer["percentage"] for layer in layers) == pytest.approx(100)


PLUGINS = """
import numpy as np
import tensorrt as trt
from trt_plugins import CircularPad, Creator

pads = trt.PluginField("pads", np.array([]), trt.PluginFieldType.INT32)
trt.get_plugin_registry().register_creator(Creator(CircularPad, pads), "")
"""


def test_a_file_registers_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("CircularPad", ["x"], ["y"], "pad", domain="acme", pads=[1, 0])
    graph = helper.make_graph([node], "net", [x], [y])
    opsets = [helper.make_opsetid("acme", 1), helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    Path("m.onnx").write_bytes(model.SerializeToString())
    Path("plugins.py").write_text(PLUGINS)
    np.arange(6, dtype=np.float32).tofile("x.raw")
    flags = ("--onnx=m.onnx", "--loadInputs=x:x.raw", "--exportOutput=o.json", *QUICK)
    try:
        assert main([*flags, "--staticPlugins=plugins.py"]) == 0
    finally:
        registry = trt.get_plugin_registry()
        registry.deregister_creator(registry.get_creator("CircularPad", "1", ""))
    assert json.loads(Path("o.json").read_text())[0]["values"] == [2, 0, 1, 2, 5, 3, 4, 5]
    assert main([*flags, "--plugins=libplugins.so"]) == 1
    assert "no plugins can be had of libplugins.so" in capsys.readouterr().err


def test_weights_are_streamed_within_a_budget(
    onnx: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--allowWeightStreaming", "--shapes=x:1x3x8x8")
    assert main([onnx, *QUICK, *flags, "--weightStreamingBudget=50%"]) == 0
    assert main([onnx, *QUICK, *flags, "--weightStreamingBudget=half"]) == 1
    assert "--weightStreamingBudget=half" in capsys.readouterr().err


def test_inputs_are_halves_where_formats_say_so(
    onnx: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([onnx, *QUICK, "--inputIOFormats=fp16:chw"]) == 0
    assert "PASSED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--onnx=absent.onnx"], "absent.onnx"),
        (["--loadEngine=absent.plan"], "absent.plan"),
        (["--loadEngine=m.onnx"], "Engine deserialization failed"),
        (["--onnx=m.onnx", "--shapes=z:1x3x8x8"], 'Cannot find input tensor with name "z"'),
        (["--onnx=m.onnx", "--inputIOFormats=fp32:chw,fp32:chw"], "2 formats for 1 tensors"),
        (["--onnx=m.onnx", "--runtimePlatform=WindowsAMD64"], "no engine for"),
        (["--onnx=m.onnx", "--useDLACore=0"], "layers are for a DLA, and there is none"),
        (["--onnx=m.onnx", "--fp61"], "Unknown option: --fp61"),
        (["--onnx=m.onnx", "--minShapes=x:2x3x8x8", "--optShapes=x:1x3x8x8",
          "--maxShapes=x:3x3x8x8"], "Shapes of x are not in order"),
    ],
)  # fmt: skip
def test_a_failure_is_one_in_the_last_line_and_the_status(
    onnx: str, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags, *QUICK]) == 1
    found = capsys.readouterr()
    assert re.search(rf"{STAMP}.*{re.escape(told)}", found.err)
    assert found.out.splitlines()[-1].startswith("&&&& FAILED TensorRT.trtexec ")


def test_a_fault_of_the_program_is_a_failure_too(
    onnx: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "engine_of", lambda options, lines: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([onnx])
    assert capsys.readouterr().out.splitlines()[-1].startswith("&&&& FAILED TensorRT.trtexec ")


def test_raw_inputs_of_another_size_are_refused(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "short.raw"
    path.write_bytes(b"1234")
    assert main([f"--loadEngine={plan}", *QUICK, f"--loadInputs=x:{path}"]) == 1
    assert "has 4 bytes: the input takes 1536" in capsys.readouterr().err
    assert main([f"--loadEngine={plan}", *QUICK, f"--loadInputs=z:{path}"]) == 1
    assert 'Cannot find input tensor with name "z"' in capsys.readouterr().err


def test_queries_in_a_stream_are_timed_by_its_events(engine: trt.ICudaEngine) -> None:
    """As on a GPU, with the processor's streams and events, which are threads and clocks."""
    context = engine.create_execution_context()
    x = np.ones((2, 3, 8, 8), np.float32)
    bindings = Bindings(engine, context, {"x": x})
    query = DeviceQuery(context, bindings, True, time.perf_counter())
    query.launch()
    q = query.finish()
    assert 0 < q.h2d_start <= q.h2d_end == q.compute_start <= q.compute_end == q.d2h_start
    assert q.d2h_start <= q.d2h_end
    assert q.enqueue > 0
    assert bindings.download()["y"].any()


# -- numbers --------------------------------------------------------------------------------------


def test_spreads_have_the_percentiles_of_tensorrt() -> None:
    found = spread([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0], (50, 90, 99, 100))
    assert (found.low, found.high, found.mean, found.median) == (1.0, 10.0, 5.5, 5.5)
    assert found.percentiles == {50: 5.0, 90: 9.0, 99: 10.0, 100: 10.0}
    assert spread([2.0], (0,)).percentiles == {0: 2.0}


def test_the_latency_is_of_the_parts() -> None:
    q = QueryTimes(0.0, 0.5, 1.0, 2.0, 2.5, 5.5, 6.0, 6.25)
    assert (q.enqueue, q.h2d, q.compute, q.d2h, q.latency) == (0.5, 1.0, 3.0, 0.25, 4.25)


def test_times_of_layers_as_json() -> None:
    times = LayerTimes()
    for ms in (1.0, 3.0):
        times.report_layer_time("a", ms)
        times.report_layer_time("b", 2 * ms)
    count, a, b = times.as_json()
    assert count == {"count": 2}
    assert a["name"] == "a"
    assert (a["timeMs"], a["averageMs"], a["medianMs"]) == (4.0, 2.0, 2.0)
    assert b["percentage"] == pytest.approx(200 / 3)


def test_int8_by_scales_that_were_kept(
    onnx: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_TENSORRT_DEVICE", "cpu")
    flags = [onnx, *QUICK, "--int8", "--calib=it.cache", "--skipInference", "--saveEngine=m.plan"]
    assert main(flags) == 1
    assert "--calib=it.cache: there is no such calibration cache" in capfd.readouterr().err
    Path("it.cache").write_bytes(b"TRT-8401-EntropyCalibration2\nx: 3c81020c\np: 3c81020c\n")
    assert main(flags) == 0
    plan = container.load("m.plan")
    reasons = plan.ledger["precision"]["wide"]
    assert "its input has no range" not in reasons.values()
    assert reasons.keys() | {*plan.ledger["precision"]["lowered"]} == {"conv", "head"}


# -- ways in --------------------------------------------------------------------------------------


def test_it_is_a_tool(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trtexec", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--onnx=FILE" in out
    assert "--calib=FILE" in out
    assert "refused: Calibrate before" in out
    assert cli.main(["trtexec", "--fp61"]) == 1


@pytest.mark.parametrize(
    ("level", "number", "flag", "status"),
    [
        ("8.6", "v8601", "--fp16", 0),
        ("11.1", "v110100", "--fp16", 1),
        ("11.1", "v110100", "--refit", 0),
    ],
)
def test_a_level_has_its_version_and_its_flags(
    plan: Path, level: str, number: str, flag: str, status: int
) -> None:
    flags = [f"--onnx={plan.with_name('m.onnx')}", "--skipInference", *QUICK, flag]
    env = {**os.environ, "TACTIX_TENSORRT_LEVEL": level}
    found = subprocess.run(
        [sys.executable, "-m", "tactix", "trtexec", *flags], env=env, capture_output=True, text=True
    )
    assert found.returncode == status, found.stderr
    assert f"RUNNING TensorRT.trtexec [TensorRT {number}]" in found.stdout
    assert ("has no FP16" in found.stderr) is (status == 1)


def test_a_program_is_installed_and_runs(tmp_path: Path) -> None:
    path = install(str(tmp_path / "bin"))
    assert install(str(tmp_path / "bin")) == path
    env = {**os.environ, "PATH": f"{path.parent}{os.pathsep}{os.environ['PATH']}"}
    found = subprocess.run(
        ["trtexec", "--loadEngine=absent.plan"], env=env, capture_output=True, text=True
    )
    assert found.returncode == 1
    assert "&&&& FAILED TensorRT.trtexec" in found.stdout
    path.write_text("another")
    with pytest.raises(InvalidArgument, match="is another program"):
        install(str(tmp_path / "bin"))


def test_debug_tensors_are_written(onnx: str) -> None:
    network = trt.Builder(trt.Logger()).create_network(0)
    assert trt.OnnxParser(network, trt.Logger()).parse_from_file("m.onnx")
    middle = network.get_layer(0).get_output(0).name
    flags = (
        f"--markDebug={middle}",
        f"--saveDebugTensors={middle}:middle.raw",
        "--saveAllDebugTensors=summary,numpy,string,raw",
        "--shapes=x:2x3x8x8",
    )
    assert main([onnx, *QUICK, *flags]) == 0
    summary = json.loads(Path("tensor_summary.json").read_text())
    assert summary["metadata"]["title"] == "Tensor Summary Report"
    (row,) = summary["tensors"]
    array = np.load(row["files"]["numpy"])
    assert (row["name"], row["shape"], row["type"]) == (middle, list(array.shape), "FLOAT")
    assert row["files"]["numpy"].startswith("0000_")
    assert row["statistics"]["average"] == pytest.approx(float(array.mean()), abs=1e-5)
    for name in (row["files"]["raw"], row["files"]["assigned"], "middle.raw"):
        assert Path(name).read_bytes() == array.tobytes()
    first, *values = Path(row["files"]["string"]).read_text().splitlines()
    assert first == f"{middle}: ({'x'.join(map(str, array.shape))})"
    assert [float(v) for v in values] == array.ravel().tolist()


def test_what_is_no_debug_tensor_is_told(
    onnx: str, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([onnx, *QUICK, "--markDebug=nothing"]) == 1
    assert "no tensor is named 'nothing'" in capsys.readouterr().err
    assert main([f"--loadEngine={plan}", *QUICK, "--saveDebugTensors=x:x.raw"]) == 1
    assert "x is no debug tensor of the engine" in capsys.readouterr().err
