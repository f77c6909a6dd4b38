"""The C compiler plugin: finding, options, units, caching, errors, cancelling; and the harness
itself.
"""

from __future__ import annotations

import ctypes
import errno
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import asked
import numpy as np
import pytest
from harness import NATIVE, V3, V4, Case, Run, check, check_all, devices, needs, node

import tactix
from tactix.base.errors import BuildCancelled, CompilerError, ConfigError, ToolchainError
from tactix.contracts.artifact import Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import CompileContext, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.target import required_features, target_flags
from tactix_codegen.compiler_process import run_all
from tactix_cpu import compiler as cc
from tactix_cpu import intrinsics
from tactix_cpu.compiler import CCompiler, find_compiler, translation_units
from tactix_cpu.tactics.pointwise.tactic import CpuPointwiseTactic

HEAD = "void TX_ENTRY(const int64_t* a, int tid, int nt)"


KERNEL = f"""{HEAD} {{
    float* x = (float*)a[0];
    tx_store_n_f32(x, tx_max(tx_load_f32(x), tx_zero()), 3);
}}
"""


def _write(value: str, helper: str = "", **more) -> Source:
    """A kernel that writes a number to where its first argument points."""
    return Source("c", f"{helper}\n{HEAD} {{ *(int64_t*)a[0] = {value}; }}\n", **more)


def _run(binary, library) -> int:
    out = ctypes.c_int64(-1)
    args = (ctypes.c_int64 * 1)(ctypes.addressof(out))
    getattr(library, binary.symbol)(args, 0, 1)
    return out.value


def _load(blob: bytes, folder):
    path = folder / f"{len(list(folder.iterdir()))}.so"
    path.write_bytes(blob)
    return ctypes.CDLL(str(path))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def slow(tmp_path):
    """A compiler that never ends."""
    script = tmp_path / "slow.py"
    text = f"time.sleep(60); open({str(tmp_path / 'ended')!r}, 'w')"
    script.write_text(
        f"import sys, time\nprint('slow 1.0')\nif '--version' not in sys.argv: {text}\n"
    )
    return [sys.executable, str(script)]


def test_the_compiler_named_by_the_environment_comes_first(monkeypatch):
    monkeypatch.setenv("CC", "somecc -m64")
    assert find_compiler() == ("somecc", "-m64")


def test_zig_comes_last_and_no_compiler_is_told_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cc, "_has_zig", lambda: True)
    assert find_compiler() == (sys.executable, "-m", "ziglang", "cc")
    monkeypatch.setattr(cc, "_has_zig", lambda: False)
    assert "pip install tactix[compiler]" in CCompiler().available()
    with pytest.raises(CompilerError, match="no C compiler was found"):
        CCompiler().compile([_write("1")], NATIVE)


def test_a_compiler_that_cannot_be_run_is_an_error():
    with pytest.raises(CompilerError, match="cannot be run"):
        CCompiler(["/nonexistent/cc"]).compile([_write("1")], NATIVE)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 1", "cannot be run: .*exit status 1"),
        ("exit 0", "compiles nothing: it said nothing"),
        (
            'case "$*" in *--version) echo broken 1.0; exit 0;; esac; echo error: no cc1 >&2; exit 1',
            "compiles nothing: error: no cc1",
        ),
    ],
)
def test_a_compiler_that_compiles_nothing_is_left_out(cache, tmp_path, monkeypatch, script, why):
    broken = tmp_path / "broken-cc"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o700)
    monkeypatch.setenv("CC", str(broken))
    assert re.search(f"the compiler {broken} {why}", CCompiler().available())
    heard = []

    class Told(tactix.Logger):
        def log(self, severity, message):
            heard.append(message)

    builder = tactix.Builder(Told())
    net = builder.create_network()
    net.mark_output(*net.add_layer("tactix.Exp", [net.add_input("x", "f32", ("n", 3))]))
    engine = builder.build(net, tactix.BuilderConfig(timing_cache=False))
    assert engine(np.zeros((2, 3), np.float32)).tolist() == [[1.0] * 3] * 2
    assert re.search(f"no compiler for c: the compiler {broken} {why}", "\n".join(heard))


def test_a_compiler_that_works_is_tried_once(cache, monkeypatch):
    cc.why_useless.cache_clear()
    assert CCompiler().available() == ""
    cc.why_useless.cache_clear()
    monkeypatch.setattr(cc, "run_all", None)
    assert CCompiler().available() == ""


def test_without_a_thread_to_start_compilers_it_does_so_itself(cache, monkeypatch):
    def refuse(*given):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    CCompiler().begin(NATIVE)
    assert len(CCompiler().compile([_write("1")], NATIVE)) == 1


def test_files_that_cannot_be_written_are_told_with_their_folder(cache, tmp_path, monkeypatch):
    def full(*given, **more):
        raise OSError(errno.EFBIG, "File too large")  # as Python tells of it: without a name

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = rf"the compiler's files in {tmp_path} cannot be .*: .*File too large.*ulimit -f"
    with pytest.raises(ToolchainError, match=told):
        CCompiler().compile([_write("1")], NATIVE)


def test_identity_names_version_and_options():
    said = CCompiler().identity()
    assert cc.version(CCompiler().command) in said
    assert "-O3" in said
    assert "-ffast-math" not in said


def test_the_quick_compiler_makes_few_units_and_other_code(cache):
    sources = [_write(str(i)) for i in range(9)]
    quick = CCompiler().quick()
    blob = quick.compile(sources, NATIVE)[0].blob
    assert len(list((cache / "objects").glob("*/*.o"))) == 2 + 1  # and the executor
    assert quick.identity() != CCompiler().identity()
    assert "-O3" not in quick.identity()
    assert blob != CCompiler().compile(sources, NATIVE)[0].blob


def test_many_straight_kernels_are_units_of_their_own_in_a_hurry(cache, tmp_path):
    quick, gcc = CCompiler().quick(), "Free Software Foundation" in cc.told(find_compiler())
    sources = [_write(str(i), straight=True) for i in range(8)] + [_write("20")]
    binaries = quick.compile(sources, NATIVE)
    assert [_run(b, _load(binaries[0].blob, tmp_path)) for b in binaries] == [*range(8), 20]
    plain = [u for u in quick.units(sources) if "-Og" not in u.flags]
    assert sum(len(u.sources) for u in plain) == (1 if gcc else 9)
    assert not any("-Og" in u.flags for u in quick.units(sources[1:]))  # a few join the others
    assert not any("-Og" in u.flags for u in CCompiler().units(sources))


@needs("fma")
@pytest.mark.parametrize("quick", [False, True])
def test_a_product_and_a_sum_are_rounded_once(cache, tmp_path, quick):
    compiler = CCompiler().quick() if quick else CCompiler()
    text = f"{HEAD} {{ float* x = (float*)a[0]; x[3] = x[0] * x[1] + x[2]; }}"
    (made,) = compiler.compile([Source("c", text)], NATIVE)
    x = np.array([1 + 2**-12, 1 + 2**-12, -1 - 2**-11, 0], np.float32)
    arguments = (ctypes.c_int64 * 1)(x.ctypes.data)
    getattr(_load(made.blob, tmp_path), made.symbol)(arguments, 0, 1)
    assert x[3] == 2**-24


@pytest.mark.parametrize("quick", [False, True])
def test_it_tells_how_many_are_compiled_on_the_thread_that_asked(cache, quick):
    compiler = CCompiler().quick() if quick else CCompiler()
    told: list[tuple[int, int]] = []
    compiler.told = lambda done: told.append((done, threading.get_ident()))
    compiler.compile([_write(str(i)) for i in range(9)], NATIVE)
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] == 9
    assert {thread for _, thread in told} == {threading.get_ident()}


def test_cancelling_stops_the_quick_compiler_too(slow):
    both = CCompiler(slow)
    both.cancel()
    with pytest.raises(BuildCancelled):
        both.quick().compile([_write("1")], NATIVE)


def test_target_flags_follow_from_the_device_alone():
    v4 = DeviceProperties("cpu", "a", frozenset({*V4, *V3, "avx512_vnni", "avx512_bf16"}), 512)
    assert target_flags(v4)[:3] == ("-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16")
    assert "-DTX_LANES=16" in target_flags(v4)
    assert target_flags(DeviceProperties("cpu", "b", frozenset(V3), 256)) == (
        "-march=x86-64-v3",
        "-DTX_LANES=8",
    )
    assert (
        target_flags(DeviceProperties("cpu", "c", frozenset({"neon"}), 128))[0] == "-march=armv8-a"
    )
    assert required_features(v4) == tuple(sorted(v4.features))
    assert required_features(
        DeviceProperties("cpu", "d", frozenset({"avx2", "fma", "erms"}), 256)
    ) == ("avx2", "fma")


def test_many_kernels_in_one_object(cache, tmp_path):
    helper = "static int64_t TX_NAME(f)(void) { return %d; }"
    sources = [_write("TX_NAME(f)()", helper % i) for i in range(9)]
    binaries = CCompiler().compile([*sources, sources[3]], NATIVE)
    assert len({b.digest for b in binaries}) == 1
    assert binaries[9].symbol == binaries[3].symbol == f"k_{sources[3].digest[:16]}"
    library = _load(binaries[0].blob, tmp_path)
    assert [_run(b, library) for b in binaries] == [*range(9), 3]
    assert not hasattr(library, binaries[0].symbol + "_f")


def test_preludes_stand_once_in_a_unit(cache, tmp_path):
    shared = "#include <stdint.h>\nstatic int64_t seven(void) { return 7; }\n"
    sources = [_write(f"seven() + {i}", preludes=(shared,)) for i in range(4)]
    (unit,) = translation_units(sources, 1)
    assert unit.text.count("seven(void)") == 1
    binaries = CCompiler().compile(sources, NATIVE)
    library = _load(binaries[0].blob, tmp_path)
    assert [_run(b, library) for b in binaries] == [7, 8, 9, 10]


def test_options_of_a_source_reach_its_unit_alone(cache, tmp_path):
    sources = [_write("NUMBER", flags=("-DNUMBER=5",)), _write("NUMBER", flags=("-DNUMBER=6",))]
    assert len(translation_units(sources, 4)) == 2
    binaries = CCompiler().compile(sources, NATIVE)
    library = _load(binaries[0].blob, tmp_path)
    assert [_run(b, library) for b in binaries] == [5, 6]


def test_the_same_sources_give_the_same_bytes(tmp_path, monkeypatch):
    sources = [_write(str(i)) for i in range(5)]
    blobs = []
    for k in range(2):
        monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / str(k)))
        blobs.append(CCompiler().compile(sources[:: -1 if k else 1], NATIVE)[0].blob)
    assert blobs[0] == blobs[1]
    assert str(tmp_path).encode() not in blobs[0]


def test_objects_come_from_the_cache(cache, monkeypatch):
    binaries = CCompiler().compile([_write("11")], NATIVE)
    assert list((cache / "objects").glob("*/*.so"))
    monkeypatch.setattr(subprocess, "Popen", None)
    assert CCompiler().compile([_write("11")], NATIVE)[0].blob == binaries[0].blob


@pytest.fixture
def begun(monkeypatch):
    """What was begun in a test."""
    made = cc.Begun()
    monkeypatch.setattr(cc, "_BEGUN", made)
    return made


@pytest.mark.parametrize("quick", [False, True])
def test_what_every_build_takes_is_begun_before_there_are_kernels(cache, begun, monkeypatch, quick):
    compiler = CCompiler().quick() if quick else CCompiler()
    compiler.begin(NATIVE)
    begun.wait(compiler._made_by(NATIVE), lambda: False)
    (executor,) = (cache / "objects").glob("*/*.o")
    calls = []

    def run(commands, *args, **more):
        calls.extend(commands)
        return run_all(commands, *args, **more)

    monkeypatch.setattr(cc, "run_all", run)
    source = Source("c", KERNEL, preludes=c_text.vector_preludes())
    binary = compiler.compile([source], NATIVE)[0]
    assert sum("-c" in c for c in calls) == 1
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(cache.parent / "other"))
    assert compiler.compile([source], NATIVE)[0].blob == binary.blob
    assert executor.exists()


def test_nothing_is_begun_twice_nor_with_a_cache_that_was_built_with(cache, begun, monkeypatch):
    CCompiler().compile([_write("3")], NATIVE)
    monkeypatch.setattr(subprocess, "Popen", None)
    for _ in range(2):
        CCompiler().begin(NATIVE)
    assert len(begun._threads) == 1
    begun.wait(CCompiler()._made_by(NATIVE), lambda: False)


def test_what_cannot_be_begun_is_told_by_who_needs_it(cache, begun, tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("import sys\nprint('broken 1.0')\nsys.exit('--version' not in sys.argv)\n")
    compiler = CCompiler([sys.executable, str(script)])
    compiler.begin(NATIVE)
    with pytest.raises(CompilerError):
        compiler.compile([_write("3")], NATIVE)
    CCompiler(["no-such-compiler"]).begin(NATIVE)


def test_waiting_for_what_was_begun_is_given_up(begun):
    over = threading.Event()
    begun.begin(("work",), over.wait)
    begun.wait(("work",), lambda: True)
    over.set()
    begun.wait(("work",), lambda: False)
    begun.wait(("nothing",), lambda: False)


def test_builds_share_objects_and_a_header_kernel_by_kernel(cache, tmp_path):
    prelude = "#include <stdint.h>\nstatic inline int64_t seven(void) { return 7; }\n"
    sources = [_write(f"seven() + {i}", preludes=(prelude,)) for i in range(6)]
    CCompiler().compile(sources[:5], NATIVE)
    before = {p.name for p in (cache / "objects").glob("*/*.o")}
    (binary,) = CCompiler().compile(sources[4:5], NATIVE)
    assert {p.name for p in (cache / "objects").glob("*/*.o")} == before
    assert _run(binary, _load(binary.blob, tmp_path)) == 11
    CCompiler().compile(sources, NATIVE)
    assert len({p.name for p in (cache / "objects").glob("*/*.o")} - before) == 1
    assert len(list((cache / "objects").glob("*/*.gch"))) == 1


def test_a_precompiled_header_does_not_change_the_code(cache, tmp_path, monkeypatch):
    prelude = "#include <stdint.h>\nstatic inline int64_t twice(int64_t x) { return 2 * x; }\n"
    sources = [_write(f"twice({i})", preludes=(prelude,)) for i in range(5)]
    blobs = [CCompiler().compile(sources, NATIVE)[0].blob]
    monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setattr(cc, "_SHARED_BY", 100)
    blobs.append(CCompiler().compile(sources, NATIVE)[0].blob)
    assert not list((tmp_path / "other" / "objects").glob("*/*.gch"))
    assert blobs[0] == blobs[1]


def test_the_intrinsics_that_are_used_make_the_same_code_as_all(tmp_path, monkeypatch):
    sources = [Source("c", KERNEL, preludes=c_text.vector_preludes()), _write("7")]
    blobs = []
    for i, may_be_cut in enumerate((intrinsics.may_be_cut, lambda text: False)):
        monkeypatch.setenv("TACTIX_CACHE_DIR", str(tmp_path / str(i)))
        monkeypatch.setattr(intrinsics, "may_be_cut", may_be_cut)
        blobs += [c.compile(sources, NATIVE)[0].blob for c in (CCompiler(), CCompiler().quick())]
    assert blobs[:2] == blobs[2:]


PREPROCESSED = """#define __GNUC__ 12
typedef int before;
#define _IMMINTRIN_H_INCLUDED
#pragma GCC push_options
#pragma GCC target("avx512fp16")
  extern __inline int
  __attribute__ ((__gnu_inline__))
  _mm_unused (int a)
  {
    return _mm_low (a);
  }
#pragma GCC pop_options
typedef int type;
extern __inline int __attribute__ ((__gnu_inline__))
_mm_low (int a)
{
  if (a)
  {
    return _MM_ONE;
  }
  return 0;
}
#define _MM_ONE 1
#define _MM_TWO 2
#define _mm_called(a) _mm_low (a)
"""


def test_a_header_is_cut_to_what_is_used_directly_and_through_others():
    whole = intrinsics.header(PREPROCESSED)
    assert whole
    header = intrinsics.cut(whole, ["int f(int x) { return _mm_called(x); }"])
    assert "_mm_low (int a)" in header
    assert "return 0;\n}" in header
    assert "#define _MM_ONE 1" in header
    assert "typedef int type;" in header
    assert not [w for w in ("_mm_unused", "_MM_TWO", "pragma", "before") if w in header]
    assert intrinsics.header("int x;") is None


def test_units_whose_intrinsics_cannot_be_told_read_all():
    include = intrinsics.INCLUDE
    assert intrinsics.may_be_cut(include + "x = _mm_low(x);")
    assert not intrinsics.may_be_cut("x = _mm_low(x);")
    assert not intrinsics.may_be_cut(include + "#include <emmintrin.h>\n")
    assert not intrinsics.may_be_cut(include + "#define OP(x) _mm_add_##x\n")


@pytest.mark.parametrize("quotes", ['"', "gcc '"])
def test_words_of_the_environment_that_do_not_end(monkeypatch, quotes):
    monkeypatch.setenv("CC", quotes)
    with pytest.raises(ConfigError, match=r"CC is .*No closing quotation"):
        CCompiler().compile([_write("1")], NATIVE)


def test_errors_carry_the_compilers_words_and_the_source(cache):
    with pytest.raises(CompilerError, match="undeclared_thing") as caught:
        CCompiler().compile([_write("undeclared_thing")], NATIVE)
    (kept,) = (cache / "failed").iterdir()
    assert str(kept) in str(caught.value)
    assert "undeclared_thing" in kept.read_text()
    with pytest.raises(CompilerError, match="takes C"):
        CCompiler().compile([Source("fortran", "")], NATIVE)


def test_a_compiler_that_does_not_answer_is_stopped(cache, slow, tmp_path):
    with pytest.raises(CompilerError, match="no answer within"):
        CCompiler(slow, timeout=0.3).compile([_write("1")], NATIVE)
    assert not (tmp_path / "ended").exists()


def test_compiling_can_be_cancelled(cache, slow):
    compiler = CCompiler(slow)
    timer = threading.Timer(0.3, compiler.cancel)
    timer.start()
    with pytest.raises(BuildCancelled):
        compiler.compile([_write("1")], NATIVE)
    timer.join()
    compiler.resume()
    assert not compiler._cancelled.is_set()


def test_what_was_compiled_when_it_was_cancelled_is_kept(cache, tmp_path):
    script = tmp_path / "half.py"
    script.write_text(HALF)
    compiler = CCompiler([sys.executable, str(script)])
    compiler.stopped = lambda: any(cache.rglob("*.o"))
    with pytest.raises(BuildCancelled):
        compiler.compile([_write("1"), _write("2", flags=("-DENDLESS",))], NATIVE)
    assert any(cache.rglob("*.o"))
    assert not list(cache.rglob("*.so"))


HALF = """
import sys, time
told = sys.argv[1:]
if "--version" in told:
    print("half 1.0")
elif "-DENDLESS" in told:
    time.sleep(600)
else:
    open(told[told.index("-o") + 1], "w").write("an object")
"""


@pytest.mark.skipif(not cc._has_zig(), reason="needs ziglang")
def test_zig_compiles_kernels_too(cache, tmp_path, monkeypatch):
    compiler = CCompiler([sys.executable, "-m", "ziglang", "cc"])
    x = np.linspace(-5, 5, 77, dtype=np.float32)
    n, tactic = node("Gelu", [x]), CpuPointwiseTactic()
    for device in devices():
        artifact = asked.artifact(tactic, n, Variant(), CompileContext(device))
        (binary,) = compiler.compile([artifact.code], device)
        function = getattr(_load(binary.blob, tmp_path), binary.symbol)
        (y,) = Run(n, Variant(), artifact, {})(function, [x], 1)
        np.testing.assert_allclose(y, n.layer.reference(n.attrs, x)[0], atol=1e-6)


class _Wrong(Tactic):
    """A tactic whose kernel is ``body``."""

    key, implements, body = "test.wrong@1", ("pointwise",), ""

    def variants(self, n, device):
        return [Variant()]

    def compile(self, n, variant, ctx):
        args = c_text.Args(n)
        return c_text.kernel(args, [f"{self.body.format(x=args.input(0), y=args.output(0))}"], ctx)


@pytest.mark.parametrize(("body", "message"), [
    ("for (int i = 0; i < 6; i++) {y}[i] = {x}[i] > 0 ? {x}[i] : 0;", "wrote outside output 0"),
    ("{y}[-1] = 0; for (int i = 0; i < 5; i++) {y}[i] = {x}[i] > 0 ? {x}[i] : 0;", "wrote outside output 0"),
    ("for (int i = 0; i < 4; i++) {y}[i] = {x}[i] > 0 ? {x}[i] : 0;", "error inf"),
    ("for (int i = 0; i < 5; i++) {y}[i] = {x}[i] > 0 ? {x}[i] : -0.1f;", "error"),
    ("for (int i = 0; i < 5; i++) {y}[i] = {x}[i] > 0 ? {x}[i] : 0; ((float*){x})[0] = 7;", "wrote to input 0"),
])  # fmt: skip
def test_the_harness_finds_wrong_kernels(body, message):
    tactic = _Wrong()
    tactic.body = body
    x = np.array([1, -2, 3, -4, 5], np.float32)
    with pytest.raises(AssertionError, match=message):
        check(node("Relu", [x]), tactic, [x])


def test_the_harness_accepts_a_right_kernel():
    tactic = _Wrong()
    tactic.body = "if (tid == 0) for (int i = 0; i < 5; i++) {y}[i] = {x}[i] > 0 ? {x}[i] : 0;"
    x = np.array([1, -2, 3, -4, 5], np.float32)
    assert check_all([Case(node("Relu", [x]), tactic, [x])]) == [[Variant()]]
