"""Softmax, LogSoftmax and normalisations in CUDA, with pointwise layers before and behind; f32,
f16, bf16 and f64, linear; of groups of channels, with what is behind, in nhwc, too.

A row belongs to a warp, to a part of one where it is short, or to a whole block where it is long.
Rows of known length stay in registers, so that every element is read once; longer ones, and those
of unknown length, are read again for each pass. Mean and variance take two passes, so that nothing
cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tactix.base import dims
from tactix.base.dims import Dim, Shape
from tactix.base.dtypes import DType
from tactix.base.errors import ShapeError
from tactix.base.tensor import LINEAR, NHWC, Format
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import EpilogueOperand
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.space import Space, strides_in
from tactix_codegen.c.text import block
from tactix_codegen.cuda import fused, scalar, text
from tactix_codegen.cuda.fused import Around
from tactix_codegen.cuda.text import CudaArgs
from tactix_codegen.operations import rows
from tactix_codegen.operations.rows import ROW

FLOATS = (DType.FP32, DType.FP16, DType.BF16)
_REGISTERS = 32
"""Registers in which one thread keeps elements of a row, at most."""
_SHORT = 16
"""Elements of a row that one thread reads as well as a warp does: no measurement of it is recorded;
both are offered and timed.
"""
_WARP, _PARTS, _STEPS = 32, (4, 8, 16), 4
"""Threads of a warp, and of parts of it that share a row of at most so many vectors each: of 96
channels in float16 a warp's lanes have 12 vectors, and rows were read and written at 1.7 TB/s
(LayerNormalization of 200,704 rows, 45 us on an H200).
"""
_LEAST, _LARGEST = 128, 1024
"""Threads of the smallest block (no measurement of it is recorded), and of the largest (CUDA C++
Programming Guide, "Technical Specifications").
"""
_SECTOR = 32
"""Bytes that a GPU fetches at least (CUDA C++ Programming Guide, "Global Memory")."""
_CROSSWISE, _WAITS = 4, 1e5
"""What ``cost`` assumes: how much longer a warp takes for a row that neighbours in memory are not
of, as each lane then fetches a sector of 32 bytes for one element; and threads of a row for which
waiting for each other would take as long as the rest. They put the choices in order, no more.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [RowsTactic()]


@dataclass(frozen=True)
class RowsWork:
    """How the tensor of a node falls into rows.

    ``space``: strides of the node's outputs, then of ``operands``, by variable; then of the
    parameters. ``parameters``: given inputs that hold scale and bias. An operand stands in
    ``order`` as (before, variable).
    """

    node: Node
    around: Around
    space: Space
    order: tuple[tuple[bool, int], ...]
    parameters: tuple[int, ...]

    def lying(self, fmt: Format) -> RowsWork:
        """The same of images in that format. Raises ShapeError where an operand cannot be walked
        in it.
        """
        if fmt.is_linear:
            return self
        space = _space(self.node, self.around, self.order, self.parameters, fmt)
        return replace(self, space=space)

    def operand(self, key: tuple[bool, int]) -> EpilogueOperand:
        """The operand of an entry of ``order``."""
        return (self.around.before if key[0] else self.around.after)[key[1]]

    @property
    def length(self) -> Dim:
        """Elements of a row."""
        sizes = zip(self.space.sizes, self.space.tags, strict=True)
        return dims.prod(size for size, tag in sizes if tag == ROW)

    @property
    def is_double(self) -> bool:
        """Whether the numbers of a row are float64."""
        return self.around.spec.dtype is DType.FP64

    @property
    def kept(self) -> int:
        """Elements of a row that one thread keeps at most."""
        return _REGISTERS // (2 if self.is_double else 1)

    @property
    def is_crosswise(self) -> bool:
        """Whether neighbours in memory belong to different rows."""
        return self.space.strides[0][-1] != 1


def _space(
    node: Node,
    found: Around,
    order: Sequence[tuple[bool, int]],
    parameters: Sequence[int],
    fmt: Format = LINEAR,
) -> Space:
    """Loops over the rows and along them, of images in that format. Raises ShapeError."""
    assert node.anchor is not None
    shape = found.shape
    operands = [(found.before if first else found.after)[v] for first, v in order]
    of_operands = [
        o.strides if fmt.is_linear else operand_strides(node, o, shape, fmt) for o in operands
    ]
    of_parameters = [
        rows.parameter_strides(node.anchor, node.given[i].spec.shape, shape) for i in parameters
    ]
    own = axis_strides(c_text.contiguous_strides(fmt.storage_shape(shape)), fmt)
    strides = [own, *of_operands, *of_parameters]
    loops = rows.space(node.anchor, shape, strides, channels_last=not fmt.is_linear)
    if any(s[-1] not in (0, 1) for s in loops.strides[1 + len(of_operands) :]):
        raise ShapeError("whether a parameter broadcasts along rows is not known before running")
    return loops


def operand_strides(
    node: Node, operand: EpilogueOperand, shape: Shape, fmt: Format
) -> tuple[Dim, ...]:
    """Of an operand along the axes of an image in nhwc; those that broadcast are linear."""
    spec = node.given[operand.index].spec
    return axis_strides(strides_in(spec, fmt if operand.is_full else LINEAR, shape, fmt), fmt)


def axis_strides(strides: Sequence[Dim], fmt: Format) -> tuple[Dim, ...]:
    """Strides along what is stored as strides along the axes."""
    return tuple(strides) if fmt.is_linear else (strides[0], strides[-1], *strides[1:-1])


class RowsTactic(Tactic[RowsWork]):
    """Knob: ``threads`` that share a row."""

    key = "tactix.cuda_rows@1"
    implements = (*rows.SOFTMAXES, *rows.NORMALIZATIONS)
    device = "cuda"
    source = "cuda_c"

    def match(self, node: Node, device: DeviceProperties) -> RowsWork | Reject:
        found = fused.around(node)
        if isinstance(found, Reject):
            return found
        if found.spec.dtype not in (*FLOATS, DType.FP64):
            return Reject(f"no rows of {found.spec.dtype.value} in CUDA")
        parameters = tuple(i for i in found.parameters if i >= 0)
        if any(node.given[i].spec.dtype not in (*FLOATS, found.spec.dtype) for i in parameters):
            return Reject("a parameter is not of f32, f16 or bf16")
        order = (*((True, v) for v in found.before), *((False, v) for v in found.after))
        try:
            return RowsWork(node, found, _space(node, found, order, parameters), order, parameters)
        except ShapeError as e:
            return Reject(e.what)

    def variants(self, work: RowsWork, device: DeviceProperties) -> Sequence[Variant]:
        found = [Variant.of(threads=t) for t in _threads(work)]
        anchor = work.node.anchor
        assert anchor is not None
        if anchor.layer.name != "GroupNormalization" or not work.around.is_plain:
            return found
        try:
            last = work.lying(NHWC)
        except ShapeError:
            return found
        # rows in which neighbours in memory are of one channel are no faster than moving the image
        own = [] if last.is_crosswise else _threads(last)
        return [*found, *(fused.variant_in(work.node, work.around, NHWC, threads=t) for t in own)]

    def cost(self, work: RowsWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        if variant.input_format(0) == NHWC:
            seconds += _waiting(work, seconds, ctx)
        work = work.lying(variant.input_format(0))
        length, threads = text.known(work.length, ctx), variant.number("threads")
        if threads == 1 or work.is_crosswise:
            return seconds * (1 if threads == 1 else _CROSSWISE)
        # a row that a thread keeps: the fewer threads, the better; else by how often a thread loads
        return seconds * (
            1 + threads / _WAITS if length <= 32 * threads else length / (32 * threads)
        )

    def compile(self, work: RowsWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        anchor = work.node.anchor
        assert anchor is not None
        work = work.lying(variant.input_format(0))
        writer = CudaRowKernel(CudaArgs(work.node), work, variant.number("threads"))
        name = anchor.layer.name
        if name.endswith("Softmax"):
            statistics = _softmax(writer, name == "LogSoftmax")
        else:
            statistics = _normal(writer, name != "RMSNormalization", anchor.attrs.epsilon)
        body = writer.body(*statistics)
        return text.kernel(
            writer.args, body, ctx, writer.blocks, threads=writer.block, more=("block.cuh",)
        )


def _waiting(work: RowsWork, seconds: float, ctx: CompileContext) -> float:
    """What groups of channels in nhwc take beyond moving the image: a block for each group leaves
    multiprocessors idle, and fetches sectors of which a group's channels are a part. 32 groups of
    four channels of 64 x 64 pixels in float16 took 9.4 us on an H200 instead of 1.7.
    """
    anchor, x = work.node.anchor, work.around.spec
    assert anchor is not None
    groups = anchor.attrs.num_groups
    rows = text.known(x.shape[0] * groups, ctx)
    channels = text.known(dims.floordiv(x.shape[1], groups), ctx)
    idle = max(1.0, ctx.device.cores / max(1, rows))
    waste = max(1.0, _SECTOR / (channels * x.dtype.itemsize))
    return (seconds - c_text.START) * (idle * waste - 1)


def _threads(work: RowsWork) -> list[int]:
    """Of a row: two choices at most, best guess first."""
    length = work.length
    if not isinstance(length, int):
        return [1, 32] if work.is_crosswise else [32, 256]
    # of the blocks half of whose threads at least have something to read, the smallest that keep
    # their row in registers, two in all; for short rows a single thread is one of the two, or a
    # part of a warp
    width = _width(work)
    busy = [t for t in (_WARP, 128, 256, 512, _LARGEST) if t == _WARP or t * width < 2 * length]
    kept = [t for t in busy if -(-length // (t * width)) * width <= work.kept]
    own = [1] if work.is_crosswise or length <= _SHORT else _part_of_warp(work, -(-length // width))
    return [*own, *(kept[: 2 - len(own)] or [_LARGEST])]


def _part_of_warp(work: RowsWork, vectors: int) -> list[int]:
    """The part of a warp whose threads have most to read, if that is more than in a whole one."""

    def idle(threads: int) -> int:
        return -(-vectors // threads) * threads - vectors

    steps = min(_STEPS, work.kept // _width(work))
    fits = [t for t in (*_PARTS, _WARP) if vectors <= t * steps]
    best = min(fits, key=idle, default=_WARP)
    return [best] if best < _WARP else []


def _width(work: RowsWork) -> int:
    """Neighbours of a row that a thread takes at once."""
    given = work.node.given
    types = [given[work.operand(k).index].spec.dtype for k in work.order]
    types += [given[i].spec.dtype for i in work.parameters]
    first, *rest = work.space.strides
    read = [(t, strides) for t, strides in zip(types, rest, strict=True) if strides[-1] != 0]
    moves = [*((v.spec.dtype, first) for v in work.node.outputs), *read]
    return text.vector_width(work.space.sizes[-1], moves) if first[-1] == 1 else 1


class CudaRowKernel:
    """The text of one kernel. ``x`` is the element of a row, ``p0``.. the parameters beside it."""

    def __init__(self, args: CudaArgs, work: RowsWork, threads: int) -> None:
        self.args, self.work, self.threads = args, work, threads
        self.space, self.width = work.space, _width(work)
        self.number, self.f = ("double", "") if work.is_double else ("float", "f")
        self.outer = [i for i, t in enumerate(self.space.tags) if t != ROW]
        self.inner = [i for i, t in enumerate(self.space.tags) if t == ROW]
        self.length = work.length
        self.count: Dim = dims.prod(self.space.sizes[i] for i in self.outer)
        self.block = text.BLOCK if threads == 1 else max(threads, _LEAST)
        self.blocks: Dim = dims.ceildiv(self.count, self.block // threads)
        self.steps = self._steps()
        self.kind = text.index_type(
            self.length * self.count, *(v.spec.numel for v in args.node.given)
        )

    def _steps(self) -> int:
        """Vectors of a row that a thread keeps; 0 where rows are read again."""
        if not isinstance(self.length, int):
            return 0
        steps = -(-self.length // (self.threads * self.width))
        return steps if steps * self.width <= self.work.kept else 0

    @property
    def n(self) -> str:
        """Elements of a row."""
        return self.args.dim(self.length)

    def body(self, statistics: Sequence[str], value: Callable[[str], str]) -> list[str]:
        """All statements: those that need whole rows, then ``value`` of each ``x`` behind them."""
        if 0 in self.space.sizes:
            return []
        per = self.block // self.threads
        # last rows first: what was made last is in the L2 cache still. With attention, which does
        # the same, BERT-base at batch 128 took 5,817 us for 5,906 (H200; docs/benchmarks.md,
        # "Single layers")
        place = "(gridDim.x - 1 - blockIdx.x)"
        row = (
            f"({self.kind}){place} * {per} + (int)threadIdx.x / {self.threads}"
            if per > 1
            else place
        )
        head = [
            f"const {self.kind} row = {row};",
            f"if (row >= {self.args.dim(self.count)}) return;",
        ]
        head.append(f"const int lane = threadIdx.x % {self.threads};")
        head.append(self._decode("row", self.outer))
        kept = (
            [f"{self.number} v[{self.steps * self.width}];", *self._sweep([], True)]
            if self.steps
            else []
        )
        return [*head, *kept, *statistics, *self._sweep(self._finish(value), False)]

    def reduce(self, name: str, op: str, start: str, term: str, keep: bool = False) -> list[str]:
        """Declare ``name``: all ``term`` of ``x`` of the row joined by ``op`` from ``start`` on.

        ``keep``: in registers, ``x`` is the term from now on.
        """
        steps = [
            f"const {self.number} x = {self._kept()};",
            f"const {self.number} z = {term};",
            f"{name} = {op}::join({name}, z);",
        ]
        step = text.lanes(self.width, *steps, *([f"{self._kept()} = z;"] if keep else []))
        return [
            f"{self.number} {name} = {start};",
            *self._sweep(step, False),
            f"{name} = tx_reduce<{self.threads}, {op}>({name});",
        ]

    def _kept(self) -> str:
        return f"v[e * {self.width} + k]" if self.steps else "v[k]"

    def _sweep(self, body: Sequence[str], first: bool) -> list[str]:
        """``body`` for each vector of the row that this thread has, at ``j``; ``first``: keep it in
        registers.
        """
        step = self.threads * self.width
        loads = self._loads() if first or not self.steps else []
        if not self.steps:
            loads = [f"{self.number} v[{self.width}];", *loads]
        inside = [self._decode("j", self.inner), *loads, *body]
        if not self.steps:
            return [
                block(
                    f"for ({self.kind} j = lane * {self.width}; j < {self.n}; j += {step})", *inside
                )
            ]
        head = f"const {self.kind} j = e * {step} + lane * {self.width};"
        guarded = (
            inside if self.length == self.steps * step else [block(f"if (j < {self.n})", *inside)]
        )
        return ["#pragma unroll", block(f"for (int e = 0; e < {self.steps}; e++)", head, *guarded)]

    def _decode(self, index: str, loops: Sequence[int]) -> str:
        """Declare the coordinates of ``index`` along the loops."""
        names = [f"i{i}" for i in loops]
        return text.decode(
            self.kind, index, names, [self.args.dim(self.space.sizes[i]) for i in loops]
        )

    def _fetch(self, name: str, index: int, position: int) -> tuple[list[str], str]:
        """Load given input ``index``, whose strides stand at ``position``."""
        strides = self.space.strides[position]
        place = f"{self.args.input(index)} + ({self._offset(position)})"
        return text.fetch(
            self.args, name, place, self.args.node.given[index].spec.dtype, strides[-1], self.width
        )

    def _offset(self, position: int) -> str:
        loops = sorted([*self.outer, *self.inner])
        strides = self.space.strides[position]
        return self.args.offset([strides[i] for i in loops], [f"i{i}" for i in loops])

    def _operands(self, before: bool, tag: str) -> tuple[list[str], dict[int, str]]:
        loads: list[str] = []
        leaves = {}
        for position, key in enumerate(self.work.order, 1):
            if key[0] == before:
                more, leaves[key[1]] = self._fetch(
                    f"{tag}{key[1]}", self.work.operand(key).index, position
                )
                loads += more
        return loads, leaves

    def _loads(self) -> list[str]:
        """The anchor's first input, into ``v``."""
        around = self.work.around
        loads, leaves = self._operands(True, "a")
        code = scalar.emit([around.source], leaves, around.dtypes, "s")
        return [
            *loads,
            *text.lanes(self.width, *code.statements, f"{self._kept()} = {code.results[0]};"),
        ]

    def _finish(self, value: Callable[[str], str]) -> list[str]:
        """The anchor's result, what follows it, and the stores."""
        around, base = self.work.around, 1 + len(self.work.order)
        loads, leaves = self._operands(False, "b")
        named = []
        for k, index in enumerate(self.work.parameters):
            more, name = self._fetch(f"p{k}", index, base + k)
            loads += more
            named.append(f"const {self.number} f{k} = {name};")
        leaves |= {around.own: "x", **dict.fromkeys(around.made, "y")}
        code = scalar.emit(around.results, leaves, around.dtypes, "t")
        heads = [
            f"const {self.number} x = {self._kept()};",
            *named,
            f"const {self.number} y = {value('x')};",
        ]
        sets = [f"r{j}[k] = {name};" for j, name in enumerate(code.results)]
        arrays = [f"{text.number_type(t)} r{j}[{self.width}];" for j, t in enumerate(code.dtypes)]
        stores = [
            line
            for j, t in enumerate(code.dtypes)
            for line in text.put(
                self.args,
                f"r{j}",
                f"{self.args.output(j)} + ({self._offset(0)})",
                t,
                1 if self.width == 1 else self.space.strides[0][-1],
                self.width,
            )
        ]
        return [*loads, *arrays, *text.lanes(self.width, *heads, *code.statements, *sets), *stores]


def _softmax(writer: CudaRowKernel, log: bool) -> tuple[list[str], Callable[[str], str]]:
    """Statements and the result, as ``CudaRowKernel.body`` takes them."""
    number, exp = writer.number, f"exp{writer.f}"
    top = writer.reduce("top", "tx_largest", "-TX_INF", "x")
    keep = not log and writer.steps > 0 and not writer.work.around.reads_source
    total = writer.reduce("total", "tx_sum", "0.0f", f"{exp}(x - top)", keep)
    if log:
        scale = f"const {number} scale = log{writer.f}(total);"
        return [*top, *total, scale], lambda x: f"{x} - top - scale"
    form = "{x} * scale" if keep else f"{exp}({{x}} - top) * scale"
    return [*top, *total, f"const {number} scale = 1.0f / total;"], lambda x: form.format(x=x)


def _normal(
    writer: CudaRowKernel, centre: bool, epsilon: float
) -> tuple[list[str], Callable[[str], str]]:
    """Statements and the result, as ``CudaRowKernel.body`` takes them."""
    number, mean = writer.number, list[str]()
    if centre:
        mean += writer.reduce("mean", "tx_sum", "0.0f", "x")
        mean.append(f"mean /= ({number}){writer.n};")
    term = "(x - mean) * (x - mean)" if centre else "x * x"
    squares = writer.reduce("squares", "tx_sum", "0.0f", term)
    least = float_literal(epsilon, double=writer.work.is_double)
    variance = f"squares / ({number}){writer.n} + {least}"
    root = f"const {number} scale = 1.0f / sqrt{writer.f}({variance});"
    factors = "".join(
        f" {op} f{k}" for k, op in zip(range(len(writer.work.parameters)), "*+", strict=False)
    )
    form = "({x} - mean) * scale" if centre else "{x} * scale"
    return [*mean, *squares, root], lambda x: form.format(x=x) + factors
