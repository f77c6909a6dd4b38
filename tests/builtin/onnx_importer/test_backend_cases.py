"""The cases that the onnx package carries for its own operators: inputs and outputs for the corners
of the standard.

An input whose content must be known at import (axes, shapes, scales) is made an initializer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from tactix.base.errors import UnsupportedOperator
from tactix.network.definition import NetworkDefinition
from tactix_onnx.weights import WeightReader
from tactix_sdk.evaluate import evaluate

OPERATOR_SET = 28
"""Operators of later sets are not looked at."""

ELSEWHERE = {
    "If",
    "Loop",
    "Scan",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "SequenceMap",
}
"""Operators over what is no tensor, and with bodies: tests/onnx_suite runs them in engines."""

RANDOM = {"Bernoulli", "RandomUniformLike"}
"""Their numbers are those of onnx's generator: only dtypes and shapes are compared."""
DEPARTS = {
    "test_resize_downsample_scales_linear_align_corners": "a whole output size counts, as in ONNX Runtime",
    "test_resize_downsample_scales_cubic_align_corners": "a whole output size counts, as in ONNX Runtime",
}

ROUNDED = ("bf16", "fp16")
"""Cases whose expected output was rounded after each step: a few units in the last place are
granted.
"""


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    """All node cases up to the operator set, the same numbers in every run."""
    np.random.seed(0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    versions = [{o.domain: o.version for o in c.model.opset_import}.get("", 0) for c in found]
    return [
        c for c, v in zip(found, versions, strict=True) if v <= OPERATOR_SET and is_looked_at(c)
    ]


def arrays(values: Sequence[Any]) -> list[Any]:
    return [
        WeightReader(None).array(v) if isinstance(v, onnx.TensorProto) else np.asarray(v)
        for v in values
    ]


def with_constants(model: onnx.ModelProto, values: Sequence[Any]) -> onnx.ModelProto:
    """The model with all inputs but the first (or an only one) as initializers."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    pairs = list(zip(model.graph.input, values, strict=False))
    for v, a in pairs[1 if len(pairs) > 1 else 0 :]:
        if isinstance(a, onnx.TensorProto):
            out.graph.initializer.add().CopyFrom(a)
            out.graph.initializer[-1].name = v.name
        else:
            out.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(a), v.name))
    return out


def network_of(c: Any, imported: Callable[..., NetworkDefinition]) -> NetworkDefinition:
    try:
        net = imported(c.model)
        if any(n.layer.name == "DynamicReshape" for n in net.nodes):
            raise UnsupportedOperator("its shape is only known by running")
        return net
    except UnsupportedOperator as e:
        if "only known by running" not in str(e) and "not constant" not in str(e):
            raise
        return imported(with_constants(c.model, c.data_sets[0][0]))


def is_looked_at(c: Any) -> bool:
    kinds = {v.type.WhichOneof("value") for v in (*c.model.graph.input, *c.model.graph.output)}
    operators = {n.op_type for n in c.model.graph.node}
    return kinds == {"tensor_type"} and not operators & ELSEWHERE and c.name not in DEPARTS


def compare(c: Any, net: NetworkDefinition) -> None:
    names = [v.name for v in c.model.graph.input]
    for inputs, outputs in c.data_sets:
        feed = dict(zip(names, arrays(inputs), strict=False))
        got = evaluate(net, {v.name: feed[v.name] for v in net.inputs})
        for name, want in zip(net.output_names, arrays(outputs), strict=True):
            assert (got[name].dtype, got[name].shape) == (want.dtype, want.shape), c.name
            if want.dtype == object:
                assert got[name].tolist() == want.tolist(), c.name
            if want.dtype == object or RANDOM & {n.op_type for n in c.model.graph.node}:
                continue
            wide = [
                x if x.dtype.kind in "biuc" else x.astype(np.float64) for x in (got[name], want)
            ]
            rtol = 2**-6 if any(part in c.name for part in ROUNDED) else max(c.rtol, 1e-5)
            np.testing.assert_allclose(*wide, rtol=rtol, atol=max(c.atol, 1e-6), err_msg=c.name)


@pytest.mark.parametrize("letter", "abcdefghilmnopqrstuwx")
def test_gives_what_the_standard_says(
    letter: str, cases: list[Any], imported: Callable[..., NetworkDefinition]
) -> None:
    own = [c for c in cases if c.name.startswith(f"test_{letter}")]
    assert own
    for c in own:
        compare(c, network_of(c, imported))


def test_most_cases_are_looked_at(cases: list[Any]) -> None:
    assert len(cases) > 1500
