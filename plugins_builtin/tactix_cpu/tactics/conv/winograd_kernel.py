"""The text of the Winograd kernel; see c_winograd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.base.dims import Dim, evaluate
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import (
    Args,
    block,
    ctype,
    decode,
    kernel,
    load,
    loop,
    split,
    store,
    vector_preludes,
)
from tactix_codegen.c.tile import Functions, RegisterTile, by_rows, finish_saved
from tactix_cpu.tactics.conv.window import BlockedSite, CpuConvolutionWindow

NEAR, FAR = 16, 64
"""Steps that weights are asked for ahead, see RegisterTile and kernel.NEAR: a product of one place
is nine times less deep than a direct convolution, so that more steps ahead are past its end. No
measurement of them is on record; on a Zen 5 asking ahead took ResNet-50 with Winograd from 28.7 to
26.9 ms (README).
"""
UNITS = 2
"""With fewer blocks for each thread, threads share every block, with barriers between its three
parts: 0.045 us each (README), but each thread then reads patches and sums that another one wrote.
"""


@dataclass(frozen=True)
class Turn:
    """F(m, r) along one axis: the matrix G for weights, and C statements for B' and A' over ``d0``,
    ``d1``, ... that leave ``r0``, ``r1``, ...

    Constants of the statements are exact in float32.
    """

    weights: tuple[tuple[float, ...], ...]
    patch: tuple[str, ...]
    result: tuple[str, ...]


POINTS: dict[int, tuple[float, ...]] = {4: (1.0,), 6: (0.6875, 1.5), 8: (0.5, 1.0, 2.0)}
"""By the length of a patch: each point p stands for p and -p, beside 0 and infinity.

Those of 6 were chosen by the error of F(4, 3), a fifth of that of the usual 1 and 2 (told with
them; the comparison is not on record). 0.6875 = 11/16 and 1.5 have powers and products that are
exact in float32. The prototype's F(4 x 4, 3 x 3) had errors of 4e-6 to 8e-6 of the largest output,
its F(2 x 2, 3 x 3) 2e-7 to 5e-7 (README). Along one axis, 96 channels of normal numbers in numpy:
4e-7 with 4, 6e-7 to 8e-7 with 6, 1.6e-6 to 2e-6 with 8, as with other points near those.
"""


def turn(m: int, taps: int) -> Turn:
    """F(m, taps) by Toom and Cook's polynomial products; of one tap nothing is turned."""
    if taps == 1:
        return Turn(((1.0,),), ("r0 = d0",), ("r0 = d0",))
    length = m + taps - 1
    points = POINTS[length]
    weights: list[tuple[float, ...]] = []
    patch: list[str] = []
    whole = _squares(points)
    weights.append((1 / whole[0], *[0.0] * (taps - 1)))
    patch.append(f"r0 = {_sum(whole, [f'd{2 * i}' for i in range(len(whole))])}")
    patch.append(f"r{length - 1} = {_sum(whole, [f'd{2 * i + 1}' for i in range(len(whole))])}")
    for i, p in enumerate(points):
        others = _squares([q for q in points if q != p])
        slope = 2 * p * p * sum(c * p ** (2 * k) for k, c in enumerate(others))
        weights += [tuple(t**k / slope for k in range(taps)) for t in (p, -p)]
        patch.append(f"e{i} = {_sum(others, [f'd{2 * k + 2}' for k in range(len(others))])}")
        patch.append(f"o{i} = {_sum(others, [f'd{2 * k + 1}' for k in range(len(others))])}")
        patch.append(f"r{2 * i + 1} = {_sum((1.0, p), [f'e{i}', f'o{i}'])}")
        patch.append(f"r{2 * i + 2} = {_sum((1.0, -p), [f'e{i}', f'o{i}'])}")
    weights.append((*[0.0] * (taps - 1), 1.0))
    return Turn(tuple(weights), tuple(patch), _results_of(m, length, points))


def _results_of(m: int, length: int, points: Sequence[float]) -> tuple[str, ...]:
    """The statements of A': even and odd powers of the points over sums and differences."""
    out = []
    for i in range(len(points)):
        out.append(f"e{i} = d{2 * i + 1} + d{2 * i + 2}")
        out.append(f"o{i} = d{2 * i + 1} - d{2 * i + 2}")
    for k in range(m):
        first, last = ["d0"] * (k == 0), [f"d{length - 1}"] * (k == m - 1)
        pairs = [f"{'eo'[k % 2]}{i}" for i in range(len(points))]
        factors = [*[1.0] * len(first), *(p**k for p in points), *[1.0] * len(last)]
        out.append(f"r{k} = {_sum(factors, [*first, *pairs, *last])}")
    return tuple(out)


def _squares(points: Sequence[float]) -> list[float]:
    """Coefficients by rising powers of y of the product of ``y - p * p``."""
    out = [1.0]
    for p in points:
        out = [low - p * p * high for low, high in zip([0.0, *out], [*out, 0.0], strict=True)]
    return out


def _sum(factors: Sequence[float], names: Sequence[str]) -> str:
    """The text of a sum of products; a positive term is first, if there is one."""
    terms = sorted(zip(factors, names, strict=True), key=lambda t: t[0] < 0)
    parts = []
    for i, (factor, name) in enumerate(terms):
        sign = "- " if factor < 0 else "+ " if i else ""
        parts.append(f"{sign}{'' if abs(factor) == 1 else f'{abs(factor)!r}f * '}{name}")
    return " ".join(parts)


@dataclass(frozen=True)
class TurnedNumbers:
    """The C of numbers that are turned: of an element, a vector, and what loads and stores it."""

    element: str
    vector: str
    load: str
    store: str


FLOATS = TurnedNumbers("float", "vf", "tx_load_f32", "tx_store_f32")


@dataclass(frozen=True)
class PatchSide:
    """One axis of a patch: ``m`` outputs are made of ``length`` inputs, ``step`` pixels apart."""

    m: int
    taps: int
    step: int

    @property
    def length(self) -> int:
        return self.m + self.taps - 1

    def tiles(self, size: int) -> int:
        """Tiles that cover ``size`` outputs; those of a dilated window lie in each other."""
        return -(-size // (self.m * self.step)) * self.step

    def start(self, tile: str) -> str:
        """The first output of a tile."""
        if self.step == 1:
            return f"{tile} * {self.m}"
        return f"{tile} / {self.step} * {self.m * self.step} + {tile} % {self.step}"


def sides(win: CpuConvolutionWindow, length: int) -> tuple[PatchSide, PatchSide]:
    """Rows and columns of patches of ``length`` pixels along every axis with taps."""
    down, right = (
        PatchSide(1 if taps == 1 else length + 1 - taps, taps, 1 if taps == 1 else step)
        for taps, step in zip(win.kernel, win.dilations, strict=True)
    )
    return down, right


@dataclass(frozen=True)
class Blocks:
    """How the output tiles of an image are cut into blocks: ``tiles`` neighbours of a slice, in
    ``slices`` slices along the depth.

    Patches of a block lie slice after slice, so that a tap along the depth is a distance in tiles,
    and each is turned once for all taps. Without a depth there is one slice.
    """

    win: CpuConvolutionWindow
    length: int
    tiles: int
    slices: int

    @property
    def sides(self) -> tuple[PatchSide, PatchSide]:
        """The axes of a patch."""
        return sides(self.win, self.length)

    @property
    def places(self) -> int:
        """Numbers of a patch in a channel."""
        down, right = self.sides
        return down.length * right.length

    @property
    def across(self) -> int:
        """Tiles of a line."""
        return self.sides[1].tiles(evaluate(self.win.out[1], {}))

    @property
    def count(self) -> int:
        """Tiles of a slice."""
        return self.across * self.sides[0].tiles(evaluate(self.win.out[0], {}))

    @property
    def depth(self) -> int:
        """Slices of the output."""
        return evaluate(self.win.depth.out, {})

    @property
    def strips(self) -> int:
        """Blocks of a slice."""
        return -(-self.count // self.tiles)

    @property
    def groups(self) -> int:
        """Blocks along the depth."""
        return -(-self.depth // self.slices)

    @property
    def units(self) -> int:
        """Blocks of an image."""
        return self.strips * self.groups

    @property
    def reach(self) -> int:
        """Slices of patches more than of results."""
        return (self.win.depth.kernel - 1) * self.win.depth.dilation

    @property
    def patches(self) -> int:
        """Patches of a block."""
        return self.tiles * (self.slices + self.reach)

    @property
    def results(self) -> int:
        """Results of a block."""
        return self.tiles * self.slices

    def row_counts(self) -> set[int]:
        """Results of every kind of block: whole ones, and the last ones along either axis."""
        tiles = {self.count - (self.strips - 1) * self.tiles, *[self.tiles] * (self.strips > 1)}
        slices = {self.depth - (self.groups - 1) * self.slices, *[self.slices] * (self.groups > 1)}
        return {t * s for t in tiles for s in slices}


class WinogradKernel:
    """Writes one kernel: patches to ``v`` (place, channel block, slice, tile), products to ``s``
    (place, panel, slice, tile). Patches and turned weights have the dtype of the window, sums are
    float32, or what ``sum_numbers`` says.
    """

    patch_numbers = sum_numbers = FLOATS

    def __init__(self, win: CpuConvolutionWindow, variant: Variant, ctx: CompileContext) -> None:
        self.win, self.ctx = win, ctx
        self.lanes = max(4, ctx.device.lanes)
        self.tile = RegisterTile(
            variant.number("rows"), variant.number("vectors"), self.lanes, 1, NEAR, FAR
        )
        tiles, slices = variant.number("tiles"), variant.number("slices")
        self.blocks = Blocks(win, variant.number("length"), tiles, slices)
        self.places, (self.down, self.right) = self.blocks.places, self.blocks.sides
        self.turns = turn(self.down.m, self.down.taps), turn(self.right.m, self.right.taps)
        self.high, self.wide = (evaluate(d, {}) for d in win.out)
        self.deep, self.panels = -(-win.c // self.lanes), -(-win.co // self.tile.width)
        self.slab = self.deep * win.depth.kernel * self.lanes * self.tile.width
        self.args = Args(win.node)
        self.functions = Functions(self.args)
        self.site = BlockedSite(self.args, win, self.lanes, "", self.right.step)
        self.element, self.group = ctype(win.dtype), 32 // win.dtype.bits
        """The C type of a number of a patch; channels that a step of a product takes at a time."""
        self.given = win.node.specs[win.x].dtype
        """Of the image."""
        # A line of the cache more than needed: places whose distance is a multiple of 4 KiB, as
        # with powers of two for channels, would share one set of the first cache (README).
        self.patch = (self.deep * self.blocks.patches + self.group) * self.lanes
        self.sums = (self.panels * self.tile.vectors * self.blocks.results + 1) * self.lanes
        self.size = self.places * (self.patch // self.group + self.sums)
        self.shared = ctx.threads > 1 and self.blocks.units < UNITS * ctx.threads

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        pieces: Dim = self.win.n * self.blocks.units if self.shared else max(1, self.ctx.threads)
        self.x, self.w = (
            self.args.input(self.win.x),
            self.args.constant("u", Packed(-1, array=self._packed), self.win.dtype),
        )
        self.v = self.args.workspace(0)
        self._patches()
        self._products()
        self._results()
        body = self._phases() if self.shared else self._alone()
        made = kernel(
            self.args,
            body,
            self.ctx,
            helpers=self.functions.text(),
            preludes=self._preludes(),
            workspace=pieces * (self.size * 4),
            phases=3 if self.shared else 1,
        )
        return self._finished(made)

    def _finished(self, made: KernelArtifact) -> KernelArtifact:
        """The kernel, compiled otherwise where results need it."""
        return made

    def _preludes(self) -> tuple[str, ...]:
        return vector_preludes()

    def _packed(self, given: Sequence[Any]) -> Any:
        """Turned weights as (place, panel, input channel block, tap along the depth, channel in
        block, width), zero past the channels.

        A place is a product of its own, whose tiles walk a panel front to back. Weights are turned
        in float64, when the plan is built.
        """
        import numpy as np

        win, width, channels = self.win, self.tile.width, self.deep * self.lanes
        slices = win.depth.kernel
        w = given[win.w]
        w = np.pad(
            w.reshape(win.co, win.c, slices, win.taps),
            ((0, self.panels * width - win.co), (0, channels - win.c), (0, 0), (0, 0)),
        )
        w = w.reshape(self.panels, width, self.deep, self.lanes, slices, win.taps)
        w = w.transpose(5, 0, 2, 4, 3, 1).reshape(win.taps, -1)
        g = np.kron(*(np.array(t.weights) for t in self.turns))
        with np.errstate(invalid="ignore", over="ignore"):  # weights may be infinite, or become so
            turned = (g @ w.astype(np.float64)).astype(win.dtype.numpy)
        return self._laid(turned.reshape(-1, self.panels, slices * channels, width))

    def _laid(self, turned: Any) -> Any:
        """Turned weights (place, panel, channel, width) as products read them: channels of 32 bits
        together.
        """
        places, panels, channels, width = turned.shape
        groups = turned.reshape(places, panels, channels // self.group, self.group, width)
        return groups.transpose(0, 1, 2, 4, 3)

    def _turned(
        self,
        statements: tuple[str, ...],
        element: str,
        put: str,
        sizes: tuple[int, int],
        kind: TurnedNumbers,
        taken: str = "",
    ) -> str:
        """One pass over the pointers ``element`` with ``{i}`` for 0 to the first of ``sizes``;
        ``put`` stores the result ``{r}``, of which there is the second of ``sizes``. ``taken``: the
        text that loads a pixel of the image at ``{p}``, if that is what is turned.
        """
        given, out = sizes
        taken = taken or f"{kind.load}({{p}})"
        loads = [
            f"const {kind.vector} d{i} = {taken.format(p=element.format(i=i))};"
            for i in range(given)
        ]
        names = [f"const {kind.vector} {s};" for s in statements]
        return "\n".join([*loads, *names, *(put.format(i=i, r=f"r{i}") for i in range(out))])

    def _patches(self) -> None:
        """``patches``: the turned patches of a block in one channel block, at ``v``."""
        win, lanes, down, right = self.win, self.lanes, self.down, self.right
        high, wide = (evaluate(d, {}) for d in win.size)
        rows, columns = (down.length,) * 2, (right.length,) * 2
        kind, taken = self.patch_numbers, self._taken("{p}")
        half = f"{kind.store}(half + ({{i}} * {right.length} + j) * {lanes}, {{r}});"
        pixel = f"p + (j * {right.step} + {{i}} * {down.step * wide}) * {lanes}"
        turn_down, turn_right = (t.patch for t in self.turns)
        whole = self._turned(turn_down, pixel, half, rows, kind, taken)
        seen = [
            f"const int in{i} = (uint64_t)(y + {i * down.step}) < {high};"
            for i in range(down.length)
        ]
        beyond = f"in && in{{i}} ? {pixel} : none"
        part = self._turned(turn_down, beyond, half, rows, kind, taken)
        put = self._put(f"out + (i * {right.length} + {{i}}) * {self.patch}", "{r}")
        line = f"half + (i * {right.length} + {{i}}) * {lanes}"
        ends = [(side.length - 1) * side.step for side in (down, right)]
        inside = f"if (y >= 0 && x >= 0 && y + {ends[0]} < {high} && x + {ends[1]} < {wide})"
        column = f"const int in = (uint64_t)(x + j * {right.step}) < {wide};"
        width = str(right.length)
        body = [
            (
                f"static const {ctype(self.given)} none[{lanes}]{self._beyond()};\n"
                f"{kind.element} half[{self.places * lanes}] __attribute__((aligned(64)));"
            ),
            loop(
                "t",
                "0",
                "count",
                self._start(win.pads[0], win.pads[1]),
                (
                    f"const {ctype(self.given)}* p = plane + (y * {wide} + x) * {lanes};\n"
                    f"{self.element}* out = v + t * {lanes};"
                ),
                block(inside, loop("j", "0", width, whole)),
                block("else", *seen, loop("j", "0", width, column, part)),
                loop(
                    "i", "0", str(down.length), self._turned(turn_right, line, put, columns, kind)
                ),
            ),
        ]
        self.functions.add(
            "patches",
            f"const {ctype(self.given)}* plane, {self.element}* v, int64_t first, int64_t count",
            body,
        )
        if self.win.has_depth:
            clear = f"memset(v + i * {self.patch}, 0, count * {lanes * win.dtype.bits // 8});"
            body = [loop("i", "0", str(self.places), clear)]
            about = "the turned patches of a slice beyond the border"
            self.functions.add("nothing", f"{self.element}* v, int64_t count", body, about)

    def _taken(self, pixel: str) -> str:
        """The text that loads a pixel of the image."""
        return load(self.given, pixel)

    def _put(self, pointer: str, value: str) -> str:
        """The statement that stores a number of a patch."""
        return store(self.win.dtype, pointer, value)

    def _beyond(self) -> str:
        """What initialises a pixel beyond the border."""
        return ""

    def _start(self, top: int, left: int) -> str:
        """Declare ``y`` and ``x`` of tile ``first + t``, less the given numbers of pixels."""
        across = self.blocks.across
        y = self.down.start(f"((first + t) / {across})")
        x = self.right.start(f"((first + t) % {across})")
        return f"const int64_t y = {y} - {top};\nconst int64_t x = {x} - {left};"

    def _products(self) -> None:
        """``t<rows>``: a register tile of one place; ``step`` floats lie between taps along the
        depth.
        """
        rows, counts = self.tile.rows, self.blocks.row_counts()
        rests = {n % rows for n in counts} - {0}
        self.sizes = (*[rows] * (max(counts) >= rows), *sorted(rests, reverse=True))
        has_depth, at = self.win.has_depth, f"v + c * {self.blocks.patches * self.lanes}"
        for size in self.sizes:
            begin, cells, end = self._tile(size)
            taps = [f"const {self.element}* x = {at};", cells]
            if has_depth:
                head = f"const {self.element}* x = {at} + d * step;"
                taps = [loop("d", "0", str(self.win.depth.kernel), head, cells)]
            sweep = loop("c", "0", str(self.deep), *taps)
            parameters = (
                f"const {self.element}* v, const {self.element}* w, "
                f"{self.sum_numbers.element}* s{', int64_t step' * has_depth}"
            )
            self.functions.add(f"t{size}", parameters, [*begin, sweep, *end])

    def _tile(self, size: int) -> tuple[list[str], str, list[str]]:
        """Of a register tile of ``size`` rows: the text that begins its sums, that adds the
        products of the channel block at ``x`` and ``w``, and that saves the sums at ``s``.
        """
        chains = c_tile.chains_for(size, self.tile.vectors)
        tile = RegisterTile(
            size, self.tile.vectors, self.lanes, chains, self.tile.near, self.tile.far
        )
        unroll = min(self.lanes, 4 if size * tile.vectors <= 12 else 2)
        steps = tile.steps(unroll, lambda m, u: f"x[{m * self.lanes + u}]")
        cells = loop(
            "k",
            "0",
            str(self.lanes),
            steps,
            f"x += {unroll}; w += {unroll * tile.width};",
            step=unroll,
        )
        return [tile.zero()], cells, [tile.join(), tile.save("s")]

    def _results(self) -> None:
        """``results``: output tiles of a block in one channel block, from ``s``."""
        lanes, down, right = self.lanes, self.down, self.right
        line = f"(y + i * {down.step})" if down.step > 1 else "(y + i)"
        if self.win.has_depth:
            line = f"(slice * {self.high} + {line})"
        turn_down, turn_right = (t.result for t in self.turns)
        place = f"s + (j + {{i}} * {right.length}) * {self.sums} + t * {self.tile.width}"
        kind = self.sum_numbers
        half = f"{kind.store}(half + ({{i}} * {right.length} + j) * {lanes}, {{r}});"
        vertical = self._turned(turn_down, place, half, (down.length, down.m), kind)
        put = f"{kind.store}(sums + (i * {right.m} + {{i}}) * {lanes}, {self._sum('{r}')});"
        across = f"half + (i * {right.length} + {{i}}) * {lanes}"
        horizontal = self._turned(turn_right, across, put, (right.length, right.m), kind)
        put = self._finish(f"sums + i * {right.m * lanes}")
        body = [
            f"{kind.element} half[{right.length * down.m * lanes}] __attribute__((aligned(64)));",
            f"{kind.element} sums[{down.m * right.m * lanes}] __attribute__((aligned(64)));",
            *self._first(),
            loop(
                "t",
                "0",
                "count",
                self._start(0, 0),
                f"const int64_t high = {_rows('y', self.high, down)};",
                f"const int64_t wide = {_rows('x', self.wide, right)};",
                loop("j", "0", str(right.length), vertical),
                loop("i", "0", str(down.m), horizontal),
                loop("i", "0", "high", f"const int64_t pixel = {line} * {self.wide} + x;", put),
            ),
        ]
        parameters = (
            f"const {kind.element}* s, int64_t image, int64_t block, int64_t first, int64_t count"
        )
        if self.win.has_depth:
            parameters += ", int64_t slice"
        self.functions.add("results", parameters, body)

    def _first(self) -> list[str]:
        """What the results of a channel block declare at the beginning."""
        return []

    def _sum(self, value: str) -> str:
        """A result of a turned sum."""
        return value

    def _finish(self, sums: str) -> str:
        """Epilogue and stores of ``wide`` neighbouring results at that pointer."""
        tile = RegisterTile(self.right.m, 1, self.lanes)
        return finish_saved(tile, self.win.epi, self.site, f"({sums})", False, rows="wide")

    # -- parts of a block: C variables v, s, image, first, count; with a depth front, slices -------

    def _block(self, piece: str, unit: str) -> list[str]:
        """Declare the variables of block ``unit`` in piece ``piece`` of the workspace."""
        cut = self.blocks
        out = [
            *self._memory(piece),
            (
                f"const int64_t image = {unit} / {cut.units}, "
                f"first = {unit} % {cut.strips} * {cut.tiles};"
            ),
            (
                f"const int64_t count = {cut.count} - first < {cut.tiles} ? {cut.count} - first "
                f": {cut.tiles};"
            ),
        ]
        if self.win.has_depth:
            front = f"{unit} / {cut.strips} % {cut.groups} * {cut.slices}"
            left = f"{cut.depth} - front"
            slices = f"{left} < {cut.slices} ? {left} : {cut.slices}"
            out.append(f"const int64_t front = {front}, slices = {slices};")
        return out

    def _memory(self, piece: str) -> list[str]:
        """Declare where patches and sums of piece ``piece`` are."""
        sums = self.sum_numbers.element
        return [
            f"{self.element}* v = ({self.element}*)({self.v} + {piece} * {self.size});",
            f"{sums}* s = ({sums}*)(v + {self.places * self.patch});",
        ]

    def _patch(self) -> str:
        """All patches of channel block ``c``."""
        win, depth = self.win, self.win.depth
        plane = self.args.dim(win.size[0] * win.size[1] * self.lanes)
        to = f"v + c * {self.blocks.patches * self.lanes}"
        if not win.has_depth:
            x = f"{self.x} + (image * {self.deep} + c) * {plane}"
            return f"TX_NAME(patches)(a, {x}, {to}, first, count);"
        size = self.args.dim(depth.size)
        x = f"{self.x} + ((image * {self.deep} + c) * {size} + slice) * {plane}"
        return loop(
            "d",
            "0",
            f"slices + {self.blocks.reach}",
            f"const int64_t slice = front + d - {depth.pad};",
            f"{self.element}* to = {to} + d * count * {self.lanes};",
            f"if (slice < 0 || slice >= {size}) TX_NAME(nothing)(a, to, count);",
            f"else TX_NAME(patches)(a, {x}, to, first, count);",
        )

    def _product(self) -> str:
        """All products of place ``i``."""
        width, depth = self.tile.width, self.win.depth
        count, more = "count", ""
        if self.win.has_depth:
            count, more = "count * slices", f", count * {depth.dilation * self.lanes}"

        def call(size: int) -> str:
            out = f"s + i * {self.sums} + (p * {self.blocks.results} + t) * {width}"
            place = f"v + i * {self.patch} + t * {self.lanes}"
            return f"TX_NAME(t{size})(a, {place}, w, {out}{more});"

        w = f"const {self.element}* w = {self.w} + (i * {self.panels} + p) * {self.slab};"
        head = f"{w}\nint64_t t = 0;"
        return loop("p", "0", str(self.panels), head, by_rows(self.sizes, "t", count, call))

    def _result(self) -> str:
        """All results of channel block ``c``."""
        vectors, width = self.tile.vectors, self.tile.width
        panel = f"c / {vectors} * {self.blocks.results * width}"
        s = f"s + {panel} + c % {vectors} * {self.lanes}"
        if not self.win.has_depth:
            return f"TX_NAME(results)(a, {s}, image, c, first, count);"
        call = f"{s} + d * count * {width}, image, c, first, count, front + d"
        return loop("d", "0", "slices", f"TX_NAME(results)(a, {call});")

    def _alone(self) -> list[str]:
        """Each thread takes whole blocks."""
        threads = max(1, self.ctx.threads)
        parts = [
            loop("c", "0", str(self.deep), self._patch()),
            loop("i", "0", str(self.places), self._product()),
            loop("c", "0", str(self.site.blocks), self._result()),
        ]
        units = self.args.dim(self.win.n * self.blocks.units)
        return [
            f"if (tid >= {threads}) return;\nif (nt > {threads}) nt = {threads};",
            split(units),
            loop("u", "lo", "hi", *self._block("tid", "u"), *parts),
        ]

    def _phases(self) -> list[str]:
        """Threads share the parts of all blocks; one launch for each part."""
        self.args.phase(0)
        units = self.args.dim(self.win.n * self.blocks.units)
        parts = (
            ("c", self.deep, self._patch()),
            ("i", self.places, self._product()),
            ("c", self.site.blocks, self._result()),
        )
        out = []
        for number, (index, size, text) in enumerate(parts):
            head = [decode("q", ["u", index], ["0", str(size)]), *self._block("u", "u")]
            walk = [split(f"{units} * {size}"), loop("q", "lo", "hi", *head, text)]
            out.append(block(f"if (phase == {number})", *walk))
        return out


def _rows(at: str, size: int, side: PatchSide) -> str:
    """How many of a tile's outputs from ``at`` on lie within ``size``."""
    left = (
        f"{size} - {at}" if side.step == 1 else f"({size} - {at} + {side.step - 1}) / {side.step}"
    )
    return f"{left} < {side.m} ? {left} : {side.m}"
