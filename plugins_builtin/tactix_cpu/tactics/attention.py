"""Attention in one pass over the keys: scores of some query rows and a block of keys, softmax,
times the values.

A first launch packs the keys, transposed, into panels (and the values, where their vectors do not
fit). Then each unit, some query rows of one head, walks over blocks of keys with a running maximum
and sum, as in FlashAttention (T. Dao et al., 2022), so that nothing larger than a block is kept.
Threads share out the units. Knobs: ``rows`` of a unit, ``vectors`` of keys and of values that a
tile takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import heads as c_heads
from tactix_codegen.c import text as c_text
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.heads import Heads, Matrices
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.text import Args, block, contiguous_strides, ctype, kernel, loop, split
from tactix_codegen.c.tile import Functions, RegisterTile, by_rows, finish_saved, flat
from tactix_cpu.tactics.estimates import CLOCK, START
from tactix_cpu.tactics.matmul.product import RowSite

KEYS = 256
"""Keys of a block: their scores, for the rows of a unit, stay in the first cache: 1 KiB a row, 14
KiB at most. More of them rescale what was summed less often. No measurement of it is on record.
"""
MAX_DIM = 1024
"""Elements of a head at most: the sums of a unit lie on the stack, 14 rows of 4 KiB. Larger ones
are left to others; no measurement of it is on record.
"""
NEVER = -1e30
"""A mask at or below it hides a key, whatever its score: nothing is computed for keys after the
last that is not.
"""
ROWS = 4
"""Most rows whose softmax is taken together: a maximum and a sum are chains of operations that wait
for each other, for about 4 cycles (Agner Fog, Instruction tables), which other rows fill.
"""
FLOATS = (DType.FP32, DType.BF16)
EXPONENT = 20
"""Cycles of a vector of scores in the softmax (scale, mask, maximum, exponential, sum), and as many
again of waiting, which the rows that are taken together share. No measurement of it is on record.
"""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [CpuAttentionTactic()]


class CpuAttentionTactic(Tactic[Heads]):
    """float32, or bfloat16 widened as it is packed; any batch, heads and sequence lengths, symbolic
    ones too; a mask of either that broadcasts along any axis.
    """

    key = "tactix.c_attention@1"
    implements = c_heads.LAYERS
    source = "c"
    by_signature = True

    def match(self, node: Node, device: DeviceProperties) -> Heads | Reject:
        return masked_heads(node, FLOATS)

    def variants(self, h: Heads, device: DeviceProperties) -> Sequence[Variant]:
        """Tiles that fill 32 or 16 registers, with rows evened out over the queries."""
        found: dict[tuple[int, int], None] = {}
        for rows, vectors in (
            ((12, 2), (6, 4), (14, 2)) if c_tile.registers(device) == 32 else ((6, 2), (4, 2))
        ):
            even = -(-h.s // -(-h.s // rows)) if isinstance(h.s, int) and h.s > 0 else rows
            found[even, vectors] = None
        return [Variant.of(rows=rows, vectors=vectors) for rows, vectors in found]

    def cost(self, h: Heads, variant: Variant, ctx: CompileContext) -> float | None:
        size = prod(h.lead) * h.s * h.t
        if not symbols(size) <= set(ctx.opt):
            return None
        lanes, rows, vectors = (
            max(4, ctx.device.lanes),
            variant.number("rows"),
            variant.number("vectors"),
        )
        step = c_tile.step_cycles(rows, vectors) / rows / (vectors * lanes)
        # Per score: a step of k for each element of a key and of a value, and the softmax.
        exponents = (EXPONENT + EXPONENT / groups(rows)[-1]) / lanes
        cycles = evaluate(size, ctx.opt) * ((h.d + h.e) * step + exponents)
        return 2 * START + cycles / CLOCK / max(1, ctx.threads)

    def compile(self, h: Heads, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return AttentionKernel(h, variant, ctx).artifact()


def masked_heads(node: Node, dtypes: Sequence[DType]) -> Heads | Reject:
    """What a node of these dtypes computes, its mask one of ``FLOATS``; or why it cannot be."""
    h = c_heads.heads(node, dtypes, MAX_DIM, first_keys=True)
    if isinstance(h, Heads) and h.mask >= 0 and node.given[h.mask].spec.dtype not in FLOATS:
        return Reject("these kernels take a float32 or bf16 mask")
    return h


def groups(rows: int) -> list[int]:
    """Rows in about equal groups of at most ``ROWS``, the largest first."""
    count = -(-rows // ROWS)
    return [rows // count + (i < rows % count) for i in range(count)]


class AttentionKernel:
    """Writes one kernel. Others override how operands are packed, and what multiplies them."""

    preludes: tuple[str, ...] | None = None

    def __init__(self, h: Heads, variant: Variant, ctx: CompileContext) -> None:
        self.h, self.ctx = h, ctx
        self.tile = RegisterTile(
            variant.number("rows"), variant.number("vectors"), max(4, ctx.device.lanes)
        )
        self.args = Args(h.node)
        self.functions = Functions(self.args)
        self.width = self.tile.width
        self.panels = -(-h.e // self.width)
        self.packs_v = h.tokens or h.e % self.width != 0 or h.dtype is not DType.FP32
        self.mask_dtype = h.node.given[h.mask].spec.dtype if h.mask >= 0 else DType.FP32
        self.s, self.t = self.args.dim(h.s), self.args.dim(h.t)
        self.key_panels = ceildiv(h.t, self.width)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        h = self.h
        return self.with_workspace(
            prod(h.k.count) * self.key_panels * (h.d * self.width * 4),
            prod(h.v.count) * h.t * (self.panels * self.width * 4) if self.packs_v else 0,
        )

    def with_workspace(self, keys: Dim, values: Dim) -> KernelArtifact:
        """The same; ``keys``, ``values``: bytes of what is packed."""
        h, args = self.h, self.args
        self.keys, self.values = (
            args.workspace(0),
            args.workspace(keys) if self.packs_v else args.input(h.v.index),
        )
        args.phase(0)
        sizes = self._sizes()
        for rows in self._groups(sizes):
            self._softmax(rows)
        for rows in sizes:
            self._unit(rows)
        body = [
            block("if (phase == 0)", self._pack_keys(), self._pack_values(), "return;"),
            self._units(sizes),
        ]
        return kernel(
            args,
            body,
            self.ctx,
            helpers=self._helpers() + self.functions.text(),
            preludes=self.preludes,
            workspace=keys + values,
            phases=2,
        )

    def _sizes(self) -> tuple[int, ...]:
        """Query rows of units, the largest first."""
        s, most = self.h.s, self.tile.rows
        rest = c_tile.rest_sizes(most, s) if isinstance(s, int) else (4, 1)
        return (most, *(r for r in rest if r < most))

    def _groups(self, sizes: Sequence[int]) -> list[int]:
        """Numbers of rows whose softmax is taken together."""
        return sorted({n for size in sizes for n in groups(size)})

    def _count(self, size: int) -> str:
        """C text of further arguments of a call of a unit."""
        return ""

    def _helpers(self) -> str:
        """C functions that see no argument."""
        return c_tile.transpose(self.tile.lanes, self.h.dtype)

    def _softmax(self, rows: int) -> None:
        """Scores of a block to weights; updates each row's maximum and sum, and scales what was
        summed before.

        Several rows at once, since one by itself would wait for its own maximum and sum.
        """
        lanes, each = self.tile.lanes, range(rows)
        s = [f"s + {r * KEYS}" for r in each]
        minus_inf = "-tx_splat(__builtin_inff())"
        peak = [
            f"tx_store_f32({s[r]} + j, x{r});\nmost{r} = tx_max_c(x{r}, most{r});" for r in each
        ]
        whole = [f"const vf x{r} = {self._masked(s[r], r, '')};" for r in each]
        masked = [self._masked(s[r], r, "keys - j") for r in each]
        last = [
            f"const vf x{r} = tx_select(tx_first(keys - j), {masked[r]}, {minus_inf});"
            for r in each
        ]
        weights = [
            f"const vf p{r} = tx_weight((tx_load_f32({s[r]} + j) - base{r}) * TX_LOG2E);"
            for r in each
        ]
        stores = [f"tx_store_f32({s[r]} + j, p{r});\nsum{r} += p{r};" for r in each]
        body = [
            *(
                f"vf most{r} = {minus_inf}, sum{r} = tx_zero();\nfloat before{r} = 0.0f;"
                for r in each
            ),
            "int64_t j = 0;",
            block(f"for (; j + {lanes} <= keys; j += {lanes})", *whole, *peak),
            block("if (j < keys)", *last, *peak),
            *(f"const float old{r} = top[{r}], peak{r} = tx_hmax(most{r});" for r in each),
            *(f"top[{r}] = old{r} > peak{r} ? old{r} : peak{r};" for r in each),
            *(
                f"const vf base{r} = tx_splat(top[{r}] == -__builtin_inff() ? 0.0f : top[{r}]);"
                for r in each
            ),
            block(f"for (j = 0; j < keys; j += {lanes})", *weights, *stores),
            block("if (pitch)", *self._rescale(rows, "tx_exp_low")),
            *(f"total[{r}] = before{r} + tx_hsum(sum{r});" for r in each),
        ]
        self.functions.add(
            f"softmax{rows}",
            f"float* s, int64_t keys, const {ctype(self.mask_dtype)}* mask, "
            "float* top, float* total, float* o, int64_t pitch",
            body,
        )

    def _rescale(self, rows: int, exponential: str) -> list[str]:
        """What was summed over earlier blocks, in terms of the new maximum."""
        lines, sums = [], []
        for r in range(rows):
            lines.append(
                f"const vf scale{r} = tx_splat({exponential}(tx_splat(old{r}) - base{r})[0]);"
            )
            lines.append(f"before{r} = total[{r}] * scale{r}[0];")
            for n in range(self.tile.vectors):
                at = f"o + {r * self.width + n * self.tile.lanes}"
                sums.append(f"tx_store_f32({at}, tx_load_f32({at}) * scale{r});")
        return [*lines, loop("p", "0", str(self.panels), *sums, "o += pitch;")]

    def _masked(self, scores: str, row: int, count: str) -> str:
        """A vector of scaled scores plus mask, of which ``count`` are there."""
        h = self.h
        raw = f"tx_load_f32({scores} + j) * {float_literal(h.scale)}"
        if h.mask < 0:
            return raw
        at = (
            f"mask + {row} * {self.args.dim(h.mask_strides[2])}"
            if row and h.mask_strides[2] != 0
            else "mask"
        )
        if h.mask_strides[3] == 0:
            number = f"tx_splat(*({at}))"
            if self.mask_dtype is not DType.FP32:
                number = c_text.splat(self.mask_dtype, at)
            return f"{raw} + {number}"
        return f"{raw} + {c_text.load(self.mask_dtype, f'{at} + j', count)}"

    def _unit(self, rows: int) -> None:
        """Some query rows of one head against all keys."""
        h, width = self.h, self.width
        vectors = self.tile.vectors
        tile = RegisterTile(rows, vectors, self.tile.lanes, c_tile.chains_for(rows, vectors))
        self._scores(tile)
        self._weigh(tile)
        size = rows * width
        at_v = f"v + t * {self.panels * width if self.packs_v else h.e}"
        walk = [
            f"const int64_t keys = last - t < {KEYS} ? last - t : {KEYS};",
            loop(
                "j",
                "0",
                "keys",
                f"TX_NAME(scores{rows})(a, q, k + (t + j) * {h.d}, s + j);",
                step=width,
            ),
            *self._rows_of_softmax(rows),
            loop(
                "p",
                "0",
                str(self.panels),
                f"TX_NAME(weigh{rows})(a, s, {at_v} + p * {width}, keys, o + p * {size}, t == 0);",
            ),
        ]
        aligned = "__attribute__((aligned(64)))"
        body = [
            *self._widened_queries(rows),
            f"float s[{rows * KEYS}] {aligned}, o[{self.panels * size}] {aligned};",
            f"float top[{rows}], sum[{rows}];",
            loop("m", "0", str(rows), "top[m] = -__builtin_inff();", "sum[m] = 0.0f;"),
            *self._last_key(rows),
            loop("t", "0", "last", *walk, step=KEYS),
            *self._finish(tile),
        ]
        self.functions.add(
            f"unit{rows}",
            (
                f"const {ctype(h.dtype)}* {'q' if h.dtype is DType.FP32 else 'halves'}, "
                f"const float* k, const float* v, const {ctype(self.mask_dtype)}* mask, "
                "int64_t row, int64_t column"
            ),
            body,
        )

    def _widened_queries(self, rows: int) -> list[str]:
        """Declare ``q``: the rows of ``halves`` in float32, if they are not that."""
        if self.h.dtype is DType.FP32:
            return []
        pitch = self.q_pitch
        row = f"halves + m * {self.args.dim(self.h.q.pitch)}"
        return [
            f"float q[{rows} * {pitch}] __attribute__((aligned(64)));",
            loop("m", "0", str(rows), *self._widen(row, f"q + m * {pitch}", self.h.d)),
        ]

    @property
    def q_pitch(self) -> str:
        """Floats from one query row to the next: as they lie, or in whole vectors."""
        h, lanes = self.h, self.tile.lanes
        return self.args.dim(h.q.pitch if h.dtype is DType.FP32 else -(-h.d // lanes) * lanes)

    def _widen(self, x: str, to: str, count: int) -> list[str]:
        """Statements that store so many elements in float32, in whole vectors, zeros at the end."""
        lanes, dtype = self.tile.lanes, self.h.dtype
        whole = count // lanes * lanes
        move = f"tx_store_f32({to} + i, {c_text.load(dtype, f'{x} + i')});"
        lines = [loop("i", "0", str(whole), move, step=lanes)] if whole else []
        if whole < count:
            rest = c_text.load(dtype, f"{x} + {whole}", str(count - whole))
            lines.append(f"tx_store_f32({to} + {whole}, {rest});")
        return lines

    def _last_key(self, rows: int, count: str = "") -> list[str]:
        """Declare ``last``: the keys after which the mask lets none of the rows see any, in whole
        vectors. ``count``: the C name of how many rows there are, all if not given.

        All of them if some row has none at all: what it gives is then for the softmax to say.
        """
        if self.h.mask < 0 or self.h.mask_strides[3] == 0:
            return [f"const int64_t last = {self.t};"]
        stride, never, dtype = self.h.mask_strides[2], float_literal(NEVER), self.mask_dtype
        last = c_text.load(dtype, f"row + n - {self.tile.lanes}")
        hidden = f"tx_any(tx_not(tx_le({last}, tx_splat({never}))))"
        one = "row[n - 1]" if dtype is DType.FP32 else "tx_from_bf16(row[n - 1])"
        body = [
            f"int64_t n = {self.t};",
            f"for (; n % {self.tile.lanes} && {one} <= {never}; n--);",
            f"if (n % {self.tile.lanes} == 0) while (n > 0 && !{hidden}) n -= {self.tile.lanes};",
            "most = n > most ? n : most; least = n < least ? n : least;",
        ]
        among = (count or str(rows)) if stride != 0 else "1"
        kind = f"const {ctype(dtype)}*"
        row = f"{kind} row = mask + m * {self.args.dim(stride)};"
        self.functions.add(
            f"last{rows}",
            f"{kind} mask, int64_t* last" + f", int64_t {count}" * bool(count),
            [
                f"int64_t most = 0, least = {self.t};",
                loop("m", "0", among, row, *body),
                f"*last = least ? most : {self.t};",
            ],
        )
        more = f", {count}" * bool(count)
        return ["int64_t last;", f"TX_NAME(last{rows})(a, mask, &last{more});"]

    def _rows_of_softmax(self, rows: int) -> list[str]:
        """The softmax of all rows of a unit, some at a time."""
        mask = self.h.mask_strides
        at = "mask + t" if mask[3] != 0 else "mask"
        size, m, lines = rows * self.width, 0, []
        for count in groups(rows):
            place = f"{at} + {m} * {self.args.dim(mask[2])}" if m and mask[2] != 0 else at
            call = (
                f"a, s + {m * KEYS}, keys, {place}, top + {m}, sum + {m}, "
                f"o + {m * self.width}, t ? {size} : 0"
            )
            lines.append(f"TX_NAME(softmax{count})({call});")
            m += count
        return lines

    def _finish(self, tile: RegisterTile, rows: str = "") -> list[str]:
        """Sums over weights to the outputs; ``rows``: C text of how many there are, all if not
        given.
        """
        h, size = self.h, tile.rows * self.width
        nothing = f"memset(o + p * {size} + m * {self.width}, 0, {self.width * 4});"
        zero = h.nan_to_zero or self.t == "0"
        bad = loop("p", "0", str(self.panels), nothing)
        value = "0.0f" if zero else f'{self.t} == 0 ? 0.0f : __builtin_nanf("")'
        if not zero:  # the sum over no keys is 0, not NaN
            bad = block(f"if ({self.t} == 0)", bad)
        left = f"({h.e} - at)" if h.e % self.width else ""
        site = RowSite(self.args, h.rows, h.width, tile.lanes, left)
        stores = finish_saved(
            tile, h.epi, site, f"(o + p * {size})", bool(left), " * tx_splat(sum[m])", rows
        )
        return [
            loop(
                "m",
                "0",
                rows or str(tile.rows),
                "if (sum[m] > 0.0f) sum[m] = 1.0f / sum[m];",
                block("else", f"sum[m] = {value};", bad),
            ),
            loop(
                "p",
                "0",
                str(self.panels),
                f"const int64_t at = p * {self.width}, col = column + at;",
                stores,
            ),
        ]

    def _scores(self, tile: RegisterTile) -> None:
        """Products of the query rows with one panel of keys."""
        d, pitch = self.h.d, self.q_pitch
        unroll = 2 if d % 2 == 0 else 1
        body = tile.steps(unroll, lambda m, u: f"q[{m} * {pitch} + {u}]", "k")
        sums = [
            f"tx_store_f32(s + {m * KEYS + n * tile.lanes}, {tile.acc(m, n)});"
            for m, n in tile.places()
        ]
        walk = loop("i", "0", str(d // unroll), body, f"q += {unroll}; k += {unroll * tile.width};")
        parameters = "const float* q, const float* k, float* s"
        self.functions.add(
            f"scores{tile.rows}", parameters, [tile.zero(), walk, tile.join(), *sums]
        )

    def _weigh(self, tile: RegisterTile) -> None:
        """Weights of a block of keys times one panel of values, added to what was summed before."""
        pitch = str(self.panels * self.width if self.packs_v else self.h.e)
        one = RegisterTile(tile.rows, tile.vectors, tile.lanes)
        body = one.steps(2, lambda m, u: f"s[{m * KEYS + u}]", "v", pitch)
        rest = one.steps(1, lambda m, u: f"s[{m * KEYS + u}]", "v", pitch)
        self.functions.add(
            f"weigh{tile.rows}",
            "const float* s, const float* v, int64_t keys, float* o, int first",
            [
                one.zero(),
                block("if (!first)", one.load("o")),
                "int64_t i = 0;",
                block("for (; i + 2 <= keys; i += 2)", body, f"s += 2; v += 2 * {pitch};"),
                block("if (i < keys)", rest),
                one.save("o"),
            ],
        )

    def _pack_keys(self) -> str:
        """Keys of every head as panels: (matrix, panel, d, width), zero past the last key.

        A step of d then multiplies a query's element with ``width`` keys side by side. The register
        turn moves squares of as many keys as a vector has lanes.
        """
        h, width, lanes = self.h, self.width, self.tile.lanes
        panels, pitch = self.args.dim(self.key_panels), self.args.dim(h.k.pitch)
        turn = (
            f"TX_NAME(turn)(in + j * {pitch} + i, {pitch}, left - j, {h.d} - i, "
            f"out + i * {width} + j, {width});"
        )
        body = [
            f"const int64_t panel = u % {panels}, left = {self.t} - panel * {width};",
            (
                f"const {ctype(h.dtype)}* in = {self._matrix(h.k, f'u / {panels}')} "
                f"+ panel * {width} * {pitch};"
            ),
            f"float* out = {self.keys} + u * {h.d * width};",
            loop("i", "0", str(h.d), loop("j", "0", str(width), turn, step=lanes), step=lanes),
        ]
        return block(
            "",
            f"{split(self.args.dim(prod(h.k.count) * self.key_panels))}",
            loop("u", "lo", "hi", *body),
        )

    def _pack_values(self) -> str:
        """Value rows with zeros after them, up to whole panels."""
        if not self.packs_v:
            return ""
        h, pitch = self.h, self.panels * self.width
        row = f"{self._matrix(h.v, f'u / {self.t}')} + u % {self.t} * {self.args.dim(h.v.pitch)}"
        body, end = [f"memcpy({self.values} + u * {pitch}, {row}, {h.e * 4});"], h.e
        if h.dtype is not DType.FP32:
            to = f"float* to = {self.values} + u * {pitch};"
            from_ = f"const {ctype(h.dtype)}* row = {row};"
            lanes = self.tile.lanes
            body, end = [from_, to, *self._widen("row", "to", h.e)], -(-h.e // lanes) * lanes
        if pitch > end:
            body.append(f"memset({self.values} + u * {pitch} + {end}, 0, {(pitch - end) * 4});")
        return block(
            "", f"{split(self.args.dim(prod(h.v.count) * h.t))}", loop("u", "lo", "hi", *body)
        )

    def _matrix(self, m: Matrices, item: str) -> str:
        """Where one of an operand's own matrices begins."""
        return m.pointer(self.args, item, m.count)

    @property
    def key_words(self) -> int:
        """Floats of a packed key."""
        return self.h.d

    def _head_values(self) -> str:
        """C text of the floats of a head's values."""
        h = self.h
        if self.packs_v:
            return f"{self.t} * {self.panels * self.width}"
        return f"{self.args.dim(h.node.given[h.v.index].spec.shape[2])} * {h.e}"

    def _rows_of(self, sizes: tuple[int, ...], call: Callable[[int], str]) -> str:
        """Statements that take the queries from ``r`` to ``end``, by calls of units of those
        sizes.
        """
        return by_rows(sizes, "r", "end", call)

    def _units(self, sizes: tuple[int, ...]) -> str:
        h, rows, args = self.h, self.tile.rows, self.args
        sizes_of = [args.dim(d) for d in h.lead]
        tiles = args.dim(ceildiv(h.s, rows))
        keys = args.dim(self.key_panels * (self.key_words * self.width))
        mask = "0"
        if h.mask >= 0:
            step = [f"r * {args.dim(h.mask_strides[2])}"] * (h.mask_strides[2] != 0)
            mask = args.sum(
                args.input(h.mask), flat("item", sizes_of, h.mask_strides[:2], args), *step
            )

        def head(m: Matrices) -> str:
            return f"({m.offset(args, 'item', h.lead, contiguous_strides(m.count))})"

        def call(size: int) -> str:
            q = f"{h.q.pointer(args, 'item', h.lead)} + r * {args.dim(h.q.pitch)}"
            k = f"{self.keys} + {head(h.k)} * {keys}"
            v = f"{self.values} + {head(h.v)} * {self._head_values()}"
            row, column = h.place(args, "item", "r")
            operands = f"{q}, {k}, {v}, {mask}, {row}, {column}{self._count(size)}"
            return f"TX_NAME(unit{size})(a, {operands});"

        body = [
            f"const int64_t item = u / {tiles}, from = u % {tiles} * {rows};",
            f"const int64_t end = from + {rows} < {self.s} ? from + {rows} : {self.s};",
            "int64_t r = from;",
            self._rows_of(sizes, call),
        ]
        return f"{split(f'{args.dim(prod(h.lead))} * {tiles}')}\n{loop('u', 'lo', 'hi', *body)}"
