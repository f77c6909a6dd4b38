"""What gates of recurrent layers make of their sums, as C of vectors."""

from __future__ import annotations

from tactix_codegen.c.scalar import float_literal
from tactix_ops.layers.rnn import GateFunction

PLAIN = {
    "sigmoid": "tx_sigmoid({x})",
    "tanh": "tx_tanh({x})",
    "relu": "tx_max({x}, tx_zero())",
}
"""What one call says; others name their argument more than once, and are functions."""
OTHERS = {
    "softsign": "x / (1.0f + tx_abs(x))",
    "softplus": "tx_max(x, tx_zero()) + tx_log1p(tx_exp(-tx_abs(x)))",
    "leakyrelu": "tx_select(tx_lt(x, tx_zero()), {a} * x, x)",
    "thresholdedrelu": "tx_select(tx_lt(tx_splat({a}), x), x, tx_zero())",
    "elu": "tx_select(tx_lt(x, tx_zero()), {a} * tx_expm1(x), x)",
    "affine": "{a} * x + {b}",
    "scaledtanh": "{a} * tx_tanh({b} * x)",
    "hardsigmoid": "tx_min(tx_max({a} * x + {b}, tx_zero()), tx_splat(1.0f))",
}


class Activations:
    """Those of a layer, ``count`` for each direction. C variable ``d``: the direction, 0 or 1."""

    def __init__(self, functions: tuple[GateFunction, ...], count: int, clip: float) -> None:
        self.by_kind = tuple(dict.fromkeys(functions[k::count]) for k in range(count))
        self.clip = clip

    def text(self) -> str:
        """The functions that ``apply`` calls."""
        return "".join(
            f"TX_INLINE vf TX_NAME(gate{k}_{i})(vf x) {{ return {_body(f)}; }}\n"
            for k, functions in enumerate(self.by_kind)
            for i, f in enumerate(functions)
            if f.name in OTHERS
        )

    def apply(self, kind: int, value: str, clipped: bool = True) -> str:
        """The function of that kind of gate on a vector, which ``clip`` bounds if ``clipped``."""
        if clipped and self.clip:
            limit = float_literal(self.clip)
            value = f"tx_min(tx_max({value}, tx_splat(-{limit})), tx_splat({limit}))"
        calls = [self._call(kind, i, value) for i in range(len(self.by_kind[kind]))]
        return calls[0] if len(calls) == 1 else f"(d == 1 ? {calls[1]} : {calls[0]})"

    def _call(self, kind: int, i: int, value: str) -> str:
        name = list(self.by_kind[kind])[i].name
        return PLAIN[name].format(x=value) if name in PLAIN else f"TX_NAME(gate{kind}_{i})({value})"


def _body(f: GateFunction) -> str:
    return OTHERS[f.name].format(a=float_literal(f.alpha), b=float_literal(f.beta))
