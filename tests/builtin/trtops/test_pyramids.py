"""Regions of pyramids of feature maps, against loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from one_plugin import run, same

from tactix.base.errors import UnsupportedOperator

F32 = np.float32
RNG = np.random.default_rng(8)


def levels(count: int, image: tuple[int, int], batch: int = 2) -> list[Any]:
    """Feature maps of two channels, of strides 4, 8..."""
    sizes = [(max(1, image[0] // (4 << k)), max(1, image[1] // (4 << k))) for k in range(count)]
    return [RNG.standard_normal((batch, 2, *size)).astype(F32) for size in sizes]


def at(x: Any, y: float, z: float) -> Any:
    """Elements (c,) of x (c, h, w) between four, and at the border beyond it."""
    y, z = min(max(y, 0), x.shape[1] - 1), min(max(z, 0), x.shape[2] - 1)
    i, j = int(y), int(z)
    k, m = min(i + 1, x.shape[1] - 1), min(j + 1, x.shape[2] - 1)
    a, b = y - i, z - j
    return (x[:, i, j] * (1 - b) + x[:, i, m] * b) * (1 - a) + (
        x[:, k, j] * (1 - b) + x[:, k, m] * b
    ) * a


def level_of(area: float, first: float, count: int) -> int:
    return sum(area > first * 4**k for k in range(count - 1))


ROIS = np.array([[10, 20, 90, 60], [0, 0, 256, 250], [100, 40, 104, 44], [-9, 5, 300, 200]], F32)


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("transform", [1, 2])
def test_regions_are_aligned_on_the_level_of_their_area(ratio: int, transform: int) -> None:
    image, size = (256, 256), 3
    maps = levels(4, image)
    rois = np.stack([ROIS, ROIS[::-1] / 3])
    want = np.zeros((2, 4, 2, size, size), F32)
    for b, r in np.ndindex(2, 4):
        x1, y1, x2, y2 = (min(max(v / 256, 0), 1) for v in rois[b, r])
        k = level_of((y2 - y1 + 1 / 256) * (x2 - x1 + 1 / 256), 100**2 / 256**2 / 4, 4)
        x = maps[k][b]
        h, w = x.shape[1:]
        off = 0.5 if transform == 2 else 0.0
        y0, z0, dy, dz = y1 * h - off, x1 * w - off, (y2 - y1) * h / size, (x2 - x1) * w / size
        ny, nz = (ratio or max(1, math.ceil(d - 1e-6)) for d in (dy, dz))
        for i, j in np.ndindex(size, size):
            samples = [
                at(x, y0 + dy * (i + (p + 0.5) / ny), z0 + dz * (j + (q + 0.5) / nz))
                for p in range(ny)
                for q in range(nz)
            ]
            want[b, r, :, i, j] = np.mean(samples, axis=0)
    asked = {"pooled_size": size, "fpn_scale": 100, "image_size": [256, 256], "roi_coords_plusone": 1,
             "roi_coords_transform": transform, "sampling_ratio": ratio}  # fmt: skip
    got = run("PyramidROIAlign_TRT", [rois, *maps], **asked)
    same(got, [want], 1e-4)


def test_the_legacy_form_samples_between_corners() -> None:
    maps, size = levels(4, (128, 96)), 3
    rois = RNG.random((2, 5, 4)).astype(F32)
    want = np.zeros((2, 5, 2, size, size), F32)
    for b, r in np.ndindex(2, 5):
        y1, y2 = sorted(rois[b, r, [0, 2]])
        x1, x2 = sorted(rois[b, r, [1, 3]])
        x = maps[level_of((y2 - y1) * (x2 - x1), 224 * 224 * 2 / 1024**2 / 16, 4)][b]
        h, w = (n - 1 for n in x.shape[1:])
        for i, j in np.ndindex(size, size):
            y, z = (y1 + (y2 - y1) * i / (size - 1)) * h, (x1 + (x2 - x1) * j / (size - 1)) * w
            want[b, r, :, i, j] = at(x, y, z)
    same(run("PyramidROIAlign_TRT", [rois, *maps], pooled_size=size, legacy=1), [want], 1e-4)
    with pytest.raises(UnsupportedOperator, match="roi_coords_transform 0"):
        run("PyramidROIAlign_TRT", [rois, *maps], roi_coords_transform=0)


def test_multilevel_crops() -> None:
    image, size = (512, 640), 2
    maps = levels(5, image)
    rois = np.array([[[10, 20, 60, 90], [0, 0, 500, 600], [30, 30, 30, 90], [-1, 0, 9, 9]],
                     [[100, 50, 300, 350], [5, 5, 9, 30], [0, 0, 513, 5], [9, 8, 7, 6]]], F32)  # fmt: skip
    want = np.zeros((2, 4, 2, size, size), F32)
    for b, r in np.ndindex(2, 4):
        y1, x1, y2, x2 = rois[b, r]
        if not (0 <= y1 < y2 <= 512 and 0 <= x1 < x2 <= 640):
            continue
        k = level_of((y2 - y1) * (x2 - x1), 224 * 224 / 4, 5)
        for i, j in np.ndindex(size, size):
            y, z = y1 + (y2 - y1) * (i + 0.5) / size, x1 + (x2 - x1) * (j + 0.5) / size
            want[b, r, :, i, j] = at(maps[k][b], y / (4 << k), z / (4 << k))
    asked = {"pooled_size": size, "image_size": [3, 512, 640]}
    same(run("MultilevelCropAndResize_TRT", [rois, *maps], **asked), [want], 1e-4)
