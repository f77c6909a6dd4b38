"""Deformable convolution in C: the samples of a block of results as columns, then their product
with the weights; linear format.
"""

from __future__ import annotations

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.scalar import element
from tactix_codegen.c.text import Args, block, comment, loop
from tactix_codegen.operations.deform import DeformableWork, deformable_of
from tactix_cpu.tactics.sample.sums import CpuSums

_BLOCK = 64
"""Results whose samples are gathered together."""
_ROWS = 6
"""Channels of the result that are summed together: with two vectors each they fill the registers
of AVX2.
"""
_SAMPLE, _PRODUCT = 1.2e-9, 0.03e-9
"""Seconds to gather one sample, and to multiply and add it once; Sapphire Rapids, one thread."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuDeformableTactic()]


class CpuDeformableTactic(Tactic[DeformableWork]):
    """Floats; weights may be inputs, of open sizes, too."""

    key = "tactix.c_deformable@1"
    implements = ("tactix.DeformableConvolution@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> DeformableWork | Reject:
        x = node.given[0].spec
        plane = x.shape[2] * x.shape[3]
        if isinstance(plane, int) and not 0 < plane < 1 << 31:
            return Reject(f"no samples of planes of {plane} elements in C")
        return deformable_of(node)

    def cost(self, work: DeformableWork, variant: Variant, ctx: CompileContext) -> float | None:
        seconds = c_text.traffic(work.node, variant, ctx)
        if seconds is None:
            return None
        x, w, y = (work.node.given[0].spec, work.node.given[1].spec, work.node.outputs[0].spec)
        pixels = dims.evaluate(y.shape[0] * y.shape[2] * y.shape[3], ctx.opt)
        samples = pixels * dims.evaluate(x.shape[1] * w.shape[2] * w.shape[3], ctx.opt)
        products = pixels * dims.evaluate(w.numel, ctx.opt)
        return seconds + (samples * _SAMPLE + products * _PRODUCT) / max(1, ctx.threads)

    def compile(
        self, work: DeformableWork, variant: Variant, ctx: CompileContext
    ) -> KernelArtifact:
        return _Deformable(work, ctx).artifact()


class _Deformable:
    """The text of one kernel."""

    def __init__(self, work: DeformableWork, ctx: CompileContext) -> None:
        self.work, self.node, self.ctx, self.args = work, work.node, ctx, Args(work.node)
        x, w, y = (self.node.given[0].spec, self.node.given[1].spec, self.node.outputs[0].spec)
        a = self.node.attrs
        self.dtype, self.sums = x.dtype, CpuSums(x.dtype)
        self.number = c_text.ctype(self.sums.number)
        results, depth, high, wide = w.shape
        dim, size = self.args.dim, self.args.size
        self.taps, self.wide = dim(high * wide), dim(wide)
        self.groups, self.offset_groups = a.group, a.offset_group
        self.results = dims.floordiv(results, a.group)
        self.depth = depth * high * wide
        self.height, self.width = size("HEIGHT", x.shape[2]), size("WIDTH", x.shape[3])
        self.channels = size("CHANNELS", x.shape[1])
        self.out_width = size("OUT_WIDTH", y.shape[3])
        self.pixels = size("PIXELS", y.shape[2] * y.shape[3])
        self.blocks = size("BLOCKS", dims.ceildiv(y.shape[2] * y.shape[3], _BLOCK))
        self.columns = self.depth * a.group
        self.is_widened = x.dtype in c_scalar.WIDE
        self.stored = DType.FP32 if self.is_widened else x.dtype
        each = _BLOCK * self.sums.number.itemsize * max(1, ctx.threads)
        self.scratch = self.columns * each

    def numbers(self, index: int) -> str:
        """Pointer to x or the weights: of 16 bits as float32 that the first launch made, since
        every element is read again and again.
        """
        if not self.is_widened:
            return self.args.input(index)
        before = self.node.given[0].spec.numel * index
        return self.args.workspace(self.scratch + before * self.stored.itemsize)

    def _widened(self) -> list[str]:
        """The first launch."""
        if not self.is_widened:
            return []
        lines = []
        for i in range(2):
            spec = self.node.given[i].spec
            to, each = self.numbers(i), element(spec.dtype, f"{self.args.input(i)}[i]")
            walk = loop("i", "lo", "hi", f"{to}[i] = {each};")
            lines.append(block("", c_text.split(self.args.dim(spec.numel), 16), walk))
        return [
            comment("x and the weights become float32."),
            block(f"if ({self.args.phase()} == 0)", *lines, "return;"),
        ]

    def artifact(self) -> KernelArtifact:
        threads, each = max(1, self.ctx.threads), self.columns * _BLOCK
        images = self.args.dim(self.node.given[0].spec.shape[0])
        scratch = self.args.workspace(0, self.number)
        unit = [
            f"const int64_t image = u / {self.blocks}, begin = u % {self.blocks} * {_BLOCK};",
            f"const int64_t left = {self.pixels} - begin;",
            f"const int64_t count = left < {_BLOCK} ? left : {_BLOCK};",
            *self._gathered(),
            *self._products(),
        ]
        lines = [
            *self._limits(),
            *self._widened(),
            f"if (tid >= {threads}) return;",
            f"if (nt > {threads}) nt = {threads};",
            c_text.split(f"{images} * {self.blocks}"),
            f"{self.number}* __restrict columns = {scratch} + tid * {self.args.dim(each)};",
            loop("u", "lo", "hi", *unit),
        ]
        preludes = (*c_copy.preludes(), *map(c_text.prelude, ("places.h", "sample.h")))
        wide = (
            self.node.given[0].spec.numel + self.node.given[1].spec.numel
        ) * self.stored.itemsize
        return c_text.kernel(
            self.args,
            lines,
            self.ctx,
            preludes=preludes,
            workspace=self.scratch + (wide if self.is_widened else 0),
            phases=1 + self.is_widened,
        )

    def _limits(self) -> list[str]:
        """Offsets in a plane have 32 bits, and there is an element to read."""
        shape = self.node.given[0].spec.shape
        if isinstance(shape[2] * shape[3], int):
            return []
        plane = f"{self.height} * {self.width}"
        report = f"tx_report({self.args.fault()}, {plane}, INT32_MAX);"
        return [block(f"if ({plane} < 1 || {plane} > INT32_MAX)", report, "return;")]

    # Samples

    def _gathered(self) -> list[str]:
        """Fill the columns: of every channel and tap a row of samples."""
        taps, each = self.taps, f"({self.channels} / {self.offset_groups})"
        row = f"(g * {each} + c) * {taps} + t"
        channel = [
            f"const {c_text.ctype(self.stored)}* from = {self.numbers(0)}"
            f" + (image * {self.channels} + g * {each} + c) * {self.height} * {self.width};",
            f"{self.number}* to = columns + ({row}) * {_BLOCK};",
            loop("j", "0", "room", *self._sample(), step=self.sums.lanes),
        ]
        tap = [
            f"int32_t at[4][{_BLOCK}];",
            f"{self.number} of[4][{_BLOCK}];",
            loop("j", "0", "count", *self._placed()),
            loop("j", "count", "room", loop("k", "0", "4", "at[k][j] = 0;", "of[k][j] = 0;")),
            loop("c", "0", each, *channel),
        ]
        step = f"(2 * {self.sums.lanes})"
        return [
            f"const int64_t room = (count + {step} - 1) / {step} * {step};",
            comment("Where each tap lies for each result of the block, and its samples."),
            loop("g", "0", str(self.offset_groups), loop("t", "0", taps, *tap)),
        ]

    def _placed(self) -> list[str]:
        """Statements that fill ``at`` and ``of`` for result ``j``."""
        a = self.node.attrs
        strides, pads, dilations = a.strides or (1, 1), a.pads or (0, 0), a.dilations or (1, 1)
        offset, taps = self.args.input(2), self.taps
        lines = [
            "const int64_t pixel = begin + j;",
            f"const int64_t tap = (image * {self.offset_groups} + g) * {taps} + t;",
        ]
        steps = (f"pixel / {self.out_width}", f"pixel % {self.out_width}")
        kernel = (f"t / {self.wide}", f"t % {self.wide}")
        for i, name in enumerate(("row", "column")):
            moved = element(self.dtype, f"{offset}[(tap * 2 + {i}) * {self.pixels} + pixel]")
            whole = f"{steps[i]} * {strides[i]} - {self.args.dim(pads[i])}"
            whole += f" + {kernel[i]} * {dilations[i]}"
            lines.append(f"const double {name} = (double)({whole}) + (double){moved};")
        share = "1.0"
        if self.work.mask >= 0:
            place = f"{self.args.input(self.work.mask)}[tap * {self.pixels} + pixel]"
            share = f"(double){element(self.dtype, place)}"
        size = f"{self.height}, {self.width}"
        return [
            *lines,
            "int32_t places[4];",
            "double shares[4];",
            f"tx_bilinear(row, column, {size}, {share}, places, shares);",
            loop("k", "0", "4", "at[k][j] = places[k];", "of[k][j] = shares[k];"),
        ]

    def _sample(self) -> list[str]:
        sums = self.sums
        if sums.vector:
            gather = f"tx_gather_{self.stored.value}"
            terms = [
                f"tx_load_f32(of[{k}] + j) * {gather}(from, tx_load_i32(at[{k}] + j))"
                for k in range(4)
            ]
        else:
            terms = [f"of[{k}][j] * from[at[{k}][j]]" for k in range(4)]
        return [
            f"{sums.kind} s = {terms[0]};",
            *(f"s += {t};" for t in terms[1:]),
            sums.stored(sums.number, "to + j", "s"),
        ]

    # Product

    def _products(self) -> list[str]:
        whole, end = self.results - dims.mod(self.results, _ROWS), self.args.dim(self.results)
        some = loop("m", "0", self.args.dim(whole), *self._tile(_ROWS), step=_ROWS)
        rest = loop("m", self.args.dim(whole), end, *self._tile(1))
        body = [some] * (whole != 0) + [rest] * (whole != self.results)
        return [
            comment("Every channel of the result is the product of its weights and the columns."),
            loop("q", "0", str(self.groups), *body),
        ]

    def _tile(self, rows: int) -> list[str]:
        """So many channels ``m`` of group ``q``, for all results of the block."""
        sums, depth = self.sums, self.depth
        w, kind = self.numbers(1), c_text.ctype(self.stored)
        sums_of = [f"s{r}{v}" for r in range(rows) for v in range(2)]
        begin = [self._bias(r) for r in range(rows) for _ in range(2)]
        each = [
            f"const {sums.kind} c{v} = "
            + sums.loaded(sums.number, f"from + k * {_BLOCK} + {v} * {sums.lanes}")
            + ";"
            for v in range(2)
        ]
        for r in range(rows):
            weight = sums.repeated(self.stored, f"weights + {self.args.dim(depth * r)} + k")
            each.append(f"const {sums.kind} w{r} = {weight};")
            each += [f"s{r}{v} += w{r} * c{v};" for v in range(2)]
        stores = [line for r in range(rows) for line in self._stored(r)]
        body = [
            f"const {self.number}* from = columns + q * {self.args.dim(depth * _BLOCK)} + j;",
            *(f"{sums.kind} {s} = {b};" for s, b in zip(sums_of, begin, strict=True)),
            loop("k", "0", self.args.dim(depth), *each),
            *stores,
        ]
        return [
            f"const {kind}* weights = {w} + {self._channel()} * {self.args.dim(depth)};",
            loop("j", "0", "count", *body, step=f"2 * {sums.lanes}"),
        ]

    def _channel(self, row: str = "") -> str:
        """Of the result, that many after ``m`` of group ``q``."""
        return f"(q * {self.args.dim(self.results)} + m{row})"

    def _bias(self, row: int) -> str:
        if self.work.bias < 0:
            return self.sums.zero
        place = f"{self.args.input(self.work.bias)} + {self._channel(f' + {row}')}"
        return self.sums.repeated(self.dtype, place)

    def _stored(self, row: int) -> list[str]:
        """Results ``j`` on of a channel, as far as there are any."""
        sums, total = self.sums, self.args.dim(self.results * self.groups)
        channel = f"(image * {total} + {self._channel(f' + {row}')}) * {self.pixels}"
        lines = []
        for v in range(2):
            first = f"j + {v} * {sums.lanes}"
            to = f"{self.args.output(0)} + {channel} + begin + {first}"
            whole = sums.stored(self.dtype, to, f"s{row}{v}")
            if not sums.vector:
                lines.append(f"if ({first} < count) {whole}")
                continue
            part = sums.stored(self.dtype, to, f"s{row}{v}", f"count - ({first})")
            lines.append(f"if ({first} + TX_LANES <= count) {whole}")
            lines.append(f"else if ({first} < count) {part}")
        return lines
