"""Attention of bfloat16 in one pass over the keys, as in c_attention, with products of pairs.

Keys and values are packed in pairs, of neighbouring elements and of neighbouring keys, as
``vdpbf16ps`` and the AMX matrix unit take them; sums, softmax and what is kept between blocks are
float32, and the weights of a block are rounded before they meet the values. A tactic for either
instruction; c_attention widens for other processors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tactix.base.dims import Dim, ceildiv, evaluate, prod, symbols
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix_codegen.c import heads as c_heads
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.heads import Heads
from tactix_codegen.c.scalar import float_literal
from tactix_codegen.c.text import block, ctype, loop, split
from tactix_codegen.c.text import prelude as text_of
from tactix_codegen.c.tile import RegisterTile
from tactix_cpu.tactics import dot_tile as byte
from tactix_cpu.tactics.attention import KEYS, ROWS, AttentionKernel, masked_heads
from tactix_cpu.tactics.dot_tile import DEEP, HALVES, HIGH, PAIRS, SIDE, has_tiles
from tactix_cpu.tactics.estimates import CLOCK, START
from tactix_cpu.tactics.matmul.int8_amx import multiply, tiles_to

LOG2E = 1.4426950408889634
LANES = 16
"""Of AVX-512, which both instructions come with."""
FEWEST = 8
"""Query rows below which a block of 32 on the matrix unit is mostly empty. Where fewer would still
pay is not on record.
"""
EXPONENT = 14.0
"""Cycles of a vector of scores in the softmax: scale, maximum, exponential, sum, rounding."""
PRODUCT = 40.0
"""Cycles of a product of two tiles with its loads and the stores of sums that few steps make: the
unit alone takes 16 (Intel, Optimization Reference Manual). With the one above it makes 0.25 ms of
12 heads of 64 elements and 197 tokens, and 1.6 of 512; a Sapphire Rapids guest took 0.26 and 1.5.
"""
PACK = 3.0
"""Cycles to pack a vector of 16 pairs of keys or values. No measurement of it is on record."""


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [HalfAttentionTactic(), HalfAmxAttentionTactic()]


class HalfAttentionTactic(Tactic[Heads]):
    """bf16 on processors that multiply its pairs: ``vdpbf16ps`` of AVX-512."""

    key = "tactix.c_bf16_attention@1"
    implements = c_heads.LAYERS
    source = "c"
    by_signature = True
    requires: tuple[str, ...] = ("avx512_bf16", *(f for f in HALVES.unit if "amx" not in f))

    def match(self, node: Node, device: DeviceProperties) -> Heads | Reject:
        if not device.has(*self.requires) or device.lanes != LANES:
            return Reject("it needs AVX-512 with bfloat16")
        return masked_heads(node, HALVES.dtypes)

    def variants(self, h: Heads, device: DeviceProperties) -> Sequence[Variant]:
        """Rows evened out over the queries."""
        found: dict[int, None] = {}
        for most in (14, 12):
            even = -(-h.s // -(-h.s // most)) if isinstance(h.s, int) and h.s > 0 else most
            found[even] = None
        return [Variant.of(rows=rows, vectors=2) for rows in found]

    def cost(self, h: Heads, variant: Variant, ctx: CompileContext) -> float | None:
        return _seconds(h, ctx, PAIRS / 2 / LANES * (h.d + h.e))

    def compile(self, h: Heads, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _PairsKernel(h, variant, ctx).artifact()


class HalfAmxAttentionTactic(HalfAttentionTactic):
    """bf16 on the AMX matrix unit; more than a few query rows."""

    key = "tactix.c_bf16_amx_attention@1"
    requires = HALVES.unit

    def match(self, node: Node, device: DeviceProperties) -> Heads | Reject:
        if not has_tiles(device, HALVES):
            return Reject("it needs AMX with bfloat16, and AVX-512")
        h = masked_heads(node, HALVES.dtypes)
        if isinstance(h, Heads) and isinstance(h.s, int) and h.s < FEWEST:
            return Reject("there are too few queries")
        return h

    def variants(self, h: Heads, device: DeviceProperties) -> Sequence[Variant]:
        return [Variant.of(rows=SIDE, vectors=SIDE // HIGH)]

    def cost(self, h: Heads, variant: Variant, ctx: CompileContext) -> float | None:
        deep, wide = (-(-n // SIDE) for n in (h.d, h.e))
        waste = _filled(h.s, ctx)
        each = (deep + wide) * PRODUCT * 4 / SIDE / SIDE
        return None if waste is None else _seconds(h, ctx, each * waste)

    def compile(self, h: Heads, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        return _TilesKernel(h, variant, ctx).artifact()


def _filled(s: Dim, ctx: CompileContext) -> float | None:
    """How many times the queries the rows of whole blocks are."""
    if not symbols(s) <= set(ctx.opt):
        return None
    rows = max(1, evaluate(s, ctx.opt))
    return -(-rows // SIDE) * SIDE / rows


def _seconds(h: Heads, ctx: CompileContext, each: float) -> float | None:
    """An estimate; ``each``: cycles of the products for a score."""
    size = prod(h.lead) * h.s * h.t
    if not symbols(size) <= set(ctx.opt):
        return None
    keys = evaluate(prod(h.lead) * h.t, ctx.opt) * (h.d + h.e) / 2 / LANES * PACK
    cycles = evaluate(size, ctx.opt) * (each + EXPONENT / LANES) + keys
    return 2 * START + cycles / CLOCK / max(1, ctx.threads)


class _HalfKernel(AttentionKernel):
    """Packs pairs, and takes the softmax of a block to weights of bfloat16."""

    depth_step = 2
    """Elements of a key that are multiplied at a time; heads are filled up with zeros."""

    @property
    def depth(self) -> int:
        """Elements of a packed key."""
        return -(-self.h.d // self.depth_step) * self.depth_step

    @property
    def key_words(self) -> int:
        """Floats that a packed key takes the room of."""
        return self.depth // 2

    @property
    def value_words(self) -> Dim:
        """Floats that a panel of packed values takes the room of."""
        return ceildiv(self.h.t, SIDE) * (SIDE // 2 * self.width)

    def artifact(self) -> KernelArtifact:
        """The kernel as data."""
        return self.with_workspace(
            prod(self.h.k.count) * self.key_panels * (self.key_words * self.width * 4),
            prod(self.h.v.count) * self.value_words * (self.panels * 4),
        )

    # -- packing ----------------------------------------------------------------------------------

    def _pack_keys(self) -> str:
        """Keys of every head as panels: (matrix, panel, pair, width, 2), zeros behind."""
        h, width, words = self.h, self.width, self.key_words
        panels, pitch = self.args.dim(self.key_panels), self.args.dim(h.k.pitch)
        turn = [
            "vi r[16];",
            loop(
                "n",
                "0",
                "16",
                f"r[n] = n < left - j ? tx_pairs_n(in + (j + n) * {pitch} + 2 * i, "
                f"{h.d} - 2 * i) : (vi){{0}};",
            ),
            "tx_transpose(r);",
            loop(
                "n",
                "0",
                f"({words} - i < 16 ? {words} - i : 16)",
                f"tx_store_i32(to + n * {width}, r[n]);",
            ),
        ]
        body = [
            f"const int64_t panel = u % {panels}, left = {self.args.dim(h.t)} - panel * {width};",
            (
                f"const uint16_t* in = {self._matrix(h.k, f'u / {panels}')} "
                f"+ panel * {width} * {pitch};"
            ),
            f"float* out = {self.keys} + u * {words * width};",
            loop(
                "i",
                "0",
                str(words),
                loop("j", "0", str(width), f"float* to = out + i * {width} + j;", *turn, step=16),
                step=16,
            ),
        ]
        total = self.args.dim(prod(h.k.count) * self.key_panels)
        return block("", split(total), loop("u", "lo", "hi", *body))

    def _pack_values(self) -> str:
        """Values of every head as panels: (matrix, panel, pair of keys, width, 2), zeros behind."""
        h, width, panel = self.h, self.width, self.args.dim(self.value_words)
        pairs: Dim = ceildiv(h.t, SIDE) * (SIDE // 2)
        count, pitch = self.args.dim(pairs), self.args.dim(h.v.pitch)
        place = f"to + col / {width} * {panel} + col % {width}"
        both = [
            f"const vi low = left > 0 ? tx_low_n(in + col, {h.e} - col) : (vi){{0}};",
            f"const vi high = left > 1 ? tx_low_n(in + {pitch} + col, {h.e} - col) : (vi){{0}};",
            f"tx_store_i32({place}, low | high << 16);",
        ]
        body = [
            f"const int64_t pair = u % {count}, left = {self.args.dim(h.t)} - 2 * pair;",
            f"const uint16_t* in = {self._matrix(h.v, f'u / {count}')} + 2 * pair * {pitch};",
            f"float* to = {self.values} + u / {count} * {self.panels} * {panel} + pair * {width};",
            loop("col", "0", str(self.panels * width), *both, step=LANES),
        ]
        total = self.args.dim(prod(h.v.count) * pairs)
        return block("", split(total), loop("u", "lo", "hi", *body))

    # -- softmax ----------------------------------------------------------------------------------

    def _softmax(self, rows: int) -> None:
        """Scores of a block to weights in ``w``, zeros after them; updates each row's maximum and
        sum, and scales what was summed before. Without a mask scores are in powers of 2.
        """
        each, masked = range(rows), self.h.mask >= 0
        s = [f"s + {r * KEYS}" for r in each]
        minus_inf = "-tx_splat(__builtin_inff())"
        factor = float_literal(self.h.scale * LOG2E)
        scaled = [
            self._masked(s[r], r, "") if masked else f"tx_load_f32({s[r]} + j) * {factor}"
            for r in each
        ]
        last = [self._masked(s[r], r, "keys - j") if masked else scaled[r] for r in each]
        keep = [f"tx_store_f32({s[r]} + j, x{r});" * masked for r in each]
        peak = [f"{keep[r]}\nmost{r} = tx_max_c(x{r}, most{r});".strip() for r in each]
        ends = [
            f"const vf x{r} = tx_select(tx_first(keys - j), {last[r]}, {minus_inf});" for r in each
        ]
        power = "(tx_load_f32({s} + j) - base{r}) * TX_LOG2E" if masked else "{x} - base{r}"
        powers = [power.format(s=s[r], r=r, x=scaled[r]) for r in each]
        weights = [f"vf p{r} = tx_weight_half({powers[r]});" for r in each]
        cut = [f"p{r} = tx_keep(p{r}, keys - j);" for r in each]
        puts = [f"tx_store_bf16(w + {r * KEYS} + j, p{r});\nsum{r} += p{r};" for r in each]
        exp = "tx_exp_low" if masked else "tx_exp2"
        body = [
            *(
                f"vf most{r} = {minus_inf}, sum{r} = tx_zero();\nfloat before{r} = 0.0f;"
                for r in each
            ),
            "int64_t j = 0;",
            block(
                f"for (; j + {LANES} <= keys; j += {LANES})",
                *(f"const vf x{r} = {scaled[r]};" for r in each),
                *peak,
            ),
            block("if (j < keys)", *ends, *peak),
            *(f"const float old{r} = top[{r}], peak{r} = tx_hmax(most{r});" for r in each),
            *(f"top[{r}] = old{r} > peak{r} ? old{r} : peak{r};" for r in each),
            *(
                f"const vf base{r} = tx_splat(top[{r}] == -__builtin_inff() ? 0.0f : top[{r}]);"
                for r in each
            ),
            block(f"for (j = 0; j + {LANES} <= keys; j += {LANES})", *weights, *puts),
            block("if (j < keys)", *weights, *cut, *puts, f"j += {LANES};"),
            block(
                f"for (; j % {SIDE}; j += {LANES})",
                *(f"tx_store_bf16(w + {r * KEYS} + j, tx_zero());" for r in each),
            ),
            block("if (pitch)", *self._rescale(rows, exp)),
            *(f"total[{r}] = before{r} + tx_hsum(sum{r});" for r in each),
        ]
        parameters = (
            f"float* s, int64_t keys, const {ctype(self.mask_dtype)}* mask, float* top, "
            "float* total, float* o, int64_t pitch, uint16_t* w"
        )
        self.functions.add(f"softmax{rows}", parameters, body)

    # -- units ------------------------------------------------------------------------------------

    def _unit(self, rows: int) -> None:
        """``count`` query rows of one head, ``rows`` at most, against all keys."""
        width, size = self.width, rows * self.width
        self._scores(RegisterTile(rows, self.tile.vectors, LANES))
        self._weigh(RegisterTile(rows, self.tile.vectors, LANES))
        panel = self.args.dim(self.value_words)
        at_k, at_v = f"k + (t + j) * {self.key_words}", f"v + p * {panel} + t / 2 * {width}"
        walk = [
            f"const int64_t keys = last - t < {KEYS} ? last - t : {KEYS};",
            loop("j", "0", "keys", f"TX_NAME(scores{rows})(a, q, {at_k}, s + j);", step=width),
            *self._rows_in_groups(rows),
            loop(
                "p",
                "0",
                str(self.panels),
                f"TX_NAME(weigh{rows})(a, w, {at_v}, keys, o + p * {size}, t == 0);",
            ),
        ]
        aligned = "__attribute__((aligned(64)))"
        body = [
            *self._queries(rows),
            f"float s[{rows * KEYS}] {aligned}, o[{self.panels * size}] {aligned};",
            f"uint16_t w[{rows * KEYS}] {aligned};",
            f"float top[{rows}], sum[{rows}];",
            loop("m", "0", "count", "top[m] = -__builtin_inff();", "sum[m] = 0.0f;"),
            *self._last_key(rows, "count"),
            loop("t", "0", "last", *walk, step=KEYS),
            *self._finish(RegisterTile(rows, self.tile.vectors, LANES), "count"),
        ]
        parameters = (
            "const uint16_t* rows, const float* k, const float* v, "
            f"const {ctype(self.mask_dtype)}* mask, int64_t row, int64_t column, int64_t count"
        )
        self.functions.add(f"unit{rows}", parameters, body)

    def _queries(self, rows: int) -> list[str]:
        """Declare ``q``: the rows, filled up with zeros, and zeros after them."""
        depth, d = self.depth, self.h.d
        row = [f"memcpy(q + m * {depth}, rows + m * {self.args.dim(self.h.q.pitch)}, {2 * d});"]
        if depth > d:
            row.append(f"memset(q + m * {depth} + {d}, 0, {2 * (depth - d)});")
        return [
            f"uint16_t q[{rows * depth}] __attribute__((aligned(64)));",
            loop("m", "0", "count", *row),
            f"memset(q + count * {depth}, 0, ({rows} - count) * {2 * depth});",
        ]

    def _rows_in_groups(self, rows: int) -> list[str]:
        """The softmax of all rows of a unit, some at a time."""
        strides, size = self.h.mask_strides, rows * self.width
        place = "mask + t" if strides[3] != 0 else "mask"
        if strides[2] != 0:
            place += f" + m * {self.args.dim(strides[2])}"
        call = (
            f"a, s + m * {KEYS}, keys, {place}, top + m, sum + m, o + m * {self.width}, "
            f"t ? {size} : 0, w + m * {KEYS}"
        )
        one = f"TX_NAME(softmax1)({call});"
        if rows < ROWS:
            return [loop("m", "0", "count", one)]
        many = f"TX_NAME(softmax{ROWS})({call});"
        return [
            "int64_t m = 0;",
            block(f"for (; m + {ROWS} <= count; m += {ROWS})", many),
            block("for (; m < count; m++)", one),
        ]

    def _groups(self, sizes: Sequence[int]) -> list[int]:
        return [1, ROWS] if max(sizes) >= ROWS else [1]

    def _head_values(self) -> str:
        return f"{self.panels} * {self.args.dim(self.value_words)}"

    def _count(self, size: int) -> str:
        return f", {size}"

    def _helpers(self) -> str:
        return ""


class _PairsKernel(_HalfKernel):
    """Register tiles of ``vdpbf16ps``."""

    preludes = byte.preludes()

    def _scores(self, tile: RegisterTile) -> None:
        """Products of the query rows with one panel of keys."""
        tile = replace(tile, chains=c_tile.chains_for(tile.rows, tile.vectors), pairs=True)
        words = self.key_words
        unroll = 2 if words % 2 == 0 else 1
        step = tile.steps(unroll, lambda m, u: f"tx_quad(q + {m * self.depth + 2 * u})", "k")
        move = f"q += {2 * unroll}; k += {unroll * self.width};"
        walk = loop("i", "0", str(words // unroll), step, move)
        self.functions.add(
            f"scores{tile.rows}",
            "const uint16_t* q, const float* k, float* s",
            [tile.zero(), walk, tile.join(), tile.save("s", KEYS)],
        )

    def _weigh(self, tile: RegisterTile) -> None:
        """Weights of a block of keys times one panel of values, added to what was summed before."""
        tile = replace(tile, pairs=True)
        step = tile.steps(1, lambda m, u: f"tx_quad(w + {m * KEYS + 2 * u})", "v")
        self.functions.add(
            f"weigh{tile.rows}",
            "const uint16_t* w, const float* v, int64_t keys, float* o, int first",
            [
                tile.zero(),
                block("if (!first)", tile.load("o")),
                loop("i", "0", "keys", step, f"w += 2; v += {self.width};", step=2),
                tile.save("o"),
            ],
        )


class _TilesKernel(_HalfKernel):
    """Blocks of two tiles of queries and two of keys, or of values, on the matrix unit."""

    preludes = byte.preludes()
    depth_step = SIDE

    def _sizes(self) -> tuple[int, ...]:
        return (SIDE,)

    def _scores(self, tile: RegisterTile) -> None:
        """Products of the query rows with one panel of keys."""
        deep = 2 * self.depth
        at = [(2 * t + c, t * HIGH * KEYS + c * HIGH) for t in range(2) for c in range(2)]
        self.functions.add(
            f"scores{SIDE}",
            "const uint16_t* q, const float* k, float* s",
            [
                "const uint8_t *x = (const uint8_t*)q, *w = (const uint8_t*)k;",
                *(f"_tile_zero({n});" for n, _ in at),
                loop(
                    "i",
                    "0",
                    str(deep),
                    *multiply("dpbf16ps", "x + i", f"x + {HIGH * deep} + i", deep),
                    step=DEEP,
                ),
                *(f"_tile_stored({n}, s + {place}, {4 * KEYS});" for n, place in at),
            ],
        )

    def _weigh(self, tile: RegisterTile) -> None:
        """Weights of a block of keys times one panel of values, added to what was summed before."""
        pitch = 2 * KEYS
        at = [(2 * t + c, t * HIGH * SIDE + c * HIGH) for t in range(2) for c in range(2)]
        self.functions.add(
            f"weigh{SIDE}",
            "const uint16_t* weights, const float* v, int64_t keys, float* o, int first",
            [
                "const uint8_t *x = (const uint8_t*)weights, *w = (const uint8_t*)v;",
                block("if (first)", *(f"_tile_zero({n});" for n, _ in at)),
                block("else", *(f"_tile_loadd({n}, o + {p}, {4 * SIDE});" for n, p in at)),
                loop(
                    "i",
                    "0",
                    "2 * keys",
                    *multiply("dpbf16ps", "x + i", f"x + {HIGH * pitch} + i", pitch),
                    step=DEEP,
                ),
                *tiles_to("o"),
            ],
        )

    def _rows_of(self, sizes: tuple[int, ...], call: Callable[[int], str]) -> str:
        return call(SIDE)

    def _count(self, size: int) -> str:
        return ", end - r"

    def _units(self, sizes: tuple[int, ...]) -> str:
        return "\n".join(["TX_NAME(begin)();", super()._units(sizes), "_tile_release();"])

    def _helpers(self) -> str:
        return text_of("amx.h")
