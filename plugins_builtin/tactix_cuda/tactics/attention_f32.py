"""Attention in float32, in one pass over the keys (see lib/attention_f32.cuh): any lengths, a
broadcast mask.

No tensor cores are used; 16-bit floats are taken where heads are too large for the kernels that use
them. Knobs: ``warps`` of a block, query ``rows`` of a warp.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base.dims import ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import heads as c_heads
from tactix_codegen.c.heads import Heads
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import block, ctype
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import RowResults
from tactix_cuda.tactics import attention, tile

MAX_DIM = 512
"""Columns of q and v of a head: as far as ``_fits`` finds a choice of rows and warps."""
PRODUCTS = 128
"""Products that a multiprocessor makes in a cycle (see ``tile.PRODUCTS``)."""
WEIGHED, COPIED, RESIDENT, HELD = 12, 8, 16, 8 * 256
"""What ``cost`` assumes: cycles for a row's maximum, sum and weights of a stage; elements that a
warp copies into shared memory in a cycle; warps of a multiprocessor. And results of a warp at most,
``rows`` times columns: 64 registers a thread. No measurement of them is recorded.
"""
KEYS = 32
"""Keys of a stage: one for each lane of a warp."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [PlainAttentionTactic()]


class PlainAttentionTactic(Tactic[Heads]):
    """float32, and 16-bit floats of large heads; dims up to 512, symbolic batch, heads, lengths."""

    key = "tactix.cuda_attention_f32@1"
    implements = c_heads.LAYERS
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Heads | Reject:
        h = attention.heads(node, (DType.FP32, *attention.KINDS), MAX_DIM)
        if isinstance(h, Reject) or h.dtype is DType.FP32 or max(h.d, h.e) > attention.MAX_DIM:
            return h
        return Reject("tensor cores multiply heads of this size")

    def variants(self, h: Heads, device: DeviceProperties) -> Sequence[Variant] | Reject:
        # more rows of a warp read each key less often, fewer leave more blocks; chosen by hand
        limit = int(device.facts.get("shared_per_block", 48 << 10))
        options = [(4, 8), (4, 4), (8, 4), (4, 2), (4, 1), (1, 1)]
        found = [Variant.of(warps=w, rows=r) for w, r in options if _fits(h, w, r, limit)]
        return found or Reject(
            f"a block has {limit} bytes of shared memory, too little for heads of {h.d} and {h.e}"
        )

    def cost(self, h: Heads, variant: Variant, ctx: CompileContext) -> float | None:
        """Seconds: waves of blocks, each of which has stages of KEYS keys. A stage's cycles are
        those of its warps' products, or reads of shared memory where these take longer; of its
        copies; and of the wait for them, as no stage is copied ahead.
        """
        if not symbols(prod((*h.lead, h.s, h.t))) <= set(ctx.opt):
            return None
        lead, s, t = (evaluate(d, ctx.opt) for d in (prod(h.lead), h.s, h.t))
        warps, rows = variant.number("warps"), variant.number("rows")
        blocks, stages = lead * -(-s // (rows * warps)), -(-t // KEYS)
        waves = -(-blocks // (max(1, RESIDENT // warps) * max(1, ctx.device.cores)))
        # of a warp in a stage: reads of 16 bytes of shared memory, of its rows and of one key each
        reads = (rows + 1) * (h.d + h.e) / 4 + WEIGHED * rows
        cycles = (
            warps * max(rows * KEYS * (h.d + h.e) / PRODUCTS, reads)
            + KEYS * (h.d + h.e) / (COPIED * warps)
            + tile.LATENCY
        )
        return tile.START + waves * (stages * cycles + 2 * tile.LATENCY) / tile.CLOCK

    def compile(self, h: Heads, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        warps, rows = variant.number("warps"), variant.number("rows")
        e = KernelEntry(h.node, 32 * warps)
        body = _body(h, e, warps * rows)
        launch = e.launch(prod(h.lead) * ceildiv(h.s, warps * rows), _shared(h, warps, rows))
        text = _struct(h, warps, rows) + e.kernel(*body)
        return artifact([text], [launch], [e], ctx, more=("ptx.cuh", "attention_f32.cuh"))


def _fits(h: Heads, warps: int, rows: int, limit: int) -> bool:
    """Whether a block has the shared memory, and a thread the registers, where heads are large."""
    return _shared(h, warps, rows) <= limit and rows * _wide_pitch(h) <= HELD


def _pitch(dim: int) -> int:
    """Elements from row to row in shared memory: whole accesses of 16 bytes. With 4 more than that,
    rows of 32 columns begin 4 banks apart, so that eight lanes, each at its own key, meet in none.
    """
    return -(-dim // 4) * 4 + 4


def _shared(h: Heads, warps: int, rows: int) -> int:
    """Bytes of shared memory, all in float32: the block's queries, a stage of keys, one of values,
    and a weight for each query and key of the stage.
    """
    return 4 * ((warps * rows + KEYS) * _pitch(h.d) + KEYS * _wide_pitch(h) + warps * rows * KEYS)


def _wide_pitch(h: Heads) -> int:
    """Elements from row to row of values: whole warps, as each lane owns every 32nd column."""
    return -(-h.e // 32) * 32


def _struct(h: Heads, warps: int, rows: int) -> str:
    """The constants that tx_attend_f32 asks for."""
    values = {
        "WARPS": warps,
        "ROWS": rows,
        "DEPTH": h.d,
        "WIDE": h.e,
        "LANES": _wide_pitch(h) // 32,
        "DEPTH_PITCH": _pitch(h.d),
        "WIDE_PITCH": _wide_pitch(h),
    }
    kind, value = ctype(h.dtype), element(h.dtype, "x")
    return attention.constants(
        values, block(f"TX_INLINE float number({kind} x)", f"return {value};")
    )


def _body(h: Heads, e: KernelEntry, rows: int) -> list[str]:
    s, t = e.dim(h.s), e.dim(h.t)
    sizes = [e.dim(d) for d in h.lead]
    store = RowResults(e, h.node, h.epi, h.rows, h.width).store(1)
    row, column = h.place(e, "item", "first + r")
    none = "0.0f" if h.nan_to_zero else "TX_NAN"
    given = f"{attention.matrices(h, e)}, first, {s}, keys, memory, {none}"
    call = f"tx_attend_f32<TX_NAME(heads)>({given},"
    put = block(
        "[&](int r, int c, float sum)",
        f"if (first + r >= {s}) return;",
        "const float v[1] = {sum};",
        f"const int64_t row = {row};",
        f"const int col = {column} + c;",
        store,
    )
    return [
        "TX_SHARED(shared);",
        "float* memory = (float*)shared;",
        f"const int64_t tiles = {e.dim(ceildiv(h.s, rows))}, item = blockIdx.x / tiles;",
        f"const int64_t first = blockIdx.x % tiles * {rows};",
        attention.seen_keys(attention.sight(h), rows, t),
        f"{call}\n{attention.score(h, e, sizes, s)},\n{put});",
    ]
