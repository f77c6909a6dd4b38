"""Every tactic with machine code on other instruction sets than the widest: right, or rejected with
a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import asked
import emulated
import harness as h
import pytest
from target_cases import TACTICS, integer_products, pointwise, reductions, table

from tactix.base.errors import CompilerError
from tactix.contracts.artifact import Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import Reject
from tactix_codegen.c.target import other_architecture, required_features, target_flags, zig_flags
from tactix_cpu import compiler as cc
from tactix_cpu.compiler import CCompiler, cross_compiler
from tactix_cpu.device import CpuDevice
from tactix_cpu.levels import target

TILES = {"amx_tile", "amx_int8", "amx_bf16"}
AMX = {"tactix.c_gemm_amx@1", "tactix.c_conv_amx@1", "tactix.c_int8_amx@1", "tactix.c_bf16_amx@1",
       "tactix.c_few_bits_amx@1", "tactix.c_few_bits_bf16_amx@1",
       "tactix.c_int8_amx_conv@1", "tactix.c_bf16_amx_conv@1",
       "tactix.c_bf16_amx_attention@1"}  # fmt: skip
WINOGRAD = {"tactix.c_bf16_winograd@1", "tactix.c_bf16_widened_winograd@1"}
PAIRS = {"tactix.c_bf16_attention@1", "tactix.c_bf16_winograd@1"}
"""Those for ``vdpbf16ps``."""
WORDS = {"tactix.c_int8_winograd@1"}
"""Those for AVX2 without products of four bytes."""
LEVELS = ("x86-64-v3", "x86-64-v2", "armv8")


@pytest.fixture(autouse=True)
def every_optimization(monkeypatch: pytest.MonkeyPatch) -> None:
    """As measured builds compile: the tactics' own files compile as builds that measure nothing."""
    monkeypatch.setattr(h, "COMPILER", CCompiler())


def described(name: str, *features: str, bits: int = 128) -> DeviceProperties:
    return DeviceProperties("cpu", name, frozenset(features), bits, cores=2)


def taken(cases: Sequence[h.Case]) -> list[h.Case]:
    """The cases that their tactics take."""
    return [c for c in cases if not isinstance(asked.variants(c.tactic, c.node, c.device), Reject)]


def compiled(cases: Sequence[h.Case]) -> list[Any]:
    return [item for c in cases for item in h._compile(c)]


@pytest.mark.parametrize("level", LEVELS)
def test_every_tactic_bids_or_tells_why_not(level: str) -> None:
    cases = table(target(level))
    answers = [(c.tactic.key, asked.variants(c.tactic, c.node, c.device)) for c in cases]
    assert {k for k, _ in answers} == TACTICS.keys(), (
        "every native tactic needs a case in target_cases.table"
    )
    rejected = {k: a.reason for k, a in answers if isinstance(a, Reject)}
    assert rejected.keys() == AMX | PAIRS | (WORDS if level != "x86-64-v3" else set())
    needed = {**dict.fromkeys(AMX, "AMX"), **dict.fromkeys(WORDS, "AVX2")}
    assert all(needed.get(k, "AVX-512") in why for k, why in rejected.items())


def test_the_nodes_for_the_matrix_unit_are_taken_where_there_is_one() -> None:
    widest = target("x86-64-v4")
    cases = table(replace(widest, features=widest.features | TILES | {"avx512_bf16"}))
    assert {c.tactic.key for c in taken(cases)} == TACTICS.keys() - WINOGRAD - WORDS
    cases = table(replace(widest, features=widest.features | {"avx512_bf16"}))
    assert {c.tactic.key for c in taken(cases)} == TACTICS.keys() - AMX - WORDS


@pytest.mark.parametrize("level", LEVELS)
def test_kernels_need_what_the_level_has(level: str) -> None:
    device = target(level)
    for _, artifact in compiled(taken(table(device))):
        assert set(artifact.requires) == device.features


@pytest.mark.parametrize("device", h.devices(), ids=lambda d: d.name)
def test_every_tactic_is_right(device: DeviceProperties) -> None:
    h.check_all(taken(table(device)))


@h.needs(*TILES)
def test_every_tactic_of_the_matrix_unit_is_right() -> None:
    device = replace(h.NATIVE, features=h.NATIVE.features | TILES, vector_bits=512)
    h.check_all([c for c in taken(table(device)) if c.tactic.key in AMX])


OLD = (described("x86-64", "sse2"), described("avx", "sse2", "sse4_2", "avx", bits=256))


@pytest.mark.parametrize("device", OLD, ids=lambda d: d.name)
def test_vectors_without_intrinsics_are_right(device: DeviceProperties) -> None:
    if lacking := h.lacking(*device.features):
        pytest.skip(lacking)
    cases = [*pointwise(), *reductions(), *integer_products()]
    h.check_all([replace(c, device=device) for c in cases])


def test_every_tactic_on_arm(tmp_path: Path) -> None:
    if not emulated.compiler():
        pytest.skip("there is no C compiler for 64-bit ARM; ziglang has one")
    cases = taken(table(target("armv8")))
    items = [(c, h._compile(c)) for c in cases]
    assert emulated.objects([a for _, own in items for _, a in own], target("armv8"), tmp_path)
    if emulated.emulator() is None:
        pytest.skip("everything compiles; there is no qemu-aarch64 to run it")
    emulated.check_all(items, target("armv8"))


FLAGS: list[tuple[tuple[str, ...], int, tuple[str, ...]]] = [
    (("avx2", "fma"), 256, ("-march=x86-64", "-mavx2", "-mfma", "-DTX_LANES=8")),
    (
        ("avx2", "fma", "f16c", "erms"),
        256,
        ("-march=x86-64", "-mavx2", "-mfma", "-mf16c", "-DTX_LANES=8"),
    ),
    (("sse2", "sse4_2"), 128, ("-march=x86-64", "-msse4.2", "-DTX_LANES=4")),
    (("x86-64-v3",), 256, ("-march=x86-64-v3", "-DTX_LANES=8")),
    (("x86-64-v2", "avx"), 256, ("-march=x86-64-v2", "-mavx", "-DTX_LANES=8")),
    (("neon", "sve"), 128, ("-march=armv8-a", "-DTX_LANES=4")),
]


@pytest.mark.parametrize(("features", "bits", "flags"), FLAGS)
def test_the_compiler_may_use_what_the_device_has(features: Any, bits: int, flags: Any) -> None:
    device = described("a", *features, bits=bits)
    assert target_flags(device) == flags
    assert set(required_features(device)) == set(features) - {"erms", "sve"}


def test_levels_are_options_of_the_compilers() -> None:
    marches = [target_flags(target(level))[0] for level in LEVELS]
    assert marches == ["-march=x86-64-v3", "-march=x86-64-v2", "-march=armv8-a"]
    spelled = [zig_flags(target(level))[0] for level in LEVELS]
    assert spelled == ["-march=x86_64_v3", "-march=x86_64_v2", "-mcpu=generic"]
    assert zig_flags(OLD[1])[:3] == ("-march=x86_64", "-msse4.2", "-mavx")
    assert "-mprefer-vector-width=512" in target_flags(target("x86-64-v4"))


def test_code_for_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    level = "armv8" if other_architecture(target("armv8")) else "x86-64-v3"
    arch, machine = {"armv8": ("aarch64", 183), "x86-64-v3": ("x86_64", 62)}[level]
    source = Source("c", "void TX_ENTRY(const int64_t* a, int tid, int nt) {}")
    assert other_architecture(target(level)) == arch
    assert not other_architecture(CpuDevice().properties())
    if cross_compiler(arch):
        (made,) = CCompiler().compile([source], target(level))
        assert int.from_bytes(made.blob[18:20], "little") == machine
    monkeypatch.setattr(cc, "cross_compiler", lambda arch: ())
    with pytest.raises(CompilerError, match="no C compiler for"):
        CCompiler().compile([source], target(level))
