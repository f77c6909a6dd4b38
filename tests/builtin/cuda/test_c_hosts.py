"""CUDA plans as C libraries, on a driver of the tests' own: the kernels run on the host, and are
launched as Python launches them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import c_host_calls
import c_hosts
import c_libraries
import numpy as np
import pytest
from c_host_calls import DEPTH, WIDTH, rows, weights
from c_hosts import Started
from fake_driver import FakeKernel, Ran, fake_device

import tactix
from tactix.base.errors import PlanCompatibilityError
from tactix.config import OptimizationProfile
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix.run.runtime import Runtime
from tactix_cpu.compiler import find_compiler
from tactix_cuda import device as real
from tactix_cuda.modules import kernel_name
from tactix_cuda.nvrtc import why_missing
from tactix_ship.c_library.cuda_tables import ANY_CAPABILITY, Capabilities, capabilities
from tactix_ship.c_library.export import export

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(bool(why_missing()), reason=why_missing()),
]


def _network(builder: tactix.Builder) -> Any:
    """A product by tensor maps in clusters of blocks, and sums of its rows; any number of rows."""
    net = builder.create_network("small")
    w = net.add_constant(weights(), "w")
    (y,) = net.add_layer("tactix.MatMul", [net.add_input("x", "f16", ("rows", DEPTH)), w])
    (z,) = net.add_layer("tactix.Tanh", [y])
    net.mark_output(z, "z")
    (total,) = net.add_layer("tactix.ReduceSum", [z], axes=(1,), keepdims=False)
    net.mark_output(total, "total")
    return net


@dataclass(frozen=True)
class Exported:
    """``env``: of processes whose driver is the tests'."""

    plan: Plan
    folder: Path
    scratch: Path
    env: dict[str, str]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    profile = OptimizationProfile().set_shape("x", (1, DEPTH), (64, DEPTH), (128, DEPTH))
    plan = c_hosts.built(_network, target="sm_90a", profiles=[profile], max_aux_streams=0)
    scratch = tmp_path_factory.mktemp("cuda")
    c_libraries.written(plan, scratch / "net")
    kernels = c_hosts.emulated(plan, scratch)
    c_hosts.driver(scratch)
    env = {**os.environ, "LD_LIBRARY_PATH": str(scratch), "FAKE_CUDA_KERNELS": str(kernels)}
    return Exported(plan, scratch / "net", scratch, env)


@pytest.fixture(scope="module")
def started(exported: Exported) -> list[Started]:
    """What a program in C under sanitizers asked the driver for, in three runs at two rows."""
    program = c_hosts.program(exported.folder, "net", exported.scratch / "program")
    log, answers, x = exported.scratch / "log", exported.scratch / "answers", rows(2)
    c_hosts.run(program, answers, [x], 3, {**exported.env, "FAKE_CUDA_LOG": str(log)})
    z, total = (np.fromfile(answers / f"out{i}", np.float16) for i in (0, 1))
    c_host_calls.check(x, z.reshape(2, WIDTH), total)
    return c_hosts.journal(log)


def test_the_first_run_launches_and_later_ones_are_a_graph(started: list[Started]) -> None:
    assert [s.how for s in started] == ["launch"] * 2 + ["graph"] * 4
    assert [(s.cluster, s.early) for s in started[2:4]] == [((8, 1, 1), False), ((1, 1, 1), True)]
    launched, later = started[:2], [replace(s, how="launch", early=False) for s in started[2:4]]
    assert later == launched


def _numbers(plan: Plan, at: int, arguments: Sequence[int]) -> list[int]:
    """Those of a launch's arguments that are no addresses."""
    launch = [x for s in plan.steps for x in s.artifact.launches][at]
    pairs = zip(launch.args, arguments, strict=True)
    return [value for a, value in pairs if a.kind == "scalar"]


def test_launches_are_those_of_python(
    exported: Exported, started: list[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = exported.plan
    kernels = {
        kernel_name(s.artifact.code, x.symbol): FakeKernel(len(x.args))  # type: ignore[arg-type]
        for s in plan.steps
        for x in s.artifact.launches
    }
    made, api = fake_device(kernels)
    monkeypatch.setattr(real, "the_device", lambda: made)
    Runtime(on_untrusted="allow").load(plan).create_execution_context().run({"x": rows(2)})
    assert len(api.ran) == len(plan.steps)
    for i, (python, c) in enumerate(zip(api.ran, started[2:4], strict=True)):
        assert isinstance(python, Ran)
        assert (python.symbol, python.grid, python.block) == (c.name, c.grid, c.block)
        assert (python.shared, python.cluster or (1, 1, 1)) == (c.shared, c.cluster)
        assert _numbers(plan, i, python.args) == _numbers(plan, i, c.arguments)
    assert [bool(early) for early in api.early.values()] == [any(s.early for s in started)]


def test_calls_and_errors_of_the_driver(exported: Exported) -> None:
    script = Path(c_host_calls.__file__)
    library = exported.folder / "lib" / "libnet.so"
    call = [sys.executable, str(script), str(exported.scratch / "libcuda.so.1"), str(library)]
    done = subprocess.run(call, capture_output=True, text=True, env=exported.env)
    assert done.returncode == 0, done.stderr


def test_generated_text_can_be_read(exported: Exported) -> None:
    own = [exported.folder / "include" / "net.h", *(exported.folder / "src").glob("*.[ch]")]
    long = [line for path in own for line in path.read_text().splitlines() if len(line) > 140]
    assert len(own) > 10
    assert long == []
    for command in c_libraries.warnings_of(exported.folder, find_compiler()):
        subprocess.run(command, check=True)


CUDA_HEADERS = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"


@pytest.mark.skipif(not (CUDA_HEADERS / "cuda.h").exists(), reason="there is no cuda.h")
def test_structures_and_numbers_are_those_of_the_header() -> None:
    texts = str(resources.files("tactix_ship.c_library.texts"))
    own = ["-Wall", "-Wextra", "-fsyntax-only", f"-I{CUDA_HEADERS}", f"-I{texts}"]
    layout = str(Path(__file__).parent / "driver_layout.c")
    subprocess.run([*find_compiler(), *own, layout], check=True)


# -- what cannot be exported ---------------------------------------------------------------------


def _refused(plan: Plan, folder: Path) -> str:
    with pytest.raises(PlanCompatibilityError) as e:
        export(plan, folder, "net")
    assert not (folder / "src").exists()
    return str(e.value)


def _with(plan: Plan, **fields: Any) -> Plan:
    """The plan with another artifact in its second step."""
    first, second = plan.steps
    other: Step[Plan] = replace(second, artifact=replace(second.artifact, **fields))
    return replace(plan, steps=(first, other))


def test_steps_that_are_no_cubins_are_refused(exported: Exported, tmp_path: Path) -> None:
    plan = exported.plan
    cases = {
        "tactix.cuda.host@1": ("numpy runs them on the host: 'reducesum'", "--no-fallback"),
        "tactix.cuda.cublaslt@1": ("cublaslt@1 runs them: 'reducesum'", "--version-compatible"),
        "acme.jit@1": ("the launcher acme.jit@1 runs them: 'reducesum'", "--version-compatible"),
    }
    for launcher, (reason, cure) in cases.items():
        text = _refused(_with(plan, launcher=launcher), tmp_path)
        assert reason in text
        assert cure in text
    assert "they have no machine code: 'reducesum'" in _refused(_with(plan, code=None), tmp_path)
    text = _refused(_with(plan, requires=("rocm_7",)), tmp_path)
    assert "they need rocm_7 of a device" in text
    elsewhere = replace(plan, device={**plan.device, "kind": "npu"})
    assert "it is for the device 'npu'" in _refused(elsewhere, tmp_path)


@pytest.mark.parametrize(
    ("features", "wanted", "told"),
    [
        (("cubin_80",), Capabilities(80, 89), "8.0 to 8.9"),
        (("cubin_90a",), Capabilities(90, 90), "9.0"),
        (("sm_80",), Capabilities(80, ANY_CAPABILITY), "8.0 and later"),
        (("cubin_86", "sm_80"), Capabilities(86, 89), "8.6 to 8.9"),
        (("cubin_120",), Capabilities(120, 129), "12.0 to 12.9"),
    ],
)
def test_devices_that_take_the_code(
    features: tuple[str, ...], wanted: Capabilities, told: str
) -> None:
    found = capabilities(features)
    assert found == wanted
    assert str(found) == told
