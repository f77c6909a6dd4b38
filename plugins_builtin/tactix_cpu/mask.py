"""Masks of features: they hold this processor back, so that one machine shows what another would
do.
"""

from __future__ import annotations

from tactix.base.errors import ConfigError
from tactix.base.spelling import did_you_mean
from tactix_cpu.features import ARM, LEVELS, MASK, X86

_BENEATH = {
    "pni": "sse2",
    "ssse3": "pni",
    "sse4_1": "ssse3",
    "sse4_2": "sse4_1",
    "avx": "sse4_2",
    "avx2": "avx",
    "fma": "avx",
    "f16c": "avx",
    "avx512f": "avx2 fma f16c",
    "avx512dq": "avx512f",
    "avx512cd": "avx512f",
    "avx512bw": "avx512f",
    "avx512vl": "avx512f",
    "avx512ifma": "avx512f",
    "avx512_vnni": "avx512f",
    "avx512_vpopcntdq": "avx512f",
    "avx512vbmi": "avx512bw",
    "avx512_vbmi2": "avx512bw",
    "avx512_bitalg": "avx512bw",
    "avx512_bf16": "avx512bw",
    "avx512_fp16": "avx512bw",
    "avx_vnni": "avx2",
    "avx_vnni_int8": "avx2",
    "avx_ne_convert": "avx2",
    "amx_int8": "amx_tile",
    "amx_bf16": "amx_tile",
    "amx_fp16": "amx_tile",
    "neon_fp16": "neon",
    "neon_dotprod": "neon",
    "neon_bf16": "neon",
    "neon_i8mm": "neon",
    "sve": "neon",
    "sve2": "sve",
}
"""What features build on. No processor has one without the other, and compilers that may use one
use the other.
"""


def masked(features: frozenset[str], mask: str) -> frozenset[str]:
    """The features that a mask leaves; it never adds any.

    A mask is a list with commas. A level (one of LEVELS) keeps what that level holds and nothing
    else; names beside it keep these, too, and what they build on. ``-name`` removes a feature, and
    what builds on it. ``*`` in a name stands for any letters. Raises ConfigError.
    """
    entries = [e for part in mask.split(",") if (e := part.strip().lower())]
    removed = {f for e in entries if e.startswith("-") for f in _named(e[1:])}
    named = [e for e in entries if not e.startswith("-")]
    kept = _kept(named, features) if named else features
    return frozenset(f for f in features & kept if not _beneath(f) & removed)


def _kept(entries: list[str], features: frozenset[str]) -> frozenset[str]:
    """What a level and features beside it hold. Raises ConfigError."""
    levels = [e for e in entries if e in LEVELS]
    names = {f for e in entries if e not in LEVELS for f in _named(e)}
    if len(levels) != 1:
        why = (
            f"{' and '.join(levels)} are levels"
            if levels
            else f"{entries[0]!r} is kept beside a level, and there is none"
        )
        do = f"Name one of {', '.join(LEVELS)}; what stands behind a minus is removed without one"
        raise ConfigError(f"a mask with {len(levels)} levels", who=MASK, why=why, do=do)
    arch, _, features_of_level = LEVELS[levels[0]]
    if features and not features_of_level & features:
        why, do = (
            f"that is a level of {arch}",
            f"Name a level of this processor: {', '.join(LEVELS)}",
        )
        raise ConfigError(f"nothing would be left under {levels[0]!r}", who=MASK, why=why, do=do)
    return features_of_level.union(*map(_beneath, names))


def _named(pattern: str) -> set[str]:
    """The features that a name with or without ``*`` stands for. Raises ConfigError if there is
    none.
    """
    from fnmatch import fnmatchcase

    known = sorted(X86 | set(ARM.values()))
    if found := {f for f in known if fnmatchcase(f, pattern)}:
        return found
    names = [*LEVELS, *known]
    do = did_you_mean(pattern, names, f"There are: {', '.join(names)}", most=3)
    raise ConfigError(f"no level or feature is called {pattern!r}", who=MASK, do=do)


def _beneath(feature: str) -> frozenset[str]:
    """The feature and all that it builds on."""
    return frozenset({feature}).union(*map(_beneath, _BENEATH.get(feature, "").split()))
