"""Attention by Hopper's matrix instructions and copy engine (see lib/hopper_attention.cuh); any
lengths, a mask.

One pass over the keys, as in FlashAttention: sums are scaled when a greater score comes. A block
keeps the queries of its teams in shared memory and takes keys and values through a ring of stages,
with ``full`` and ``empty`` barriers as in ``flow``. One thread of the last team fetches: with a
causal mask that team sees all the keys that any does, and leaves no stage out.

Knobs: ``teams`` of 64 query rows each, ``keys`` of a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import heads as c_heads
from tactix_codegen.c.heads import Heads, Matrices
from tactix_codegen.cuda import entry, text
from tactix_codegen.cuda.results import WIDTH
from tactix_cuda.tactics import attention
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.hopper.flow import DEPTH, TEAM, FlowEntry
from tactix_cuda.tactics.tile import RESERVED
from tactix_cuda.tensor_maps import ROW, TensorMap

KINDS = {DType.FP16: "tx_wide_f16", DType.BF16: "tx_wide_bf16"}
PRELUDES = (*hopper.PRELUDES, "wide.cuh", "attention.cuh", "hopper_attention.cuh")
OPTIONS = ((2, 64), (1, 64), (1, 128), (2, 128), (3, 64), (3, 128))
"""Teams, and keys of a stage, chosen by hand: one team for few rows, several that share each stage
for more; stages of 128 keys halve the waits, but double the scores that a thread holds.
"""
MANY_ROWS = 512
"""Rows of queries from which on three teams are tried in small heads: stages are then fetched a
third as often, and where the other blocks leave a second wave half empty, there is none.
"""
STAGES, FEW = 4, 3
"""Stages of keys and values that are wanted; and those that are enough, where more blocks then fit
on a multiprocessor.
"""
SHARED = 228 << 10
"""Bytes of shared memory of a multiprocessor of 9.0 (CUDA C++ Programming Guide, "Technical
Specifications").
"""
REGISTERS, OTHERS = 1 << 16, 48
"""Registers of a multiprocessor (the same), and of a thread beside scores and results."""
CYCLES, LOADED = 900, 2200
"""What ``cost`` assumes: cycles of 64 rows of queries against 64 keys, in heads of up to 64; of a
block's loads of queries and stores. No measurement of them is recorded; for comparison, ``flow``
reckons with 362 cycles for these products alone.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HopperAttentionTactic()]


class HopperAttentionTactic(Tactic[Heads]):
    """float16 and bfloat16, sums in float32; dims up to 128, rows that start at multiples of 16
    bytes.
    """

    key = "tactix.cuda_hopper_attention@1"
    implements = c_heads.LAYERS
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Heads | Reject:
        h = attention.heads(node)
        if isinstance(h, Reject):
            return h
        if not hopper.usable(h.dtype, device):
            return Reject(f"no matrix instructions of sm_90a for {h.dtype.value} on this device")
        if not all(text.divides(8, m.pitch, m.start, *m.strides) for m in (h.q, h.k, h.v)):
            return Reject("it takes rows that start at multiples of 16 bytes")
        if h.tokens and h.e % WIDTH:
            return Reject(f"this kernel writes {WIDTH} columns at a time, the heads have {h.e}")
        return h

    def variants(self, h: Heads, device: DeviceProperties) -> Sequence[Variant]:
        limit = int(device.facts["shared_per_block"])
        # no stage of twice the keys there are, three teams only for large heads or many rows, and
        # no team without rows
        few = [(t, n) for t, n in OPTIONS if not isinstance(h.t, int) or n == 64 or h.t > 64]
        few = [
            (t, n)
            for t, n in few
            if _shared(h, t, n) <= limit and (t < 3 or _is_large(h)) and _fits(h, t, n)
        ]
        few = [(t, n) for t, n in few if not isinstance(h.s, int) or h.s > 64 * (t - 1)]
        return [Variant.of(teams=t, keys=n) for t, n in few]

    def cost(self, h: Heads, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(prod((*h.lead, h.s, h.t))) <= set(ctx.opt):
            return None
        # waves of resident blocks, each with its stages one after the other; or all of it by the
        # device's memory: two bytes an element of queries, keys and values, and the results
        lead, own, s, t = (evaluate(d, ctx.opt) for d in (prod(h.lead), prod(h.k.count), h.s, h.t))
        teams, keys = variant.number("teams"), variant.number("keys")
        blocks, resident = lead * -(-s // (64 * teams)), _resident(h, teams, keys)
        waves = -(-blocks // (resident * max(1, ctx.device.cores)))
        work = -(-t // keys) * keys / 64 * CYCLES * _parts(h.d, h.e) / 2
        results = sum(v.spec.dtype.itemsize for v in h.node.outputs)
        traffic = 2 * (lead * s * h.d + own * t * (h.d + h.e)) + results * lead * s * h.e
        return hopper.STARTED + max(
            waves * (work + LOADED) / hopper.CLOCK, traffic / hopper.BANDWIDTH
        )

    def compile(self, h: Heads, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        teams, keys = variant.number("teams"), variant.number("keys")
        e, rows, sees = FlowEntry(h.node, teams * TEAM), 64 * teams, attention.sight(h)
        maps = [e.map_input(m.index, _map(h, m, *of)) for m, of in _operands(h, rows, keys)]
        weights = attention.weighing(h, e, sees, e.size("S", h.s))
        head = ", ".join(_coordinates(h, e, m) for m in (h.q, h.k, h.v))
        given = f"{', '.join(maps)}, head, (int)first, keys, memory, {attention.CALLED}"
        call = f"tx_attend_teams<{KINDS[h.dtype]}, TX_NAME(heads)>({given});"
        own = [*attention.place(h, e, sees, rows), f"const tx_head head = {{{head}}};"]
        body = [*own, *weights, attention.put(h, e), call]
        struct = attention.constants(
            {
                "ROWS": rows,
                "KEYS": keys,
                "STAGES": _stages(h, teams, keys),
                "DEPTH": -(-h.d // 16) * 16,
                "WIDE": _parts(h.e) * DEPTH,
                **sees.constants(),
            },
            hopper.multiply(keys, hopper.KINDS[h.dtype]),
        )
        launch = e.launch(prod(h.lead) * ceildiv(h.s, rows), _shared(h, teams, keys))
        texts = [struct + e.kernel(*body, blocks=_resident(h, teams, keys), wait="")]
        made = entry.artifact(texts, [launch], [e], ctx, more=PRELUDES)
        return replace(made, params={**made.params, "maps": [[m.to_json() for _, _, m in e.maps]]})


def _is_large(h: Heads) -> bool:
    """Whether heads have more than 64 columns, or many rows of queries."""
    return _parts(h.d, h.e) > 2 or not isinstance(h.s, int) or h.s >= MANY_ROWS


def _fits(h: Heads, teams: int, keys: int) -> bool:
    """Whether a thread has registers for its scores and results; three teams have 168 each."""
    return teams < 3 or teams * TEAM * _registers(h, keys) <= REGISTERS


def _parts(*widths: int) -> int:
    """Rows of 128 bytes that so many columns take."""
    return sum(-(-w // DEPTH) for w in widths)


def _laid(h: Heads, teams: int, keys: int) -> tuple[int, int]:
    """Bytes of the queries, aligned to 1024 bytes, and of a stage with its barriers."""
    queries = hopper.REPEATED + teams * 64 * ROW * _parts(h.d)
    return queries, keys * ROW * _parts(h.d, h.e) + hopper.BARRIERS


def _stages(h: Heads, teams: int, keys: int) -> int:
    """Stages of keys and values in shared memory: for the sake of more blocks no fewer than FEW."""
    wanted = min(STAGES, -(-h.t // keys)) if isinstance(h.t, int) else STAGES
    queries, stage = _laid(h, teams, keys)
    fitting = [
        (SHARED // n - RESERVED - queries) // stage
        for n in range(_blocks_by_registers(h, teams, keys), 0, -1)
    ]
    return min(wanted, next((n for n in fitting if n >= min(FEW, wanted)), max(2, fitting[-1])))


def _shared(h: Heads, teams: int, keys: int) -> int:
    """Bytes of queries and stages; or of the results on their way, in rows of 8 floats more than
    columns, as in ``BlockTile.shared_bytes``.
    """
    queries, stage = _laid(h, teams, keys)
    return max(
        queries + _stages(h, teams, keys) * stage, teams * 64 * (_parts(h.e) * DEPTH + 8) * 4
    )


def _resident(h: Heads, teams: int, keys: int) -> int:
    """Blocks that a multiprocessor has registers and shared memory for."""
    return max(
        1, min(_blocks_by_registers(h, teams, keys), SHARED // (_shared(h, teams, keys) + RESERVED))
    )


def _blocks_by_registers(h: Heads, teams: int, keys: int) -> int:
    """Blocks that a multiprocessor has registers for."""
    return max(1, REGISTERS // (teams * TEAM * _registers(h, keys)))


def _registers(h: Heads, keys: int) -> int:
    """Of a thread: a team's 128 share 64 x ``keys`` scores and 64 results for each column of v, 64
    columns a part. Where there is one stage, scores are over when results begin.
    """
    scores, results, once = keys // 2, _parts(h.e) * 32, isinstance(h.t, int) and h.t <= keys
    return OTHERS + (max(scores, results) if once else scores + results)


def _operands(h: Heads, rows: int, keys: int) -> list[tuple[Matrices, tuple[Dim, int, int]]]:
    """q, k and v: how many rows there are, of how many columns, and how many rows a block takes at
    a time.
    """
    return [(h.q, (h.s, h.d, rows)), (h.k, (h.t, h.d, keys)), (h.v, (h.t, h.e, keys))]


def _map(h: Heads, m: Matrices, rows: Dim, width: int, box: int) -> TensorMap:
    batch, heads = m.count
    strides = tuple(2 * n for n in (m.pitch, m.strides[1], m.strides[0]))
    return TensorMap(
        h.dtype, (width, rows, heads, batch), strides, (DEPTH, box, 1, 1), offset=2 * m.start
    )


def _coordinates(h: Heads, e: FlowEntry, m: Matrices) -> str:
    """The C text of a head's place along the map's axes of heads and batches."""
    heads, sharing = e.dim(h.lead[1]), m.sharing(h.lead)
    head = f"item % {heads}" + (f" / {sharing}" if sharing > 1 else "")
    places = (f"(int)({head})", f"(int)(item / {heads})")
    return ", ".join("0" if n == 1 else p for n, p in zip(m.count[::-1], places, strict=True))
