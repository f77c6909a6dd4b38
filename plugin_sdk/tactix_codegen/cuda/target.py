"""Architectures of NVIDIA's GPUs by name, and what is known of them without having one.

Two kinds of features: ``sm_90`` says that code for it can be written (whatever 8.0 and 9.0 brought
is there; an ``a`` at the end adds what only this very architecture has), ``cubin_90`` that machine
code for it can be loaded: that is so within a major version, from the lower to the higher minor one
(CUDA C++ Programming Guide, "Binary Compatibility").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tactix.base.errors import InvalidArgument
from tactix.contracts.device import DeviceProperties

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
VECTOR_BITS = 128
"""The widest access of one thread."""

COLD = 96 * MIB
"""What a measurement goes round through, so that no cache holds it: more than a Hopper's L2, of 50
to 60.
"""

LADDER = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
"""Compute capabilities: ten times the major version, plus the minor one."""

LEAST = 80
"""The first that kernels are written for: products copy asynchronously, extremes keep NaN."""

SPECIFIC = frozenset({90, 100, 103, 110, 120, 121})
"""Those with instructions that no other one has (``sm_90a``)."""

TARGETS: Mapping[str, tuple[str, int, int, int, int, int]] = {
    "sm_80": ("A100", 108, 80 * GIB, 164 * KIB, 163 * KIB, 40 * MIB),
    "sm_86": ("A10", 72, 24 * GIB, 100 * KIB, 99 * KIB, 6 * MIB),
    "sm_89": ("L40S", 142, 48 * GIB, 100 * KIB, 99 * KIB, 96 * MIB),
    "sm_90": ("H100", 132, 80 * GIB, 228 * KIB, 227 * KIB, 50 * MIB),
    "sm_100": ("B200", 148, 180 * GIB, 228 * KIB, 227 * KIB, 126 * MIB),
    "sm_120": ("RTX 5090", 170, 32 * GIB, 100 * KIB, 99 * KIB, 96 * MIB),
}
"""By architecture the product that stands for it: name, multiprocessors, and bytes of memory, of
shared memory of a multiprocessor and of a block, of the L2 cache. From NVIDIA's data sheets and the
tables of the Programming Guide.
"""

FEWER = ("sm_86", "sm_89", "sm_120")
"""Whose multiprocessors hold 1536 threads, not 2048 (CUDA C++ Programming Guide, "Compute
Capabilities").
"""

PRODUCTS: Mapping[str, tuple[str, str, int, int, int]] = {
    "h200": ("sm_90", "NVIDIA H200", 132, 141 * GIB, 60 * MIB)
}
"""Products that are targets by a name of their own: as the driver describes them, so that timings
taken on one are found. Architecture, name, multiprocessors, and bytes of memory and of the L2
cache.
"""


AMPERE_PLUS, SAME_COMPUTE_CAPABILITY = "AMPERE_PLUS", "SAME_COMPUTE_CAPABILITY"
"""Families of devices, by TensorRT's names for its hardware compatibility levels."""


def features(capability: int) -> frozenset[str]:
    """What a device of that compute capability (90 for 9.0) has."""
    lower = [c for c in LADDER if c <= capability] or [capability]
    own = {f"sm_{c}" for c in lower} | {f"cubin_{c}" for c in lower if c // 10 == capability // 10}
    specific = {f"sm_{capability}a", f"cubin_{capability}a"} if capability in SPECIFIC else set()
    return frozenset({*own, f"sm_{capability}", f"cubin_{capability}", *specific})


def target(name: str) -> DeviceProperties:
    """A device that need not be here: ``sm_80``, ``sm_90a`` for code that runs on 9.0 alone, or a
    product, ``h200``.

    ``AMPERE_PLUS`` is what all devices of 8.0 and later have: the registers of an 8.0, the shared
    memory of an 8.6. Raises InvalidArgument.
    """
    if name == AMPERE_PLUS:
        like, small = target("sm_80"), target("sm_86")
        facts = {**small.facts, "capability": 80}
        portable = frozenset(f for f in like.features if f.startswith("sm_"))
        return replace(small, name=AMPERE_PLUS, features=portable, facts=facts)
    if name in PRODUCTS:
        known, product, cores, memory, l2 = PRODUCTS[name]
        like, have = target(known), features(capability(known))
        facts = {**like.facts, "l2": l2}
        return replace(
            like, name=product, features=have, cores=cores, memory=memory, facts=facts, family=False
        )
    plain = name.removesuffix("a")
    if plain not in TARGETS or (name != plain and capability(plain) not in SPECIFIC):
        own = (f"{t}a" for t in TARGETS if capability(t) in SPECIFIC)
        known = ", ".join((*TARGETS, *own, *PRODUCTS, AMPERE_PLUS, SAME_COMPUTE_CAPABILITY))
        raise InvalidArgument(
            f"no architecture {name!r}", who="tactix.cuda@1", do=f"There are: {known}"
        )
    product, cores, memory, shared_sm, shared_block, l2 = TARGETS[plain]
    have = features(capability(plain))
    if name == plain:
        have = frozenset(f for f in have if not f.endswith("a"))
    facts = facts_of(
        capability(plain), shared_block, shared_sm, 65536, 1536 if plain in FEWER else 2048, l2
    )
    return DeviceProperties(
        "cuda", f"{name} ({product})", have, VECTOR_BITS, cores, memory, facts, family=True
    )


def facts_of(
    capability: int, block: int, multiprocessor: int, registers: int, threads: int, l2: int
) -> dict[str, Any]:
    """Bytes of shared memory that a block may have, and of a multiprocessor; its registers and
    threads; bytes of L2.

    ``cold``: how timings of a cache were taken.
    """
    return {
        "capability": capability,
        "shared_per_block": block,
        "shared_per_multiprocessor": multiprocessor,
        "registers_per_multiprocessor": registers,
        "threads_per_multiprocessor": threads,
        "l2": l2,
        "cold": COLD,
    }


def capability(architecture: str) -> int:
    """90 for ``sm_90`` and ``sm_90a``. Raises InvalidArgument."""
    found = re.fullmatch(r"(?:sm|cubin)_(\d+)a?", architecture)
    if not found:
        raise InvalidArgument(f"{architecture!r} names no architecture", do="Write it like sm_90")
    return int(found[1])


def architecture(device: DeviceProperties) -> str:
    """What to compile for: the highest ``sm_`` feature. Raises InvalidArgument if there is none."""
    names = [f for f in device.features if re.fullmatch(r"sm_\d+a?", f)]
    if not names:
        raise InvalidArgument(
            "the device names no architecture", who=device.name, do="Give it a feature like sm_90"
        )
    return max(names, key=lambda f: (capability(f), f))


def same_capability(here: DeviceProperties) -> DeviceProperties:
    """Any device of that compute capability, tuned for this one."""
    return replace(
        here, name=f"compute capability {int(here.facts['capability']) / 10}", family=True
    )


def is_portable(device: DeviceProperties) -> bool:
    """Whether it stands for a family that no machine code fits: its drivers compile PTX."""
    return not any(f.startswith("cubin_") for f in device.features)


def required_features(device: DeviceProperties) -> tuple[str, ...]:
    """What a device must have to load code that was compiled for this one: for
    ``KernelArtifact.requires``.
    """
    name = architecture(device)
    return (name if is_portable(device) else name.replace("sm_", "cubin_"),)
