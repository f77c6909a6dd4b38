"""The pack's own test: needs tactix and the pack installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from acme_dla import limits
from acme_dla.device import Accelerator

import tactix
from tactix.config import BuilderFlag
from tactix_sdk import errors
from tactix_sdk.testing import PackTests

RNG = np.random.default_rng(4)


class TestPack(PackTests):
    pack = "acme-dla"


class Net:
    """Convolution, Relu, then Softmax, which the accelerator lacks, then a product by two; as often
    as wanted.

    ``times`` 0: a convolution alone.
    """

    def __init__(
        self,
        dtype: str = "f16",
        times: int = 1,
        shape: tuple[Any, ...] = (1, 3, 8, 8),
        kernel: int = 3,
    ) -> None:
        self.builder = tactix.Builder()
        self.network = net = self.builder.create_network("net")
        kind = np.float16 if dtype == "f16" else np.float32
        self.w = (RNG.standard_normal((3, 3, kernel, kernel)) / 5).astype(kind)
        y = net.add_input("x", dtype, shape)
        side = kernel // 2
        if not times:
            (y,) = net.add_layer(
                "tactix.Convolution", [y, net.add_constant(self.w)], "conv0", pads=(side,) * 4
            )
        for i in range(times):
            (y,) = net.add_layer(
                "tactix.Convolution", [y, net.add_constant(self.w)], f"conv{i}", pads=(side,) * 4
            )
            (y,) = net.add_layer("tactix.Relu", [y], f"relu{i}")
            (y,) = net.add_layer("tactix.Softmax", [y], f"soft{i}", axis=1)
            (y,) = net.add_layer(
                "tactix.Mul", [y, net.add_constant(np.array(2, kind))], f"twice{i}"
            )
        net.mark_output(y, "y")

    def plan(self, *flags: BuilderFlag, level: int = 1) -> Any:
        config = tactix.BuilderConfig(
            device="acme_dla.dla@1",
            flags=set(flags),
            builder_optimization_level=level,
            timing_cache=False,
        )
        config.enable("acme_dla")
        return self.builder.build_plan(self.network, config)

    def expected(self, x: Any) -> Any:
        from tactix_sdk.evaluate import evaluate

        return evaluate(self.network, {"x": x})["y"]


def where(plan: Any) -> list[tuple[str, bool]]:
    """Steps in order, and whether the accelerator runs them."""
    return [(s.name, s.artifact.launcher == "acme_dla.subgraph@1") for s in plan.steps]


def check(plan: Any, net: Net, dtype: Any = np.float16) -> None:
    x = RNG.standard_normal(tuple(net.network.inputs[0].spec.shape)).astype(dtype)
    engine = tactix.Runtime().load(plan)
    np.testing.assert_allclose(
        engine(x).astype("f"), net.expected(x).astype("f"), rtol=2e-2, atol=2e-3
    )


def test_what_it_lacks_runs_on_the_host_between_subgraphs() -> None:
    net = Net(times=2)
    plan = net.plan()
    assert where(plan) == [
        ("conv0 + relu0", True),
        ("soft0 + twice0", False),
        ("conv1 + relu1", True),
        ("soft1 + twice1", False),
    ]
    check(plan, net)


def test_without_fallback_the_layer_and_the_reason_are_named() -> None:
    with pytest.raises(errors.TactixError, match=r"soft0.*the DLA has no Softmax.*NO_FALLBACK"):
        Net().plan(BuilderFlag.NO_FALLBACK)


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (Net("f32"), r"conv0.*float16 and int8, not in f32"),
        (Net(shape=("n", 3, 8, 8)), r"conv0.*takes fixed shapes"),
        (
            Net(kernel=33, shape=(1, 3, 40, 40)),
            r"conv0.*windows of up to 32 by 32, not of 33 by 33",
        ),
    ],
)
def test_what_it_does_not_take_is_said(net: Net, why: str) -> None:
    with pytest.raises(errors.TactixError, match=why):
        net.plan(BuilderFlag.NO_FALLBACK)


def test_a_float32_network_is_stored_in_float16_where_the_flag_allows_it() -> None:
    net = Net("f32")
    plan = net.plan(BuilderFlag.FP16)
    assert any("conv0" in name for name, here in where(plan) if here)
    assert all("soft0" not in name for name, here in where(plan) if here)
    check(plan, net, np.float32)


def test_a_network_that_it_takes_whole_in_float16_needs_no_fallback() -> None:
    net = Net("f32", times=0)
    plan = net.plan(BuilderFlag.FP16, BuilderFlag.NO_FALLBACK)
    assert all(here for _, here in where(plan))
    check(plan, net, np.float32)


def test_eight_bits() -> None:
    builder = tactix.Builder()
    net = builder.create_network("pool")
    x = net.add_input("x", "i8", (2, 3, 9, 8))
    net.mark_output(
        *net.add_layer("tactix.MaxPool", [x], "pool", kernel_shape=(3, 2), strides=(2, 2)), name="y"
    )
    config = tactix.BuilderConfig(device="acme_dla.dla@1", timing_cache=False)
    config.enable("acme_dla")
    values = RNG.integers(-128, 128, (2, 3, 9, 8)).astype(np.int8)
    windows = np.lib.stride_tricks.sliding_window_view(values, (3, 2), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(builder.build(net, config)(values), windows.max((4, 5)))


def test_subgraphs_beyond_the_limit_go_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SUBGRAPHS", 2)
    net = Net(times=4)
    plan = net.plan()
    here = [h for _, h in where(plan)]
    assert sum(a and not b for a, b in zip(here, [False, *here], strict=False)) == 2
    assert any(
        "beyond the 2 largest" in str(c)
        for node in plan.ledger["nodes"].values()
        for c in node["candidates"]
    )
    check(plan, net)


def test_a_plan_with_too_many_subgraphs_is_refused_where_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Net(times=3)
    plan = net.plan()
    monkeypatch.setattr(limits, "SUBGRAPHS", 2)
    with pytest.raises(errors.ExecutionError, match="room for 2"):
        tactix.Runtime().load(plan)(np.zeros((1, 3, 8, 8), np.float16))


def test_a_plan_goes_through_its_file_and_names_the_pack(tmp_path: Any) -> None:
    net = Net()
    engine = tactix.Runtime().load(net.plan())
    engine.save(tmp_path / "dla.plan")
    loaded = tactix.load(tmp_path / "dla.plan")
    x = RNG.standard_normal((1, 3, 8, 8)).astype(np.float16)
    np.testing.assert_array_equal(loaded(x), engine(x))
    assert {r.dist for r in loaded.plan.requirements} >= {"acme-dla"}


def test_times_are_the_data_sheets() -> None:
    plan = Net().plan()
    step = next(s for s in plan.steps if "conv0" in s.name)
    assert step.info["seconds"] == pytest.approx(limits.seconds(2 * (2 * 3 * 64 + 81)), rel=0.5)
    assert Accelerator().properties().facts == {"subgraphs": 16}
