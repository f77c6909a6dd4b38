"""FewBitsMatMul of one row in CUDA, near the speed of memory.

``few_bits.py`` multiplies eight rows at the cost of one. Here tensor cores have eight parts of k in
place of rows (lib/few_bits_gemv.cuh), so that a weight takes half the instructions. Weights lie
``[panel][chunk][load][lane]``, 16 bytes for each lane; a panel is 16 columns of the result, a chunk
256 numbers along k. Scales and zero points lie ``[panel][block][column % 8][column / 8]``.

A warp asks for the first ``stages`` chunks before it waits for the kernel that makes x. A block
leaves room for others beside it: those of the next kernel, too, ask for their weights while this
one computes.

Knobs: ``panels`` of a block, one after the other; ``slices``: warps that share their k; ``stages``
of a warp's ring, a chunk each.
"""

from __future__ import annotations

from collections.abc import Sequence

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

PANEL, CHUNK, PARTS = 16, 256, 8
"""Columns of a panel; numbers of a chunk along k, and its parts, which have a scale each."""
HALVES, GROUPS, LANE_PARTS = 2, 8, 4
"""A lane has of HALVES columns, GROUPS apart, two parts of a chunk, LANE_PARTS apart."""
PART = CHUNK // PARTS
KINDS = {(DType.FP16, 4): "f16", (DType.FP16, 8): "f16", (DType.BF16, 4): "bf16"}
"""In which floats numbers are multiplied, by the dtype of x and bits."""
SCALES = (DType.FP32, DType.FP16, DType.BF16)
SLICES, PANELS, STAGES = (4, 7, 8, 14, 16), (1, 2, 4), (1, 2, 3, 4, 6, 8)
KEPT = 4
"""Panels of a block from which on x stays in registers from one to the next."""
WHOLE_REGISTERS, RING_REGISTERS, KEPT_REGISTERS = {4: 64, 8: 84}, {4: 84, 8: 100}, 128
"""Of a thread, by bits: where all of its chunks are on the way at once, where others follow them,
and where x stays.
"""
BLOCK_INSTRUCTIONS, X_INSTRUCTIONS, CHUNK_INSTRUCTIONS = 100, 40, {4: 120, 8: 135}
"""Of a warp: once, for a chunk of x, and for a chunk of weights by bits; read in the machine code
of 9.0.
"""
BANDWIDTH, UNHIDDEN, CHAIN, SECOND_WAVE = 4.8e12, 0.56, 1.05e-7, 0.73e-6
FLYING, SLOWER = 64 << 10, 0.21
"""Bytes a second; what instructions add of the time that they take; seconds of a warp's way through
a chunk, and of blocks that begin after others; bytes on the way for each multiprocessor from which
on memory gives no more, and what it lacks with none. Fitted to 200 timings of six products on an
H200: of each product one of the OFFERED cheapest was within 0.2 % of the fastest.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaFewBitsGemvTactic()]


class GemvFewBits(PanelledFewBits):
    """How weights lie in panels and chunks."""

    panel, chunk = PANEL, CHUNK

    @property
    def sets(self) -> int:
        """Blocks of a chunk."""
        return max(1, CHUNK // self.block) if self.blocks > 1 else 1

    @property
    def span(self) -> int:
        """Chunks of a block."""
        return max(1, self.block // CHUNK) if self.blocks > 1 else self.chunks

    @property
    def stored_blocks(self) -> int:
        """Of a panel: chunks are whole."""
        return self.chunks * self.sets if self.sets > 1 else -(-self.chunks // self.span)


class CudaFewBitsGemvTactic(Tactic[GemvFewBits]):
    """One row that is known to be one: each further one would read the weights again."""

    key = "tactix.cuda_few_bits_gemv@1"
    implements = ("tactix.FewBitsMatMul@1",)
    device = "cuda"
    source = "cuda_c"
    by_signature = True
    spreads = True
    """Infinities in a row of x leave no number: zero points are taken off by sums of it."""

    def match(self, node: Node, device: DeviceProperties) -> GemvFewBits | Reject:
        p = few_bits(node, GemvFewBits, {t for t, _ in KINDS}, SCALES, vector=False)
        if isinstance(p, Reject):
            return p
        if (p.dtype, p.bits) not in KINDS:
            return Reject(f"this kernel does not take {p.bits} bits beside {p.dtype.value}")
        if p.blocks > 1 and (p.block % PART or (CHUNK % p.block and p.block % CHUNK)):
            return Reject(f"this kernel takes blocks of {PART} times a power of two")
        if p.m != 1:
            return Reject("this kernel takes one row")
        reason = results.why_not(p.epi)
        return Reject(reason) if reason else p

    def variants(self, p: GemvFewBits, device: DeviceProperties) -> Sequence[Variant]:
        most = int(device.facts["shared_per_block"])
        found = [v for v in _choices(p) if _Layout(p, v).shared <= most]
        return sorted(found, key=lambda v: _seconds(p, v, device))[: tile.OFFERED]

    def cost(self, p: GemvFewBits, variant: Variant, ctx: CompileContext) -> float:
        return _seconds(p, variant, ctx.device)

    def compile(self, p: GemvFewBits, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        layout = _Layout(p, variant)
        e = KernelEntry(p.node, layout.threads)
        body = _body(e, layout)
        launch = e.launch(layout.columns, layout.shared)
        resident = layout.resident(ctx.device)
        texts = [_struct(layout), e.kernel(*body, blocks=resident, wait="")]
        return artifact(texts, [launch], [e], ctx, more=("ptx.cuh", "few_bits_gemv.cuh"))


def _choices(p: GemvFewBits) -> list[Variant]:
    """Rings that are no longer than what a warp does; odd slices where they are even shares."""
    return [
        Variant.of(panels=panels, slices=slices, stages=stages)
        for panels in PANELS
        for slices in SLICES
        for stages in STAGES
        if (slices <= p.chunks or slices == SLICES[0])
        and (slices % 7 or p.chunks % slices == 0)
        and (panels <= p.panels or panels == 1)
        and stages <= -(-p.chunks // slices) * panels
    ]


class _Layout:
    """How a variant shares the work. ``per``: chunks of a warp; ``columns``: blocks beside each
    other; ``stage``, ``own``: bytes of shared memory of a chunk and of a warp; ``part``: floats of
    its sums.
    """

    def __init__(self, p: GemvFewBits, variant: Variant) -> None:
        self.p = p
        self.panels, self.slices = variant.number("panels"), variant.number("slices")
        self.stages = variant.number("stages")
        self.threads = 32 * self.slices
        self.per = -(-p.chunks // self.slices)
        self.columns = -(-p.panels // self.panels)
        self.is_even = p.k == self.slices * self.per * CHUNK and p.panels % self.panels == 0
        self.stage = p.bits * 512 + p.sets * PANEL * (p.scale_bytes() + p.zero_bytes())
        x = self.per * (CHUNK * p.dtype.itemsize + PARTS * 4)
        self.own = self.stages * self.stage + 64 + x
        self.part = self.panels * PANEL
        self.shared = self.slices * (self.own + 4 * self.part)

    def resident(self, device: DeviceProperties) -> int:
        """Blocks that a multiprocessor has shared memory and registers for."""
        shared = int(device.facts["shared_per_multiprocessor"]) // (self.shared + tile.RESERVED)
        each = KEPT_REGISTERS
        if self.panels < KEPT:
            is_whole = self.stages == self.per * self.panels
            each = (WHOLE_REGISTERS if is_whole else RING_REGISTERS)[self.p.bits]
        most = int(device.facts["registers_per_multiprocessor"]) // (each * self.threads)
        return max(1, min(shared, most))


def _seconds(p: GemvFewBits, v: Variant, device: DeviceProperties) -> float:
    """An estimate: constants from memory, slower where little is on the way, instructions beside,
    and a warp's way.
    """
    layout, cores = _Layout(p, v), max(1, device.cores)
    stored = p.n * p.k * p.bits / 8 + p.n * p.blocks * (p.scale_bytes() + p.zero_bytes())
    blocks = layout.columns
    together = cores * layout.resident(device)
    flying = min(blocks, together) * layout.slices * layout.stages * layout.stage
    chunks = layout.per * layout.panels
    warp = BLOCK_INSTRUCTIONS + layout.per * X_INSTRUCTIONS + chunks * CHUNK_INSTRUCTIONS[p.bits]
    issue = blocks * layout.slices * warp / (4 * cores * tile.CLOCK)
    waves = blocks / together
    lacks = max(0.0, 1 - flying / (cores * FLYING))
    memory = stored / BANDWIDTH * (1 + SLOWER * lacks)
    waits = CHAIN * chunks * max(1.0, waves) + (SECOND_WAVE if waves > 1 else 0.0)
    return float(tile.START + memory + UNHIDDEN * issue + waits)


def _pack_weights(p: GemvFewBits) -> Packed:
    """As [panel][chunk][load][lane][16 bytes]."""
    split = (p.panels, HALVES, GROUPS, p.chunks, PARTS // LANE_PARTS, LANE_PARTS, p.bits, 4)
    return p.packed_weights(split, (0, 3, 6, 2, 5, 4, 1, 7))


def _struct(layout: _Layout) -> str:
    p = layout.p
    values = {
        "BITS": p.bits,
        "PANELS": layout.panels,
        "STAGES": layout.stages,
        "PER": layout.per,
        "EVEN": int(layout.is_even),
        "KEPT": int(layout.panels >= KEPT),
        "CHUNKS": p.chunks,
        "K": p.k,
        "SETS": p.sets,
        "SPAN": p.span,
        "BLOCKS": p.stored_blocks,
        "SCALE": p.scale_bytes(),
        "ZERO": p.zero_bytes(),
    }
    about = {
        "PER": "chunks of a warp",
        "EVEN": "whether all warps have so many, all whole, and all blocks all panels",
        "KEPT": "whether x stays in registers from panel to panel",
        "SETS": "of scales of a chunk",
        "SPAN": "chunks that have the same scales",
        "BLOCKS": "of a panel",
        "SCALE": "bytes of a scale",
        "ZERO": "bytes of a zero point, none if it is mid-range",
    }
    kind = KINDS[p.dtype, p.bits]
    return text.struct("gemv", values, about, f"typedef tx_gemv_{kind}<{p.bits}> numbers;")


def _body(e: KernelEntry, layout: _Layout) -> list[str]:
    p = layout.p
    x = e.input(p.inputs[0])
    w = e.constant("w", _pack_weights(p), DType.UINT8)
    s = e.constant("s", p.packed_blocks(p.inputs[2], GROUPS, p.stored_blocks), p.scale_dtype)
    z = "nullptr"
    if p.inputs[3] >= 0:
        dtype = p.node.given[p.inputs[3]].spec.dtype
        zeros = e.constant("z", p.packed_blocks(p.inputs[3], GROUPS, p.stored_blocks), dtype)
        z = f"(const char*){zeros}"
        z += f" + panel * {p.stored_blocks * PANEL * p.zero_bytes()}"
    return [
        "typedef tx_few_bits_gemv<TX_NAME(gemv)> work;",
        "TX_SHARED(memory);",
        f"const int warp = threadIdx.x / 32, first = warp * {layout.per};",
        f"const int64_t panel = (int64_t)blockIdx.x * {layout.panels}, row = 0;",
        "work task;",
        f"task.w = (const char*){w} + panel * {p.chunks} * work::WEIGHTS;",
        f"task.s = (const char*){s} + panel * {p.stored_blocks * PANEL * p.scale_bytes()};",
        f"task.z = {z};",
        f"task.x = {x}, task.own = memory + warp * work::OWN;",
        f"task.panels = (int)({p.panels} - panel);",
        f"const int end = first + {layout.per};",
        f"float sum[{layout.panels}][2] = {{}};",
        f"task.add(sum, first, end < {p.chunks} ? end : {p.chunks});",
        f"float* parts = (float*)(memory + {layout.slices} * work::OWN);",
        f"work::put(sum, parts + warp * {layout.part});",
        "__syncthreads();",
        *_results(e, layout),
    ]


def _results(e: KernelEntry, layout: _Layout) -> list[str]:
    """The sums of all slices through the epilogue, one a thread."""
    p, part = layout.p, layout.part
    body = [
        f"const int col = (int)panel * {PANEL} + t;",
        "float v[1] = {0.0f};",
        "#pragma unroll",
        f"for (int s = 0; s < {layout.slices}; s++) v[0] += parts[s * {part} + t];",
        RowResults(e, p.node, p.epi, p.lead, p.n).store(1),
    ]
    return [block(f"for (int t = threadIdx.x; t < {part}; t += {layout.threads})", *body)]
