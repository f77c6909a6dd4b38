"""Convolutions by cuDNN on the GPU, within the budget of the reference; plans made here and in other processes."""

from __future__ import annotations

from pathlib import Path

import gpu_cases
import pytest
from library_cases import convolutions

from tactix.contracts.artifact import Source
from tactix.contracts.tactic import CompileContext, Reject
from tactix.select.bench import reference
from tactix.words.errors import TactixError
from tactix_builtin.cuda.cudnn import compiler
from tactix_builtin.cuda.cudnn.compiler import FAILED, CudnnCompiler
from tactix_builtin.cuda.cudnn.tactic import CudnnTactic
from tactix_builtin.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(device: CudaDevice, dtype: str) -> None:
    properties, made = device.properties(), []
    for case in convolutions(dtype, CudnnTactic()):
        offered = case.tactic.variants(case.node, properties)
        if isinstance(offered, Reject):
            assert "no engine" in offered.reason, offered.reason
            continue
        made += [(case, v, case.tactic.compile(case.node, v, CompileContext(properties))) for v in offered[:3]]
    assert len(made) > 12
    plans = gpu_cases.Toolchain([CudnnCompiler()]).compile([a for *_, a in made], properties)
    bench, ran, without = gpu_cases.bench(device), 0, []
    for case, variant, artifact in made:
        arrays, planned = list(case.arrays or ()), gpu_cases.with_binary(artifact, plans)
        try:
            runnable, got = bench.prepare(case.node, planned, variant, arrays, case.env)
        except TactixError as e:
            without.append(str(e))
            continue
        for _ in range(2):
            runnable()
            far = bench.check(case.node, variant, got, reference(case.node, arrays, case.env))
            assert far <= 1, f"{case.node.name} [{variant}]: {far} times the budget"
        ran += 1
    assert ran > len(made) / 2, without


def test_processes_make_plans_as_this_one_does(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    properties, tactic, sources = device.properties(), CudnnTactic(), []
    for case in convolutions("f16", tactic)[:2]:
        (first, *_) = tactic.variants(case.node, properties)  # type: ignore[misc]
        code = tactic.compile(case.node, first, CompileContext(properties)).code
        assert isinstance(code, Source)
        sources.append(Source(code.language, code.text.replace('"compiles": false', '"compiles": true')))
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "a"))
    here = CudnnCompiler().compile(sources, properties)
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "b"))
    monkeypatch.setattr(compiler, "EACH", 1)
    there = CudnnCompiler().compile(sources, properties)
    for a, b in zip(here, there, strict=True):
        assert not a.blob.startswith(FAILED.encode())
        assert len(a.blob) > 500
        assert abs(len(a.blob) - len(b.blob)) < 0.1 * len(a.blob)
