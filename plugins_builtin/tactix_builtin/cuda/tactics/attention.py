"""Attention in one pass over the keys on tensor cores (see kernels/attention.cuh): any lengths, a mask that broadcasts.

Knobs: ``warps`` of 16 query rows each, ``keys`` of a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import Dim, Shape, broadcast_shapes, ceildiv, evaluate, prod, symbols
from tactix.words.dtypes import DType
from tactix.words.errors import ShapeError
from tactix_builtin.cuda.tactics import results, tile
from tactix_builtin.cuda.tactics.entry import Entry, artifact
from tactix_builtin.cuda.tactics.gemm import piece
from tactix_builtin.cuda.tactics.results import Rows
from tactix_builtin.tactics.c_epilogue import Epilogue, epilogue
from tactix_builtin.tactics.c_scalar import element, float_literal
from tactix_builtin.tactics.c_text import block, broadcast_strides
from tactix_builtin.tactics.c_tile import flat

MAX_DIM = 128
HIDDEN = -6e4
"""A constant mask at or below it hides a key beside one whose mask is above VISIBLE."""
VISIBLE = -1e4
KINDS = {DType.FP16: "tx_f16", DType.BF16: "tx_bf16"}


@dataclass(frozen=True)
class Heads:
    """q: (b, h, s, d), k: (b, h, t, d), v: (b, h, t, e) at given inputs; strides along (b, h) count matrices.

    ``mask``: given input, or -1, with its strides along (b, h, s, t). ``ahead``: the mask is a constant that hides
    from row i all keys after i + ahead; None: it is not.
    """

    q: int
    k: int
    v: int
    mask: int
    lead: Shape
    q_strides: Shape
    k_strides: Shape
    v_strides: Shape
    mask_strides: Shape
    s: Dim
    t: Dim
    d: int
    e: int
    scale: float
    nan_to_zero: bool
    ahead: int | None
    dtype: DType
    epi: Epilogue


def heads(node: Node) -> Heads | Reject:
    """What an Attention node, fused or not, computes; or why this kernel cannot take it."""
    epi, anchor = epilogue(node, vector=False), node.anchor
    if isinstance(epi, Reject):
        return epi
    assert anchor is not None
    q, k, v, *masks = (node.given[i].spec for i in anchor.inputs if i >= 0)
    if len({q.dtype, k.dtype, v.dtype}) != 1 or q.dtype not in KINDS:
        return Reject("this kernel takes 16-bit floats")
    d, e = q.shape[3] if isinstance(q.shape[3], int) else k.shape[3], v.shape[3]
    if not isinstance(d, int) or not isinstance(e, int) or not 0 < d <= MAX_DIM or not 0 < e <= MAX_DIM:
        return Reject(f"this kernel takes known dims up to {MAX_DIM}")
    t = k.shape[2] if isinstance(k.shape[2], int) else v.shape[2]
    if reason := results.why_not(epi):
        return Reject(reason)
    try:
        lead = broadcast_shapes(q.shape[:2], k.shape[:2], v.shape[:2])
        of_q, of_k, of_v = (broadcast_strides(x.shape[:2], lead) for x in (q, k, v))
        mask: Shape = broadcast_strides(masks[0].shape, (*lead, q.shape[2], t)) if masks else (0, 0, 0, 0)
    except ShapeError as problem:
        return Reject(str(problem))
    at_q, at_k, at_v, *at_mask = anchor.inputs
    return Heads(
        at_q, at_k, at_v, at_mask[0] if masks else -1, lead, of_q, of_k, of_v, mask, q.shape[2], t, d, e,
        anchor.attrs.scale, anchor.attrs.nan_to_zero, hidden_after(masks[0].const) if masks else None, q.dtype, epi,
    )  # fmt: skip


def hidden_after(mask: Any) -> int | None:
    """``ahead`` of a constant mask (..., s, t) that hides from every row i all keys after i + ahead, but not that."""
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
    return ahead if hides and bool((x[..., np.arange(s), np.arange(s) + ahead] > VISIBLE).all()) else None


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [AttentionTactic()]


class AttentionTactic(Tactic):
    """float16 and bfloat16, sums in float32; dims up to 128, symbolic batch, heads and lengths."""

    key = "tactix.cuda_attention@1"
    implements = ("tactix.Attention@1",)
    device = "cuda"
    source = "cuda_c"
    native = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        h = heads(node)
        if isinstance(h, Reject):
            return h
        if not device.has("sm_80"):
            return Reject("this kernel needs asynchronous copies")
        limit = int(device.facts.get("shared_per_block", 48 << 10))
        options = [(4, 64), (8, 64), (2, 64), (4, 32), (4, 128), (1, 64)]
        return [Variant.of(warps=w, keys=n) for w, n in options if _shared(h, w, n) <= limit]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        h = heads(node)
        assert isinstance(h, Heads)
        size = prod((*h.lead, h.s, h.t))
        if not symbols(size) <= set(ctx.opt):
            return None
        lead, s, t = (evaluate(d, ctx.opt) for d in (prod(h.lead), h.s, h.t))
        warps, keys = int(variant.knob("warps")), int(variant.knob("keys"))
        blocks, stages = lead * -(-s // (16 * warps)), -(-t // keys)
        room = max(
            1,
            min(16 // warps, int(ctx.device.facts.get("shared_per_multiprocessor", 65536)) // _shared(h, warps, keys)),
        )
        waves = -(-blocks // (room * max(1, ctx.device.cores)))
        together = min(room, -(-blocks // max(1, ctx.device.cores)))
        products = 16 * warps * keys * (h.d + h.e) / 1024 + 16 * warps * keys / 16
        return tile.START + waves * (stages * max(products * together, tile.LATENCY) + 2 * tile.LATENCY) / tile.CLOCK

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        h = heads(node)
        assert isinstance(h, Heads)
        return _compile(h, node, variant, ctx)


def _chunks(dim: int) -> int:
    """Chunks of 16 bytes of a row in shared memory: a power of two."""
    return max(2, 1 << (-(-dim // 8) - 1).bit_length())


def _shared(h: Heads, warps: int, keys: int) -> int:
    d, e = _chunks(h.d) * 16, _chunks(h.e) * 16
    return max(16 * warps * d + 2 * keys * (d + e), warps * 16 * (-(-h.e // 16) * 16 + 8) * 4)


def _struct(h: Heads, warps: int, keys: int) -> str:
    """The constants that tx_attend asks for."""
    values = {
        "ROWS": 16 * warps, "THREADS": 32 * warps, "KEYS": keys, "DEPTH": -(-h.d // 16) * 16,
        "WIDE": -(-h.e // 16) * 16, "DEPTH_CHUNKS": _chunks(h.d), "WIDE_CHUNKS": _chunks(h.e),
        "DEPTH_PIECE": piece(h.d, 2), "WIDE_PIECE": piece(h.e, 2), "DEPTH_BYTES": h.d * 2, "WIDE_BYTES": h.e * 2,
    }  # fmt: skip
    return block("struct TX_NAME(heads)", *(f"static const int {k} = {v};" for k, v in values.items())) + ";\n"


def _compile(h: Heads, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
    warps, keys = int(variant.knob("warps")), int(variant.knob("keys"))
    e, rows = Entry(node, 32 * warps), 16 * warps
    s, t = e.dim(h.s), e.dim(h.t)
    sizes = [e.dim(d) for d in h.lead]

    def matrix(index: int, strides: Shape, height: str, width: int) -> str:
        item = flat("item", sizes, strides, e)
        pointer = e.input(index)
        return pointer if item == "0" else f"{pointer} + ({item}) * {height} * {width}"

    store = Rows(e, node, h.epi, (*h.lead, h.s), h.e).store()
    none = "0.0f" if h.nan_to_zero else "TX_NAN"
    operands = ", ".join(
        (matrix(h.q, h.q_strides, s, h.d), matrix(h.k, h.k_strides, t, h.d), matrix(h.v, h.v_strides, t, h.e))
    )
    call = f"tx_attend<{KINDS[h.dtype]}, TX_NAME(heads)>({operands}, first, {s}, keys, {t}, memory, {none},"
    put = block("[&](int r, int c, const float* v)", f"if (first + r >= {s}) return;",
                f"const int64_t row = item * {s} + first + r;", "const int col = c;", store)  # fmt: skip
    body = [
        "TX_SHARED(memory);",
        f"const int64_t tiles = {e.dim(ceildiv(h.s, rows))}, item = blockIdx.x / tiles;",
        f"const int64_t first = blockIdx.x % tiles * {rows};",
        _keys(h, rows, t),
        f"{call}\n{_score(h, e, sizes, s)},\n{put});",
    ]
    shared = _shared(h, warps, keys)
    launch = e.launch(prod(h.lead) * ceildiv(h.s, rows), shared)
    return artifact(
        [_struct(h, warps, keys) + e.kernel(*body)], [launch], [e], ctx, more=(*tile.PRELUDES, "attention.cuh")
    )


def _keys(h: Heads, rows: int, t: str) -> str:
    """Declare how many keys the block's rows look at."""
    if h.ahead is None:
        return f"const int64_t keys = {t};"
    return f"const int64_t seen = first + {rows + h.ahead}, keys = seen < {t} ? seen : {t};"


def _score(h: Heads, e: Entry, sizes: Sequence[str], s: str) -> str:
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
