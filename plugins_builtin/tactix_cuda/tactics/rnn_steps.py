"""The text of the steps of a recurrent layer: all steps of some rows of the batch, a share of the
hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tactix.base.dims import Dim, ceildiv
from tactix.base.errors import InvalidArgument
from tactix_codegen.c.scalar import element, float_literal, stored
from tactix_codegen.c.text import block
from tactix_codegen.cuda.entry import KernelEntry
from tactix_ops.layers.rnn import GateFunction, activation_functions

if TYPE_CHECKING:
    from tactix_cuda.tactics.rnn import CudaRecurrence

PLAIN = {
    "sigmoid": "tx_sigmoid(x)",
    "tanh": "tanhf(x)",
    "relu": "tx_fmax(x, 0.0f)",
    "softsign": "x / (1.0f + fabsf(x))",
    "softplus": "tx_fmax(x, 0.0f) + log1pf(expf(-fabsf(x)))",
}
SHAPED = {
    "leakyrelu": "x < 0.0f ? {a} * x : x",
    "thresholdedrelu": "x > {a} ? x : 0.0f",
    "elu": "x < 0.0f ? {a} * expm1f(x) : x",
    "affine": "{a} * x + {b}",
    "scaledtanh": "{a} * tanhf({b} * x)",
    "hardsigmoid": "tx_fmin(tx_fmax({a} * x + {b}, 0.0f), 1.0f)",
}
"""Activations by ONNX's names."""


class Steps:
    """C variables: ``d`` direction, ``first`` row of the batch, ``u`` unit, ``row`` of this lane,
    ``t`` step.
    """

    def __init__(self, r: CudaRecurrence, e: KernelEntry, slices: int) -> None:
        self.r, self.e, self.slices = r, e, slices
        self.units = -(-r.hidden // slices)
        self.groups: Dim = ceildiv(r.batch, r.rows)
        self.blocks: Dim = r.directions * self.groups * slices
        self.shared = r.rows * r.hidden * 4
        self.workspace: Dim = (
            r.gate_bytes + 5 * r.state_bytes + 4 * (1 + r.directions * self.groups)
        )
        self.batch, self.steps = e.dim(r.batch), e.dim(r.steps)

    # -- activations ------------------------------------------------------------------------------

    def functions(self) -> str:
        """A function for each kind of gate: ``TX_NAME(f0)(d, x)`` and so on. Raises
        InvalidArgument.
        """
        a, own = self.r.attrs, self.r.layer.functions
        texts = [_activation(f) for f in activation_functions(a, own)]
        out = ""
        for i in range(len(own)):
            choice = texts[i] if a.directions == 1 else f"d ? {texts[i + len(own)]} : ({texts[i]})"
            out += f"TX_INLINE float TX_NAME(f{i})(int d, float x) {{ return {choice}; }}\n"
        return out

    def _apply(self, function: int, value: str, clipped: bool = True) -> str:
        if clipped and self.r.attrs.clip:
            limit = float_literal(self.r.attrs.clip)
            value = f"tx_fmin(tx_fmax({value}, -{limit}), {limit})"
        return f"TX_NAME(f{function})(d, {value})"

    # -- memory -----------------------------------------------------------------------------------

    def _place(self, kind: int) -> str:
        """A state in the workspace: 0 and 1 h, in turns; 2 c; 3 update gate; 4 r h."""
        return self.e.workspace(self.r.gate_bytes + kind * self.r.state_bytes)

    def _given(self, slot: int, index: str) -> str:
        """An element of an optional input, or ""."""
        at = self.r.at[slot]
        return (
            element(self.e.node.given[at].spec.dtype, f"{self.e.input(at)}[{index}]")
            if at >= 0
            else ""
        )

    def _state_index(self) -> str:
        """Of a given or resulting state, in the layer's layout."""
        h, n = self.r.hidden, self.r.directions
        return (
            f"(row * {n} + d) * {h} + u"
            if self.r.attrs.layout
            else f"(d * {self.batch} + row) * {h} + u"
        )

    def _y_index(self) -> str:
        h, n = self.r.hidden, self.r.directions
        if self.r.attrs.layout:
            return f"((row * {self.steps} + t) * {n} + d) * {h} + u"
        return f"((t * {n} + d) * {self.batch} + row) * {h} + u"

    def _store(self, output: int, index: str, value: str) -> str:
        dtype = self.e.node.outputs[output].spec.dtype
        return f"{self.e.output(output)}[{index}] = {stored(dtype, value)};"

    # -- text -------------------------------------------------------------------------------------

    def body(self) -> list[str]:
        """All statements."""
        r, s = self.r, self.slices
        groups, counters = (
            self.e.dim(self.groups),
            self.e.workspace(r.gate_bytes + 5 * r.state_bytes, "uint32_t"),
        )
        return [
            "TX_SHARED(memory);",
            "float* h = (float*)memory;",
            "__shared__ unsigned ticket;",
            f"if (threadIdx.x == 0) ticket = atomicAdd((unsigned*){counters}, 1u);",
            "__syncthreads();",
            "const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;",
            f"const int64_t group = ticket / {s};",
            f"const int from = (int)(ticket % {s}) * {self.units}, until = from + {self.units};",
            f"const int end = until < {r.hidden} ? until : {r.hidden}, "
            f"d = (int)(group / {groups});",
            f"const int64_t first = group % {groups} * {r.rows}, row = first + lane;",
            f"const int64_t base = (d * {self.batch} + first) * {r.hidden}, "
            f"count = {self.batch} - first;",
            f"const bool mine = lane < {r.rows} && row < {self.batch};",
            f"unsigned* reached = (unsigned*){counters} + 1 + group;",
            "unsigned times = 0;",
            self._units(self._begin()),
            f"tx_meet<{s}>(reached, times);",
            self._walk(),
            f"const float* done = {self.steps} % 2 ? {self._place(1)} : {self._place(0)};",
            self._units([block("if (mine)", *self._end(r.layer.states))]),
        ]

    def _walk(self) -> str:
        """The loop over time."""
        r = self.r
        backward = "true" if r.attrs.direction == "reverse" else "d == 1"
        return block(
            f"for (int64_t i = 0; i < {self.steps}; i++)",
            f"const int64_t t = {backward} ? {self.steps} - 1 - i : i;",
            f"float *was = i % 2 ? {self._place(1)} : {self._place(0)};",
            f"float *next = i % 2 ? {self._place(0)} : {self._place(1)};",
            f"tx_take_states<{r.rows}, {r.hidden}, {self.e.threads}>(h, was + base, count);",
            *self._step(),
            f"tx_meet<{self.slices}>(reached, times);",
        )

    def _units(self, body: Sequence[str]) -> str:
        return block(f"for (int u = from + warp; u < end; u += {self.e.threads // 32})", *body)

    def _begin(self) -> list[str]:
        """Initial states."""
        index, at = self._state_index(), f"base + lane * {self.r.hidden} + u"
        sets = [f"{self._place(0)}[{at}] = {self._given(5, index) or '0.0f'};"]
        if self.r.layer.states == 2:
            sets.append(f"{self._place(2)}[{at}] = {self._given(6, index) or '0.0f'};")
        return [block("if (mine)", *sets)]

    def _end(self, states: int) -> list[str]:
        sources = ["done", self._place(2)]
        at = f"base + lane * {self.r.hidden} + u"
        return [
            self._store(1 + i, self._state_index(), f"{sources[i]}[{at}]") for i in range(states)
        ]

    def _sums(self, gates: Sequence[int]) -> list[str]:
        """Declare ``s<gate>``: the state's product, the input's, and the biases, of this lane's
        row.
        """
        r, out = self.r, []
        at = r.at[2]
        dtype = self.e.node.given[at].spec.dtype
        for g in gates:
            row = f"((int64_t)d * {r.wide} + {g * r.hidden} + u)"
            weight = element(dtype, f"{self.e.input(at)}[{row} * {r.hidden} + k]")
            product = f"tx_state_product<{r.rows}, {r.hidden}>"
            call = f"{product}(p{g}, h, [&](int k) {{ return {weight}; }});"
            bias = self._given(3, f"(int64_t)d * {2 * r.wide} + {r.wide + g * r.hidden} + u")
            own = f"tx_own(p{g}){f' + {bias}' if bias else ''}"
            out += [f"float p{g}[{r.rows}];", call, f"const float s{g} = {own};"]
        return out

    def _input(self, gate: int) -> str:
        """The input product of a gate."""
        r = self.r
        row = f"(t * {self.batch} + row) * {r.directions} + d"
        return f"{self.e.workspace(0)}[({row}) * {r.wide} + {gate * r.hidden} + u]"

    def _step(self) -> list[str]:
        name = self.r.layer.name
        if name == "GRU" and not self.r.attrs.linear_before_reset:
            return self._reset_first()
        finish = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}[name]
        return [
            self._units(
                [*self._sums(range(self.r.layer.gates)), block("if (mine)", self._old(), *finish())]
            )
        ]

    def _old(self) -> str:
        at = f"lane * {self.r.hidden} + u"
        return f"const int64_t at = base + {at};\nconst float old = h[{at}];"

    def _keep(self, value: str, *also: str) -> list[str]:
        """Store the new state, unless the sample has ended."""
        length = self._given(4, "row")
        y, put = self._y_index(), [*also, f"next[at] = {value};"]
        if not length:
            return [*put, self._store(0, y, value)]
        rest = ["next[at] = old;", self._store(0, y, "0.0f")]
        return [
            block(f"if (t < (int64_t){length})", *put, self._store(0, y, value)),
            block("else", *rest),
        ]

    def _rnn(self) -> list[str]:
        return [f"const float y = {self._apply(0, f'{self._input(0)} + s0')};", *self._keep("y")]

    def _lstm(self) -> list[str]:
        c = f"{self._place(2)}[at]"
        peephole = [
            self._given(7, f"(int64_t)d * {3 * self.r.hidden} + {k * self.r.hidden} + u")
            for k in range(3)
        ]
        sums = [f"{self._input(g)} + s{g}" for g in range(4)]
        if peephole[0]:
            sums[:3] = [
                f"{s} + {p} * {c}"
                for s, p, c in zip(sums[:3], peephole, ("c", "c1", "c"), strict=True)
            ]
        forget = "1.0f - i0" if self.r.attrs.input_forget else self._apply(0, sums[2])
        return [
            f"const float c = {c}, i0 = {self._apply(0, sums[0])}, f0 = {forget};",
            f"const float c1 = f0 * c + i0 * {self._apply(1, sums[3])};",
            f"const float y = {self._apply(0, sums[1])} * {self._apply(2, 'c1', clipped=False)};",
            *self._keep("y", f"{c} = c1;"),
        ]

    def _gru(self) -> list[str]:
        z, r = (self._apply(0, f"{self._input(g)} + s{g}") for g in range(2))
        new = self._apply(1, f"{self._input(2)} + r * s2")
        return [
            f"const float z = {z}, r = {r};",
            f"const float y = (1.0f - z) * {new} + z * old;",
            *self._keep("y"),
        ]

    def _reset_first(self) -> list[str]:
        """A GRU whose reset gate acts on the state before the product: that needs the gate of all
        units first.
        """
        z, r = (self._apply(0, f"{self._input(g)} + s{g}") for g in range(2))
        gates = [self._old(), f"{self._place(3)}[at] = {z};", f"{self._place(4)}[at] = {r} * old;"]
        new = [
            f"const int64_t at = base + lane * {self.r.hidden} + u;",
            f"const float old = ((volatile const float*)was)[at], z = {self._place(3)}[at];",
            f"const float y = (1.0f - z) * {self._apply(1, f'{self._input(2)} + s2')} + z * old;",
            *self._keep("y"),
        ]
        take = f"tx_take_states<{self.r.rows}, {self.r.hidden}, {self.e.threads}>"
        return [
            self._units([*self._sums((0, 1)), block("if (mine)", *gates)]),
            f"tx_meet<{self.slices}>(reached, times);",
            f"{take}(h, {self._place(4)} + base, count);",
            self._units([*self._sums((2,)), block("if (mine)", *new)]),
        ]


def _activation(f: GateFunction) -> str:
    """The expression of ``x``. Raises InvalidArgument."""
    if f.name in PLAIN:
        return PLAIN[f.name]
    if f.name not in SHAPED:
        raise InvalidArgument(f"no activation {f.name!r} in CUDA")
    return SHAPED[f.name].format(a=float_literal(f.alpha), b=float_literal(f.beta))
