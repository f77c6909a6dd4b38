"""Convolutions and attention by cuDNN on the GPU, within the reference's budget; plans made here
and in processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import asked
import gpu_cases
import pytest
import simt
from library_cases import attentions, convolutions, tokens

from tactix.base.errors import TactixError
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix.select.bench import Expected
from tactix_cuda.device import CudaDevice
from tactix_cudnn import compiler
from tactix_cudnn.attention_tactic import CudnnAttentionTactic
from tactix_cudnn.compiler import CudnnCompiler
from tactix_cudnn.convolution_tactic import CudnnConvolutionTactic
from tactix_cudnn.plan import FAILED

pytestmark = pytest.mark.gpu


Made = tuple[simt.Case, Variant, KernelArtifact]


def plans(device: CudaDevice, cases: Sequence[simt.Case], most: int) -> list[Made]:
    """The first plans of each case that the library has an engine for."""
    properties, made = device.properties(), []
    for case in cases:
        offered = asked.variants(case.tactic, case.node, properties)
        if isinstance(offered, Reject):
            assert "no engine" in offered.reason, offered.reason
            continue
        made += [
            (case, v, asked.artifact(case.tactic, case.node, v, CompileContext(properties)))
            for v in offered[:most]
        ]
    binaries = gpu_cases.Toolchain([CudnnCompiler()]).compile([a for *_, a in made], properties)
    return [(case, v, gpu_cases.with_binary(a, binaries)) for case, v, a in made]


def check_all(device: CudaDevice, made: Sequence[Made]) -> list[str]:
    """Run all twice, assert that results are right; why there are plans that cannot be made."""
    bench, without = gpu_cases.bench(device), []
    for case, variant, artifact in made:
        arrays = list(case.arrays or ())
        try:
            runnable, got = bench.prepare(case.node, artifact, variant, arrays, case.env)
        except TactixError as e:
            without.append(str(e))
            continue
        want = Expected(case.node, arrays, case.env)
        for _ in range(2):
            runnable()
            far = bench.check(case.node, variant, got, want)
            assert far <= 1, f"{case.node.name} [{variant}]: {far} times the budget"
    return without


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_convolutions_are_those_of_the_reference(device: CudaDevice, dtype: str) -> None:
    made = plans(device, convolutions(dtype, CudnnConvolutionTactic()), 3)
    assert len(made) > 12
    without = check_all(device, made)
    assert len(without) < len(made) / 2, without


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_attention_is_that_of_the_reference(device: CudaDevice, dtype: str) -> None:
    cases = attentions(dtype, CudnnAttentionTactic())
    made = plans(device, cases, 4)
    assert len({id(case) for case, *_ in made}) == len(cases)
    assert check_all(device, made) == []


SIZES = [
    (1, 128, 12, 64),
    (3, 197, 12, 64),
    (128, 64, 12, 64),
    (128, 128, 12, 64),
    (3, 197, 8, 128),
    (1, 64, 12, 128),
]


@pytest.mark.parametrize(("batch", "s", "heads", "dim"), SIZES)
def test_heads_of_a_packed_product(
    device: CudaDevice, batch: int, s: int, heads: int, dim: int
) -> None:
    made = plans(device, [tokens("f16", CudnnAttentionTactic(), batch, s, heads, dim)], 4)
    assert made
    assert check_all(device, made) == []


def test_processes_make_plans_as_this_one_does(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    properties, tactic, sources = device.properties(), CudnnConvolutionTactic(), []
    for case in convolutions("f16", tactic)[:2]:
        (first, *_) = asked.variants(tactic, case.node, properties)  # type: ignore[misc]
        code = asked.artifact(tactic, case.node, first, CompileContext(properties)).code
        assert isinstance(code, Source)
        sources.append(
            Source(code.language, code.text.replace('"compiles": false', '"compiles": true'))
        )
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "a"))
    here = CudnnCompiler().compile(sources, properties)
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "b"))
    monkeypatch.setattr(compiler, "EACH", 1)
    there = CudnnCompiler().compile(sources, properties)
    for a, b in zip(here, there, strict=True):
        assert not a.blob.startswith(FAILED.encode())
        assert len(a.blob) > 500
        assert abs(len(a.blob) - len(b.blob)) < 0.1 * len(a.blob)
