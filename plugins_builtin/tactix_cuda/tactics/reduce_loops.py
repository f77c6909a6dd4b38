"""The text of a reduction kernel: results side by side, in rows or in columns of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.tactic import CompileContext
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c.space import Space
from tactix_codegen.c.text import block
from tactix_codegen.cuda import scalar, text
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.scalar import CudaEmitter
from tactix_codegen.cuda.text import BLOCK, CudaArgs
from tactix_codegen.operations.reduce import KEPT, REDUCED, ReductionOperator

_ACROSS = 32
"""Threads side by side in a block of columns: a warp, which reads neighbours in memory."""
_SHARED = 32768
"""Bytes of accumulators that a block of columns shares at most, of the 48 KiB that every kernel may
have (CUDA C++ Programming Guide, "Technical Specifications").
"""
_ALONE, _BY_WARP = 8, 4096
"""Elements of a result up to which one thread, and up to which one warp joins them in rows; more
take a block. Chosen by hand, as are the next ones: a length near the border is read as well either
way.
"""
_DEEP = ((8, 1), (256, 8))
"""In columns: up to so many elements of a result, so many rows of threads share them."""
_DEEPEST = 32
"""With _ACROSS the 1024 threads of the largest block."""


@dataclass(frozen=True)
class ReductionWalk:
    """One walk over the elements of a result, which are joined.

    ``name``: of what they come to; ``structure``: of the text that joins two. ``term``: what is
    joined of the element ``{x}``, which may name earlier walks in braces; ``settled``: what is kept
    of what they come to, empty for all.
    """

    operation: ReductionOperator
    name: str = "acc"
    structure: str = "op"
    term: str = "{x}"
    settled: str = ""


@dataclass(frozen=True)
class CudaReduction:
    """Walks one after the other, and the result: of their names, in braces, and ``{n}``, the number
    of elements.
    """

    walks: tuple[ReductionWalk, ...]
    result: str = "{acc}"


class CudaReductionKernel:
    """``space``: strides of the operands before the anchor, of the outputs, and of the operands
    behind.
    """

    def __init__(
        self,
        args: CudaArgs,
        reduction: CudaReduction,
        space: Space,
        around: Around,
        ctx: CompileContext,
    ) -> None:
        self.args, self.space, self.around, self.ctx = args, space, around, ctx
        self.reduction = reduction
        self.kept = [i for i, t in enumerate(space.tags) if t == KEPT]
        self.reduced = [i for i, t in enumerate(space.tags) if t == REDUCED]
        self.length: Dim = dims.prod(space.sizes[i] for i in self.reduced)
        self.results: Dim = dims.prod(space.sizes[i] for i in self.kept)
        self.dtype = around.spec.dtype
        self.wide = self._wide_type()
        self.behind = len(around.before)
        reach = [v.spec.numel for v in (*args.node.given, *args.node.outputs)]
        self.kind = text.index_type(self.length * self.results, *reach)
        self.is_rows = not self.kept or self.kept[-1] != len(space.sizes) - 1

    def _wide_type(self) -> str:
        """The C type of accumulators."""
        if self.dtype.is_float:
            return "double" if self.dtype is DType.FP64 else "float"
        return "uint64_t" if self.dtype is DType.UINT64 else "int64_t"

    def kernel(self) -> KernelArtifact:
        if self.is_rows:
            return self._rows()
        return self._columns()

    # Shared parts

    def _joins(self) -> str:
        """The structures that join two accumulators."""
        return "\n".join(map(self._join, self.reduction.walks))

    def _join(self, walk: ReductionWalk) -> str:
        join = walk.operation.join
        if self.wide == "float":
            join = {"max": "tx_fmax({a}, {b})", "min": "tx_fmin({a}, {b})"}.get(
                walk.operation.name, join
            )
        form = join.format(a="a", b="b")
        method = f"TX_INLINE {self.wide} join({self.wide} a, {self.wide} b) {{ return {form}; }}"
        return block(f"struct TX_NAME({walk.structure})", method) + ";"

    def _joined(self, walk: ReductionWalk, other: str, lane: str = "") -> str:
        """The statement that joins something to the accumulator."""
        acc = f"{walk.name}{lane}"
        return f"{acc} = TX_NAME({walk.structure})::join({acc}, {other});"

    def _term(self, walk: ReductionWalk, element: str, lane: str = "") -> str:
        """What is joined of an element."""
        return f"({self.wide}){walk.term.format(x=element, **self._names(lane))}"

    def _names(self, lane: str) -> Mapping[str, str]:
        """What the walks came to."""
        return {w.name: f"{w.name}{lane}" for w in self.reduction.walks}

    def _start(self, walk: ReductionWalk) -> str:
        emitter, start = CudaEmitter([], [], ""), walk.operation.start
        if self.dtype.is_float:
            return emitter.literal(start, DType.FP64 if self.wide == "double" else DType.FP32)
        return c_scalar.int_literal(start, self.dtype, saturate=True)

    def _decode(self, index: str, loops: Sequence[int], width: int = 1) -> str:
        """Declare the coordinates of ``index``, which counts groups of ``width`` along the last
        loop.
        """
        sizes = [self.args.dim(self.space.sizes[i]) for i in loops[:-1]]
        sizes += [self.args.dim(dims.floordiv(self.space.sizes[i], width)) for i in loops[-1:]]
        if width == 1 or not loops:
            return text.decode(self.kind, index, [f"i{i}" for i in loops], sizes)
        names = [*(f"i{i}" for i in loops[:-1]), "group"]
        last = f"const {self.kind} i{loops[-1]} = group * {width};"
        return text.decode(self.kind, index, names, sizes) + "\n" + last

    def _offset(self, position: int, loops: Sequence[int]) -> str:
        strides = self.space.strides[position]
        return self.args.offset([strides[i] for i in loops], [f"i{i}" for i in loops])

    def _load(self, width: int) -> tuple[list[str], list[str], str]:
        """Loads of ``width`` elements at the coordinates; then, for each lane, statements and the
        element.
        """
        loads: list[str] = []
        leaves = {}
        loops = range(len(self.space.sizes))
        for position, (v, o) in enumerate(self.around.before.items()):
            place = f"{self.args.input(o.index)} + ({self._offset(position, loops)})"
            step = self.space.strides[position][-1]
            more, leaves[v] = text.fetch(self.args, f"a{v}", place, o.dtype, step, width)
            loads += more
        code = scalar.emit([self.around.source], leaves, self.around.dtypes, "s")
        return loads, list(code.statements), code.results[0]

    def _finish(self, lane: str, width: int) -> list[str]:
        """From the accumulators of ``width`` results to memory."""
        loads: list[str] = []
        leaves = dict.fromkeys(self.around.made, "y")
        for position, (v, o) in enumerate(self.around.after.items(), self.behind + 1):
            place = f"{self.args.input(o.index)} + ({self._offset(position, self.kept)})"
            step = self.space.strides[position][self.kept[-1]] if self.kept else 0
            more, leaves[v] = text.fetch(self.args, f"b{v}", place, o.dtype, step, width)
            loads += more
        code = scalar.emit(self.around.results, leaves, self.around.dtypes, "t")
        kind = text.number_type(self.dtype)
        count = f"({self.wide}){self.args.dim(self.length)}"
        value = self.reduction.result.format(n=count, **self._names(lane))
        sets = [f"r{j}[k] = {name};" for j, name in enumerate(code.results)]
        arrays = [f"{text.number_type(t)} r{j}[{width}];" for j, t in enumerate(code.dtypes)]
        out = [
            *loads,
            *arrays,
            *text.lanes(width, f"const {kind} y = ({kind})({value});", *code.statements, *sets),
        ]
        for j, t in enumerate(code.dtypes):
            place = f"{self.args.output(j)} + ({self._offset(self.behind, self.kept)})"
            out += text.put(self.args, f"r{j}", place, t, 1, width)
        return out

    def _moves(self, loops: Sequence[int], positions: Sequence[int], types: Sequence[DType]) -> int:
        """The widest vector along the last of the loops."""
        moves = [
            (
                t,
                (
                    *(s for i, s in enumerate(self.space.strides[p]) if i != loops[-1]),
                    self.space.strides[p][loops[-1]],
                ),
            )
            for p, t in zip(positions, types, strict=True)
        ]
        return text.vector_width(self.space.sizes[loops[-1]], moves)

    # The last axis is reduced

    def _rows(self) -> KernelArtifact:
        """``threads`` side by side share a result; each joins every so many vectors of its
        elements, and ``tx_reduce`` joins what they have: by shuffles in a warp, through shared
        memory beyond.
        """
        before = [o.dtype for o in self.around.before.values()]
        width = self._moves(self.reduced, range(self.behind), before) if self.reduced else 1
        expected = text.known(self.length, self.ctx)
        threads = 1 if expected <= _ALONE else 32 if expected <= _BY_WARP else BLOCK
        walks = [s for w in self.reduction.walks for s in self._row_walk(w, threads, width)]
        per = BLOCK // threads
        body = [
            f"const {self.kind} row = "
            f"({self.kind})blockIdx.x * {per} + (int)threadIdx.x / {threads};",
            f"if (row >= {self.args.dim(self.results)}) return;",
            f"const int lane = threadIdx.x % {threads};",
            self._decode("row", self.kept),
            *walks,
            block("if (lane == 0)", *self._finish("", 1)),
        ]
        return self._kernel(body, dims.ceildiv(self.results, per), BLOCK)

    def _row_walk(self, walk: ReductionWalk, threads: int, width: int) -> list[str]:
        loads, statements, element = self._load(width)
        join = self._joined(walk, self._term(walk, element))
        step, n = f"j += {threads * width}", self.args.dim(self.length)
        loop = block(
            f"for ({self.kind} j = lane * {width}; j < {n}; {step})",
            self._decode("j", self.reduced),
            *loads,
            *text.lanes(width, *statements, join),
        )
        name = walk.name
        settled = walk.settled.format(**self._names(""))
        return [
            f"{self.wide} {name} = {self._start(walk)};",
            *self._guarded(loop),
            f"{name} = tx_reduce<{threads}, TX_NAME({walk.structure})>({name});",
            *([f"{name} = {settled};"] if settled else []),
        ]

    def _guarded(self, loop: str) -> list[str]:
        """Nothing where there is nothing to reduce: sizes of 0 cannot divide."""
        return [] if self.length == 0 else [loop]

    def _kernel(self, body: Sequence[str], grid: Dim, threads: int) -> KernelArtifact:
        held = [] if 0 in (self.space.sizes[i] for i in self.kept) else body
        return text.kernel(
            self.args,
            held,
            self.ctx,
            grid,
            threads=threads,
            helpers=self._joins(),
            more=("block.cuh",),
        )

    # The last axis is kept

    def _columns(self) -> KernelArtifact:
        """A thread has ``width`` neighbouring results; ``deep`` rows of threads take every so many
        elements of them, and the first row joins what the others leave in shared memory.
        """
        around = self.around
        types = [
            *(o.dtype for o in around.before.values()),
            *(o.dtype for o in around.after.values()),
        ]
        positions = [*range(self.behind), *range(self.behind + 1, len(self.space.strides))]
        outputs = [v.spec.dtype for v in self.args.node.outputs]
        width = self._moves(
            self.kept, [*positions, *[self.behind] * len(outputs)], [*types, *outputs]
        )
        expected = text.known(self.length, self.ctx)
        deep = next((rows for most, rows in _DEEP if expected <= most), _DEEPEST)
        across = BLOCK if deep == 1 else _ACROSS
        width = min(width, _SHARED // (deep * across * (4 if self.wide == "float" else 8)))
        # narrower vectors where there are too few results for half of the multiprocessors
        while (
            width > 2
            and text.known(self.results, self.ctx) < width * across * self.ctx.device.cores // 2
        ):
            width //= 2
        groups = dims.floordiv(self.results, width)
        reduction = self.reduction
        walks = [s for w in reduction.walks for s in self._column_walk(w, deep, across, width)]
        place = self._decode("c", self.kept, width)
        body = [
            f"const int deep = threadIdx.x / {across}, lane = threadIdx.x % {across};",
            f"const {self.kind} c = ({self.kind})blockIdx.x * {across} + lane;",
            f"const bool inside = c < {self.args.dim(groups)};",
            *walks,
            block("if (inside && deep == 0)", place, *self._finish("[k]", width)),
        ]
        return self._kernel(body, dims.ceildiv(groups, across), deep * across)

    def _column_walk(self, walk: ReductionWalk, deep: int, across: int, width: int) -> list[str]:
        loads, statements, element = self._load(width)
        name, n = walk.name, self.args.dim(self.length)
        join = self._joined(walk, self._term(walk, element, "[k]"), "[k]")
        loop = block(
            f"for ({self.kind} j = deep; j < {n}; j += {deep})",
            self._decode("j", self.reduced),
            *loads,
            *text.lanes(width, *statements, join),
        )
        settled = walk.settled.format(**self._names("[k]"))
        return [
            f"{self.wide} {name}[{width}];",
            *text.lanes(width, f"{name}[k] = {self._start(walk)};"),
            *self._guarded(block("if (inside)", self._decode("c", self.kept, width), loop)),
            *(self._across(walk, deep, across, width) if deep > 1 else []),
            *(text.lanes(width, f"{name}[k] = {settled};") if settled else []),
        ]

    def _across(self, walk: ReductionWalk, deep: int, across: int, width: int) -> list[str]:
        """Join the accumulators of the rows of threads: those of the last walk into those of the
        first row, those of others in every row, since the next walk asks for them.
        """
        mine, other = (
            f"part[threadIdx.x * {width} + k]",
            f"part[(d * {across} + lane) * {width} + k]",
        )
        walks = self.reduction.walks
        inner = text.lanes(width, self._joined(walk, other, "[k]"))
        shared = f"__shared__ {self.wide} part[{deep * across * width}];"
        out = [
            *([shared] if walk is walks[0] else []),
            *text.lanes(width, f"{mine} = {walk.name}[k];"),
            "__syncthreads();",
        ]
        if walk is walks[-1]:
            return [
                *out,
                block("if (deep == 0)", block(f"for (int d = 1; d < {deep}; d++)", *inner)),
            ]
        return [
            *out,
            *text.lanes(width, f"{walk.name}[k] = {self._start(walk)};"),
            block(f"for (int d = 0; d < {deep}; d++)", *inner),
            "__syncthreads();",
        ]
