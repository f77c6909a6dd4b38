"""TopK in CUDA: a block for each line selects by digits and sorts, or a thread for each element
counts how many come before it, which is quick for many lines of few elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import block
from tactix_codegen.cuda import text
from tactix_codegen.cuda.text import CudaArgs
from tactix_cuda.tactics.lines import wide_type
from tactix_cuda.tactics.tile import CLOCK, START

MOST_SELECTED = 4096
"""Elements that a block sorts at most: 32 KiB of shared memory."""
MOST_IN_LINE = 1 << 20
"""Elements of a line that a block selects from: more would overflow its counts."""
RESIDENT = 2048
"""Threads of a multiprocessor at once."""
COMPARISON = 100e-9
"""Seconds for one comparison of a thread: a line of 8,400 took 0.9 ms on an H200."""
DIGITS = 20
"""Passes over a line until its digits are known, and the cycles of one beside its elements."""
PASS = 500
_BYTES = 4
"""Bytes of the widest dtype whose keys a block selects."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CudaTopTactic()]


@dataclass(frozen=True)
class Chosen:
    """Of each of ``count`` lines of ``n`` elements, ``step`` apart, ``k`` are taken."""

    node: Node
    n: Dim
    step: Dim
    count: Dim
    k: Dim

    @property
    def selects(self) -> bool:
        """Whether a block can select: keys of 32 bits, and a known k that fits its memory."""
        fits = isinstance(self.k, int) and 0 < self.k <= MOST_SELECTED
        short = isinstance(self.n, int) and self.n < MOST_IN_LINE
        return fits and short and self.node.given[0].spec.dtype.itemsize <= _BYTES


class CudaTopTactic(Tactic[Chosen]):
    """Any dtype of up to 64 bits, any axis, symbolic dims."""

    key = "tactix.cuda_top@1"
    implements = ("tactix.TopK@1",)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> Chosen | Reject:
        x = node.given[0].spec
        if node.is_fused or node.anchor is None:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(x.dtype) or x.rank == 0:
            return Reject(f"no lines of {x} in CUDA")
        axis = node.anchor.attrs.axis % x.rank
        step = dims.prod(x.shape[axis + 1 :])
        lines = dims.prod(x.shape[:axis]) * step
        return Chosen(node, x.shape[axis], step, lines, node.anchor.attrs.k)

    def variants(self, work: Chosen, device: DeviceProperties) -> Sequence[Variant]:
        ways = ["count"]
        if work.selects:
            ways = ["count", *(f"select_{threads}" for threads in (256, 1024))]
        return [Variant.of(by=way) for way in ways]

    def cost(self, work: Chosen, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        n, lines = text.known(work.n, ctx), text.known(work.count, ctx)
        cores = max(1, ctx.device.cores)
        threads = _threads(variant)
        if threads is None:
            return seconds + -(-n * lines // (cores * RESIDENT)) * n * COMPARISON
        waves = -(-lines // (cores * (RESIDENT // threads)))
        cycles = DIGITS * (PASS + -(-n // threads) * threads // 32)
        return max(seconds, START + waves * cycles / CLOCK)

    def compile(self, work: Chosen, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer, threads = _Writer(CudaArgs(work.node), work), _threads(variant)
        if threads is None:
            total = work.count * work.n
            return text.kernel(
                writer.args, writer.counted(total), ctx, text.blocks(total), more=("lines.cuh",)
            )
        return text.kernel(
            writer.args,
            writer.selected(threads),
            ctx,
            work.count,
            threads=threads,
            more=("block.cuh", "top.cuh"),
        )


def _threads(variant: Variant) -> int | None:
    """Threads of a block that selects; None where each counts."""
    way = str(variant.knob("by"))
    return None if way == "count" else int(way.removeprefix("select_"))


class _Writer:
    """The text of one kernel. Names: ``j`` along a line; ``base``: its element 0 in x."""

    def __init__(self, args: CudaArgs, work: Chosen) -> None:
        self.args, self.work = args, work
        self.n, self.step, self.k = (args.dim(d) for d in (work.n, work.step, work.k))
        self.dtype = work.node.given[0].spec.dtype
        self.is_largest = work.node.anchor is not None and work.node.anchor.attrs.largest
        self.wide = wide_type(self.dtype)

    def _x(self) -> str:
        at = f"{self.args.input(0)}[base + j * {self.step}]"
        value = f"({self.wide}){element(self.dtype, at)}"
        return f"const auto x = [&](int64_t j) {{ return {value}; }};"

    def counted(self, total: Dim) -> list[str]:
        """A thread for each element."""
        y, at = (self.args.output(i) for i in range(2))
        size, k, step = f"{self.n} * {self.step}", self.k, self.step
        other, mine = ("x(i)", "own") if self.is_largest else ("own", "x(i)")
        ahead = f"tx_above({other}, {mine}) || (!tx_above({mine}, {other}) && i < j)"
        place = f"t / ({size}) * {k} * {step} + rank * {step} + t % {step}"
        return [
            *text.flat(self.args, "int64_t", total),
            f"const int64_t j = t / {step} % {self.n}, base = t - j * {step};",
            self._x(),
            f"const {self.wide} own = x(j);",
            "int64_t rank = 0;",
            block(
                f"for (int64_t i = 0; i < {self.n} && rank < {k}; i++)",
                f"rank += i != j && ({ahead});",
            ),
            f"if (rank >= {k}) return;",
            f"{y}[{place}] = {self.args.input(0)}[t];",
            f"{at}[{place}] = j;",
        ]

    def selected(self, threads: int) -> list[str]:
        """A block for each line; of equals the first has the larger code."""
        y, at = (self.args.output(i) for i in range(2))
        n, k, step = self.n, self.k, self.step
        size = 1 << (int(k) - 1).bit_length()
        least = "-2147483648LL" if self.dtype.is_signed_int else "0"
        key = "tx_key(x(j))" if self.dtype.is_float else f"tx_key(x(j), {least})"
        key = key if self.is_largest else f"~{key}"
        put = [
            f"const int64_t j = {n} - 1 - (int64_t)(best[i] & 0xffffffffu);",
            f"const int64_t to = line / {step} * {k} * {step} + line % {step} + i * {step};",
            f"{y}[to] = {self.args.input(0)}[base + j * {step}];",
            f"{at}[to] = j;",
        ]
        return [
            f"__shared__ uint64_t best[{size}];",
            "const int64_t line = blockIdx.x;",
            f"if (line >= {self.args.dim(self.work.count)}) return;",
            f"const int64_t base = line / {step} * {n} * {step} + line % {step};",
            self._x(),
            "const auto code = [&](int64_t j) {",
            f"  return (uint64_t){key} << 32 | (uint64_t)({n} - 1 - j);",
            "};",
            f"tx_top<{threads}, {size}>(best, {n}, {k}, code);",
            block(f"for (int64_t i = threadIdx.x; i < {k}; i += {threads})", *put),
        ]
