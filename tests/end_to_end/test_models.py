"""Small relatives of real networks: file to plan to answer, beside ONNX Runtime, at several shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tactix

MODELS = Path(__file__).parent.parent / "models"
SEQUENCE = {"lstm", "gru", "encoder", "decoder"}
VOCABULARY = {"lstm": 50, "gru": 50, "recommender": 40, "encoder": 60, "decoder": 60}
NO_FALLBACK = {
    "residual",
    "mobile",
    "unet",
    "lenet",
    "mlp",
    "lstm",
    "gru",
    "encoder",
    "decoder",
    "vision",
    "recommender",
}


def feed(
    name: str, session: onnxruntime.InferenceSession, batch: int, length: int
) -> dict[str, np.ndarray]:
    """Random inputs of that batch and sequence length; a mask hides the tail of all rows but the
    first.
    """
    rng = np.random.default_rng(batch * 100 + length)
    out = {}
    for x in session.get_inputs():
        shape = [
            d if isinstance(d, int) else batch if i == 0 else length for i, d in enumerate(x.shape)
        ]
        if x.type == "tensor(float)":
            out[x.name] = rng.standard_normal(shape, dtype=np.float32)
        elif "mask" in x.name:
            out[x.name] = np.ones(shape, np.int64)
            out[x.name][1:, max(1, length // 2) :] = 0
        elif "type" in x.name:
            out[x.name] = rng.integers(0, 2, shape)
        else:
            out[x.name] = rng.integers(0, VOCABULARY[name], shape)
    return out


def outputs(engine: Any, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    y = engine(**arrays)
    return y if isinstance(y, dict) else {engine.outputs[0].name: y}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", sorted(p.stem for p in MODELS.glob("*.onnx")))
def test_agrees_with_onnxruntime(
    name: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACTIX_ALWAYS_PARALLEL", "1")
    path = MODELS / f"{name}.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    built = tactix.build(
        path,
        level=1 if threads == 1 else 0,
        threads=threads,
        timing_cache=tmp_path / "timings.json",
    )
    built.save(tmp_path / "model.plan")
    engine = tactix.load(tmp_path / "model.plan")
    shapes = [(1, 9), (3, 5), (2, 17)] if name in SEQUENCE else [(1, 0), (3, 0), (8, 0)]
    for batch, length in shapes:
        arrays = feed(name, session, batch, length)
        names = [o.name for o in session.get_outputs()]
        want = dict(zip(names, session.run(names, arrays), strict=True))
        got = outputs(engine, arrays)
        assert list(got) == names
        for k in names:
            scale = max(float(np.abs(want[k]).max()), 1e-6)
            assert got[k].shape == want[k].shape
            assert float(np.abs(got[k] - want[k]).max()) <= 1e-4 * scale, (
                f"{name}:{k} at batch {batch}, length {length}"
            )
            np.testing.assert_array_equal(got[k], outputs(built, arrays)[k])


@pytest.mark.parametrize("name", sorted(NO_FALLBACK))
def test_no_layer_runs_on_the_reference(name: str) -> None:
    config = tactix.BuilderConfig(
        flags={tactix.BuilderFlag.NO_FALLBACK}, builder_optimization_level=0, timing_cache=False
    )
    tactics = {
        s["tactic"] for s in tactix.build(MODELS / f"{name}.onnx", config=config).inspect()["steps"]
    }
    assert "tactix.numpy@1" not in tactics


def test_memory_is_planned_close_to_the_bound(tmp_path: Path) -> None:
    for name in ("residual", "unet", "encoder", "decoder"):
        engine = tactix.build(MODELS / f"{name}.onnx", level=0, timing_cache=False)
        assert engine.inspect()["memory"]["ratio"] <= 1.2, name
