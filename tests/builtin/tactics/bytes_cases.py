"""Nodes over bytes for tests: products with random numbers of the whole range, alone and with what
quantised models write behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asked
import harness as h
import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import Reject, Tactic

RNG = np.random.default_rng(31)
DTYPES = (np.uint8, np.int8)


def whole_range(dtype: Any, *shape: int) -> Any:
    """Random integers over the dtype's whole range."""
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def biases(n: int) -> Any:
    """int32 as biases are."""
    return RNG.integers(-(1 << 18), 1 << 18, n).astype(np.int32)


def product(name: str, x: Any, w: Any, tactic: Tactic, bias: bool = True, **more: Any) -> h.Case:
    """An integer product with constant weights; ``more``: attributes, and options of Case."""
    options = {k: more.pop(k) for k in ("device", "nt", "only", "env") if k in more}
    symbols = more.pop("symbols", None)
    channels = w.shape[1] if name == "IntegerMatMul" else w.shape[0]
    arrays = [x, w, *([biases(channels)] if bias else [])]
    inputs = [h.spec(x, symbols) if symbols else x, *arrays[1:]]
    if symbols:
        options["env"] = {s: d for s, d in zip(symbols, x.shape, strict=True) if isinstance(s, str)}
    return h.Case(h.node(name, inputs, range(1, len(arrays)), **more), tactic, arrays, **options)


def requantised(case: h.Case, zero: int = 7, residual: bool = True) -> h.Case:
    """The same product with a factor per channel, a quantised residual, and a result of the dtype
    of x.
    """
    x, w, *b = case.arrays or ()
    y = case.node.outputs[0].spec
    matrix = case.node.layer.name == "IntegerMatMul"
    channels = w.shape[1] if matrix else w.shape[0]
    factor = (RNG.random(channels) * 2e-3 + 1e-4).astype(np.float32)
    factor = factor if matrix else factor.reshape(-1, *(1,) * (y.rank - 2))
    arrays = [
        x,
        w,
        *b,
        factor,
        *([whole_range(np.uint8, *y.at(dict(case.env)))] if residual else []),
    ]
    n = len(arrays)
    i = n - 2 if residual else n - 1
    name = case.node.layer.name
    nodes: list[Any] = [
        (name, range(2 + len(b)), vars(case.node.attrs)),
        ("Cast", (n,), {"to": DType.FP32}),
    ]
    nodes += [("Mul", (n + 1, i), {})]
    if residual:
        nodes += [("Dequantize", (n - 1,), {"zero": 9, "scale": 0.37}), ("Add", (n + 2, n + 3), {})]
    nodes += [("Quantize", (n + len(nodes) - 1,), {"zero": zero, "dtype": DType.of(x.dtype)})]
    node = h.fused(arrays, nodes, anchor=0, constants=range(1, 3 + len(b)))
    return h.Case(node, case.tactic, arrays, nt=case.nt, device=case.device)


def first(case: h.Case, device: DeviceProperties, count: int = 1) -> h.Case:
    """The case on another target, with the tactic's best guesses alone."""
    offered = asked.variants(case.tactic, case.node, device)
    assert not isinstance(offered, Reject), offered.reason
    return h.Case(
        case.node,
        case.tactic,
        case.arrays,
        case.env,
        device=device,
        nt=case.nt,
        only=offered[:count],
    )


def on_every_target(cases: Sequence[h.Case]) -> None:
    """Check the cases for every instruction set that this machine has."""
    h.check_all([first(c, d) for d in h.devices() for c in cases])
