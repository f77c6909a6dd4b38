"""What builds for a GPU do with precision flags, by estimate: no device is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.api import configure
from tactix.base.dtypes import DType
from tactix.base.errors import ConfigError, NoTacticError
from tactix.config import BuilderFlag
from tactix.contracts.tactic import Reject
from tactix.plan.schema import Plan
from tactix_cuda.tactics.gemm import CudaGemmTactic
from tactix_cuda.tactics.host import HostTactic
from tactix_cuda.tactics.pointwise import CudaPointwiseTactic
from tactix_tools.check import Heard

MODELS = Path(__file__).parents[2] / "models"


def network(builder: tactix.Builder, dtype: Any = np.float32) -> Any:
    """Two wide products with a Relu between."""
    rng = np.random.default_rng(3)
    net = builder.create_network()
    v = net.add_input("x", dtype, (512, 2048))
    for name in ("first", "second"):
        w = net.add_constant(
            (rng.standard_normal((2048, 2048), dtype=np.float32) / 45).astype(dtype)
        )
        (v,) = net.add_layer("tactix.Relu", [net.add_layer("tactix.MatMul", [v, w], name)[0]])
    net.mark_output(v, "y")
    return net


def plan(dtype: Any = np.float32, **options: Any) -> Plan:
    builder = tactix.Builder()
    config = configure(
        device="tactix.cuda@1", target="sm_90", level=0, timing_cache=False, **options
    )
    return builder.build_plan(network(builder, dtype), config)


def dtypes(p: Plan) -> list[str]:
    """Of what the products read, in order."""
    return [s.inputs[0].spec.dtype.value for s in p.steps if s.info["kind"] == "tactix.MatMul@1"]


def tactics(p: Plan) -> set[str]:
    return {s.info["tactic"] for s in p.steps if s.info["kind"] == "tactix.MatMul@1"}


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", "f32"), ("tf32", "f32"), ("fp16", "f16"), ("bf16", "bf16")]
)
def test_a_flag_changes_what_is_between_inputs_and_outputs(precision: str, dtype: str) -> None:
    made = plan(precision=precision)
    assert dtypes(made) == [dtype, dtype]
    assert [b.dtype.value for b in made.buffers if b.kind in ("input", "output")] == ["f32", "f32"]
    assert all("tf32" in t for t in tactics(made)) == (precision == "tf32")
    assert len(made.steps) == (3 if dtype.endswith("16") else 2), "one cast, of the input"


def test_layers_obey_their_own_precision() -> None:
    assert dtypes(plan(precision="fp16", layer_precisions={"second": "fp32"})) == ["f16", "f32"]
    assert dtypes(plan(layer_precisions={"sec*": "bf16"})) == ["f32", "bf16"]
    assert not any(
        "tf32" in t for t in tactics(plan(precision="tf32", layer_precisions={"*": "fp32"}))
    )
    mixed = {
        s.inputs[0].spec.dtype.value: s.info["tactic"]
        for s in plan(precision="tf32", layer_precisions={"first": "fp16"}).steps
        if s.info["kind"] == "tactix.MatMul@1"
    }
    assert mixed.keys() == {"f16", "f32"}
    assert "tf32" in mixed["f32"]


def test_a_wish_that_cannot_be_is_an_error() -> None:
    with pytest.raises(ConfigError, match="third"):
        plan(precision="fp16", layer_precisions={"third": "fp32"})
    with pytest.raises(ConfigError, match=r"first.*bf16"):
        plan(np.float16, layer_precisions={"first": "bf16"})
    with pytest.raises(ConfigError, match="fp32, fp16, bf16, int8 or fp8"):
        tactix.BuilderConfig().set_layer_precision("first", "int4")


class Picky(CudaGemmTactic):
    """No kernel for 16 bits, but for products of that name."""

    def __init__(self, but: str = "") -> None:
        self.but = but

    def match(self, node: Any, device: Any) -> Any:
        wide = node.given[0].spec.dtype is DType.FP32
        fits = wide or (self.but and self.but in node.name)
        return super().match(node, device) if fits else Reject("not in 16 bits")


Picky.by_signature = False


def picky(but: str = "") -> tuple[tactix.Builder, Heard, tactix.BuilderConfig]:
    heard = Heard()
    builder = tactix.Builder(heard)
    builder.session.active_tactics = lambda: [Picky(but), CudaPointwiseTactic(), HostTactic()]  # type: ignore[method-assign]
    return (
        builder,
        heard,
        configure(device="tactix.cuda@1", target="sm_90", level=0, timing_cache=False),
    )


WHY = "no kernel computes it so: tactix.cuda_gemm@1: not in 16 bits"


@pytest.mark.parametrize("flags", [(), (BuilderFlag.NO_FALLBACK,)], ids=["fallback", "no fallback"])
def test_a_layer_without_a_kernel_in_16_bits_stays_as_it_is_alone(
    flags: tuple[BuilderFlag, ...],
) -> None:
    builder, heard, config = picky("first")
    config.flags |= {BuilderFlag.FP16, *flags}
    made = builder.build_plan(network(builder), config)
    assert dtypes(made) == ["f16", "f32"]
    assert made.ledger["precision"]["wide"].items() >= {("second", WHY)}
    assert "first" in made.ledger["precision"]["lowered"]
    assert not any("nothing is computed" in w for w in heard.warnings)


def test_a_build_in_which_nothing_is_lowered_says_why() -> None:
    builder, heard, config = picky()
    config.flags |= {BuilderFlag.FP16}
    assert dtypes(builder.build_plan(network(builder), config)) == ["f32", "f32"]
    said = f"nothing is computed in fp16: {WHY} (2 layers)"
    assert any(text.startswith(said) for text in heard.warnings)


def test_what_is_wanted_in_16_bits_and_has_no_kernel_is_an_error() -> None:
    builder, _, config = picky()
    config.flags |= {BuilderFlag.NO_FALLBACK}
    config.set_layer_precision("second", "fp16")
    with pytest.raises(NoTacticError, match=r"second.*not in 16 bits"):
        builder.build_plan(network(builder), config)


def test_a_network_that_has_16_bits_keeps_them() -> None:
    assert dtypes(plan(np.float16, precision="bf16")) == ["f16", "f16"]


@pytest.mark.parametrize("name", ["unet", "decoder", "lstm"])
def test_every_layer_lowered_has_a_kernel(name: str) -> None:
    builder = tactix.Builder()
    config = configure(device="tactix.cuda@1", target="sm_90", level=0, timing_cache=False)
    config.set_layer_precision("*", "fp16")
    made = builder.build_plan(builder.import_model(MODELS / f"{name}.onnx"), config)
    weights = [
        s
        for s in made.steps
        if s.info["kind"] in ("tactix.MatMul@1", "tactix.Convolution@1", "tactix.LSTM@1")
    ]
    assert weights
    assert {s.inputs[0].spec.dtype.value for s in weights} == {"f16"}


def float8(builder: tactix.Builder) -> Any:
    """Two products of 8-bit floats, with what quantises and dequantises around them."""
    rng = np.random.default_rng(4)
    net = builder.create_network()
    (v,), w = [net.add_input("x", np.float32, ("n", 64))], rng.standard_normal((64, 64))
    for name in ("first", "second"):
        scale = net.add_constant(np.float32(0.125))
        (v,) = net.add_layer("tactix.QuantizeLinear", [v, scale], dtype=DType.FP8)
        (v,) = net.add_layer("tactix.DequantizeLinear", [v, scale])
        scales = net.add_constant(rng.random(64, dtype=np.float32) + 0.5)
        weights = net.add_constant(w.astype(DType.FP8.numpy))
        (dw,) = net.add_layer("tactix.DequantizeLinear", [weights, scales], axis=1)
        (v,) = net.add_layer("tactix.Relu", [net.add_layer("tactix.MatMul", [v, dw], name)[0]])
    net.mark_output(v, "y")
    return net


@pytest.mark.parametrize(
    ("target", "product", "count"),
    [("sm_90a", "tactix.Float8MatMul@1", 3), ("sm_80", "tactix.WideMatMul@1", 5)],
)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_products_of_8_bit_floats_need_no_host(
    target: str, product: str, count: int, precision: str
) -> None:
    """Where nothing multiplies 8 bits, kernels of 16 take them with all that is behind them."""
    builder = tactix.Builder()
    config = configure(
        device="tactix.cuda@1", target=target, level=0, timing_cache=False, precision=precision
    )
    plan = builder.build_plan(float8(builder), config)
    assert not [s for s in plan.steps if s.info["tactic"] == HostTactic.key]
    assert [s.info["kind"] for s in plan.steps].count(product) == 2
    assert len(plan.steps) == count
    assert not plan.ledger["fusion"]["split"]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_numbers_that_are_only_rounded_to_8_bits_need_no_host(target: str) -> None:
    """Around a convolution 8-bit floats are in no tensor that a kernel reads or writes."""
    builder, rng = tactix.Builder(), np.random.default_rng(5)
    net = builder.create_network()
    v = net.add_input("x", np.float32, (1, 8, 6, 6))
    scale = net.add_constant(np.float32(0.125))
    (v,) = net.add_layer("tactix.QuantizeLinear", [v, scale], dtype=DType.FP8)
    (v,) = net.add_layer("tactix.DequantizeLinear", [v, scale])
    w = net.add_constant(rng.standard_normal((8, 8, 3, 3), dtype=np.float32))
    net.mark_output(net.add_layer("tactix.Convolution", [v, w])[0], "y")
    config = configure(device="tactix.cuda@1", target=target, level=0, timing_cache=False)
    steps = builder.build_plan(net, config).steps
    assert not [s for s in steps if s.info["tactic"] == HostTactic.key]
