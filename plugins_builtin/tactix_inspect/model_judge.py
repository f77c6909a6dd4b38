"""A plan's steps against the model that it was built from: ONNX Runtime gets what a step read, and
makes what the step should have made.

Only this tells a rule that changes the meaning, or weights that were packed wrongly: a step's own
reference agrees with both.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tactix.base.arrays import Array
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError, PlanCompatibilityError, PluginError
from tactix.select.accuracy import BUDGET, departure
from tactix_inspect.layers import Comparison
from tactix_inspect.model_slices import ModelSlices, as_model_type
from tactix_inspect.replay import StepRun

KEPT = 256 << 20
"""Bytes of earlier tensors that are kept for steps of which an input has no name in the model."""


class ModelJudge:
    """Compares steps by the names that their tensors have in the model. ``rtol``: as of
    ``by_reference``. Raises what ``ModelSlices`` does.
    """

    def __init__(self, model: str | Path, threads: int = 0, rtol: float | None = None) -> None:
        self._slices = ModelSlices(model, threads)
        self._rtol = rtol
        self._given: dict[str, Array] = {}
        self._known: OrderedDict[str, Array] = OrderedDict()
        self._bytes = 0

    def begin(self, feed: Mapping[str, Array]) -> None:
        """A run on other inputs."""
        self._known.clear()
        self._bytes = 0
        self._given = {n: np.asarray(feed[n]) for n in self._slices.inputs if n in feed}

    def __call__(self, run: StepRun) -> Comparison:
        makes, consumes = _names(run, "makes"), _names(run, "consumes")
        for name, x in zip(consumes, run.inputs, strict=False):
            if x is not None:
                self._keep(name, x)
        targets = {j: name for j, name in enumerate(makes) if self._slices.makes(name)}
        try:
            if not targets:
                return Comparison(None, "it makes no tensor of the model")
            return self._compared(run, targets)
        except (ExecutionError, PlanCompatibilityError, PluginError) as e:
            return Comparison(None, str(e)[:200])
        finally:
            for name, y in zip(makes, run.outputs, strict=False):
                self._keep(name, y)

    def _compared(self, run: StepRun, targets: Mapping[int, str]) -> Comparison:
        known = {**self._known, **self._given}
        part = self._slices.between(known, tuple(dict.fromkeys(targets.values())))
        feed = {
            name: as_model_type(known[name], self._slices.numpy_type(name))
            for name in part.leaves
            if name in known
        }
        wanted = dict(zip(part.targets, self._slices.run(part, feed), strict=True))
        there = {
            j: name for j, name in targets.items() if wanted[name].shape == run.outputs[j].shape
        }
        if not there:
            return Comparison(None, "the plan has its tensors in another shape")
        return Comparison(max(self._off(run, j, wanted[name]) for j, name in there.items()))

    def _off(self, run: StepRun, j: int, want: Array) -> float:
        """In budgets of what the step is computed in."""
        got, dtype = run.outputs[j], run.step.outputs[j].spec.dtype
        want = want.astype(got.dtype)
        if dtype not in BUDGET:
            return _whole(got, want, dtype)
        granted = (self._rtol or _budget(run)) / BUDGET[dtype]
        near = departure(got, want, dtype) / granted
        if near <= 1 or self._rtol or run.is_reference:
            return near
        try:
            return min(near, run.expected.departure(j, want, granted))
        except (ExecutionError, PlanCompatibilityError, PluginError):
            return near

    def _keep(self, name: str, x: Array) -> None:
        """What is known of a tensor of the model's, in the model's form."""
        told = self._slices.type(name)
        if not name or told is None or told.rank not in (None, x.ndim):
            return
        known = self._known.pop(name, None)
        self._bytes += x.nbytes - (0 if known is None else known.nbytes)
        self._known[name] = x
        while self._bytes > KEPT and len(self._known) > 1:
            self._bytes -= self._known.popitem(last=False)[1].nbytes


def _names(run: StepRun, key: str) -> list[str]:
    told = run.step.info.get(key)
    return [str(x) for x in told] if isinstance(told, list) else []


def _budget(run: StepRun) -> float:
    """Of the coarsest dtype among what a step reads and makes: the model's weights and sums are
    wider. Numbers of few bits that became floats count as bfloat16's.
    """
    dtypes = {o.spec.dtype for o in (*run.step.inputs, *run.step.outputs)}
    found = [BUDGET[t] for t in dtypes if t in BUDGET]
    return max([*found, *(BUDGET[DType.BF16] for t in dtypes if t.is_small_int)])


def _whole(got: Array, want: Array, dtype: DType) -> float:
    """Integers must be equal, but small ones that floats were rounded to, where either side of a
    tie is right.
    """
    if not dtype.is_small_int:
        return 0.0 if np.array_equal(got, want) else float("inf")
    return float(np.abs(got.astype(np.int32) - want.astype(np.int32)).max(initial=0))
