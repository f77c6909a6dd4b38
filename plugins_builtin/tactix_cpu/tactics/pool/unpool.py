"""MaxUnpool and Col2Im in C: elements and columns put back where windows took them; linear
format.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import WIDE, element, stored
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_codegen.c.unpool import target
from tactix_codegen.operations.unpool import (
    ColumnAxis,
    ColumnsWork,
    UnpoolWork,
    columns_of,
    unpool_of,
)

_LINE = 64
"""Bytes to which scratch memory is aligned."""
_MOST_TAPS = 64
"""Elements of a block of columns, each of which has loops of its own in the text."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuUnpoolTactic(), CpuToldUnpoolTactic(), CpuColumnsTactic()]


class CpuUnpoolTactic(Tactic[UnpoolWork]):
    """Any dtype of a known width, any integer places. Of elements with one place the last stays."""

    key = "tactix.c_unpool@1"
    implements = ("tactix.MaxUnpool@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> UnpoolWork | Reject:
        return unpool_of(node)

    def cost(self, work: UnpoolWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx)

    def compile(self, work: UnpoolWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(work.node)
        return c_text.kernel(args, _unpooled(args, work), ctx, preludes=c_copy.preludes())


class CpuToldUnpoolTactic(CpuUnpoolTactic):
    """With the shape of the result in a tensor: the first launch tells it."""

    key = "tactix.c_told_unpool@1"
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> UnpoolWork | Reject:
        if len(node.given) < 3 or not c_text.fresh_symbols(node):
            return Reject("the shape of the result is known")
        return super().match(node, device)

    def compile(self, work: UnpoolWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = Args(work.node)
        told = block(f"if ({args.phase()} == 0)", *_told(args, work.node), "return;")
        body = [told, *_unpooled(args, work)]
        preludes = c_copy.preludes()
        return c_text.kernel(args, body, ctx, preludes=preludes, phases=2, telling=1)


def _told(args: Args, node: Node) -> list[str]:
    """Tell the sizes of the result."""
    lines, fresh, shape = ["if (tid) return;"], {}, args.input(2)
    for i, d in enumerate(node.outputs[0].spec.shape):
        size = f"(int64_t){shape}[{i}]"
        refused = args.refuse("an axis of the result cannot have {0} elements", size)
        lines.append(block(f"if ({size} < 0)", refused, "return;"))
        name = dims.symbol_name(d)
        assert name is not None
        fresh[name] = size
    return [*lines, *args.tell(fresh)]


def _unpooled(args: Args, work: UnpoolWork) -> list[str]:
    x, y = work.node.given[0].spec, work.node.outputs[0].spec
    t = f"uint{8 * x.dtype.itemsize}_t"
    small = args.size("SMALL", dims.prod(work.small))
    found = f"tx_index((int64_t){args.input(1)}[i], {small}, {args.fault()})"
    body = [
        f"const int64_t place = {found};",
        "if (place < 0) continue;",
        *target(args, work.small, y.shape, "continue;"),
        f"if (at >= lo && at < hi) to[at] = ((const {t}*){args.bytes_in(0)})[i];",
    ]
    return [
        f"{t}* to = ({t}*){args.bytes_out(0)};",
        c_text.split(args.size("RESULTS", y.numel), 64),
        loop("i", "lo", "hi", "to[i] = 0;"),
        comment("Every thread looks at all places, in order, and keeps those in its own part."),
        loop("i", "0", args.size("ELEMENTS", x.numel), *body),
    ]


class CpuColumnsTactic(Tactic[ColumnsWork]):
    """All numbers; blocks must be known. Sums of 16-bit floats are kept in float32."""

    key = "tactix.c_columns@1"
    implements = ("tactix.Col2Im@1",)
    source = "c"

    def match(self, node: Node, device: DeviceProperties) -> ColumnsWork | Reject:
        work = columns_of(node)
        if isinstance(work, ColumnsWork) and math.prod(a.taps for a in work.axes) > _MOST_TAPS:
            return Reject(f"a block has more than {_MOST_TAPS} elements")
        return work

    def cost(self, work: ColumnsWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx, 4e9)

    def compile(self, work: ColumnsWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _columns(work, ctx)


def _columns(work: ColumnsWork, ctx: CompileContext) -> KernelArtifact:
    args, y = Args(work.node), work.node.outputs[0].spec
    number = c_text.ctype(WIDE.get(y.dtype, y.dtype))
    plane = dims.prod(y.shape[2:])
    size, threads = args.size("PLANE", plane), max(1, ctx.threads)
    workspace: Dim = 0
    to, finish, each = f"{args.output(0)} + u * {size}", [], dims.ceildiv(plane * 4, _LINE) * _LINE
    if y.dtype in WIDE:
        workspace = each * threads
        to = f"(float*)({args.workspace(0, 'char')} + tid * {args.dim(each)})"
        place = f"{args.output(0)}[u * {size} + i]"
        finish = [loop("i", "0", size, f"{place} = {stored(y.dtype, 'to[i]')};")]
    unit = [
        f"{number}* __restrict to = {to};",
        loop("i", "0", size, "to[i] = 0;"),
        *_taps(args, work),
        *finish,
    ]
    lines = [
        f"if (tid >= {threads}) return;",
        f"if (nt > {threads}) nt = {threads};",
        c_text.split(args.dim(y.shape[0] * y.shape[1])),
        loop("u", "lo", "hi", *unit),
    ]
    preludes = (*c_text.vector_preludes(), c_text.prelude("pool.h"))
    return c_text.kernel(args, lines, ctx, preludes=preludes, workspace=workspace)


def _taps(args: Args, work: ColumnsWork) -> list[str]:
    """Loops over the windows of each element of the block, in the order of the reference."""
    x, kind = work.node.given[0].spec, c_text.ctype(work.node.given[0].spec.dtype)
    taps = math.prod(a.taps for a in work.axes)
    windows, lines = args.size("WINDOWS", x.shape[2]), []
    for n, tap in enumerate(itertools.product(*(range(a.taps) for a in work.axes))):
        column = f"{args.input(0)} + (u * {taps} + {n}) * {windows}"
        lines += [
            comment(f"Element {', '.join(map(str, tap))} of all windows."),
            block("", f"const {kind}* from = {column};", _rows(args, work.axes, tap, x.dtype)),
        ]
    return lines


def _rows(args: Args, axes: Sequence[ColumnAxis], tap: Sequence[int], dtype: DType) -> str:
    """One tap of all windows, row by row."""
    last = len(axes) - 1
    shifts = [k * a.dilation - a.before for k, a in zip(tap, axes, strict=True)]
    inside = [f"o{i} * {a.stride} + {shifts[i]}" for i, a in enumerate(axes)]
    row = source = ""
    for i, a in enumerate(axes[:last]):
        row = f"({row}) * {args.dim(a.size)} + {inside[i]}" if row else inside[i]
        source = f"({source}) * {args.dim(a.out)} + o{i}" if source else f"o{i}"
    a = axes[last]
    size, out = args.dim(a.size), args.dim(a.out)
    begin = f"({row}) * {size} + " if row else ""
    behind = f"({source}) * {out} + " if source else ""
    value = element(dtype, f"from[{behind}o{last}]")
    text = "\n".join(
        [
            f"const int64_t first = tx_first_tap({shifts[last]}, {a.stride});",
            f"const int64_t end = tx_end_tap({shifts[last]}, {a.stride}, {size}, {out});",
            loop(f"o{last}", "first", "end", f"to[{begin}{inside[last]}] += {value};"),
        ]
    )
    for i in reversed(range(last)):
        size = args.dim(axes[i].size)
        skip = f"if ({inside[i]} < 0 || {inside[i]} >= {size}) continue;"
        text = loop(f"o{i}", "0", args.dim(axes[i].out), skip, text)
    return text
