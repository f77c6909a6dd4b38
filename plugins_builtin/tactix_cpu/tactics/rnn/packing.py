"""Weights of recurrent layers that only running tells, put into the order of constant ones.

A launch of its own does it, shared by all threads, before that of the products with the inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tactix.base.dims import Dim, ceildiv
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c.text import block, comment, loop, split

if TYPE_CHECKING:
    from tactix_cpu.tactics.rnn.kernel import RecurrentKernel


class RunTimePacking:
    """Places in the workspace from ``start`` bytes on, and the statements that fill them."""

    def __init__(self, k: RecurrentKernel, start: Dim) -> None:
        self.k, self.end = k, start
        self.statements: list[str] = []

    def matrix(self, index: int, depth: Dim) -> str:
        """Weights (direction, gate, unit, ``depth``) as ``RecurrentKernel._packed`` has them."""
        k, r = self.k, self.k.r
        steps, count = ceildiv(depth, k.group), r.directions * k.blocks
        target = self._room(steps * (count * k.width * k.group * r.dtype.itemsize), k.element)
        end = k.args.dim(depth)
        line = f"((q / {k.blocks} * {r.gates} + gate) * {r.hidden} + unit) * {end} + i"
        place = f"((q * {k.args.dim(steps)} + i / {k.group}) * {r.gates} + gate) * {k.lanes} + lane"
        known = f"unit < {r.hidden} && i < {end}"
        value = f"{known} ? {k.args.input(index)}[{line}] : 0"
        if k.group > 1:
            place = f"({place}) * {k.group} + i % {k.group}"
        fill = loop("i", "0", k.args.dim(steps * k.group), f"{target}[{place}] = {value};")
        unit = f"const int64_t unit = q % {k.blocks} * {k.lanes} + lane;"
        gates = loop("gate", "0", str(r.gates), loop("lane", "0", str(k.lanes), unit, fill))
        self.statements.append(
            block(
                "",
                comment(f"blocks of units, whose rows of {end} become columns"),
                split(str(count)),
                loop("q", "lo", "hi", gates),
            )
        )
        return target

    def vectors(self, index: int, rows: int, gates: int) -> str:
        """Vectors (row, gate, unit) as float32 (row, block of units, gate, unit in block)."""
        k = self.k
        target = self._room(rows * k.blocks * gates * k.lanes * 4, "float")
        source = f"{k.args.input(index)}[(row * {gates} + gate) * {k.r.hidden} + unit]"
        value = c_scalar.element(k.r.node.given[index].spec.dtype, source)
        place = f"((row * {k.blocks} + unit / {k.lanes}) * {gates} + gate) * {k.lanes}"
        store = f"{target}[{place} + unit % {k.lanes}] = unit < {k.r.hidden} ? {value} : 0.0f;"
        units = loop("unit", "0", str(k.blocks * k.lanes), store)
        self.statements.append(
            block(
                "",
                comment("vectors, a number for each unit"),
                split(str(rows)),
                loop("row", "lo", "hi", loop("gate", "0", str(gates), units)),
            )
        )
        return target

    def _room(self, size: Dim, element: str) -> str:
        place, self.end = self.end, self.end + ceildiv(size, 64) * 64
        return self.k.args.workspace(place, element)
