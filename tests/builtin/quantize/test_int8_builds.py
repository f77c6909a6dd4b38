"""Builds in int8 of float32 networks, with data, with a cache, with ranges by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import quantized_networks as networks
from kept_log import KeptLog
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix import BuilderConfig, BuilderFlag, Calibration
from tactix.api import configure
from tactix.base.errors import BuildCancelled, ConfigError, InvalidArgument
from tactix.base.progress import SilentProgress
from tactix.builder import Builder
from tactix.network.definition import NetworkDefinition
from tactix_quantize.cache import decode, encode
from tactix_quantize.calibrators import MinMax
from tactix_quantize.stage import Int8Stage

FAST = {"level": 0, "timing_cache": False, "threads": 1}
PRODUCTS = {"stem", "first", "second", "side", "last", "head"}
TENSORS = ["x", "stem/relu", "first/relu", "second", "sum/relu", "flat"]
"""Tensors whose ranges are looked for."""


@pytest.fixture(scope="module")
def builder() -> Builder:
    return Builder()


def rewritten(builder: Builder, calibration: Calibration, **options: object) -> NetworkDefinition:
    """The network that the stage makes of ``networks.residual`` where all may be integers."""
    config = configure(None, precision="int8", calibration=calibration, **FAST)
    for pattern, precision in options.items():
        config.set_layer_precision(pattern, precision)
    part = Int8Stage().join(builder.session, config)
    return part.lower(part.network(networks.residual(builder)), lambda name: "").network


def reads_integers(net: NetworkDefinition) -> set[str]:
    """Names of products that read what was dequantised."""
    return {
        name
        for n in net.nodes
        for name in n.origin
        if name in PRODUCTS
        and n.layer.name in ("Convolution", "Gemm")
        and all(v.producer and v.producer.layer.name == "DequantizeLinear" for v in n.given[:2])
    }


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("calibrator", ["minmax", "entropy2", "tactix.entropy", "legacy"])
def test_results_are_near_those_of_floats(
    builder: Builder, calibrator: str, symmetric: bool
) -> None:
    calibration = Calibration(networks.samples(4), calibrator, symmetric=symmetric)
    floats = builder.build(networks.residual(builder), configure(None, **FAST))
    config = configure(None, precision="int8", calibration=calibration, **FAST)
    config.set_layer_precision("*", "int8")  # whatever the estimates of this machine say
    whole = builder.build(networks.residual(builder), config)
    kinds = Counter(key for s in whole.plan.steps for key in str(s.info).split("'"))
    assert sum(n for key, n in kinds.items() if "IntegerConvolution" in key) >= 5
    (x,) = networks.samples(1, seed=9)
    assert networks.decibels(whole(x), floats(x)) > 22


def test_products_and_what_is_around_them_read_integers(builder: Builder) -> None:
    net = rewritten(builder, Calibration(networks.samples(1)))
    assert reads_integers(net) == PRODUCTS
    by_name = {n.name: n for n in net.nodes}
    kinds = {n: by_name[n].given[0].producer.layer.name for n in ("pool", "first")}
    assert kinds == {"pool": "DequantizeLinear", "first": "DequantizeLinear"}
    before = [v.producer.layer.name for v in by_name["sum"].given]
    assert sorted(before) == ["Convolution", "DequantizeLinear"]
    assert not any(n.layer.name == "BatchNormalization" for n in net.nodes)


def test_a_cache_gives_the_same_network(builder: Builder, tmp_path: Path) -> None:
    cache = tmp_path / "it.cache"
    first = rewritten(builder, Calibration(networks.samples(2), "entropy2", cache))
    assert sorted(decode(cache.read_bytes())) == sorted(TENSORS)
    again = rewritten(builder, Calibration(None, "entropy2", cache))
    for a, b in zip(first.nodes, again.nodes, strict=True):
        for v, w in zip(a.given, b.given, strict=True):
            assert (v.const is None) == (w.const is None)
            assert v.const is None or v.array.tobytes() == w.array.tobytes()


def test_a_cache_of_tensorrt_and_ranges_by_hand_set_scales(
    builder: Builder, tmp_path: Path
) -> None:
    cache = tmp_path / "it.cache"
    cache.write_bytes(encode(dict.fromkeys([*TENSORS, "unknown"], (-254.0, 254.0))))
    net = rewritten(builder, Calibration(cache=cache, ranges={"flat": (-127.0, 0.0)}))
    scales = {
        n.given[0].name: float(n.given[1].array)
        for n in net.nodes
        if n.layer.name == "QuantizeLinear"
    }
    assert scales.pop("flat") == pytest.approx(127 / 255)
    assert set(scales.values()) == {2.0}


def test_what_has_no_range_stays_float(builder: Builder) -> None:
    net = rewritten(builder, Calibration(ranges={"x": (-4.0, 4.0), "flat": (-9.0, 9.0)}))
    assert reads_integers(net) == {"stem", "head"}


def test_wishes_for_layers_are_obeyed(builder: Builder) -> None:
    calibration = Calibration(networks.samples(1))
    net = rewritten(builder, calibration, **{"*": "fp32", "s*": "int8", "side": "fp32"})
    assert reads_integers(net) == {"stem", "second"}
    with pytest.raises(ConfigError, match="pool: unfulfilled layer precision"):
        rewritten(builder, calibration, pool="int8")


def test_an_object_of_the_user_has_its_own_data(builder: Builder) -> None:
    mine = MinMax(networks.samples(2))
    rewritten(builder, Calibration(calibrator=mine))
    assert sorted(mine.ranges()) == sorted(TENSORS)
    registered = builder.session.calibrators["tactix.minmax"]
    rewritten(builder, Calibration(networks.samples(1)))
    assert not registered.ranges()


def test_bounded_memory_gives_the_same_ranges(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = []
    for memory in (1 << 30, 1):
        monkeypatch.setattr("tactix_quantize.observe.MEMORY", memory)
        mine = MinMax(networks.samples(2))
        rewritten(builder, Calibration(calibrator=mine))
        ranges.append(mine.ranges())
    assert ranges[0].keys() == ranges[1].keys()
    for name, r in ranges[0].items():
        assert r == pytest.approx(ranges[1][name], rel=1e-4)


def test_samples_that_tell_little_are_told() -> None:
    log = KeptLog()
    mine = Builder(log)
    samples = networks.samples(2)
    samples[0]["x"][0, 0, 0, 0] = np.nan
    rewritten(mine, Calibration(samples))
    assert any("not finite are left out: x (1 of 1728)" in line for line in log.warnings)
    rewritten(mine, Calibration([{"x": np.zeros(networks.SHAPE, np.float32)}]))
    assert any("no range of 1 tensors" in line and ": x. " in line for line in log.warnings)
    with pytest.raises(InvalidArgument, match="no value that calibration sees is finite"):
        rewritten(mine, Calibration([{"x": np.full(networks.SHAPE, np.nan, np.float32)}]))


class Stopping(SilentProgress):
    """Cancels after so many batches."""

    def __init__(self, after: int) -> None:
        self.after, self.steps = after, [0]

    def step(self, name: str, done: int, message: str = "") -> None:
        self.steps.append(done)

    def cancelled(self) -> bool:
        return self.steps[-1] >= self.after


def test_progress_is_told_and_can_stop_it(builder: Builder) -> None:
    monitor = Stopping(2)
    config = configure(
        None,
        precision="int8",
        calibration=Calibration(networks.samples(5)),
        progress=monitor,
        **FAST,
    )
    with pytest.raises(BuildCancelled, match="calibration was stopped"):
        Int8Stage().join(builder.session, config).network(networks.residual(builder))
    assert monitor.steps == [0, 1, 2]


def test_a_model_with_its_own_quantisation_needs_no_calibration(builder: Builder) -> None:
    net = rewritten(builder, Calibration(networks.samples(1)))
    config = configure(None, precision="int8", **FAST)
    assert Int8Stage().join(builder.session, config).network(net) is net
    config.calibration = Calibration(networks.samples(1))
    with pytest.raises(ConfigError, match="the model is quantised"):
        Int8Stage().join(builder.session, config).network(net)


@pytest.mark.parametrize(
    ("calibration", "error", "said"),
    [
        (None, ConfigError, "BuilderFlag.INT8 without a calibration"),
        (Calibration(), ConfigError, "tells no ranges"),
        (Calibration([]), InvalidArgument, "there is no calibration data"),
        (Calibration(calibrator="entropy"), InvalidArgument, "there is no calibration data"),
        (
            Calibration([], "entropy3"),
            ConfigError,
            r"no calibrator 'entropy3'. Did you mean 'entropy'\? There are: entropy, ",
        ),
        (Calibration([], cast(Any, object())), ConfigError, "the calibrator is a object"),
        (Calibration(ranges={"y": (1.0, 0.0)}), InvalidArgument, "range of tensor 'y'"),
        (Calibration(ranges={"flt": (0.0, 1.0)}), InvalidArgument, "'flt', which is no tensor"),
    ],
)
def test_what_is_wrong_is_told(
    builder: Builder, calibration: Calibration | None, error: type[Exception], said: str
) -> None:
    config = configure(None, precision="int8", calibration=calibration, **FAST)
    with pytest.raises(error, match=said):
        Int8Stage().join(builder.session, config).network(networks.residual(builder))


def test_settings_that_contradict() -> None:
    calibration = Calibration(networks.samples(1))
    with pytest.raises(ConfigError, match="a calibration without INT8"):
        configure(None, calibration=calibration)
    exact = BuilderConfig(flags={BuilderFlag.EXACT_NUMERICS, BuilderFlag.INT8})
    with pytest.raises(ConfigError, match="contradict"):
        exact.check()
    wish = BuilderConfig(builder_optimization_level=0, timing_cache=False)
    wish.set_layer_precision("stem", "int8")
    with pytest.raises(ConfigError, match="unfulfilled layer precision"):
        tactix.Builder().build(networks.residual(), wish)


def test_tensors_are_called_as_in_the_model(builder: Builder) -> None:
    """Those behind a folded normalisation, too."""
    rng = np.random.default_rng(2)
    constants = {
        "w": rng.standard_normal((4, 3, 1, 1), np.float32),
        "w2": rng.standard_normal((4, 4, 1, 1), np.float32),
        **{name: np.ones(4, np.float32) for name in ("scale", "shift", "mean", "variance")},
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv_out"], "conv"),
        helper.make_node(
            "BatchNormalization",
            ["conv_out", "scale", "shift", "mean", "variance"],
            ["norm_out"],
            "norm",
        ),
        helper.make_node("Conv", ["norm_out", "w2"], ["y"], "last"),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size, 5, 5])]
        for name, size in (("x", 3), ("y", 4))
    ]
    stored = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "it", *ends, stored),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    net = builder.import_model(model.SerializeToString())
    mine = MinMax([{"x": rng.standard_normal((1, 3, 5, 5), np.float32)}])
    config = configure(None, precision="int8", calibration=Calibration(calibrator=mine), **FAST)
    Int8Stage().join(builder.session, config).network(net)
    assert sorted(mine.ranges()) == ["norm_out", "x"]


def test_samples_alone_are_a_calibration(builder: Builder, tmp_path: Path) -> None:
    samples = networks.samples(2)
    np.savez(tmp_path / "it.npz", **samples[0])
    for given in (samples, tmp_path, str(tmp_path / "it.npz")):
        config = configure(None, precision="int8", calibration=given, **FAST)
        assert config.calibration == Calibration(given)
        part = Int8Stage().join(builder.session, config)
        part.network(networks.residual(builder))
    config = configure(None, precision="int8", calibration="nowhere", **FAST)
    part = Int8Stage().join(builder.session, config)
    with pytest.raises(InvalidArgument, match="no such file or folder"):
        part.network(networks.residual(builder))


def test_tensors_that_are_zero_in_all_samples_stay_float(builder: Builder) -> None:
    zeros = {"x": np.zeros(networks.SHAPE, np.float32)}
    assert reads_integers(rewritten(builder, Calibration([zeros]))) == PRODUCTS - {"stem"}
    with pytest.raises(InvalidArgument, match="scale 0 for x: only zero"):
        rewritten(builder, Calibration(ranges={"x": (0.0, 0.0)}))
