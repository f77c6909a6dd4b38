"""Recurrent layers: initial states of zero are left out, and samples before steps are moved behind
them, as kernels on a processor take them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tactix.contracts.graph import Node, Value
from tactix.contracts.rule import Op, P, Rule, any_of
from tactix_ops.rules.facts import again, uniform

T = P.tactix
_LAYERS = any_of(T.LSTM(), T.GRU(), T.RNN())
INITIAL = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Which inputs are initial states; left out, they are zero."""


def _zero(v: Value | None) -> bool:
    p = v.producer if v is not None else None
    return uniform(p.inputs[0] if p is not None and p.layer.name == "Expand" else v) == 0.0


def _states(root: Node) -> list[int]:
    return [i for i in INITIAL[root.layer.name] if i < len(root.inputs) and _zero(root.inputs[i])]


def _without_states(root: Node) -> tuple[Op, ...]:
    gone = _states(root)
    inputs = [None if i in gone else v for i, v in enumerate(root.inputs)]
    while inputs and inputs[-1] is None:
        inputs.pop()
    op = again(root, inputs)
    return tuple(op.out(i) for i in range(len(root.outputs)))


def _example(net: Any) -> None:
    rng = np.random.default_rng(9)
    x = net.add_input("x", "f32", ["t", "n", 3])
    w, r = (net.add_constant(rng.standard_normal((1, 8, k), dtype=np.float32)) for k in (3, 2))
    (zero,) = net.add_layer(
        "tactix.Expand", [net.add_constant(np.float32(0))], shape=(1, x.spec.shape[1], 2)
    )
    made = net.add_layer("tactix.LSTM", [x, w, r, None, None, zero, zero], hidden_size=2)
    for i, v in enumerate(made):
        net.mark_output(v, f"y{i}")


# -- samples first -------------------------------------------------------------------------------


SAMPLES_LAST = (1, 0, 2)
"""How (samples, steps, ...) of x and (samples, directions, ...) of a state become steps and
directions first.
"""


def _steps_first(root: Node) -> tuple[Op, ...]:
    first = INITIAL[root.layer.name]
    inputs = [
        T.Transpose(v, perm=SAMPLES_LAST) if v is not None and (i == 0 or i in first) else v
        for i, v in enumerate(root.inputs)
    ]
    op = again(root, inputs, layout=0)
    states = (T.Transpose(op.out(i), perm=SAMPLES_LAST) for i in range(1, len(root.outputs)))
    return (T.Transpose(op.out(0), perm=(2, 0, 1, 3)), *states)


def _samples_first_example(net: Any) -> None:
    rng = np.random.default_rng(11)
    x, first = net.add_input("x", "f32", ["n", "t", 3]), net.add_input("h", "f32", ["n", 1, 2])
    w, r = (net.add_constant(rng.standard_normal((1, 6, k), dtype=np.float32)) for k in (3, 2))
    inputs = [x, w, r, None, None, first]
    for i, v in enumerate(net.add_layer("tactix.GRU", inputs, hidden_size=2, layout=1)):
        net.mark_output(v, f"y{i}")


RULES = (
    Rule(
        "tactix.zero_states",
        _LAYERS,
        _without_states,
        lambda root: bool(_states(root)),
        benefit=50,
        example=_example,
    ),
)

PROCESSOR_RULES = (
    Rule(
        "tactix.steps_first",
        _LAYERS,
        _steps_first,
        lambda root: root.attrs.layout == 1,
        benefit=40,
        example=_samples_first_example,
        device="cpu",
    ),
)
