"""Every operator against ONNX Runtime on random odd shapes: once with fixed dims, once with each
dim a symbol.

The second run also holds every inferred spec against the arrays that the references give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_operator_cases import CASES, Case, K, arrays_of, one_node

from tactix.contracts.graph import run_node
from tactix.network.definition import NetworkDefinition
from tactix_sdk.evaluate import bind_symbols


def expected(c: Case, model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    names = [f"o{i}" for i in range(c.outputs)]
    if c.oracle == "onnx":
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(model).run(names, feed))
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(names, feed))


def outputs_of(net: NetworkDefinition, feed: dict[str, Any]) -> list[Any]:
    """The outputs by the references, after holding every spec against its array."""
    env = bind_symbols(net, {k: a.shape for k, a in feed.items()})
    known: dict[Any, Any] = {v: feed[v.name] for v in net.inputs} | {
        v: v.const for v in net.constants
    }
    for n in net.nodes:
        known.update(
            zip(n.outputs, run_node(n, [v and known[v] for v in n.inputs], env), strict=True)
        )
        for v in n.outputs:
            assert (v.spec.dtype.numpy, v.spec.at(env)) == (known[v].dtype, known[v].shape), n
    return [known[v] for v in net.outputs]


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.id)
def test_agrees_with_the_oracle(c: Case, imported: Callable[..., NetworkDefinition]) -> None:
    arrays = arrays_of(c)
    feed = {
        f"i{i}": a
        for i, (s, a) in enumerate(zip(c.inputs, arrays, strict=True))
        if s and not isinstance(s, K)
    }
    want = expected(c, one_node(c, arrays, False), feed)
    for symbolic in (False,) if c.fixed else (False, True):
        got = outputs_of(imported(one_node(c, arrays, symbolic)), feed)
        for g, w in zip(got, want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape)
            np.testing.assert_allclose(g, w, rtol=c.tolerance, atol=c.tolerance)
