"""Register tiles of sums of byte products in int32, and their way to the node's outputs; also of
bfloat16 in float32.

A step takes a group of four bytes of the left side for each row, in all lanes, and ``vectors``
vectors of the right side, which lies as ``[step][column][group]``. Where no instruction multiplies
four bytes, the right side lies widened to 16 bits, of each vector of columns the even places of the
groups before the odd ones, so that only the left side is widened on the way, once for a whole row
of vectors. Left sides are unsigned; signed
ones are read with their top bits flipped, and the sums start 128 times the column's weights lower.
Bytes equal the reference's: where sums of floats are rounded to them, kernels are compiled without
contracting products and sums into FMA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.expr import Scalar, walk
from tactix.contracts.graph import Node
from tactix.select.error_bounds import ROUNDED
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue
from tactix_codegen.c.rounding import Rounded, in_floats, rounded_part
from tactix_codegen.c.scalar import Code
from tactix_codegen.c.text import block, loop
from tactix_codegen.c.tile import TileSite

UNROLL = 2
"""Steps written out in a loop: 2 were as fast as more for the prototype, 16 lost 40 % (README)."""
LIGHT_RESULTS = 24
"""Statements of an epilogue that may be repeated for every accumulator, of which there are up to
28; longer ones go through memory, in a loop. It bounds the text, and so the seconds that compiling
takes; no measurement of it is on record.
"""


def preludes(dot: Dot | None = None) -> tuple[str, ...]:
    """Everything that these kernels include."""
    more = [c_text.prelude("widened.h")] if dot in (WIDENED_BYTES, SORTED_BYTES, WORDS) else []
    return (*c_text.vector_preludes(), c_text.prelude("int8.h"), c_text.prelude("bf16.h"), *more)


def rounds_sums(results: Sequence[Scalar]) -> bool:
    """Whether a sum of floats is rounded to whole numbers: contracted into FMA it could round to
    another one.

    Behind a function as exp it may be another one anyhow, and functions need FMA to be fast.
    """
    rounded = [{n.op for n in walk(r.args)} for r in walk(in_floats(results)) if r.op == "round"]
    return any(ops & {"add", "sub"} and ops <= ROUNDED for ops in rounded)


def without_fma(artifact: KernelArtifact) -> KernelArtifact:
    """The artifact whose floats are rounded after every operation, as the reference's are."""
    assert isinstance(artifact.code, Source)
    return replace(
        artifact, code=replace(artifact.code, flags=(*artifact.code.flags, "-ffp-contract=off"))
    )


SIDE, HIGH, DEEP = 32, 16, 64
"""Of the AMX matrix unit: rows and columns of a block of four tiles; rows of a tile; bytes of a
tile's rows.

A tile register holds 16 rows of 64 bytes, and there are eight (Intel, Software Developer's Manual).
A block of 2 x 2 tiles of sums takes four of them, and two of either side the other four: then four
loads feed four products, 8 cycles each beside 16 (Intel, Optimization Reference Manual), so that
loads from the first cache take half the time that the unit is busy. With one tile of sums two loads
would take as long as their product.
"""


def has_tiles(device: DeviceProperties, dot: Dot) -> bool:
    """Whether the device has a matrix unit for such products, and vectors for the rest."""
    return device.has(*dot.unit) and device.lanes == 16


def shapes(device: DeviceProperties) -> tuple[tuple[int, int], ...]:
    """Tiles (rows, vectors) that fill the registers.

    With 32 of them up to 28 sums, a vector of the right side for each column of vectors, and one
    for the left: 28 + 2 + 1 of 14 x 2. With 16 of them 8 or 9 sums. 14 x 2 was the fastest for most
    shapes of the prototype, others for few rows or narrow results (README).
    """
    return ((14, 2), (9, 3), (6, 4), (28, 1)) if device.lanes == 16 else ((4, 2), (3, 3), (8, 1))


WIDENED_SHAPES = (3, 4), (2, 6), (2, 5), (3, 3), (2, 4), (6, 2), (12, 1)
"""The same of a right side that lies widened, which products read from memory: 16 registers hold 12
sums, a row's even and odd bytes, the mask of these, and a pair of products.
"""


def tile_shapes(dot: Dot, device: DeviceProperties) -> tuple[tuple[int, int], ...]:
    """Tiles (rows, vectors) of products of that kind."""
    return WIDENED_SHAPES if dot.widened else shapes(device)


@dataclass(frozen=True)
class Dot:
    """How groups of four bytes are multiplied and summed.

    ``size``: bytes of an element; ``call``: the C function; ``tiles``: the feature of matrix units
    that do it;
    ``dtypes``: that both sides may have. ``widened``: whether the right side lies as numbers of 16
    bits. ``sorted``: whether steps over constants go in the order of ``SortedSteps``.
    """

    size: int
    call: str
    sums: DType
    weights: DType
    tiles: str
    dtypes: tuple[DType, ...]
    widened: bool = False
    sorted: bool = False

    @property
    def column(self) -> int:
        """Bytes of a group of the right side."""
        return 8 if self.widened else 4

    @property
    def group(self) -> int:
        """Elements of a group."""
        return 4 // self.size

    @property
    def unit(self) -> tuple[str, ...]:
        """Features of a device whose matrix unit does it, and whose vectors do the rest."""
        return ("amx_tile", self.tiles, "avx512f", "avx512bw", "avx512dq", "avx512vl")

    @property
    def element(self) -> str:
        """The C type of a sum."""
        return c_text.ctype(self.sums)

    @property
    def vector(self) -> str:
        """The C type of sums."""
        return c_text.vector_type(self.sums)


BYTES = Dot(1, "tx_dot4", DType.INT32, DType.INT8, "amx_int8", (DType.UINT8, DType.INT8))
WIDENED_BYTES = replace(BYTES, call="tx_dot2_at", widened=True, sorted=True)
SORTED_BYTES = replace(BYTES, sorted=True)
WORDS = Dot(2, "tx_dot2_words", DType.INT32, DType.INT16, "", (DType.INT16,))
HALVES = Dot(2, "tx_dot2", DType.FP32, DType.BF16, "amx_bf16", (DType.BF16,))


PAIR = 128
"""Largest magnitude of the sum of two weights of one sign whose products with two unsigned bytes
add up within 16 bits: 255 times it is 32640.
"""


@dataclass(frozen=True)
class SortedSteps:
    """Constant weights of tiles on AVX2 without VNNI, whose steps each panel takes in an order of
    its own.

    ``vpmaddubsw`` multiplies four bytes a lane at once, but its sums of two products end at 16
    bits. First come the steps of a panel in which no pair of weights can reach that: their weights
    are bytes, and three instructions take them. Those of the others lie widened, and take four and
    a share of widening the left side. Which is which the weights decide: of trained networks most
    steps fit, of normal numbers that are scaled to their largest one less than half.

    ``weights``: as ``[panel][step][column][group]`` in bytes. ``dot``: whether the others are
    widened at all: with few rows weights are read once, and fewer bytes count for more.
    ``offsets``: bytes from the left side's pointer to that of each step. ``last``: whether a step
    of fewer than four bytes stands behind all others.
    """

    weights: Packed
    dot: Dot
    panels: int
    width: int
    lanes: int
    offsets: tuple[int, ...]
    last: bool = False

    @property
    def slab(self) -> int:
        """Bytes of a panel, as if no step fitted."""
        return self.dot.column * self.width * (len(self.offsets) + self.last)

    def row(self, panel: str) -> str:
        """The distance from the first panel's order to that of another."""
        return f"{panel} * {1 + len(self.offsets)}"

    def packed(self) -> Packed:
        """The weights, those of a panel one behind the other."""
        return Packed(-1, array=self._packed)

    def order(self) -> Packed:
        """Of each panel how many steps fit, and the offsets of all in order."""
        return Packed(-1, array=self._order)

    def _sorted(self, given: Sequence[Any]) -> Any:
        """The weights, which steps fit, and the order of steps, by panels."""
        import numpy as np

        count = len(self.offsets)
        w = self.weights.apply(given).reshape(self.panels, -1, self.width, 2, 2)
        w = w[:, : count + self.last]
        ends = [f(w.astype(np.int16), 0).sum(-1) for f in (np.maximum, np.minimum)]
        fits = ((ends[0] <= PAIR) & (ends[1] >= -PAIR)).all((2, 3))[:, :count]
        return w, fits, np.argsort(~fits, axis=1, kind="stable")

    def _order(self, given: Sequence[Any]) -> Any:
        import numpy as np

        _, fits, order = self._sorted(given)
        offsets = np.array(self.offsets, np.int32)[order]
        return np.concatenate([fits.sum(1, dtype=np.int32)[:, None], offsets], axis=1)

    def _packed(self, given: Sequence[Any]) -> Any:
        import numpy as np

        w, fits, order = self._sorted(given)
        out = np.zeros((self.panels, self.slab), np.int8)
        for panel, steps in enumerate(order):
            near = int(fits[panel].sum())
            first = w[panel, steps[:near]].tobytes()
            rest = [*steps[near:], *[len(steps)] * self.last]
            columns = w[panel, rest].reshape(-1, self.lanes, 2, 2)
            if self.dot.widened:
                columns = columns.transpose(0, 3, 1, 2).astype(np.int16)
            line = np.frombuffer(first + columns.tobytes(), np.int8)
            out[panel, : len(line)] = line
        return out


@dataclass(frozen=True)
class DotTile:
    """``offsets``: bytes from the left side's pointer to each row. ``flip``: the left side is
    signed bytes. ``near`` and ``far``: how many steps ahead the right side is asked for into the
    first and second cache; 0: not.
    """

    dot: Dot
    offsets: tuple[int, ...]
    vectors: int
    lanes: int
    flip: bool = False
    near: int = 0
    far: int = 0

    @property
    def rows(self) -> int:
        return len(self.offsets)

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes

    @property
    def places(self) -> list[tuple[int, int]]:
        """Every (row, vector)."""
        return [(m, n) for m in range(self.rows) for n in range(self.vectors)]

    def start(self, pointer: str) -> str:
        """Declare the sums, those of a column beginning with the number at ``pointer``."""
        kind, load = self.dot.vector, self._load
        first = [
            f"const {kind} z{n} = {load(f'{pointer} + {n * self.lanes}')};"
            for n in range(self.vectors)
        ]
        return "\n".join(
            [*first, f"{kind} {', '.join(f's{m}_{n} = z{n}' for m, n in self.places)};"]
        )

    def zero(self) -> str:
        """Declare the sums, all beginning with zero."""
        names = ", ".join(f"s{m}_{n} = {{0}}" for m, n in self.places)
        return f"{self.dot.vector} {names};"

    def save(self, pointer: str) -> list[str]:
        """Store the sums, row after row."""
        return [
            c_text.store(
                self.dot.sums, f"{pointer} + {m * self.width + n * self.lanes}", f"s{m}_{n}"
            )
            for m, n in self.places
        ]

    def _load(self, pointer: str) -> str:
        return c_text.load(self.dot.sums, pointer)

    def run(self, count: int, x: str = "x", w: str = "w") -> str:
        """``count`` steps; moves both pointers behind them."""
        whole, rest = divmod(count, UNROLL)
        lines = []
        if whole > 1:
            lines.append(loop("q", "0", str(whole), self._steps(UNROLL, x, w)))
        elif whole:
            lines.append(self._steps(UNROLL, x, w))
        return "\n".join([*lines, *([self._steps(rest, x, w)] if rest else [])])

    def _steps(self, count: int, x: str, w: str) -> str:
        def four_of_step(u: int) -> Callable[[int], str]:
            return lambda m: self.quad(f"{x} + {self.offsets[m] + 4 * u}")

        quads = [self.step(w, u, four_of_step(u)) for u in range(count)]
        move = self.dot.column * count * self.width
        return "\n".join([*quads, f"{x} += {4 * count}; {w} += {move};"])

    def last(self, bytes_left: int, x: str = "x", w: str = "w") -> str:
        """One step of fewer than four bytes."""
        return self.step(w, 0, lambda m: f"tx_quad_n({x} + {self.offsets[m]}, {bytes_left})")

    def quad(self, pointer: str) -> str:
        """The text of four bytes at the pointer in all lanes."""
        return f"tx_quad{'_at' * self.dot.sorted}({pointer})"

    def step(self, w: str, u: int, quad: Callable[[int], str]) -> str:
        """Step ``u`` behind the pointer ``w``; ``quad``: the text of a row's four bytes in all
        lanes.
        """
        if self.dot.widened:
            return self._widened_step(w, u, quad)
        places = [4 * (u * self.width + n * self.lanes) for n in range(self.vectors)]
        lines = [f"const vi b{n} = tx_load_i32({w} + {at});" for n, at in enumerate(places)]
        for steps, level in ((self.near, 3), (self.far, 2)):
            ahead = 4 * steps * self.width
            lines += [
                f"__builtin_prefetch({w} + {at + ahead}, 0, {level});" for at in places if steps
            ]
        for m in range(self.rows):
            sums = " ".join(
                f"s{m}_{n} = {self.dot.call}(s{m}_{n}, v, b{n});" for n in range(self.vectors)
            )
            lines.append(
                f"{{ const vi v = {f'tx_flip({quad(m)})' if self.flip else quad(m)}; {sums} }}"
            )
        return block("", *lines)

    def _widened_step(self, w: str, u: int, quad: Callable[[int], str]) -> str:
        """The same with a right side of 16 bits; as its vectors stand in the first cache, and those
        of a step fill as many of its lines, they are asked for from memory alone.
        """
        places = [8 * (u * self.width + n * self.lanes) for n in range(self.vectors)]
        ahead = 8 * self.far * self.width
        lines = [f"__builtin_prefetch({w} + {at + ahead}, 0, 2);" for at in places if self.far]
        for m in range(self.rows):
            v = f"tx_flip({quad(m)})" if self.flip else quad(m)
            sums = [
                f"s{m}_{n} = {self.dot.call}(s{m}_{n}, {part}, {w} + {at + half});"
                for part, half in (("e", 0), ("o", 4 * self.lanes))
                for n, at in enumerate(places)
            ]
            head = f"const vi v = {v}, e = tx_even(v), o = tx_odd(v);"
            lines.append(f"{{ {head} {' '.join(sums)} }}")
        return block("", *lines)

    def sorted(self, steps: int) -> list[str]:
        """Steps as ``SortedSteps`` lays them, from ``order``, with the pointers ``x`` and ``w``,
        which is moved.
        """
        at = "const uint8_t* row = x + order[q];"
        narrow = [4 * n * self.lanes for n in range(self.vectors)]
        ahead = 4 * self.far * self.width
        fit = [f"__builtin_prefetch(w + {p + ahead}, 0, 2);" for p in narrow[:: 64 // 32] if ahead]
        for m in range(self.rows):
            quad = self.quad(f"row + {self.offsets[m]}")
            sums = [f"s{m}_{n} = tx_dot4_at(s{m}_{n}, v, w + {p});" for n, p in enumerate(narrow)]
            v = f"tx_flip({quad})" if self.flip else quad
            fit.append(f"{{ const vi v = {v}; {' '.join(sums)} }}")
        wide = self.step("w", 0, lambda m: self.quad(f"row + {self.offsets[m]}"))
        return [
            "const int64_t fits = *order++;\nint64_t q = 0;",
            block("for (; q < fits; q++)", at, *fit, f"w += {4 * self.width};"),
            block(f"for (; q < {steps}; q++)", at, wide, f"w += {self.dot.column * self.width};"),
        ]

    def finish(self, epi: Epilogue, site: TileSite) -> list[str]:
        """Epilogue and stores: in registers, or through memory where it is long or columns may be
        missing.
        """
        short = len(epi.emit(["z"], lambda o: "0").statements) <= LIGHT_RESULTS
        full = [result(epi, site, f"s{m}_{n}", str(m), n, "", self.dot) for m, n in self.places]
        if short and not site.left:
            return full
        if not short:
            return self._through_memory(epi, site, bool(site.left))
        rest = self._through_memory(epi, site, True)
        return [block(f"if ({site.left} >= {self.width})", *full), block("else", *rest)]

    def _through_memory(self, epi: Epilogue, site: TileSite, guarded: bool) -> list[str]:
        sums = f"{self.dot.element} sums[{self.rows * self.width}] __attribute__((aligned(64)));"
        return [sums, *self.save("sums"), self.finish_saved(epi, site, str(self.rows), guarded)]

    def finish_saved(
        self, epi: Epilogue, site: TileSite, rows: str, guarded: bool, saved: str = "sums"
    ) -> str:
        """Epilogue and stores of ``saved``, the tile's rows in memory; ``guarded``: only columns
        that there are.
        """
        body = []
        for n in range(self.vectors):
            at = n * self.lanes
            sums = self._load(f"{saved} + m * {self.width} + {at}")
            text = result(epi, site, sums, "m", n, f"{site.left} - {at}" * guarded, self.dot)
            body.append(block(f"if ({site.left} > {at})", text) if guarded else text)
        return loop("m", "0", rows, *body)


def result(
    epi: Epilogue, site: TileSite, value: str, row: str, vector: int, count: str, dot: Dot = BYTES
) -> str:
    """The statements that take one vector of sums to the node's outputs."""
    bytes_, code = _emitted(epi, site, "z", row, vector, count, "e")
    puts = []
    for j, (b, name, dtype) in enumerate(zip(bytes_, code.results, code.dtypes, strict=True)):
        final = b.text(name) if b else name
        puts.append(site.put(j, b.dtype if b else dtype, final, row, vector, count))
    return block("", f"const {dot.vector} z = {value};", *code.statements, *puts)


def results(
    epi: Epilogue, site: TileSite, values: tuple[str, str], row: str, places: Sequence[str]
) -> str:
    """The same of two neighbouring vectors of int32 sums.

    ``places``: for each output a pointer to 32 bytes where both stand together, or nothing if they
    do not.
    """
    lines, halves = [f"const vi z{n} = {value};" for n, value in enumerate(values)], []
    for n in range(2):
        bytes_, code = _emitted(epi, site, f"z{n}", row, n, "", f"e{n}_")
        lines += code.statements
        halves.append(code)
    for j, (b, dtype, place) in enumerate(zip(bytes_, halves[0].dtypes, places, strict=True)):
        names = [h.results[j] for h in halves]
        if b and place:
            lines.append(
                f"tx_store_two_{b.dtype.value}({place}, {', '.join(b.whole(x) for x in names)});"
            )
            continue
        lines += [
            site.put(j, b.dtype if b else dtype, b.text(x) if b else x, row, n, "")
            for n, x in enumerate(names)
        ]
    return block("", *lines)


def _emitted(
    epi: Epilogue, site: TileSite, name: str, row: str, vector: int, count: str, tag: str
) -> tuple[list[Rounded | None], Code]:
    """Which results are rounded to bytes, and the statements up to that."""
    bytes_ = [rounded_part(r) for r in epi.results]
    inner = replace(
        epi, results=tuple(b.x if b else r for b, r in zip(bytes_, epi.results, strict=True))
    )
    return bytes_, inner.emit([name], lambda operand: site.place(operand, row, vector, count), tag)


def starts(
    node: Node, inputs: Sequence[int], size: int, axis: int, dot: Dot = BYTES, flipped: bool = True
) -> Packed:
    """Numbers that the sums begin with, one for each output channel, zeros up to ``size``.

    ``inputs``: which given inputs are x, weights and bias, -1 if absent; ``axis``: the output
    channels of the weights;
    ``flipped``: whether signed bytes of x are read as unsigned ones, 128 higher.
    """
    import numpy as np

    x, weights, bias = (*inputs, -1)[:3]
    shape = node.given[weights].spec.const.shape
    count, signed = shape[axis], flipped and node.given[x].spec.dtype is DType.INT8
    if not signed and bias >= 0:
        return Packed(bias, (("cast", dot.sums.value), ("pad", ((0, size - count),))))
    other = tuple(i for i in range(len(shape)) if i != axis)

    def totals(given: Sequence[Any]) -> Any:
        out = np.zeros(size, dot.sums.numpy)
        if bias >= 0:
            out[:count] = given[bias]
        if signed:
            out[:count] -= (128 * given[weights].astype(np.int64).sum(axis=other)).astype(np.int32)
        return out

    return Packed(-1, array=totals)


NEAR, FAR = 8, 64
"""Steps that weights are asked for ahead, into the first and into the second cache. A step of a
tile of 14 x 2 takes 14 to 28 cycles, so that they are 100 to 200 and 900 to 1800 cycles ahead. On a
Zen 4 layers of MobileNet v2 at 7 x 7 pixels took 12 % less so in bfloat16, larger ones 0 to 4 %.
"""
FEW_TILES = 4
"""Tiles that are few: a panel is then read so few times that it comes from memory for most of them,
and is asked for far ahead. No measurement of it is on record.
"""


def ahead(tiles: float) -> tuple[int, int]:
    """How many steps ahead weights are asked for that so many tiles share: near and far."""
    return NEAR, FAR if tiles <= FEW_TILES else 0


LATENCY = 5.0
"""Cycles from a dot product to the next that adds to the same sum: ``vpdpbusd`` on Intel since Ice
Lake (Agner Fog, Instruction tables). Two start in a cycle, so ten sums hide it.
"""
PAIRS, PAIRS_WIDENED = 1.8, 1.5
"""Cycles of a product of bfloat16 pairs: ``vdpbf16ps`` of 16 lanes on a Sapphire Rapids guest, by
convolutions of 64 and of 256 channels (1.7 and 1.8) and by attention; so it is slower there than
FMA, of which two start in a cycle. On the prototype's Zen 5 it did twice what FMA did: only
measuring chooses it. And where it is two FMA of widened halves: no measurement of that is on
record.
"""
BYTES_AT_ONCE, BYTES_IN_PAIRS = 0.5, 1.8
"""Cycles of a product of bytes: two start in a cycle (Agner Fog, Instruction tables). Without VNNI
they are widened to two products of pairs: 1.5 to 2.2 by convolutions and a product of matrices with
vectors of 4, 8 and 16 lanes on a Zen 4 that is held back to x86-64-v2, v3 and v4.
"""
WIDENED, WIDENING = 1.1, 0.75
"""Cycles of a product of four bytes a lane by two of pairs whose right sides lie widened, and to
load and widen a row's four bytes: on a Zen 3 tiles of 3 x 4, 2 x 6, 2 x 4 and 3 x 3 vectors took
1.28, 1.24, 1.28 and 1.31 for a product, which its two units of multiplying do in 1; without that
they took 1.6 (3 x 3) and 1.7 (4 x 2).
"""
FAR_WEIGHTS = 0.1
"""Cycles that a vector of weights costs more than its load, on the average, as some come from the
second cache. No measurement of it is on record.
"""
FINISH = 5.0
"""Cycles to scale, round and store a vector of sums. No measurement of it is on record."""


def has_byte_dots(device: DeviceProperties) -> bool:
    """Whether one instruction multiplies and sums four bytes a lane (lib/int8.h: tx_dot4)."""
    if device.lanes == 8:
        return device.has("avx_vnni")
    return device.lanes == 16 and device.has("avx512_vnni")


def dot_on(dot: Dot, device: DeviceProperties) -> Dot:
    """How the device multiplies what ``dot`` does: bytes in 16 bits on AVX2 without VNNI."""
    widened = dot is BYTES and device.has("avx2") and device.lanes == 8
    return WIDENED_BYTES if widened and not has_byte_dots(device) else dot


ROWS_OF_BYTES = 2
"""Rows at most for which weights stay bytes where products are widened: they are then read once or
twice, from a far cache or from memory as fast as they come. One row by 768 x 3072 weights took 55
us so on a Zen 3, and 104 with widened ones (2 rows 84 and 87).
"""


def dot_of_rows(dot: Dot, rows: int) -> Dot:
    """The same for so many rows of the left side."""
    return SORTED_BYTES if dot.widened and rows <= ROWS_OF_BYTES else dot


def product_cycles(dot: Dot, device: DeviceProperties) -> float:
    """Cycles of the product of two vectors."""
    if dot is WORDS:
        return WIDENED / 2
    if dot.widened:
        return WIDENED
    if dot.size == 1:
        return BYTES_AT_ONCE if has_byte_dots(device) else BYTES_IN_PAIRS
    return PAIRS if device.has("avx512_bf16") and device.lanes == 16 else PAIRS_WIDENED


def tile_cycles(dot: Dot, device: DeviceProperties, rows: int, vectors: int) -> float:
    """Cycles of one step of products of that kind."""
    widening = WIDENING * rows if dot.widened else 0.0
    return widening + step_cycles(rows, vectors, product_cycles(dot, device))


def step_cycles(rows: int, vectors: int, each: float) -> float:
    """Cycles of one step: products of ``each`` so many, two loads at a time, or a sum that waits
    for itself.

    A step loads each row's group, to all lanes, and each vector of weights.
    """
    sums = rows * vectors
    waits = LATENCY if sums < 2 * LATENCY else 0.0
    return max(sums * each, 0.5 * (rows + vectors), waits) + FAR_WEIGHTS * vectors


def finish_cycles(rows: int, vectors: int) -> float:
    """Cycles of an epilogue."""
    return FINISH * rows * vectors


def constant_channels(node: Node, inputs: Sequence[int]) -> bool:
    """Whether these given inputs are constants."""
    return all(i < 0 or node.given[i].spec.is_const for i in inputs)
