"""Signal to noise of models in 8 bits: `tactix quantize` beside ONNX Runtime's static quantisation and,
with ``--nncf``, NNCF's, all from the same random inputs, against the float32 model.

    python tests/benchmarks/quantized_noise.py MODEL.onnx... [--samples 64] [--shapes x:1x3x224x224]

Ours in 8-bit floats, too (``tactix quantize --precision fp8``).

All files are run by ONNX Runtime, and ours by tactix, too. ONNX Runtime quantises with its min-max
calibrator, weights per channel, into QuantizeLinear and DequantizeLinear operators; NNCF by its
defaults, and, if the model has a Softmax, as a transformer (``ModelType.TRANSFORMER``).
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

import tactix
from tactix.base.arrays import Array
from tactix.config import BuilderConfig
from tactix.contracts.calibrator import Calibration
from tactix.plugins.session import Session
from tactix_quantize import onnx_model
from tactix_quantize.calibrate import Observer
from tactix_quantize.model import FloatModel, LayerOptions
from tactix_quantize.numbers import FLOATS8

HELD_OUT = 4
"""Inputs on which noise is measured; none of them was a sample."""
FLAGS = ("mask", "type", "segment")
"""In names of integer inputs whose elements are 0 or 1; others are below TOKENS."""
TOKENS = 1000
KEEPS_RELU = ["ReluQuantRewrite"]
"""Of ONNX Runtime's optimizers the one that drops a Relu before QuantizeLinear, as if 8-bit floats
had no sign.
"""
Batch = dict[str, Array]


class Reader(CalibrationDataReader):
    """Batches in the way that ONNX Runtime asks for them."""

    def __init__(self, batches: list[Batch]) -> None:
        self._left = iter(batches)

    def get_next(self) -> Batch | None:
        return next(self._left, None)


def batches(path: str, count: int, shapes: dict[str, list[int]]) -> Iterator[Batch]:
    rng = np.random.default_rng(0)
    inputs = tactix.Builder().import_model(path).inputs
    for _ in range(count):
        batch: Batch = {}
        for v in inputs:
            shape = shapes.get(v.name) or [d if isinstance(d, int) else 1 for d in v.spec.shape]
            if v.spec.dtype.is_float:
                batch[v.name] = rng.standard_normal(shape, np.float32)
            else:
                below = 2 if any(flag in v.name for flag in FLAGS) else TOKENS
                batch[v.name] = rng.integers(0, below, shape).astype(v.spec.dtype.numpy)
        yield batch


def decibels(found: list[list[Array]], wanted: list[list[Array]]) -> str:
    """Of every float output."""
    out = []
    for i in range(len(wanted[0])):
        a, b = (np.stack([one[i] for one in runs]) for runs in (found, wanted))
        if a.dtype.kind == "f":
            noise = np.square(a.astype(np.float64) - b).sum() + 1e-300
            out.append(f"{10 * np.log10(np.square(b.astype(np.float64)).sum() / noise):.1f}")
    return " ".join(out)


def by_onnxruntime(
    path: str | Path, inputs: list[Batch], without: list[str] | None = None
) -> list[list[Array]]:
    """``without``: optimizers that are left out."""
    session = onnxruntime.InferenceSession(
        str(path), providers=["CPUExecutionProvider"], disabled_optimizers=without
    )
    return [session.run(None, batch) for batch in inputs]


def by_tactix(path: str | Path, inputs: list[Batch]) -> list[list[Array]]:
    engine = tactix.build(str(path), level=0)
    found = [engine(batch) for batch in inputs]
    return [list(x.values()) if isinstance(x, dict) else [x] for x in found]


def theirs(path: str, target: Path, samples: list[Batch], kind: Any) -> None:
    ready = target.with_suffix(".ready.onnx")
    quant_pre_process(path, ready, skip_symbolic_shape=True)
    quantize_static(
        ready,
        target,
        Reader(samples),
        quant_format=QuantFormat.QDQ,
        activation_type=kind,
        weight_type=QuantType.QInt8,
        per_channel=True,
        extra_options={"ActivationSymmetric": kind == QuantType.QInt8},
    )


def by_nncf(path: str, target: Path, samples: list[Batch], symmetric: bool) -> None:
    """Raises ImportError without the package nncf."""
    import nncf

    model = onnx.load(path)
    has_attention = any(n.op_type == "Softmax" for n in model.graph.node)
    made = nncf.quantize(
        model,
        nncf.Dataset(samples),
        preset=nncf.QuantizationPreset.PERFORMANCE if symmetric else nncf.QuantizationPreset.MIXED,
        model_type=nncf.ModelType.TRANSFORMER if has_attention else None,
        subset_size=len(samples),
    )
    onnx.save(made, target)


def compared(path: str, count: int, shapes: dict[str, list[int]], folder: Path, nncf: bool) -> None:
    """Print a row for each way."""
    data = list(batches(path, count + HELD_OUT, shapes))
    samples, rest = data[:count], data[count:]
    wanted = by_onnxruntime(path, rest)
    name = Path(path).stem
    model = FloatModel(
        path, Observer(Session(group="build"), BuilderConfig()), LayerOptions(numbers=FLOATS8)
    )
    for calibrator in ("minmax", "entropy2"):
        model.calibrate(Calibration(samples, calibrator))
        onnx_model.save(model.quantized_file(), folder / "float8.onnx")
        theirs_runs = by_onnxruntime(folder / "float8.onnx", rest, KEEPS_RELU)
        ours_runs = by_tactix(folder / "float8.onnx", rest)
        for who, runs in (("onnxruntime", theirs_runs), ("tactix", ours_runs)):
            found = decibels(runs, wanted)
            print(f"{name} | tactix, fp8 {calibrator} | run by {who} | {found}", flush=True)
    for symmetric in (False, True):
        kind = "symmetric" if symmetric else "asymmetric"
        model = FloatModel(path, Observer(Session(group="build"), BuilderConfig()))
        for calibrator in ("minmax", "entropy2"):
            model.calibrate(Calibration(samples, calibrator, symmetric=symmetric))
            onnx_model.save(model.quantized_file(), folder / "ours.onnx")
            for who, run in (("onnxruntime", by_onnxruntime), ("tactix", by_tactix)):
                found = decibels(run(folder / "ours.onnx", rest), wanted)
                print(f"{name} | tactix, {kind} {calibrator} | run by {who} | {found}", flush=True)
        quant = QuantType.QInt8 if symmetric else QuantType.QUInt8
        theirs(path, folder / "theirs.onnx", samples, quant)
        found = decibels(by_onnxruntime(folder / "theirs.onnx", rest), wanted)
        print(f"{name} | onnxruntime, {kind} minmax | run by onnxruntime | {found}", flush=True)
        if nncf:
            by_nncf(path, folder / "nncf.onnx", samples, symmetric)
            found = decibels(by_onnxruntime(folder / "nncf.onnx", rest), wanted)
            print(f"{name} | nncf, {kind} | run by onnxruntime | {found}", flush=True)


def main() -> None:
    logging.getLogger().setLevel(logging.ERROR)  # ONNX Runtime tells every weight without channels
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--shapes", action="append", default=[], help="x:1x3x224x224")
    parser.add_argument("--nncf", action="store_true", help="beside NNCF's, too, if it is there")
    given = parser.parse_args()
    shapes = {
        name: [int(n) for n in text.split("x")]
        for name, _, text in (item.rpartition(":") for item in given.shapes)
    }
    for path in given.models:
        with tempfile.TemporaryDirectory() as folder:
            compared(path, given.samples, shapes, Path(folder), given.nncf)


if __name__ == "__main__":
    main()
