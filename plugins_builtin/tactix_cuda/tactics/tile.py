"""Tiles of products: their shapes, what they cost, and the C text that multiplies one (see
lib/tile.cuh).

The main loop is that of CUTLASS for Ampere (its "multistage" one): ``cp.async`` brings stages of k
into a ring in shared memory, ``stages - 1`` of them ahead; warps read a stage by ``ldmatrix`` and
multiply by ``mma.sync`` (PTX ISA, "Asynchronous copy", "Warp-level matrix instructions"). A stage's
chunks of 16 bytes are permuted by XOR with their row (``tx_place``), so that the eight rows that
``ldmatrix`` reads at once lie in different banks.

What a tile costs is an estimate that puts tiles in order: the OFFERED first are timed where a GPU
is here, and without one the first is taken. Numbers that name no source below are as old as the
model, and no measurement of them is recorded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tactix.base.dtypes import DType
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import Variant
from tactix_codegen.c.text import block

KINDS = {DType.FP16: "f16", DType.BF16: "bf16", DType.FP32: "f32"}
"""How operands of a dtype are multiplied; ``tf32`` is another way for float32."""
BYTES = {DType.INT8: "i8", DType.UINT8: "u8"}
"""The same of 8-bit integers, which are multiplied by signed ones and summed in int32."""
PRELUDES = ("ptx.cuh", "tile.cuh")
CLOCK = 1.7e9
"""Cycles a second that estimates assume: between the 1.98e9 of an H200 and the 1.5e9 that it falls
to at 700 W (docs/benchmarks.md, "Single layers").
"""
LATENCY = 700
"""Cycles from the start of a copy to its arrival, mostly from the L2 cache. ``hopper.flow`` assumes
970 for its copies, where it was fitted to an H200.
"""
START = 2e-6
"""Seconds to start a kernel and to drain it. In a graph a launch by itself takes 0.7 us
(docs/cuda.md, "Choosing"); the rest stands for waves that begin and end.
"""
BANDWIDTH = 3e12
"""Bytes a second of the device's memory that estimates assume: between an A100 of 80 GB (2.0e12)
and an H200 (4.8e12; both of NVIDIA's data sheets).
"""
STORED = 64
"""Results that a block stores in a cycle once its tile is made."""
PRODUCTS = {"i8": 2048, "u8": 2048, "f16": 1024, "bf16": 1024, "tf32": 512, "f32": 128}
"""Products (a multiplication and an addition) that a multiprocessor makes in a cycle: by tensor
cores what an A100 has of dense ones (NVIDIA A100 whitepaper); in f32 those of 8.6 and later (CUDA
C++ Programming Guide, "Arithmetic Instructions"; 8.0 has 64, so there all f32 tiles look cheaper
than they are by the same factor).
"""
ON_HOPPER = 1.25
"""How many times more ``mma.sync`` makes on 9.0, an assumption. What is left of its tensor cores
takes ``wgmma``, which ``hopper.flow`` writes: 86 us in place of 163 for a product of BERT-base at
batch 128 (H200; docs/benchmarks.md, "Single layers").
"""
SHARED_BYTES = 128
"""Bytes that shared memory gives in a cycle: 32 banks of 4 (CUDA C++ Programming Guide, "Shared
Memory").
"""
EXACT_PER_BYTE = 2
"""Products of an exact tile for a byte that is read of shared memory."""
UNHIDDEN = ((8, 1.0), (4, 1.15), (1, 1.5))
"""(Warps of a block at least, how many times longer its products take): with fewer warps less of
one's latency is hidden by the others' products.
"""
BARRIER = 30
"""Cycles that a stage takes beside its products: the wait for copies and ``__syncthreads``."""
RESERVED = 1 << 10
"""Bytes of shared memory that each block takes beside its own (CUDA C++ Programming Guide, "Compute
Capability 8.x", "9.0": "Shared Memory").
"""
MOST_REGISTERS, OTHER_REGISTERS = 255, 60
"""Registers that a thread has at most (CUDA C++ Programming Guide, "Technical Specifications"), and
those for addresses and counters beside sums and operands.
"""
EXACT_THREADS = 256
"""Threads that a multiprocessor should hold at least of exact tiles (``__launch_bounds__``)."""
SPLITS, SPLIT_STAGES, SPLIT_BLOCKS = (1, 2, 4, 8), 3, 2
"""Parts of k that are tried; stages that each part has at least, as fewer are over before the ring
of stages is full; and blocks for each multiprocessor up to which k is cut, as more of them keep it
busy without.
"""
OFFERED = 8
"""Tiles that are offered for each likely size: each of them is compiled, checked and timed."""
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class BlockTile:
    """A block's tile of ``rows`` by ``cols``, by ``down`` x ``across`` warps, of ``slices`` of each
    stage of k.

    ``chunks``: 16 bytes each, of k in a stage; ``stages`` lie in shared memory. ``kind``: see
    KINDS. Slices (CUTLASS's "sliced k") give a small tile more warps: each of them multiplies every
    ``slices``-th step of k, and their sums are added in shared memory at the end.
    """

    rows: int
    cols: int
    chunks: int
    down: int
    across: int
    slices: int
    stages: int
    kind: str

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return 1 if self.is_integer else 2 if self.kind in ("f16", "bf16") else 4

    @property
    def is_integer(self) -> bool:
        """Whether sums are int32."""
        return self.kind in BYTES.values()

    @property
    def sum_type(self) -> str:
        """The C type of a sum."""
        return "int" if self.is_integer else "float"

    @property
    def depth(self) -> int:
        """Elements of k in a stage."""
        return self.chunks * 16 // self.size

    @property
    def threads(self) -> int:
        """Of a block: 32 for each warp of each slice."""
        return 32 * self.down * self.across * self.slices

    @property
    def stage_bytes(self) -> int:
        """Of a stage: 16 for each chunk of each row of a and column of b."""
        return (self.rows + self.cols) * self.chunks * 16

    @property
    def shared_bytes(self) -> int:
        """Shared memory: the stages, and later in their place what warps hand over.

        A warp brings 16 rows of its sums at a time into rows that results are stored from. Such a
        row has 8 sums more than columns: four rows of a store then begin 8 banks apart, and no
        two of a half warp's stores of 8 bytes meet in a bank.
        """
        handed = self.down * self.across * 16 * (self.cols // self.across + 8) * 4
        joined = self.rows * self.cols * 4 if self.slices > 1 else 0
        return max(self.stages * self.stage_bytes, handed, joined)

    @property
    def blocks(self) -> int:
        """Blocks that a multiprocessor should hold at least: exact tiles, which do not load the
        next step's operands ahead (``tx_exact``), hide latency by more warps.
        """
        return EXACT_THREADS // self.threads if self.kind == "f32" else 1

    @property
    def registers(self) -> int:
        """An estimate of what a thread needs: its sums, and the operands of two steps, as the next
        one's are loaded while one is multiplied (``tx_tensor``: 4 registers for 16 rows of a, 4 for
        16 columns of b).
        """
        rows, cols = self.rows // self.down, self.cols // self.across
        sums, operands = rows * cols // 32, (rows + cols) // 2
        return min(MOST_REGISTERS, sums + operands + OTHER_REGISTERS)

    def struct(self) -> str:
        """The constants that tx_product asks for."""
        values = {
            "DOWN": self.down,
            "ACROSS": self.across,
            "SLICES": self.slices,
            "STAGES": self.stages,
            "WARP_ROWS": self.rows // self.down,
            "WARP_COLS": self.cols // self.across,
            "STEPS": self.chunks // 2,
            "STAGE_BYTES": self.stage_bytes,
            "A_BYTES": self.rows * self.chunks * 16,
        }
        return (
            block(
                "struct TX_NAME(tile)", *(f"static const int {k} = {v};" for k, v in values.items())
            )
            + ";\n"
        )

    def warp(self, turned_a: bool = False, turned_b: bool = False) -> str:
        """The C type of a warp's part; turned: rows of that operand's stage run along k."""
        a = self.rows * self.size // 16 if turned_a else self.chunks
        b = self.cols * self.size // 16 if turned_b else self.chunks
        flags = f"{a}, {b}, {str(turned_a).lower()}, {str(turned_b).lower()}"
        shape = f"{self.rows // self.down}, {self.cols // self.across}, {flags}"
        return f"tx_exact<{shape}>" if self.kind == "f32" else f"tx_tensor<tx_{self.kind}, {shape}>"


def tile_of(variant: Variant) -> BlockTile:
    """The tile that a variant's knobs say."""
    rows, cols, chunks, down, across, slices, stages = map(
        variant.number, ("rows", "cols", "chunks", "down", "across", "slices", "stages")
    )
    kind = str(variant.knob("kind"))
    return BlockTile(rows, cols, chunks, down, across, slices, stages, kind)


_TENSOR = (  # rows, cols, chunks, down, across, slices, stages
    (256, 128, 4, 4, 2, 1, 4), (128, 256, 4, 2, 4, 1, 4), (256, 128, 8, 4, 2, 1, 3),
    (128, 256, 8, 2, 4, 1, 3), (128, 128, 8, 2, 4, 1, 3), (128, 128, 4, 2, 2, 1, 4),
    (128, 128, 8, 2, 2, 1, 3), (256, 64, 8, 4, 2, 1, 3), (128, 64, 8, 4, 2, 1, 3),
    (128, 64, 8, 2, 2, 1, 4), (64, 128, 8, 2, 4, 1, 4), (64, 64, 8, 2, 2, 1, 4),
    (64, 64, 8, 2, 2, 2, 4), (64, 64, 8, 2, 4, 1, 3), (64, 32, 8, 2, 2, 2, 5),
    (64, 32, 8, 4, 1, 1, 5), (32, 64, 8, 2, 2, 2, 5), (32, 128, 8, 1, 4, 1, 4),
    (32, 32, 8, 2, 1, 4, 6), (32, 32, 16, 2, 1, 4, 4), (16, 64, 16, 1, 2, 4, 4),
    (16, 128, 8, 1, 4, 2, 4), (16, 32, 16, 1, 1, 4, 5), (32, 16, 8, 2, 1, 4, 6),
)  # fmt: skip
"""Tiles of tensor cores, from those for the largest products to those for the fewest rows, chosen
by hand. Stages take up to 144 of the 163 KiB that a block of an A100 may have.
"""
_EXACT = (
    (128, 128, 4, 4, 2, 1, 3), (128, 128, 8, 4, 2, 1, 2), (128, 64, 8, 4, 1, 1, 2),
    (64, 128, 4, 2, 2, 1, 3), (64, 64, 8, 2, 1, 2, 3), (64, 64, 8, 2, 2, 1, 3),
    (32, 64, 8, 1, 2, 2, 3), (32, 32, 8, 1, 1, 4, 4), (16, 64, 8, 1, 2, 4, 4),
    (32, 128, 4, 1, 4, 1, 4),
)  # fmt: skip
"""The same of float32 without tensor cores: a thread has 64 sums of the largest."""


def tiles(kind: str, device: DeviceProperties) -> list[BlockTile]:
    """Every tile that the device has room for; one that does not tell has what every kernel may
    have without asking.
    """
    limit = int(device.facts.get("shared_per_block", 48 << 10))
    found = [BlockTile(*numbers, kind) for numbers in (_EXACT if kind == "f32" else _TENSOR)]
    return [t for t in found if t.shared_bytes <= limit]


@dataclass(frozen=True)
class ProductSizes:
    """A product's sizes at the shapes it is tuned for: ``batch`` times (m, k) by (k, n).

    ``stored``: elements of all a, where it has fewer than ``batch m k``, as windows do; 0: it has
    not.
    """

    batch: int
    m: int
    n: int
    k: int
    stored: int = 0


def seconds(w: ProductSizes, tile: BlockTile, splits: int, device: DeviceProperties) -> float:
    """An estimate: waves of blocks over the multiprocessors, each bound by products, shared memory
    or latency; all of it by the device's memory.

    With ``splits`` a second launch adds what the parts of k have left in memory in float32.
    """
    cores = max(1, device.cores)
    blocks = w.batch * -(-w.m // tile.rows) * -(-w.n // tile.cols) * splits
    stages = -(-w.k // (tile.depth * splits))
    per_stage = _stage_cycles(tile, device)
    resident = _resident(tile, device)
    waves, together = -(-blocks // (cores * resident)), min(resident, -(-blocks // cores))
    # a copy has the time of the stages ahead of it to arrive in: all but the one that is multiplied
    latency = LATENCY / max(1, tile.stages - 1)
    cycles = waves * stages * max(per_stage * together, latency) + waves * (
        LATENCY + tile.rows * tile.cols / STORED
    )
    traffic = tile.size * ((w.stored or w.batch * w.m * w.k) + w.batch * (w.k * w.n + w.m * w.n))
    reduce = START + w.batch * w.m * w.n * 4 * (splits + 1) / BANDWIDTH if splits > 1 else 0.0
    return START + max(cycles / CLOCK, traffic / BANDWIDTH) + reduce


def _stage_cycles(tile: BlockTile, device: DeviceProperties) -> float:
    """Cycles of one stage on a multiprocessor by itself."""
    products, rate = tile.rows * tile.cols * tile.depth, float(PRODUCTS[tile.kind])
    if tile.kind != "f32" and device.has("sm_90"):
        rate *= ON_HOPPER
    warp_rows, warp_cols = tile.rows // tile.down, tile.cols // tile.across
    read = tile.down * tile.across * (warp_rows + warp_cols) * tile.chunks * 16
    if tile.kind == "f32":
        read = products // EXACT_PER_BYTE
    longer = next(factor for warps, factor in UNHIDDEN if tile.threads >= 32 * warps)
    # what warps read of the stage, and what copies write of the next one, share the banks
    moved = (read + tile.stage_bytes) / SHARED_BYTES
    return max(products / rate * longer, moved) + BARRIER


def _resident(tile: BlockTile, device: DeviceProperties) -> int:
    """Blocks that a multiprocessor holds, by shared memory, registers and threads; a device that
    does not tell them has those of 7.5.
    """
    shared = int(device.facts.get("shared_per_multiprocessor", 64 << 10)) // (
        tile.shared_bytes + RESERVED
    )
    registers = int(device.facts.get("registers_per_multiprocessor", 65536)) // (
        tile.registers * tile.threads
    )
    threads = int(device.facts.get("threads_per_multiprocessor", 1024)) // tile.threads
    return max(1, min(shared, registers, threads))


def splits_for(w: ProductSizes, tile: BlockTile, device: DeviceProperties) -> tuple[int, ...]:
    """Numbers of parts of k worth trying: more only while multiprocessors are idle and stages are
    many.
    """
    blocks = w.batch * -(-w.m // tile.rows) * -(-w.n // tile.cols)
    stages = -(-w.k // tile.depth)
    most = SPLIT_BLOCKS * device.cores
    return tuple(
        s for s in SPLITS if s == 1 or (blocks * s <= most and stages // s >= SPLIT_STAGES)
    )


def best(
    works: Sequence[ProductSizes], found: Iterable[BlockTile], device: DeviceProperties
) -> list[tuple[BlockTile, int]]:
    """The tiles and splits of the least estimates over some likely shapes, and for each of them by
    itself.
    """
    times = {
        (tile, splits): [seconds(w, tile, splits, device) for w in works]
        for tile in found
        for splits in sorted({s for w in works for s in splits_for(w, tile, device)})
    }
    return in_turns(times)[: OFFERED * len(works)]


def in_turns(times: Mapping[K, Sequence[float]]) -> list[K]:
    """Choices by their seconds at some likely shapes: the best over all and those for each shape,
    then the second ones.

    What is tuned for is known only to those who choose among them: of several sizes the largest
    must not decide alone.
    """
    shapes = range(len(next(iter(times.values()), ())))
    orders = [sorted(times, key=lambda c: sum(times[c]))]
    if len(shapes) > 1:
        orders += [sorted(times, key=lambda c: times[c][i]) for i in shapes]
    return list(dict.fromkeys(c for turn in zip(*orders, strict=True) for c in turn))
