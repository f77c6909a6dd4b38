"""What ONNX Runtime without graph optimisations, the layers' references, the rewritten network and an
engine make of a network with Q/DQ, and how much they differ.

QuantizeLinear is exact, but what it rounds is a float: where its sum is taken in another order, a number
beside a half becomes the next integer, now and then. So one inputs' result is wrong only if those of others
are, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from kept_log import KeptLog
from qdq_networks import Array, Network

import tactix
from tactix.fuse.rewrite import fuse
from tactix.network.verify import verify
from tactix.pipeline.shortfall import of_plan
from tactix_sdk.evaluate import evaluate

FEEDS = 3
"""Inputs that are tried before a difference is one."""
FEW = 0.02
"""Share of elements that may be off by more than a few steps."""
TIES = 0.15
"""Share that may be off by a step. A mean of four integers of one scale lies halfway between two of them
in one case of four, and which it becomes is then any rounding's choice.
"""
FAR = 0.05
"""Of the largest number: more than the steps of 8 bits that one result is made of."""
ROUNDING = 1e-4
"""Of a float result, relative to its largest number."""
SLOWER = 1.3
NOISE = 3e-6
"""Seconds that a run of a small network may take longer: steps have a price each."""


@dataclass(frozen=True)
class Difference:
    """Counts of elements. ``one``: integers one step off; ``more``: integers farther off, and floats
    off by more than a rounding; ``far``: those that are off by a good part of the largest number."""

    elements: int = 0
    one: int = 0
    more: int = 0
    far: int = 0

    def __add__(self, other: Difference) -> Difference:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Difference(*(a + b for a, b in pairs))

    @property
    def wrong(self) -> bool:
        off = self.one + self.more
        return off > max(2, TIES * self.elements) or self.far > max(2, FEW * self.elements)


def difference(got: Array, want: Array) -> Difference:
    """Raises AssertionError where shapes or dtypes differ."""
    assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{got.dtype} {got.shape}"
    if want.dtype.kind == "f":
        off = np.abs(got - want)
        scale = float(np.abs(want).max(initial=1e-3))
        more, far = (int((~(off <= t * scale)).sum()) for t in (ROUNDING, FAR))
        return Difference(want.size, 0, more, far)
    off = np.abs(got.astype(np.int64) - want.astype(np.int64))
    reach = float(off.max(initial=0)) and FAR * float(np.ptp(want.astype(np.int64)))
    counts = ((off == 1).sum(), (off > 1).sum(), (off > max(1, reach)).sum())
    return Difference(want.size, *map(int, counts))


def total(got: Mapping[str, Array], want: Mapping[str, Array]) -> Difference:
    assert list(got) == list(want)
    return sum(
        (difference(np.asarray(got[k]), np.asarray(y)) for k, y in want.items()), Difference()
    )


def by_onnx_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(
        zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True)
    )


@dataclass
class Outcome:
    """``wrong``: which of ``reference``, ``rules`` and ``engine`` differs, with counts; ``steps`` of
    the plan by name; ``references``: steps on numpy; ``seconds``: a run, and one of the float network."""

    wrong: dict[str, Difference] = field(default_factory=dict)
    off_by_one: int = 0
    elements: int = 0
    oracle: str = "ONNX Runtime"
    warnings: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    references: str = ""
    seconds: tuple[float, float] | None = None

    @property
    def slow(self) -> bool:
        return self.seconds is not None and self.seconds[0] > SLOWER * self.seconds[1] + NOISE

    @property
    def faults(self) -> list[str]:
        out = [f"{k} differs: {d}" for k, d in self.wrong.items()]
        out += self.warnings
        if self.slow and self.seconds:
            out.append(
                f"slow: {self.seconds[0] * 1e6:.0f} us beside {self.seconds[1] * 1e6:.0f} us of float32"
            )
        return out


class Trial:
    """Tries networks. ``engines``: whether they are built, too; level 0 chooses by estimates."""

    def __init__(self, engines: bool = True, level: int = 0) -> None:
        self.engines, self.level = engines, level
        self.builder = tactix.Builder()
        allowed = {"exact", "reassociates"}
        rules = self.builder.session.active_rules()
        self.rules = [r for r in rules if r.numerics in allowed and r.device in ("", "cpu")]

    def __call__(self, network: Network) -> Outcome:
        out = Outcome()
        net = self.builder.import_model(network.model)
        fused, _ = fuse(net, self.rules)
        verify(fused, deep=True)
        runs: dict[str, Any] = {"rules": lambda f: evaluate(fused, f)}
        if self.engines:
            log = KeptLog()
            engine = self.engine(network.model, log)
            out.warnings = log.warnings
            out.steps = [s["name"] + " " + s["tactic"] for s in engine.inspect()["steps"]]
            out.references = of_plan(engine.plan).text
            context = engine.create_execution_context()
            runs["engine"] = lambda f: context.run(dict(f))
        pending = {"reference", *runs}
        for seed in range(FEEDS):
            self._compare(
                network, seed, out, {"reference": lambda f: evaluate(net, f), **runs}, pending
            )
            if not pending:
                break
        return out

    def _compare(
        self, network: Network, seed: int, out: Outcome, runs: Any, pending: set[str]
    ) -> None:
        """Of these inputs; what agrees is pending no more."""
        feeds = network.feeds(seed)
        try:
            want = by_onnx_runtime(network.model, feeds)
        except Exception as e:
            out.oracle = f"the reference, for ONNX Runtime: {str(e).splitlines()[0][:120]}"
            want = runs["reference"](feeds)
        for k in sorted(pending):
            d = total(runs[k](feeds), want)
            if d.wrong:
                out.wrong[k] = d
                continue
            out.wrong.pop(k, None)
            pending.discard(k)
            if k == max(runs, key=("reference", "rules", "engine").index):
                out.off_by_one, out.elements = d.one, d.elements

    def engine(self, model: onnx.ModelProto, log: KeptLog | None = None) -> tactix.Engine:
        return tactix.build(model, level=self.level, threads=1, logger=log or KeptLog())

    def timed(self, quantized: Network, plain: Network, rounds: int = 7) -> tuple[float, float]:
        """Seconds of a run of both, in turns: the least of some rounds."""
        calls = []
        for network in (quantized, plain):
            context, feeds = self.engine(network.model).create_execution_context(), network.feeds(0)
            calls.append((context, feeds))
        best = [float("inf")] * 2
        for _ in range(rounds):
            for i, (context, feeds) in enumerate(calls):
                best[i] = min(best[i], _seconds(context, feeds))
        return best[0], best[1]


def _seconds(context: Any, feeds: Mapping[str, Array]) -> float:
    """Processor time of a run: other processes take turns with this one."""
    start, count = time.thread_time(), 0
    while count < 4 or (time.thread_time() - start < 2e-3 and count < 200):
        context.run(feeds)
        count += 1
    return (time.thread_time() - start) / count
