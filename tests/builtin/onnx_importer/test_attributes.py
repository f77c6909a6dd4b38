"""Attributes that an operator does not know, or cannot do without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node

from tactix.base.errors import ModelImportError

F32 = np.float32
IMAGE = {"x": (F32, [1, 4, 8, 8])}
WEIGHTS = {"w": np.ones((4, 4, 3, 3), F32)}


@pytest.mark.parametrize(
    ("op", "attrs", "constants", "words"),
    [
        ("Conv", {"group": 0}, WEIGHTS, "'group' of node 'it' .*it is 0: it must be 1 or more"),
        ("ConvTranspose", {"group": -1}, WEIGHTS, "it is -1: it must be 1 or more"),
        ("Conv", {"strides": [0, 1]}, WEIGHTS, "'strides'.*each must be 1 or more"),
        ("Conv", {"auto_pad": "BOTH"}, WEIGHTS, "'auto_pad'.*'BOTH': Conv knows NOTSET, SAME_UPPER"),
        ("MaxPool", {}, {}, "'kernel_shape' of node 'it'.*it is missing"),
        ("MaxPool", {"kernel_shape": [2, 2], "storage_order": 7}, {}, "must be from 0 to 1"),
        ("ReduceMean", {"keepdims": 7}, {}, "'keepdims'.*it is 7: it must be from 0 to 1"),
        ("LRN", {}, {}, "'size'.*it is missing: LRN has no default of it"),
        ("LRN", {"size": 0}, {}, "'size'.*it is 0"),
        ("LpNormalization", {"p": 3}, {}, "'p'.*it is 3: it must be from 1 to 2"),
        ("LpPool", {"p": 0, "kernel_shape": [2, 2]}, {}, "'p'.*it is 0"),
        ("DepthToSpace", {"blocksize": 0}, {}, "'blocksize'"),
        ("DepthToSpace", {"blocksize": 2, "mode": "XYZ"}, {}, "knows DCR, CRD"),
        ("Concat", {}, {}, "'axis'.*it is missing"),
        ("Cast", {}, {}, "'to'.*it is missing"),
        ("If", {}, {}, "'(then|else)_branch'.*it is missing|condition|bool"),
        ("Pad", {"mode": "mirror"}, {"p": np.zeros(8, np.int64)}, "knows constant, reflect, edge"),
    ],
)  # fmt: skip
def test_what_no_operator_means_is_refused(
    op: str, attrs: Any, constants: Any, words: str, imported: Any, model: Any
) -> None:
    nodes = [make_node(op, ["x", *constants], ["y"], name="it", **attrs)]
    with pytest.raises(ModelImportError, match=words) as raised:
        imported(model(nodes, IMAGE, ["y"], constants))
    assert raised.value.do


def test_what_means_what_a_default_does_is_taken(imported: Any, model: Any) -> None:
    nodes = [
        make_node("Conv", ["x", "w"], ["a"], auto_pad="", group=1),
        make_node("MaxPool", ["a"], ["y"], kernel_shape=[2, 2], storage_order=0),
    ]
    assert len(imported(model(nodes, IMAGE, ["y"], WEIGHTS)).nodes) == 2
