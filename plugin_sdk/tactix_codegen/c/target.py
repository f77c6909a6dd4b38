"""Compiler options that follow from the device, and the features a kernel compiled with them needs.

Never the machine that compiles: a plan may be built for another one, and the same input must give
the same bytes. The compiler may use no more than the device says that it has: a level of x86-64
counts where it is there as a whole.
"""

from __future__ import annotations

import platform

from tactix.contracts.device import DeviceProperties

_OPTIONS = {
    "pni": "-msse3", "ssse3": "-mssse3", "sse41": "-msse4.1", "sse42": "-msse4.2",
    "popcnt": "-mpopcnt", "cx16": "-mcx16", "lahflm": "-msahf", "avx": "-mavx", "avx2": "-mavx2",
    "fma": "-mfma", "f16c": "-mf16c", "bmi1": "-mbmi", "bmi2": "-mbmi2", "abm": "-mlzcnt",
    "movbe": "-mmovbe", "avx512f": "-mavx512f", "avx512bw": "-mavx512bw", "avx512cd": "-mavx512cd",
    "avx512dq": "-mavx512dq", "avx512vl": "-mavx512vl", "avx512vnni": "-mavx512vnni",
    "avx512bf16": "-mavx512bf16", "avx512vbmi": "-mavx512vbmi", "avxvnni": "-mavxvnni",
    "amxtile": "-mamx-tile", "amxint8": "-mamx-int8", "amxbf16": "-mamx-bf16",
}  # fmt: skip
"""Options by feature, in the order in which they are given."""
_NAMES = tuple(_OPTIONS)
_LEVELS = {
    "x86-64-v4": frozenset(_NAMES[: _NAMES.index("avx512vl") + 1]),
    "x86-64-v3": frozenset(_NAMES[: _NAMES.index("movbe") + 1]),
    "x86-64-v2": frozenset(_NAMES[: _NAMES.index("lahflm") + 1]),
    "x86-64": frozenset[str](),
}
"""What ``-march`` of that name allows, the widest first."""
_ARM = {"neon", "asimd", "aarch64", "arm64", "armv8"}
_ZIG = {"-march=armv8-a": "-mcpu=generic", "-march=x86-64": "-march=x86_64"}


def _plain(feature: str) -> str:
    return feature.lower().replace("_", "").replace("-", "")


def _features(device: DeviceProperties) -> set[str]:
    """Plain names; a device may name a whole level instead of what is in it."""
    have = {_plain(f) for f in device.features}
    return have.union(*(held for level, held in _LEVELS.items() if _plain(level) in have))


def is_arm(device: DeviceProperties) -> bool:
    """Whether the device speaks AArch64; a device without features is taken for this machine's
    kind.
    """
    have = {_plain(f) for f in device.features}
    return bool(have & _ARM) or (not have and _here() == "aarch64")


def other_architecture(device: DeviceProperties) -> str:
    """The device's architecture, ``aarch64`` or ``x86_64``, if this machine is not of it, else
    empty.
    """
    arch = "aarch64" if is_arm(device) else "x86_64"
    return arch if device.features and arch != _here() else ""


def _here() -> str:
    machine = platform.machine().lower()
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)


def target_flags(device: DeviceProperties) -> tuple[str, ...]:
    """``-march`` and its additions, and ``TX_LANES``, for GCC and Clang."""
    lanes = f"-DTX_LANES={max(4, device.lanes)}"
    if is_arm(device):
        return ("-march=armv8-a", lanes)
    if not device.features and _here() != "x86_64":
        return (lanes,)
    have = _features(device)
    level, held = next((level, held) for level, held in _LEVELS.items() if held <= have)
    more = [option for f, option in _OPTIONS.items() if f in have - held]
    width = [f"-mprefer-vector-width={max(128, device.vector_bits)}"] if "avx512f" in have else []
    return (f"-march={level}", *more, *width, lanes)


def zig_flags(device: DeviceProperties) -> tuple[str, ...]:
    """The same as ``zig cc`` spells them."""
    return tuple(
        _ZIG.get(f, f.replace("-march=x86-64-", "-march=x86_64_")) for f in target_flags(device)
    )


def required_features(device: DeviceProperties) -> tuple[str, ...]:
    """The device's features that ``target_flags`` lets the compiler use, by the names that the
    device gives them.
    """
    used = _ARM if is_arm(device) else {"sse2", *_OPTIONS, *map(_plain, _LEVELS)}
    return tuple(sorted(f for f in device.features if _plain(f) in used))
