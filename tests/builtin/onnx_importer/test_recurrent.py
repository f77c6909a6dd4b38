"""LSTM, GRU and RNN with all their options: against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import asked
import numpy as np
import pytest
from microsoft_oracle import Case, by_converter, by_onnx_runtime, check

from tactix.base.errors import TactixError
from tactix.contracts.device import DeviceProperties
from tactix_cpu.tactics.rnn.tactic import CpuRecurrentTactic

F32 = np.float32
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
KINDS = {"LSTM": 3, "GRU": 2, "RNN": 1}
"""Activations per direction."""
DIRECTIONS = ("forward", "reverse", "bidirectional")
PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")
WITH_ALPHA = ("LeakyRelu", "ThresholdedRelu", "Elu")
WITH_BOTH = ("Affine", "ScaledTanh", "HardSigmoid")


def case(op: str, rng: Any, direction: str, options: dict[str, Any], optional: Any) -> Case:
    """Odd sizes; ``optional()`` says of each optional input whether it is there."""
    d = 2 if direction == "bidirectional" else 1
    steps, batch, width, hidden = (int(n) for n in rng.integers(1, 6, 4))
    gates = GATES[op] * hidden

    def normal(*shape: int) -> Any:
        return (0.7 * rng.standard_normal(shape)).astype(F32)

    lengths = rng.integers(1, steps + 1, batch).astype(np.int32)
    more = [normal(d, 2 * gates), lengths, normal(d, batch, hidden)]
    more += [normal(d, batch, hidden), normal(d, 3 * hidden)] if op == "LSTM" else []
    arrays = [normal(steps, batch, width), normal(d, gates, width), normal(d, gates, hidden)]
    arrays += [a if optional() else None for a in more]
    attrs = {"hidden_size": hidden, "direction": direction, **options}
    outputs = (0, 1, 2) if op == "LSTM" else (0, 1)
    return Case(op, arrays, attrs, outputs, frozenset({1, 2}), domain="", tolerance=1e-4)


def activations(op: str, direction: str, rng: Any) -> dict[str, Any]:
    """Random ones for each gate, with the factors that they take."""
    count = KINDS[op] * (2 if direction == "bidirectional" else 1)
    names = [str(n) for n in rng.choice((*PLAIN, *WITH_ALPHA, *WITH_BOTH), count)]
    out: dict[str, Any] = {"activations": names}
    for key, takers in (
        ("activation_alpha", (*WITH_ALPHA, *WITH_BOTH)),
        ("activation_beta", WITH_BOTH),
    ):
        if taking := sum(n in takers for n in names):
            out[key] = [float(v) for v in rng.uniform(0.1, 0.9, taking).astype(F32)]
    return out


def random_case(op: str, seed: int) -> Case:
    rng = np.random.default_rng([seed, GATES[op]])
    direction = DIRECTIONS[seed % 3]
    options: dict[str, Any] = activations(op, direction, rng) if rng.random() < 0.6 else {}
    if rng.random() < 0.4:
        options["clip"] = float(F32(rng.uniform(0.2, 1.5)))
    flag = {"LSTM": "input_forget", "GRU": "linear_before_reset"}.get(op)
    if flag and rng.random() < 0.5:
        options[flag] = 1
    return case(op, rng, direction, options, lambda: rng.random() < 0.5)


RANDOM = [(op, seed) for op in GATES for seed in range(60)]


@pytest.mark.parametrize(("op", "seed"), RANDOM, ids=str)
def test_options_in_any_combination(op: str, seed: int, imported: Any, model: Any) -> None:
    check(random_case(op, seed), imported, model)


@pytest.mark.parametrize("name", [*PLAIN, *WITH_ALPHA, *WITH_BOTH])
@pytest.mark.parametrize("op", GATES)
def test_every_activation_in_every_place(op: str, name: str, imported: Any, model: Any) -> None:
    """Each direction has factors of its own."""
    count = 2 * KINDS[op]
    options: dict[str, Any] = {"activations": [name] * count}
    if name not in PLAIN:
        options["activation_alpha"] = [0.25 + 0.0625 * i for i in range(count)]
    if name in WITH_BOTH:
        options["activation_beta"] = [0.75 - 0.0625 * i for i in range(count)]
    check(
        case(op, np.random.default_rng(3), "bidirectional", options, lambda: True), imported, model
    )


@pytest.mark.parametrize("name", ["LeakyRelu", "HardSigmoid", "Elu"])
def test_factors_have_defaults(name: str, imported: Any, model: Any) -> None:
    check(
        case("RNN", np.random.default_rng(5), "forward", {"activations": [name]}, lambda: True),
        imported,
        model,
    )


def test_defaults_of_onnx_where_its_runtime_has_others(imported: Any, model: Any) -> None:
    """The operators ThresholdedRelu and Affine give alpha 1 and beta 0; ONNX Runtime takes 0 here."""
    for name, factors in (("ThresholdedRelu", ([1.0], [])), ("Affine", ([1.0], [0.0]))):
        rng = np.random.default_rng(6)
        short = case("RNN", rng, "forward", {"activations": [name]}, lambda: True)
        given = {
            k: v for k, v in zip(("activation_alpha", "activation_beta"), factors, strict=True) if v
        }
        whole = Case(
            "RNN", short.arrays, {**short.attrs, **given}, (0, 1), short.constants, domain=""
        )
        check(
            short,
            imported,
            model,
            by_onnx_runtime(whole.model(model, False), whole.names, whole.feed),
        )


@pytest.mark.parametrize("op", GATES)
def test_symbolic_steps_and_batch(op: str, imported: Any, model: Any) -> None:
    rng = np.random.default_rng(8)
    c = case(op, rng, "bidirectional", {}, lambda: True)
    c.arrays[0] = 0.7 * rng.standard_normal((11, 7, c.arrays[0].shape[2]), F32)  # type: ignore[index]
    c.arrays[4] = rng.integers(1, 12, 7).astype(np.int32)  # type: ignore[index]
    for i in range(5, 7 if op == "LSTM" else 6):
        c.arrays[i] = rng.standard_normal((2, 7, c.attrs["hidden_size"]), F32)  # type: ignore[index]
    named = {11: "steps", 7: "batch"}
    check(Case(op, c.arrays, c.attrs, c.outputs, c.constants, named, domain=""), imported, model)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_batch_first(op: str, direction: str, imported: Any, model: Any) -> None:
    """ONNX Runtime's CPU has no kernel for layout 1: the same as layout 0 with axes swapped."""
    c = case(op, np.random.default_rng(9), direction, {}, lambda: True)
    y, *last = by_onnx_runtime(c.model(model, False), c.names, c.feed)
    arrays = [
        a.swapaxes(0, 1) if i in (0, 5, 6) and a is not None else a for i, a in enumerate(c.arrays)
    ]
    turned = Case(
        op, arrays, {**c.attrs, "layout": 1}, c.outputs, c.constants, domain="", tolerance=1e-4
    )
    check(turned, imported, model, [y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in last)])


def test_a_sample_without_steps_hands_its_states_on(imported: Any, model: Any) -> None:
    """ONNX does not say; ONNX Runtime does so with c, but not with h."""
    c = case("LSTM", np.random.default_rng(10), "forward", {}, lambda: True)
    c.arrays[4][...] = 0
    y, h, last = by_converter(c, imported, model, False)
    assert not y.any()
    assert np.array_equal(h, c.arrays[5])
    assert np.array_equal(last, c.arrays[6])


@pytest.mark.parametrize("seed", range(60))
def test_the_kernel_takes_every_combination(seed: int, imported: Any, model: Any) -> None:
    for op in GATES:
        c = random_case(op, seed)
        weights = frozenset(i for i in (1, 2, 3) if c.arrays[i] is not None)
        whole = Case(op, c.arrays, c.attrs, c.outputs, weights, domain="")
        (node,) = (n for n in imported(whole.model(model, False)).nodes if n.layer.name == op)
        offered = asked.variants(
            CpuRecurrentTactic(),
            node,
            DeviceProperties("cpu", "generic", frozenset(), 128, cores=2),
        )
        assert isinstance(offered, list)


REFUSED = [
    ({"activations": ["Tanh", "Tanh"]}, {}, "2 activations"),
    ({"activations": ["Swish"]}, {}, "no activation 'swish'"),
    ({"activations": ["ScaledTanh"]}, {}, "no default"),
    ({"activations": ["ScaledTanh"], "activation_alpha": [0.5]}, {}, "no default"),
    ({"direction": "sideways"}, {}, "sideways"),
    ({}, {3: (1, 7)}, "bias"),
    ({}, {4: (9,)}, "lengths"),
    ({}, {5: (1, 9, 1)}, "initial state"),
    ({}, {5: (9,)}, "initial state f32"),
]


@pytest.mark.parametrize(("attrs", "shapes", "what"), REFUSED, ids=[r for *_, r in REFUSED])
def test_wrong_options_and_shapes_are_errors(
    attrs: dict[str, Any], shapes: dict[int, Any], what: str, imported: Any, model: Any
) -> None:
    c = case("RNN", np.random.default_rng(12), "forward", {}, lambda: True)
    arrays = [np.zeros(shapes[i], a.dtype) if i in shapes else a for i, a in enumerate(c.arrays)]
    wrong = Case("RNN", arrays, {**c.attrs, **attrs}, (0, 1), c.constants, domain="")
    with pytest.raises(TactixError, match=what):
        imported(wrong.model(model, False))
