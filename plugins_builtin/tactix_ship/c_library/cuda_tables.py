"""Launches of CUDA kernels as tables: over the types of cuda_launches.h. Their machine code is the
plan's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tactix.base.dtypes import DType
from tactix.contracts.launcher import Step
from tactix.plan.schema import Plan
from tactix_cuda.launcher import LaunchTable
from tactix_cuda.modules import kernel_name
from tactix_cuda.tensor_maps import TensorMap, maps_of
from tactix_ship.c_library.arithmetic import arithmetic_of
from tactix_ship.c_library.launch_tables import (
    LaunchTables,
    ProgramTables,
    code_of,
    joined,
    numbers,
    table,
)
from tactix_ship.c_library.names import literal, remark

ALIGNMENT = 64
"""Bytes of which the place of an image is a multiple."""
_TYPES = {DType.FP16: 6, DType.BF16: 9}
"""CUtensorMapDataType by element; of bytes the driver knows one kind, 0."""
ANY_CAPABILITY = 1000
"""More than the compute capability of any device, as ten times the major version plus the minor."""


@dataclass(frozen=True)
class Capabilities:
    """Compute capabilities of devices that run some code: 90 is 9.0. ``most`` may be
    ANY_CAPABILITY.
    """

    least: int
    most: int

    def __str__(self) -> str:
        low, high = f"{self.least / 10}", f"{self.most / 10}"
        if self.most == ANY_CAPABILITY:
            return f"{low} and later"
        return low if low == high else f"{low} to {high}"


def capabilities(features: Iterable[str]) -> Capabilities:
    """Of devices that have all these features (tactix_codegen/cuda/target.py tells what they mean).
    Raises ValueError for one that is not of that kind.
    """
    least, most = 0, ANY_CAPABILITY
    for feature in features:
        found = re.fullmatch(r"(sm|cubin)_(\d+)(a?)", feature)
        if not found:
            raise ValueError(feature)
        own = int(found[2])
        last = own // 10 * 10 + 9 if found[1] == "cubin" else ANY_CAPABILITY
        least, most = max(least, own), min(most, own if found[3] else last)
    return Capabilities(least, most)


class CudaTables(LaunchTables):
    """Of plans that were checked. ``images``: the different pieces of machine code. Raises
    PlanCompatibilityError for a plan that runs at no shape that was looked at.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._tables = [_launch_table(p) for p in plans]
        self.programs = [
            ProgramTables(p, t, arithmetic_of(p, t.dims))
            for p, t in zip(plans, self._tables, strict=True)
        ]
        steps = [s for p in plans for s in p.steps]
        self.images = {code_of(s).digest: bytes(code_of(s).blob) for s in steps}
        self._kernels: dict[tuple[str, str], int] = {}
        for s, x in (launch for p in self.programs for launch in p.launches):
            key = code_of(s).digest, kernel_name(code_of(s), x.symbol)
            self._kernels.setdefault(key, len(self._kernels))
        self._capabilities = capabilities({f for s in steps for f in s.artifact.requires})

    @property
    def kernels(self) -> int:
        """How many there are."""
        return len(self._kernels)

    def code(self) -> bytes:
        """All images in a row, each with a zero behind it, as text has (PTX is some)."""
        out = bytearray()
        for image in self.images.values():
            out += image + bytes(ALIGNMENT - len(image) % ALIGNMENT)
        return bytes(out) or bytes(ALIGNMENT)

    def sizes(self) -> Iterable[tuple[str, int, str]]:
        yield "IMAGES", len(self.images), "pieces of machine code"
        yield "KERNELS", len(self._kernels), "kernels in them"
        yield "LEAST_CAPABILITY", self._capabilities.least, "of a device, ten times its version"
        yield "MOST_CAPABILITY", self._capabilities.most, "the same"

    def whole(self) -> Iterable[str]:
        yield f"#define CAPABILITIES {literal(str(self._capabilities))}"
        offsets, end = [], 0
        for image in self.images.values():
            offsets.append(end)
            end += (len(image) // ALIGNMENT + 1) * ALIGNMENT
        yield from numbers("const size_t images[]", offsets, "Where each piece of machine code is.")
        places = {digest: i for i, digest in enumerate(self.images)}
        rows = [f"{{{places[digest]}, {literal(name)}}}," for digest, name in self._kernels]
        yield from table("const cuda_kernel kernels[]", rows or ["{0, 0},"], "Image and name.")

    def program(self, index: int, prefix: str) -> Iterable[str]:
        p, t = self.programs[index], self._tables[index]
        rows = [
            self._launch(s, kernel_name(code_of(s), x.symbol), t, i)
            for i, (s, x) in enumerate(p.launches)
        ]
        what = "Launches, as they run: step, kernel, first argument, whether it waits, and sizes."
        yield from table(f"const cuda_launch {prefix}launches[]", rows or ["{0},"], what)
        maps = [_map(slot, m, dims, _owner(p, slot)) for slot, (m, dims) in t.maps.items()]
        what = "Arguments that are tensor maps."
        yield from table(f"const cuda_map {prefix}maps[]", maps or ["{0},"], what)

    def fields(self, index: int, prefix: str) -> Iterator[str]:
        yield f".launches = {len(self.programs[index].launches)}, .launch = {prefix}launches,"
        yield f".maps = {len(self._tables[index].maps)}, .map = {prefix}maps"

    def _launch(self, s: Step, name: str, t: LaunchTable, index: int) -> str:
        kernel = self._kernels[code_of(s).digest, name]
        waits = int(bool(s.artifact.params.get("waits")))
        told = f"{literal(s.name)}, {kernel}, {t.starts[index]}, {waits}"
        return f"{{{told}, {{{joined(t.geometry[index])}}}}},"


def _launch_table(plan: Plan) -> LaunchTable:
    out = LaunchTable()
    for s in plan.steps:
        maps = maps_of(s.artifact)
        for i, launch in enumerate(s.artifact.launches):
            out.add(s, launch, maps[i] if maps else ())
    return out


def _owner(p: ProgramTables, slot: int) -> str:
    """The name of the step that an argument is of."""
    steps: Mapping[int, str] = dict(
        zip(p.slots.starts, (s.name for s, _ in p.launches), strict=True)
    )
    return steps[max(start for start in p.slots.starts if start <= slot)]


def _map(slot: int, m: TensorMap, dims: Sequence[int], step: str) -> str:
    rank = len(m.shape)
    sizes, strides = joined(dims[:rank]), joined(dims[rank:])
    lower, upper = (joined(c) for c in m.corners or ((), ()))
    steps = joined(m.steps or (1,) * rank)
    facts = f"{slot}, {_TYPES.get(m.dtype, 0)}, {rank}, {int(bool(m.corners))}, {m.offset}"
    lists = (sizes, strides, joined(m.box), steps, lower, upper)
    told = ", ".join(f"{{{x}}}" for x in lists)
    return f"{{{literal(step)}, {facts}, {told}}}, /* {remark(str(m.shape))} */"
