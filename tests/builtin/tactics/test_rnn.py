"""LSTM, GRU and RNN kernels against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asked
import harness as h
import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.tactic import CompileContext, Reject
from tactix_cpu.tactics.rnn.tactic import CpuRecurrentTactic

RNN = CpuRecurrentTactic()
MATRIX = replace(h.NATIVE, features=h.NATIVE.features | {"amx_tile", "amx_bf16"})
RNG = np.random.default_rng(16)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, dtype=np.float32) * np.float32(0.4)


def inputs_of(
    kind: str,
    steps: int,
    batch: int,
    size: int,
    hidden: int,
    directions: int,
    bias: bool,
    state: bool,
    dtype: DType = DType.FP32,
) -> Any:
    """x, w, r, bias, no lengths, and the initial states."""
    gates, t = GATES[kind], dtype.numpy
    weights = [floats(directions, gates * hidden, k).astype(t) for k in (size, hidden)]
    biases = floats(directions, 2 * gates * hidden) if bias else None
    states = (
        [floats(directions, batch, hidden) for _ in range(2 if kind == "LSTM" else 1)]
        if state
        else []
    )
    return [floats(steps, batch, size).astype(t), *weights, biases, None, *states]


def recurrent(
    kind: str,
    steps: int,
    batch: int,
    size: int,
    hidden: int,
    direction: str = "forward",
    bias: bool = True,
    state: bool = True,
    symbolic: bool = False,
    dtype: DType = DType.FP32,
    **more: Any,
) -> h.Case:
    directions = 2 if direction == "bidirectional" else 1
    arrays = inputs_of(kind, steps, batch, size, hidden, directions, bias, state, dtype)
    specs, env = list(arrays), {}
    if symbolic:
        specs[0], env = (
            h.spec(arrays[0], ("steps", "batch", size)),
            {"steps": steps, "batch": batch},
        )
        specs[5:] = [h.spec(x, (directions, "batch", hidden)) for x in arrays[5:]]
    options = {name: more.pop(name) for name in ("device", "nt") if name in more}
    constants = [1, 2, 3] if bias else [1, 2]
    node = h.node(kind, specs, constants, hidden_size=hidden, direction=direction, **more)
    return h.Case(node, RNN, [x for x in arrays if x is not None], env=env, **options)


def test_lstm() -> None:
    h.check_all(
        [
            recurrent("LSTM", 5, 1, 7, 16),
            recurrent("LSTM", 1, 1, 1, 1),
            recurrent("LSTM", 4, 3, 5, 19, "bidirectional", nt=(1, 2, 3)),
            recurrent("LSTM", 3, 9, 5, 33, "reverse", bias=False, state=False),
            recurrent("LSTM", 3, 23, 6, 40, activations=("Sigmoid", "Tanh", "Tanh")),
        ]
    )


def test_gru_resets_before_or_after_the_product() -> None:
    cases = []
    for after in (False, True):
        cases += [
            recurrent("GRU", 5, 1, 7, 16, linear_before_reset=after),
            recurrent("GRU", 4, 3, 5, 19, "bidirectional", linear_before_reset=after),
            recurrent(
                "GRU", 3, 9, 5, 33, "reverse", bias=False, state=False, linear_before_reset=after
            ),
        ]
    h.check_all(cases)


def test_rnn_of_every_activation() -> None:
    h.check_all(
        [
            recurrent("RNN", 5, 1, 7, 16),
            recurrent("RNN", 1, 1, 1, 1, activations=("Sigmoid",)),
            recurrent("RNN", 4, 3, 5, 19, "bidirectional", nt=(1, 2, 3)),
            recurrent(
                "RNN", 3, 9, 5, 33, "reverse", bias=False, state=False, activations=("Relu",)
            ),
            recurrent("RNN", 3, 31, 6, 40, "bidirectional", activations=("relu",) * 2),
        ]
    )


def test_rnn_of_no_number() -> None:
    case = recurrent("RNN", 3, 5, 7, 9, activations=("Relu",))
    assert case.arrays is not None
    case.arrays[0][1, 2, 3] = np.nan
    h.check_all([case])


def test_symbolic_steps_and_batch() -> None:
    cases = []
    for steps, batch in ((1, 1), (6, 7), (2, 15)):
        for kind in GATES:
            cases.append(recurrent(kind, steps, batch, 4, 20, "bidirectional", symbolic=True))
    h.check_all(cases)


def halves(*sizes: Any, **more: Any) -> h.Case:
    return recurrent(*sizes, dtype=DType.BF16, **more)


def test_bfloat16() -> None:
    cases = [
        halves("LSTM", 5, 1, 7, 16),
        halves("LSTM", 1, 1, 1, 1),
        halves("LSTM", 4, 3, 5, 19, "bidirectional", nt=(1, 2, 3)),
        halves("LSTM", 3, 23, 6, 40, "reverse", bias=False, state=False),
        halves("LSTM", 6, 7, 4, 20, "bidirectional", symbolic=True),
        halves("RNN", 4, 13, 7, 19, "bidirectional", activations=("Relu", "Relu")),
        *(halves(kind, 3, 5, 5, 9, device=d) for d in h.devices() for kind in GATES),
    ]
    for after in (False, True):
        cases += [
            halves("GRU", 5, 1, 7, 16, linear_before_reset=after),
            halves("GRU", 4, 3, 6, 19, "bidirectional", linear_before_reset=after),
            halves(
                "GRU", 3, 9, 5, 33, "reverse", bias=False, state=False, linear_before_reset=after
            ),
            halves("GRU", 6, 7, 4, 20, symbolic=True, linear_before_reset=after),
        ]
    h.check_all(cases)


@h.needs("amx_tile", "amx_bf16", *h.V4)
def test_bfloat16_on_the_matrix_unit() -> None:
    cases = [
        halves("LSTM", 5, 3, 64, 19, "bidirectional", device=MATRIX, nt=(1, 2, 3)),
        halves("LSTM", 40, 1, 32, 33, bias=False, device=MATRIX),
        halves("LSTM", 9, 7, 32, 16, symbolic=True, device=MATRIX),
        halves("RNN", 2, 17, 64, 35, "bidirectional", state=False, device=MATRIX),
    ]
    for after in (False, True):
        cases.append(
            halves("GRU", 5, 4, 32, 35, "bidirectional", linear_before_reset=after, device=MATRIX)
        )
        cases.append(
            halves("GRU", 3, 23, 96, 16, "reverse", linear_before_reset=after, device=MATRIX)
        )
    h.check_all(cases)


def test_states_that_are_bfloat16() -> None:
    x, w, r, b, _, first = inputs_of("GRU", 4, 3, 5, 19, 1, True, True)
    arrays = [v.astype(DType.BF16.numpy) for v in (x, w, r, b, first)]
    node = h.node("GRU", [*arrays[:4], None, arrays[4]], [1, 2, 3], hidden_size=19)
    h.check(node, RNN, arrays)


def test_every_instruction_set() -> None:
    cases = [
        recurrent(kind, 3, batch, 5, 9, device=d)
        for d in h.devices()
        for kind in GATES
        for batch in (1, 5)
    ]
    h.check_all(cases)


SHAPED = {
    "LeakyRelu": (0.2,), "ThresholdedRelu": (0.3,), "Elu": (0.7,), "Affine": (0.6, 0.1),
    "ScaledTanh": (0.9, 0.4), "HardSigmoid": (0.3, 0.4), "Softsign": (), "Softplus": (), "Relu": (),
    "Sigmoid": (), "Tanh": (),
}  # fmt: skip
"""Activations, and their alpha and beta."""


def activations(*names: str) -> dict[str, Any]:
    """The attributes that choose them."""
    alphas = tuple(SHAPED[n][0] for n in names if SHAPED[n])
    betas = tuple(SHAPED[n][1] for n in names if len(SHAPED[n]) > 1)
    return {"activations": names, "activation_alpha": alphas, "activation_beta": betas}


def with_inputs(
    kind: str, lengths: Any = None, peepholes: bool = False, direction: str = "forward", **more: Any
) -> h.Case:
    """A case of 5 steps, 7 samples and 19 units, that has lengths or peepholes."""
    dtype: DType = more.pop("dtype", DType.FP32)
    state, device = more.pop("state", True), more.pop("device", None)
    directions = 2 if direction == "bidirectional" else 1
    arrays = inputs_of(kind, 5, 7, 6, 19, directions, True, state, dtype)
    arrays += [None] * (7 - len(arrays))
    arrays[4] = None if lengths is None else np.array(lengths, np.int32)
    arrays += [floats(directions, 57)] * peepholes
    constants = [1, 2, 3, *([7] if peepholes else [])] if more.pop("known", True) else []
    while arrays[-1] is None:
        arrays.pop()
    node = h.node(kind, arrays, constants, hidden_size=19, direction=direction, **more)
    options = {} if device is None else {"device": device}
    return h.Case(node, RNN, [x for x in arrays if x is not None], **options)


LENGTHS = (3, 5, 0, 1, 5, 2, 4)


def test_lengths_of_samples() -> None:
    """Results past a sample's end are zero, and states stay."""
    cases = []
    for kind in GATES:
        for direction in ("forward", "reverse", "bidirectional"):
            cases.append(with_inputs(kind, LENGTHS, direction=direction))
        cases.append(with_inputs(kind, LENGTHS, dtype=DType.BF16))
        cases.append(with_inputs(kind, LENGTHS, state=False))
    for dtype in (DType.FP32, DType.BF16):
        cases.append(with_inputs("GRU", LENGTHS, dtype=dtype, linear_before_reset=True))
    h.check_all(cases)


def test_lengths_beyond_the_steps() -> None:
    h.check_all([with_inputs("GRU", (3, 9, -2, 2**31 - 1, -(2**31), 5, 1))])


def test_peepholes() -> None:
    cases = [
        with_inputs("LSTM", peepholes=True),
        with_inputs("LSTM", LENGTHS, peepholes=True, direction="bidirectional", clip=0.4),
        with_inputs("LSTM", peepholes=True, direction="reverse", input_forget=True),
        with_inputs("LSTM", LENGTHS, peepholes=True, dtype=DType.BF16, clip=0.5),
        with_inputs("LSTM", peepholes=True, state=False),
    ]
    h.check_all(cases)


def test_clipped_sums() -> None:
    cases = [recurrent(kind, 4, 3, 5, 19, "bidirectional", clip=0.3) for kind in GATES]
    cases.append(recurrent("GRU", 4, 3, 5, 19, linear_before_reset=True, clip=0.3))
    cases.append(recurrent("LSTM", 4, 3, 5, 19, input_forget=True, clip=0.25))
    h.check_all(cases)


def test_every_activation() -> None:
    cases = []
    for name in SHAPED:
        cases.append(recurrent("RNN", 4, 3, 5, 19, **activations(name)))
        cases.append(recurrent("GRU", 3, 2, 5, 9, **activations("HardSigmoid", name)))
        cases.append(recurrent("LSTM", 3, 2, 5, 9, **activations("HardSigmoid", "Softsign", name)))
    h.check_all(cases)


def test_activations_of_each_direction() -> None:
    six = ("Sigmoid", "Tanh", "Softsign", "HardSigmoid", "Elu", "Tanh")
    four = ("HardSigmoid", "LeakyRelu", "HardSigmoid", "ScaledTanh")
    cases = [
        recurrent("LSTM", 3, 4, 5, 9, "bidirectional", **activations(*six)),
        recurrent("GRU", 3, 4, 5, 9, "bidirectional", **activations(*four)),
        recurrent("RNN", 3, 4, 5, 9, "bidirectional", **activations("Affine", "Affine")),
    ]
    h.check_all(cases)


def test_activations_of_no_number() -> None:
    cases = [recurrent("RNN", 3, 5, 7, 9, **activations(name), clip=0.5) for name in SHAPED]
    for case in cases:
        assert case.arrays is not None
        case.arrays[0][1, 2, 3] = np.nan
    h.check_all(cases)


def test_options_by_instruction_set() -> None:
    names = activations("HardSigmoid", "Softsign", "Elu", "Sigmoid", "Tanh", "Softplus")
    more = {"direction": "bidirectional", "clip": 0.6, **names}
    cases = [with_inputs("LSTM", LENGTHS, peepholes=True, device=d, **more) for d in h.devices()]
    h.check_all(cases)


def test_weights_that_only_running_tells() -> None:
    cases = [with_inputs(kind, known=False) for kind in GATES]
    cases += [with_inputs(kind, LENGTHS, known=False, dtype=DType.BF16) for kind in GATES]
    for d in h.devices():
        cases.append(
            with_inputs("LSTM", None, True, "bidirectional", device=d, known=False, state=False)
        )
    x, *weights = inputs_of("GRU", 3, 2, 64, 19, 1, True, False, DType.BF16)[:4]
    for constants in ([], [1], [2], [1, 2]):
        node = h.node("GRU", [x, *weights], constants, hidden_size=19)
        cases.append(h.Case(node, RNN, [x, *weights], nt=(1, 2, 3)))
    h.check_all(cases)


def test_inputs_whose_size_only_running_tells() -> None:
    cases = []
    for device in h.devices():
        for kind, size in (("LSTM", 13), ("GRU", 1), ("RNN", 6), ("LSTM", 0)):
            both = inputs_of(kind, 5, 3, size, 19, 2, bias=True, state=True)
            arrays = [x for x in both if x is not None]
            opened, env = h.opened(*arrays)
            opened.insert(4, None)  # type: ignore[arg-type]
            node = h.node(kind, opened, hidden_size=19, direction="bidirectional")
            cases.append(h.Case(node, RNN, arrays, env=env, device=device))
    h.check_all(cases)


def test_samples_of_weights_keep_numbers_small() -> None:
    """Of steps that multiply differences the results are anything after a few of them."""
    node = h.node("RNN", [floats(30, 1, 64), floats(1, 64, 64), floats(1, 64, 64)], hidden_size=64)
    x, w, r = node.layer.sample(node.attrs, [v.spec for v in node.given], RNG)
    close = node.layer.reference(node.attrs, x * np.float32(1 + 1e-6), w, r)[1]
    assert np.abs(node.layer.reference(node.attrs, x, w, r)[1] - close).max() < 1e-4


def test_options_that_it_leaves_to_others() -> None:
    arrays = inputs_of("LSTM", 3, 2, 5, 8, 1, True, True)
    samples_first = [floats(2, 3, 5), floats(1, 24, 5), floats(1, 24, 8)]
    nodes = [
        h.node("LSTM", [a if a is None else a.astype(np.float64) for a in arrays], hidden_size=8),
        h.node("LSTM", [arrays[0][:0], *arrays[1:]], [1, 2, 3], hidden_size=8),
        h.node("GRU", samples_first, [1, 2], hidden_size=8, layout=1),
        h.node("LSTM", [*h.opened(*arrays[:3])[0]]),
    ]
    for node in nodes:
        offered = asked.variants(RNN, node, h.NATIVE)
        assert isinstance(offered, Reject)
        assert offered.reason


def test_cost_grows_with_the_steps() -> None:
    costs = []
    for steps in (4, 40):
        node = recurrent("GRU", steps, 1, 8, 16).node
        costs.append(
            asked.cost(RNN, node, asked.variants(RNN, node, h.NATIVE)[0], CompileContext(h.NATIVE))
            or 0.0
        )  # type: ignore[index]
    assert 0 < 2 * costs[0] < costs[1]
