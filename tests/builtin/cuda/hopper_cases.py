"""Nodes for the tactics of sm_90a: whole and cut tiles, several tiles for a block, every epilogue
kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import asked
import numpy as np
import product_cases as pc
import simt

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import Reject, Variant
from tactix.select.accuracy import GRANTED
from tactix_codegen.cuda.target import target
from tactix_cuda.tactics.hopper import attention as hopper_attention
from tactix_cuda.tactics.hopper import conv as hopper_conv
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.hopper import gemm as hopper_gemm
from tactix_cuda.tactics.hopper import stem as hopper_stem

DEVICE = target("sm_90a")
ALONE = replace(DEVICE, cores=1)
"""One multiprocessor: a block of several teams makes all tiles, one after the other."""
GEMM, BYTE_GEMM, FLOAT8_GEMM = hopper_gemm.tactics()
(CONV, BYTE_CONV), (STEM, BYTE_STEM) = hopper_conv.tactics(), hopper_stem.tactics()
(ATTENTION,) = hopper_attention.tactics()
IMAGES: list[pc.Image] = [
    ((3, 64, 20, 18), 72, (3, 3), {"pads": (1, 1, 1, 1)}),
    ((2, 72, 23, 19), 40, (3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ((5, 128, 14, 14), 264, (1, 1), {"strides": (2, 2)}),
    ((2, 16, 12, 13), 24, (5, 3), {"dilations": (2, 3), "pads": (4, 1, 3, 2)}),
    ((1, 200, 13, 13), 64, (1, 1), {}),
    ((2, 8, 20), 12, (5,), {"strides": (2,), "pads": (2, 2)}),
    ((2, 64, 3, 7, 6), 40, (1, 3, 3), {"pads": (0, 1, 1, 0, 1, 1)}),
    ((1, 64, 7, 5, 6), 40, (3, 1, 1), {"strides": (2, 1, 1), "pads": (1, 0, 0, 1, 0, 0)}),
]
FEW: list[pc.Image] = [
    ((2, 3, 17, 15), 20, (7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
    ((3, 1, 9, 9), 8, (5, 5), {"pads": (2, 2, 2, 2)}),
    ((1, 4, 9, 10), 40, (3, 3), {"strides": (1, 2), "pads": (0, 1, 1, 0)}),
    ((2, 3, 32, 35), 24, (16, 16), {"strides": (16, 16)}),
]
LARGE: list[pc.Image] = [((60, 64, 14, 14), 264, (3, 3), {"pads": (1, 1, 1, 1)})]


def gemms(dtype: str) -> list[simt.Case]:
    both = [
        c
        for m, k, n in ((37, 304, 56), (300, 520, 264))
        for c in pc.epilogues(GEMM, dtype, m, k, n)
    ]
    turned = [c for c in pc.turned(GEMM, dtype, 130, 72, 100) if takes(c)]
    return [*both, *turned, *(c for c in pc.symbolic(GEMM, dtype) if takes(c))]


def convs(dtype: str) -> list[simt.Case]:
    own = [replace(c, tactic=CONV) for c in (pc.residual(dtype), *pc.symbolic_images(dtype))]
    return [*pc.images(CONV, dtype, IMAGES), *(c for c in own if takes(c))]


def stems(dtype: str) -> list[simt.Case]:
    own = [replace(c, tactic=STEM) for c in pc.symbolic_images(dtype)]
    return [*pc.images(STEM, dtype, FEW), *(c for c in own if takes(c))]


def attentions(dtype: str) -> list[simt.Case]:
    """Those of all devices, heads of a packed product, keys for more stages than there are at a
    time, and results in 8 bits.
    """
    attrs = {"heads": 2, "dim": 64, "value_dim": 64, "columns": (0, 128, 256), "scale": 0.125}
    packed = pc.plain(ATTENTION, "TokenAttention", [pc.real(dtype, 2, 130, 384)] * 3, (), **attrs)
    few, many = pc.real(dtype, 1, 1, 70, 64), pc.real(dtype, 1, 1, 600, 64)
    causal = pc.causal(dtype, 330)
    long = [pc.real(dtype, 1, 1, 330, 96)] * 3
    rows = [pc.real(dtype, 2, 70, 128)] * 3 + [np.float32([8])]
    body = [
        ("TokenAttention", (0, 1, 2), {"heads": 2, "dim": 64, "value_dim": 64, "scale": 0.125}),
        ("Cast", (4,), {"to": DType.FP32}), ("Mul", (5, 3), {}),
    ]  # fmt: skip
    eights = [
        pc.group(ATTENTION, rows, [*body, last], [3])
        for last in (("Cast", (6,), {"to": DType.FP8}), ("Quantize", (6,), {"dtype": DType.INT8}))
    ]
    own = [packed, pc.plain(ATTENTION, "Attention", [few, many, many], (), scale=-0.125),
           pc.plain(ATTENTION, "Attention", [*long, causal], [3], scale=0.1), *eights]  # fmt: skip
    cases = [*own, *(replace(c, tactic=ATTENTION) for c in pc.attentions(dtype))]
    return [replace(c, device=DEVICE) for c in cases if takes(c)]


def causals(dtype: str) -> list[simt.Case]:
    """Several tiles, more keys than queries, last stages that teams leave out, masks of two kinds,
    any batch.
    """
    hidden, low = pc.causal(dtype, 300), pc.causal(dtype, 257)
    low[np.isneginf(low)] = -65504
    masks = [(64, hidden[20:]), (128, low), (128, hidden[160:]), (64, hidden[10:110, :110])]
    of = [[pc.real(dtype, 1, 1, n, d) for n in (len(m), *m.shape[1:] * 2)] + [m] for d, m in masks]
    n, mask = (
        dims.sym("n"),
        TensorSpec(DType(dtype), (1, 1, 150, 190), const=hidden[40:190, :190][None, None]),
    )
    specs = [TensorSpec(DType(dtype), (n, 3, x, 64)) for x in (150, 190, 190)]
    free = simt.Case(simt.h.node("Attention", [*specs, mask], scale=0.125), ATTENTION, env={"n": 2})
    cases = [*(pc.plain(ATTENTION, "Attention", arrays, [3], scale=0.1) for arrays in of), free]
    return [replace(c, device=DEVICE) for c in cases]


def large(dtype: str) -> list[simt.Case]:
    """More tiles than a device has multiprocessors: blocks take several, teams take turns."""
    gemm = pc.plain(
        GEMM,
        "Gemm",
        [pc.real(dtype, 6000, 136), pc.real(dtype, 136, 2000), pc.real(dtype, 2000)],
        [1, 2],
    )
    return [gemm, *pc.images(CONV, dtype, LARGE)]


def byte_gemms(dtype: str) -> list[simt.Case]:
    """Depths of a part of a stage and of several, and what follows in a quantized network."""
    whole = pc.plain(
        BYTE_GEMM, "IntegerMatMul", [pc.whole(dtype, 300, 528), pc.whole("i8", 528, 264)], [1]
    )
    return [whole, *(c for c in pc.byte_gemms(BYTE_GEMM, dtype) if takes(c)), byte_tiles(dtype)]


def float8_gemms(dtype: str) -> list[simt.Case]:
    """The same depths, with results in float32, float16 and 8 bits behind a scale and a bias."""
    arrays = [pc.real(dtype, 300, 528), pc.real(dtype, 528, 264)]
    rest = [pc.real("f32", 264), pc.real("f32", 264), pc.real("f16", 300, 264)]
    body = [
        ("Float8MatMul", (0, 1), {}), ("Mul", (5, 2), {}), ("Add", (6, 3), {}), ("Relu", (7,), {}),
        ("Cast", (4,), {"to": DType.FP32}), ("Add", (8, 9), {}),
        ("Cast", (10,), {"to": DType(dtype)}), ("Cast", (10,), {"to": DType.FP16}),
    ]  # fmt: skip
    scaled = pc.group(FLOAT8_GEMM, [*arrays, *rest], body, [1, 2, 3], results=[11, 12])
    free = TensorSpec(DType(dtype), (dims.sym("n"), 3, 48))
    node = simt.h.node(
        "Float8MatMul", [free, TensorSpec(DType(dtype), (48, 9), const=pc.real(dtype, 48, 9))]
    )
    cases = [
        pc.plain(FLOAT8_GEMM, "Float8MatMul", arrays, [1]),
        scaled,
        *(simt.Case(node, FLOAT8_GEMM, env={"n": n}) for n in (0, 1, 40)),
    ]
    return [replace(c, budget=GRANTED["short_sums"]) for c in cases]


def byte_convs(dtype: str) -> list[simt.Case]:
    """Of images with zeros around, the same that floats have."""
    own = [*pc.byte_images(BYTE_CONV, dtype, IMAGES), *pc.byte_convs(BYTE_CONV, dtype)]
    return [c for c in own if takes(c)]


def byte_stems(dtype: str) -> list[simt.Case]:
    """Of images with zeros around, the same that floats have."""
    return [c for c in pc.byte_images(BYTE_STEM, dtype, FEW) if takes(c)]


def byte_tiles(dtype: str, flow: hopper.Flow | None = None) -> simt.Case:
    """As ``tiles``; of the flow that is the best if none is given."""
    rows, cols = (130, 72) if flow is None else (flow.tall + 9, flow.cols + 8)
    arrays = [pc.whole(dtype, rows, 400), pc.whole("i8", 400, cols)]
    rest = [
        pc.whole("i8", cols).astype(np.int32), pc.real("f32", cols) * 1e-3, pc.whole("u8", rows, cols)
    ]  # fmt: skip
    body = pc.requantized(("IntegerMatMul", (0, 1, 2), {}), 3)
    case = pc.group(BYTE_GEMM, [*arrays, *rest], body, [1, 2, 3], results=[11, 10])
    return replace(case, device=ALONE, only=hopper.variants([flow]) if flow else None)


def tiles(dtype: str, flow: hopper.Flow, cut: bool = True) -> simt.Case:
    """Two by two tiles, or pairs, of a flow, all but one of them cut, of four stages, one of them
    cut; bias, gelu and residual.
    """
    rows, cols = (flow.tall + 9, flow.cols + 8) if cut else (flow.tall * 2, flow.cols * 2)
    case = pc.epilogues(GEMM, dtype, rows, 200, cols)[0]
    return replace(case, device=ALONE, only=hopper.variants([flow]))


def windows(dtype: str) -> simt.Case:
    """Four stages of taps of three images, whose borders lie within tiles."""
    image: pc.Image = (
        (3, 16, 11, 13),
        40,
        (2, 2),
        {"strides": (1, 2), "dilations": (3, 2), "pads": (2, 1, 1, 2)},
    )
    (case,) = pc.images(CONV, dtype, [image])
    return replace(case, device=ALONE)


def takes(case: simt.Case) -> bool:
    return not isinstance(asked.variants(case.tactic, case.node, DEVICE), Reject)


def every_flow(case: simt.Case) -> simt.Case:
    """The case with all flows, whatever the estimates say."""
    offered = asked.variants(case.tactic, case.node, DEVICE)
    assert not isinstance(offered, Reject), offered.reason
    knobs = [Variant.of(**vars(f)).knobs for f in (*hopper.flows(), *hopper.pairs())]
    return replace(case, only=[replace(offered[0], knobs=k) for k in knobs])


TABLE: dict[str, Callable[[], list[simt.Case]]] = (
    {
        f"{name} {t}": partial(make, t)
        for name, make in (
            ("gemm", gemms),
            ("conv", convs),
            ("stem", stems),
            ("attention", attentions),
            ("causal", causals),
        )
        for t in ("f16", "bf16")
    }
    | {
        f"{name} {t}": partial(make, t)
        for name, make in (("gemm", byte_gemms), ("conv", byte_convs), ("stem", byte_stems))
        for t in pc.BYTES
    }
    | {f"gemm {t}": partial(float8_gemms, t) for t in ("f8e4m3", "f8e5m2")}
)
