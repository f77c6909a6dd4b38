"""Activations and plugins that move elements; and what is told of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from one_plugin import run, same

from tactix.base.errors import UnsupportedOperator
from tactix_trtops import converters, operators

F32 = np.float32
RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F32)


def test_activations() -> None:
    x = normal(2, 3, 4, 5)
    same(run("LReLU_TRT", [x], symbols={2: "b"}, negSlope=0.1), [np.where(x > 0, x, x * F32(0.1))])
    same(run("Clip_TRT", [x], clipMin=-0.5, clipMax=1.0), [x.clip(-0.5, 1.0)])


def test_tiles_of_a_batch() -> None:
    x, tile = normal(3, 1, 2, 2), normal(1, 4, 2, 3)
    for symbols in ({}, {3: "b"}):
        tile = normal(1, 4, 2, 2)
        same(run("BatchTilePlugin_TRT", [x, tile], symbols=symbols), [np.concatenate([tile] * 3)])


def test_flattened_and_joined() -> None:
    parts = [normal(2, 2, 3, 1), normal(2, 4, 1, 1), normal(2, 1, 1, 1)]
    rows = [[v for p in parts for v in p[b].ravel()] for b in range(2)]
    want = np.array(rows, F32).reshape(2, -1, 1, 1)
    same(run("FlattenConcat_TRT", parts, axis=1, ignoreBatch=0), [want])
    same(run("FlattenConcat_TRT", parts[:1]), [parts[0].reshape(2, -1, 1, 1)])
    with pytest.raises(UnsupportedOperator, match="axis is not 1"):
        run("FlattenConcat_TRT", parts, axis=2)


@pytest.mark.parametrize("scale", [2.0, 1.5])
def test_nearest_elements(scale: float) -> None:
    x = normal(2, 3, 4, 5)
    size = int(4 * scale), int(5 * scale)
    want = np.zeros((2, 3, *size), F32)
    for i, j in np.ndindex(*size):
        want[:, :, i, j] = x[:, :, int(i / scale), int(j / scale)]
    same(run("ResizeNearest_TRT", [x], symbols={2: "b"}, scale=scale), [want])


def test_boxes_of_detections() -> None:
    x = normal(2, 7, 6)
    same(run("SpecialSlice_TRT", [x], symbols={7: "n"}), [x[:, :, :4]])


def test_neighbours_become_channels() -> None:
    """By the index of each element in memory, as Darknet and TensorRT count them."""
    n, c, h, w, s = 2, 8, 4, 6, 2
    x = normal(n, c, h, w)
    flat, inner = x.ravel(), c // (s * s)
    want = np.zeros(x.size, F32)
    for k in range(x.size):
        column, row, channel, sample = k % w, k // w % h, k // (w * h) % c, k // (w * h * c)
        q, r, inside = channel // inner // s, channel // inner % s, channel % inner
        place = row * s + q + h * s * (inside + inner * sample)
        want[k] = flat[column * s + r + w * s * place]
    (got,) = run("Reorg_TRT", [x], stride=s, plugin_version="2")
    same([got], [want.reshape(n, c * s * s, h // s, w // s)])


def test_regions_of_yolo() -> None:
    b, boxes, classes, h, w = 2, 3, 4, 2, 5
    x = normal(b, boxes * (5 + classes), h, w)
    want = x.copy()
    for s, k, i, j in np.ndindex(b, boxes, h, w):
        at = k * (5 + classes)
        for c in (0, 1, 4):
            want[s, at + c, i, j] = 1 / (1 + np.exp(-x[s, at + c, i, j]))
        e = np.exp(x[s, at + 5 : at + 5 + classes, i, j])
        want[s, at + 5 : at + 5 + classes, i, j] = e / e.sum()
    for symbols in ({}, {2: "n"}):
        if symbols:
            x, want = x[:, :, :1], want[:, :, :1]
        got = run("Region_TRT", [x], symbols=symbols, num=boxes, coords=4, classes=classes)
        same(got, [want])
    with pytest.raises(UnsupportedOperator, match="coords are not 4"):
        run("Region_TRT", [x], num=boxes, coords=5, classes=classes)


def test_coordinates() -> None:
    x = normal(2, 3, 3, 5)
    rows = np.array([[-1 + i * 2 / 2] * 5 for i in range(3)], F32)
    columns = np.array([[-1 + j * 2 / 4 for j in range(5)]] * 3, F32)
    want = np.concatenate([x, np.tile(np.stack([rows, columns]), (2, 1, 1, 1))], axis=1)
    same(run("CoordConvAC", [x], symbols={2: "b"}), [want])


def test_scatters_of_another_domain() -> None:
    data, updates = normal(4, 3), normal(2, 3)
    places = np.array([[2], [0]], np.int64)
    want = data.copy()
    want[[2, 0]] = updates
    same(run("ScatterND", [data, places, updates], domain="TRT"), [want])
    index = np.array([[1, 0, 3], [1, 2, 0]], np.int64)
    want = data.copy()
    for i, j in np.ndindex(2, 3):
        want[index[i, j], j] += updates[i, j]
    got = run("ScatterElements", [data, index, updates], domain="TRT", axis=0, reduction="add")
    same(got, [want])
    parts = run("Split", [data], 2, domain="TRT", axis=1, output_lengths=[1, 2])
    same(parts, [data[:, :1], data[:, 1:]])


def test_every_plugin_says_what_it_does_and_no_name_is_twice() -> None:
    kinds = {"float", "int", "floats", "ints", "text"}
    for o in operators():
        assert o.summary.endswith("."), o.names
        assert set(o.fields.values()) <= kinds
        assert "ai.onnx" not in o.domains or not {"GridSample", "ScatterND", "Split"} & {*o.names}
    keys = [c.key for c in converters()]
    assert len(keys) == len(set(keys))
