"""Masks of the processor's features: their grammar, and that everything keeps to what they leave."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import numpy as np
import pytest

import tactix
from tactix.base.errors import ConfigError, PlanCompatibilityError
from tactix.contracts.device import DeviceProperties
from tactix.plan.schema import Plan
from tactix_codegen.c.target import required_features
from tactix_cpu import device as cpu
from tactix_cpu import mask
from tactix_cpu.device import CpuDevice
from tactix_cpu.features import ARM, LEVELS, MASK, V2, V3, V4, X86, vector_bits
from tactix_cpu.mask import masked
from tactix_tools.cli import PLAN, main

EXTRAS = frozenset({"avx512_bf16", "avx512_vnni", "avx512vbmi"})
TILES = frozenset({"amx_tile", "amx_int8", "amx_bf16"})
WIDE = V4 | EXTRAS | TILES
OLD = V2 | {"avx"}

LEFT: list[tuple[frozenset[str], str, Iterable[str]]] = [
    (WIDE, "", WIDE),
    (WIDE, " , ", WIDE),
    (WIDE, "x86-64-v3", V3),
    (WIDE, " X86-64-V4 , AVX512_BF16 ", V4 | {"avx512_bf16"}),
    (WIDE, "avx512_vnni,x86-64-v4", V4 | {"avx512_vnni"}),
    (WIDE, "x86-64-v4,amx_int8", V4 | {"amx_int8", "amx_tile"}),
    (WIDE, "x86-64-v2,avx2", V2 | {"avx", "avx2"}),
    (WIDE, "x86-64-v4,amx*", V4 | TILES),
    (WIDE, "-avx512_bf16", WIDE - {"avx512_bf16"}),
    (WIDE, "-amx*", V4 | EXTRAS),
    (WIDE, "-amx_tile", V4 | EXTRAS),
    (WIDE, "-avx512f", V3 | TILES),
    (WIDE, "-avx512bw,-amx*", (V4 | {"avx512_vnni"}) - {"avx512bw"}),
    (WIDE, "-avx", (V2 | {"abm", "bmi1", "bmi2", "movbe"}) | TILES),
    (WIDE, "x86-64-v4,avx512_*,-avx512_bf16", V4 | {"avx512_vnni"}),
    (WIDE, "x86-64-v4,avx512_bf16,-avx512_bf16", V4),
    (OLD, "x86-64-v4,avx512_bf16", OLD),
    (OLD, "-amx*", OLD),
    (frozenset({"neon", "neon_fp16", "sve", "sve2"}), "armv8,neon_fp16", {"neon", "neon_fp16"}),
    (frozenset({"neon", "neon_fp16", "sve", "sve2"}), "-sve", {"neon", "neon_fp16"}),
    (frozenset(), "x86-64-v2", ()),
]


@pytest.mark.parametrize(("here", "text", "left"), LEFT)
def test_what_a_mask_leaves(here: frozenset[str], text: str, left: Iterable[str]) -> None:
    assert masked(here, text) == frozenset(left)


WRONG = {
    "avx512bf16": "'avx512bf16'.*Did you mean 'avx512_bf16'",
    "x86-64-v5": "'x86-64-v5'.*x86-64-v4",
    "-x86-64-v4": "'x86-64-v4'",
    "-qqq": "no level or feature is called 'qqq'. There are: x86-64-v2, .*neon",
    "-": "called ''",
    "x86-64-v3,avx513*": "'avx513",
    "avx2": "'avx2' is kept beside a level, and there is none. Name one of x86-64-v2,",
    "x86-64-v3,x86-64-v4": "2 levels: x86-64-v3 and x86-64-v4",
    "armv8": "nothing would be left under 'armv8': that is a level of aarch64. Name a level of this processor",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_mask(text: str) -> None:
    with pytest.raises(ConfigError, match=f"TACTIX_CPU_FEATURES: .*{WRONG[text]}"):
        masked(WIDE, text)


def test_every_feature_stands_above_the_baseline() -> None:
    known = X86 | set(ARM.values())
    assert all(mask._beneath(f) <= known for f in known)
    assert mask._BENEATH.keys() <= known
    for _, bits, held in LEVELS.values():
        assert all(mask._beneath(f) <= held for f in held)
        assert vector_bits(held) == bits


def device(text: str, monkeypatch: pytest.MonkeyPatch) -> DeviceProperties:
    monkeypatch.setenv(MASK, text)
    return CpuDevice().properties()


def test_the_device_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DeviceProperties("cpu", "Wide One", WIDE, 512, 3, 1 << 30, {"arch": "x86_64"})
    monkeypatch.setattr(cpu, "_processor", lambda: whole)
    cpu._masked_properties.cache_clear()
    try:
        monkeypatch.delenv(MASK, raising=False)
        assert CpuDevice().properties() is whole
        for level, (arch, bits, held) in LEVELS.items():
            if arch == "x86_64":
                found = device(level, monkeypatch)
                assert (found.features, found.vector_bits, found.cores) == (held, bits, 3)
                assert found.name == f"Wide One (TACTIX_CPU_FEATURES={level})"
                assert set(required_features(found)) <= held
        assert device("-avx512_fp16", monkeypatch) is whole
        assert CpuDevice().target("x86-64-v4").features == V4
        assert device("x86-64-v3", monkeypatch).facts == whole.facts
        with pytest.raises(ConfigError, match="no level or feature is called 'sse9'"):
            device("sse9", monkeypatch)
    finally:
        cpu._masked_properties.cache_clear()


def test_processes_of_its_own_keep_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MASK, raising=False)
    here = CpuDevice().properties().features
    gone = sorted(here)[0]
    monkeypatch.setenv(MASK, f"-{gone}")
    code = (
        "from tactix_cpu.device import CpuDevice; print(*sorted(CpuDevice().properties().features))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert set(said.split()) == masked(here, f"-{gone}") < here


def product() -> Plan:
    builder = tactix.Builder()
    net = builder.create_network("product")
    w = net.add_constant(np.ones((32, 32), np.float32))
    net.mark_output(net.add_layer("tactix.MatMul", [net.add_input("x", "f32", (8, 32)), w])[0], "y")
    return builder.build_plan(
        net, tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    )


@pytest.mark.compiler
def test_a_plan_that_needs_more_than_a_mask_leaves(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(MASK, raising=False)
    plan = product()
    needed = plan.steps[0].artifact.requires
    gone = [f for f in needed if f not in ("sse2", "neon")][-1:]
    if not gone:
        pytest.skip("this processor has nothing beyond its architecture's baseline")
    path = f"{tmp_path}/product.plan"
    tactix.Runtime().load(plan).save(path)
    monkeypatch.setenv(MASK, f"-{gone[0]}")
    assert gone[0] not in {f for s in product().steps for f in s.artifact.requires}
    with pytest.raises(
        PlanCompatibilityError,
        match=rf"need {gone[0]}, which .*TACTIX_CPU_FEATURES=-{gone[0]}\) lacks",
    ):
        tactix.load(path)
    capsys.readouterr()
    assert main(["check", path]) == PLAN
    assert f"TACTIX_CPU_FEATURES=-{gone[0]}" in capsys.readouterr().out
