"""Networks of float16 weights and tensors run in machine code on any processor, and give the
references' numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from strategies import builder

import tactix
from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError
from tactix.select.accuracy import departure
from tactix_cpu.features import MASK
from tactix_sdk.evaluate import evaluate

HALF = np.float16
RNG = np.random.default_rng(31)
OLDER = ("", "-avx512*", "-f16c", "-avx*")
"""Masks of features: this processor's own, and older ones without vectors or conversions."""


def halves(*shape: int) -> Any:
    return (RNG.standard_normal(shape) / 3).astype(HALF)


Make = Callable[[Any], Any]


def layer(
    name: str, shape: tuple[Any, ...], *constants: Any, outputs: int = 1, **attrs: Any
) -> Make:
    """One layer over an input ``x`` of that shape and constants."""

    def make(net: Any) -> None:
        given = [c if c is None else net.add_constant(c) for c in constants]
        made = net.add_layer(f"tactix.{name}", [net.add_input("x", "f16", shape), *given], **attrs)
        for i in range(outputs):
            net.mark_output(made[i], f"y{i}")

    return make


def of_inputs(name: str, *shapes: tuple[Any, ...], **attrs: Any) -> Make:
    """One layer over inputs alone."""

    def make(net: Any) -> None:
        given = [net.add_input(f"x{i}", "f16", s) for i, s in enumerate(shapes)]
        net.mark_output(net.add_layer(f"tactix.{name}", given, **attrs)[0], "y")

    return make


def residual(net: Any) -> None:
    """A stem, a block around which its input is added, a depthwise product, and a head."""
    x = net.add_input("x", "f16", ("n", 3, 9, 7))

    def conv(x: Any, *shape: int, **attrs: Any) -> Any:
        w, b = net.add_constant(halves(*shape)), net.add_constant(halves(shape[0]))
        return net.add_layer("tactix.Convolution", [x, w, b], **attrs)[0]

    def one(name: str, *inputs: Any, **attrs: Any) -> Any:
        return net.add_layer(f"tactix.{name}", inputs, **attrs)[0]

    x = one("Relu", conv(x, 17, 3, 3, 3, pads=(1, 1, 1, 1)))
    x = one("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))
    y = one("Relu", conv(x, 17, 17, 3, 3, pads=(1, 1, 1, 1)))
    x = one("Add", conv(y, 17, 17, 1, 1), x)
    x = one("Relu", conv(x, 17, 1, 3, 3, group=17, pads=(1, 1, 1, 1)))
    x = one("Reshape", one("GlobalAveragePool", x), shape=(x.spec.shape[0], 17))
    net.mark_output(one("MatMul", x, net.add_constant(halves(17, 5))), "y")


def transformer(net: Any) -> None:
    """Attention behind a LayerNormalization, and a residual."""
    x = net.add_input("x", "f16", ("n", "t", 24))
    s, b = net.add_constant(halves(24)), net.add_constant(halves(24))
    (y,) = net.add_layer("tactix.LayerNormalization", [x, s, b])[:1]
    q, k, v = (
        net.add_layer(
            "tactix.Transpose",
            [
                net.add_layer(
                    "tactix.Reshape",
                    [net.add_layer("tactix.MatMul", [y, net.add_constant(halves(24, 24))])[0]],
                    shape=(*x.spec.shape[:2], 3, 8),
                )[0]
            ],
            perm=(0, 2, 1, 3),
        )[0]
        for _ in range(3)
    )
    (a,) = net.add_layer("tactix.Attention", [q, k, v], scale=0.3)
    (a,) = net.add_layer("tactix.Transpose", [a], perm=(0, 2, 1, 3))
    (a,) = net.add_layer("tactix.Reshape", [a], shape=x.spec.shape)
    (z,) = net.add_layer("tactix.MatMul", [a, net.add_constant(halves(24, 24))])
    net.mark_output(net.add_layer("tactix.Add", [x, z])[0], "y")


IMAGE = ("n", 5, 7, "w")
BIAS = RNG.standard_normal(6).astype(np.float32)
GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
NETWORKS: Mapping[str, Make] = {
    "conv": layer("Convolution", IMAGE, halves(6, 5, 3, 3), halves(6), pads=(1, 1, 1, 1)),
    "conv strided": layer("Convolution", IMAGE, halves(6, 5, 3, 3), strides=(2, 2)),
    "conv 1d": layer("Convolution", ("n", 5, "w"), halves(6, 5, 3), halves(6)),
    "conv 3d": layer("Convolution", ("n", 3, 4, 5, "w"), halves(4, 3, 2, 2, 2)),
    "depthwise": layer("Convolution", IMAGE, halves(5, 1, 3, 3), group=5),
    "conv of computed weights": of_inputs("Convolution", IMAGE, (6, 5, 3, 3)),
    "transposed": layer("ConvTranspose", IMAGE, halves(5, 6, 3, 3), halves(6), strides=(2, 2)),
    "transposed apart": layer("ConvTranspose", IMAGE, halves(5, 6, 2, 2), strides=(2, 2)),
    "matmul": layer("MatMul", ("n", 3, 33), halves(33, 17)),
    "matmul of two": of_inputs("MatMul", ("n", "w", 9), ("n", 9, 5)),
    "vectors": of_inputs("MatMul", (19,), (19, "w")),
    "gemm": layer("Gemm", ("n", 33), halves(17, 33), halves(17), transB=True, alpha=0.5, beta=2.0),
    "wide conv": layer("WideConvolution", IMAGE, halves(6, 5, 3, 3), BIAS),
    "wide transposed": layer("WideConvTranspose", IMAGE, halves(5, 6, 2, 2), BIAS, strides=(2, 2)),
    "wide matmul": layer("WideMatMul", ("n", 3, 33), halves(33, 6), BIAS),
    "attention": of_inputs("Attention", *(("n", 2, "w", 8),) * 3, scale=0.3),
    **{
        name.lower(): layer(
            name,
            ("t", "n", 9),
            halves(1, gates * 6, 9),
            halves(1, gates * 6, 6),
            outputs=2,
            hidden_size=6,
        )
        for name, gates in GATES.items()
    },
    "residual": residual,
    "transformer": transformer,
}


def engine_of(make: Make, level: int = 0) -> Any:
    """An engine none of whose steps is a reference, and its network."""
    b = builder()
    net = b.create_network()
    make(net)
    config = tactix.BuilderConfig(
        flags={tactix.BuilderFlag.NO_FALLBACK},
        builder_optimization_level=level,
        timing_cache=False,
    )
    engine = b.build(net, config)
    assert {s.info["source"] for s in engine.plan.steps} <= {"c", "winograd", "view"}
    return engine, net


def feed_of(net: Any, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    env = {"n": 2, "w": 7, "t": 3, **sizes}
    return {v.name: rng.standard_normal(v.spec.at(env)).astype(HALF) for v in net.inputs}


def check(engine: Any, net: Any, feed: Mapping[str, Any], steps: float = 4.0) -> None:
    """Within some roundings of the references' numbers, and no number where those have none."""
    got = engine(feed)
    got = got if isinstance(got, dict) else {engine.outputs[0].name: got}
    with np.errstate(all="ignore"):
        want = evaluate(net, feed)
    for name, y in want.items():
        assert (got[name].dtype, got[name].shape) == (y.dtype, y.shape), name
        finite = np.isfinite(y)
        np.testing.assert_array_equal(got[name][~finite], y[~finite])
        far = departure(np.where(finite, got[name], 0), np.where(finite, y, 0), DType.FP16)
        assert far <= steps, name


@pytest.mark.parametrize("name", NETWORKS)
def test_no_step_is_a_reference(name: str) -> None:
    engine, net = engine_of(NETWORKS[name])
    for sizes in ({}, {"n": 1, "w": 33, "t": 1}, {"n": 3, "w": 16, "t": 5}):
        check(engine, net, feed_of(net, sizes))


@pytest.mark.parametrize("name", [n for n in NETWORKS if n != "vectors"])
def test_batches_may_be_empty(name: str) -> None:
    engine, net = engine_of(NETWORKS[name])
    check(engine, net, feed_of(net, {"n": 0}))


@pytest.mark.parametrize("mask", OLDER)
def test_processors_without_the_instructions_run_them(
    mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        monkeypatch.setenv(MASK, mask)
        builder().session.devices["tactix.cpu@1"].properties()
    except ConfigError as e:
        pytest.skip(str(e))
    for name in ("conv", "matmul", "lstm", "residual", "transformer"):
        engine, net = engine_of(NETWORKS[name])
        check(engine, net, feed_of(net, {"n": 3}))


@pytest.mark.parametrize("name", ["matmul", "wide matmul", "conv", "gemm"])
def test_what_float16_cannot_hold_is_infinite_and_no_number_stays_none(name: str) -> None:
    """The sum of a product is float32: only its rounding goes to infinity."""
    engine, net = engine_of(NETWORKS[name])
    feed = feed_of(net, {"n": 4})
    x = feed["x"]
    x[0] = np.sign(x[0]) * 60000
    x[1].flat[3] = np.nan
    x[2].flat[5] = np.inf
    check(engine, net, feed)


def test_sums_beyond_float16_are_rounded_once_they_are_complete() -> None:
    """40000 + 40000 - 40000 is 40000."""
    engine, _ = engine_of(layer("MatMul", ("n", 3), np.array([[1], [1], [-1]], HALF)))
    x = np.full((2, 3), 40000, HALF)
    np.testing.assert_array_equal(engine(x), np.full((2, 1), 40000, HALF))


def test_a_rounding_between_two_products_shows() -> None:
    """1 + 2**-11 is rounded to 1 before the second product multiplies what is left by 2**11."""

    def make(net: Any) -> None:
        x = net.add_input("x", "f16", (1, 2))
        a = net.add_constant(np.array([[1, 1], [1, 0]], HALF))
        b = net.add_constant(np.array([[2048], [-2048]], HALF))
        (y,) = net.add_layer("tactix.MatMul", [x, a])
        net.mark_output(net.add_layer("tactix.MatMul", [y, b])[0], "y")

    engine, _ = engine_of(make)
    x = np.array([[1, 2.0**-11]], HALF)
    np.testing.assert_array_equal(engine(x), [[0]])


def test_measured_candidates_pass_the_gate() -> None:
    for name in ("residual", "transformer"):
        engine, net = engine_of(NETWORKS[name], 1)
        check(engine, net, feed_of(net, {"n": 3}))


def test_bfloat16_runs_where_it_has_no_kernel_of_its_own() -> None:
    def make(net: Any) -> None:
        q, k, v = (net.add_input(n, "bf16", ("n", 2, "w", 8)) for n in "qkv")
        (y,) = net.add_layer("tactix.Attention", [q, k, v], scale=0.3)
        (t,) = net.add_layer("tactix.Transpose", [y], perm=(0, 1, 3, 2))
        net.mark_output(net.add_layer("tactix.MatMul", [q, t])[0], "y")
        w = net.add_constant(halves(3, 2, 3, 3).astype(DType.BF16.numpy))
        net.mark_output(net.add_layer("tactix.Convolution", [y, w], pads=(1, 1, 1, 1))[0], "c")

    engine, net = engine_of(make)
    rng = np.random.default_rng(8)
    feed = {n: rng.standard_normal((3, 2, 9, 8)).astype(DType.BF16.numpy) for n in "qkv"}
    got = engine(feed)
    for name, want in evaluate(net, feed).items():
        assert departure(got[name], want, DType.BF16) <= 2, name
