"""Layers of quantized numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layer_cases.case import IMAGE, Case, floats, scalar


def quantized() -> Iterator[Case]:
    step, zero, signed = scalar(0.02), scalar(128, np.uint8), scalar(0, np.int8)
    yield Case("QuantizeLinear", (IMAGE, step, zero))
    yield Case("QuantizeLinear", (IMAGE, step, signed), note="signed")
    yield Case(
        "QuantizeLinear", (IMAGE, "= f32[64] 0.01:0.1", "= u8[64] 100:140"), {"axis": 1}, "channels"
    )
    yield Case("QuantizeLinear", ("f16[1,64,56,56]", scalar(0.02, np.float16), zero))
    yield Case("DequantizeLinear", ("u8[1,64,56,56]", step, zero))
    yield Case("DequantizeLinear", ("i8[64,576]", "= f32[64] 0.01:0.1"), {"axis": 0}, "channels")
    yield Case(
        "DequantizeLinear",
        ("i8[64,1024]", "= f32[64,32] 0.01:0.1"),
        {"axis": 1, "block_size": 32},
        "blocks",
    )
    yield Case("DynamicQuantizeLinear", (IMAGE,), {}, "", 3)
    image = ("u8[1,64,28,28]", step, zero)
    for note, w, attrs in (
        ("3x3", "= i8[64,64,3,3]", {"pads": [1] * 4}), ("1x1", "= i8[128,64,1,1]", {}),
        ("depthwise", "= i8[64,1,3,3]", {"pads": [1] * 4, "group": 64}),
    ):  # fmt: skip
        yield Case("QLinearConv", (*image, w, step, signed, scalar(0.5), zero), attrs, note)
        yield Case(
            "com.microsoft::QLinearConv",
            (*image, w, step, signed, scalar(0.5), zero),
            attrs,
            f"ms {note}",
        )
    yield Case("ConvInteger", ("u8[1,64,28,28]", "= i8[64,64,3,3]", zero), {"pads": [1] * 4})
    for note, a, b in (("dense", "u8[64,768]", "i8[768,768]"), ("odd", "u8[33,127]", "i8[127,65]")):
        yield Case("MatMulInteger", (a, f"= {b}", zero, signed), note=note)
        yield Case(
            "QLinearMatMul", (a, step, zero, f"= {b}", step, signed, scalar(0.5), zero), note=note
        )
    yield Case("MatMulInteger", ("u8[12,128,64]", "u8[12,64,128]", zero, zero), note="computed")
    one = "com.microsoft::"
    same = ("u8[1,64,56,56]", step, zero)
    yield Case(f"{one}QLinearAdd", (*same, *same, scalar(0.04), zero))
    yield Case(f"{one}QLinearMul", (*same, *same, scalar(0.04), zero))
    yield Case(f"{one}QLinearSigmoid", (*same, scalar(1 / 256), scalar(0, np.uint8)))
    yield Case(f"{one}QLinearLeakyRelu", (*same, step, zero), {"alpha": 0.1})
    yield Case(
        f"{one}QLinearSoftmax",
        ("u8[64,1000]", step, zero, scalar(1 / 256), scalar(0, np.uint8)),
        {"opset": 13, "axis": -1},
    )
    yield Case(
        f"{one}QLinearAveragePool", (*same, step, zero), {"kernel_shape": [2, 2], "strides": [2, 2]}
    )
    yield Case(f"{one}QLinearGlobalAveragePool", (*same, step, zero))
    yield Case(f"{one}QLinearConcat", (step, zero, *same, *same), {"axis": 1})
    yield Case(f"{one}QLinearWhere", ("bool[1,64,56,56]", *same, *same, step, zero))
    yield Case(f"{one}QuantizeLinear", (IMAGE, step, zero), note="ms")
    yield Case(f"{one}DequantizeLinear", ("u8[1,64,56,56]", step, zero), note="ms")
    gemm = (
        "u8[64,256]",
        step,
        zero,
        "= i8[256,512]",
        step,
        signed,
        "= i32[512]",
        scalar(0.5),
        zero,
    )
    yield Case(f"{one}QGemm", gemm)
    dense = ("f32[64,768]", "= i8[768,768]", "= f32[1] 0.01:0.02")
    yield Case(f"{one}DynamicQuantizeMatMul", dense, slack=64)
    floats_out = ("u8[64,768]", "= i8[768,768]", floats(0.02), floats(0.01), zero)
    yield Case(f"{one}MatMulIntegerToFloat", floats_out)
    yield Case(f"{one}MatMulInteger16", ("i16[64,64]", "i16[64,64]"))
    packed = ("f32[1,1024]", "= u8[1024,32,16]", "= f32[32768] 0.01:0.02")
    attrs = {"K": 1024, "N": 1024, "bits": 4, "block_size": 32}
    yield Case(f"{one}MatMulNBits", packed, attrs, "row", slack=64)
    yield Case(f"{one}MatMulNBits", ("f32[64,1024]", *packed[1:]), attrs, "64 rows", slack=64)
    bytes_ = ("f32[1,1024]", "= u8[1024,32,32]", "= f32[32768] 0.001:0.002")
    yield Case(f"{one}MatMulNBits", bytes_, {**attrs, "bits": 8}, "row of 8 bits", slack=64)
    points = ("f32[4,1023]", "= u8[1001,8,64]", "= f32[8008] 0.01:0.02", "= u8[4004]")
    wide = {"K": 1023, "N": 1001, "bits": 4, "block_size": 128}
    yield Case(f"{one}MatMulNBits", points, wide, "zero points", slack=64)
    table = ("= u8[4096,128] 0:255", "i64[64] 0:4096", "= f32[4096,8] 0.01:0.02")
    yield Case(
        f"{one}GatherBlockQuantized", table, {"bits": 4, "block_size": 32, "quantize_axis": 1}
    )
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    yield Case(f"{one}NhwcMaxPool", ("u8[1,56,56,64]",), pool)
    attention = ("u8[1,64,256]", "= i8[256,768]", "= f32[768]", step, step, "", zero, signed)
    yield Case(f"{one}QAttention", attention, {"num_heads": 4}, slack=256)
    lstm = (
        "f32[16,1,64]", "= i8[1,64,256]", "= i8[1,64,256]", "= f32[1,512] -0.1:0.1", "", "", "", "",
        "= f32[1] 0.001:0.002", "= i8[1] 0:1", "= f32[1] 0.001:0.002", "= i8[1] 0:1",
    )  # fmt: skip
    yield Case(f"{one}DynamicQuantizeLSTM", lstm, {"hidden_size": 64}, slack=256)
