"""Attention in float32, in one pass over the keys (see kernels/attention_f32.cuh): any lengths, a broadcast mask.

Knobs: ``warps`` of a block, query ``rows`` of a warp.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import ceildiv, evaluate, prod, symbols
from tactix.words.dtypes import DType
from tactix_builtin.cuda.tactics import attention, tile
from tactix_builtin.cuda.tactics.entry import Entry, artifact
from tactix_builtin.cuda.tactics.results import Rows
from tactix_builtin.tactics import c_heads
from tactix_builtin.tactics.c_heads import Heads
from tactix_builtin.tactics.c_text import block

MAX_DIM = 256
KEYS = 32
"""Keys of a stage: one for each lane of a warp."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PlainAttentionTactic()]


class PlainAttentionTactic(Tactic):
    """float32; dims up to 256, symbolic batch, heads and lengths."""

    key = "tactix.cuda_attention_f32@1"
    implements = c_heads.LAYERS
    device = "cuda"
    source = "cuda_c"

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        h = attention.heads(node, (DType.FP32,), MAX_DIM)
        if isinstance(h, Reject):
            return h
        limit = int(device.facts.get("shared_per_block", 48 << 10))
        options = [(4, 8), (4, 4), (8, 4), (4, 2), (4, 1), (1, 1)]
        return [Variant.of(warps=w, rows=r) for w, r in options if _shared(h, w, r) <= limit]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        h = attention.heads(node, (DType.FP32,), MAX_DIM)
        assert isinstance(h, Heads)
        if not symbols(prod((*h.lead, h.s, h.t))) <= set(ctx.opt):
            return None
        lead, s, t = (evaluate(d, ctx.opt) for d in (prod(h.lead), h.s, h.t))
        warps, rows = int(variant.knob("warps")), int(variant.knob("rows"))
        blocks, stages = lead * -(-s // (rows * warps)), -(-t // KEYS)
        waves = -(-blocks // (max(1, 16 // warps) * max(1, ctx.device.cores)))
        reads = (rows + 1) * (h.d + h.e) / 4 + 12 * rows
        cycles = warps * max(rows * (h.d + h.e) / 4, reads) + KEYS * (h.d + h.e) / (8 * warps) + tile.LATENCY
        return tile.START + waves * (stages * cycles + 2 * tile.LATENCY) / tile.CLOCK

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        h = attention.heads(node, (DType.FP32,), MAX_DIM)
        assert isinstance(h, Heads)
        warps, rows = int(variant.knob("warps")), int(variant.knob("rows"))
        e = Entry(node, 32 * warps)
        body = _body(h, e, node, warps * rows)
        launch = e.launch(prod(h.lead) * ceildiv(h.s, warps * rows), _shared(h, warps, rows))
        text = _struct(h, warps, rows) + e.kernel(*body)
        return artifact([text], [launch], [e], ctx, more=("ptx.cuh", "attention_f32.cuh"))


def _pitch(dim: int) -> int:
    """Elements from row to row in shared memory: whole accesses of 16 bytes, no two lanes' in one bank."""
    return -(-dim // 4) * 4 + 4


def _shared(h: Heads, warps: int, rows: int) -> int:
    return 4 * ((warps * rows + KEYS) * _pitch(h.d) + KEYS * _wide_pitch(h) + warps * rows * KEYS)


def _wide_pitch(h: Heads) -> int:
    return -(-h.e // 32) * 32


def _struct(h: Heads, warps: int, rows: int) -> str:
    """The constants that tx_attend_f32 asks for."""
    values = {
        "WARPS": warps, "ROWS": rows, "DEPTH": h.d, "WIDE": h.e, "LANES": _wide_pitch(h) // 32,
        "DEPTH_PITCH": _pitch(h.d), "WIDE_PITCH": _wide_pitch(h),
    }  # fmt: skip
    return block("struct TX_NAME(heads)", *(f"static const int {k} = {v};" for k, v in values.items())) + ";\n"


def _body(h: Heads, e: Entry, node: Node, rows: int) -> list[str]:
    s, t = e.dim(h.s), e.dim(h.t)
    sizes = [e.dim(d) for d in h.lead]
    store = Rows(e, node, h.epi, h.rows, h.width).store(1)
    row, column = h.place(e, "item", "first + r")
    none = "0.0f" if h.nan_to_zero else "TX_NAN"
    call = f"tx_attend_f32<TX_NAME(heads)>({attention.matrices(h, e)}, first, {s}, keys, memory, {none},"
    put = block("[&](int r, int c, float sum)", f"if (first + r >= {s}) return;", "const float v[1] = {sum};",
                f"const int64_t row = {row};", f"const int col = {column} + c;", store)  # fmt: skip
    return [
        "TX_SHARED(shared);",
        "float* memory = (float*)shared;",
        f"const int64_t tiles = {e.dim(ceildiv(h.s, rows))}, item = blockIdx.x / tiles;",
        f"const int64_t first = blockIdx.x % tiles * {rows};",
        attention.seen_keys(attention.sight(h, node), rows, t),
        f"{call}\n{attention.score(h, e, sizes, s)},\n{put});",
    ]
