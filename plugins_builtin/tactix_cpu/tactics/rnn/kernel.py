"""The text of the kernels for LSTM, GRU and RNN; see c_rnn.

Of bfloat16, products are of pairs, summed in float32; gates and states are float32, and a state is
rounded where it is multiplied and where it is given away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tactix.base.dims import Dim, ceildiv
from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import CompileContext, Variant
from tactix_codegen.c import tile as c_tile
from tactix_codegen.c.text import Args, block, kernel, loop, split
from tactix_codegen.c.tile import GRID, Functions, RegisterTile, by_rows
from tactix_cpu.tactics.dot_tile import preludes
from tactix_cpu.tactics.rnn import amx as c_rnn_amx
from tactix_cpu.tactics.rnn.activations import Activations
from tactix_cpu.tactics.rnn.packing import RunTimePacking

if TYPE_CHECKING:
    from tactix_cpu.tactics.rnn.tactic import CpuRecurrence


FEW_ROWS = 2
"""Rows of a tile up to which all products of a step come first: gates of one row are a chain of
operations that wait for each other (two exponentials and divisions), which other blocks of units
fill. With more rows these fill it, and sums are used while they are in the first cache. No
measurement of it is on record.
"""
ACCUMULATORS = 24
"""Registers of 32 that sums of a pass may take: the others hold weights of every gate (up to 4),
the state, and what compilers need. No measurement of it is on record.
"""


def one_pass(gates: int, device: DeviceProperties) -> int:
    """Most rows whose accumulators for all gates fit into the registers."""
    if c_tile.registers(device) == 32:
        return ACCUMULATORS // gates
    return 2 if gates == 4 else 4  # 8 or 12 of 16


class RecurrentKernel:
    """Writes one kernel; subclasses give the step."""

    extra = 0
    """Buffers of the size of a state that a step needs, beside those of bfloat16: first states and
    float32 ones.
    """

    def __init__(self, r: CpuRecurrence, variant: Variant, ctx: CompileContext) -> None:
        self.r, self.ctx = r, ctx
        self.rows: int = variant.number("rows")
        self.half = r.dtype is DType.BF16
        self.group = 2 if self.half else 1
        self.element, self.right = ("uint16_t", "int32_t") if self.half else ("float", "float")
        self.code = r.dtype.value
        self.lanes = max(4, ctx.device.lanes)
        self.blocks = -(-r.hidden // self.lanes)
        self.width = r.gates * self.lanes
        self.args = Args(r.node)
        self.functions = Functions(self.args)
        self.gates = Activations(r.functions, len(r.functions) // r.directions, r.clip)
        self.steps, self.batch = self.args.dim(r.steps), self.args.dim(r.batch)
        self.pitch = self.blocks * self.width

    def artifact(self) -> KernelArtifact:
        r, args = self.r, self.args
        gates = r.directions * r.steps * r.batch * (self.pitch * 4)
        zeros = r.batch * (r.hidden * 4)
        self.g, self.zeros = args.workspace(0), args.workspace(gates)
        kinds = ["float", self.element] * self.half + ["float", self.element] * (self.extra > 0)
        kinds += ["float"] * self._keeps
        places = [gates + zeros + i * r.directions * zeros for i in range(len(kinds))]
        self.buffers = [args.workspace(p, c) for p, c in zip(places, kinds, strict=True)]
        self.packing = RunTimePacking(self, gates + zeros + len(kinds) * r.directions * zeros)
        tiled = c_rnn_amx.suits(r, self.ctx.device)
        if tiled:
            self.w = args.constant("w", c_rnn_amx.packed(self), r.dtype)
        else:
            self.w = self._weights("w", r.w, r.inputs)
        self._constants()
        args.phase(0)
        project, advance = c_rnn_amx.project(self) if tiled else self._project(), self._advance()
        packing = "\n".join(self.packing.statements)
        launches = [packing, project] if packing else [project]
        body = [block(f"if (phase == {i})", x, "return;") for i, x in enumerate(launches)]
        tiles = c_rnn_amx.functions(self) if tiled else ""
        helpers = f"{tiles}{GRID}{self.gates.text()}{self.functions.text()}"
        return kernel(
            args,
            [*body, advance],
            self.ctx,
            helpers=helpers,
            preludes=preludes(),
            workspace=self.packing.end,
            phases=len(launches) + 1,
        )

    def _constants(self) -> None:
        """Place what steps read beside the weights of inputs."""
        r = self.r
        self.u = self._weights("r", r.r, r.hidden)
        self.b = ""
        if r.bias >= 0 and self._known(r.bias):
            self.b = self.args.constant("b", self._packed_bias())
        elif r.bias >= 0:
            self.b = self.packing.vectors(r.bias, 2 * r.directions, r.gates)

    def _known(self, index: int) -> bool:
        return self.r.node.given[index].spec.is_const

    def _weights(self, name: str, index: int, depth: Dim) -> str:
        """A pointer to packed weights."""
        if self._known(index):
            return self.args.constant(name, self._packed(index), self.r.dtype)
        return self.packing.matrix(index, depth)

    def _packed(self, index: int) -> Packed:
        """Weights (direction, gate, unit, k) as (direction, block of units, step, gate, unit in
        block, k in step).

        All gates of a vector of units side by side: a tile then has everything that the new state
        of these units needs, and reads one run of memory.
        """
        r, group = self.r, self.group
        depth: Any = r.inputs if index == r.w else r.hidden  # constants have known sizes
        steps_of_k = -(-depth // group)
        pad = (
            (0, 0),
            (0, 0),
            (0, self.blocks * self.lanes - r.hidden),
            (0, steps_of_k * group - depth),
        )
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (r.directions, r.gates, r.hidden, depth)),
            ("pad", pad),
            ("reshape", (r.directions, r.gates, self.blocks, self.lanes, steps_of_k, group)),
            ("transpose", (0, 2, 4, 1, 3, 5)),
        )
        return Packed(index, steps)

    def _panel(self, weights: str, panel: str, depth: Dim) -> str:
        """Where the packed weights of a block of units begin."""
        size = self.args.dim(ceildiv(depth, self.group) * self.width)
        return f"(const {self.right}*){weights} + {panel} * {size}"

    def _packed_bias(self) -> Packed:
        """Both biases as (direction, of the input or of the state, block of units, gate, unit in
        block).
        """
        r = self.r
        pad = ((0, 0), (0, 0), (0, 0), (0, self.blocks * self.lanes - r.hidden))
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (r.directions, 2, r.gates, r.hidden)),
            ("pad", pad),
            ("reshape", (r.directions, 2, r.gates, self.blocks, self.lanes)),
            ("transpose", (0, 1, 3, 2, 4)),
            ("cast", "f32"),
        )
        return Packed(r.bias, steps)

    @staticmethod
    def _sizes(most: int, total: Dim) -> tuple[int, ...]:
        rest = c_tile.rest_sizes(most, total if isinstance(total, int) else None)
        return rest if isinstance(total, int) and total < most else (most, *rest)

    def _tile(self, rows: int, vectors: int) -> RegisterTile:
        return RegisterTile(
            rows, vectors, self.lanes, c_tile.chains_for(rows, vectors), pairs=self.half
        )

    def _sum(self, tile: RegisterTile, left: str, pitch: Dim, depth: Dim, right_pitch: int) -> str:
        """Sum over ``depth``; rows of ``left`` lie ``pitch`` apart, steps of w ``right_pitch``.
        Both are moved on.
        """
        group, unroll = self.group, max(2, tile.chains)

        def row(m: int) -> str:
            return str(m * pitch) if isinstance(pitch, int) else f"{m} * {self.args.dim(pitch)}"

        def element(m: int, u: int) -> str:
            at = str(m * pitch + u * group) if isinstance(pitch, int) else f"{row(m)} + {u * group}"
            return f"tx_quad({left} + {at})" if self.half else f"{left}[{at}]"

        def single(m: int, u: int) -> str:
            return f"tx_quad_n({left} + {row(m)}, 2)"

        def steps(count: int) -> str:
            move = f"{left} += {count * group}; w += {count * right_pitch};"
            return "\n".join([tile.steps(count, element, "w", str(right_pitch)), move])

        if not isinstance(depth, int):
            end = self.args.dim(depth)
            whole = loop("k", "0", f"{end} / {unroll}", steps(unroll))
            return "\n".join([whole, loop("k", "0", f"{end} % {unroll}", steps(1)), tile.join()])
        whole_steps = depth // group
        last = tile.steps(depth % group, single, "w", str(right_pitch))
        return "\n".join(
            [
                loop("k", "0", str(whole_steps // unroll), steps(unroll)),
                steps(whole_steps % unroll),
                last,
                tile.join(),
            ]
        )

    def _input_biases(self) -> str:
        """What each gate's input product starts from, by vector ``n``; see the subclasses."""
        size = self.blocks * self.width
        return f"tx_load_f32(bias + {{at}}) + tx_load_f32(bias + {size} + {{at}})"

    def _bias_of(self, gate: int) -> str:
        return self._input_biases().format(at=gate * self.lanes)

    def _project(self) -> str:
        """The first launch: ``g[direction][step, sample][block][gate][unit]``, biases included."""
        r, total = self.r, self.r.steps * self.r.batch
        most = one_pass(r.gates, self.ctx.device)
        sizes = self._sizes(most, total)
        for rows in sizes:
            tile = self._tile(rows, r.gates)
            stores = []
            for m, n in tile.places():
                value = f"{tile.acc(m, n)} + bias{n}" if self.b else tile.acc(m, n)
                stores.append(f"tx_store_f32(g + {m * self.pitch + n * self.lanes}, {value});")
            biases = (
                [f"const vf bias{n} = {self._bias_of(n)};" for n in range(r.gates)]
                if self.b
                else []
            )
            body = [
                tile.zero(),
                self._sum(tile, "x", r.inputs, r.inputs, self.width),
                *biases,
                *stores,
            ]
            parameters = (
                f"const {self.element}* x, const {self.right}* w, float* g"
                + ", const float* bias" * bool(self.b)
            )
            self.functions.add(f"in{rows}", parameters, body)
        count, tiles = self.args.dim(total), self.args.dim(ceildiv(total, most))

        def call(rows: int) -> str:
            x = f"{self.args.input(r.x)} + m * {self.args.dim(r.inputs)}"
            g = f"{self.g} + (d * {count} + m) * {self.pitch} + j * {self.width}"
            bias = f", {self.b} + (2 * d * {self.blocks} + j) * {self.width}" if self.b else ""
            return f"TX_NAME(in{rows})(a, {x}, {self._panel(self.w, 'p', r.inputs)}, {g}{bias});"

        head = f"const int64_t d = p / {self.blocks}, j = p % {self.blocks};"
        end = f"const int64_t end = t[1] * {most} < {count} ? t[1] * {most} : {count};"
        walk = loop(
            "p",
            "t[2]",
            "t[3]",
            head,
            f"int64_t m = t[0] * {most};",
            end,
            by_rows(sizes, "m", "end", call),
        )
        panels = r.directions * self.blocks
        return (
            f"{self.clear()}\nint64_t t[4];\nTX_NAME(grid)({tiles}, {panels}, tid, nt, t);\n{walk}"
        )

    def clear(self) -> str:
        """Make the zeros that a first state of float32 may be."""
        size = self.args.dim(self.r.batch * (self.r.hidden * 4))
        return "" if self.half else block("if (tid == 0)", f"memset({self.zeros}, 0, {size});")

    def _advance(self) -> str:
        """The second launch: all steps of some rows of the batch in one direction."""
        r, rows = self.r, self.rows
        sizes = self._sizes(rows, r.batch)
        for size in sizes:
            self._step(size)
        tiles = self.args.dim(ceildiv(r.batch, rows))
        body = [
            f"const int64_t d = q / {tiles}, from = q % {tiles} * {rows};",
            f"const int64_t end = from + {rows} < {self.batch} ? from + {rows} : {self.batch};",
            "int64_t m = from;",
            by_rows(sizes, "m", "end", self._all_steps),
        ]
        return f"{split(f'{r.directions} * {tiles}')}\n{loop('q', 'lo', 'hi', *body)}"

    def _all_steps(self, size: int) -> str:
        """Every step of ``size`` rows from ``m``."""
        r, hidden = self.r, self.r.hidden
        backward = "1" if r.reverse else "d == 1"
        state = f"(d * {self.batch} + m) * {hidden}"
        first = f"{self.args.input(r.h)} + {state}" if r.h >= 0 else f"{self.zeros} + m * {hidden}"
        if self.half or self._keeps:
            first = f"{self._kept} + {state}"
        g = f"{self.g} + ((d * {self.steps} + t) * {self.batch} + m) * {self.pitch}"
        walk = [
            f"const int64_t t = {backward} ? {self.steps} - 1 - i : i;",
            (
                f"{self.element}* y = {self.args.output(0)} + ((t * {r.directions} + d) "
                f"* {self.batch} + m) * {hidden};"
            ),
            f"TX_NAME(step{size})(a, h, {g}, y, d, m, i{', t' if r.lengths >= 0 else ''});",
            *(["h = y;"] if r.lengths < 0 else self._ends_of_samples(size)),
        ]
        last = f"memcpy({self.args.output(1)} + {state}, h, {size * hidden * r.dtype.itemsize});"
        start = [
            f"const int64_t at = {state};",
            *self._begin(size),
            f"const {self.element}* h = {first};",
        ]
        return block("", *start, loop("i", "0", self.steps, *walk), last, *self._end(size))

    # -- lengths of samples ------------------------------------------------------------------------

    @property
    def _keeps(self) -> bool:
        """Whether float32 states have a buffer, as results past a sample's end are no states."""
        return self.r.lengths >= 0 and not self.half

    @property
    def _kept(self) -> str:
        """Where states are kept: of bfloat16 the buffer of the first ones, which are read once."""
        return self.buffers[1] if self.half else self.buffers[-1]

    def _ends_of_samples(self, size: int) -> list[str]:
        """Statements that keep states of samples that go on, and clear results of the others."""
        row = f"{self.r.hidden * self.r.dtype.itemsize}"
        return [
            loop(
                "k",
                "0",
                str(size),
                f"{self.element}* const result = y + k * {self.r.hidden};",
                block(
                    f"if (t < {self._length('k')})",
                    f"memcpy({self._kept} + at + k * {self.r.hidden}, result, {row});",
                ),
                block("else", f"memset(result, 0, {row});"),
            )
        ]

    def _length(self, row: str) -> str:
        return f"{self.args.input(self.r.lengths)}[m + {row}]"

    def _goes_on(self) -> list[str]:
        """Statements that leave out row ``i`` past its sample's end."""
        return [f"if (t >= {self._length('i')}) continue;"] if self.r.lengths >= 0 else []

    # -- states ------------------------------------------------------------------------------------

    def _begin(self, size: int) -> list[str]:
        """Statements before the first step; states lie at ``at``."""
        own = self.half or self._keeps
        return self._given(self.r.h, size, self._kept, self.code) if own else []

    def _end(self, size: int) -> list[str]:
        """Statements after the last step."""
        return []

    def _given(self, index: int, size: int, target: str, code: str) -> list[str]:
        """Statements that take a first state, zero if it is not given, to ``target`` as elements of
        that type.
        """
        if index < 0:
            return [f"memset({target} + at, 0, {size * self.r.hidden} * sizeof(*{target}));"]
        return [
            self._converted(
                f"{self.args.input(index)} + at", self.r.states, f"{target} + at", code, size
            )
        ]

    def _converted(self, source: str, have: str, target: str, want: str, size: int) -> str:
        """Copy the states of ``size`` rows from elements of one type to those of another."""
        count = size * self.r.hidden
        left = f"const int64_t left = {count} - i < {self.lanes} ? {count} - i : {self.lanes};"
        move = f"tx_store_n_{want}({target} + i, tx_load_n_{have}({source} + i, left), left);"
        return loop("i", "0", str(count), left, move, step=self.lanes)

    @property
    def parameters(self) -> str:
        """Of the functions that ``_step`` adds."""
        step = ", int64_t t" if self.r.lengths >= 0 else ""
        states = f"const {self.element}* h, const float* g, {self.element}* y"
        return f"{states}, int64_t d, int64_t m, int64_t number{step}"

    def _step(self, size: int) -> None:
        """Add ``step{size}(h, g, y, d, m, number)``: one step of ``size`` rows."""
        raise NotImplementedError

    def _products(
        self, size: int, state: str, gates: tuple[int, int], finish: Sequence[str]
    ) -> str:
        """For each block of units: the state times the weights of those gates, saved to ``sums``;
        then more.

        Of few rows all products come first: what follows is then long chains for many blocks at a
        time. Steps take the blocks forward and backward in turn, so that a step begins with the
        weights that the one before had last: of an LSTM of 256 units they are 1 MiB, as large as a
        second cache, and taken round and round each would be gone when its turn comes.
        """
        r, (first, last) = self.r, gates
        width = (last - first) * self.lanes
        step = last - first if size <= one_pass(last - first, self.ctx.device) else 2
        passes = []
        for gate in range(first, last, step):
            tile = self._tile(size, min(step, last - gate))
            panel = (
                f"{self._panel(self.u, f'(d * {self.blocks} + j)', r.hidden)} + {gate * self.lanes}"
            )
            save = tile.save(f"sums + {(gate - first) * self.lanes}", width)
            product = self._sum(tile, "x", r.hidden, r.hidden, self.width)
            start = f"const {self.element}* x = {state};\nconst {self.right}* w = {panel};"
            passes.append(block("", start, tile.zero(), product, save))
        left = f"const int64_t left = {r.hidden} - j * {self.lanes};"
        rows, blocks = loop("i", "0", str(size), *finish), str(self.blocks)
        turn = f"const int64_t j = number & 1 ? {self.blocks - 1} - b : b;"
        if size > FEW_ROWS:
            head = f"float sums[{size * width}] __attribute__((aligned(64)));"
            return f"{head}\n{loop('b', '0', blocks, turn, left, *passes, rows)}"
        head = f"float all[{self.blocks * size * width}] __attribute__((aligned(64)));"
        here = f"float* sums = all + j * {size * width};"
        products = loop("b", "0", blocks, turn, here, *passes)
        return f"{head}\n{products}\n{loop('j', '0', blocks, here, left, rows)}"

    def _sum_of(self, place: int, count: int) -> str:
        """Saved sum number ``place`` of ``count``, in row ``i``."""
        return f"tx_load_f32(sums + i * {count * self.lanes} + {place * self.lanes})"

    def _input_of(self, gate: int) -> str:
        """Input product of a gate, in row ``i``."""
        return f"tx_load_f32(g + i * {self.pitch} + j * {self.width} + {gate * self.lanes})"

    def _gate(self, gate: int, place: int, count: int) -> str:
        """Both together."""
        return f"{self._sum_of(place, count)} + {self._input_of(gate)}"

    def _state(self, pointer: str) -> str:
        """This block's vector of row ``i`` of a state."""
        return f"tx_load_n_f32({pointer} + i * {self.r.hidden} + j * {self.lanes}, left)"

    def _store(self, pointer: str, value: str, code: str = "f32") -> str:
        return (
            f"tx_store_n_{code}({pointer} + i * {self.r.hidden} + j * {self.lanes}, {value}, left);"
        )


class LSTMKernel(RecurrentKernel):
    """Gates i, o, f, c. Cell states live in the last output, of bfloat16 in a buffer."""

    def _constants(self) -> None:
        super()._constants()
        at = self.r.peepholes
        if at >= 0 and self._known(at):
            self.p = self.args.constant("p", self._packed_peepholes())
        elif at >= 0:
            self.p = self.packing.vectors(at, 3 * self.r.directions, 1)

    @property
    def _cells(self) -> str:
        """Where cell states are kept in float32."""
        return self.buffers[0] if self.half else self.args.output(2)

    def _begin(self, size: int) -> list[str]:
        return [*super()._begin(size), *self._given(self.r.c, size, self._cells, "f32")]

    def _end(self, size: int) -> list[str]:
        last = f"{self.args.output(2)} + at"
        return (
            [self._converted(f"{self._cells} + at", "f32", last, self.code, size)]
            if self.half
            else []
        )

    def _step(self, size: int) -> None:
        i, o, f, c = (self._gate(k, k, 4) for k in range(4))
        past, apply = self._state("c"), self.gates.apply
        keep = apply(0, f + self._peephole(2, past))
        cell = [
            *self._goes_on(),
            f"const vf in = {apply(0, i + self._peephole(0, past))};",
            f"const vf keep = {'1.0f - in' if self.r.input_forget else keep};",
            f"const vf new = keep * {past} + in * {apply(1, c)};",
            self._store("c", "new"),
            f"const vf out = {apply(0, o + self._peephole(1, 'new'))};",
            self._store("y", f"out * {apply(2, 'new', clipped=False)}", self.code),
        ]
        body = [
            f"float* c = {self._cells} + (d * {self.batch} + m) * {self.r.hidden};",
            self._products(size, "h", (0, 4), cell),
        ]
        self.functions.add(f"step{size}", self.parameters, body)

    def _peephole(self, place: int, cell: str) -> str:
        """What a cell state adds to a gate; ``place``: of its weights, in the order i, o, f."""
        if self.r.peepholes < 0:
            return ""
        at = f"((d * 3 + {place}) * {self.blocks} + j) * {self.lanes}"
        return f" + tx_load_f32({self.p} + {at}) * {cell}"

    def _packed_peepholes(self) -> Packed:
        """Weights (direction, i o f, unit) with whole vectors of units."""
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (self.r.directions, 3, self.r.hidden)),
            ("pad", ((0, 0), (0, 0), (0, self.blocks * self.lanes - self.r.hidden))),
            ("cast", "f32"),
        )
        return Packed(self.r.peepholes, steps)


class RNNKernel(RecurrentKernel):
    """One sum, without gates."""

    def _step(self, size: int) -> None:
        value = self.gates.apply(0, self._gate(0, 0, 1))
        finish = [*self._goes_on(), self._store("y", value, self.code)]
        body = self._products(size, "h", (0, 1), finish)
        self.functions.add(f"step{size}", self.parameters, [body])


class GRUKernel(RecurrentKernel):
    """Gates z, r, h."""

    @property
    def extra(self) -> int:  # type: ignore[override]
        return 0 if self.r.linear_before_reset else 2

    def _bias_of(self, gate: int) -> str:
        if gate == 2 and self.r.linear_before_reset:
            return f"tx_load_f32(bias + {gate * self.lanes})"
        return super()._bias_of(gate)

    def _begin(self, size: int) -> list[str]:
        wide = self._given(self.r.h, size, self.buffers[0], "f32") if self.half else []
        return [*super()._begin(size), *wide]

    def _step(self, size: int) -> None:
        at = f"(d * {self.batch} + m) * {self.r.hidden}"
        past = f"float* past = {self.buffers[0]} + {at};" if self.half else "const float* past = h;"
        body = self._after(size) if self.r.linear_before_reset else self._before(size, at)
        self.functions.add(f"step{size}", self.parameters, [past, *body])

    def _new(self, z: str) -> list[str]:
        """The new state, in float32 beside bfloat16; of tanh, which no difference overflows, with
        one product.
        """
        past, bounded = self._state("past"), all(f.name == "tanh" for f in self.r.functions[1::2])
        value = f"n + {z} * ({past} - n)" if bounded else f"(1.0f - {z}) * n + {z} * {past}"
        stores = [self._store("past", "new")] if self.half else []
        return [f"const vf new = {value};", *stores, self._store("y", "new", self.code)]

    def _after(self, size: int) -> list[str]:
        """The reset gate acts on the product with the state."""
        inner = self._sum_of(2, 3)
        if self.b:
            at = f"((2 * d + 1) * {self.blocks} + j) * {self.width} + {2 * self.lanes}"
            inner = f"({inner} + tx_load_f32({self.b} + {at}))"
        cell = [
            *self._goes_on(),
            f"const vf z = {self.gates.apply(0, self._gate(0, 0, 3))};",
            f"const vf reset = {self.gates.apply(0, self._gate(1, 1, 3))};",
            f"const vf n = {self.gates.apply(1, f'{self._input_of(2)} + reset * {inner}')};",
            *self._new("z"),
        ]
        return [self._products(size, "h", (0, 3), cell)]

    def _before(self, size: int, at: str) -> list[str]:
        """The reset gate acts on the state: its product is a second pass."""
        first = [
            self._store("z", self.gates.apply(0, self._gate(0, 0, 2))),
            self._store(
                "rh",
                f"{self.gates.apply(0, self._gate(1, 1, 2))} * {self._state('past')}",
                self.code,
            ),
        ]
        second = [
            *self._goes_on(),
            f"const vf n = {self.gates.apply(1, self._gate(2, 0, 1))};",
            *self._new(self._state("z")),
        ]
        z, rh = self.buffers[2 * self.half :][:2]
        return [
            f"float* z = {z} + {at};\n{self.element}* rh = {rh} + {at};",
            block("", self._products(size, "h", (0, 2), first)),
            block("", self._products(size, "rh", (2, 3), second)),
        ]
