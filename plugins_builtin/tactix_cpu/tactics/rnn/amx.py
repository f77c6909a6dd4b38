"""The product of all steps' inputs with the input weights of an LSTM or GRU of bfloat16, on the AMX
matrix unit.

Blocks of 32 rows and 32 columns: two tiles of x times two of w into four of sums, to which biases
are added. Columns are those of the gates' buffer: blocks of units, gates, units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tactix.base.dims import ceildiv
from tactix.base.dtypes import DType
from tactix.contracts.artifact import Packed
from tactix.contracts.device import DeviceProperties
from tactix_codegen.c.text import block, loop, prelude
from tactix_cpu.tactics.dot_tile import DEEP, HALVES, HIGH, SIDE, has_tiles
from tactix_cpu.tactics.matmul.int8_amx import rows_left

if TYPE_CHECKING:
    from tactix_cpu.tactics.rnn.kernel import RecurrentKernel
    from tactix_cpu.tactics.rnn.tactic import CpuRecurrence


def suits(r: CpuRecurrence, device: DeviceProperties) -> bool:
    """Whether the device has the unit, rows of x fill its tiles, and weights are constant."""
    known = all(r.node.given[i].spec.is_const for i in (r.w, r.bias) if i >= 0)
    fills = r.dtype is DType.BF16 and r.inputs * 2 % DEEP == 0
    return known and fills and has_tiles(device, HALVES)


def _panels(k: RecurrentKernel) -> int:
    return -(-k.pitch // SIDE)


def packed(k: RecurrentKernel) -> Packed:
    """Weights (direction, gate, unit, k) as (direction, panel, pair of k, column, k in pair).

    The unit takes the right side with two elements of k in 32 bits (Intel, Software Developer's
    Manual, TDPBF16PS); columns are in the order in which the steps read gates.
    """
    r, panels = k.r, _panels(k)
    pad = ((0, 0), (0, 0), (0, k.blocks * k.lanes - r.hidden), (0, 0))
    steps: tuple[tuple[str, Any], ...] = (
        ("reshape", (r.directions, r.gates, r.hidden, r.inputs)),
        ("pad", pad),
        ("reshape", (r.directions, r.gates, k.blocks, k.lanes, r.inputs)),
        ("transpose", (0, 2, 1, 3, 4)),
        ("reshape", (r.directions, k.pitch, r.inputs)),
        ("pad", ((0, 0), (0, panels * SIDE - k.pitch), (0, 0))),
        ("reshape", (r.directions, panels, SIDE, r.inputs // 2, 2)),
        ("transpose", (0, 1, 3, 2, 4)),
    )
    return Packed(r.w, steps)


def functions(k: RecurrentKernel) -> str:
    """The function that multiplies two tiles of rows with a panel.

    Registers: 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 columns (dot_tile.SIDE).
    """
    depth = k.r.inputs * 2
    step = [
        f"_tile_loadd(4, x0 + k, {depth});",
        f"_tile_loadd(5, x1 + k, {depth});",
        f"_tile_loadd(6, w + k * {SIDE}, {4 * SIDE});",
        f"_tile_loadd(7, w + k * {SIDE} + {DEEP}, {4 * SIDE});",
        *(f"_tile_dpbf16ps({2 * t + c}, {4 + t}, {6 + c});" for t in range(2) for c in range(2)),
    ]
    at = [(2 * t + c, t * HIGH * SIDE + c * HIGH) for t in (0, 1) for c in (0, 1)]
    body = [
        *(f"_tile_zero({n});" for n, _ in at),
        loop("k", "0", str(depth), *step, step=DEEP),
        *(f"_tile_stored({n}, sums + {place}, {4 * SIDE});" for n, place in at),
    ]
    head = (
        "TX_RARE void TX_NAME(product)(const uint8_t* x0, const uint8_t* x1, const uint8_t* w, "
        "float* sums)"
    )
    return f"{prelude('amx.h')}{block(head, *body)}\n"


def project(k: RecurrentKernel) -> str:
    """The first launch: as RecurrentKernel's."""
    r, args, panels = k.r, k.args, _panels(k)
    assert isinstance(r.inputs, int)
    depth = r.inputs * 2
    total = args.dim(r.steps * r.batch)
    tiles = args.dim(ceildiv(r.steps * r.batch, SIDE))
    x = f"(const uint8_t*){args.input(r.x)}"
    inner = [
        f"const int64_t row = t * {SIDE}, rows = {total} - row < {SIDE} ? {total} - row : {SIDE};",
        f"const uint8_t* upper = rows < {HIGH} ? rest : {x} + row * {depth};",
        f"const uint8_t* lower = rows < {SIDE} ? rest : upper + {HIGH * depth};",
        f"TX_NAME(product)(upper, lower, (const uint8_t*){k.w} + q * {depth * SIDE}, sums);",
        f"float* g = {k.g} + (d * {total} + row) * {k.pitch} + p * {SIDE};",
        loop("c", "0", "here", *_results(k)),
    ]
    panel = [
        f"const int64_t d = q / {panels}, p = q % {panels};",
        f"const int64_t left = {k.pitch // HIGH} - p * 2, here = left < 2 ? left : 2;",
        loop("t", "part[0]", "part[1]", *inner),
    ]
    return "\n".join(
        [
            k.clear(),
            "int64_t part[4];",
            f"TX_NAME(grid)({tiles}, {r.directions * panels}, tid, nt, part);",
            "if (part[0] >= part[1] || part[2] >= part[3]) return;",
            f"float sums[{SIDE * SIDE}] __attribute__((aligned(64)));",
            *rows_left(f"part[1] == {tiles}", x, total, depth),
            "TX_NAME(begin)();",
            loop("q", "part[2]", "part[3]", *panel),
            "_tile_release();",
        ]
    )


def _results(k: RecurrentKernel) -> list[str]:
    """Statements that take vector ``c`` of all rows of sums to the buffer, with its biases."""
    value = f"tx_load_f32(sums + i * {SIDE} + c * {HIGH})"
    lines = []
    if k.b:
        second = f"tx_load_f32(b + {k.pitch})"
        if k.r.gates == 3 and k.r.linear_before_reset:
            second = f"((p * 2 + c) % 3 == 2 ? tx_zero() : {second})"
        lines = [
            f"const float* b = {k.b} + 2 * d * {k.pitch} + p * {SIDE} + c * {HIGH};",
            f"const vf bias = tx_load_f32(b) + {second};",
        ]
        value += " + bias"
    return [
        *lines,
        loop("i", "0", "rows", f"tx_store_f32(g + i * {k.pitch} + c * {HIGH}, {value});"),
    ]
