"""Features of processors by name, the levels that they make up."""

from __future__ import annotations

from collections.abc import Iterable

V2 = frozenset({"sse2", "pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm"})
V3 = V2 | {"avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}
V4 = V3 | {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}

X86 = V4 | frozenset(
    {
        "avx512ifma",
        "avx512vbmi",
        "avx512_vbmi2",
        "avx512_vnni",
        "avx512_bitalg",
        "avx512_vpopcntdq",
        "avx512_bf16",
        "avx512_fp16",
        "avx_vnni",
        "avx_vnni_int8",
        "avx_ne_convert",
        "amx_tile",
        "amx_int8",
        "amx_bf16",
        "amx_fp16",
    }
)
"""Flags of /proc/cpuinfo that code generators ask for, under Linux's own names."""

ARM = {
    "asimd": "neon",
    "asimdhp": "neon_fp16",
    "asimddp": "neon_dotprod",
    "bf16": "neon_bf16",
    "i8mm": "neon_i8mm",
    "sve": "sve",
    "sve2": "sve2",
}
"""The same for 64-bit ARM, by Linux's name."""

BASELINE = {
    "x86_64": frozenset({"sse2"}),
    "amd64": frozenset({"sse2"}),
    "arm64": frozenset({"neon"}),
    "aarch64": frozenset({"neon"}),
}
"""What every processor of the architecture has, where the system tells nothing."""

LEVELS: dict[str, tuple[str, int, frozenset[str]]] = {
    "x86-64-v2": ("x86_64", 128, V2),
    "x86-64-v3": ("x86_64", 256, V3),
    "x86-64-v4": ("x86_64", 512, V4),
    "armv8": ("aarch64", 128, frozenset({"neon"})),
}
"""Architecture, vector bits and features of the levels that plans are built for: those of the
System V ABI for x86-64, under Linux's names (``pni`` is SSE3, ``abm`` LZCNT), and what every 64-bit
ARM processor has.
"""

MASK = "TACTIX_CPU_FEATURES"
"""The environment variable that holds this processor back: ``tactix_cpu/mask.py`` says how."""


def vector_bits(features: Iterable[str]) -> int:
    """Width of the widest useful vectors of a processor with these features."""
    return 512 if "avx512f" in features else 256 if "avx" in features else 128
