"""ONNX Runtime's face over tactix: the same program gives the same with both packages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tactix
import tactix_bridges.onnxruntime as ours
from tactix.base.errors import ConfigError, ModelImportError, PlanFormatError

ROOT = Path(__file__).parents[3]
BOTH = pytest.mark.parametrize("ort", [ours, onnxruntime], ids=["tactix", "onnxruntime"])
MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[batch, 3] x, float[batch, 3] y) => (float[batch, 3] total, float[batch] most) {
  total = Add (x, y)
  most = ReduceMax <keepdims = 0> (total, axes)
}
""".replace("{\n  total", "<int64[1] axes = {1}> {\n  total")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), file)
    return str(file)


def options(ort: Any) -> Any:
    said = ort.SessionOptions()
    said.intra_op_num_threads = 1
    said.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return said


def session(ort: Any, source: Any) -> Any:
    return ort.InferenceSession(source, options(ort), providers=["CPUExecutionProvider"])


@BOTH
def test_an_output_may_have_the_name_of_an_input(ort: ModuleType, tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[3] x) => (float[3] y, float[3] x) { y = Neg (x) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "same.onnx")
    found = session(ort, str(tmp_path / "same.onnx"))
    assert [o.name for o in found.get_outputs()] == ["y", "x"]
    same, turned = found.run(["x", "y"], {"x": X[0]})
    np.testing.assert_array_equal(same, X[0])
    np.testing.assert_array_equal(turned, -X[0])


@BOTH
def test_what_a_program_asks_of_a_session(ort: ModuleType, path: str) -> None:
    found = session(ort, path)
    facts = [(i.name, i.type, i.shape) for i in (*found.get_inputs(), *found.get_outputs())]
    assert facts == [
        ("x", "tensor(float)", ["batch", 3]),
        ("y", "tensor(float)", ["batch", 3]),
        ("total", "tensor(float)", ["batch", 3]),
        ("most", "tensor(float)", ["batch"]),
    ]
    assert found.get_providers() == ["CPUExecutionProvider"]
    assert found.get_modelmeta().graph_name == "g" if ort is onnxruntime else True
    assert found.get_session_options().intra_op_num_threads == 1
    assert "CPUExecutionProvider" in ort.get_available_providers()


@BOTH
def test_runs(ort: ModuleType, path: str) -> None:
    found = session(ort, path)
    total, most = found.run(None, {"x": X, "y": X})
    assert total.tolist() == (2 * X).tolist()
    assert most.tolist() == [4, 10]
    assert [a.tolist() for a in found.run(["most"], {"y": X, "x": X})] == [[4, 10]]
    twice = found.run(["most", "total", "most"], {"x": X, "y": X})
    assert [a.shape for a in twice] == [(2,), (2, 3), (2,)]


@BOTH
def test_models_in_memory(ort: ModuleType, path: str) -> None:
    found = session(ort, Path(path).read_bytes())
    assert found.run(["most"], {"x": X, "y": X})[0].tolist() == [4, 10]


@BOTH
def test_bound_arrays(ort: ModuleType, path: str) -> None:
    found = session(ort, path)
    binding = found.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_input("y", ort.OrtValue.ortvalue_from_numpy(X))
    most = ort.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    binding.bind_output("total")
    binding.bind_ortvalue_output("most", most)
    found.run_with_iobinding(binding)
    assert most.numpy().tolist() == [4, 10]
    assert binding.copy_outputs_to_cpu()[0].tolist() == (2 * X).tolist()
    assert [v.shape() for v in binding.get_outputs()] == [[2, 3], [2]]


WRONG: dict[str, tuple[Callable[[Any], object], type[Exception]]] = {
    "another input": (lambda s: s.run(None, {"x": X, "z": X}), ours.InvalidArgument),
    "a missing input": (lambda s: s.run(None, {"x": X}), ours.InvalidArgument),
    "another output": (lambda s: s.run(["z"], {"x": X, "y": X}), ours.InvalidArgument),
    "another dtype": (
        lambda s: s.run(None, {"x": X.astype(np.int64), "y": X}),
        ours.InvalidArgument,
    ),
}


@pytest.mark.parametrize(("call", "error"), WRONG.values(), ids=WRONG.keys())
def test_wrong_calls_are_told_by_both(
    call: Callable[[Any], object], error: type[Exception], path: str
) -> None:
    with pytest.raises(error):
        call(session(ours, path))
    with pytest.raises(Exception, match=r"."):
        call(session(onnxruntime, path))


def test_an_output_that_does_not_fit_is_told(path: str) -> None:
    found = session(ours, path)
    binding = found.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", X)
    binding.bind_ortvalue_output("most", ours.OrtValue(np.zeros(3, np.float32)))
    with pytest.raises(ours.InvalidArgument, match=r"'most' is float32 \(2,\)"):
        found.run_with_iobinding(binding)


@BOTH
def test_names_that_are_none_are_told_when_bound(ort: ModuleType, path: str) -> None:
    binding = session(ort, path).io_binding()
    with pytest.raises(Exception, match="z"):
        binding.bind_cpu_input("z", X)


@BOTH
def test_a_run_without_a_bound_output_is_told(ort: ModuleType, path: str) -> None:
    found = session(ort, path)
    binding = found.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("y", X)
    with pytest.raises(Exception, match=r"output"):
        found.run_with_iobinding(binding)


def test_plans_are_sessions_too(path: str, tmp_path: Path) -> None:
    engine = tactix.build(path, level=0, timing_cache=False)
    engine.save(tmp_path / "model.plan")
    for source in (tmp_path / "model.plan", (tmp_path / "model.plan").read_bytes()):
        found = session(ours, source)
        assert found.run(["most"], {"x": X, "y": X})[0].tolist() == [4, 10]
        assert found.engine._program.context.threads == 1


def test_a_session_is_built_once(path: str, tmp_path: Path) -> None:
    said = options(ours)
    said.add_session_config_entry("tactix.cache", str(tmp_path / "plans"))
    for _ in range(2):
        ours.InferenceSession(path, said)
        (plan,) = (tmp_path / "plans").glob("*.plan")
        built = plan.stat().st_mtime_ns
    assert plan.stat().st_mtime_ns == built


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        ours.InferenceSession(str(tmp_path / "gone.onnx"))
    with pytest.raises(ModelImportError, match=r"^the model in memory: not an ONNX model") as told:
        ours.InferenceSession(b"neither model nor plan")
    assert isinstance(told.value, ours.InvalidProtobuf)
    with pytest.raises(ours.InvalidArgument, match="path or bytes, not NoneType"):
        ours.InferenceSession(None)  # type: ignore[arg-type]
    with pytest.raises(PlanFormatError):
        ours.InferenceSession(b"\x89tactix\n cut off")


def test_options_that_are_none_are_told(path: str) -> None:
    said = ours.SessionOptions()
    with pytest.raises(AttributeError):
        said.intra_op_threads = 1  # type: ignore[attr-defined]
    said.add_session_config_entry("tactix.level", "many")
    with pytest.raises(ours.InvalidArgument, match=r"tactix.level is 'many'"):
        ours.InferenceSession(path, said)
    said.add_session_config_entry("tactix.level", "0")
    said.add_session_config_entry("tactix.levle", "0")
    with pytest.raises(ConfigError, match="levle"):
        ours.InferenceSession(path, said)
    for wrong in ("CPUExecutionProvider", [3]):
        with pytest.raises(ours.InvalidArgument, match="Give a list of names"):
            ours.InferenceSession(path, options(ours), providers=wrong)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="NoSuchProvider"):
        alone = ours.InferenceSession(path, options(ours), providers=["NoSuchProvider"])
    assert alone.get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="NoSuchProvider"):
        ours.InferenceSession(
            path, options(ours), providers=[("NoSuchProvider", {}), "CPUExecutionProvider"]
        )


def test_the_example_of_the_documents_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "onnxruntime.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(example, {})
    assert re.match(r"\[\d \d \d ", capsys.readouterr().out)
