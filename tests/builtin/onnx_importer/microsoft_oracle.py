"""One node of ``com.microsoft`` by its converter and by ONNX Runtime, with fixed and with symbolic
dims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from tactix.base.dims import learn
from tactix.contracts.graph import run_node
from tactix_sdk.evaluate import bind_symbols

Arrays = list[Any]


@dataclass(frozen=True)
class Case:
    """``arrays``: None where an input is absent. ``constants``: inputs that are initializers.

    ``symbols``: sizes of input dims, and the symbol that stands for each where dims are not fixed.
    ``outputs``: those that are asked for. ``steps``: how far quantised results may be apart.
    """

    op: str
    arrays: Sequence[Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[int] = (0,)
    constants: frozenset[int] = frozenset()
    symbols: Mapping[int, str] = field(default_factory=dict)
    tolerance: float = 2e-5
    steps: int = 0
    domain: str = "com.microsoft"

    @property
    def id(self) -> str:
        told = "-".join(f"{k}={v}" for k, v in self.attrs.items())
        shapes = "_".join(
            "x".join(map(str, np.shape(a))) if a is not None else "" for a in self.arrays[1:]
        )
        return f"{self.op}-{told}-{shapes}"[:110]

    @property
    def feed(self) -> dict[str, Any]:
        return {
            f"i{i}": a
            for i, a in enumerate(self.arrays)
            if a is not None and i not in self.constants
        }

    @property
    def names(self) -> list[str]:
        return [f"o{i}" for i in self.outputs]

    def model(self, build: Callable[..., onnx.ModelProto], symbolic: bool) -> onnx.ModelProto:
        made = [f"o{i}" if i in self.outputs else "" for i in range(max(self.outputs) + 1)]
        given = [f"i{i}" if a is not None else "" for i, a in enumerate(self.arrays)]
        node = onnx.helper.make_node(self.op, given, made, domain=self.domain, **self.attrs)
        named = self.symbols if symbolic else {}
        inputs = {k: (a.dtype, [named.get(n, n) for n in a.shape]) for k, a in self.feed.items()}
        return build([node], inputs, self.names, {f"i{i}": self.arrays[i] for i in self.constants})


def by_onnx_runtime(
    model: onnx.ModelProto, names: Sequence[str], feed: Mapping[str, Any]
) -> Arrays:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(list(names), dict(feed)))


def by_converter(c: Case, imported: Any, model: Any, symbolic: bool) -> Arrays:
    """By the references of the imported layers, after holding every inferred spec against its
    array.
    """
    net = imported(c.model(model, symbolic))
    env = bind_symbols(net, {k: a.shape for k, a in c.feed.items()})
    known: dict[Any, Any] = {v: c.feed[v.name] for v in net.inputs} | {
        v: v.const for v in net.constants
    }
    for n in net.nodes:
        known.update(
            zip(n.outputs, run_node(n, [v and known[v] for v in n.inputs], env), strict=True)
        )
        for v in n.outputs:
            learn(v.spec.shape, known[v].shape, env)
            assert (v.spec.dtype.numpy, v.spec.at(env)) == (known[v].dtype, known[v].shape), n
    return [known[v] for v in net.outputs]


def check(c: Case, imported: Any, model: Any, want: Arrays | None = None) -> None:
    """Hold the converter against ONNX Runtime, or against ``want``; NaN in it stands for an element
    that is free.
    """
    if want is None:
        want = by_onnx_runtime(c.model(model, False), c.names, c.feed)
    for symbolic in (False, True) if c.symbols else (False,):
        for got, right in zip(by_converter(c, imported, model, symbolic), want, strict=True):
            assert (got.dtype, got.shape) == (right.dtype, right.shape)
            compare(got, right, c)


def compare(got: Any, want: Any, c: Case) -> None:
    if c.steps:
        apart = np.abs(got.astype(int) - want.astype(int))
        assert apart.max() <= c.steps
        assert np.mean(apart > 0) < 0.05
        return
    if want.dtype.kind == "f":
        got = np.where(np.isnan(want), np.nan, got)
    np.testing.assert_allclose(got, want, rtol=c.tolerance, atol=c.tolerance)
