"""Products of bytes race with products of floats: which win hangs on the processor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kept_log import KeptLog

import tactix
from tactix.base.dtypes import DType
from tactix.config import BuilderConfig
from tactix.contracts.rule import RIVAL, Rule
from tactix.network.definition import NetworkDefinition
from tactix.pipeline import settle
from tactix.plan import container
from tactix_lock import frozen
from tactix_ops.rules import processor_rules
from tactix_sdk.evaluate import evaluate

pytestmark = pytest.mark.compiler
RIVALS = [r for r in processor_rules() if r.phase == RIVAL]
SETTINGS = BuilderConfig(builder_optimization_level=0, timing_cache=False, threads=1)


def convolution(builder: tactix.Builder) -> NetworkDefinition:
    """Bytes, their product with a window of bytes, and bytes again."""
    rng, net = np.random.default_rng(0), builder.create_network("bytes")
    w = net.add_constant(rng.integers(-128, 128, (32, 32, 3, 3)).astype(np.int8))
    (y,) = net.add_layer(
        "tactix.IntegerConvolution", [net.add_input("x", "u8", (1, 32, 16, 16)), w], pads=(1,) * 4
    )
    (y,) = net.add_layer("tactix.Cast", [y], to=DType.FP32)
    (y,) = net.add_layer("tactix.Mul", [y, net.add_constant(np.float32(1 / 4096))])
    net.mark_output(net.add_layer("tactix.Quantize", [y], zero=5, dtype=DType.UINT8)[0], "y")
    return net


def estimate(monkeypatch: pytest.MonkeyPatch, bytes_: float, floats: float) -> None:
    """Let kernels of bytes and others be estimated to take so long."""
    bid = settle.bid

    def told(*given: Any) -> Any:
        found = bid(*given)
        for c in found.candidates:
            of_bytes = "tactix.IntegerConvolution@1" in c.tactic.implements
            c.estimate = bytes_ if of_bytes else floats
        return found

    monkeypatch.setattr(settle, "bid", told)


@pytest.mark.parametrize(("bytes_", "floats"), [(5e-5, 1e-5), (1e-5, 1.5e-5), (1e-6, 1e-5)])
def test_the_faster_form_is_taken(
    monkeypatch: pytest.MonkeyPatch, bytes_: float, floats: float
) -> None:
    builder = tactix.Builder(KeptLog())
    net = convolution(builder)
    estimate(monkeypatch, bytes_, floats)
    plan = builder.build_plan(net, SETTINGS)
    won = bytes_ > 2 * floats
    assert [o["rules"] for o in plan.ledger["fusion"]["outrun"]] == (
        [["tactix.floats_for_byte_convolution"]] if won else []
    )
    x = np.random.default_rng(1).integers(0, 256, (1, 32, 16, 16)).astype(np.uint8)
    got = builder.build(net, SETTINGS)(x)
    np.testing.assert_array_equal(got, evaluate(net, {"x": x})["y"])


def test_a_lock_knows_which_form_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = tactix.Builder(KeptLog())
    net = convolution(builder)
    estimate(monkeypatch, 5e-5, 1e-5)
    lock = frozen.make(builder, net, SETTINGS)
    assert len(lock.choices.outrun) == 1
    monkeypatch.undo()
    plan = builder.build_plan(net, frozen.settings(builder.session, lock, net, SETTINGS))
    assert container.digest(plan).hex() == lock.plan


@pytest.mark.parametrize("rule", RIVALS, ids=lambda r: r.key)
def test_every_form_gives_the_same_numbers(rule: Rule) -> None:
    from tactix.fuse.rewrite import fuse

    net = tactix.Builder(KeptLog()).create_network("example")
    assert rule.example is not None
    rule.example(net)
    made, trace = fuse(net, [rule], rule.phases)
    assert trace.counts == {rule.key: 1}
    rng = np.random.default_rng(2)
    inputs = {
        v.name: rng.integers(-128, 127, [d if isinstance(d, int) else 2 for d in v.spec.shape])
        .astype(np.int8)
        .view(v.spec.dtype.numpy)
        for v in net.inputs
    }
    np.testing.assert_array_equal(evaluate(made, inputs)["y"], evaluate(net, inputs)["y"])
