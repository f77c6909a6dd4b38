"""Col2Im in C, where sizes of image or block are in tensors: the first launch tells those of the
result, if shapes do not; linear format.
"""

from __future__ import annotations

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
from tactix_cpu.tactics.pool.unpool import CpuColumnsTactic

_LINE = 64
"""Bytes to which scratch memory is aligned."""
_ELEMENT = 1e-9
"""Seconds for an element of the columns; Sapphire Rapids, one thread."""

MOST_AXES = 6
"""Axes of an image: the text doubles with each."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuToldColumnsTactic(), CpuOpenColumnsTactic()]


class CpuToldColumnsTactic(Tactic[Node]):
    """All numbers; sizes in any integers. Sums of 16-bit floats are kept in float32."""

    key = "tactix.c_told_columns@1"
    implements = ("tactix.Col2Im@1",)
    source = "c"
    by_signature = True
    tells = True

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        x, image, taps = (v.spec for v in node.given[:3])
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if not c_text.has_ctype(x.dtype) or x.dtype is DType.BOOL:
            return Reject(f"no columns of {x.dtype.value} in C")
        if not image.dtype.is_int or not taps.dtype.is_int:
            return Reject("sizes are no integers")
        if bool(c_text.fresh_symbols(node)) is not self.tells:
            return Reject(f"the sizes of the result are {'known' if self.tells else 'told'}")
        if node.outputs[0].spec.rank - 2 > MOST_AXES:
            return Reject(f"an image of more than {MOST_AXES} axes")
        return node

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        x = node.given[0].spec
        if not dims.symbols(x.numel) <= set(ctx.opt):
            return None
        return 2e-6 + dims.evaluate(x.numel, ctx.opt) * _ELEMENT / max(1, ctx.threads)

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, y, threads = Args(node), node.outputs[0].spec, max(1, ctx.threads)
        rank = y.rank - 2
        size = args.size("PLANE", dims.prod(y.shape[2:]))
        each: Dim = 0
        number, to, finish = c_text.ctype(y.dtype), f"{args.output(0)} + u * {size}", list[str]()
        if y.dtype in WIDE:
            each = dims.ceildiv(dims.prod(y.shape[2:]) * 4, _LINE) * _LINE
            number, to = "float", f"(float*)({args.workspace(0, 'char')} + tid * {args.dim(each)})"
            place = f"{args.output(0)}[u * {size} + i]"
            finish = [loop("i", "0", size, f"{place} = {stored(y.dtype, 'to[i]')};")]
        unit = [
            f"{number}* __restrict to = {to};",
            loop("i", "0", size, "to[i] = 0;"),
            comment("Each element of the block, of all windows, in the order of the reference."),
            loop("t", "0", "taps", *_tap(args, node, rank)),
            *finish,
        ]
        body = [
            *_sizes(args, node, rank),
            *self._told(args, node, rank),
            f"if (tid >= {threads}) return;",
            f"if (nt > {threads}) nt = {threads};",
            c_text.split(args.dim(y.shape[0] * y.shape[1])),
            loop("u", "lo", "hi", *unit),
        ]
        preludes = (*c_copy.preludes(), c_text.prelude("pool.h"))
        phases, telling = (2, 1) if self.tells else (1, 0)
        return c_text.kernel(
            args,
            body,
            ctx,
            preludes=preludes,
            workspace=each * threads,
            phases=phases,
            telling=telling,
        )

    def _told(self, args: Args, node: Node, rank: int) -> list[str]:
        """What the first launch does."""
        return [block(f"if ({args.phase()} == 0)", *_told(args, node, rank), "return;")]


class CpuOpenColumnsTactic(CpuToldColumnsTactic):
    """The same, where shapes tell the sizes, of a block that is open or large."""

    key = "tactix.c_open_columns@1"
    tells = False

    def match(self, node: Node, device: DeviceProperties) -> Node | Reject:
        if not isinstance(CpuColumnsTactic().match(node, device), Reject):
            return Reject("each element of the block has loops of its own")
        return super().match(node, device)

    def _told(self, args: Args, node: Node, rank: int) -> list[str]:
        return []


def _geometry(node: Node, rank: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Strides, dilations and pads."""
    a = node.attrs
    return a.strides or (1,) * rank, a.dilations or (1,) * rank, a.pads or (0,) * 2 * rank


def _sizes(args: Args, node: Node, rank: int) -> list[str]:
    """Declare, by axis, the size of the image, that of the block, and how many windows there are;
    and ``taps`` and ``windows`` of all axes, which are -1 where they cannot be.
    """
    strides, dilations, pads = _geometry(node, rank)
    channels = args.size("CHANNELS", node.given[0].spec.shape[1])
    count = args.size("WINDOWS", node.given[0].spec.shape[2])
    lines = ["int64_t taps = 1, windows = 1;"]
    for i in range(rank):
        room = f"size{i} + {pads[i] + pads[rank + i]} - {dilations[i]} * (block{i} - 1) - 1"
        lines += [
            f"const int64_t size{i} = (int64_t){args.input(1)}[{i}];",
            f"const int64_t block{i} = (int64_t){args.input(2)}[{i}];",
            f"const int64_t room{i} = {room};",
            f"const int64_t out{i} = room{i} < 0 ? 0 : room{i} / {strides[i]} + 1;",
            comment("Products stay small: none is larger than what the columns have."),
            f"taps = block{i} < 1 || block{i} > {channels} || taps < 0 ? -1 : taps * block{i};",
            f"taps = taps > {channels} ? -1 : taps;",
            f"windows = out{i} < 1 || out{i} > {count} || windows < 0 ? -1 : windows * out{i};",
            f"windows = windows > {count} ? -1 : windows;",
        ]
    return lines


def _told(args: Args, node: Node, rank: int) -> list[str]:
    """Tell the sizes of the result, or why there is none."""
    channels, count = "CHANNELS", "WINDOWS"
    blocks = args.refuse("columns of {0} elements are no whole blocks", channels)
    fit = args.refuse("{0} windows are not those of the image", count)
    shape, fresh = node.outputs[0].spec.shape, {}
    values = ["CHANNELS / taps", *(f"size{i}" for i in range(rank))]
    for d, value in zip(shape[1:], values, strict=True):
        name = dims.symbol_name(d)
        if name in c_text.fresh_symbols(node):
            fresh[str(name)] = value
    return [
        "if (tid) return;",
        block(f"if (taps < 1 || {channels} % taps)", blocks, "return;"),
        block(f"if (windows != {count})", fit, "return;"),
        *args.tell(fresh),
    ]


def _tap(args: Args, node: Node, rank: int) -> list[str]:
    """Element ``t`` of the block, added where all windows have it."""
    strides, dilations, pads = _geometry(node, rank)
    dtype, last = node.given[0].spec.dtype, rank - 1
    places = [f"o{i} * {strides[i]} + shift{i}" for i in range(rank)]
    row = source = ""
    for i in range(last):
        row = f"({row}) * size{i} + {places[i]}" if row else places[i]
        source = f"({source}) * out{i} + o{i}" if source else f"o{i}"
    row = f"({row}) * size{last} + " if row else ""
    source = f"({source}) * out{last} + " if source else ""
    value = element(dtype, f"from[{source}o{last}]")
    ends = f"shift{last}, {strides[last]}, size{last}, out{last}"
    text = "\n".join(
        [
            f"const int64_t first = tx_first_tap(shift{last}, {strides[last]});",
            f"const int64_t end = tx_end_tap({ends});",
            loop(f"o{last}", "first", "end", f"to[{row}{places[last]}] += {value};"),
        ]
    )
    for i in reversed(range(last)):
        skip = f"if ({places[i]} < 0 || {places[i]} >= size{i}) continue;"
        text = loop(f"o{i}", "0", f"out{i}", skip, text)
    shifts = [f"const int64_t shift{i} = k{i} * {dilations[i]} - {pads[i]};" for i in range(rank)]
    return [
        c_text.decode("t", [f"k{i}" for i in range(rank)], [f"block{i}" for i in range(rank)]),
        *shifts,
        f"const {c_text.ctype(dtype)}* from = {args.input(0)} + (u * taps + t) * WINDOWS;",
        text,
    ]
