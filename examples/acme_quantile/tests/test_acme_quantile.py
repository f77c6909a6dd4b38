"""The pack's own test: needs tactix and the pack installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acme_quantile.calibrator import Quantile
from acme_quantile.observe import observe

import tactix
from tactix.plugins.session import Session
from tactix_sdk import errors
from tactix_sdk.testing import PackTests

RNG = np.random.default_rng(6)


class TestPack(PackTests):
    pack = "acme-quantile"


def ranges(*batches: Any, share: float = 0.99) -> tuple[float, float]:
    made = Quantile(share=share)
    for b in batches:
        made.observe("x", b)
    return made.ranges()["x"]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_ranges_are_the_quantiles(share: float) -> None:
    x = RNG.standard_normal(200_000).astype(np.float32) * 3 + 1
    want = np.quantile(x, [(1 - share) / 2, 1 - (1 - share) / 2])
    np.testing.assert_allclose(ranges(x, share=share), want, atol=2 * 32 / 4096)


def test_the_order_and_the_size_of_batches_do_not_matter() -> None:
    x = (RNG.standard_normal(9999) * np.exp(RNG.standard_normal(9999) * 3)).astype(np.float32)
    x[:7] = 0, 1, 2, 4, -1, -2, -64
    want = ranges(x)
    assert ranges(*np.split(np.sort(x), 9)) == want
    assert ranges(*np.split(np.sort(x)[::-1], 101)) == want
    assert ranges(np.zeros(0), x[:1], x[1:]) == want


def test_all_values_and_odd_ones() -> None:
    assert ranges(np.array([3.0, -7.5, np.nan, np.inf, 1]), share=1.0) == (-7.5, 3.0)
    assert ranges(np.zeros(5)) == (0.0, 0.0)
    assert ranges(np.full(5, 0.1), share=1.0) == (0.1, 0.1)
    assert Quantile().ranges() == {}
    nothing = Quantile()
    nothing.observe("x", np.array([np.nan]))
    assert nothing.ranges() == {}
    with pytest.raises(errors.InvalidArgument, match="share of 0"):
        Quantile(share=0)


def rounded(x: Any, low: float, high: float) -> Any:
    """x in 8 bits, symmetric."""
    scale = max(-low, high) / 127
    return np.clip(np.rint(x / scale), -127, 127) * scale


def test_eight_bits_lose_less_than_by_the_maximum_where_values_are_rare() -> None:
    x = RNG.standard_normal(100_000)
    x[:3] = 400, -700, 90
    by_quantile, by_maximum = (
        rounded(x[3:], *r) for r in (ranges(x, share=0.9999), (x.min(), x.max()))
    )
    errors_ = [np.abs(y - x[3:]).mean() for y in (by_quantile, by_maximum)]
    assert errors_[0] < errors_[1] / 50


def test_it_sees_every_activation_of_a_network() -> None:
    net = tactix.Builder().create_network("n")
    x = net.add_input("x", "f32", ("n", 4))
    (y,) = net.add_layer(
        "tactix.MatMul", [x, net.add_constant(2 * np.eye(4, dtype=np.float32))], "product"
    )
    (z,) = net.add_layer("tactix.Relu", [y], "relu")
    net.mark_output(z, "z")
    data = [{"x": RNG.standard_normal((n, 4)).astype(np.float32)} for n in (1, 5, 3)]
    found = observe(net, Quantile(data, share=1.0))
    low, high = min(b["x"].min() for b in data), max(b["x"].max() for b in data)
    assert found == {"x": (low, high), y.name: (2 * low, 2 * high), z.name: (0.0, 2 * high)}


def test_the_registry_has_it_under_its_key() -> None:
    assert (
        list(
            Session(only=["tactix", "acme_quantile"])
            .calibrators["acme_quantile.quantile"]
            .batches()
        )
        == []
    )
