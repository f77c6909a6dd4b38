"""A plan of tactix as a model of Triton's Python backend: this file and model.plan are a version of
any model whose config.pbtxt names the plan's inputs and outputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

import tactix
from tactix.base.errors import TactixError
from tactix_serve.batch_axis import BatchAxes, BatchRefused, batch_axes

Arrays = Mapping[str, np.ndarray]


class TritonPythonModel:
    """As Triton makes and calls it, in one thread."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """``args``: strings; ``model_config`` is JSON."""
        config = json.loads(args["model_config"])
        told = {k: v["string_value"] for k, v in config.get("parameters", {}).items()}
        self.engine = tactix.load(
            Path(__file__).parent / "model.plan",
            max_threads=int(told.get("threads", "0")),
            on_untrusted=told.get("on_untrusted", ""),
        )
        self.axes: BatchAxes | None = None
        if config.get("max_batch_size", 0) > 0:
            try:
                self.axes = batch_axes(self.engine.plan)
            except BatchRefused as e:
                raise pb_utils.TritonModelException(f"{e} Set max_batch_size to 0") from None

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """An answer for each request, in their order."""
        feeds = [self.feeds(request) for request in requests]
        found: dict[int, Any] = {}
        for group in self.groups(feeds):
            found |= dict(zip(group, self.answers([feeds[i] for i in group]), strict=True))
        return [_response(request, found[i]) for i, request in enumerate(requests)]

    def finalize(self) -> None:
        self.engine.close()

    def feeds(self, request: Any) -> Arrays:
        given = {io.name: pb_utils.get_input_tensor_by_name(request, io.name) for io in self.inputs}
        return {name: _numbers(x.as_numpy()) for name, x in given.items() if x is not None}

    @property
    def inputs(self) -> Sequence[Any]:
        return self.engine.inputs

    def groups(self, feeds: Sequence[Arrays]) -> list[list[int]]:
        """Which requests run together: those of one shape but for the first axis, as far as the
        plan takes them.
        """
        if self.axes is None:
            return [[i] for i in range(len(feeds))]
        out, last = list[list[int]](), dict[Any, tuple[list[int], int]]()
        for i, arrays in enumerate(feeds):
            try:
                rows, key = self.axes.checked(arrays), self.axes.key(arrays)
            except TactixError:
                out.append([i])  # running it tells what is wrong
                continue
            group, before = last.get(key, ([], 0))
            if not group or before + rows > (self.axes.highest or before + rows):
                group, before = [], 0
                out.append(group)
            group.append(i)
            last[key] = group, before + rows
        return out

    def answers(self, feeds: Sequence[Arrays]) -> list[Any]:
        """Outputs by name for each, or what was raised; who fails beside others is run alone."""
        try:
            if len(feeds) == 1 or self.axes is None:
                return [self.engine.run(feeds[0])]
            return list(self.axes.apart(self.engine.run(self.axes.together(feeds)), feeds))
        except TactixError as e:
            if len(feeds) == 1:
                return [e]
            return [answer for one in feeds for answer in self.answers([one])]


def _response(request: Any, found: Any) -> Any:
    if isinstance(found, TactixError):
        return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(found)))
    wanted = request.requested_output_names()
    tensors = [pb_utils.Tensor(name, _bytes(y)) for name, y in found.items() if name in wanted]
    return pb_utils.InferenceResponse(output_tensors=tensors)


def _numbers(x: np.ndarray) -> np.ndarray:
    """Triton has text as bytes, tactix as str."""
    if x.dtype != np.object_:
        return x
    return np.array([t.decode() for t in x.ravel()], object).reshape(x.shape)


def _bytes(y: np.ndarray) -> np.ndarray:
    if y.dtype != np.object_:
        return np.ascontiguousarray(y)
    return np.array([str(t).encode() for t in y.ravel()], object).reshape(y.shape)
