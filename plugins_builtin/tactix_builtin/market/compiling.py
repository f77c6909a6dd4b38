"""Compiling what strangers bid: those whose code stands in nobody's way, and why not the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tactix.contracts.artifact import Binary, KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.select.compile import Toolchain
from tactix.select.enumerate import Candidate
from tactix.select.measure import reject
from tactix.words.errors import CompilerError


def joined(
    toolchain: Toolchain, fine: Sequence[KernelArtifact], apart: Sequence[Candidate], device: DeviceProperties,
    who: Callable[[Candidate], str],
) -> Mapping[str, Binary]:  # fmt: skip
    """Binaries of those that compile beside what is fine and beside each other; the others are rejected.

    ``who``: says whose a candidate is.
    """
    try:
        return toolchain.compile([*fine, *(c.artifact for c in apart)], device)
    except CompilerError as e:
        if len(apart) == 1:
            reject(apart[0], f"{who(apart[0])} does not compile: {e}")
            return {}
    half = len(apart) // 2
    first = joined(toolchain, fine, apart[:half], device, who)
    more = [c.artifact for c in apart[:half] if c.status != "rejected"]
    return {**first, **joined(toolchain, [*fine, *more], apart[half:], device, who)}
