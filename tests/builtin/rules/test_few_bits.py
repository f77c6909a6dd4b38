"""Weights of few bits stay as they are, however a model says it; on GPUs they are written out where
no kernel reads them, and compete as floats where there may be many rows.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.builtin.rules.conftest import arrays, compare, names

from tactix.base.dtypes import DType
from tactix.fuse.rewrite import fuse
from tactix.fuse.rivals import rival
from tactix_ops.rules import all_rules, graphics_rules, lowering_rules, processor_rules

RNG = np.random.default_rng(38)


def product(net, zero, dtype="f32", rows="n", block=32, least=0.1):
    """Rows of 40 numbers times 5 rows of 4 bits."""
    raw = net.c(RNG.integers(0, 256, (5, 2, block // 2)), np.uint8)
    scale = net.c([[least, 0.1], *RNG.uniform(0.1, 0.2, (4, 2))])
    zeros = [net.c(RNG.integers(0, 16, (5, 2)), np.uint8)] if zero else []
    x = net.x(rows, 40, dtype=dtype)
    attrs = {"block_size": block}
    net.mark_output(net.add("FewBitsMatMul", x, raw, scale, *zeros, **attrs), "y")


GRAPHICS = [*all_rules(), *graphics_rules()]


@pytest.mark.parametrize("zero", [False, True])
def test_written_out_for_a_gpu_where_no_kernel_reads_the_blocks(net, zero):
    product(net, zero, block=24)
    out, _ = fuse(net, GRAPHICS)
    assert names(out) == ["MatMul"]
    compare(net, out, arrays(net, 3, (4,)))


@pytest.mark.parametrize(("rows", "other"), [(16, False), (17, True), ("n", True)])
def test_floats_compete_on_a_gpu_for_more_than_few_rows(net, rows, other):
    product(net, True, rows=rows)
    out, _ = fuse(net, GRAPHICS)
    assert names(out) == ["FewBitsMatMul"]
    form = rival(out, out.nodes[0], GRAPHICS)
    assert (form is not None) == other
    if form is not None:
        assert names(form.network) == ["MatMul"]


@pytest.mark.parametrize(("kind", "to"), [("fp16", "f16"), ("bf16", "bf16")])
@pytest.mark.parametrize(("least", "scales"), [(0.1, "f16"), (1e-6, "f32")])
def test_lowered_on_a_gpu(net, kind, to, least, scales):
    """x is, and scales become float16 that it has all digits for."""
    product(net, False, rows=4, least=least)
    lower = [r for r in lowering_rules() if r.device == "cuda" and r.numerics == kind]
    out, _ = fuse(net, [*GRAPHICS, *lower])
    (node,) = (n for n in out.nodes if "FewBitsMatMul" in [b.layer.name for b in n.body.nodes])
    (scale,) = (v for v in node.given if v.spec.dtype.is_float and v.spec.shape == (5, 2))
    assert scale.spec.dtype.value == scales
    (x,) = (v for v in node.given if v.spec.shape == (4, 40))
    assert x.spec.dtype.value == to


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_kept_on_a_processor(net, dtype):
    """Of 16 bits what it reads and gives is float32, as of other products."""
    product(net, True, dtype)
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    (node,) = (n for n in out.nodes if "FewBitsMatMul" in [b.layer.name for b in n.body.nodes])
    assert node.given[0].spec.dtype.value == "f32"


def constants(net, dtype, lines, length, block, axis, zero=False):
    """A DequantizeLinear of a matrix with scales along ``axis``; per line for ``block`` 0."""
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    low = 0 if dtype[0] == "u" else -8
    whole = RNG.integers(low, low + 16, (lines, length))
    count = -(-length // block) if block else 1
    scales, zeros = (
        RNG.uniform(0.1, 0.2, (lines, count)),
        RNG.integers(low, low + 16, (lines, count)),
    )
    turn = (lambda x: x) if axis else np.transpose
    per_line = (lambda x: turn(x)) if block else (lambda x: x.reshape(-1))
    inputs = [net.add_constant(np.ascontiguousarray(turn(whole)).astype(kind))]
    inputs.append(net.add_constant(np.ascontiguousarray(per_line(scales)).astype(np.float32)))
    inputs += [net.add_constant(np.ascontiguousarray(per_line(zeros)).astype(kind))] if zero else []
    along = axis if block else 1 - axis
    return net.add_layer("tactix.DequantizeLinear", inputs, axis=along, block_size=block)[0]


KINDS = [("int4", 16), ("int4", 0), ("uint4", 16), ("uint4", 0), ("int8", 16), ("uint8", 16)]


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(("dtype", "block"), KINDS)
def test_products_and_rows_of_dequantised_constants_read_their_bits(net, dtype, block, zero):
    x, i = net.x("n", 40), net.add_input("i", "i64", ["rows"])
    net.mark_output(net.add("MatMul", x, constants(net, dtype, 6, 40, block, 0, zero)), "y0")
    bias = net.c(RNG.standard_normal(6))
    w = constants(net, dtype, 6, 40, block, 1, zero)
    net.mark_output(net.add("Gemm", x, w, bias, transB=True), "y1")
    table = constants(net, dtype, 9, 24, block, 1, zero)
    net.mark_output(net.add("Gather", table, i, axis=0), "y2")
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    found = sorted(name for n in out.nodes for name in (b.layer.name for b in n.body.nodes))
    assert found == ["Add", "FewBitsGather", "FewBitsMatMul", "FewBitsMatMul"]
    given = {"x": RNG.standard_normal((3, 40)).astype(np.float32), "i": np.array([8, -9, 0, 3])}
    compare(net, out, given)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_16_bits_read_bits_too(net, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    whole = net.add_constant(RNG.integers(-8, 8, (32, 6)).astype(ml_dtypes.int4))
    scale = net.add_constant(RNG.uniform(0.1, 0.2, (2, 6)).astype(kind))
    made = DType.of(kind)
    (w,) = net.add_layer(
        "tactix.DequantizeLinear", [whole, scale], axis=0, block_size=16, dtype=made
    )
    x = net.x("n", 32, dtype=made.value)
    net.mark_output(net.add("MatMul", x, w), "y")
    out, _ = fuse(net, all_rules())
    assert names(out) == ["FewBitsMatMul"]
    compare(net, out, arrays(net, 3, (4,)), rtol=2e-2)


def test_rows_of_8_bits_with_one_scale_stay_bytes_that_are_gathered(net):
    i = net.add_input("i", "i64", ["rows"])
    net.mark_output(net.add("Gather", constants(net, "int8", 9, 24, 0, 1), i, axis=0), "y")
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    assert "FewBitsGather" not in {b.layer.name for n in out.nodes for b in n.body.nodes}


@pytest.mark.parametrize(("factor", "bits"), [(1.0, "f16"), (1 + 2.0**-12, "f32")])
def test_scales_that_16_bits_hold_take_no_more(net, factor, bits):
    raw = net.c(RNG.integers(0, 256, (5, 2, 16)), np.uint8)
    scale = net.c(np.full((5, 2), 0.25 * factor))
    y = net.add("FewBitsMatMul", net.x("n", 40), raw, scale, int8_activations=True)
    net.mark_output(y, "y")
    out, _ = fuse(net, [*all_rules(), *processor_rules()])
    (node,) = out.nodes
    assert node.given[2].spec.dtype.value == bits
    assert node.anchor.attrs.int8_activations
    compare(net, out, arrays(net, 3, (4,)))
