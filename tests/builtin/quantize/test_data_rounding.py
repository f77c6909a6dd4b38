"""Weights rounded by data lose less than those that are rounded to the nearest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tactix
from tactix.base.arrays import Array
from tactix_quantize.data_rounding import Moments, SharedInput, awq_scales, gptq
from tactix_quantize.weight_blocks import FewBits, WeightBlocks, in_blocks
from tactix_tools import cli

WIDTH, HIDDEN, LAYERS = 64, 96, 3
KINDS = [FewBits(4, 32, True), FewBits(4, 32, False), FewBits(4, 16, True), FewBits(8, 64, True)]


def activations(rows: int, seed: int, width: int = WIDTH) -> Array:
    """Correlated rows of which few channels are large, as in transformers."""
    mix = np.random.default_rng(1).standard_normal((12, width))
    size = np.exp(1.5 * np.random.default_rng(2).standard_normal(width))
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 12)) @ mix + 0.3 * rng.standard_normal((rows, width))
    return (x * size).astype(np.float32)


def weights(k: int, n: int, seed: int = 3) -> Array:
    return (np.random.default_rng(seed).standard_normal((k, n)) / k**0.5).astype(np.float32)


def restored(blocks: WeightBlocks, kind: FewBits, k: int) -> Array:
    """The weights (K, N) that blocks stand for."""
    if kind.bits == 8:
        whole, zeros = blocks.packed.astype(float), blocks.zeros
    else:
        whole, zeros = (
            None if x is None else np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], -1).astype(float)
            for x in (blocks.packed, blocks.zeros)
        )  # fmt: skip
    assert whole is not None
    middle = 1 << kind.bits - 1 if zeros is None else zeros[:, : whole.shape[1], None]
    w = (whole - middle) * blocks.scales[..., None]
    out: Array = w.reshape(len(w), -1)[:, :k].T
    return out


def moments(x: Array) -> Moments:
    made = Moments.of(x.shape[1])
    for part in np.array_split(x, 3):
        made.add(part)
    return made


def loss(x: Array, w: Array, rounded: Array) -> float:
    y = x.astype(np.float64) @ w
    return float(np.square(x.astype(np.float64) @ rounded - y).sum() / np.square(y).sum())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("k", [64, 72])
def test_gptq_loses_less_on_rows_that_it_has_not_seen(kind: FewBits, k: int) -> None:
    w, x = weights(k, 40), activations(512, 5, k)
    nearest = loss(x, w, restored(in_blocks(w, kind), kind, k))
    found = loss(x, w, restored(gptq(w, moments(activations(512, 4, k)), kind), kind, k))
    assert found < 0.6 * nearest


@pytest.mark.parametrize("kind", KINDS[:3], ids=str)
def test_awq_loses_less_on_rows_that_it_has_not_seen(kind: FewBits) -> None:
    w, x = weights(WIDTH, 40), activations(512, 5)
    shared = SharedInput(moments(activations(512, 4)), [lambda: w])
    s = awq_scales(shared, kind)
    nearest = loss(x, w, restored(in_blocks(w, kind), kind, WIDTH))
    scaled = restored(in_blocks(w * s[:, None], kind), kind, WIDTH) / s[:, None]
    assert loss(x, w, scaled) < 0.8 * nearest


def test_without_correlation_nothing_is_lost_by_it() -> None:
    """Moments of independent channels leave every weight at its nearest integer."""
    kind, w = FewBits(), weights(64, 8)
    made, plain = gptq(w, Moments(np.eye(64), np.ones(64), 64), kind), in_blocks(w, kind)
    assert np.array_equal(made.packed, plain.packed)
    assert np.array_equal(made.scales, plain.scales)


def test_channels_that_are_never_read_and_rows_that_are_not_finite() -> None:
    x = activations(64, 4)
    x[:, 5] = 0
    x[3, 7] = np.inf
    m = moments(x)
    assert m.rows == 63
    for made in (gptq(weights(WIDTH, 8), m, FewBits()), gptq(weights(WIDTH, 8), m, FewBits())):
        assert np.isfinite(made.scales).all()
    assert awq_scales(SharedInput(m, [lambda: weights(WIDTH, 8)]), FewBits()).min() > 0


def stack(path: Path) -> str:
    """Feed-forward layers whose two first products read one tensor, each behind a residual sum."""
    nodes, stored, x = [], [], "x"
    for i in range(LAYERS):
        for name, shape in (
            ("up", (WIDTH, HIDDEN)),
            ("gate", (WIDTH, HIDDEN)),
            ("down", (HIDDEN, WIDTH)),
        ):
            stored.append(
                numpy_helper.from_array(weights(*shape, seed=10 * i + len(name)), f"{name}{i}")
            )
        nodes += [
            helper.make_node("MatMul", [x, f"up{i}"], [f"u{i}"], f"up_{i}"),
            helper.make_node("MatMul", [x, f"gate{i}"], [f"g{i}"], f"gate_{i}"),
            helper.make_node("Sigmoid", [f"g{i}"], [f"s{i}"], f"sigmoid_{i}"),
            helper.make_node("Mul", [f"u{i}", f"s{i}"], [f"h{i}"], f"mul_{i}"),
            helper.make_node("MatMul", [f"h{i}", f"down{i}"], [f"d{i}"], f"down_{i}"),
            helper.make_node("Add", [x, f"d{i}"], [f"x{i}"], f"sum_{i}"),
        ]
        x = f"x{i}"
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH])] for name in ("x", x)
    ]
    graph = helper.make_graph(nodes, "stack", *ends, stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, path)
    return str(path)


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Of the outputs of a stack on rows that were no samples, by method."""
    folder = tmp_path_factory.mktemp("stack")
    model, x = stack(folder / "m.onnx"), activations(256, 6)
    np.save(folder / "samples.npy", activations(512, 4))
    with np.errstate(over="ignore", invalid="ignore"):  # the sigmoid of the onnx package
        want = np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])
    found = {}
    for method in ("rtn", "gptq", "awq"):
        out = str(folder / f"{method}.onnx")
        words = ["quantize", model, "-o", out, "--weights", "int4", "--method", method, "--quiet"]
        words += [] if method == "rtn" else ["--data", str(folder / "samples.npy")]
        assert cli.main(words) == 0
        got = tactix.build(out, level=0, timing_cache=False)(x)
        base = np.square(want - x).sum()
        found[method] = float(np.square(got - want).sum() / base)
    return found


@pytest.mark.parametrize(("method", "most"), [("gptq", 0.6), ("awq", 0.8)])
def test_the_outputs_of_a_stack_are_nearer(
    errors: dict[str, float], method: str, most: float
) -> None:
    assert errors[method] < most * errors["rtn"]


def test_what_is_missing_or_contradicts_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = stack(tmp_path / "m.onnx"), str(tmp_path / "q.onnx")
    words = ["quantize", model, "-o", out]
    assert cli.main([*words, "--weights", "int4", "--method", "gptq"]) == cli.USAGE
    assert "needs --data" in capsys.readouterr().err
    assert cli.main([*words, "--random", "1", "--method", "awq"]) == cli.USAGE
    assert "for --weights" in capsys.readouterr().err
