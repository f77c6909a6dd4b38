"""One register tile of a matrix product as C: rows times vectors of accumulators, and what becomes
of them.

A step of depth k takes ``vectors`` vectors of the packed right side, and one element of the left
side per row: ``acc[row][vector] += splat(left(row, k)) * right[k][vector]``. Accumulators are named
variables, so that they stay in registers. The right side lies in panels of ``width`` columns:
``[panel][k][width]``, zero past the last column.

    tile = RegisterTile(8, 3, lanes=16)
    step = tile.steps(1, lambda m, u: f"x[{m} * lda + k]")
    sums = loop("k", "0", "depth", step, f"w += {tile.width};")
    body = [tile.zero(), sums, *finish(tile, epi, site)]

``finish`` applies a node's epilogue and stores; a ``TileSite`` knows where things lie.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix.contracts import expr
from tactix.contracts.device import DeviceProperties
from tactix.contracts.expr import Scalar
from tactix.contracts.tactic import Variant
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand
from tactix_codegen.c.text import Args, block, choice, comment, ctype, load, loop, times

LIGHT = frozenset(
    {
        "var",
        "const",
        "add",
        "sub",
        "mul",
        "min",
        "max",
        "neg",
        "abs",
        "select",
        "lt",
        "le",
        "eq",
        "cast",
    }
)
LIGHT_NODES = 10
"""Operations of an epilogue that is light: its text is repeated for up to 28 accumulators."""
FAR = 1.13
"""Options whose estimate is this much above the best are not measured."""
LATENCY = 8
"""Independent accumulators that keep two FMA units of latency 4 busy."""

FEW_LANES, FEW_REGISTERS = 8, 16
"""Floats of a vector of AVX2, and its registers."""

Element = Callable[[int, int], "str | None"]
"""Row and step to the C expression of the left side's element; None where it is zero."""


@dataclass(frozen=True)
class RegisterTile:
    """``chains``: sets of accumulators that successive steps take in turn, where one set is too few
    to hide latency.

    ``near`` and ``far``: how many steps ahead the right side is asked for into the first and second
    cache; 0: not.
    ``pairs``: a step is of two bfloat16 in 32 bits on both sides; elements are then vectors of such
    pairs.
    ``keeps``: accumulators keep their registers where there are 16. Products gain by it;
    convolutions of several taps at times lose.
    """

    rows: int
    vectors: int
    lanes: int
    chains: int = 1
    near: int = 0
    far: int = 0
    pairs: bool = False
    keeps: bool = False

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes

    @property
    def name(self) -> str:
        return f"{self.rows}x{self.vectors}"

    def acc(self, row: int, vector: int, chain: int = 0) -> str:
        """The C name of an accumulator."""
        return f"s{row}_{vector}" if chain == 0 else f"s{row}_{vector}_{chain}"

    def places(self) -> list[tuple[int, int]]:
        """Every (row, vector)."""
        return [(m, n) for m in range(self.rows) for n in range(self.vectors)]

    def zero(self) -> str:
        """Declare the accumulators, those of a row on a line."""
        sets = [
            [self.acc(m, n, c) for n in range(self.vectors)]
            for c in range(self.chains)
            for m in range(self.rows)
        ]
        if not self._is_kept:
            return "\n".join(f"vf {', '.join(f'{x} = tx_zero()' for x in row)};" for row in sets)
        number = itertools.count(FEW_REGISTERS - len(sets) * self.vectors)
        return "\n".join(
            f"register vf {', '.join(f'{x} TX_KEPT({next(number)}) = tx_zero()' for x in row)};"
            for row in sets
        )

    @property
    def _is_kept(self) -> bool:
        """Whether each accumulator has a register of its own all along, beside those of the right
        side and one more: for GCC moves accumulators between registers, and where there are 16 it
        then runs out of them (products of 6 x 2 and 4 x 3 vectors on a Zen 3: 70 to 76 % of its
        peak in place of 86 to 90 with ``-O1``; with ``-O3`` 6 x 2 at 82 in place of 85).
        """
        count = self.rows * self.vectors * self.chains
        is_few = self.keeps and self.lanes == FEW_LANES and not self.pairs
        return is_few and count + self.vectors < FEW_REGISTERS

    def load(self, pointer: str) -> str:
        """Continue from the partial sums at ``pointer``: rows of ``width`` floats."""
        at = {(m, n): Args.sum(pointer, str(self.at(m, n))) for m, n in self.places()}
        return "\n".join(
            f"{self.acc(m, n)} = tx_load_f32({place});" for (m, n), place in at.items()
        )

    def save(self, pointer: str, pitch: int = 0) -> str:
        """Leave the sums at ``pointer``: rows of ``pitch`` floats, the tile's width by default."""
        at = {(m, n): Args.sum(pointer, str(self.at(m, n, pitch))) for m, n in self.places()}
        return "\n".join(
            f"tx_store_f32({place}, {self.acc(m, n)});" for (m, n), place in at.items()
        )

    def at(self, row: int, vector: int, pitch: int = 0) -> int:
        """Offset in floats among saved sums."""
        return row * (pitch or self.width) + vector * self.lanes

    def steps(self, count: int, element: Element, right: str = "w", pitch: str = "") -> str:
        """``count`` steps of depth; ``right`` points to their vectors, ``pitch`` floats (the width)
        apart.
        """
        return "\n".join(self._step(u, element, right, pitch) for u in range(count))

    def _step(self, u: int, element: Element, right: str, pitch: str) -> str:
        rows = [(m, e) for m in range(self.rows) if (e := element(m, u)) is not None]
        if not rows:
            return ""
        start = times(u, pitch) if pitch else str(u * self.width)
        places = [Args.sum(right, start, str(n * self.lanes)) for n in range(self.vectors)]
        kind, load = ("vi", "tx_load_i32") if self.pairs else ("vf", "tx_load_f32")
        lines = [f"const {kind} b{n} = {load}({p});" for n, p in enumerate(places)]
        for steps, level in ((self.near, 3), (self.far, 2)):
            lines += [
                f"__builtin_prefetch({p} + {steps * self.width}, 0, {level});"
                for p in places
                if steps
            ]
        for m, e in rows:
            sums = " ".join(
                self._add(self.acc(m, n, u % self.chains), n) for n in range(self.vectors)
            )
            lines.append(f"{{ const {kind} v = {e if self.pairs else f'tx_splat({e})'}; {sums} }}")
        return block("", *lines)

    def _add(self, acc: str, vector: int) -> str:
        if self.pairs:
            return f"{acc} = tx_dot2({acc}, v, b{vector});"
        return (
            f"{acc} = tx_fma({acc}, v, b{vector});" if self._is_kept else f"{acc} += v * b{vector};"
        )

    def join(self) -> str:
        """Add the chains up."""
        pairs = [(m, n, c) for c in range(1, self.chains) for m, n in self.places()]
        return "\n".join(f"{self.acc(m, n)} += {self.acc(m, n, c)};" for m, n, c in pairs)


class TileSite(Protocol):
    """Where a tile's results and epilogue operands lie."""

    @property
    def left(self) -> str:
        """C expression of the columns from the tile's first to the last there is; empty if tiles
        are always full.
        """

    def place(self, operand: EpilogueOperand, row: str, vector: int, count: str) -> str:
        """The operand's vector for a row of the tile; with ``count``, only so many lanes may be
        read.
        """

    def put(self, output: int, dtype: DType, value: str, row: str, vector: int, count: str) -> str:
        """The statement that stores a result."""


def finish(tile: RegisterTile, epi: Epilogue, site: TileSite) -> list[str]:
    """Epilogue and store: in registers if it is light, else row by row through memory, which keeps
    the code small.
    """
    full = (
        _in_registers(tile, epi, site)
        if is_light(epi.results)
        else _by_rows(tile, epi, site, False)
    )
    if not site.left:
        return full
    rest = _by_rows(tile, epi, site, True)
    return [
        choice(
            f"{site.left} >= {tile.width}",
            full,
            [comment("fewer columns are left than a tile has"), *rest],
        )
    ]


def is_light(results: Sequence[Scalar], most: int = LIGHT_NODES) -> bool:
    """Whether it is at most so many cheap operations, leaves counted: by default so few that they
    may be repeated for every accumulator.
    """
    nodes = expr.walk(results)
    return len(nodes) <= most and all(n.op in LIGHT for n in nodes)


def _in_registers(tile: RegisterTile, epi: Epilogue, site: TileSite) -> list[str]:
    about = comment("what follows the sum z, and the store, for every accumulator")
    return [about, *(_one(epi, site, tile.acc(m, n), str(m), n, "") for m, n in tile.places())]


def _by_rows(tile: RegisterTile, epi: Epilogue, site: TileSite, guarded: bool) -> list[str]:
    count = tile.rows * tile.width
    head = [f"float sums[{count}] __attribute__((aligned(64)));", tile.save("sums")]
    return [*head, finish_saved(tile, epi, site, "sums", guarded)]


def finish_saved(
    tile: RegisterTile,
    epi: Epilogue,
    site: TileSite,
    sums: str,
    guarded: bool,
    scale: str = "",
    rows: str = "",
) -> str:
    """Epilogue and store of saved sums, row by row.

    ``guarded``: only columns that there are. ``scale``: C text after each sum, such as ``* by[m]``.
    ``rows``: C text of how many rows there are, all of them if not given.
    """
    body = []
    for n in range(tile.vectors):
        at = n * tile.lanes
        value = f"tx_load_f32({Args.sum(sums, f'm * {tile.width}', str(at))}){scale}"
        text = _one(epi, site, value, "m", n, f"{site.left}{f' - {at}' * bool(at)}" * guarded)
        body.append(block(f"if ({site.left} > {at})", text) if guarded else text)
    return loop("m", "0", rows or str(tile.rows), *body)


def _one(epi: Epilogue, site: TileSite, value: str, row: str, vector: int, count: str) -> str:
    code = epi.emit(["z"], lambda operand: site.place(operand, row, vector, count))
    puts = [
        site.put(j, dtype, result, row, vector, count)
        for j, (result, dtype) in enumerate(zip(code.results, code.dtypes, strict=True))
    ]
    return block("", f"const vf z = {value};", *code.statements, *puts)


def registers(device: DeviceProperties) -> int:
    """Vector registers of the instruction set that the lanes belong to."""
    return 32 if device.lanes == 16 or device.has("neon") else 16


def shapes(device: DeviceProperties) -> tuple[tuple[int, int], ...]:
    """Tiles (rows, vectors) that fill the registers, best first."""
    return (
        ((8, 3), (14, 2), (6, 4), (28, 1)) if registers(device) == 32 else ((6, 2), (4, 3), (12, 1))
    )


def chains_for(rows: int, vectors: int, most: int = 4) -> int:
    """Sets of accumulators that hide the latency of a small tile."""
    chains = 1
    while chains < most and rows * vectors * chains < LATENCY:
        chains *= 2
    return chains


def step_cycles(rows: int, vectors: int, chains: int = 1) -> float:
    """Cycles of one step of k: the most of what bounds it, and some for what the second cache must
    give.

    Two FMA a cycle; nearly two loads, of which each row (to all lanes) and each vector takes one; 4
    cycles from an FMA to the next on the same accumulator, of which ``chains`` take turns; half a
    cycle for the loop. Loads and FMA of x86-64 with AVX2 or AVX-512 (Agner Fog, Instruction
    tables).
    """
    return (
        max(rows * vectors / 2, 0.55 * (rows + vectors), 4 / chains, 0.5)
        + 0.15 * vectors
        + 0.02 * rows
    )


def best(
    options: Iterable[Variant], cycles: Callable[[Variant], float], count: int
) -> list[Variant]:
    """At most ``count`` options in order of their cycles, none far beyond the first: measuring is
    for near ones.
    """
    ranked = sorted(((cycles(v), i, v) for i, v in enumerate(options)), key=lambda t: t[:2])
    return [v for c, _, v in ranked[:count] if c <= ranked[0][0] * FAR]


def rest_sizes(most: int, total: int | None) -> tuple[int, ...]:
    """Row counts of the smaller tiles that take what is left over by tiles of ``most`` rows.

    One exact size where ``total`` is known, else powers of two.
    """
    if total is not None:
        return (total % most,) if total % most else ()
    return tuple(s for s in (16, 8, 4, 2, 1) if s < most)


def by_rows(sizes: Sequence[int], row: str, end: str, call: Callable[[int], str]) -> str:
    """Statements that cover rows [row, end), a variable and an expression, greedily.

    ``call(size)``: the statement that runs a tile of that size at ``row``.
    """
    if len(sizes) == 1:
        return block(f"while ({row} < {end})", call(sizes[0]), f"{row} += {sizes[0]};")
    text = ""
    for i, s in enumerate(sizes):
        head = "else" if i == len(sizes) - 1 else f"{'else ' * (i > 0)}if ({end} - {row} >= {s})"
        text += f"{' ' * (i > 0)}{block(head, call(s), f'{row} += {s};')}"
    return block(f"while ({row} < {end})", text)


def transpose(lanes: int, dtype: DType = DType.FP32) -> str:
    """The function ``TX_NAME(turn)(in, pitch, rows, columns, out, out_pitch)``: a matrix of floats,
    of ``dtype`` in memory, turned.

    It has at most ``lanes`` rows and columns; ``columns`` vectors are written, with zeros past
    ``rows``.
    """
    names = [f"r{i}" for i in range(lanes)]
    lines = [f"vf {', '.join(names)};"]
    full = "\n".join(f"{r} = {load(dtype, f'in + {i} * pitch')};" for i, r in enumerate(names))
    some = [load(dtype, f"in + {i} * pitch", "columns") for i in range(lanes)]
    part = "\n".join(f"{r} = rows > {i} ? {some[i]} : tx_zero();" for i, r in enumerate(names))
    lines += [block(f"if (rows >= {lanes} && columns >= {lanes})", full), block("else", part)]
    half = lanes // 2
    while half:
        for i in (i for i in range(lanes) if not i & half):
            lines.append(_exchange(f"r{i}", f"r{i + half}", half, lanes))
        half //= 2
    stores = [
        f"if (columns > {i}) tx_store_f32(out + {i} * out_pitch, {r});" for i, r in enumerate(names)
    ]
    head = (
        f"const {ctype(dtype)}* in, int64_t pitch, int64_t rows, int64_t columns, "
        "float* out, int64_t out_pitch"
    )
    return f"{SHUFFLE}{block(f'TX_RARE void TX_NAME(turn)({head})', *lines, *stores)}\n"


def _exchange(a: str, b: str, half: int, lanes: int) -> str:
    """One step of a transposition: upper halves of the groups of ``a`` change places with lower
    halves of ``b``'s.
    """
    low = ", ".join(str(j if not j & half else lanes + j - half) for j in range(lanes))
    high = ", ".join(str(j + half if not j & half else lanes + j) for j in range(lanes))
    exchanged = [
        f"const vf u = TX_SHUFFLE({a}, {b}, {low});",
        f"const vf v = TX_SHUFFLE({a}, {b}, {high});",
    ]
    return block("", *exchanged, f"{a} = u;", f"{b} = v;")


SHUFFLE = """#ifndef TX_SHUFFLE
#if defined(__clang__) || __GNUC__ >= 12
#define TX_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TX_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif
#endif
"""


def grid(beside: int = 0) -> str:
    """The C function ``TX_NAME(grid)``. ``beside``: what every thread does for its rows before it
    takes columns, as a number of columns.
    """
    more = f" + {beside}" if beside else ""
    work = f"((rows + nt / c - 1) / (nt / c)) * ((columns + c - 1) / c{more})"
    return f"""/* This thread's rectangle of a grid of units: \
the largest is as small as can be; on a tie columns are cut. */
TX_INLINE void TX_NAME(grid)(int64_t rows, int64_t columns, int tid, int nt, int64_t* part) {{
    int cut = 1;
    int64_t least = INT64_MAX;
    for (int c = nt; c >= 1; c--) {{
        const int64_t work = {work};
        if (nt % c == 0 && work < least) {{
            least = work;
            cut = c;
        }}
    }}
    tx_split(rows, 1, tid / cut, nt / cut, part, part + 1);
    tx_split(columns, 1, tid % cut, cut, part + 2, part + 3);
}}
"""


GRID = grid()
"""Of threads that have nothing else to do."""


class Functions:
    """C functions of one kernel that see the kernel's arguments by name; written out once all
    arguments are known.
    """

    def __init__(self, args: Args) -> None:
        self.args = args
        self._made: dict[str, tuple[str, list[str], str]] = {}

    def add(self, name: str, parameters: str, body: Sequence[str], about: str = "") -> None:
        """``TX_NAME(name)(a, parameters)``: never inlined, so that each gets all registers.

        ``about``: what it does, for the comment above it.
        """
        self._made[name] = (parameters, list(body), about)

    def text(self) -> str:
        """All functions, in the order in which they were added."""
        return "\n".join(self._function(name) for name in self._made)

    def _function(self, name: str) -> str:
        parameters, body, about = self._made[name]
        head = f"TX_RARE void TX_NAME({name})(const int64_t* a, {parameters})"
        function = block(head, *self.args.declarations("\n".join(body)), *body)
        return f"{comment(about)}\n{function}" if about else function


def flat(index: str, sizes: Sequence[str], strides: Sequence[Dim], args: Args) -> str:
    """The offset of the row-major ``index`` over ``sizes`` in a tensor with those strides, as C;
    ``0`` if all are 0.
    """
    if all(s == 0 for s in strides):
        return "0"
    terms, inner = [], ""
    for size, stride in reversed(list(zip(sizes, strides, strict=True))):
        quotient = f"({index}) / ({inner})" if inner else f"({index})"
        if stride != 0:
            terms.append(f"{quotient} % {size} * {args.dim(stride)}")
        inner = f"{inner} * {size}" if inner else size
    return " + ".join(terms)


def row_offset(index: str, sizes: Sequence[Dim], strides: Sequence[Dim], args: Args) -> str:
    """As ``flat``, with one product where the strides are one stride over the flattened sizes."""
    if any(s != 0 for s in strides) and is_row_major(sizes, strides):
        step = next(s for d, s in reversed(list(zip(sizes, strides, strict=True))) if d != 1)
        return f"{index} * {args.dim(step)}"
    return flat(index, [args.dim(d) for d in sizes], strides, args)


def is_row_major(sizes: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Whether the strides are those of one stride over the flattened sizes."""
    kept = [(d, s) for d, s in zip(sizes, strides, strict=True) if d != 1]
    return all(a[1] == b[0] * b[1] for a, b in itertools.pairwise(kept))


def mapped(epi: Epilogue, change: Callable[[Scalar], Scalar]) -> Epilogue:
    """The epilogue after ``change(accumulator)``."""
    by = {v: change(expr.var(v)) for v in epi.accumulators}
    return replace(epi, results=tuple(expr.replace_vars(r, by) for r in epi.results))


def with_term(
    epi: Epilogue, term: EpilogueOperand, combine: Callable[[Scalar, Scalar], Scalar]
) -> Epilogue:
    """The epilogue after ``combine(accumulator, term)``: for biases that the anchor takes."""
    index = len(epi.dtypes)
    new = mapped(epi, lambda y: combine(y, expr.var(index)))
    return replace(new, dtypes=(*epi.dtypes, term.dtype), operands={**epi.operands, index: term})
