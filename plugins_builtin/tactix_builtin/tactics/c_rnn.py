"""LSTM and GRU: one product of all steps with the input weights, then the steps one after the other.

Weights are packed so that a panel holds all gates of one vector of hidden units; a tile then has everything that the
new state of these units needs. The first launch is shared by all threads. The second is split by direction and by rows
of the batch, since a step needs the whole state of the step before: one direction of one sequence is one thread's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tactix.contracts.artifact import KernelArtifact, Packed
from tactix.contracts.device import DeviceProperties
from tactix.contracts.graph import Node
from tactix.contracts.tactic import CompileContext, Reject, Tactic, Variant
from tactix.words.dims import Dim, ceildiv, evaluate, symbols
from tactix.words.dtypes import DType
from tactix_builtin.tactics import c_tile
from tactix_builtin.tactics.c_text import Args, block, kernel, loop, split
from tactix_builtin.tactics.c_tile import GRID, Functions, Tile, by_rows

DEFAULTS = {"tactix.LSTM@1": ("sigmoid", "tanh", "tanh"), "tactix.GRU@1": ("sigmoid", "tanh")}


@dataclass(frozen=True)
class Recurrence:
    """x: (steps, batch, inputs), directions and hidden units; -1 for an absent bias or state."""

    x: int
    w: int
    r: int
    bias: int
    h: int
    c: int
    steps: Dim
    batch: Dim
    inputs: int
    hidden: int
    directions: int
    gates: int
    reverse: bool
    linear_before_reset: bool


def recurrence(node: Node) -> Recurrence | Reject:
    """What an LSTM or GRU node computes, or why this kernel cannot take it."""
    key, a = node.layer.key, node.attrs
    if node.is_fused:
        return Reject("an epilogue is not fused by this tactic")
    ids = (*node.body.nodes[0].inputs, *(-1,) * 8)
    specs = [node.given[i].spec if i >= 0 else None for i in ids]
    x, w, r = specs[:3]
    assert x is not None
    assert w is not None
    assert r is not None
    names = tuple(n.lower() for n in a.activations)
    if names not in ((), DEFAULTS[key] * a.directions):
        return Reject("other activations than the default ones")
    if a.layout or a.clip or getattr(a, "input_forget", False):
        return Reject("layout 1, clip and input_forget are not done by this tactic")
    if specs[4] is not None or specs[7] is not None:
        return Reject("sequence_lens and peepholes are not done by this tactic")
    if any(s is not None and s.dtype is not DType.FP32 for s in specs):
        return Reject("this kernel takes float32")
    if not all(s is None or s.is_const for s in specs[1:4]) or any(d == 0 for d in (*x.shape, *w.shape)):
        return Reject("the weights are not constant, or a tensor is empty")
    hidden = int(r.const.shape[2])
    return Recurrence(
        ids[0], ids[1], ids[2], ids[3], ids[5], ids[6], x.shape[0], x.shape[1], int(w.const.shape[2]), hidden,
        a.directions, 4 if key.startswith("tactix.LSTM@") else 3, a.direction == "reverse",
        bool(getattr(a, "linear_before_reset", False)),
    )  # fmt: skip


def tactics() -> list[Tactic]:
    """The tactics of this module."""
    return [RecurrentTactic()]


class RecurrentTactic(Tactic):
    """float32, default activations, constant weights, layout 0, all directions, initial states."""

    key = "tactix.c_rnn@1"
    implements = ("tactix.LSTM@1", "tactix.GRU@1")
    source = "c"
    native = True

    def variants(self, node: Node, device: DeviceProperties) -> Sequence[Variant] | Reject:
        r = recurrence(node)
        if isinstance(r, Reject):
            return r
        most = one_pass(r.gates, device) if r.gates == 3 else 12 if c_tile.registers(device) == 32 else 6
        return [Variant.of(rows=-(-r.batch // -(-r.batch // most)) if isinstance(r.batch, int) else most)]

    def cost(self, node: Node, variant: Variant, ctx: CompileContext) -> float | None:
        r = recurrence(node)
        assert isinstance(r, Recurrence)
        if not symbols(r.steps * r.batch) <= set(ctx.opt):
            return None
        steps, batch = (evaluate(d, ctx.opt) for d in (r.steps, r.batch))
        per_cell = r.gates * r.hidden / max(4, ctx.device.lanes) * 0.6
        matrix = r.gates * r.hidden * r.hidden * 4 / 32
        cells = batch * per_cell * (r.inputs / max(1, ctx.threads) + r.hidden)
        return 1e-6 + steps * r.directions * (max(cells, matrix) + 20 * batch * r.hidden / 4) / 3e9

    def compile(self, node: Node, variant: Variant, ctx: CompileContext) -> KernelArtifact:
        r = recurrence(node)
        assert isinstance(r, Recurrence)
        return (_LSTM if r.gates == 4 else _GRU)(r, node, variant, ctx).artifact()


def one_pass(gates: int, device: DeviceProperties) -> int:
    """Most rows whose accumulators for all gates fit into the registers."""
    return 24 // gates if c_tile.registers(device) == 32 else (2 if gates == 4 else 4)


class _Kernel:
    """Writes one kernel; subclasses give the step."""

    extra = 0
    """Buffers of the size of a state that a step needs."""

    def __init__(self, r: Recurrence, node: Node, variant: Variant, ctx: CompileContext) -> None:
        self.r, self.ctx = r, ctx
        self.rows: int = variant.knob("rows")
        self.lanes = max(4, ctx.device.lanes)
        self.blocks = -(-r.hidden // self.lanes)
        self.width = r.gates * self.lanes
        self.args = Args(node)
        self.functions = Functions(self.args)
        self.steps, self.batch = self.args.dim(r.steps), self.args.dim(r.batch)
        self.pitch = self.blocks * self.width

    def artifact(self) -> KernelArtifact:
        r, args = self.r, self.args
        gates = r.directions * r.steps * r.batch * (self.pitch * 4)
        zeros = r.batch * (r.hidden * 4)
        extra = self.extra * r.directions * zeros
        self.g, self.zeros = args.workspace(0), args.workspace(gates)
        self.buffers = [args.workspace(gates + zeros + i * r.directions * zeros) for i in range(self.extra)]
        self.w, self.u = args.constant("w", self._packed(r.w)), args.constant("r", self._packed(r.r))
        self.b = args.constant("b", self._packed_bias()) if r.bias >= 0 else ""
        args.phase(0)
        project, advance = self._project(), self._advance()
        body = [block("if (phase == 0)", project, "return;"), advance]
        helpers = f"{GRID}{self.functions.text()}"
        return kernel(args, body, self.ctx, helpers=helpers, workspace=gates + zeros + extra, phases=2)

    def _packed(self, index: int) -> Packed:
        """Weights (direction, gate, unit, k) as (direction, block of units, k, gate, unit in block)."""
        r = self.r
        depth = r.inputs if index == r.w else r.hidden
        pad = ((0, 0), (0, 0), (0, self.blocks * self.lanes - r.hidden), (0, 0))
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (r.directions, r.gates, r.hidden, depth)), ("pad", pad),
            ("reshape", (r.directions, r.gates, self.blocks, self.lanes, depth)), ("transpose", (0, 2, 4, 1, 3)),
        )  # fmt: skip
        return Packed(index, steps)

    def _packed_bias(self) -> Packed:
        """Both biases as (direction, of the input or of the state, block of units, gate, unit in block)."""
        r = self.r
        pad = ((0, 0), (0, 0), (0, 0), (0, self.blocks * self.lanes - r.hidden))
        steps: tuple[tuple[str, Any], ...] = (
            ("reshape", (r.directions, 2, r.gates, r.hidden)), ("pad", pad),
            ("reshape", (r.directions, 2, r.gates, self.blocks, self.lanes)), ("transpose", (0, 1, 3, 2, 4)),
        )  # fmt: skip
        return Packed(r.bias, steps)

    @staticmethod
    def _sizes(most: int, total: Dim) -> tuple[int, ...]:
        rest = c_tile.rest_sizes(most, total if isinstance(total, int) else None)
        return rest if isinstance(total, int) and total < most else (most, *rest)

    def _tile(self, rows: int, vectors: int) -> Tile:
        return Tile(rows, vectors, self.lanes, c_tile.chains_for(rows, vectors))

    def _sum(self, tile: Tile, left: str, pitch: int, depth: int, right_pitch: int) -> str:
        """Sum over ``depth``; rows of ``left`` lie ``pitch`` apart, steps of w ``right_pitch``. Both are moved on."""
        unroll = max(2, tile.chains)

        def element(m: int, u: int) -> str:
            return f"{left}[{m * pitch + u}]"

        body = [tile.steps(unroll, element, "w", str(right_pitch)), f"{left} += {unroll}; w += {unroll * right_pitch};"]
        rest = tile.steps(depth % unroll, element, "w", str(right_pitch))
        return "\n".join([loop("k", "0", str(depth // unroll), *body), rest, tile.join()])

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
            biases = [f"const vf bias{n} = {self._bias_of(n)};" for n in range(r.gates)] if self.b else []
            body = [tile.zero(), self._sum(tile, "x", r.inputs, r.inputs, self.width), *biases, *stores]
            parameters = "const float* x, const float* w, float* g" + ", const float* bias" * bool(self.b)
            self.functions.add(f"in{rows}", parameters, body)
        count, tiles = self.args.dim(total), self.args.dim(ceildiv(total, most))

        def call(rows: int) -> str:
            x = f"{self.args.input(r.x)} + m * {r.inputs}"
            g = f"{self.g} + (d * {count} + m) * {self.pitch} + j * {self.width}"
            bias = f", {self.b} + (2 * d * {self.blocks} + j) * {self.width}" if self.b else ""
            return f"TX_NAME(in{rows})(a, {x}, {self.w} + p * {r.inputs * self.width}, {g}{bias});"

        head = f"const int64_t d = p / {self.blocks}, j = p % {self.blocks};"
        end = f"const int64_t end = t[1] * {most} < {count} ? t[1] * {most} : {count};"
        clear = block("if (tid == 0)", f"memset({self.zeros}, 0, {self.args.dim(self.r.batch * (r.hidden * 4))});")
        walk = loop("p", "t[2]", "t[3]", head, f"int64_t m = t[0] * {most};", end, by_rows(sizes, "m", "end", call))
        panels = r.directions * self.blocks
        return f"{clear}\nint64_t t[4];\nTX_NAME(grid)({tiles}, {panels}, tid, nt, t);\n{walk}"

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
        g = f"{self.g} + ((d * {self.steps} + t) * {self.batch} + m) * {self.pitch}"
        walk = [
            f"const int64_t t = {backward} ? {self.steps} - 1 - i : i;",
            f"float* y = {self.args.output(0)} + ((t * {r.directions} + d) * {self.batch} + m) * {hidden};",
            f"TX_NAME(step{size})(a, h, {g}, y, d, m);",
            "h = y;",
        ]
        last = f"memcpy({self.args.output(1)} + {state}, h, {size * hidden * 4});"
        start = [f"const float* h = {first};", self._begin(size)]
        return block("", *start, loop("i", "0", self.steps, *walk), last)

    def _begin(self, size: int) -> str:
        """Statements before the first step."""
        return ""

    def _step(self, size: int) -> None:
        """Add ``step{size}(h, g, y, d, m)``: one step of ``size`` rows."""
        raise NotImplementedError

    def _blocks(self, size: int, state: str, gates: tuple[int, int], finish: Sequence[str]) -> str:
        """For each block of units: the state times the weights of those gates, saved to ``sums``; then more."""
        r, (first, last) = self.r, gates
        width = (last - first) * self.lanes
        step = last - first if size <= one_pass(last - first, self.ctx.device) else 2
        passes = []
        for gate in range(first, last, step):
            tile = self._tile(size, min(step, last - gate))
            panel = f"{self.u} + (d * {self.blocks} + j) * {r.hidden * self.width} + {gate * self.lanes}"
            save = tile.save(f"sums + {(gate - first) * self.lanes}", width)
            product = self._sum(tile, "x", r.hidden, r.hidden, self.width)
            passes.append(block("", f"const float *x = {state}, *w = {panel};", tile.zero(), product, save))
        left = f"const int64_t left = {r.hidden} - j * {self.lanes};"
        head = f"float sums[{size * width}] __attribute__((aligned(64)));"
        return f"{head}\n{loop('j', '0', str(self.blocks), left, *passes, loop('i', '0', str(size), *finish))}"

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

    def _store(self, pointer: str, value: str) -> str:
        return f"tx_store_n_f32({pointer} + i * {self.r.hidden} + j * {self.lanes}, {value}, left);"


class _LSTM(_Kernel):
    """Gates i, o, f, c. The cell state lives in the last output."""

    def _begin(self, size: int) -> str:
        r = self.r
        where = f"(d * {self.batch} + m) * {r.hidden}"
        if r.c < 0:
            return f"memset({self.args.output(2)} + {where}, 0, {size * r.hidden * 4});"
        return f"memcpy({self.args.output(2)} + {where}, {self.args.input(r.c)} + {where}, {size * r.hidden * 4});"

    def _step(self, size: int) -> None:
        i, o, f, c = (self._gate(k, k, 4) for k in range(4))
        cell = [
            f"const vf in = tx_sigmoid({i}), keep = tx_sigmoid({f});",
            f"const vf new = keep * {self._state('c')} + in * tx_tanh({c});",
            self._store("c", "new"),
            self._store("y", f"tx_sigmoid({o}) * tx_tanh(new)"),
        ]
        body = [
            f"float* c = {self.args.output(2)} + (d * {self.batch} + m) * {self.r.hidden};",
            self._blocks(size, "h", (0, 4), cell),
        ]
        self.functions.add(f"step{size}", "const float* h, const float* g, float* y, int64_t d, int64_t m", body)


class _GRU(_Kernel):
    """Gates z, r, h."""

    @property
    def extra(self) -> int:  # type: ignore[override]
        return 0 if self.r.linear_before_reset else 2

    def _bias_of(self, gate: int) -> str:
        if gate == 2 and self.r.linear_before_reset:
            return f"tx_load_f32(bias + {gate * self.lanes})"
        return super()._bias_of(gate)

    def _step(self, size: int) -> None:
        parameters = "const float* h, const float* g, float* y, int64_t d, int64_t m"
        body = self._after(size) if self.r.linear_before_reset else self._before(size)
        self.functions.add(f"step{size}", parameters, body)

    def _after(self, size: int) -> list[str]:
        """The reset gate acts on the product with the state."""
        inner = self._sum_of(2, 3)
        if self.b:
            at = f"((2 * d + 1) * {self.blocks} + j) * {self.width} + {2 * self.lanes}"
            inner = f"({inner} + tx_load_f32({self.b} + {at}))"
        cell = [
            f"const vf z = tx_sigmoid({self._gate(0, 0, 3)}), reset = tx_sigmoid({self._gate(1, 1, 3)});",
            f"const vf n = tx_tanh({self._input_of(2)} + reset * {inner});",
            self._store("y", f"n + z * ({self._state('h')} - n)"),
        ]
        return [self._blocks(size, "h", (0, 3), cell)]

    def _before(self, size: int) -> list[str]:
        """The reset gate acts on the state: its product is a second pass."""
        at = f"(d * {self.batch} + m) * {self.r.hidden}"
        first = [
            self._store("z", f"tx_sigmoid({self._gate(0, 0, 2)})"),
            self._store("rh", f"tx_sigmoid({self._gate(1, 1, 2)}) * {self._state('h')}"),
        ]
        second = [
            f"const vf n = tx_tanh({self._gate(2, 0, 1)});",
            self._store("y", f"n + {self._state('z')} * ({self._state('h')} - n)"),
        ]
        return [
            f"float *z = {self.buffers[0]} + {at}, *rh = {self.buffers[1]} + {at};",
            block("", self._blocks(size, "h", (0, 2), first)),
            block("", self._blocks(size, "rh", (2, 3), second)),
        ]
