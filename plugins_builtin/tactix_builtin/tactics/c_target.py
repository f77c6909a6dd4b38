"""Compiler options that follow from the device, and the features a kernel compiled with them needs.

Never the machine that compiles: a plan may be built for another one, and the same input must give the same bytes.
"""

from __future__ import annotations

import platform

from tactix.contracts.device import DeviceProperties

_V4 = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_V3 = ("avx2", "fma", "bmi1", "bmi2", "f16c")
_EXTRAS = {
    "avx512vnni": "-mavx512vnni", "avx512bf16": "-mavx512bf16", "avx512vbmi": "-mavx512vbmi", "avxvnni": "-mavxvnni",
    "amxtile": "-mamx-tile", "amxint8": "-mamx-int8", "amxbf16": "-mamx-bf16",
}  # fmt: skip
_ARM = {"neon", "asimd", "aarch64", "arm64", "armv8"}


def _plain(feature: str) -> str:
    return feature.lower().replace("_", "").replace("-", "")


def _has(have: set[str], level: tuple[str, ...], short: str) -> bool:
    return short in have or have.issuperset(level)


def is_arm(device: DeviceProperties) -> bool:
    """Whether the device speaks AArch64; a device without features is taken for this machine's kind."""
    have = {_plain(f) for f in device.features}
    return bool(have & _ARM) or (not have and platform.machine().lower() in ("aarch64", "arm64"))


def target_flags(device: DeviceProperties) -> tuple[str, ...]:
    """``-march`` and its additions, and ``TX_LANES``, for GCC and Clang."""
    lanes = f"-DTX_LANES={max(4, device.lanes)}"
    if is_arm(device):
        return ("-march=armv8-a", lanes)
    have = {_plain(f) for f in device.features}
    width = f"-mprefer-vector-width={max(128, device.vector_bits)}"
    if _has(have, _V4, "x8664v4"):
        return ("-march=x86-64-v4", *(flag for f, flag in _EXTRAS.items() if f in have), width, lanes)
    if _has(have, ("avx2", "fma"), "x8664v3"):
        return ("-march=x86-64-v3", *(["-mavxvnni"] if "avxvnni" in have else []), lanes)
    return ("-march=x86-64-v2" if "sse42" in have or "x8664v2" in have else "-march=x86-64", lanes)


def required_features(device: DeviceProperties) -> tuple[str, ...]:
    """The device's features that ``target_flags`` lets the compiler use, by the names that the device gives them."""
    march = target_flags(device)[0]
    used = set(_ARM | {"sse42", "x8664v2"})
    if march == "-march=x86-64-v4":
        used |= {*_V4, *_V3, *_EXTRAS, "x8664v4", "x8664v3"}
    elif march == "-march=x86-64-v3":
        used |= {*_V3, "avxvnni", "x8664v3"}
    return tuple(sorted(f for f in device.features if _plain(f) in used))
