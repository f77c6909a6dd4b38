"""Kernels of sm_90a compile without spilling, fit, and are offered to that architecture alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import asked
import hopper_cases
import numpy as np
import pytest
import simt
from hopper_cases import ATTENTION, CONV, DEVICE, GEMM, STEM, TABLE, every_flow
from product_cases import plain, real, whole
from test_gemm_compile import fits
from test_products_run import Mutated

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.tactic import CompileContext, Reject
from tactix_codegen.cuda.target import target
from tactix_cuda import nvrtc
from tactix_cuda.tactics import tile
from tactix_cuda.tactics.gemm import LIKELY
from tactix_cuda.tactics.hopper import flow as hopper
from tactix_cuda.tactics.tile import ProductSizes
from tactix_cuda.tensor_maps import maps_of

needs_nvrtc = pytest.mark.skipif(bool(nvrtc.why_missing()), reason="needs NVRTC")


@needs_nvrtc
@pytest.mark.parametrize("name", TABLE)
def test_the_table_compiles(name: str) -> None:
    for case in TABLE[name]()[::3]:
        offered = asked.variants(case.tactic, case.node, DEVICE)
        assert not isinstance(offered, Reject)
        env = dict(case.env)
        fits(
            asked.artifact(case.tactic, case.node, offered[0], CompileContext(DEVICE, env)),
            DEVICE,
            env,
        )


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_attention_gives_what_the_reference_does(dtype: str, tmp_path: Path) -> None:
    """On the host, where matrix instructions and the copy engine are functions; of bfloat16 every
    third, as the texts differ in nothing but the type's name.
    """
    cases = hopper_cases.attentions(dtype)
    simt.check_all(cases if dtype == "f16" else cases[::3], tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tx_bar_wait(empty + (i - 1)", "if (false) tx_bar_wait(empty + (i - 1)"),
        ("tx_bar_wait(full + i", "if (i == 0) tx_bar_wait(full + i"),
        ("keys + i / 4 * C::KEYS * 8 + i % 4 * 2", "keys + i / 4 * C::KEYS * 8 + i % 4"),
        ("  __syncthreads();\n  own.finish", "  own.finish"),
    ],
)  # fmt: skip
def test_a_fault_of_attention_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    case = hopper_cases.attentions("f16")[1]
    with pytest.raises(AssertionError, match=r"times the budget|block"):
        simt.check_all([replace(case, tactic=Mutated(ATTENTION, old, new))], tmp_path)


@needs_nvrtc
def test_no_attention_spills() -> None:
    """Of each case one variant, in turns."""
    for i, case in enumerate((*hopper_cases.attentions("f16"), *hopper_cases.causals("f16"))):
        offered = asked.variants(case.tactic, case.node, DEVICE)
        assert not isinstance(offered, Reject)
        v, env = offered[i % len(offered)], dict(case.env)
        made = asked.artifact(case.tactic, case.node, v, CompileContext(DEVICE, env))
        fits(made, DEVICE, env)


@needs_nvrtc
def test_no_flow_spills() -> None:
    """Neither with what a residual holds. Flows for bytes and for float16 in turns: sums take as many
    registers.
    """
    turns = [every_flow(hopper_cases.byte_tiles("u8")), every_flow(hopper_cases.gemms("f16")[3])]
    for i in range(len(turns[0].only or ())):
        case = turns[i % 2]
        assert case.only
        made = asked.artifact(case.tactic, case.node, case.only[i], CompileContext(DEVICE))
        fits(made, DEVICE, {})


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("group", ["gemm f16", "conv f16", "stem f16", "gemm i8", "conv u8"])
def test_other_architectures_are_left_to_others(group: str, name: str) -> None:
    case = TABLE[group]()[0]
    assert isinstance(asked.variants(case.tactic, case.node, target(name)), Reject)


def test_what_is_left_to_others() -> None:
    odd = plain(GEMM, "MatMul", [real("f16", 16, 30), real("f16", 30, 16)], [1])
    given = plain(GEMM, "MatMul", [real("f16", 16, 32), real("f16", 32, 16)])
    wide = plain(GEMM, "MatMul", [real("f32", 16, 32), real("f32", 32, 16)], [1])
    channels = plain(CONV, "Convolution", [real("f16", 1, 12, 5, 5), real("f16", 8, 12, 3, 3)], [1])
    many = plain(STEM, "Convolution", [real("f16", 1, 5, 5, 5), real("f16", 8, 5, 3, 3)], [1])
    for case in (odd, given, wide, channels, many):
        assert isinstance(asked.variants(case.tactic, case.node, DEVICE), Reject)


def test_pads_of_bytes_that_are_no_zeros_are_left_to_others() -> None:
    """The copy engine fills in zeros; a window that is within the image needs none."""
    arrays = [whole("u8", 1, 32, 5, 5), whole("i8", 8, 32, 3, 3)]
    for pads, value, taken in (((1, 1, 1, 1), 7, False), ((1, 1, 1, 1), 0, True), ((), 7, True)):
        case = plain(
            hopper_cases.BYTE_CONV, "IntegerConvolution", arrays, [1], pads=pads, pad_value=value
        )
        assert isinstance(asked.variants(case.tactic, case.node, DEVICE), Reject) is not taken


def test_columns_lie_as_threads_have_them() -> None:
    """A thread has columns 8 g + 2 q and the next; they are neighbours of the given matrix."""
    panels, cols, stages = 2, 64, 3
    b = np.arange(panels * cols * stages * hopper.DEPTH).reshape(
        panels * cols, stages * hopper.DEPTH
    )
    (_, shape), (_, axes) = hopper.pack(panels, cols, stages)
    laid = b.reshape(shape).transpose(axes).reshape(panels, stages, cols, hopper.DEPTH)
    for place in (0, 1, 7, 8, 31, 32, 45, 63):
        group, g, q, e = place // 32, place % 32 // 8, place % 8 // 2, place % 2
        column = group * 32 + q * 8 + g * 2 + e
        np.testing.assert_array_equal(laid[1, 2, place], b[cols + column, 2 * hopper.DEPTH :])


def test_grids_maps_and_clusters_of_odd_shapes() -> None:
    s = dims.sym("s")
    weights = TensorSpec(DType.FP16, (40, 300), const=real("f16", 40, 300))
    node = hopper_cases.simt.h.node("MatMul", [TensorSpec(DType.FP16, (s, 40)), weights])
    for f in (hopper.Flow(128, 128, 6, 2, True, 1), hopper.Flow(64, 64, 6, 1, False, 4)):
        (v,) = hopper.variants([f])
        made = asked.artifact(GEMM, node, v, CompileContext(DEVICE))
        (launch,) = made.launches
        want = [
            min(3 * -(-n // 128), 132) if f.teams > 1 else 5 * -(-n // 64) * 4
            for n in (1, 129, 20000)
        ]
        assert [dims.evaluate(launch.grid[0], {"s": n}) for n in (1, 129, 20000)] == want
        assert launch.cluster == ((4,) if f.splits > 1 else ())
        ((rows, columns),) = maps_of(made)
        assert (rows.shape, rows.strides, rows.box) == ((40, s), (80,), (64, f.rows))
        assert (columns.shape, columns.strides, columns.box) == (
            (64, -(-300 // f.cols) * f.cols),
            (128,),
            (64, f.cols),
        )
        assert "sm_90a".replace("sm", "cubin") in made.requires


def test_windows_of_a_convolution_start_where_padding_does() -> None:
    image, w = real("f16", 2, 16, 12, 13), real("f16", 8, 16, 5, 3)
    pads = {"dilations": (2, 3), "pads": (4, 1, 3, 2), "strides": (2, 1)}
    case = plain(CONV, "Convolution", [image, w], [1], **pads)
    offered = asked.variants(CONV, case.node, DEVICE)
    assert not isinstance(offered, Reject)
    (windows, _) = maps_of(asked.artifact(CONV, case.node, offered[0], CompileContext(DEVICE)))[0]
    assert windows.shape == (16, 13, 12, 2)
    assert windows.corners == ((-1, -4), (2 - 6, 3 - 8))
    assert windows.steps == (1, 1, 2, 1)
    across = (13 + windows.corners[1][0] - windows.corners[0][0] - 1) // 1 + 1
    down = (12 + windows.corners[1][1] - windows.corners[0][1] - 1) // 2 + 1
    assert (down, across) == tuple(case.node.outputs[0].spec.shape[2:])


def test_estimates_grow_with_the_work() -> None:
    for f in (*hopper.flows(), *hopper.pairs()):
        costs = [
            hopper.seconds(ProductSizes(1, m, 1024, 4096), f, DEVICE) for m in (64, 4096, 65536)
        ]
        assert costs == sorted(costs)
    offered = hopper.best([ProductSizes(1, 4096, 4096, 4096)], DEVICE)
    assert [f.paired for f in offered] == [False] * hopper.OFFERED + [True] * 3
    assert not any(f.paired for f in hopper.best([ProductSizes(1, 64, 512, 4096)], DEVICE))
    assert hopper.best([ProductSizes(1, 16384, 768, 3072)], DEVICE)[0].teams == 2
    assert hopper.best([ProductSizes(1, 49, 512, 4608)], DEVICE)[0].splits > 1


@pytest.mark.parametrize("m", [64, 128, 1024, 16384])
def test_with_sizes_that_only_running_tells_the_largest_does_not_decide_alone(m: int) -> None:
    likely, here = [ProductSizes(1, n, 512, 2048) for n in LIKELY], ProductSizes(1, m, 512, 2048)
    least = min(hopper.seconds(here, f, DEVICE) for f in hopper.flows())
    assert min(hopper.seconds(here, f, DEVICE) for f in hopper.best(likely, DEVICE)) < 1.1 * least
    every = [(t, s) for t in tile.tiles("f16", DEVICE) for s in tile.splits_for(here, t, DEVICE)]
    found = tile.best(likely, tile.tiles("f16", DEVICE), DEVICE)
    least = min(tile.seconds(here, t, s, DEVICE) for t, s in every)
    assert min(tile.seconds(here, t, s, DEVICE) for t, s in found) < 1.1 * least
