"""Reformat in C: between linear, nhwc and ``cB``, and plain copies; any movable dtype.

To and from ``cB`` with B the device's lanes, 4-byte elements are turned in registers, a block of
channels of B pixels at a time, and shorter ones in squares; unused lanes are written as zero.
Between blocked formats one block's length is a multiple of the other's.
"""

from __future__ import annotations

from collections.abc import Sequence

from tactix.base import dims
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import copy as c_copy
from tactix_codegen.c import text as c_text
from tactix_codegen.c.text import Args, block, loop
from tactix_codegen.operations.reformat import ReformatWork, work_of

SQUARE = 16
"""Bytes of a row of a square of short elements: a vector that every processor has."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuReformatTactic()]


class CpuReformatTactic(Tactic[ReformatWork]):
    """The formats are those of the node's attributes."""

    key = "tactix.c_reformat@1"
    beyond = "changes of format are the builder's"
    implements = ("tactix.Reformat@1",)
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> ReformatWork | Reject:
        work = work_of(node, "C")
        if isinstance(work, Reject):
            return work
        short, long = sorted((work.source.lanes, work.target.lanes))
        if long % short:
            return Reject(f"no reformat from {work.source.name} to {work.target.name}")
        return work

    def variants(self, work: ReformatWork, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of([work.source], [work.target])]

    def cost(self, work: ReformatWork, variant: Variant, ctx: CompileContext) -> float | None:
        return c_text.traffic(work.node, variant, ctx)

    def compile(self, work: ReformatWork, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        args = c_text.Args(work.node)
        if work.copy is not None:
            body = c_copy.statements(args, [work.copy], work.spec.dtype.itemsize, ctx)
        elif min(work.source.lanes, work.target.lanes) > 1:
            body = _pieces(args, work)
        else:
            body = _Blocks(args, work).text(ctx.device.lanes)
        return c_text.kernel(args, body, ctx, preludes=c_copy.preludes())


def _pieces(args: Args, work: ReformatWork) -> list[str]:
    """Between blocks of which one is a multiple of the other: the shorter ones' pixels move as a
    whole.
    """
    spec, source, target = work.spec, work.source.lanes, work.target.lanes
    many, size = (
        max(source, target) // min(source, target),
        min(source, target) * spec.dtype.itemsize,
    )
    space, short = (
        args.dim(dims.prod(spec.shape[2:])),
        dims.ceildiv(spec.shape[1], min(source, target)),
    )
    long = dims.ceildiv(spec.shape[1], max(source, target)) * many
    there, pieces = args.dim(short), args.dim(long)
    places = (
        f"((n * {there} + piece) * {space} + s) * {size}",
        (
            f"((n * {pieces} / {many} + piece / {many}) * {space} + s) * {size * many} "
            f"+ piece % {many} * {size}"
        ),
    )
    x, y = places if target > source else places[::-1]
    body = [
        c_text.decode(
            "o", ["n", "piece"], [args.dim(spec.shape[0]), pieces if target > source else there]
        ),
        f"const char* in = {args.bytes_in(0)};",
        f"char* out = {args.bytes_out(0)};",
        block(
            f"if (piece < {there})", loop("s", "0", space, f"memcpy(out + {y}, in + {x}, {size});")
        ),
        block("else", loop("s", "0", space, f"memset(out + {y}, 0, {size});")),
    ]
    total = args.dim(spec.shape[0] * (long if target > source else short))
    return [c_text.split(total), loop("o", "lo", "hi", *body)]


class _Blocks:
    """Between ``cB`` and linear or nhwc, one block of channels and a run of pixels at a time."""

    def __init__(self, args: Args, work: ReformatWork) -> None:
        spec, source, target = work.spec, work.source, work.target
        self.args, self.width = args, spec.dtype.itemsize
        self.to_blocks, self.lanes = target.lanes > 1, max(source.lanes, target.lanes)
        self.channels_last = "nhwc" in (source.name, target.name)
        self.element = f"uint{8 * self.width}_t"
        self.batch, self.channels = spec.shape[:2]
        self.space = dims.prod(spec.shape[2:])
        self.blocks = dims.ceildiv(self.channels, self.lanes)

    def text(self, lanes: int) -> list[str]:
        c, space, blocks = (self.args.dim(d) for d in (self.channels, self.space, self.blocks))
        step = f"{c}" if self.channels_last else "1"
        own = (
            f"(n * {space} + s) * {c} + cb * {self.lanes}"
            if self.channels_last
            else (f"(n * {c} + cb * {self.lanes}) * {space} + s")
        )
        tiles = self.args.dim(dims.ceildiv(self.space, self.lanes))
        blocked = f"((n * {blocks} + cb) * {space} + s) * {self.lanes}"
        places = (own, blocked) if self.to_blocks else (blocked, own)
        body = [
            c_text.decode("o", ["n", "cb", "tile"], [self.args.dim(self.batch), blocks, tiles]),
            f"const int64_t s = tile * {self.lanes};",
            (
                f"const int64_t left = {c} - cb * {self.lanes}, v = left < {self.lanes} ? left "
                f": {self.lanes};"
            ),
            f"const int64_t run = {space} - s < {self.lanes} ? {space} - s : {self.lanes};",
            (
                f"const {self.element}* p = (const {self.element}*){self.args.bytes_in(0)} "
                f"+ {places[0]};"
            ),
            f"{self.element}* q = ({self.element}*){self.args.bytes_out(0)} + {places[1]};",
            *self._tile(lanes, step),
        ]
        total = self.args.dim(self.batch * self.blocks * dims.ceildiv(self.space, self.lanes))
        return [c_text.split(total), loop("o", "lo", "hi", *body)]

    def _tile(self, lanes: int, pixel: str) -> list[str]:
        """Move ``run`` pixels of ``v`` channels from ``p`` to ``q``; ``pixel``: a linear or nhwc
        pixel's distance.
        """
        if self.channels_last:
            return self._rows(pixel)
        if self.lanes == lanes and self.width == 4:
            return self._turned()
        if self.width < 4 and self.lanes % (SQUARE // self.width) == 0:
            return self._squares()
        space, b = self.args.dim(self.space), self.lanes
        if self.to_blocks:
            inner = loop("l", "0", str(b), f"q[k * {b} + l] = l < v ? p[l * {space} + k] : 0;")
        else:
            inner = loop("l", "0", "v", f"q[l * {space} + k] = p[k * {b} + l];")
        return [loop("k", "0", "run", inner)]

    def _squares(self) -> list[str]:
        """Squares of as many short elements as 16 bytes are, turned, and parts of squares."""
        space, b, n = self.args.dim(self.space), self.lanes, SQUARE // self.width
        turn = f"tx_turn_{8 * self.width}"
        part = f"tx_turn_some_{8 * self.width}"
        linear, block_of = "{x} + l * " + space + " + k", "{x} + k * " + f"{b} + l"
        if self.to_blocks:
            places = f"{block_of.format(x='q')}, {b}, {linear.format(x='p')}, {space}"
            rest, end = f"{part}({places}, v - l, pixels, {n});", str(b)
        else:
            places = f"{linear.format(x='q')}, {space}, {block_of.format(x='p')}, {b}"
            rest, end = f"{part}({places}, pixels, v - l < {n} ? v - l : {n}, pixels);", "v"
        whole = f"if (pixels == {n} && l + {n} <= v) {turn}({places});"
        pixels = f"const int64_t pixels = k + {n} <= run ? {n} : run - k;"
        squares = loop("l", "0", end, whole, f"else {rest}", step=n)
        return [loop("k", "0", "run", pixels, squares, step=n)]

    def _rows(self, pixel: str) -> list[str]:
        """Pixel by pixel; whole blocks apart, since a number of lanes that the compiler knows is a
        vector or two.
        """
        b = self.lanes
        own, block_of = f"k * {pixel} + l", f"k * {b} + l"
        whole = f"q[{block_of}] = p[{own}];" if self.to_blocks else f"q[{own}] = p[{block_of}];"
        if self.to_blocks:
            part = loop("l", "0", str(b), f"q[{block_of}] = l < v ? p[{own}] : 0;")
        else:
            part = loop("l", "0", "v", whole)
        return [
            block(f"if (v == {b})", loop("k", "0", "run", loop("l", "0", str(b), whole))),
            block("else", loop("k", "0", "run", part)),
        ]

    def _turned(self) -> list[str]:
        """Vectors along one axis are loaded, turned, and stored along the other.

        A square of as many vectors as they have lanes: element by element, each load or store of
        one side would touch a line of its own.
        """
        space = self.args.dim(self.space)
        count, distance, kept = (
            ("v", space, "run") if self.to_blocks else ("run", "TX_LANES", "TX_LANES")
        )
        stored, away, size = (
            ("run", "TX_LANES", "TX_LANES") if self.to_blocks else ("v", space, "run")
        )
        zero = "(vi){0}"
        return [
            "vi r[TX_LANES];",
            "for (int k = 0; k < TX_LANES; k++)",
            f"    r[k] = k < {count} ? tx_load_n_i32(p + k * {distance}, {kept}) : {zero};",
            "tx_transpose(r);",
            (
                "for (int k = 0; k < TX_LANES; "
                f"k++) if (k < {stored}) tx_store_n_i32(q + k * {away}, "
                f"r[k], {size});"
            ),
        ]
