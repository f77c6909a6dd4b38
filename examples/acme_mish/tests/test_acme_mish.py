"""The pack's own test: needs tactix and the pack installed."""

from __future__ import annotations

import numpy as np
import pytest
from acme_mish import mish

import tactix
from tactix_sdk.testing import PackTests


class TestPack(PackTests):
    pack = "acme-mish"


def mish_float64(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide * np.tanh(np.logaddexp(0, wide))


def test_reference_is_mish() -> None:
    x = np.array([-30, -5, -1, -0.0, 0.5, 3, 20], np.float32)
    (y,) = mish.reference(mish.Attrs(), x)
    np.testing.assert_allclose(y, mish_float64(x), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("source", ["c", "numpy"])
def test_engine_gives_mish(source: str) -> None:
    builder = tactix.Builder()
    network = builder.create_network("mish")
    x = network.add_input("x", "f32", ("n", 17))
    (y,) = network.add_layer("acme.Mish", [x])
    network.mark_output(y, "y")
    config = tactix.BuilderConfig(tactic_sources={source}, timing_cache=False)
    engine = builder.build(network, config)
    values = np.random.default_rng(0).normal(0, 4, (3, 17)).astype(np.float32)
    np.testing.assert_allclose(engine(values), mish_float64(values), rtol=1e-5, atol=1e-6)
