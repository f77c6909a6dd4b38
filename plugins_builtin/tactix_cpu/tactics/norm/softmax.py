"""Softmax and LogSoftmax in C over any axis, with a pointwise epilogue; f32, f16 and bf16.

Along the last axis, short rows stay in registers. NaN anywhere in a row makes all of it NaN, as in
numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, epilogue
from tactix_codegen.c.space import Space, collapse
from tactix_codegen.c.text import block, loop
from tactix_codegen.operations.rows import OUTER, ROW, SOFTMAXES
from tactix_cpu.tactics.norm.rows import CpuRowKernel

_IN_REGISTERS = 12
"""Vectors of a row that are kept in registers at most: 12 of 32, beside the constants of an
exponential and what it needs. With 16 registers compilers keep some on the stack. No measurement of
it is on record.
"""
_BANDWIDTH = 6e9
"""Bytes per second that estimates take a softmax to move: three walks over a row, one with an
exponential, where those that only move data have 8e9 (c_text.traffic). No measurement of it is on
record; the prototype's softmax moved 2.3e10 on one core with long rows (README).
"""
_INNER = "inner"


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [SoftmaxTactic()]


@dataclass(frozen=True)
class SoftmaxWork:
    """``space``: loops before, along and after the axis; ``log``: whether the logarithm is the
    result.
    """

    node: Node
    space: Space
    epilogue: Epilogue
    log: bool


class SoftmaxTactic(Tactic[SoftmaxWork]):
    """Linear format; f32, f16 and bf16."""

    key = "tactix.c_softmax@1"
    implements = SOFTMAXES
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> SoftmaxWork | Reject:
        if node.given[0].spec.dtype not in (DType.FP32, DType.FP16, DType.BF16):
            return Reject(f"no softmax of {node.given[0].spec.dtype.value} in C")
        found = epilogue(node)
        if isinstance(found, Reject):
            return found
        assert node.anchor is not None
        return SoftmaxWork(node, _space(node, found), found, node.anchor.layer.name == "LogSoftmax")

    def cost(self, work: SoftmaxWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx, _BANDWIDTH)

    def compile(self, work: SoftmaxWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = c_text.Args(work.node)
        if work.space.tags[-1] == _INNER:
            body = _Columns(args, work.space, work.epilogue, work.log).body()
        else:
            body = _rows(
                CpuRowKernel(args, work.space, work.epilogue, ()), work.log, ctx.device.lanes
            )
        return c_text.kernel(args, body, ctx)


def _space(node: Node, found: Epilogue) -> Space:
    """Loops before, along and after the axis; strides of the input, the output and the operands."""
    assert node.anchor is not None
    shape = node.given[0].spec.shape
    axis = node.anchor.attrs.axis % len(shape)
    own = c_text.contiguous_strides(shape)
    strides = [own, own, *(o.strides for _, o in sorted(found.operands.items()))]
    inner = dims.prod(shape[axis + 1 :]) != 1
    tags = [OUTER] * axis + [ROW] + [_INNER] * (len(shape) - axis - 1)
    space = collapse(shape, strides, tags)
    if ROW in space.tags and (inner or space.tags[-1] == ROW):
        return space
    return _with_axis(space, inner)


def _with_axis(space: Space, inner: bool) -> Space:
    """With a loop of one step for an axis of length 1."""
    k = sum(t == OUTER for t in space.tags)
    if space.tags == (None,):
        return Space((1,), tuple((1,) for _ in space.strides), (ROW,))
    strides = tuple((*s[:k], 0 if inner else 1, *s[k:]) for s in space.strides)
    return Space(
        (*space.sizes[:k], 1, *space.sizes[k:]), strides, (*space.tags[:k], ROW, *space.tags[k:])
    )


def _rows(rows: CpuRowKernel, log: bool, lanes: int) -> list[str]:
    length = rows.length
    single = len(rows.inner) == 1
    if single and isinstance(length, int) and 0 < length <= _IN_REGISTERS * lanes:
        return rows.body(_short_row(rows, length, lanes, log))
    infinity = "tx_splat(-__builtin_inff())"
    names = ["m0", "m1", "m2", "m3"]
    masked = f"tx_select(tx_first({{n}}), {{v}}, {infinity})"
    largest = rows.sweep(names, infinity, "tx_max_c({v}, {s})", "tx_max_c({a}, {b})", masked)
    keep = not log and rows.args.node.outputs[0].spec.dtype is DType.FP32
    sums = _sum_pass(rows, keep)
    scale = "logf(tx_hsum(s0))" if log else "1.0f / tx_hsum(s0)"
    form = (
        "const vf y = {x} - top - scale;"
        if log
        else "const vf y = {x} * scale;"
        if keep
        else _AGAIN
    )
    final = rows.map(lambda x, _: [form.format(x=x)], "q0" if keep else "p")
    return rows.body(
        [
            *largest,
            "const vf top = tx_splat(tx_hmax_c(m0));",
            *sums,
            f"const vf scale = tx_splat({scale});",
            *final,
        ]
    )


_AGAIN = "const vf y = tx_exp2_flush(({x} - top) * TX_LOG2E) * scale;"


def _sum_pass(rows: CpuRowKernel, keep: bool) -> list[str]:
    """Sum of ``exp(x - top)`` into ``s0``; ``keep``: the exponentials are written to the output.

    Two sums in turns are enough: an exponential takes longer than the addition that waits.
    """
    n = rows.count

    def at(index: str, name: str, count: str = "") -> str:
        e = f"const vf e = tx_exp2_flush(({rows.load(index, count)} - top) * TX_LOG2E);"
        kept = c_text.store(DType.FP32, f"q0 + {index}", "e", count) if keep else ""
        return f"{{ {e} {kept} {name} += {f'tx_keep(e, {count})' if count else 'e'}; }}"

    steps = [
        "int64_t i = 0;",
        block(
            f"for (; i + 2 * TX_LANES <= {n}; i += 2 * TX_LANES)",
            at("i", "s0"),
            at("i + TX_LANES", "s1"),
        ),
        block(f"for (; i + TX_LANES <= {n}; i += TX_LANES)", at("i", "s0")),
        block(f"if (i < {n})", at("i", "s0", f"{n} - i")),
    ]
    return ["vf s0 = tx_zero(), s1 = tx_zero();", block("", *steps), "s0 += s1;"]


def _short_row(rows: CpuRowKernel, length: int, lanes: int, log: bool) -> list[str]:
    """All vectors of the row in registers."""
    count = -(-length // lanes)
    rest = str(length % lanes) if length % lanes else ""
    tails = [rest if k == count - 1 else "" for k in range(count)]
    out = []
    for k, tail in enumerate(tails):
        out.append(f"vf v{k} = {rows.load(str(k * lanes), tail)};")
        if tail:
            out.append(f"v{k} = tx_select(tx_first({tail}), v{k}, tx_splat(-__builtin_inff()));")
    out.append(
        "const vf top "
        f"= tx_splat(tx_hmax_c({_tree('tx_max_c({}, {})', [f'v{k}' for k in range(count)])}));"
    )
    terms = [f"tx_exp2_flush((v{k} - top) * TX_LOG2E)" for k in range(count)]
    if not log:
        out += [f"const vf e{k} = {term};" for k, term in enumerate(terms)]
        terms = [f"e{k}" for k in range(count)]
    total = f"tx_hsum({_tree('({} + {})', terms)})"
    out.append(f"const vf scale = tx_splat({f'logf({total})' if log else f'1.0f / {total}'});")
    for k, tail in enumerate(tails):
        value = f"v{k} - top - scale" if log else f"e{k} * scale"
        out.append(block("", f"const vf y = {value};", *rows.finish("y", str(k * lanes), tail)))
    return out


def _tree(form: str, names: Sequence[str]) -> str:
    """The names joined pairwise."""
    items = list(names)
    while len(items) > 1:
        items = [
            form.format(*items[i : i + 2]) if i + 1 < len(items) else items[i]
            for i in range(0, len(items), 2)
        ]
    return items[0]


class _Columns:
    """An axis that is not the last: vectors hold neighbours along the last, three walks along the
    axis.
    """

    def __init__(self, args: c_text.Args, space: Space, found: Epilogue, log: bool) -> None:
        self.args, self.space, self.epilogue, self.log = args, space, found, log
        self.order = sorted(found.operands)
        self.x, self.dtype = args.input(0), args.node.given[0].spec.dtype
        self.outputs = [args.output(j) for j in range(len(args.node.outputs))]
        self.axis = space.tags.index(ROW)
        self.around = [i for i in range(len(space.sizes) - 1) if i != self.axis]

    def body(self) -> list[str]:
        last = self.args.dim(self.space.sizes[-1])
        names = [f"i{i}" for i in self.around]
        sizes = [self.args.dim(self.space.sizes[i]) for i in self.around]
        total = self.args.dim(dims.prod(self.space.sizes[i] for i in self.around))
        vectors = f"(({last} + TX_LANES - 1) / TX_LANES)"
        body = [
            f"const int64_t o = u / {vectors}, j = u % {vectors} * TX_LANES;",
            c_text.decode("o", names, sizes),
            block(f"if (j + TX_LANES <= {last})", *self._column("")),
            block("else", *self._column(f"{last} - j")),
        ]
        return [c_text.split(f"{total} * {vectors}"), loop("u", "lo", "hi", *body)]

    def _offset(self, operand: int, along: bool) -> str:
        strides = self.space.strides[operand]
        loops = sorted([*self.around, self.axis]) if along else self.around
        return self.args.offset([strides[i] for i in loops], [f"i{i}" for i in loops])

    def _along(self, *body: str) -> str:
        return loop(f"i{self.axis}", "0", self.args.dim(self.space.sizes[self.axis]), *body)

    def _column(self, count: str) -> list[str]:
        x = (
            "const vf x = "
            f"{c_text.load(self.dtype, f'{self.x} + {self._offset(0, True)} + j', count)};"
        )
        value = "x - top - scale" if self.log else "tx_exp2_flush((x - top) * TX_LOG2E) * scale"
        return [
            "vf top = tx_splat(-__builtin_inff()), sum = tx_zero();",
            self._along(x, "top = tx_max_c(x, top);"),
            self._along(x, "sum += tx_exp2_flush((x - top) * TX_LOG2E);"),
            f"const vf scale = {'tx_log(sum)' if self.log else '1.0f / sum'};",
            self._along(x, f"const vf y = {value};", *self._finish(count)),
        ]

    def _finish(self, count: str) -> list[str]:
        position = {self.epilogue.operands[v].index: 2 + k for k, v in enumerate(self.order)}

        def place(o: EpilogueOperand) -> str:
            k = position[o.index]
            base = f"{self.args.input(o.index)} + {self._offset(k, True)}"
            if self.space.strides[k][-1] == 0:
                return c_text.splat(o.dtype, base)
            return c_text.load(o.dtype, f"{base} + j", count)

        code = self.epilogue.emit(["y"], place)
        where = f"{self._offset(1, True)} + j"
        stores = [
            c_text.store(t, f"{y} + {where}", name, count)
            for y, name, t in zip(self.outputs, code.results, code.dtypes, strict=True)
        ]
        return [*code.statements, *stores]
