"""FewBitsMatMul in CUDA: few rows times constant weights of 4 or 8 bits, which plans and kernels
keep as they are, with any epilogue.

A plan has the weights as the network does, in another order of bytes: ``[panel][chunk][lane]``, 16
bytes for each of 32 lanes, so that a warp reads 512 bytes in one access. A panel is 32 columns of
the result, a chunk 32 numbers along k. Scales and zero points lie ``[panel][block][column]``. A
warp keeps a ring of chunks in shared memory, ``stages`` - 1 of them on the way by ``cp.async``, and
makes numbers of them in registers, which tensor cores multiply (lib/few_bits.cuh).

x in float16 or bfloat16 is multiplied as it is, float32 as the sum of three bfloat16 numbers, which
is exact. Sums are float32; those of a chunk get the block's scale.
Knobs: ``tiles``, of eight rows of x (two of float32), that a warp takes with each weight that it
reads; ``slices``: warps that share the k of a panel; ``stages`` of a warp's ring, of ``step``
chunks each: what a turn of the loop takes beside its products is shared by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tactix.base.dims import ceildiv, evaluate, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c.text import block
from tactix_codegen.cuda import results, text
from tactix_codegen.cuda.entry import KernelEntry, artifact
from tactix_codegen.cuda.results import RowResults
from tactix_codegen.operations.few_bits import few_bits
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.few_bits_panels import PanelledFewBits

PANEL, CHUNK = 32, 32
"""Columns of a panel; numbers of a chunk along k."""
LANE_ROWS, GROUPS, LANE_PARTS = 4, 8, 4
"""A lane holds of LANE_ROWS columns, GROUPS apart, one of LANE_PARTS parts of a chunk."""
BITS = (4, 8)
KINDS = {DType.FP16: "f16", DType.BF16: "bf16", DType.FP32: "bf16"}
"""In which floats numbers are multiplied, by the dtype of x."""
SCALES = (DType.FP32, DType.FP16, DType.BF16)
WARPS = 8
"""Of a block at least."""
TILES, SLICES = (1, 2, 4, 8), (8, 4, 16, 2, 1)
FEW_TILES = 4
"""Tiles below which x is read too little to be worth that more panels share it than slices do."""
RINGS = {4: ((2, 4), (4, 3), (4, 4), (1, 8)), 8: ((1, 4), (2, 3), (2, 4), (4, 3))}
"""Steps and stages, by bits."""
BUSY_LATENCY = 2 * tile.LATENCY
"""Cycles that a copy takes where all multiprocessors ask for as much as memory gives."""
L2_BANDWIDTH = 5.5e12
"""Bytes a second from the L2 cache that estimates assume. No measurement of it is on record."""
AHEAD = 32 << 10
"""Bytes of shared memory for the x of a block's warps, up to which they have all of it: then the
constants are asked for before the kernel that makes x is over.
"""
PITCH = 36
"""``tx_few_bits::PITCH``."""
CHUNK_CYCLES, TURN_CYCLES, TILE_CYCLES = 50, 50, 14
"""Instructions of a warp for a chunk, for a turn of the loop, and for each tile of a chunk: read in
the machine code of 9.0.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaFewBitsTactic()]


class CudaFewBits(PanelledFewBits):
    """How weights lie in panels and chunks."""

    panel, chunk = PANEL, CHUNK

    @property
    def chunks_of_block(self) -> int:
        return -(-self.block // CHUNK)

    @property
    def rows_of_tile(self) -> int:
        """Rows of x in eight slots of the right matrix."""
        return 2 if self.dtype is DType.FP32 else 8


def cuda_few_bits(node: Node) -> CudaFewBits | Reject:
    """What a node computes, or why this kernel cannot take it."""
    work = few_bits(node, CudaFewBits, KINDS, SCALES, vector=False)
    if isinstance(work, Reject):
        return work
    if work.bits not in BITS or (work.block % CHUNK and work.blocks != 1):
        return Reject(f"this kernel takes 4 or 8 bits, in blocks of {CHUNK} numbers or a multiple")
    reason = results.why_not(work.epi)
    return Reject(reason) if reason else work


class CudaFewBitsTactic(Tactic[CudaFewBits]):
    """Any sizes; rows may be symbolic."""

    key = "tactix.cuda_few_bits@1"
    implements = ("tactix.FewBitsMatMul@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True
    spreads = True
    """Infinities in a row of x leave no number: zero points are taken off by sums of it, and parts
    of float32 are differences.
    """

    def match(self, node: Node, device: DeviceProperties) -> CudaFewBits | Reject:
        return cuda_few_bits(node)

    def variants(self, p: CudaFewBits, device: DeviceProperties) -> Sequence[Variant]:
        most = int(device.facts["shared_per_block"])
        found = [v for v in _choices(p) if _Layout(p, v).shared <= most]
        rows = p.m if isinstance(p.m, int) else 1
        return sorted(found, key=lambda v: _seconds(p, v, rows, device))[: tile.OFFERED]

    def cost(self, p: CudaFewBits, variant: Variant, ctx: CompileContext) -> float | None:
        if not symbols(p.m) <= set(ctx.opt):
            return None
        return _seconds(p, variant, evaluate(p.m, ctx.opt), ctx.device)

    def compile(self, p: CudaFewBits, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        layout = _Layout(p, variant)
        e = KernelEntry(p.node, 32 * layout.warps)
        body = _body(e, layout)
        launch = e.launch(ceildiv(p.m, layout.rows) * layout.columns, layout.shared)
        texts = [_struct(layout), e.kernel(*body, blocks=layout.resident, wait="")]
        more = ("ptx.cuh", "pairs.cuh", "few_bits.cuh")
        return artifact(texts, [launch], [e], ctx, more=more)


def _choices(p: CudaFewBits) -> list[Variant]:
    return [
        Variant.of(tiles=tiles, slices=slices, step=step, stages=stages)
        for tiles in _tiles(p)
        for slices in _slices(p)
        for step, stages in RINGS[p.bits]
        if step <= -(-p.chunks // slices) and (slices >= FEW_TILES or tiles >= FEW_TILES)
    ]


def _tiles(p: CudaFewBits) -> list[int]:
    """None of which is empty by itself."""
    if not isinstance(p.m, int):
        return list(TILES)
    need = -(-p.m // p.rows_of_tile)
    return [t for t in TILES if t == 1 or t < 2 * need]


def _slices(p: CudaFewBits) -> list[int]:
    """None of which has nothing to do."""
    return [s for s in SLICES if s <= FEW_TILES or s <= p.chunks]


class _Layout:
    """How a variant shares the work. ``rows`` of x a block has, ``per``: chunks of a warp,
    ``step``: chunks of a stage, ``share``: of these with the same scales, ``columns``: blocks
    beside each other, ``groups``: panels of a block, ``rings``: of x in shared memory, for a
    warp each or for those that have the same part of k.
    """

    def __init__(self, p: CudaFewBits, variant: Variant) -> None:
        self.p = p
        self.tiles, self.slices = variant.number("tiles"), variant.number("slices")
        self.step, self.stages = variant.number("step"), variant.number("stages")
        self.warps = max(WARPS, self.slices)
        self.groups = self.warps // self.slices
        most = self.tiles * p.rows_of_tile
        self.rows = min(most, p.m) if isinstance(p.m, int) else most
        self.per = -(-p.chunks // self.slices)
        self.per = -(-self.per // self.step) * self.step
        self.share = math.gcd(self.step, p.chunks_of_block)
        self.columns = -(-p.panels // self.groups)
        line = self.rows * CHUNK * p.dtype.itemsize
        self.ahead = self.warps * self.per * line <= AHEAD
        self.rings = self.warps if self.ahead else self.slices
        sets = self.step // self.share
        stage = self.step * p.bits * 128 + sets * 32 * (p.scale_bytes() + p.zero_bytes())
        rows = self.per * line if self.ahead else self.stages * self.step * line
        used = self.warps * self.stages * stage + self.rings * rows
        self.shared = max(used, self.warps * self.slots * PITCH * 4)

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has registers for: the compiler is told so."""
        small = self.step < 4 and self.p.dtype is not DType.FP32
        of_eight_warps = {1: 4 if small else 3, 2: 2}.get(self.tiles, 1)
        return max(1, of_eight_warps * WARPS // self.warps)

    @property
    def slots(self) -> int:
        """``tx_few_bits::SLOTS``."""
        odd = self.rows - 1
        return odd // 2 * 8 + odd % 2 * 3 + 3 if self.p.dtype is DType.FP32 else self.rows


def _seconds(p: CudaFewBits, v: Variant, rows: int, device: DeviceProperties) -> float:
    """An estimate: constants once from memory, as far as enough is on the way, and for each further
    tile of rows from the L2 cache; or the instructions, or one warp's way along k, whichever takes
    longest.
    """
    layout, cores = _Layout(p, v), max(1, device.cores)
    down = -(-rows // layout.rows)
    stored = p.n * p.k * p.bits / 8 + p.n * p.blocks * (p.scale_bytes() + p.zero_bytes())
    each = CHUNK_CYCLES + TURN_CYCLES / layout.step + TILE_CYCLES * layout.tiles
    fitting = max(1, int(device.facts["shared_per_multiprocessor"]) // layout.shared)
    together = cores * min(fitting, layout.resident)
    blocks = down * layout.columns
    issue = -(-blocks // cores) * layout.warps * layout.per * each / (4 * tile.CLOCK)
    waves = -(-blocks // together)
    idle = waves * together / blocks if waves > 1 else 1.0
    flying = layout.step * (layout.stages - 1)
    chain = waves * layout.per * max(2 * each, tile.LATENCY / flying)
    copies = layout.groups if layout.ahead else 1
    near = stored * (down - 1) + copies * blocks * layout.rows * p.k * p.dtype.itemsize
    asked = min(blocks, together) * layout.warps * flying * p.bits * 128
    bandwidth = min(tile.BANDWIDTH, asked * tile.CLOCK / BUSY_LATENCY)
    memory = stored / bandwidth + near / L2_BANDWIDTH
    most = max(memory * idle, issue, chain / tile.CLOCK)
    return float(tile.START + most)


def _pack_weights(p: CudaFewBits) -> Packed:
    """As [panel][chunk][lane][16 bytes]; of 8 bits as [panel][chunk][half of the panel][lane][16
    bytes].
    """
    part, halves = CHUNK * p.bits // 8 // LANE_PARTS, p.bits // 4
    split = (p.panels, halves, LANE_ROWS // halves, GROUPS, p.chunks, LANE_PARTS, part)
    return p.packed_weights(split, (0, 4, 1, 3, 5, 2, 6))


def _struct(layout: _Layout) -> str:
    p = layout.p
    values = {
        "BITS": p.bits,
        "TILES": layout.tiles,
        "ROWS": layout.rows,
        "STAGES": layout.stages,
        "STEP": layout.step,
        "SHARE": layout.share,
        "PER": layout.per,
        "EVEN": int(p.chunks % layout.per == 0),
        "K": p.k,
        "BLOCK": p.chunks_of_block,
        "BLOCKS": p.blocks,
        "SCALE": p.scale_bytes(),
        "ZERO": p.zero_bytes(),
        "AHEAD": int(layout.ahead),
        "GROUP": layout.warps // layout.rings,
    }
    about = {
        "TILES": "of eight slots of x",
        "ROWS": "of x that a block has",
        "STEP": "chunks of a stage",
        "SHARE": "chunks of a stage that have the same scales",
        "PER": "chunks of a warp",
        "EVEN": "whether all warps have so many",
        "BLOCK": "chunks that share a scale",
        "SCALE": "bytes of a scale",
        "ZERO": "bytes of a zero point, none if it is mid-range",
        "AHEAD": "whether a warp has all of its x in shared memory",
        "GROUP": "warps that have x together",
    }
    element = "float" if p.dtype is DType.FP32 else "uint16_t"
    types = (f"typedef tx_bits_{KINDS[p.dtype]} numbers;", f"typedef {element} element;")
    return text.struct("bits", values, about, *types)


def _body(e: KernelEntry, layout: _Layout) -> list[str]:
    p = layout.p
    x = e.input(p.inputs[0])
    w = e.constant("w", _pack_weights(p), DType.UINT8)
    s = e.constant("s", p.packed_blocks(p.inputs[2], GROUPS, p.blocks), p.scale_dtype)
    z = "nullptr"
    if p.inputs[3] >= 0:
        dtype = p.node.given[p.inputs[3]].spec.dtype
        zeros = e.constant("z", p.packed_blocks(p.inputs[3], GROUPS, p.blocks), dtype)
        z = f"(const char*){zeros}"
        z += f" + (int64_t)panel * {p.blocks} * work::ZEROS"
    m = e.size("M", p.m)
    ring = "warp" if layout.rings == layout.warps else "slice"
    rank = "threadIdx.x % 32"
    if layout.rings < layout.warps:
        rank += f" + warp / {layout.slices} * 32"
    return [
        "typedef tx_few_bits<TX_NAME(bits)> work;",
        "TX_SHARED(memory);",
        f"const int warp = threadIdx.x / 32, slice = warp % {layout.slices};",
        f"const int panel0 = blockIdx.x % {layout.columns} * {layout.groups};",
        f"const int64_t row0 = (int64_t)(blockIdx.x / {layout.columns}) * {layout.rows};",
        f"const int left = (int)({m} - row0 < {layout.rows} ? {m} - row0 : {layout.rows});",
        f"const int panel = panel0 + warp / {layout.slices}, first = slice * {layout.per};",
        f"const int end = first + {layout.per} < {p.chunks} ? first + {layout.per} : {p.chunks};",
        f"const int last = panel < {p.panels} ? end : 0;",
        "work task;",
        f"task.w = (const char*){w} + (int64_t)panel * {p.chunks} * work::WEIGHTS;",
        f"task.s = (const char*){s} + (int64_t)panel * {p.blocks} * work::SCALES;",
        f"task.z = {z};",
        f"task.x = {x} + row0 * {p.k}, task.left = left, task.own = memory + warp * work::RING;",
        f"task.rows = memory + {layout.warps} * work::RING + {ring} * work::X_RING;",
        f"task.rank = {rank};",
        f"float sum[{layout.tiles}][2][4] = {{}};",
        "task.add(sum, first, last, end);",
        "__syncthreads();",
        "float* part = (float*)memory;",
        "work::put(sum, part + warp * work::SLOTS * work::PITCH);",
        "__syncthreads();",
        *_results(e, layout),
    ]


def _results(e: KernelEntry, layout: _Layout) -> list[str]:
    """The sums of all slices through the epilogue, eight a thread."""
    p, each = layout.p, PANEL // results.WIDTH
    part = f"part + (group * {layout.slices} + s) * work::SLOTS * work::PITCH"
    body = [
        f"const int c = t % {each} * {results.WIDTH}, r = t / {each} % {layout.rows};",
        f"const int group = t / {each * layout.rows}, col = (panel0 + group) * {PANEL} + c;",
        "const int64_t row = row0 + r;",
        "if (r >= left) continue;",
        f"float v[{results.WIDTH}] = {{}};",
        f"for (int s = 0; s < {layout.slices}; s++) work::take(v, {part}, r, c);",
        RowResults(e, p.node, p.epi, p.lead, p.n).store(),
    ]
    total = layout.groups * layout.rows * each
    return [block(f"for (int t = threadIdx.x; t < {total}; t += {32 * layout.warps})", *body)]
