"""The ways in: a process in which ``tensorrt`` is tactix's, and a folder for PYTHONPATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import subprocess, sys
import tensorrt as trt
print(trt.__version__, hasattr(trt.BuilderFlag, "FP16"), *sys.argv[1:], flush=True)
if "child" in sys.argv:
    subprocess.run([sys.executable, __file__, "started"], check=True)
"""


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], env={**os.environ, **env}, capture_output=True, text=True
    )


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize(
    ("level", "version", "fp16"), [("10.16", "10.16", True), ("11.1", "11.1", False)]
)
def test_a_program_runs_with_its_children_at_a_level(
    script: str, level: str, version: str, fp16: bool
) -> None:
    found = run("-m", "tactix_tensorrt", "--level", level, script, "child", "--flag")
    assert found.returncode == 0, found.stderr
    first, second = found.stdout.splitlines()
    assert first == f"{version}.0 {fp16} child --flag"
    assert second == f"{version}.0 {fp16} started"


OPENS = """
import ctypes
import tensorrt as trt
import tensorrt.tensorrt as inner
from tensorrt.tensorrt import Logger

assert Logger is inner.Logger is trt.Logger
assert not trt.get_plugin_registry().plugin_creator_list
found = ctypes.CDLL("libnvinfer_plugin.so", mode=ctypes.RTLD_GLOBAL)
assert "EfficientNMS_TRT" in {c.name for c in trt.get_plugin_registry().plugin_creator_list}
found.initLibNvInferPlugins.restype = ctypes.c_bool
assert found.initLibNvInferPlugins(None, b"")
ctypes.cdll.LoadLibrary("/usr/lib/libnvinfer.so.10")
cudart = ctypes.CDLL("libcudart.so")
assert cudart.cudaFree(None) == 0
assert ctypes.CDLL(None)
try:
    ctypes.CDLL("libno_such.so")
except OSError:
    print("opened")
try:
    found.createInferBuilder_INTERNAL
except AttributeError as e:
    print(e)
"""


def test_programs_open_libraries_of_tensorrts(tmp_path: Path) -> None:
    script = tmp_path / "opens.py"
    script.write_text(OPENS)
    found = run("-m", "tactix_tensorrt", str(script), TACTIX_TENSORRT_DEVICE="cpu")
    assert found.returncode == 0, found.stderr
    first, second = found.stdout.splitlines()
    assert first == "opened"
    assert second.startswith("libnvinfer_plugin.so is tactix's stand-in")


SPAWNS = """
import multiprocessing

import tensorrt

def told(found):
    found.put(tensorrt.__version__)

if __name__ == "__main__":
    spawning = multiprocessing.get_context("spawn")
    found = spawning.SimpleQueue()
    child = spawning.Process(target=told, args=(found,))
    child.start()
    child.join()
    print(child.exitcode, found.get() if child.exitcode == 0 else "")
"""


def test_processes_that_multiprocessing_spawns_find_it(tmp_path: Path) -> None:
    program = tmp_path / "spawns.py"
    program.write_text(SPAWNS)
    found = run("-m", "tactix_tensorrt", str(program))
    assert found.stdout.split() == ["0", "10.16.0"], found.stderr


def test_a_folder_on_the_path_has_a_package(script: str) -> None:
    folder = run("-m", "tactix_tensorrt", "--folder").stdout.strip()
    found = run(script, "alone", PYTHONPATH=folder)
    assert found.stdout.split() == ["10.16.0", "True", "alone"], found.stderr


def test_nothing_is_shadowed_unless_asked() -> None:
    found = run("-c", "import tactix_tensorrt.api, sys; print('tensorrt' in sys.modules)")
    assert found.stdout.strip() == "False"


def test_a_level_that_is_none_is_an_error() -> None:
    found = run("-c", "import tactix_tensorrt.api", TACTIX_TENSORRT_LEVEL="9")
    assert "no level '9' of TensorRT" in found.stderr
    assert "10.16" in found.stderr


def test_the_level_is_chosen_before_the_import() -> None:
    ask = "from tactix_tensorrt import api, levels; levels.choose('11.1')"
    assert "imported at level 10.16" in run("-c", ask).stderr


def test_no_build_is_told_of_the_layer_that_plugins_are() -> None:
    code = """
from tactix.plugins.session import Session
from tactix.plugins.unresolved import unresolved
session = Session(group="build")
print(*unresolved(session.layers, session.active_rules(), session.active_tactics()), "told")
"""
    found = run("-c", code)
    assert "TensorRT" not in found.stdout
    assert found.stdout.endswith("told\n"), found.stderr


CUDA = """
import tensorrt
from cuda import cudart
print(tensorrt.__version__, int(cudart.cudaMalloc(8)[0]))
"""


def test_the_folders_have_the_stand_in_for_cuda_where_engines_are_for_the_processor() -> None:
    on_cpu, on_gpu = (
        run("-m", "tactix_tensorrt", "--folder", TACTIX_TENSORRT_DEVICE=device).stdout.strip()
        for device in ("cpu", "cuda")
    )
    assert on_cpu.split(os.pathsep)[0] == on_gpu
    found = run("-c", CUDA, PYTHONPATH=on_cpu, TACTIX_TENSORRT_DEVICE="cpu")
    assert found.stdout.split() == ["10.16.0", "0"], found.stderr


def test_what_sessions_find_of_the_pack_imports_nothing_of_the_api() -> None:
    code = "from tactix_tensorrt.plugin import launchers, layers, tactics\nimport sys\n"
    code += "print([x.key for made in (layers(), launchers(), tactics()) for x in made])\n"
    code += "print('tactix_tensorrt.api' in sys.modules)"
    first, second = run("-c", code).stdout.splitlines()
    assert "tactix.TensorRTPlugin@1" in first
    assert second == "False"


def test_importing_the_api_waits_for_what_builds_need() -> None:
    """Numpy, readers of ONNX and layers cost as much as all the rest."""
    code = (
        "import sys; from tactix_tensorrt import api; "
        "print([m for m in ('numpy', 'tactix_onnx', 'tactix_ops', 'tactix_sdk') if m in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"
