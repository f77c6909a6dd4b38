"""Inputs for the models of the benchmarks: by name what token ids may be, by shape the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = {"lstm_tagger": 64, "gru_tagger": 64}
LENGTH = 128
VOCABULARY = {
    "bert_base": 30522,
    "gpt2": 50257,
    "lstm_tagger": 10000,
    "gru_tagger": 10000,
    "dlrm": 10000,
}


def graph_inputs(path: Path) -> list[Any]:
    """The ``ValueInfoProto`` of each input that is no initializer."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    known = {t.name for t in graph.initializer}
    return [v for v in graph.input if v.name not in known]


def make_inputs(path: Path, batch: int, seed: int = 3, length: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of a model: normal floats, token ids below the vocabulary, a mask with a padded
    tail.

    Open axes: the first is the batch, others are ``length`` (0: the model's usual one). Fixed axes
    stay.
    """
    name = path.name.split(".")[0]
    rng = np.random.default_rng(seed)
    steps = length or LENGTHS.get(name, LENGTH)
    out: dict[str, np.ndarray] = {}
    for value in graph_inputs(path):
        kind = value.type.tensor_type
        dims = [d.dim_value or (batch if i == 0 else steps) for i, d in enumerate(kind.shape.dim)]
        out[value.name] = _sample(name, value.name, kind.elem_type == 1, dims, rng)
    return out


def _sample(
    model: str, name: str, is_float: bool, dims: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    if is_float:
        return rng.standard_normal(dims, dtype=np.float32)
    if "mask" in name:
        mask = np.ones(dims, np.int64)
        mask[1:, dims[1] * 3 // 4 :] = 0
        return mask
    if "type" in name:
        return np.zeros(dims, np.int64)
    return rng.integers(0, VOCABULARY.get(model, 100), dims)


def has_batch(path: Path) -> bool:
    """Whether the first axis of every input is open."""
    return all(
        v.type.tensor_type.shape.dim and not v.type.tensor_type.shape.dim[0].dim_value
        for v in graph_inputs(path)
    )


def open_dimensions(path: Path, feed: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The size of each named open dimension in ``feed``."""
    return {
        d.dim_param: int(n)
        for v in graph_inputs(path)
        for d, n in zip(v.type.tensor_type.shape.dim, feed[v.name].shape, strict=True)
        if d.dim_param
    }
