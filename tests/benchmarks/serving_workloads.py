"""What a server is asked under load: models with inputs of mixed shapes, and what is right."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from peer_inputs import make_inputs

SAMPLES = 8
"""Inputs of each model."""
LENGTHS = (16, 32, 64, 128)
"""Of texts, for exported models."""
TOLERANCE = 1e-4
EXPORTED_TOLERANCE = 2e-3
"""Of the largest magnitude of an output: of whole networks, whose sums run in another order."""
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Sample:
    """``right``: outputs for even and for odd versions. ``tolerance``: absolute."""

    feeds: Arrays
    right: tuple[Arrays, Arrays]
    tolerance: float

    def fits(self, version: int, found: Arrays) -> bool:
        return all(
            np.abs(found[name] - y).max(initial=0.0) <= self.tolerance
            for name, y in self.right[version % 2].items()
        )


@dataclass(frozen=True)
class ServedFile:
    """``model``: an ONNX file, whose weights may lie beside it, or the model itself. ``config``: of
    its folder.
    """

    model: onnx.ModelProto | Path
    samples: Sequence[Sample]
    config: str = ""

    def put(self, folder: Path, model: onnx.ModelProto | None = None) -> None:
        """Into a version's folder, as a whole."""
        folder.mkdir(parents=True, exist_ok=True)
        given = model or self.model
        if isinstance(given, Path):
            for beside in given.parent.glob(f"{given.name}.*"):
                shutil.copy(beside, folder / beside.name)
            shutil.copy(given, folder / "new")
        else:
            (folder / "new").write_bytes(given.SerializeToString())
        (folder / "new").replace(folder / "model.onnx")


def save_samples(files: Mapping[str, ServedFile], path: Path) -> None:
    """For the processes of clients."""
    path.write_bytes(pickle.dumps({name: list(f.samples) for name, f in files.items()}))


def load_samples(path: Path) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = pickle.loads(path.read_bytes())
    return found


# -- small models: ids, rows, images --------------------------------------------------------------


def mlp(version: int) -> onnx.ModelProto:
    """Other weights for odd and even versions."""
    rng = np.random.default_rng(version % 2)
    w1, w2 = (rng.standard_normal(s, np.float32) / 8 for s in ((64, 256), (256, 10)))
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    return _model(nodes, (TensorProto.FLOAT, ["batch", 64]), ["batch", 10], {"w1": w1, "w2": w2})


def embedding() -> onnx.ModelProto:
    table = np.random.default_rng(5).standard_normal((100, 16)).astype(np.float32)
    nodes = [helper.make_node("Gather", ["w", "x"], ["y"])]
    shape = ["batch", "length"]
    return _model(nodes, (TensorProto.INT64, shape), [*shape, 16], {"w": table})


def convolution() -> onnx.ModelProto:
    w = np.random.default_rng(6).standard_normal((16, 3, 3, 3)).astype(np.float32) / 5
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["y"]),
    ]
    shape = ["batch", 3, "height", "width"]
    return _model(nodes, (TensorProto.FLOAT, shape), ["batch", 16, 1, 1], {"w": w})


def _model(
    nodes: list[Any], x: tuple[int, list[Any]], y: list[Any], weights: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "soak",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def _inputs(name: str) -> list[np.ndarray]:
    """Of mixed shapes."""
    rng = np.random.default_rng(7)
    rows = [int(n) for n in rng.integers(1, 5, SAMPLES)]
    if name == "mlp":
        return [rng.standard_normal((n, 64), np.float32) for n in rows]
    if name == "embedding":
        return [rng.integers(0, 100, (n, int(rng.integers(1, 20)))) for n in rows]
    sizes = [int(rng.choice((16, 24, 32))) for _ in rows]
    return [rng.standard_normal((1, 3, s, s), np.float32) for s in sizes]


BATCHING = {
    "mlp": "[batching]\nmax_batch = 8\nwindow = 0.002\n",
    "embedding": "[batching]\nmax_batch = 8\n[batching.pad]\nx = { axis = 1, value = 0 }\n",
    "conv": "",
}


def small_models(batching: bool) -> dict[str, ServedFile]:
    """A product of two layers, an embedding and a convolution."""
    made = {
        "mlp": (mlp(0), mlp(1)),
        "embedding": (embedding(),) * 2,
        "conv": (convolution(),) * 2,
    }
    out = {}
    for name, versions in made.items():
        right = [ReferenceEvaluator(m) for m in versions]
        samples = [
            Sample(
                {"x": x},
                ({"y": right[0].run(None, {"x": x})[0]}, {"y": right[1].run(None, {"x": x})[0]}),
                TOLERANCE,
            )
            for x in _inputs(name)
        ]
        config = f"level = 1\nmax_queue = 256\n{BATCHING[name] if batching else ''}"
        out[name] = ServedFile(versions[1], samples, config)
    return out


# -- exported models ------------------------------------------------------------------------------


def exported_models(folder: Path, only: Sequence[str]) -> dict[str, ServedFile]:
    """Files NAME.onnx; all that have open axes at mixed sizes: one to three rows, or texts of mixed
    lengths. What ONNX Runtime gives is right.
    """
    import onnxruntime

    out = {}
    for path in sorted(folder.glob("*.onnx")):
        if only and path.stem not in only:
            continue
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [y.name for y in session.get_outputs()]
        samples = []
        for seed in range(SAMPLES):
            feeds = _sized(path, seed)
            right = dict(zip(names, session.run(None, feeds), strict=True))
            largest = max(float(np.abs(y).max()) for y in right.values())
            samples.append(Sample(feeds, (right, right), EXPORTED_TOLERANCE * largest))
        out[path.stem] = ServedFile(path, samples)
    return out


def _sized(path: Path, seed: int) -> dict[str, np.ndarray]:
    length = LENGTHS[seed % len(LENGTHS)]
    one = make_inputs(path, 1, seed, length)
    text = any(x.ndim > 1 and x.shape[1] == length for x in one.values())
    return one if text else make_inputs(path, seed % 3 + 1, seed)
