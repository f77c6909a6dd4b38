"""How a processor tells of what kernels were compiled for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EAX, EBX, ECX, EDX = range(4)
_VECTORS, _WIDE, _TILES = 0x6, 0xE6, 0x60006
"""Bits of XCR0: what the system has to save of AVX, of AVX-512, and of AMX."""


@dataclass(frozen=True)
class CpuidBit:
    """Intel, Software Developer's Manual, volume 2, CPUID. ``saved``: bits of XCR0."""

    leaf: int
    sub_leaf: int
    register: int
    bit: int
    saved: int = 0


_BITS = {
    "pni": CpuidBit(1, 0, ECX, 0), "ssse3": CpuidBit(1, 0, ECX, 9),
    "fma": CpuidBit(1, 0, ECX, 12, _VECTORS), "cx16": CpuidBit(1, 0, ECX, 13),
    "sse4_1": CpuidBit(1, 0, ECX, 19), "sse4_2": CpuidBit(1, 0, ECX, 20),
    "movbe": CpuidBit(1, 0, ECX, 22), "popcnt": CpuidBit(1, 0, ECX, 23),
    "avx": CpuidBit(1, 0, ECX, 28, _VECTORS), "f16c": CpuidBit(1, 0, ECX, 29, _VECTORS),
    "sse2": CpuidBit(1, 0, EDX, 26),
    "lahf_lm": CpuidBit(0x80000001, 0, ECX, 0), "abm": CpuidBit(0x80000001, 0, ECX, 5),
    "bmi1": CpuidBit(7, 0, EBX, 3), "avx2": CpuidBit(7, 0, EBX, 5, _VECTORS),
    "bmi2": CpuidBit(7, 0, EBX, 8), "avx512f": CpuidBit(7, 0, EBX, 16, _WIDE),
    "avx512dq": CpuidBit(7, 0, EBX, 17, _WIDE), "avx512ifma": CpuidBit(7, 0, EBX, 21, _WIDE),
    "avx512cd": CpuidBit(7, 0, EBX, 28, _WIDE), "avx512bw": CpuidBit(7, 0, EBX, 30, _WIDE),
    "avx512vl": CpuidBit(7, 0, EBX, 31, _WIDE), "avx512vbmi": CpuidBit(7, 0, ECX, 1, _WIDE),
    "avx512_vbmi2": CpuidBit(7, 0, ECX, 6, _WIDE), "avx512_vnni": CpuidBit(7, 0, ECX, 11, _WIDE),
    "avx512_bitalg": CpuidBit(7, 0, ECX, 12, _WIDE),
    "avx512_vpopcntdq": CpuidBit(7, 0, ECX, 14, _WIDE),
    "amx_bf16": CpuidBit(7, 0, EDX, 22, _TILES), "avx512_fp16": CpuidBit(7, 0, EDX, 23, _WIDE),
    "amx_tile": CpuidBit(7, 0, EDX, 24, _TILES), "amx_int8": CpuidBit(7, 0, EDX, 25, _TILES),
    "avx_vnni": CpuidBit(7, 1, EAX, 4, _VECTORS), "avx512_bf16": CpuidBit(7, 1, EAX, 5, _WIDE),
    "amx_fp16": CpuidBit(7, 1, EAX, 21, _TILES), "avx_vnni_int8": CpuidBit(7, 1, EDX, 4, _VECTORS),
    "avx_ne_convert": CpuidBit(7, 1, EDX, 5, _VECTORS),
}  # fmt: skip
"""By Linux's names, those of ``tactix_cpu/features.py``: x86."""


def cpuid_bits(features: Iterable[str]) -> list[tuple[str, CpuidBit]]:
    """Of those that cpuid tells of, the plainest first."""
    known = [f for f in features if f in _BITS]
    return [(f, _BITS[f]) for f in _BITS if f in known]
