"""Sliding windows in C that the pooling tactic does not know: MaxPoolIndices, LpPool, and MaxPool
and AveragePool of float64; linear format.

Windows of a row go side by side: each tap is joined to all windows that have it inside, in a loop
without conditions that the compiler makes vectors of.
"""

from __future__ import annotations

from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import text as c_text
from tactix_codegen.c.power import Power
from tactix_codegen.c.scalar import WIDE, element, int_literal, int_range, stored
from tactix_codegen.c.text import Args, comment, loop
from tactix_codegen.operations.pool import KINDS, PoolWindow, window_of

_BLOCK = 64
"""Windows of a row that are held together."""
_TAP = 0.4e-9
"""Seconds to join one element to a window; Sapphire Rapids, one thread."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuWindowTactic()]


@dataclass(frozen=True)
class CpuWindowWork:
    """What to pool, and over which windows."""

    node: Node
    window: PoolWindow


class CpuWindowTactic(Tactic[CpuWindowWork]):
    """Any number of axes; indices of all numbers, norms of floats, the rest of float64."""

    key = "tactix.c_windows@1"
    implements = ("tactix.MaxPoolIndices@1", "tactix.LpPool@1", *KINDS)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> CpuWindowWork | Reject:
        x = node.given[0].spec
        norm = node.layer.name == "LpPool"
        if node.is_fused:
            return Reject("no layers around it are fused by this tactic")
        if node.layer.key in KINDS and x.dtype is not DType.FP64:
            return Reject("of narrower numbers another kernel takes these windows")
        if not c_text.has_ctype(x.dtype) or x.dtype is DType.BOOL:
            return Reject(f"no windows of {x.dtype.value} in C")
        if norm and (not x.dtype.is_float or node.attrs.p < 1):
            return Reject(f"no {node.attrs.p}-norm of {x.dtype.value} in C")
        return CpuWindowWork(node, window_of(node))

    def cost(self, work: CpuWindowWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        results = dims.evaluate(work.node.outputs[0].spec.numel, ctx.opt)
        taps = int(dims.prod(work.window.kernel))  # type: ignore[arg-type]
        return seconds + results * taps * _TAP / max(1, ctx.threads)

    def compile(self, work: CpuWindowWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        writer = _WRITERS.get(work.node.layer.name, _Doubles)(work)
        preludes = (*c_text.vector_preludes(), c_text.prelude("pool.h"))
        return c_text.kernel(writer.args, writer.body(), ctx, preludes=preludes)


class _Windows:
    """Axis ``i`` has names ``o<i>`` (window), ``b<i>`` (its first element), ``k<i>`` (tap)."""

    def __init__(self, work: CpuWindowWork) -> None:
        self.node, self.w, self.args = work.node, work.window, Args(work.node)
        self.dtype = work.node.given[0].spec.dtype
        self.number = c_text.ctype(WIDE.get(self.dtype, self.dtype))
        self.last = self.w.rank - 1
        self.sizes = [self.args.size(f"SIZE{i}", d) for i, d in enumerate(self.w.size)]

    def begin(self) -> list[str]:
        """Declare what is held of each window ``j``."""
        raise NotImplementedError

    def join(self) -> list[str]:
        """Join the number ``v`` of element ``e`` of the last axis to window ``j``."""
        raise NotImplementedError

    def finish(self) -> str:
        """Store all windows, from element ``o`` on."""
        raise NotImplementedError

    def row(self) -> list[str]:
        """What is known of all elements of a row."""
        return []

    def body(self) -> list[str]:
        args, w = self.args, self.w
        x = self.node.given[0].spec
        out = args.size("OUT", w.out[self.last])
        blocks = args.size("BLOCKS", dims.ceildiv(w.out[self.last], _BLOCK))
        plane = args.size("PLANE", dims.prod(w.size))
        outer = [("image", x.shape[0] * x.shape[1])]
        outer += [(f"o{i}", w.out[i]) for i in range(self.last)]
        total = args.dim(dims.prod(size for _, size in outer))
        names = [*(name for name, _ in outer), "part"]
        sizes = [*(args.dim(size) for _, size in outer), blocks]
        kind = c_text.ctype(self.dtype)
        unit = [
            c_text.decode("u", names, sizes),
            f"const int64_t begin = part * {_BLOCK}, left = {out} - begin;",
            f"const int64_t count = left < {_BLOCK} ? left : {_BLOCK};",
            f"const {kind}* plane = {args.input(0)} + image * {plane};",
            *(line for i in range(self.last) for line in self._inside(i)),
            *self.begin(),
            comment("Each tap is joined to all windows that have it inside."),
            self._taps(),
            f"const int64_t o = u / {blocks} * {out} + begin;",
            self.finish(),
        ]
        return [c_text.split(f"{total} * {blocks}"), loop("u", "lo", "hi", *unit)]

    def _inside(self, i: int) -> list[str]:
        """Declare the first tap of an outer axis that is inside, and the end of those."""
        w = self.w
        begin = f"o{i} * {w.strides[i]} - {self.args.dim(w.before[i])}"
        kernel = f"{self.sizes[i]}, {w.kernel[i]}"
        return [
            f"const int64_t b{i} = {begin};",
            f"const int64_t f{i} = tx_first_tap(b{i}, {w.dilations[i]});",
            f"const int64_t e{i} = tx_end_tap(b{i}, {w.dilations[i]}, {kernel});",
        ]

    def _taps(self) -> str:
        w, a, kind = self.w, self.last, c_text.ctype(self.dtype)
        stride, size = w.strides[a], self.sizes[a]
        place = ""
        for i in range(a):
            here = f"b{i} + k{i} * {w.dilations[i]}"
            place = f"({place}) * {self.sizes[i]} + {here}" if place else here
        place = f"({place}) * {size}" if place else "0"
        value = element(self.dtype, f"row[j * {stride}]")
        body = [
            f"const int64_t shift = begin * {stride} + k * {w.dilations[a]}"
            f" - {self.args.dim(w.before[a])};",
            comment("The first element is behind the begin, the last before the end of the row."),
            f"const int64_t first = tx_first_tap(shift, {stride});",
            f"const int64_t end = tx_end_tap(shift, {stride}, {size}, count);",
            f"const {kind}* row = plane + {place} + shift;",
            *self.row(),
            loop("j", "first", "end", f"const {self.number} v = {value};", *self.join()),
        ]
        text = loop("k", "0", str(w.kernel[a]), *body)
        for i in reversed(range(a)):
            text = loop(f"k{i}", f"f{i}", f"e{i}", text)
        return text


class _Places(_Windows):
    """MaxPoolIndices: the largest, and where it lies; of equals the first."""

    def begin(self) -> list[str]:
        plane = dims.prod(self.w.size)
        short = isinstance(plane, int) and plane < 1 << 31
        place = "int32_t" if short else "int64_t"
        lowest = "-__builtin_inff()" if self.dtype.bits <= 32 else "-__builtin_inf()"
        if not self.dtype.is_float:
            lowest = int_literal(int_range(self.dtype)[0], self.dtype)
        return [
            f"{self.number} best[{_BLOCK}];",
            f"{place} where[{_BLOCK}];",
            loop("j", "0", str(_BLOCK), f"best[j] = {lowest};", "where[j] = -1;"),
        ]

    def _strides(self) -> list[Dim]:
        """Of places, by spatial axis."""
        sizes = self.w.size
        if self.node.attrs.storage_order:
            return [dims.prod(sizes[:i]) for i in range(self.w.rank)]
        return [dims.prod(sizes[i + 1 :]) for i in range(self.w.rank)]

    def row(self) -> list[str]:
        strides, a = self._strides(), self.last
        names = [f"(b{i} + k{i} * {self.w.dilations[i]})" for i in range(a)] + ["shift"]
        return [f"const int64_t at = {self.args.offset(strides, names)};"]

    def join(self) -> list[str]:
        step = self.args.dim(self.w.strides[self.last] * self._strides()[self.last])
        return [
            "const int better = (where[j] < 0) | (v > best[j]);",
            "best[j] = better ? v : best[j];",
            f"where[j] = better ? at + j * {step} : where[j];",
        ]

    def finish(self) -> str:
        best = "best[j]" if self.dtype not in WIDE else stored(self.dtype, "best[j]")
        return loop(
            "j",
            "0",
            "count",
            f"{self.args.output(0)}[o + j] = {best};",
            f"{self.args.output(1)}[o + j] = where[j] < 0 ? -1 : image * PLANE + where[j];",
        )


class _Norms(_Windows):
    """LpPool."""

    def __init__(self, work: CpuWindowWork) -> None:
        super().__init__(work)
        self.power = Power(self.node.attrs.p, self.dtype)

    def begin(self) -> list[str]:
        zero = loop("j", "0", str(_BLOCK), "sum[j] = 0;")
        return [f"{self.number} sum[{_BLOCK}];", zero]

    def join(self) -> list[str]:
        return [f"sum[j] += {self.power.term('v')};"]

    def finish(self) -> str:
        y = self.args.output(0)
        if self.dtype is DType.FP64:
            return loop("j", "0", "count", f"{y}[o + j] = {self.power.root('sum[j]')};")
        store = c_text.store(self.dtype, f"{y} + o + j", "norm", "count - j")
        norm = f"const vf norm = {self.power.roots('tx_load_f32(sum + j)')};"
        return loop("j", "0", "count", norm, store, step="TX_LANES")


class _Doubles(_Windows):
    """MaxPool, in which what is no number stays, and AveragePool."""

    def begin(self) -> list[str]:
        start = "0" if self.w.average else "-__builtin_inf()"
        counts = [self._counted(i, f"b{i}", f"n{i}") for i in range(self.last) if self.w.average]
        return [
            *counts,
            f"double acc[{_BLOCK}];",
            loop("j", "0", str(_BLOCK), f"acc[j] = {start};"),
        ]

    def _counted(self, i: int, begin: str, name: str) -> str:
        """Declare how many elements along an axis the average of a window is over."""
        w = self.w
        size = self.args.dim(w.size[i] + w.after[i] if w.with_pads else w.size[i])
        end = f"tx_end_tap({begin}, {w.dilations[i]}, {size}, {w.kernel[i]})"
        first = "" if w.with_pads else f" - tx_first_tap({begin}, {w.dilations[i]})"
        return f"const int64_t {name} = {end}{first};"

    def join(self) -> list[str]:
        if self.w.average:
            return ["acc[j] += v;"]
        return ["acc[j] = v > acc[j] || v != v ? v : acc[j];"]

    def finish(self) -> str:
        y, a = self.args.output(0), self.last
        if not self.w.average:
            return loop("j", "0", "count", f"{y}[o + j] = acc[j];")
        at = f"(begin + j) * {self.w.strides[a]} - {self.args.dim(self.w.before[a])}"
        counts = " * ".join(f"n{i}" for i in range(self.w.rank))
        return loop(
            "j",
            "0",
            "count",
            f"const int64_t at = {at};",
            self._counted(a, "at", f"n{a}"),
            f"{y}[o + j] = acc[j] / (double)({counts});",
        )


_WRITERS: dict[str, type[_Windows]] = {"LpPool": _Norms, "MaxPoolIndices": _Places}
