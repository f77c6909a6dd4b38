"""Steps that run on the host beside a GPU: what is copied, data-dependent shapes, loops, and what a
plan tells of it.

The driver stands for CUDA's; sums run on the device, everything else on the host.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda_engine as e
import numpy as np
import pytest
from fake_driver import FakeApi, fake_device
from test_arrays import Shared
from test_engine import combine

import tactix
from tactix.base.dtypes import DType
from tactix.base.errors import DTypeError, NoTacticError
from tactix.base.tensor import LINEAR, TensorSpec
from tactix.config import BuilderFlag
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Operand, Step
from tactix.plan import container
from tactix.plan.schema import Plan
from tactix.run.runtime import Runtime
from tactix_codegen.compiling import symbol
from tactix_cpu.device import CpuDevice
from tactix_cuda import device as real
from tactix_cuda.device import CudaDevice
from tactix_cuda.host_launcher import HostLauncher
from tactix_cuda.memory import RecyclingAllocator
from tactix_cuda.nvrtc import why_missing
from tactix_tools import plan_report
from tactix_tools.inspect import print_plan
from tactix_tools.show import console

sys.path.insert(0, str(Path(__file__).parents[2] / "onnx_suite"))

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
N = 301
ON_HOST = {"test", "cuda_host", "view"}
CASES = ("loop11", "loop13_seq", "scan9_sum", "if", "if_seq", "if_opt", "nonzero_example", "unique_sorted_without_axis",
         "sequence_insert_at_back", "sequence_map_add_1_sequence_1_tensor", "identity_sequence", "compress_0",
         "optional_get_element_sequence", "range_int32_type_negative_delta", "string_concat", "add")  # fmt: skip


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> tuple[CudaDevice, FakeApi]:
    made = fake_device({symbol(e.RIGHT.code): combine(1), symbol(e.WRONG.code): combine(-1)})
    monkeypatch.setattr(real, "the_device", lambda: made[0])
    return made


CLASHING = {BuilderFlag.EXACT_NUMERICS, BuilderFlag.BF16, BuilderFlag.RESERVE_STATES}
"""Flags that others, or a GPU, refuse."""
CALIBRATED = {BuilderFlag.INT8, BuilderFlag.FP8}
"""Flags that ask for a calibration."""


def config(**fields: Any) -> tactix.BuilderConfig:
    return e.config(tactic_sources=ON_HOST, **fields)


def between(built: tactix.Builder) -> Any:
    """y = |floor(x + x)| + x: two steps on the host between sums on the device."""
    net = built.create_network("between")
    x = net.add_input("x", "f32", (N,))
    (a,) = net.add_layer("tactix.Add", [x, x], name="first")
    (b,) = net.add_layer("tactix.Floor", [a], name="floor")
    (c,) = net.add_layer("tactix.Abs", [b], name="abs")
    (d,) = net.add_layer("tactix.Add", [c, x], name="last")
    net.mark_output(d, "y")
    return net


def chosen(built: tactix.Builder) -> Any:
    """The elements of x + x that m chooses, added to themselves."""
    net = built.create_network("chosen")
    x, m = net.add_input("x", "f32", ("n",)), net.add_input("m", "bool", ("n",))
    (a,) = net.add_layer("tactix.Add", [x, x], name="first")
    (b,) = net.add_layer("tactix.Compress", [a, m], name="choose", axis=0)
    (c,) = net.add_layer("tactix.Add", [b, b], name="last")
    net.mark_output(c, "y")
    net.mark_output(b, "b")
    return net


def numbers(n: int = N, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(n, dtype=np.float32) * 3


def copied(api: FakeApi, way: str) -> int:
    return api.log.count(f"cuMemcpy{way}Async")


def test_steps_on_the_host_share_their_copies(here: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    engine = built.build(between(built), config())
    x = numbers()
    for _ in range(2):
        here[1].log.clear()
        np.testing.assert_array_equal(engine(x), np.abs(np.floor(x + x)) + x)
    # to the host: what floor reads, and the result; to the device: the input, and what both steps
    # made
    assert (copied(here[1], "DtoH"), copied(here[1], "HtoD")) == (2, 3)
    assert here[1].log.count("cuGraphLaunch") == 2


def test_addresses_may_change(here: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    context = built.build(between(built), config()).create_execution_context()
    memory = RecyclingAllocator(here[0])
    for seed in range(3):
        x, y = numbers(seed=seed), np.zeros(N, np.float32)
        places = [memory.allocate(4 * N) for _ in range(2)]
        here[0].copy_in(places[0], x)
        context.execute_v2(places)
        here[0].copy_out(y, places[1])
        np.testing.assert_array_equal(y, np.abs(np.floor(x + x)) + x)


def test_without_its_source_it_is_an_error(here: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    with pytest.raises(
        NoTacticError, match=r"floor .*test\.right@1: only a bare Add.*Allow more tactic sources"
    ):
        built.build_plan(between(built), e.config(tactic_sources={"test", "view"}))


def test_what_has_a_kernel_stays_on_the_device(here: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    plan = built.build_plan(between(built), config())
    assert [s.artifact.launcher for s in plan.steps] == [
        e.LAUNCHER,
        *["tactix.cuda.host@1"] * 2,
        e.LAUNCHER,
    ]
    with pytest.raises(NoTacticError, match="only the reference could run it"):
        e.builder().build_plan(
            between(built),
            e.config(
                tactic_sources=ON_HOST,
                flags=set(BuilderFlag) - CLASHING - CALIBRATED,
            ),
        )


@pytest.mark.parametrize("n", [1, 40, 301])
def test_shapes_that_follow_from_data(here: tuple[CudaDevice, FakeApi], n: int) -> None:
    built = e.builder()
    engine = built.build(chosen(built), config())
    for seed in range(3):
        x, m = numbers(n, seed), np.arange(n) % 3 != seed
        found = engine(x=x, m=m)
        np.testing.assert_array_equal(found["b"], (x + x)[m])
        np.testing.assert_array_equal(found["y"], 2 * (x + x)[m])
    del engine


def test_arrays_of_the_device_in_a_run_in_phases(here: tuple[CudaDevice, FakeApi]) -> None:
    """They are copied to the host, where the results are."""
    built = e.builder()
    engine = Runtime(session=built.session).load(built.build_plan(chosen(built), config()))
    x, m = numbers(9), np.arange(9) > 4
    got = engine(x=Shared(x), m=m)
    assert isinstance(got["b"], np.ndarray)
    np.testing.assert_array_equal(got["b"], (x + x)[m])
    with pytest.raises(DTypeError, match="'x' is f32, got i32"):
        engine(x=Shared(x.astype(np.int32)), m=m)


def test_addresses_of_a_run_in_phases(here: tuple[CudaDevice, FakeApi]) -> None:
    built = e.builder()
    context = built.build(chosen(built), config()).create_execution_context()
    memory, x, m = RecyclingAllocator(here[0]), numbers(40), np.arange(40) % 2 == 0
    places = [memory.allocate(160) for _ in range(4)]
    for place, array in zip(places, (x, m)):
        here[0].copy_in(place, array)
    for name in ("x", "m"):
        context.set_input_shape(name, (40,))
    context.execute_v2(places)
    assert context.get_tensor_shape("y") == (20,)
    y = np.zeros(20, np.float32)
    here[0].copy_out(y, places[2])
    np.testing.assert_array_equal(y, 2 * (x + x)[m])


@pytest.mark.parametrize("name", CASES)
def test_conformance_cases(
    here: tuple[CudaDevice, FakeApi], name: str, cases: dict[str, Any]
) -> None:
    from suite import run_case

    built = tactix.Builder(tactix.Logger(tactix.Severity.INTERNAL_ERROR))
    assert run_case(cases[f"test_{name}"], built, ["cuda_host", "view"], "tactix.cuda@1")


@pytest.fixture(scope="module")
def cases() -> dict[str, Any]:
    from cases import collect

    return {c.name: c for c in collect(["node"])}


def report(plan: Plan, path: Path) -> dict[str, Any]:
    container.save(plan, path)
    return plan_report.report(str(path), {})


def test_copies_are_shown(
    here: tuple[CudaDevice, FakeApi],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    built = e.builder()
    facts = report(built.build_plan(between(built), config()), tmp_path / "plan")
    floor, absolute = (s["copies"] for s in facts["steps"][1:3])
    assert floor == {
        "to_host": {
            "names": ["first"],
            "bytes": 4 * N,
            "seconds": pytest.approx(1e-5 + 4 * N / 1e10),
        }
    }
    assert absolute["to_device"]["names"] == ["floor", "abs"]
    assert absolute["to_device"]["bytes"] == 8 * N
    assert all("copies" not in s for s in (facts["steps"][0], facts["steps"][3]))
    print_plan(console(), facts)
    shown = capsys.readouterr().out
    assert shown.index("copy to the host: first") < shown.index("tactix.cuda_host@1")
    assert "copy to the device: floor, abs" in shown


def test_copies_that_depend_on_data(here: tuple[CudaDevice, FakeApi], tmp_path: Path) -> None:
    built = e.builder()
    facts = report(built.build_plan(chosen(built), config()), tmp_path / "plan")
    copies = facts["steps"][1]["copies"]
    assert copies["to_host"]["names"] == ["first"]
    assert copies["to_device"] == {"names": ["b"], "bytes": None, "seconds": None}


def test_a_plan_is_kept_and_loaded(here: tuple[CudaDevice, FakeApi], tmp_path: Path) -> None:
    built = e.builder()
    plan = built.build_plan(chosen(built), config())
    container.save(plan, tmp_path / "plan")
    engine = Runtime(session=built.session, on_untrusted="allow").deserialize(tmp_path / "plan")
    x, m = numbers(9), np.arange(9) > 4
    np.testing.assert_array_equal(engine(x=x, m=m)["b"], (x + x)[m])


def test_each_host_step_finds_as_much_of_a_buffer_as_it_reads() -> None:
    """The first of two readers sees a part of it; what stands for it on the host is as large as the
    other needs.
    """
    small, large = (TensorSpec(DType.FP32, shape) for shape in ((2,), (4000,)))
    params = {"layer": "tactix.Relu@1", "attrs": {}}
    steps = [
        Step(
            str(k),
            KernelArtifact(HostLauncher.key, params=params),
            (Operand(0, spec, LINEAR),),
            (Operand(1 + k, spec, LINEAR),),
        )
        for k, spec in enumerate((small, large))
    ]
    memory = [
        np.arange(4000, dtype=np.float32),
        np.zeros(2, np.float32),
        np.zeros(4000, np.float32),
    ]
    context: Any = SimpleNamespace(
        device=CpuDevice(), layer=tactix.Session(group="runtime").layers.__getitem__
    )
    run = HostLauncher().link(steps, context)
    run.bind({}, [m.ctypes.data for m in memory])
    run()
    np.testing.assert_array_equal(memory[2], memory[0])
