"""Polygraphy as it is, over engines of tactix, where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

import tactix
from tactix_tensorrt import api as trt

pytest.importorskip("polygraphy")

COMMANDS = """
run model.onnx --trt --onnxrt {fast} {shapes} --save-inputs in.json --save-outputs out.json
run model.onnx --trt {fast} {shapes} --load-inputs in.json --load-outputs out.json --save-engine e
run e --model-type engine --trt --load-inputs in.json --load-outputs out.json
run model.onnx --trt {fast} {shapes} --save-tactics tactics.json --load-inputs in.json
run model.onnx --trt {fast} {shapes} --load-tactics tactics.json --load-inputs in.json
run model.onnx --trt {fast} {shapes} --weight-streaming --weight-streaming-budget 50%
convert model.onnx --convert-to trt -o c {fast} {ranges} --profiling-verbosity detailed
inspect model c --model-type engine --show layers attrs
inspect model model.onnx --convert-to trt --show layers attrs
inspect data out.json -s
inspect capability model.onnx
debug build model.onnx {fast} {ranges} --until 1 --check true
"""

SCRIPT = """
import sys
from polygraphy.tools import main

for line in open("commands"):
    sys.argv = ["polygraphy", *line.split()]
    try:
        code = main()
    except SystemExit as e:
        code = e.code
    print("RC", code or 0, line, flush=True)
"""
FAST = "--builder-optimization-level 0"
RANGES = "--trt-min-shapes x:[1,3,8,8] --trt-opt-shapes x:[2,3,8,8] --trt-max-shapes x:[4,3,8,8]"


def test_commands_of_polygraphy(tmp_path: Path, model: bytes) -> None:
    shapes = f"{RANGES} --input-shapes x:[3,3,8,8]"
    lines = COMMANDS.strip().format(fast=FAST, shapes=shapes, ranges=RANGES)
    tmp_path.joinpath("model.onnx").write_bytes(model)
    tmp_path.joinpath("commands").write_text(lines)
    tmp_path.joinpath("script.py").write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, "-m", "tactix_tensorrt", "script.py"],
        env={**os.environ, "TACTIX_TENSORRT_DEVICE": "cpu"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    told = [line for line in run.stdout.splitlines() if line.startswith("RC ")]
    assert [t.split()[1] for t in told] == ["0"] * len(lines.splitlines()), (
        told,
        run.stdout[-3000:],
        run.stderr[-1000:],
    )


def test_a_runner_for_the_comparator(model: bytes) -> None:
    from polygraphy.backend.onnxrt import OnnxrtRunner
    from polygraphy.comparator import Comparator, CompareFunc, DataLoader

    from tactix_tensorrt.polygraphy_runner import TactixRunner

    def built() -> tactix.Engine:
        return tactix.build(model, level=0, timing_cache=False, shapes={"x": (2, 3, 8, 8)})

    runners = [TactixRunner(built), OnnxrtRunner(lambda: onnxruntime.InferenceSession(model))]
    results = Comparator.run(runners, data_loader=DataLoader(seed=1))
    assert bool(Comparator.compare_accuracy(results, CompareFunc.simple(atol=1e-4, rtol=1e-4)))
    assert runners[0].name.startswith("tactix-runner")
    assert trt.__version__.startswith("10.")
