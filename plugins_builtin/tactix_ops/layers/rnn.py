"""Recurrent layers: LSTM, GRU, RNN, with ONNX's gates, order of weights and options.

Shapes, with T steps, B samples, D directions, H = hidden_size and G gates: x (T, B, I), w (D, G H,
I), r (D, G H, H), b (D, 2 G H), sequence_lens (B,), initial states (D, B, H); y (T, D, B, H), last
states (D, B, H). ``layout`` 1 puts the batch first in x, y and the states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tactix.base.dims import Dim, show
from tactix.base.errors import InvalidArgument, ShapeError
from tactix.base.tensor import TensorSpec
from tactix.contracts.layer import Layer
from tactix_ops.layers import work
from tactix_ops.layers.common import Array, Specs, optional, pick, required, same_dim, wide

DIRECTIONS = ("forward", "reverse", "bidirectional")

Activation = Callable[[Array], Array]


@dataclass(frozen=True)
class RecurrentAttrs:
    """``activations`` per direction, in the layer's order, or its own. ``clip`` 0 means none."""

    hidden_size: int = 0
    direction: str = "forward"
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float = 0.0
    layout: int = 0

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1


@dataclass(frozen=True)
class LSTMAttrs(RecurrentAttrs):
    """``input_forget``: the forget gate is one minus the input gate."""

    input_forget: bool = False


@dataclass(frozen=True)
class GRUAttrs(RecurrentAttrs):
    """``linear_before_reset``: the reset gate acts after the recurrent product, not before."""

    linear_before_reset: bool = False


_PLAIN: dict[str, Activation] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
}
_SHAPED: dict[str, tuple[Callable[[Array, float, float], Array], tuple[float, float]]] = {
    "leakyrelu": (lambda x, a, b: np.where(x < 0, a * x, x), (0.01, 0.0)),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, 0), (1.0, 0.0)),
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), (math.nan, math.nan)),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, a, b: np.where(x < 0, a * np.expm1(x), x), (1.0, 0.0)),
}
_TAKES_BETA = ("affine", "scaledtanh", "hardsigmoid")


@dataclass(frozen=True)
class GateFunction:
    """``name``: ONNX's, in lower case; ``alpha``, ``beta``: 0 where it takes none."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Array) -> Array:
        if self.name in _PLAIN:
            return _PLAIN[self.name](x)
        function, _ = _SHAPED[self.name]
        return function(x, self.alpha, self.beta).astype(x.dtype, copy=False)


def activation_functions(attrs: RecurrentAttrs, default: tuple[str, ...]) -> list[GateFunction]:
    """One function per gate kind and direction; alphas and betas go to those that take them, in
    order. Raises InvalidArgument.
    """
    names = attrs.activations or default * attrs.directions
    if len(names) != len(default) * attrs.directions:
        raise InvalidArgument(
            f"{len(names)} activations where {len(default) * attrs.directions} are needed"
        )
    alphas, betas = iter(attrs.activation_alpha), iter(attrs.activation_beta)
    return [_activation(n.lower(), alphas, betas) for n in names]


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> GateFunction:
    if name in _PLAIN:
        return GateFunction(name)
    if name not in _SHAPED:
        raise InvalidArgument(
            f"no activation {name!r}", do=f"There are: {', '.join([*_PLAIN, *_SHAPED])}"
        )
    _, (alpha, beta) = _SHAPED[name]
    a = next(alphas, alpha)
    b = next(betas, beta) if name in _TAKES_BETA else beta
    if math.isnan(a + b):
        raise InvalidArgument(
            f"ONNX gives activation {name!r} no default alpha and beta", do="Give both"
        )
    return GateFunction(name, a, b)


class Recurrent(Layer):
    """What the three have in common. ``gates``: G; ``states``: how many each step hands on;
    ``functions``: defaults.
    """

    Attrs: Any = RecurrentAttrs
    gates = 1
    states = 1
    functions: tuple[str, ...] = ("Tanh",)

    def infer(self, attrs: RecurrentAttrs, inputs: Specs) -> list[TensorSpec]:
        x, w, r = required(self, inputs, 3)
        if x.rank != 3 or attrs.direction not in DIRECTIONS:
            raise ShapeError(f"{self.key}: x {x}, direction {attrs.direction!r}")
        activation_functions(attrs, self.functions)
        hidden, directions = attrs.hidden_size or r.shape[-1], attrs.directions
        steps, batch = x.shape[:2] if attrs.layout == 0 else x.shape[1::-1]
        y: tuple[Dim, ...] = (steps, directions, batch, hidden)
        last: tuple[Dim, ...] = (directions, batch, hidden)
        if attrs.layout:
            y, last = (batch, steps, directions, hidden), (batch, directions, hidden)
        rows = self.gates * hidden
        self._check("weights", (directions, rows, x.shape[2]), w)
        self._check("weights", (directions, rows, hidden), r)
        self._check("bias", (directions, 2 * rows), optional(inputs, 3))
        self._check("lengths", (batch,), optional(inputs, 4))
        for i in range(self.states):
            self._check("initial state", last, optional(inputs, 5 + i))
        self._check("peepholes", (directions, 3 * hidden), optional(inputs, 7))
        return [TensorSpec(x.dtype, y), *[TensorSpec(x.dtype, last)] * self.states]

    def _check(self, what: str, want: tuple[Dim, ...], s: TensorSpec | None) -> None:
        if s is None:
            return
        if s.rank != len(want):
            raise ShapeError(f"{self.key}: the {what} {s} are not of shape {show(want)}")
        for a, b in zip(want, s.shape, strict=True):
            same_dim(a, b, self.key, f"a dim of the {what} {s}, which are {show(want)},")

    def operations(self, attrs: Any, inputs: Specs, outputs: list[TensorSpec]) -> Dim:
        return work.recurrence(inputs)

    def reference(self, attrs: Any, *inputs: Array) -> tuple[Array, ...]:
        x, w, r = (wide(a) for a in inputs[:3])
        x = x.swapaxes(0, 1) if attrs.layout else x
        steps, batch, hidden = x.shape[0], x.shape[1], r.shape[-1]
        functions = activation_functions(attrs, self.functions)
        y = np.zeros((steps, attrs.directions, batch, hidden), x.dtype)
        last = np.zeros((self.states, attrs.directions, batch, hidden), x.dtype)
        for d in range(attrs.directions):
            count = len(self.functions)
            own = functions[d * count : (d + 1) * count]
            cell = _Cell(attrs, w[d], r[d], self._bias(inputs, d, w), own)
            cell.peephole = self._peephole(inputs, d)
            first = [
                self._initial(inputs, i, d, attrs, last.shape[2:], x.dtype)
                for i in range(self.states)
            ]
            backward = attrs.direction == "reverse" or d == 1
            with np.errstate(over="ignore"):  # exp in a sigmoid far below zero: its limit is right
                y[:, d], last[:, d] = self._run(cell, x, first, backward, pick(inputs, 4))
        if attrs.layout:
            y, last = y.transpose(2, 0, 1, 3), last.swapaxes(1, 2)
        dtype = inputs[0].dtype
        return (y.astype(dtype, copy=False), *(s.astype(dtype, copy=False) for s in last))

    def _bias(self, inputs: tuple[Array, ...], d: int, w: Array) -> Array:
        b = pick(inputs, 3)
        return np.zeros((2, w.shape[1]), w.dtype) if b is None else wide(b)[d].reshape(2, -1)

    def _initial(
        self,
        inputs: tuple[Array, ...],
        i: int,
        d: int,
        attrs: Any,
        shape: tuple[int, ...],
        dtype: Any,
    ) -> Array:
        given = pick(inputs, 5 + i)
        if given is None:
            return np.zeros(shape, dtype)
        return wide(given)[:, d] if attrs.layout else wide(given)[d]

    def _peephole(self, inputs: tuple[Array, ...], d: int) -> Array | None:
        return None

    def _run(
        self, cell: _Cell, x: Array, states: list[Array], backward: bool, lengths: Array | None
    ) -> tuple[Array, Array]:
        """y and the last states of one direction. Steps past a sample's length give 0 and leave its
        states.
        """
        y = np.zeros((*x.shape[:2], states[0].shape[-1]), x.dtype)
        projected = x @ cell.w.T + cell.input_bias
        for t in reversed(range(len(x))) if backward else range(len(x)):
            new = self.step(cell, projected[t], *states)
            if lengths is None:
                states, y[t] = new, new[0]
            else:
                runs = (t < lengths)[:, None]
                states = [np.where(runs, n, s) for n, s in zip(new, states, strict=True)]
                y[t] = np.where(runs, new[0], 0)
        return y, np.stack(states)

    def step(self, cell: _Cell, x: Array, *states: Array) -> list[Array]:
        """The states after one step; ``x`` is multiplied by its weights, with bias."""
        raise NotImplementedError(f"{self.key}: step")

    def sample(self, attrs: RecurrentAttrs, inputs: Specs, rng: Any) -> list[Any]:
        """Weights are such that sums are of the size of numbers: of larger ones a step may make
        more of a difference, and many steps anything.
        """
        out: list[Array] = super().sample(attrs, inputs, rng)
        for i, spec in enumerate(inputs[1:3], 1):
            if spec is not None and spec.const is None:
                out[i] = (out[i] / math.sqrt(max(1, out[i].shape[-1]))).astype(out[i].dtype)
        lengths = pick(inputs, 4)
        if lengths is not None and lengths.const is None:
            steps = out[0].shape[attrs.layout]
            out[4] = rng.integers(1, steps + 1, lengths.at({})).astype(lengths.dtype.numpy)
        return out


class _Cell:
    """One direction's weights, biases and activation functions."""

    def __init__(
        self, attrs: Any, w: Array, r: Array, bias: Array, functions: list[GateFunction]
    ) -> None:
        self.attrs, self.w, self.r, self.functions = attrs, w, r, functions
        self.input_bias, self.state_bias = bias
        self.peephole: Array | None = None

    def clip(self, x: Array) -> Array:
        return np.clip(x, -self.attrs.clip, self.attrs.clip) if self.attrs.clip else x


class RNN(Recurrent):
    """``h = f(x w' + h r' + b)``. Outputs: y, last h."""

    key = "tactix.RNN@1"

    def step(self, cell: _Cell, x: Array, *states: Array) -> list[Array]:
        return [cell.functions[0](cell.clip(x + states[0] @ cell.r.T + cell.state_bias))]


class GRU(Recurrent):
    """Gates z, r, h: ``h = (1 - z) g(...) + z h``. Outputs: y, last h."""

    key = "tactix.GRU@1"
    Attrs = GRUAttrs
    gates = 3
    functions = ("Sigmoid", "Tanh")

    def step(self, cell: _Cell, x: Array, *states: Array) -> list[Array]:
        (h,), (f, g) = states, cell.functions
        n = h.shape[-1]
        both = f(cell.clip(x[:, : 2 * n] + h @ cell.r[: 2 * n].T + cell.state_bias[: 2 * n]))
        z, r = both[:, :n], both[:, n:]
        weights, bias = cell.r[2 * n :].T, cell.state_bias[2 * n :]
        if cell.attrs.linear_before_reset:
            recurrent = r * (h @ weights + bias)
        else:
            recurrent = (r * h) @ weights + bias
        return [(1 - z) * g(cell.clip(x[:, 2 * n :] + recurrent)) + z * h]


class LSTM(Recurrent):
    """Gates i, o, f, c: ``c = f c + i g(...)``, ``h = o h(c)``; input 7 holds peephole weights for
    i, o, f.

    Outputs: y, last h, last c.
    """

    key = "tactix.LSTM@1"
    Attrs = LSTMAttrs
    gates = 4
    states = 2
    functions = ("Sigmoid", "Tanh", "Tanh")

    def _peephole(self, inputs: tuple[Array, ...], d: int) -> Array | None:
        p = pick(inputs, 7)
        return None if p is None else wide(p)[d].reshape(3, -1)

    def step(self, cell: _Cell, x: Array, *states: Array) -> list[Array]:
        (h, c), (f, g, out) = states, cell.functions
        i, o, forget, new = np.split(x + h @ cell.r.T + cell.state_bias, 4, axis=1)
        p = cell.peephole
        if p is not None:
            i, forget = i + p[0] * c, forget + p[2] * c
        i = f(cell.clip(i))
        keep = 1 - i if cell.attrs.input_forget else f(cell.clip(forget))
        c = keep * c + i * g(cell.clip(new))
        o = f(cell.clip(o if p is None else o + p[1] * c))
        return [o * out(c), c]


LAYERS: tuple[Layer, ...] = (LSTM(), GRU(), RNN())
