"""NVRTC: cubins for several architectures, their names, the cache, and what errors say. No GPU is
needed.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from cuda_steps import ADD, SCALE

from tactix.base.errors import BuildCancelled, CompilerError, InvalidArgument
from tactix.contracts.artifact import Source
from tactix.contracts.device import DeviceProperties
from tactix_codegen.compiling import symbol
from tactix_codegen.cuda.target import target
from tactix_cuda import nvrtc

pytestmark = pytest.mark.skipif(bool(nvrtc.why_missing()), reason=nvrtc.why_missing())

CUDA_ELF = 190
"""EM_CUDA: the ELF machine number of cubins."""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nvrtc.NvrtcCompiler:
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path))
    return nvrtc.NvrtcCompiler()


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "sm_90a"])
def test_a_cubin_for_each_source(compiler: nvrtc.NvrtcCompiler, name: str) -> None:
    made = compiler.compile([ADD, SCALE, ADD], target(name))
    assert made[0] == made[2]
    assert [b.source for b in made] == [ADD.text, SCALE.text, ADD.text]
    for source, binary in zip((ADD, SCALE), made):
        assert binary.symbol == symbol(source)
        assert binary.blob[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", binary.blob, 18)[0] == CUDA_ELF
        assert binary.symbol.encode() + b"\0" in binary.blob
    assert made[1].symbol.encode() + b"_shift\0" in made[1].blob


def test_a_family_of_devices_gets_ptx(compiler: nvrtc.NvrtcCompiler) -> None:
    (made,) = compiler.compile([SCALE], target("AMPERE_PLUS"))
    text = made.blob.decode()
    assert ".target sm_80" in text
    assert f".entry {made.symbol}(" in text
    assert text.endswith("\0"), "the driver looks for the end"


def test_architectures_give_different_code(compiler: nvrtc.NvrtcCompiler) -> None:
    made = {
        name: compiler.compile([ADD], target(name))[0].blob for name in ("sm_80", "sm_90", "sm_90a")
    }
    assert len(set(made.values())) == 3


def test_only_what_the_architecture_has(compiler: nvrtc.NvrtcCompiler) -> None:
    text = 'extern "C" __global__ void TX_ENTRY() { asm volatile("wgmma.fence.sync.aligned;"); }'
    assert compiler.compile([Source("cuda_c", text)], target("sm_90a"))
    with pytest.raises(CompilerError, match="wgmma"):
        compiler.compile([Source("cuda_c", text)], target("sm_90"))


def test_flags_of_a_source(compiler: nvrtc.NvrtcCompiler) -> None:
    text = 'extern "C" __global__ void TX_ENTRY(float* x) { x[0] = VALUE; }'
    ones, twos = (
        compiler.compile([Source("cuda_c", text, (), (f"-DVALUE={v}",))], target("sm_80"))
        for v in (1, 2)
    )
    assert ones[0].blob != twos[0].blob


def test_the_cache_is_used_and_equal_sources_give_equal_bytes(
    compiler: nvrtc.NvrtcCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiler.compile([SCALE], target("sm_80"))
    assert len(list(tmp_path.glob("objects/*/*.cubin"))) == 1
    with monkeypatch.context() as m:
        m.setattr(nvrtc, "compile_text", lambda *_: pytest.fail("it was compiled again"))
        assert nvrtc.NvrtcCompiler().compile([SCALE], target("sm_80")) == first
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "another"))
    assert compiler.compile([SCALE], target("sm_80")) == first


def test_errors_name_kernel_and_line(compiler: nvrtc.NvrtcCompiler, tmp_path: Path) -> None:
    text = (
        'extern "C" __global__ void TX_ENTRY(float* x) {\n    x[0] = 1;\n    x[1] = nonsense;\n}\n'
    )
    source = Source("cuda_c", text, ("static __device__ int helper() { return 1; }",))
    with pytest.raises(CompilerError) as e:
        compiler.compile([ADD, source], target("sm_80"))
    assert e.value.who == symbol(source)
    assert f"{symbol(source)}.cu(3): error: identifier" in e.value.why
    assert "nonsense" in e.value.why
    (kept,) = (tmp_path / "failed").glob("*.cu")
    assert str(kept) in e.value.do
    assert "nonsense" in kept.read_text()


def test_errors_in_a_prelude_are_counted_there(compiler: nvrtc.NvrtcCompiler) -> None:
    with pytest.raises(CompilerError, match=r"prelude1\.cuh\(2\): error"):
        compiler.compile([Source("cuda_c", ADD.text, ("// first", "//\nbroken"))], target("sm_80"))


def test_what_it_does_not_take(compiler: nvrtc.NvrtcCompiler) -> None:
    with pytest.raises(CompilerError, match="it takes cuda_c, not c"):
        compiler.compile([Source("c", "")], target("sm_80"))
    with pytest.raises(InvalidArgument, match="names no architecture"):
        compiler.compile([ADD], DeviceProperties("cpu", "a processor", frozenset({"avx2"})))
    with pytest.raises(CompilerError, match="compute_10"):
        compiler.compile([ADD], DeviceProperties("cuda", "very old", frozenset({"sm_10"})))


def test_it_can_be_cancelled(compiler: nvrtc.NvrtcCompiler) -> None:
    compiler.cancel()
    with pytest.raises(BuildCancelled):
        compiler.compile([ADD], target("sm_80"))
    compiler.resume()
    assert compiler.compile([ADD], target("sm_80"))


def test_identity_tells_version_and_flags(compiler: nvrtc.NvrtcCompiler) -> None:
    assert compiler.identity().split()[0] == "nvrtc"
    assert all(f in compiler.identity() for f in nvrtc.FLAGS)
