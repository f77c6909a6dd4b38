"""Plugins that sample at places that data gives, against loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from one_plugin import run, same

from tactix.base.errors import UnsupportedOperator

F32 = np.float32
RNG = np.random.default_rng(3)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F32)


def at(image: Any, y: float, x: float) -> Any:
    """Elements (c,) of an image (c, h, w) between four pixels, 0 outside."""
    total = np.zeros(image.shape[0])
    for i in (math.floor(y), math.floor(y) + 1):
        for j in (math.floor(x), math.floor(x) + 1):
            if 0 <= i < image.shape[1] and 0 <= j < image.shape[2]:
                total += image[:, i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


# -- regions ---------------------------------------------------------------------------------------


def aligned(
    x: Any, rois: Any, owners: Any, size: tuple[int, int], ratio: int, half: int, scale: float
) -> Any:
    """Averages by ROIAlign of regions that lie within x."""
    out = np.zeros((len(rois), x.shape[1], *size), F32)
    for r, (roi, owner) in enumerate(zip(rois, owners)):
        x1, y1, x2, y2 = roi * scale - 0.5 * half
        width, height = (x2 - x1, y2 - y1) if half else (max(x2 - x1, 1), max(y2 - y1, 1))
        for row, column in np.ndindex(*size):
            samples = [
                at(x[owner], y1 + (row + (i + 0.5) / ratio) * height / size[0],
                   x1 + (column + (j + 0.5) / ratio) * width / size[1])
                for i in range(ratio) for j in range(ratio)
            ]  # fmt: skip
            out[r, :, row, column] = np.mean(samples, axis=0)
    return out


@pytest.mark.parametrize("half", [0, 1])
def test_region_align(half: int) -> None:
    x, owners = normal(2, 3, 9, 8), np.array([1, 0, 1], np.int32)
    rois = np.array([[2, 2, 9, 11], [3, 1.5, 12, 14], [4, 4, 5, 5]], F32)
    asked = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5,
             "coordinate_transformation_mode": half, "mode": 1}  # fmt: skip
    for symbols in ({}, {3: "n"}):
        got = run("ROIAlign_TRT", [x, rois, owners], symbols=symbols, **asked)
        same(got, [aligned(x, rois, owners, (2, 3), 2, half, 0.5)])
    ones = [np.ones_like(x), rois, owners]
    (most,) = run("ROIAlign_TRT", ones, **{**asked, "mode": 0})
    assert most.shape == (3, 3, 2, 3)
    assert 0 < most.min() < most.max() <= 1  # the largest weight of a neighbour


# -- grids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "domain"), [("GridSampler", ""), ("GridSample", "TRT"), ("grid_sampler", "mmdeploy")]
)
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(op: str, domain: str, corners: int) -> None:
    x, grid = normal(2, 3, 5, 4), RNG.uniform(-1.2, 1.2, (2, 3, 6, 2)).astype(F32)
    asked = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": corners}
    want = np.zeros((2, 3, 3, 6), F32)
    for b, i, j in np.ndindex(2, 3, 6):
        u, v = grid[b, i, j]
        places = (
            [(u + 1) / 2 * 3, (v + 1) / 2 * 4]
            if corners
            else [((u + 1) * 4 - 1) / 2, ((v + 1) * 5 - 1) / 2]
        )
        want[b, :, i, j] = at(x[b], places[1], places[0])
    same(run(op, [x, grid], domain=domain, symbols={2: "b"}, **asked), [want])


def test_modes_of_grids_are_numbers_or_words() -> None:
    x, grid = normal(1, 1, 4, 4), RNG.uniform(-1, 1, (1, 2, 3, 2)).astype(F32)
    by_number = run("GridSampler", [x, grid], interpolation_mode=1, padding_mode=1)
    same(by_number, run("GridSampler", [x, grid], mode="nearest", padding_mode="border"))
    same(run("GridSampler", [x, grid]), run("GridSampler", [x, grid], mode="bilinear"))
    with pytest.raises(UnsupportedOperator, match="7 is none of its modes"):
        run("GridSampler", [x, grid], interpolation_mode=7)


# -- deformable convolution ------------------------------------------------------------------------


def deformed(
    x: Any,
    offset: Any,
    mask: Any,
    w: Any,
    bias: Any,
    stride: int,
    pad: int,
    groups: int,
    moved: int,
) -> Any:
    """A deformable convolution; ``moved``: groups of offsets."""
    (b, c), (m, per, kh, kw), (h, wide) = x.shape[:2], w.shape, offset.shape[2:]
    out = np.zeros((b, m, h, wide), F32)
    for s, o, row, column in np.ndindex(b, m, h, wide):
        total = 0.0 if bias is None else float(bias[o])
        for k, p, q in np.ndindex(per, kh, kw):
            channel = o // (m // groups) * per + k
            tap = channel // (c // moved) * kh * kw + p * kw + q
            y = row * stride - pad + p + offset[s, 2 * tap, row, column]
            z = column * stride - pad + q + offset[s, 2 * tap + 1, row, column]
            weight = w[o, k, p, q] * (1 if mask is None else mask[s, tap, row, column])
            total += weight * at(x[s, channel : channel + 1], y, z)[0]
        out[s, o, row, column] = total
    return out


@pytest.mark.parametrize("op", ["ModulatedDeformConv2d", "TRTModulatedDeformConv2d"])
def test_modulated_deformable_convolution(op: str) -> None:
    x, w, bias = normal(2, 4, 5, 6), normal(4, 2, 2, 2), normal(4)
    offset, mask = normal(2, 16, 3, 4), RNG.random((2, 8, 3, 4)).astype(F32)
    arrays = [x, offset, mask, w, bias]
    asked = {
        "stride": [2, 2],
        "padding": [1, 1],
        "dilation": [1, 1],
        "group": 2,
        "deformable_group": 2,
    }
    want = deformed(*arrays, 2, 1, 2, 2)
    same(run(op, arrays, constants=(3, 4), **asked), [want])
    words = {"stride": [2], "padding": [1], "dilation": [1], "groups": 2, "deform_groups": 2}
    same(run("MMCVModulatedDeformConv2d", arrays, domain="mmcv", **words), [want])
    same(run(op, arrays[:4], **asked), [deformed(*arrays[:4], None, 2, 1, 2, 2)])


def test_deformable_convolution_without_a_mask() -> None:
    x, offset, w = normal(1, 2, 4, 4), normal(1, 8, 3, 3), normal(3, 2, 2, 2)
    got = run("MMCVDeformConv2d", [x, offset, w], domain="mmcv", stride=[1, 1], padding=[0, 0])
    same(got, [deformed(x, offset, None, w, None, 1, 0, 1, 1)])


# -- deformable attention --------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [[[3, 4], [2, 2]], [[5, 3]]])
def test_deformable_attention(levels: list[list[int]]) -> None:
    b, heads, depth, queries, points = 2, 2, 3, 4, 2
    sizes = np.array(levels, np.int64)
    lengths = sizes.prod(axis=1)
    values = normal(b, int(lengths.sum()), heads, depth)
    starts = np.concatenate([[0], lengths.cumsum()[:-1]])
    places = RNG.uniform(-0.1, 1.1, (b, queries, heads, len(levels), points, 2)).astype(F32)
    weight = RNG.random((b, queries, heads, len(levels), points)).astype(F32)
    want = np.zeros((b, queries, heads, depth), F32)
    for s, q, n, k, p in np.ndindex(b, queries, heads, len(levels), points):
        h, w = levels[k]
        image = values[s, starts[k] : starts[k] + h * w, n].T.reshape(depth, h, w)
        x, y = places[s, q, n, k, p]
        want[s, q, n] += weight[s, q, n, k, p] * at(image, y * h - 0.5, x * w - 0.5)
    arrays = [values, sizes, starts.astype(np.int64), places, weight]
    for symbols in ({}, {4: "q"}):
        got = run("MultiscaleDeformableAttnPlugin_TRT", arrays, constants=(1, 2), symbols=symbols)
        same(got, [want])


# -- crops and pillars -----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(3, 2), (1, 4)])
def test_crop_and_resize(size: tuple[int, int]) -> None:
    x = normal(2, 3, 5, 4)
    regions = np.array(
        [[[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9]], [[-0.2, 0, 0.5, 0.5], [0.9, 0.9, 0.4, 1.3]]], F32
    )
    want = np.zeros((2, 2, 3, *size), F32)
    for b, r, row, column in np.ndindex(2, 2, *size):
        y1, x1, y2, x2 = regions[b, r]
        y = y1 + row * (y2 - y1) / (size[0] - 1) if size[0] > 1 else (y1 + y2) / 2
        z = x1 + column * (x2 - x1) / (size[1] - 1) if size[1] > 1 else (x1 + x2) / 2
        if 0 <= y <= 1 and 0 <= z <= 1:
            want[b, r, :, row, column] = at(x[b], y * 4, z * 3)
    got = run("CropAndResize", [x, regions[..., None]], crop_height=size[0], crop_width=size[1])
    same(got, [want])


def test_pillar_scatter() -> None:
    features, count = normal(2, 5, 3), np.array([3, 5], np.int32)
    cells = np.array([RNG.permutation(12)[:5] for _ in range(2)])
    places = np.stack([np.zeros_like(cells), np.zeros_like(cells), cells // 4, cells % 4], axis=2)
    want = np.zeros((2, 3, 3, 4), F32)
    for b in range(2):
        for p in range(count[b]):
            want[b, :, cells[b, p] // 4, cells[b, p] % 4] = features[b, p]
    for symbols in ({}, {2: "b"}):
        arrays = [features, places.astype(np.int32), count]
        same(run("PillarScatterPlugin", arrays, symbols=symbols, dense_shape=[3, 4]), [want])
