"""Products by Hopper's matrix instructions: tiles, what they cost, and the text of the kernel.

For targets with ``sm_90a`` alone: the instructions are those of no other architecture. See
lib/hopper_flow.cuh.

The schedule is what CUTLASS calls warp-specialized: one thread asks the copy engine (TMA) for
stages of k, and teams of four warps multiply them by ``wgmma``, which reads shared memory by itself
(PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). Two barriers (``mbarrier``) of each
stage stand between them:

- ``full`` counts bytes: the fetching thread says how many it expects (``expect_tx``), the copy
  engine takes off what has arrived, and waiting for the phase's end makes the bytes visible.
- ``empty`` counts teams that are done with a stage. A team says so once the product *after* has
  been committed and at most one is under way (``wgmma.wait_group 1``): products are asynchronous,
  so a stage is read until its group is over.

``wgmma.fence`` stands before a stage's products, since their sums are registers that other
instructions wrote; products that add to the same sums one after the other need none between them.

Teams share a tile (CUTLASS's "cooperative" kernels) or, with ``alternate``, have one each and
multiply by turns ("ping-pong"), so that one stores while the other multiplies. Blocks of more than
one team are persistent: as many as there are multiprocessors, each with one tile after the other,
so that stages of the next tile arrive while the last one is stored. With ``splits`` blocks of a
cluster have a part of k each, and read each other's sums through distributed shared memory: one
launch where ``tactics.tile`` needs two and a workspace.

Two blocks of a cluster that are ``paired`` have tiles one under the other, so the same columns:
each fetches half of them into the shared memory of both (``.multicast::cluster``), which halves
what columns ask of the second cache. A stage is then filled by both blocks: ``full`` counts the
bytes of both, and ``empty`` the teams of both, since neither may fill a stage that the other one
still reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import Dim, ceildiv, dmax, dmin, mod
from tactix.base.dtypes import DType
from tactix.base.tensor import Format
from tactix.contracts.artifact import (
    Arg,
    KernelArtifact,
    Launch,
    Packed,
    constant,
    tensor_in,
    workspace,
)
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c.epilogue import EpilogueOperand
from tactix_codegen.c.text import block, indent
from tactix_codegen.cuda import entry
from tactix_codegen.cuda.results import WIDTH, RowResults
from tactix_codegen.cuda.text import struct
from tactix_cuda.tactics.tile import RESERVED, ProductSizes, in_turns
from tactix_cuda.tensor_maps import ROW, TensorMap

FEATURE = "sm_90a"
ON_A_LINE = 8
"""WgmmaTypes of an instruction that stand on one line of a kernel's text."""
ABOUT = {
    "ROWS": "of a tile of y",
    "COLS": "columns of a tile",
    "STAGES": "of 128 bytes of k, in shared memory",
    "TEAMS": "of four warps, which multiply",
    "BLOCKS": "of 64 rows, of a team",
    "ALTERNATE": "whether each team has a tile of its own",
    "SPLITS": "parts of k, one for each block of a cluster",
    "PAIRED": "whether two blocks of a cluster fetch columns for each other",
    "CLUSTER": "blocks of a cluster",
    "LAID": "bytes of what a team needs of its columns, beside sums",
    "STAGE_BYTES": "rows and columns of a stage",
    "A_BYTES": "the rows of a stage, in front of its columns",
    "PITCH": "sums from row to row, where blocks of a cluster hand them over",
    "EACH": "runs of eight sums whose operands are loaded at a time",
}
"""What the constants are that tx_flow asks for."""


@dataclass(frozen=True)
class WgmmaTypes:
    """How ``wgmma`` multiplies: a of type ``a`` by b of type ``b``, each of ``size`` bytes, summed
    in ``sum`` (types as PTX names them).
    """

    a: str
    b: str
    size: int
    sum: str

    @property
    def depth(self) -> int:
        """Elements of k in a stage."""
        return ROW // self.size

    @property
    def is_integer(self) -> bool:
        """Whether sums are int32."""
        return self.sum == "s32"

    @property
    def sum_type(self) -> str:
        """The C type of a sum."""
        return "int" if self.is_integer else "float"


KINDS = {t: WgmmaTypes(t.value, t.value, 2, "f32") for t in (DType.FP16, DType.BF16)}
"""How operands of a dtype are multiplied."""
BYTES = {
    DType.INT8: WgmmaTypes("s8", "s8", 1, "s32"),
    DType.UINT8: WgmmaTypes("u8", "s8", 1, "s32"),
}
"""The same of 8-bit integers, which are multiplied by signed ones."""
FLOATS8 = {
    DType.FP8: WgmmaTypes("e4m3", "e4m3", 1, "f32"),
    DType.FP8E5M2: WgmmaTypes("e5m2", "e5m2", 1, "f32"),
}
"""The same of 8-bit floats."""
HALVES = KINDS[DType.FP16]
PRELUDES = ("ptx.cuh", "tile.cuh", "hopper.cuh", "hopper_flow.cuh")
DEPTH = HALVES.depth
"""Elements of two bytes of k in a stage: a row of 128 bytes, the widest that the copy engine
permutes and that ``wgmma`` reads permuted (PTX ISA, "Shared Memory Matrix Layout", 128-Byte
swizzle)."""
TEAM = 128
"""Threads that multiply together: a warpgroup."""
REPEATED = 1024
"""Bytes after which the permutation of chunks of 16 bytes repeats: eight rows of 128. Stages begin
at multiples, since ``tx_operand`` leaves the base offset of ``wgmma``'s descriptors at 0 (PTX ISA,
"Matrix Descriptor Format").
"""
BARRIERS = 16
"""Bytes of a stage's two barriers."""
HELD_AT_ONCE = 128
"""Bytes of operands that a thread holds at once, 32 registers, where these are small."""
HELD_SIZE = 2
"""Bytes of an element up to which operands are held in registers."""
LAID = 4096
"""Bytes of shared memory for what a team's columns need; the largest tiles leave more than twice
that.
"""
OFFERED = 8
"""Flows that are offered for each likely size: each of them is compiled, checked and timed."""
PAIRS_IN_TURN, PAIRS_TOGETHER = 2, 1
"""Flows of paired blocks offered beside them: those whose teams alternate, and others."""

CLOCK = 2e9
"""Cycles a second: an H200 runs at 1.98e9 where power does not hold it back (docs/benchmarks.md,
"Single layers"). This and the next ones were fitted together, to timings of kernels on an H200 that
are not kept: a number by itself is no measurement of what it is named after.
"""
STARTED = 1.4e-6
"""Seconds to start a kernel and to drain it."""
MET = 0.5e-6
"""Seconds that paired blocks take more: 0.3 to 0.8 us of products of 1024 rows on an H200."""
LATENCY = 970
"""Cycles from asking for a stage until it is there."""
COPIED = 52
"""Bytes that come into a multiprocessor's shared memory in a cycle."""
MULTIPLIED = 1450
"""Products of two bytes that a multiprocessor makes in a cycle. With CLOCK and 132 of them that is
766 TFLOPS; cuBLASLt's best of 8192 x 8192 x 8192 in float16 was 757 on an H200. Of bytes it makes
twice as many (NVIDIA H100 whitepaper)."""
STORED = 3.4
"""Results that a block brings through its epilogue in a cycle."""
BANDWIDTH = 3.2e12
"""Bytes a second of the device's memory; a copy reaches 4.3e12 on an H200."""
CROWDED, DISTURBED = 1.35, 0.2
"""How much longer several blocks take over their stages on one multiprocessor; and the part of the
shorter one of copying and multiplying that is not hidden under the other."""
SPLIT_STAGES = 2
"""Stages of k that each part has at least: with one nothing comes while something is multiplied."""


@dataclass(frozen=True)
class Flow:
    """How a kernel makes tiles of ``rows`` by ``cols``, with ``stages`` of k in shared memory.

    ``teams`` multiply, on one tile together, or on a tile each if ``alternate``. ``splits``: blocks
    of a cluster that have a part of k each. ``paired``: whether two blocks of a cluster have tiles
    one under the other, and fetch their columns for each other.

    A block's shared memory: the stages, each of ``rows`` rows of a and then ``cols`` of b of 128
    bytes, from the first multiple of 1024 on; behind them the ``full`` and the ``empty`` barriers,
    8 bytes each. With ``splits`` sums lie where the stages were.
    """

    rows: int
    cols: int
    stages: int
    teams: int
    alternate: bool
    splits: int
    paired: bool = False

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return 2 if self.paired else self.splits

    @property
    def tall(self) -> int:
        """Rows of the tiles of a cluster."""
        return self.rows * (2 if self.paired else 1)

    def down(self, rows: int) -> int:
        """Clusters that make so many rows of the same columns."""
        return -(-rows // self.tall)

    @property
    def fetched_cols(self) -> int:
        """Columns of a stage that a block fetches."""
        return self.cols // 2 if self.paired else self.cols

    @property
    def blocks(self) -> int:
        """Times 64: rows of a team."""
        return self.rows // 64 // (1 if self.alternate else self.teams)

    @property
    def threads(self) -> int:
        """The teams, and one more that asks for stages: one thread does, but registers are given
        away by whole warpgroups (PTX ISA, ``setmaxnreg``). Where there is one team, nothing is
        given away, and a warp is enough.
        """
        return self.teams * TEAM + (TEAM if self.teams > 1 else 32)

    @property
    def stage_bytes(self) -> int:
        """Of a stage: ROW of each row of a and column of b."""
        return (self.rows + self.cols) * ROW

    def ahead(self, each: int) -> int:
        """Of how many runs of eight sums the operands, ``each`` bytes for a run, are loaded at a
        time: as many as divide a thread's runs, up to 8, or more in 32 registers.
        """
        runs = self.blocks * self.cols // 16
        most = max(8, HELD_AT_ONCE // each if each else 0)
        return max(n for n in range(1, most + 1) if runs % n == 0)

    @property
    def pitch(self) -> int:
        """Elements from row to row of sums in shared memory: 4 more than columns, so that the two
        rows that eight threads write 16 bytes each to begin 4 banks apart, and meet in none.
        """
        return self.cols + 4

    @property
    def shared_bytes(self) -> int:
        """The stages or sums, aligned to 1024 bytes, and two barriers for each stage."""
        handed = self.rows * self.pitch * 4 if self.splits > 1 else 0
        return REPEATED + max(self.stages * (self.stage_bytes + BARRIERS), handed)

    def resident(self, device: DeviceProperties) -> int:
        """Blocks that a multiprocessor holds; of several teams one, which takes nearly all of its
        registers: three warpgroups have 168 for each thread, 64,512 of 65,536.
        """
        room = int(device.facts.get("shared_per_multiprocessor", 0))
        shared = room // (self.shared_bytes + RESERVED)
        return max(1, shared) if self.teams == 1 else 1

    def struct(self, kind: WgmmaTypes, laid: int, held: int) -> str:
        """The constants that tx_flow asks for, the type of sums, and the instruction."""
        values = {
            "ROWS": self.rows,
            "COLS": self.cols,
            "STAGES": self.stages,
            "TEAMS": self.teams,
            "BLOCKS": self.blocks,
            "ALTERNATE": int(self.alternate),
            "SPLITS": self.splits,
            "PAIRED": int(self.paired),
            "CLUSTER": self.cluster,
            "LAID": laid,
            "STAGE_BYTES": self.stage_bytes,
            "A_BYTES": self.rows * ROW,
            "PITCH": self.pitch,
            "EACH": self.ahead(held),
        }
        sums = f"typedef {kind.sum_type} sum_t;"
        return struct("flow", values, ABOUT, sums, multiply(self.cols, kind))


def multiply(cols: int, kind: WgmmaTypes) -> str:
    """The function that makes a product of 64 rows, 32 bytes deep, the sums of a team's threads, or
    adds it to them.

    The instruction's last operands (PTX ISA, ``wgmma.mma_async``): the predicate that adds, where
    zeros that the compiler would set between products would make it wait for each of them; of
    floats 1, 1: neither a nor b is negated; 0, 0: both lie along k, as operands of a byte always
    do.
    """
    n = cols // 2
    rows = [range(i, min(i + ON_A_LINE, n)) for i in range(0, n, ON_A_LINE)]
    sums = [", ".join(f"%{i}" for i in row) for row in rows]
    code = "r" if kind.is_integer else "f"
    last = "" if kind.is_integer else ", 1, 1, 0, 0" if kind.size == 2 else ", 1, 1"
    outputs = [", ".join(f'"+{code}"(d[{i}])' for i in row) for row in rows]
    shape = f"m64n{cols}k{32 // kind.size}"
    instruction = f"wgmma.mma_async.sync.aligned.{shape}.{kind.sum}.{kind.a}.{kind.b}"
    text = [
        f'"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{n + 2}, 0;\\n"',
        f'"{instruction} {{"',
        *(f'"{row}{", " * (row is not sums[-1])}"' for row in sums),
        f'"}}, %{n}, %{n + 1}, p{last};\\n}}"',
    ]
    return block(
        f"TX_INLINE void multiply({kind.sum_type} (&d)[{n}], uint64_t a, uint64_t b, int add)",
        "asm volatile(",
        indent("\n".join(text)),
        indent(": " + ",\n".join(outputs)),
        indent(': "l"(a), "l"(b), "r"(add));'),
    )


def flow_of(variant: Variant) -> Flow:
    """The flow that a variant's knobs say."""
    rows, cols, stages, teams, splits = map(
        variant.number, ("rows", "cols", "stages", "teams", "splits")
    )
    alternate, paired = (bool(variant.knob(name)) for name in ("alternate", "paired"))
    return Flow(rows, cols, stages, teams, alternate, splits, paired)


_FLOWS = (  # rows, cols, stages, teams, alternate
    (128, 256, 4, 2, False), (256, 128, 4, 2, False), (128, 192, 5, 2, False),
    (128, 160, 6, 2, False), (128, 128, 6, 2, True), (128, 128, 6, 2, False),
    (256, 64, 5, 2, False), (128, 64, 8, 2, False), (64, 256, 5, 2, True),
    (64, 192, 6, 2, True), (64, 160, 7, 2, True), (64, 128, 8, 2, True),
    (64, 64, 8, 2, True), (64, 96, 10, 1, False), (128, 128, 3, 1, False),
    (128, 64, 4, 1, False), (64, 128, 4, 1, False), (64, 64, 6, 1, False),
    (64, 32, 8, 1, False),
)  # fmt: skip
"""Chosen by hand: first tiles of two teams, with four stages or more in the 227 KiB that a block
may have; then those of one team, smaller and without persistent blocks, of which a multiprocessor
may hold several.
"""
SPLITS = (1, 2, 4, 8)
"""Parts of k: a cluster has eight blocks at most on every device (CUDA C++ Programming Guide,
"Thread Block Clusters")."""
MOST_SPLIT = 128 * 192
"""Results of a tile: with more a thread has too few registers to hand them over. Where k is split
registers are not moved from the fetching warps to the teams, so a thread has 168, and 96 sums of
such a tile.
"""


LEAST_PAIRED = 64
"""Columns of a tile from which on blocks may be paired: of fewer there is little to fetch twice."""


def flows() -> list[Flow]:
    """Every flow of blocks by themselves, and of parts of k: these where teams do not alternate,
    and tiles are not the largest.
    """
    return [
        Flow(*f, s) for f in _FLOWS for s in ((1,) if f[4] or f[0] * f[1] > MOST_SPLIT else SPLITS)
    ]


def pairs() -> list[Flow]:
    """Every flow of paired blocks."""
    return [replace(f, paired=True) for f in flows() if f.splits == 1 and f.cols >= LEAST_PAIRED]


def seconds(w: ProductSizes, f: Flow, device: DeviceProperties, kind: WgmmaTypes = HALVES) -> float:
    """An estimate, fitted to an H200 with operands of two bytes: stages are copied or multiplied,
    then results stored while other tiles go on.

    ``turns``: tiles that a multiprocessor makes; ``busy``: those that are under way on it at a
    time, the stores of one beside the products of another. A persistent block of several teams
    (``together``) has two; other blocks as many as are resident, whose copies then disturb each
    other (CROWDED).
    """
    cores = max(1, device.cores)
    blocks = f.down(w.m) * -(-w.n // f.cols) * f.cluster
    turns = -(-blocks // cores)
    together = f.teams > 1 and f.splits == 1
    busy = 2 if together else min(f.resident(device), turns)
    # a stage of bytes is twice as deep, and multiplied twice as fast; columns that come from the
    # other block save half of what their bytes say (8192^3 of 8-bit floats: 849 and 811 us)
    copied = f.rows + (f.cols + f.fetched_cols) / 2
    copies, products = copied * ROW / COPIED, f.rows * f.cols * DEPTH / MULTIPLIED
    stage = (
        max(copies, products, LATENCY / f.stages / (1 if together else busy))
        + min(copies, products) * DISTURBED
    )
    main = (
        -(-w.k // (kind.depth * f.splits)) * stage * (CROWDED if busy > 1 and not together else 1)
    )
    store = f.rows * f.cols / STORED
    # blocks of a cluster lay their sums down, wait for each other, and read those of the others
    after = LATENCY + store + (LATENCY + store if f.splits > 1 else 0)
    whole = main + after
    cycles = (
        max(turns * main, turns * whole / busy) + after if busy > 1 and turns > 1 else turns * whole
    )
    traffic = kind.size * ((w.stored or w.m * w.k) + w.k * w.n + w.m * w.n)
    started = STARTED + (MET if f.paired else 0.0)
    return started + max(cycles / CLOCK, traffic / BANDWIDTH)


def best(
    works: Sequence[ProductSizes], device: DeviceProperties, kind: WgmmaTypes = HALVES
) -> list[Flow]:
    """The flows of the least estimates over some likely shapes, and for each of them by itself; of
    equal ones those that fit tighter first. Then those of paired blocks.
    """
    stages = min(-(-w.k // kind.depth) for w in works)
    found = [f for f in flows() if f.splits == 1 or stages >= SPLIT_STAGES * f.splits]
    found.sort(key=lambda f: sum(_covered(w, f) for w in works))
    offered = in_turns({f: [seconds(w, f, device, kind) for w in works] for f in found})
    offered = offered[: OFFERED * len(works)]
    paired = [f for f in pairs() if any(_fills(w, f, device) for w in works)]
    paired = in_turns({f: [seconds(w, f, device, kind) for w in works] for f in paired})
    in_turn, together = ([f for f in paired if f.alternate is which] for which in (True, False))
    return [*offered, *in_turn[:PAIRS_IN_TURN], *together[:PAIRS_TOGETHER]]


def _fills(w: ProductSizes, f: Flow, device: DeviceProperties) -> bool:
    """Whether there are more tiles than multiprocessors: of fewer, pairs never were the fastest."""
    return f.down(w.m) * f.cluster * -(-w.n // f.cols) > max(1, device.cores)


def _covered(w: ProductSizes, f: Flow) -> int:
    """Results that tiles have room for."""
    return f.down(w.m) * f.tall * -(-w.n // f.cols) * f.cols


def pack(
    panels: int, cols: int, stages: int, kind: WgmmaTypes = HALVES
) -> tuple[tuple[str, Any], ...]:
    """Steps from b as (panels x cols, stages x depth) to stages of panels, with columns as threads
    have them.

    A thread has columns 8 g + 2 q and the next of each group of 32 for every g (PTX ISA, "Register
    Fragments for wgmma.mma_async.m64nNk16" and "...k32", matrix D; q: the lane modulo 4). These
    eight are made neighbours by moving columns of the constant, which costs nothing when it runs: a
    thread then stores eight neighbours of a row at once, without shared memory between.
    """
    shape = (panels, cols // 32, 4, 4, 2, stages, kind.depth)
    return ("reshape", shape), ("transpose", (0, 5, 1, 3, 2, 4, 6))


class FlowEntry(entry.KernelEntry):
    """A kernel whose first parameters are tensor maps."""

    def __init__(self, node: Node, threads: int) -> None:
        super().__init__(node, threads)
        self.maps: list[tuple[Arg, str, TensorMap]] = []

    def map_input(self, index: int, made: TensorMap) -> str:
        """The C name of a map of the given input ``index``."""
        return self._map(tensor_in(index), made)

    def map_constant(self, name: str, packed: Packed, made: TensorMap) -> str:
        """The C name of a map of a packed constant."""
        self.constants[name] = packed
        return self._map(constant(name), made)

    def map_workspace(self, offset: Dim, made: TensorMap) -> str:
        """The C name of a map of what lies in the workspace."""
        return self._map(workspace(offset), made)

    def _map(self, arg: Arg, made: TensorMap) -> str:
        name = f"m{len(self.maps)}"
        self.maps.append((arg, name, made))
        return name

    def parameters(self) -> str:
        maps = [f"const __grid_constant__ tx_map {name}" for _, name, _ in self.maps]
        return ", ".join([*maps, *([super().parameters()] if self._args else [])])

    def arguments(self) -> tuple[Arg, ...]:
        return (*(arg for arg, _, _ in self.maps), *super().arguments())


@dataclass(frozen=True)
class PreloadedRows(RowResults):
    """Rows whose operands are there when the sums are made, as products hide the latency of loads.

    Operands of up to 16 bits, eight of which take 4 registers, are loaded by the thread that needs
    them, the first before its sums (``held``). Wider ones that are the same in all rows, as the
    scales of columns, are loaded by a team before its sums, a column by a thread, and laid in
    shared memory behind them (``lay``). On an H200 that took 1024 x 768 x 3072 in 8-bit floats from
    6.1 to 5.7 us; a bias of float16 is better held (16384 x 768 x 3072: 129 us, laid 140).
    ``cols``: of a tile.
    """

    cols: int = 0

    def _laid(self) -> list[tuple[str, EpilogueOperand, int]]:
        """Name, operand, and where its columns lie in a team's part of the shared memory."""
        found, used = [], 0
        for v, o in self.epi.operands.items():
            size, of_column = self.cols * o.dtype.itemsize, o.strides[-1] == 1
            wide = o.dtype.itemsize > HELD_SIZE
            if wide and of_column and not any(o.strides[:-1]) and used + size <= LAID:
                found.append((f"o{v}", o, used))
                used += size
        return found

    @property
    def laid_bytes(self) -> int:
        """Shared memory of a team's columns."""
        return sum(self.cols * o.dtype.itemsize for _, o, _ in self._laid())

    def is_preloaded(self, operand: EpilogueOperand) -> bool:
        is_narrow = operand.dtype.itemsize <= HELD_SIZE
        return is_narrow and operand.strides[-1] != 0 and self.width() == WIDTH

    def _kind(self, operand: EpilogueOperand) -> str:
        return self.args.element_type(operand.dtype)

    def _preloaded(self) -> list[tuple[str, EpilogueOperand]]:
        return [(f"o{v}", o) for v, o in self.epi.operands.items() if self.is_preloaded(o)]

    @property
    def held_bytes(self) -> int:
        """Of a run of eight sums."""
        return WIDTH * sum(o.dtype.itemsize for _, o in self._preloaded())

    def struct(self) -> str:
        """The types of what is held, and of what a thread loads of the columns.

        ``keep``: until then words stay words, where a compiler would take bytes apart as soon as
        they are loaded, in a register each.
        """
        words = {name: WIDTH * o.dtype.itemsize // 4 for name, o in self._preloaded()}
        lines = [f"tx_pack<int, {count}> {name};" for name, count in words.items()]
        kept = [
            f"for (int k = 0; k < {count}; k++) tx_keep({name}.v[k]);"
            for name, count in words.items()
        ]
        lines.append(block("__device__ __forceinline__ void keep()", *kept))
        each = -(-self.cols // TEAM)
        columns = [f"{self._kind(o)} {name}[{each}];" for name, o, _ in self._laid()]
        return "".join(
            block(f"struct TX_NAME({name})", *members) + ";\n"
            for name, members in (("held", lines), ("columns", columns))
        )

    def load(self, rows: str, is_whole: bool) -> list[str]:
        """Statements that fill ``held`` at row ``r``, column ``c``; positions past the last are
        moved back to it.

        ``is_whole``: there are none.
        """
        if not self._preloaded():
            return []
        n = self.args.size("N", self.n)
        row, at = ("r", "c") if is_whole else (f"r < {rows} ? r : {rows} - 1", f"c < {n} ? c : 0")
        lines = [f"const int64_t row = {row};", f"const int at = {at};"]
        for name, o in self._preloaded():
            words = f"tx_pack<int, {WIDTH * o.dtype.itemsize // 4}>"
            lines.append(f"held.{name} = *(const {words}*)({self._pointer(o)});")
        return lines

    def load_columns(self, is_whole: bool) -> list[str]:
        """Statements that fill ``columns`` for a tile whose first column is ``first``; as ``load``
        does, past the last.
        """
        if not self._laid():
            return []
        at = (
            "first + c"
            if is_whole
            else f"first + c < {self.args.size('N', self.n)} ? first + c : 0"
        )
        lines = [f"columns.{name}[k] = {self.base(o)}[at];" for name, o, _ in self._laid()]
        return self._each_column(f"const int at = {at};", *lines)

    def lay(self) -> list[str]:
        """Statements that lay ``columns`` in the team's shared memory, ``laid``."""
        lines = [
            f"(({self._kind(o)}*)(laid + {place}))[c] = columns.{name}[k];"
            for name, o, place in self._laid()
        ]
        return self._each_column(*lines)

    def _each_column(self, *lines: str) -> list[str]:
        """Statements for each column of a tile, ``c``: those of a thread by number, ``k``."""
        if not self._laid():
            return []
        head = f"for (int k = 0; k < {-(-self.cols // TEAM)}; k++)"
        check = [f"if (c >= {self.cols}) break;"] if self.cols % TEAM else []
        column = f"const int c = threadIdx.x % {TEAM} + k * {TEAM};"
        return [f"#pragma unroll\n{block(head, column, *check, *lines)}"]

    def _pointer(self, operand: EpilogueOperand) -> str:
        return super()._place(operand)

    def _place(self, operand: EpilogueOperand) -> str:
        for name, o in self._preloaded():
            if o is operand:
                return f"(const {self._kind(o)}*)&held.{name}"
        for _, o, place in self._laid():
            if o is operand:
                return f"(const {self._kind(o)}*)(laid + {place}) + in + (at - col)"
        return self._pointer(operand)


First = tuple[str, Launch, entry.KernelEntry]
"""A kernel's text, its launch and its entry."""


@dataclass(frozen=True)
class Made:
    """A kernel under way: ``a``: the C text of the loader of rows, ``b``: the name of the map of
    columns.
    """

    e: FlowEntry
    flow: Flow
    kind: WgmmaTypes
    rows: PreloadedRows
    m: Dim
    n: Dim
    stages: int

    def text(self, a: str, b: str, device: DeviceProperties) -> tuple[str, Launch]:
        """The kernel and its launch; blocks of several teams take one tile after the other.

        ``wait=""``: ``tx_flow`` itself waits for the launches before (``griddepcontrol.wait``),
        once it has asked for the first stages of b, which is constant.
        """
        e, f, m = self.e, self.flow, self.e.size("M", self.m)
        down, across = (
            e.size("DOWN", ceildiv(self.m, f.tall)),
            e.size("ACROSS", ceildiv(self.n, f.cols)),
        )
        is_whole = mod(self.m, f.tall) == 0 and mod(self.n, f.cols) == 0
        load, check = self.rows.load(m, is_whole), [] if is_whole else [f"if (row >= {m}) return;"]
        get = block(
            "const auto get = [&](int64_t r, int c)", "TX_NAME(held) held;", *load, "return held;"
        )
        store = [*check, self.rows.store(is_whole=is_whole)]
        put = block(
            f"const auto put = [&](int64_t row, int col, int in, const {self.kind.sum_type}* v, "
            "const TX_NAME(held)& held)",
            *store,
        )
        laid = self.rows.laid_bytes
        fetch = block(
            "const auto fetch = [&](int first)",
            "TX_NAME(columns) columns;",
            *self.rows.load_columns(is_whole),
            "return columns;",
        )
        lay = block("const auto lay = [&](const TX_NAME(columns)& columns)", *self.rows.lay())
        stages = e.size("K_STAGES", self.stages)
        body = [
            "TX_SHARED(memory);",
            *([f"char* laid = memory + threadIdx.x / {TEAM} * {laid};"] if laid else []),
            f"// loads a thread's part of what columns from first on need\n{fetch};",
            f"// lays it where all threads of the team read it\n{lay};",
            f"// loads what eight results from column c of row r need beside their sums\n{get};",
            "// stores eight results from column col of a row on, of the tile column in: v, their "
            f"sums, and what get loaded\n{put};",
            f"// DOWN x ACROSS {'pairs of ' if f.paired else ''}tiles of ROWS x COLS, "
            f"K_STAGES stages of {self.kind.depth} of k; a block takes one after the other",
            f"tx_flow<TX_NAME(flow)>({a}, {b}, {down}, {across}, {stages}, "
            f"{f'memory + {laid * f.teams}' if laid else 'memory'}, fetch, lay, get, put);",
        ]
        text = (
            f.struct(self.kind, laid, self.rows.held_bytes)
            + self.rows.struct()
            + e.kernel(*body, wait="")
        )
        clusters = ceildiv(self.m, f.tall) * ceildiv(self.n, f.cols)
        if f.teams > 1 and f.splits == 1:
            clusters = dmin(clusters, max(1, device.cores // f.cluster))
        grid = (dmax(clusters, 1) * f.cluster,)
        cluster = (f.cluster,) if f.cluster > 1 else ()
        shared = f.shared_bytes + laid * f.teams
        return text, Launch(e.arguments(), grid, (f.threads,), cluster, shared_bytes=shared)

    def map_b(self, packed: Packed) -> str:
        """The name of the map of columns that ``pack`` has laid."""
        f, panels = self.flow, -(-int(self.n) // self.flow.cols)  # type: ignore[arg-type]
        depth, dtype = self.kind.depth, self.e.node.given[packed.index].spec.dtype
        shape = (depth, panels * self.stages * f.cols)
        return self.e.map_constant(
            "b", packed, TensorMap(dtype, shape, (ROW,), (depth, f.fetched_cols))
        )


def artifact(
    made: Made,
    text: str,
    launch: Launch,
    ctx: CompileContext,
    *,
    first: Sequence[First] = (),
    workspace: Dim = 0,
) -> KernelArtifact:
    """The artifact of one such kernel; ``first``: kernels that run before."""
    texts, launches, entries = zip(*first, (text, launch, made.e), strict=True)
    whole = entry.artifact(texts, launches, entries, ctx, more=PRELUDES, workspace=workspace)
    maps = [*([] for _ in first), [m.to_json() for _, _, m in made.e.maps]]
    return replace(whole, params={**whole.params, "maps": maps})


def variants(
    found: Iterable[Flow], inputs: Sequence[Format] = (), outputs: Sequence[Format] = ()
) -> list[Variant]:
    """One variant for each flow."""
    return [
        replace(Variant.of(**vars(f)), inputs=tuple(inputs), outputs=tuple(outputs)) for f in found
    ]


def usable(
    dtype: DType, device: DeviceProperties, kinds: Mapping[DType, WgmmaTypes] = KINDS
) -> bool:
    """Whether the device has the instructions for a dtype, and it is one of ``kinds``."""
    return device.has(FEATURE) and dtype in kinds
