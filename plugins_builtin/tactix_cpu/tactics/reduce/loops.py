"""The loops of a reduction kernel: rows, columns, or single elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tactix.base import dims
from tactix.base.dims import Dim
from tactix.base.dtypes import DType
from tactix_codegen.c import scalar as c_scalar
from tactix_codegen.c import text as c_text
from tactix_codegen.c.epilogue import Epilogue, EpilogueOperand, stored_element
from tactix_codegen.c.prologue import Prologue
from tactix_codegen.c.space import Space
from tactix_codegen.c.text import Args, block, choice, comment, loop
from tactix_codegen.operations.reduce import REDUCED, ReductionOperator

_WAYS = 4
"""Independent accumulators: an addition takes about 4 cycles (x86-64 since Skylake; Agner Fog,
Instruction tables), and a row from the first cache gives about one vector to add a cycle."""
BESIDE = 256
"""Results of dtypes without vectors of their own that are summed side by side: 2 KiB of 64 bits,
which stay in the first cache.
"""
SHORT = 8
"""Elements of a row up to which a vector holds an element of neighbouring rows each: that takes as
many permutations as a row has elements, for each of them and all rows of the vector; joining the
lanes of a vector along the row takes tens of cycles for each row.
"""
COLUMN = """/* Element k of each of TX_LANES rows of n elements, one behind the other in r. */
TX_INLINE vf TX_NAME(column)(const vf* r, int n, int k) {
    vf v = r[0];
    _Pragma("GCC unroll 8") for (int j = 0; j < n; j++) {
#ifdef __clang__
        for (int l = 0; l < TX_LANES; l++) {
            const int at = l * n + k - j * TX_LANES;
            if (at >= 0 && at < TX_LANES) v[l] = r[j][at];
        }
#else
        vi places;
        _Pragma("GCC unroll 16") for (int l = 0; l < TX_LANES; l++) {
            const int at = l * n + k - j * TX_LANES;
            places[l] = at >= 0 && at < TX_LANES ? TX_LANES + at : l;
        }
        v = __builtin_shuffle(v, r[j], places);
#endif
    }
    return v;
}
"""
"""A helper of kernels that ``has_short_rows`` is true of."""
_LETTERS = {0: "X", 1: "Y"}
"""Of operands whose strides have names: what is reduced, and the result."""


@dataclass(frozen=True)
class Vectors:
    """``join``: how a vector ``b`` joins an accumulator ``a``; ``lanes``: a vector to a number."""

    join: str
    lanes: str


_VECTORS = {
    "sum": Vectors("{a} + {b}", "tx_hsum"),
    "prod": Vectors("{a} * {b}", "tx_hprod"),
    "max": Vectors("tx_max({a}, {b})", "tx_hmax"),
    "min": Vectors("tx_min({a}, {b})", "tx_hmin"),
}
"""By the operation's name."""


@dataclass
class CpuReductionKernel:
    """``space``: loops tagged kept or reduced; strides of input 0, the output, then the operands of
    ``order``.

    ``count``: elements per result. ``valid``: channels where loop 1 counts blocks, the last one
    partial;
    ``whole_blocks``: the output has such blocks too, and zero is stored in their unused lanes.
    ``before``: what every vector goes through first; the last strides are those of what it reads
    beside.
    """

    args: Args
    operation: ReductionOperator
    space: Space
    count: Dim
    epilogue: Epilogue
    order: Sequence[int]
    valid: Dim | None
    whole_blocks: bool
    before: Prologue | None = None

    def __post_init__(self) -> None:
        self.vector = _VECTORS[self.operation.name]
        self.source = self.args.node.given[0].spec.dtype
        self.x = self.args.input(0)
        self.outputs = [self.args.output(j) for j in range(len(self.args.node.outputs))]
        self.kept = [i for i, t in enumerate(self.space.tags) if t != REDUCED]
        self.reduced = [i for i, t in enumerate(self.space.tags) if t == REDUCED]

    @property
    def has_short_rows(self) -> bool:
        """Whether neighbouring results are of short rows that lie one behind the other."""
        if not self.kept or len(self.reduced) != 1 or self.reduced[0] < self.kept[-1]:
            return False
        (last,), steps = self.reduced, self.space.strides[0]
        length, beside = self.space.sizes[last], self.before.beside if self.before else ()
        short = isinstance(length, int) and 0 < length <= SHORT and not beside
        return short and steps[last] == 1 and steps[self.kept[-1]] == length

    def vectors(self, lanes: int) -> list[str]:
        """Body for floats up to 32 bits."""
        return (
            self._columns(lanes)
            if self.kept and self.kept[-1] == len(self.space.sizes) - 1
            else self._rows()
        )

    # Shared parts

    def _results(self, loops: Sequence[int]) -> str:
        """How many results, or groups of them, the threads share."""
        return self.args.size("RESULTS", dims.prod(self.space.sizes[i] for i in loops))

    def _length(self, i: int) -> str:
        """Of loop ``i``."""
        return self.args.size(f"SIZE{i}", self.space.sizes[i])

    def _stride(self, operand: int, i: int) -> str:
        """Elements of an operand from one step of loop ``i`` to the next."""
        stride = self.space.strides[operand][i]
        return (
            str(stride)
            if stride in (0, 1)
            else self.args.size(f"{_LETTERS[operand]}_STRIDE{i}", stride)
        )

    def _decode(self, flat: str, loops: Sequence[int]) -> str:
        return c_text.decode(flat, [f"i{i}" for i in loops], [self._length(i) for i in loops])

    def _offset(self, operand: int, loops: Sequence[int]) -> str:
        if operand not in _LETTERS:
            strides = self.space.strides[operand]
            return self.args.offset([strides[i] for i in loops], [f"i{i}" for i in loops])
        steps = {i: self._stride(operand, i) for i in loops}
        return self.args.sum(
            *(f"i{i}" if s == "1" else f"i{i} * {s}" for i, s in steps.items() if s != "0")
        )

    def _over_reduced(self, loops: Sequence[int], body: Sequence[str]) -> str:
        """``body`` inside loops over ``loops``."""
        text = "\n".join(body)
        for i in reversed(loops):
            text = loop(f"i{i}", "0", self._length(i), text)
        return text

    def _load(self, place: str, count: str = "", beside: str = "beside") -> str:
        """A vector of what is reduced; ``beside``: the vector that goes with it, if there is."""
        loaded = c_text.load(self.source, place, count)
        if self.before is None:
            return loaded
        return self.before.of(loaded, *[beside] * len(self.before.beside))

    def _beside(self, name: str, loops: Sequence[int], step: str, count: str) -> list[str]:
        """Declare what goes with the results ``step`` elements from here, where something does."""
        if self.before is None or not self.before.beside:
            return []
        base = self.args.sum(self.args.input(self.before.beside[0]), self._offset(-1, loops))
        return [f"const vf {name} = {self._vector(-1, self.source, base, step, count)};"]

    def _join(self, a: str, b: str) -> str:
        return self.vector.join.format(a=a, b=b)

    def _start(self) -> str:
        return f"tx_splat({c_scalar.float_literal(self.operation.start)})"

    def _operand(self, position: int, loops: Sequence[int], step: str, count: str) -> str:
        """Operand ``position`` of ``order`` as a vector, ``step`` elements along the last kept loop
        from here.
        """
        o = self.epilogue.operands[self.order[position]]
        base = self.args.sum(self.args.input(o.index), self._offset(2 + position, loops))
        return self._vector(2 + position, o.dtype, base, step, count)

    def _vector(self, operand: int, dtype: DType, base: str, step: str, count: str) -> str:
        """The vector of an operand from ``base`` on, ``step`` elements along the last kept loop."""
        if not self.kept or self.space.strides[operand][self.kept[-1]] == 0:
            return c_text.splat(dtype, base)
        return c_text.load(dtype, self.args.sum(base, step), count)

    def _finish(self, value: str, loops: Sequence[int], step: str, count: str) -> list[str]:
        """Mean, epilogue and stores of a vector of results."""
        out, acc = [], value
        if self.operation.mean:
            out.append(f"const vf mean = {value} / (float){self.args.size('COUNT', self.count)};")
            acc = "mean"
        positions = {self.epilogue.operands[v].index: k for k, v in enumerate(self.order)}
        code = self.epilogue.emit(
            [acc], lambda o: self._operand(positions[o.index], loops, step, count)
        )
        out += code.statements
        for y, name, t in zip(self.outputs, code.results, code.dtypes, strict=True):
            place = self.args.sum(y, self._offset(1, loops), step)
            out.append(self._store(t, place, name, count))
        return out

    def _store(self, dtype: DType, place: str, name: str, count: str) -> str:
        if not self.whole_blocks:
            return c_text.store(dtype, place, name, count)
        return c_text.store(dtype, place, c_text.keep(dtype, name, count))

    # The last axis is reduced

    def _rows(self) -> list[str]:
        outer = self.kept
        if not outer:
            return [block("if (tid == 0)", *self._row_group([], "1"))]
        k = outer[-1]
        size = self._length(k)
        about = (
            "results [lo, hi) are this thread's: up to TX_LANES neighbours at a time, "
            "which make a vector"
        )
        body = [
            self._decode("o", outer),
            f"const int64_t left = {size} - i{k} < hi - o ? {size} - i{k} : hi - o;",
            "const int64_t run = left < TX_LANES ? left : TX_LANES;",
            *self._row_group(outer, "run"),
            "o += run;",
        ]
        walk = block("for (int64_t o = lo; o < hi;)", *body)
        return [comment(about), c_text.split(self._results(outer), "TX_LANES"), walk]

    def _row_group(self, outer: Sequence[int], run: str) -> list[str]:
        """Up to TX_LANES results side by side: one row each, then the epilogue of them all."""
        if self.has_short_rows:
            return self._short_rows(outer, run)
        step = f"r * {self._stride(0, outer[-1])}" if outer else "0"
        place = self.args.sum(self.x, self._offset(0, outer), step)
        start = f"const {c_text.ctype(self.source)}* p = {place};"
        return [
            "float part[TX_LANES] = {0};",
            comment(f"all that is reduced to result r, in {_WAYS} sums of a vector each"),
            loop(
                "r",
                "0",
                run,
                *self._beside_row(outer),
                start,
                *self._row(),
                f"part[r] = {self.vector.lanes}(s0);",
            ),
            *self._finish("tx_load_f32(part)", outer, "0", run),
        ]

    def _short_rows(self, outer: Sequence[int], run: str) -> list[str]:
        """The same, of rows as they lie: their first elements make a vector, and so on."""
        length = self.space.sizes[self.reduced[0]]
        assert isinstance(length, int)
        starts = [c_text.times(j, "TX_LANES") for j in range(length)]
        whole = [f"r[{j}] = {self._load(self.args.sum('p', at))};" for j, at in enumerate(starts)]
        lefts = ["count", *(f"count - {at}" for at in starts[1:])]
        some = [
            f"if ({left} > 0) r[{j}] = {self._load(self.args.sum('p', at), left)};"
            for j, (at, left) in enumerate(zip(starts, lefts, strict=True))
        ]
        size = self._length(self.reduced[0])
        columns = [f"TX_NAME(column)(r, {size}, {k})" for k in range(length)]
        place = self.args.sum(self.x, self._offset(0, outer))
        return [
            comment(f"the rows of {length} elements as they lie"),
            f"const {c_text.ctype(self.source)}* p = {place};",
            f"const int64_t count = {run} * {size};",
            f"vf r[{size}] = {{0}};",
            choice(f"{run} == TX_LANES", whole, some),
            comment("an element of each row makes a vector"),
            f"vf s0 = {columns[0]};",
            *(f"s0 = {self._join('s0', v)};" for v in columns[1:]),
            *self._finish("s0", outer, "0", run),
        ]

    def _beside_row(self, outer: Sequence[int]) -> list[str]:
        """Declare what goes with result ``r``, where something does."""
        if self.before is None or not self.before.beside:
            return []
        steps = [self.space.strides[-1][i] for i in outer]
        indices = [*(f"i{i}" for i in outer[:-1]), *[f"(i{i} + r)" for i in outer[-1:]]]
        place = self.args.sum(
            self.args.input(self.before.beside[0]), self.args.offset(steps, indices)
        )
        return [f"const vf beside = {c_text.splat(self.source, place)};"]

    def _row(self) -> list[str]:
        """Reduce from ``p`` on into ``s0``."""
        *others, last = self.reduced
        length, ways = self._length(last), range(_WAYS)
        q = "q" if others else "p"
        places = [self.args.sum(f"{q} + i", c_text.times(w, "TX_LANES")) for w in ways]
        row = [
            *(
                [f"const {c_text.ctype(self.source)}* q = p + {self._offset(0, others)};"]
                if others
                else []
            ),
            "int64_t i = 0;",
            block(
                f"for (; i + {_WAYS} * TX_LANES <= {length}; i += {_WAYS} * TX_LANES)",
                *(f"s{w} = {self._join(f's{w}', self._load(at))};" for w, at in enumerate(places)),
            ),
            block(
                f"for (; i + TX_LANES <= {length}; i += TX_LANES)",
                f"s0 = {self._join('s0', self._load(places[0]))};",
            ),
            block(
                f"if (i < {length})",
                f"const vf rest = {self._load(places[0], f'{length} - i')};",
                f"s0 = tx_select(tx_first({length} - i), {self._join('s0', 'rest')}, s0);",
            ),
        ]
        heads = [f"vf {', '.join(f's{w} = {self._start()}' for w in ways)};"]
        tails = [f"s{w} = {self._join(f's{w}', f's{w + 2}')};" for w in (0, 1)] + [
            f"s0 = {self._join('s0', 's1')};"
        ]
        return [*heads, *([self._over_reduced(others, row)] if others else row), *tails]

    # The last axis is kept

    def _columns(self, lanes: int) -> list[str]:
        *outer, last = self.kept
        size = self.space.sizes[last]
        # Four vectors of results side by side hide the latency of adding to one; where there are
        # fewer, one vector is summed in as many ways.
        wide = 1 if isinstance(size, int) and size < 2 * lanes else _WAYS
        length = self.args.dim(size)
        chunks = dims.ceildiv(size, wide * lanes)
        about = f"chunks [lo, hi) of {wide} vectors of neighbouring results are this thread's"
        names = [f"i{i}" for i in outer] + ["chunk"]
        sizes = [self.args.dim(self.space.sizes[i]) for i in outer] + [self.args.dim(chunks)]
        body = [
            c_text.decode("o", names, sizes),
            f"const int64_t begin = chunk * {wide} * TX_LANES;",
        ]
        if self.valid is not None:
            body.append(f"const int64_t count = {self.args.dim(self.valid)} - i1 * TX_LANES;")
            body += self._column_group(outer, 1, "begin", "count")
        else:
            full = block(
                f"if (begin + {wide} * TX_LANES <= {length})",
                *self._column_group(outer, wide, "begin", ""),
            )
            rest = self._column_group(outer, 1, "j", f"{length} - j")
            body += [full, block("else", loop("j", "begin", length, *rest, step="TX_LANES"))]
        total = self.args.dim(dims.prod(self.space.sizes[i] for i in outer) * chunks)
        return [comment(about), c_text.split(total), loop("o", "lo", "hi", *body)]

    def _column_group(self, outer: Sequence[int], wide: int, begin: str, count: str) -> list[str]:
        """``wide`` vectors of results from ``begin`` on; one vector is summed in several ways."""
        ways = _WAYS // wide
        names = [[f"s{v}_{w}" for w in range(ways)] for v in range(wide)]
        out = [f"vf {n} = {self._start()};" for group in names for n in group]
        whole = self.valid is not None
        out.append(
            f"const {c_text.ctype(self.source)}* p = "
            f"{self.args.sum(self.x, self._offset(0, outer), begin)};"
        )
        for v in range(wide):
            step = self.args.sum(begin, c_text.times(v, "TX_LANES"))
            out += self._beside(f"beside{v}", outer, step, count)
        out += self._column_loops(names, "" if whole else count)
        for v, group in enumerate(names):
            out += [f"{group[0]} = {self._join(group[0], n)};" for n in group[1:]]
            place = f"{begin} + {v} * TX_LANES" if v else begin
            out.append(block("", *self._finish(group[0], outer, place, count)))
        return out

    def _column_loops(self, names: Sequence[Sequence[str]], count: str) -> list[str]:
        if not self.reduced:
            return self._column_step(names, "p", count, [0])
        *others, last = self.reduced
        stride, length = self._stride(0, last), self._length(last)
        ways = len(names[0])
        head = (
            f"const {c_text.ctype(self.source)}* q = {self.args.sum('p', self._offset(0, others))};"
        )
        main = block(
            f"for (; i + {ways} <= {length}; i += {ways}, q += {ways} * {stride})",
            *self._column_step(names, "q", count, range(ways), stride),
        )
        rest = block(
            f"for (; i < {length}; i++, q += {stride})",
            *self._column_step(names, "q", count, [0], stride),
        )
        steps = [head, "int64_t i = 0;", main, *([rest] if ways > 1 else [])]
        return [self._over_reduced(others, steps) if others else block("", *steps)]

    def _column_step(
        self,
        names: Sequence[Sequence[str]],
        base: str,
        count: str,
        ways: Sequence[int] | range,
        stride: str = "0",
    ) -> list[str]:
        out = []
        for v, group in enumerate(names):
            for w in ways:
                place = self.args.sum(base, c_text.times(w, stride), c_text.times(v, "TX_LANES"))
                out.append(
                    f"{group[w]} = {self._join(group[w], self._load(place, count, f'beside{v}'))};"
                )
        return out

    # Single elements

    def elements(self) -> list[str]:
        """Body for every dtype: one result after the other, or neighbours side by side, where the
        compiler makes the vectors.
        """
        beside = self.kept and self.kept[-1] == len(self.space.sizes) - 1
        return self._elements_beside() if beside else self._element_rows()

    def _element_rows(self) -> list[str]:
        wide = self._wide_type()
        acc = [f"{wide} s = {self._first_value(wide)};"]
        acc.append(self._over_reduced(self.reduced, self._element_step(wide, "s")) or "")
        body = [
            *([self._decode("o", self.kept)] if self.kept else []),
            *acc,
            *self._element_result("s"),
        ]
        about = comment("results [lo, hi) are this thread's, one after the other")
        return [about, c_text.split(self._results(self.kept)), loop("o", "lo", "hi", *body)]

    def _elements_beside(self) -> list[str]:
        *outer, last = self.kept
        wide, size, at = self._wide_type(), self._length(last), f"i{last}"
        parts = dims.ceildiv(self.space.sizes[last], BESIDE)
        total = dims.prod(self.space.sizes[i] for i in outer) * parts
        names = [*(f"i{i}" for i in outer), "chunk"]
        sizes = [*map(self._length, outer), self.args.size("CHUNKS", parts)]
        place = f"const int64_t {at} = begin + j;"
        step = loop("j", "0", "count", place, *self._element_step(wide, "s[j]"))
        body = [
            c_text.decode("o", names, sizes),
            f"const int64_t begin = chunk * {BESIDE};",
            f"const int64_t count = {size} - begin < {BESIDE} ? {size} - begin : {BESIDE};",
            f"{wide} s[{BESIDE}];",
            loop("j", "0", "count", f"s[j] = {self._first_value(wide)};"),
            self._over_reduced(self.reduced, [step]),
            loop("j", "0", "count", place, *self._element_result("s[j]")),
        ]
        about = f"chunks [lo, hi) of {BESIDE} neighbouring results are this thread's"
        return [
            comment(about),
            c_text.split(self.args.size("RESULTS", total)),
            loop("o", "lo", "hi", *body),
        ]

    def _element_step(self, wide: str, sum_: str) -> list[str]:
        """One element joins ``sum_``."""
        place = self.args.sum(self._offset(0, self.kept), self._offset(0, self.reduced))
        element = c_scalar.element(self.source, f"{self.x}[{place}]")
        join = self.operation.join.format(a=sum_, b="v")
        return [f"const {wide} v = ({wide}){element};", f"{sum_} = {join};"]

    def _wide_type(self) -> str:
        """What sums are kept in; those of 32 bits wrap alike in 64."""
        if self.source.is_float or self.operation.mean:
            return "double"
        if self.operation.name in ("max", "min") or self.source.bits >= 32:
            return c_text.ctype(self.source)
        return "int64_t" if self.source.is_signed_int else "uint64_t"

    def _first_value(self, wide: str) -> str:
        if wide == "double":
            return c_scalar.float_literal(self.operation.start, double=True)
        return c_scalar.int_literal(self.operation.start, self.source, saturate=True)

    def _element_result(self, sum_: str) -> list[str]:
        kind = c_text.ctype(c_scalar.WIDE.get(self.source, self.source))
        mean = f"{sum_} / (double){self.args.size('COUNT', self.count)}"
        value = mean if self.operation.mean else sum_
        positions = {self.epilogue.operands[v].index: k for k, v in enumerate(self.order)}

        def where(o: EpilogueOperand) -> str:
            return self._offset(2 + positions[o.index], self.kept)

        at = self._offset(1, self.kept)
        finished = stored_element(self.args, self.epilogue, "acc", where, at)
        return [f"const {kind} acc = ({kind})({value});", *finished]
