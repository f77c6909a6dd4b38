"""Attention in one pass over the keys on tensor cores (see lib/attention.cuh): any lengths, a mask
that broadcasts.

Knobs: ``warps`` of 16 query rows each, ``keys`` of a stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import heads as c_heads
from tactix_codegen.c.heads import Heads, Matrices
from tactix_codegen.c.scalar import element, float_literal
from tactix_codegen.c.text import block
from tactix_codegen.c.tile import flat
from tactix_codegen.cuda import results
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import RowResults
from tactix_codegen.cuda.text import struct
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.gemm import piece

MAX_DIM = 128
"""Columns of q and v of a head; ``attention_f32`` takes larger ones."""
HIDDEN = -6e4
"""A constant mask at or below it hides a key beside one whose mask is above VISIBLE: weights are
exponentials, and those of differences below -104 are 0 in float32. Masks of float16 reach -65504.
"""
VISIBLE = -1e4
"""See HIDDEN: 5e4 between the two is far more than scores differ by."""
LOG2E = math.log2(math.e)
CACHED = 32 << 20
"""Bytes of keys and values that a device's cache keeps while row tiles of all lengths read them:
less than the L2 of an A100 (40 MiB) and an H200 (60); smaller devices keep fewer, and read some
again.
"""
RESIDENT = 16
"""Warps that a multiprocessor holds, of 128 registers a thread (65,536 of a multiprocessor; CUDA
C++ Programming Guide, "Technical Specifications").
"""
PRODUCTS, POWERS = 1024, 16
"""That a multiprocessor makes in a cycle: products as ``tile.PRODUCTS`` has them, and powers of
two, which go through units of their own (CUDA C++ Programming Guide, "Arithmetic Instructions").
"""
ABOUT = {
    "ROWS": "query rows of a block",
    "THREADS": "of a block",
    "KEYS": "keys of a stage",
    "DEPTH": "columns of q and k, in whole 16",
    "WIDE": "columns of v, in whole 16",
    "DEPTH_CHUNKS": "chunks of 16 bytes of a row of q or k in shared memory",
    "WIDE_CHUNKS": "of a row of v",
    "DEPTH_PIECE": "bytes of a copy out of q or k",
    "WIDE_PIECE": "out of v",
    "DEPTH_BYTES": "bytes of a row of q or k",
    "WIDE_BYTES": "of a row of v",
    "SCORED": "whether single scores are changed, as by a mask",
    "CAUSAL": "whether row i sees no key behind i + AHEAD",
    "AHEAD": "keys behind key i that row i sees, where CAUSAL",
    "STAGES": "in shared memory",
}
"""What the constants are that kernels ask for."""
CALLED = "none, factor, score, put"
"""What ``weighing`` and ``put`` declare, as kernels take it."""
KINDS = {DType.FP16: "tx_f16", DType.BF16: "tx_bf16"}


def heads(
    node: Node, dtypes: Sequence[DType] = tuple(KINDS), most: int = MAX_DIM
) -> Heads | Reject:
    """What the node computes; or why a kernel of those dtypes and dims cannot take it."""
    h = c_heads.heads(node, dtypes, most, vector=False)
    if isinstance(h, Heads) and (reason := results.why_not(h.epi)):
        return Reject(reason)
    return h


@dataclass(frozen=True)
class Sight:
    """Which keys rows see: row i those up to i + ``ahead`` at most, all if None; ``causal``: all of
    these.

    ``scored``: something is done to single scores; otherwise weights are powers of the products
    themselves.
    """

    ahead: int | None
    causal: bool
    scored: bool

    def constants(self) -> dict[str, int]:
        """What the kernels ask for."""
        ahead = self.ahead if self.causal and self.ahead is not None else 0
        return {"SCORED": int(self.scored), "CAUSAL": int(self.causal), "AHEAD": ahead}


def sight(h: Heads) -> Sight:
    """Of the node's mask; one that is causal is not read."""
    mask, raised = h.node.given[h.mask].spec.const if h.mask >= 0 else None, 1e-30 < h.scale < 1e30
    causal = raised and is_causal(mask)
    return Sight(hidden_after(mask), causal, not raised or (h.mask >= 0 and not causal))


def hidden_after(mask: Any) -> int | None:
    """If a constant mask (..., s, t) hides from every row i all keys after i + n, but not that one:
    n, else None.
    """
    import numpy as np

    if mask is None or mask.ndim < 2 or mask.shape[-1] < 2 or mask.shape[-2] < 2:
        return None
    s, t = mask.shape[-2:]
    ahead = t - s
    if ahead < 0:
        return None
    rows, keys = np.arange(s)[:, None] + ahead, np.arange(t)[None, :]
    x = mask.astype(np.float32)
    hides = bool((np.broadcast_to(keys > rows, x.shape) <= (x <= HIDDEN)).all())
    return (
        ahead
        if hides and bool((x[..., np.arange(s), np.arange(s) + ahead] > VISIBLE).all())
        else None
    )


def is_causal(mask: Any) -> bool:
    """Whether a constant mask (..., s, t) hides from row i the keys after i + t - s, and does
    nothing else.
    """
    import numpy as np

    if mask is None or hidden_after(mask) is None:
        return False
    s, t = mask.shape[-2:]
    later = np.arange(t) > np.arange(s)[:, None] + (t - s)
    return bool(np.where(later, mask <= HIDDEN, mask == 0).all())


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaAttentionTactic()]


class CudaAttentionTactic(Tactic[Heads]):
    """float16 and bfloat16, sums in float32; dims up to 128, symbolic batch, heads and lengths."""

    key = "tactix.cuda_attention@1"
    implements = c_heads.LAYERS
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Heads | Reject:
        return heads(node)

    def variants(self, h: Heads, device: DeviceProperties) -> Sequence[Variant]:
        limit = int(device.facts.get("shared_per_block", 48 << 10))
        options = [(4, 64), (8, 64), (2, 64), (4, 32), (4, 128), (1, 64)]
        return [Variant.of(warps=w, keys=n) for w, n in options if _shared(h, w, n) <= limit]

    def cost(self, h: Heads, variant: Variant, ctx: CompileContext) -> float | None:
        """Seconds: waves of blocks, each of which has stages of keys; a stage takes its products'
        cycles, times the blocks on a multiprocessor, or the wait for its copies if that is longer.
        """
        size = prod((*h.lead, h.s, h.t))
        if not symbols(size) <= set(ctx.opt):
            return None
        lead, s, t = (evaluate(d, ctx.opt) for d in (prod(h.lead), h.s, h.t))
        warps, keys = variant.number("warps"), variant.number("keys")
        blocks, stages = lead * -(-s // (16 * warps)), -(-t // keys)
        resident = max(
            1,
            min(
                RESIDENT // warps,
                int(ctx.device.facts.get("shared_per_multiprocessor", 65536))
                // _shared(h, warps, keys),
            ),
        )
        waves = -(-blocks // (resident * max(1, ctx.device.cores)))
        together = min(resident, -(-blocks // max(1, ctx.device.cores)))
        # cycles of a stage: products of 16 rows a warp with keys and values, and their weights
        scores = 16 * warps * keys
        products = scores * (h.d + h.e) / PRODUCTS + scores / POWERS
        return (
            tile.START
            + waves
            * (stages * max(products * together, tile.LATENCY) + 2 * tile.LATENCY)
            / tile.CLOCK
        )

    def compile(self, h: Heads, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _compile(h, variant, ctx)


def _chunks(dim: int) -> int:
    """Chunks of 16 bytes of a row in shared memory: a power of two, since ``tx_place`` permutes
    them by XOR.
    """
    return max(2, 1 << (-(-dim // 8) - 1).bit_length())


def _shared(h: Heads, warps: int, keys: int) -> int:
    """Bytes of shared memory: 16 rows of queries a warp, and two stages of keys and values; or, in
    their place, the results on their way, in rows of 8 floats more than columns, as in
    ``BlockTile.shared_bytes``.
    """
    d, e = _chunks(h.d) * 16, _chunks(h.e) * 16
    return max(16 * warps * d + 2 * keys * (d + e), warps * 16 * (-(-h.e // 16) * 16 + 8) * 4)


def _struct(h: Heads, sees: Sight, warps: int, keys: int) -> str:
    """The constants that tx_attend asks for."""
    return constants(
        {
            "ROWS": 16 * warps,
            "THREADS": 32 * warps,
            "KEYS": keys,
            "DEPTH": -(-h.d // 16) * 16,
            "WIDE": -(-h.e // 16) * 16,
            "DEPTH_CHUNKS": _chunks(h.d),
            "WIDE_CHUNKS": _chunks(h.e),
            "DEPTH_PIECE": min(_piece(h.q, h.d), _piece(h.k, h.d)),
            "WIDE_PIECE": _piece(h.v, h.e),
            "DEPTH_BYTES": h.d * 2,
            "WIDE_BYTES": h.e * 2,
            **sees.constants(),
        }
    )


def constants(values: Mapping[str, int], *more: str) -> str:
    """The C text of a struct that a kernel asks for numbers; ``more``: functions."""
    return struct("heads", values, ABOUT, *more)


def _piece(m: Matrices, width: int) -> int:
    """Bytes of the largest aligned access that fits every row."""
    known = [n for n in (width, m.pitch, m.start, m.strides[1]) if isinstance(n, int)]
    return piece(math.gcd(*known), 2) if isinstance(m.pitch, int) else 2


def _compile(h: Heads, variant: Variant, ctx: CompileContext) -> KernelArtifact:
    warps, keys = variant.number("warps"), variant.number("keys")
    e, rows, sees = KernelEntry(h.node, 32 * warps), 16 * warps, sight(h)
    s, t = e.size("S", h.s), e.size("T", h.t)
    operands, weights = matrices(h, e), weighing(h, e, sees, s)
    given = f"{operands}, first, {s}, keys, {t}, memory, {CALLED}"
    call = f"tx_attend<{KINDS[h.dtype]}, TX_NAME(heads)>({given});"
    body = [*place(h, e, sees, rows), *weights, put(h, e), call]
    launch = e.launch(prod(h.lead) * ceildiv(h.s, rows), _shared(h, warps, keys))
    text = _struct(h, sees, warps, keys) + e.kernel(*body)
    return artifact([text], [launch], [e], ctx, more=(*tile.PRELUDES, "attention.cuh"))


def place(h: Heads, e: KernelEntry, sees: Sight, rows: int) -> list[str]:
    """Declare shared memory, the block's head ``item``, its ``first`` row, and the ``keys`` that
    its rows look at.

    The last rows come first: the products that were made last are in the cache still. Where later
    rows see more keys, those of many heads come first, so that the last blocks are short.
    """
    tiles = e.size("TILES", ceildiv(h.s, rows))
    own = (
        [f"const int64_t item = block / {tiles}, tile = block % {tiles};"]
        if sees.ahead is None
        else _longest(h, e)
    )
    return [
        "TX_SHARED(memory);",
        "// a block: ROWS query rows from `first` on, of head `item`; the last rows come first",
        "const int64_t block = gridDim.x - 1 - blockIdx.x;",
        *own,
        f"const int64_t first = tile * {e.size('ROWS', rows)};",
        seen_keys(sees, rows, e.size("T", h.t)),
    ]


def _longest(h: Heads, e: KernelEntry) -> list[str]:
    """Declare head and row tile of a block: those of as many heads as the cache keeps in turn, tile
    by tile.
    """
    many = max(1, CACHED // (2 * h.t * (h.d + h.e))) if isinstance(h.t, int) else 1
    all_heads = e.dim(prod(h.lead))
    return [
        f"const int64_t part = block / ({many} * TILES), past = block % ({many} * TILES);",
        f"const int64_t left = {all_heads} - part * {many}, "
        f"together = left < {many} ? left : {many};",
        f"const int64_t item = part * {many} + past % together, tile = past / together;",
    ]


def put(h: Heads, e: KernelEntry) -> str:
    """Declare ``put``, which stores eight results."""
    part = h.e if h.tokens and h.e % results.WIDTH else 0
    store = RowResults(e, h.node, h.epi, h.rows, h.width, part=part).store(is_whole=not h.tokens)
    row, column = h.place(e, "item", "first + r")
    function = block(
        "const auto put = [&](int r, int c, const float* v)",
        f"if (first + r >= {e.size('S', h.s)} || c >= {h.e}) return;",
        f"const int64_t row = {row};",
        f"const int col = {e.sum(column, 'c')};",
        f"const int end = col - c + {h.e};" if part else "",
        store,
    )
    return f"// stores columns c to c + {results.WIDTH - 1} of row r of the block\n{function};"


def weighing(h: Heads, e: KernelEntry, sees: Sight, s: str) -> list[str]:
    """Declare what a row without weights is multiplied by (``none``), the ``factor`` of scores, and
    their ``score``.

    Weights are powers of two, for which processors have an instruction: exp(x) = 2 ** (x log2(e)).
    """
    none = f"const float none = {'0.0f' if h.nan_to_zero else 'TX_NAN'};"
    if sees.scored:
        factor, text, function = LOG2E, "log2(e)", score(h, e, [e.dim(d) for d in h.lead], s)
    else:
        function = block("[&](float x, int, int64_t)", "return x;")
        factor, text = h.scale * LOG2E, f"{h.scale:.6g} log2(e)"
    return [
        f"{none}  // what a row is multiplied by that sees no key",
        f"const float factor = {float_literal(factor)};  // {text}: weights are powers of two",
        f"const auto score = {function};",
    ]


def matrices(h: Heads, e: KernelEntry) -> str:
    """Pointers to q, k and v of the head ``item``, and their pitches."""
    parts = (h.q, h.k, h.v)
    pointers = (m.pointer(e, "item", h.lead) for m in parts)
    return ", ".join((*pointers, *(e.dim(m.pitch) for m in parts)))


def seen_keys(sees: Sight, rows: int, t: str) -> str:
    """Declare how many keys the block's rows look at."""
    if sees.ahead is None:
        return f"const int64_t keys = {t};"
    return f"const int64_t seen = first + {rows + sees.ahead}, keys = seen < {t} ? seen : {t};"


def score(h: Heads, e: KernelEntry, sizes: Sequence[str], s: str) -> str:
    """The function that scales and masks one score."""
    scaled = f"x * {float_literal(h.scale)}"
    if h.mask < 0:
        return block("[&](float x, int, int64_t)", f"return {scaled};")
    lead = flat("item", sizes, h.mask_strides[:2], e)
    offset = e.offset(h.mask_strides[2:], ["row", "t"])
    place = e.sum(f"({lead})" if lead != "0" else "0", offset)
    mask = element(e.node.given[h.mask].spec.dtype, f"{e.input(h.mask)}[{place}]")
    row = f"const int64_t row = first + r < {s} ? first + r : {s} - 1;"
    return block("[&](float x, int r, int64_t t)", row, f"return {scaled} + {mask};")
