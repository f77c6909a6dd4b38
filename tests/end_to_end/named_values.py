"""Tensors that the steps of a plan make, beside those that ONNX Runtime has under their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tactix.contracts.launcher import Operand
from tactix.run.engine import Engine
from tactix.run.observed import RunningStep, StepObserver

MASKED = 1e30
"""Numbers as large stand for infinity."""


@dataclass(frozen=True)
class StepTensor:
    """What a step made or read of a tensor of the model."""

    step: str
    name: str
    array: Any


class NamedTensors(StepObserver):
    """Keeps every operand that has a name: inputs before a step runs, outputs behind it."""

    def __init__(self) -> None:
        self.seen: list[StepTensor] = []

    def step(self, running: RunningStep) -> None:
        self._keep(running, "consumes", running.step.inputs)
        running.run()
        self._keep(running, "makes", running.step.outputs)

    def _keep(self, running: RunningStep, side: str, operands: Sequence[Operand]) -> None:
        names = running.step.info[side]
        assert isinstance(names, list)
        for name, o in zip(names, operands, strict=True):
            if name and o.buffer >= 0:
                self.seen.append(StepTensor(running.step.name, name, np.array(running.read(o))))


def named_values(engine: Engine, feeds: Mapping[str, Any]) -> list[StepTensor]:
    """Of each step in turn."""
    context, found = engine.create_execution_context(), NamedTensors()
    context.observer = found
    context.run(feeds)
    return found.seen


def runtime_values(
    model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, Any], folder: str = ""
) -> dict[str, Any]:
    """What ONNX Runtime has under these names; those of inputs and initializers are told, too."""
    import onnxruntime as ort

    inferred = {name: onnx.ValueInfoProto(name=name) for n in model.graph.node for name in n.output}
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.output[:]
    wide.graph.output.extend(inferred[name] for name in names if name in inferred)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", folder
        )
    session = ort.InferenceSession(wide.SerializeToString(), options, ["CPUExecutionProvider"])
    asked = [o.name for o in wide.graph.output]
    found = dict(zip(asked, session.run(asked, dict(feeds)), strict=True))
    weights = {t.name: onnx.numpy_helper.to_array(t, folder) for t in model.graph.initializer}
    return {**weights, **dict(feeds), **found}


def differing(seen: Sequence[StepTensor], want: Mapping[str, Any]) -> list[str]:
    """Which of the tensors are not those of their names, in words; numbers within 1e-3 of the
    largest, at least of 1.
    """
    told = ((v, _difference(np.asarray(v.array), np.asarray(want[v.name]))) for v in seen)
    return [f"{v.step}: {v.name} {why}" for v, why in told if why]


def _difference(got: Any, want: Any) -> str:
    if got.shape != want.shape:
        return f"is {got.shape}, not {want.shape}"
    g, w = got.astype(np.float64), want.astype(np.float64)
    counts = np.isfinite(w) & (np.abs(w) < MASKED)
    scale = max(1.0, float(np.abs(w[counts]).max(initial=0)))
    far = float(np.abs(g[counts] - w[counts]).max(initial=0)) / scale
    return "" if far < 1e-3 else f"is off by {far:.2g}"
