"""ScatterElements and ScatterND in C: a copy of the data, then the updates, in order.

Threads share what cannot meet: lines along the axis, or parts of the slices. Updates that are
joined to 16-bit floats are joined in float32, in the workspace, and rounded once. What an index
beyond the axis asks for is left out and reported: the run fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import WIDE, element, stored
from tactix_codegen.c.text import Args, block, comment, loop

SECONDS_A_BYTE = 2e-10
"""To copy the data: read and write, at 10 GB/s."""
SECONDS_AN_UPDATE = 2e-9
"""A load and a store that depend on an index."""
JOINED = {
    "add": "{a} + {b}",
    "mul": "{a} * {b}",
    "min": "{b} < {a} ? {b} : {a}",
    "max": "{b} > {a} ? {b} : {a}",
}
"""How an update ``b`` is joined to what is there, where NaN stays. A NaN among updates is seen to
apart, so that which of two numbers is less is one instruction, and no branch.
"""
JOINED_TRUTHS = {"add": "{a} | {b}", "mul": "{a} & {b}", "min": "{a} & {b}", "max": "{a} | {b}"}


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuScatterTactic()]


@dataclass(frozen=True)
class ScatterWork:
    """What is written where: ``reduction`` is ``none`` where an update replaces what is there."""

    node: Node
    data: TensorSpec
    indices: TensorSpec
    reduction: str

    @property
    def is_wide(self) -> bool:
        """Whether updates are joined in the workspace, in float32."""
        return self.reduction != "none" and self.data.dtype in WIDE

    @property
    def kind(self) -> str:
        """The C type of what is written."""
        if self.is_wide:
            return "float"
        if self.reduction == "none":
            return f"uint{8 * self.data.dtype.itemsize}_t"
        return c_text.ctype(self.data.dtype)

    def put(self, to: str, update: str) -> str:
        """Statement that writes element ``update`` of the updates to element ``to``."""
        if self.reduction == "none":
            return f"y[{to}] = u[{update}];"
        table = JOINED_TRUTHS if self.data.dtype is DType.BOOL else JOINED
        value = element(self.data.dtype, f"u[{update}]") if self.is_wide else f"u[{update}]"
        joined = table[self.reduction].format(a="a", b="b")
        known = f"const {self.kind} a = y[{to}], b = {value}, c = ({self.kind})({joined});"
        by_size = self.data.dtype.is_float and self.reduction in ("min", "max")
        result = "b != b ? b : c" if by_size else "c"
        return f"{known} y[{to}] = {result};"


class CpuScatterTactic(Tactic[ScatterWork]):
    """Any movable dtype where updates replace, else those with a C type; any integer indices."""

    key = "tactix.c_scatter@1"
    implements = ("tactix.ScatterElements@1", "tactix.ScatterND@1")
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> ScatterWork | Reject:
        data, indices, reduction = node.given[0].spec, node.given[1].spec, node.attrs.reduction
        if node.is_fused:
            return Reject("elements are written, not computed: no epilogue")
        known = c_copy.movable if reduction == "none" else c_text.has_ctype
        if not known(data.dtype) or data.rank == 0:
            return Reject(f"no updates of {data} in C")
        if not c_text.has_ctype(indices.dtype):
            return Reject(f"no indices of {indices.dtype.value} in C")
        return ScatterWork(node, data, indices, reduction)

    def cost(self, work: ScatterWork, variant: Variant, ctx: CompileContext) -> float | None:
        updates = work.node.given[2].spec.numel
        copied = (work.data.nbytes(), SECONDS_A_BYTE)
        return c_text.seconds(ctx, copied, (updates, SECONDS_AN_UPDATE))

    def compile(self, work: ScatterWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args, elements = Args(work.node), work.node.layer.name == "ScatterElements"
        phase = args.phase()
        updates = _elements(args, work) if elements else _slices(args, work)
        body = [
            *_pointers(args, work),
            block(f"if ({phase} == 0)", *_copied(args, work), "return;"),
            *([block(f"if ({phase} == 2)", *_rounded(args, work), "return;")] * work.is_wide),
            *updates,
        ]
        room: Dim = 4 * work.data.numel if work.is_wide else 0
        phases = 3 if work.is_wide else 2
        return c_text.kernel(
            args,
            body,
            ctx,
            preludes=c_copy.preludes(),
            workspace=room,
            phases=phases,
            in_place=True,
        )


def _pointers(args: Args, work: ScatterWork) -> list[str]:
    """``y``: what updates go to; ``u``: the updates as they are stored."""
    y = args.workspace(0) if work.is_wide else args.bytes_out(0)
    kind = c_text.ctype(work.data.dtype) if work.is_wide else work.kind
    return [
        f"{work.kind}* const y = ({work.kind}*){y};",
        f"const {kind}* const u = (const {kind}*){args.bytes_in(2)};",
    ]


def _copied(args: Args, work: ScatterWork) -> list[str]:
    size, x = args.size("DATA", work.data.numel), args.bytes_in(0)
    split = c_text.split(size, 64)
    if work.is_wide:
        value = element(work.data.dtype, f"((const uint16_t*){x})[i]")
        return [split, loop("i", "lo", "hi", f"y[i] = {value};")]
    width = work.data.dtype.itemsize
    copy = f"memcpy(y + lo, {x} + lo * {width}, (hi - lo) * {width});"
    return [split, f"if ((const char*)y != {x}) {copy}"]


def _rounded(args: Args, work: ScatterWork) -> list[str]:
    out = f"((uint16_t*){args.bytes_out(0)})[i]"
    return [
        c_text.split(args.size("DATA", work.data.numel), 64),
        loop("i", "lo", "hi", f"{out} = {stored(work.data.dtype, 'y[i]')};"),
    ]


def _elements(args: Args, work: ScatterWork) -> list[str]:
    """Each unit is some neighbouring lines of indices along the axis."""
    data, indices = work.data.shape, work.indices.shape
    axis, rank = work.node.attrs.axis % len(data), len(data)
    strides = c_text.contiguous_strides(data)
    inner = dims.prod(indices[axis + 1 :])
    tile = 1 if inner == 1 else 64
    args.size("LENGTH", indices[axis])
    args.size("INNER", inner)
    tiles = args.size("TILES", dims.ceildiv(inner, tile))
    before, behind = list(range(axis)), list(range(axis + 1, rank))
    base = args.offset([strides[i] for i in before], [f"i{i}" for i in before])
    at = f"tx_index((int64_t){args.input(1)}[from], {args.dim(data[axis])}, {args.fault()})"
    together = all(indices[i] == data[i] for i in behind[1:])
    place = "j" if behind else "0"
    apart: list[str] = []
    if not together:
        names = [f"i{i}" for i in behind]
        apart = [c_text.decode("j", names, [args.dim(indices[i]) for i in behind])]
        place = args.offset([strides[i] for i in behind], names)
    to = args.sum("base", f"at * {args.dim(strides[axis])}", f"({place})" if place != "0" else "0")
    update = [
        "const int64_t from = (line * LENGTH + k) * INNER + j;",
        f"const int64_t at = {at};",
        "if (at < 0) continue;",
        *apart,
        f"const int64_t to = {to};",
        work.put("to", "from"),
    ]
    unit = [
        f"const int64_t line = unit / {tiles}, begin = unit % {tiles} * {tile};",
        f"const int64_t end = INNER - begin < {tile} ? INNER : begin + {tile};",
        c_text.decode("line", [f"i{i}" for i in before], [args.dim(indices[i]) for i in before]),
        f"const int64_t base = {base};",
        comment("Along the axis in order, as updates may meet."),
        loop("k", "0", "LENGTH", loop("j", "begin", "end", *update)),
    ]
    units = dims.prod(indices[:axis]) * dims.ceildiv(inner, tile)
    return [c_text.split(args.size("UNITS", units)), loop("unit", "lo", "hi", *unit)]


def _slices(args: Args, work: ScatterWork) -> list[str]:
    """Every thread has a part of each slice."""
    data, depth = work.data.shape, work.indices.shape[-1]
    assert isinstance(depth, int)
    strides = c_text.contiguous_strides(data)
    slices = args.size("SLICES", dims.prod(work.indices.shape[:-1]))
    inner = args.size("INNER", dims.prod(data[depth:]))
    places, terms = [], []
    for d in range(depth):
        index = f"(int64_t){args.input(1)}[s * {depth} + {d}]"
        places.append(
            f"const int64_t j{d} = tx_index({index}, {args.dim(data[d])}, {args.fault()});"
        )
        terms.append(f"j{d} * {args.dim(strides[d])}")
    width = work.data.dtype.itemsize
    write = loop("i", "lo", "hi", work.put("to + i", f"s * {inner} + i"))
    if work.reduction == "none" and work.data.shape[depth:]:
        source = f"(const char*)(u + s * {inner} + lo)"
        write = f"tx_copy((char*)(y + to + lo), {source}, (hi - lo) * {width});"
    body = [
        *places,
        f"if (({' | '.join(f'j{d}' for d in range(depth))}) < 0) continue;",
        f"const int64_t to = {' + '.join(terms)};",
        write,
    ]
    return [c_text.split(inner, 64), "if (lo == hi) return;", loop("s", "0", slices, *body)]
