"""The weights of a library: what kernels read, in one piece."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tactix.base.files import replacing
from tactix.plan.schema import Plan
from tactix_ship.c_library.launch_tables import ProgramTables

ALIGNMENT = 64
"""Bytes of which the place of a weight is a multiple, as kernels count on."""
NOTHING = bytes(ALIGNMENT)
"""The content of a library without weights, which no kernel reads."""


@dataclass(frozen=True)
class WeightLayout:
    """``offsets``: of blobs, by name, in bytes. ``nbytes``: of all."""

    blobs: Mapping[str, memoryview]
    offsets: Mapping[str, int]
    nbytes: int

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The content, with zeros between."""
        at = 0
        for name, blob in self.blobs.items():
            yield bytes(self.offsets[name] - at)
            yield blob
            at = self.offsets[name] + blob.nbytes
        yield bytes(self.nbytes - at)

    def write(self, path: Path) -> str:
        """The content to a file; gives its sha256."""
        digest = hashlib.sha256()
        with replacing(path) as f:
            for piece in self.pieces():
                digest.update(piece)
                f.write(piece)
        return digest.hexdigest()


def weights_of(plan: Plan, programs: Sequence[ProgramTables]) -> WeightLayout:
    """Those that the launches name; blobs are those of the plan around all programs."""
    named: dict[str, None] = {}
    for p in programs:
        used = {buffer for _, buffer, _ in p.slots.pointers}
        held = (b.blob for i, b in enumerate(p.plan.buffers) if b.blob and i in used)
        named |= dict.fromkeys(held)
    blobs = {name: memoryview(plan.blobs[name]).cast("B") for name in named}
    offsets: dict[str, int] = {}
    end = 0
    for name, blob in blobs.items():
        offsets[name] = end
        end += -(-blob.nbytes // ALIGNMENT) * ALIGNMENT
    return WeightLayout(blobs, offsets, end or len(NOTHING))
