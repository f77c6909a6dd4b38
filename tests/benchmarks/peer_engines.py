#!/usr/bin/env python3
"""One engine in a process of its own: it builds a model, saves its outputs, then times a round for
every line on stdin.

    python peer_engines.py ENGINE MODEL.onnx --inputs in.npz --outputs out.npz --threads 1 --precision fp32

Answers are lines that begin with ``RESULT``, with JSON: first the facts, then for each line (the
seconds of a round) the median seconds of a call in it. Shapes are fixed to those of the inputs, for
every engine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from peer_inputs import open_dimensions

Feed = dict[str, np.ndarray]
Call = Callable[[], list[np.ndarray]]
MARK = "RESULT "
LEAST_CALLS, MOST_CALLS = 3, 20000


def tactix(args: argparse.Namespace, feed: Feed) -> tuple[Call, dict[str, Any]]:
    """bfloat16 is allowed but for ``fp32``."""
    import tactix

    precision = "fp32" if args.precision == "fp32" else "bf16"
    shapes = {name: x.shape for name, x in feed.items()}
    engine = tactix.build(
        args.model, threads=args.threads, level=args.level, shapes=shapes, precision=precision
    )
    arrays = [feed[io.name] for io in engine.inputs]
    names = [io.name for io in engine.outputs]

    def call() -> list[np.ndarray]:
        y = engine(*arrays)
        return [y[n] for n in names] if isinstance(y, dict) else [y]

    return call, {"version": tactix.__version__}


def onnxruntime(args: argparse.Namespace, feed: Feed) -> tuple[Call, dict[str, Any]]:
    """It has no bfloat16 on this device: then it computes in float32."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    options.log_severity_level = 3
    for name, size in open_dimensions(args.model, feed).items():
        options.add_free_dimension_override_by_name(name, size)
    session = ort.InferenceSession(str(args.model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed), {"version": ort.__version__}


def openvino(args: argparse.Namespace, feed: Feed) -> tuple[Call, dict[str, Any]]:
    """Its own choice of precision (bfloat16 where the CPU has it), or float32 forced."""
    import openvino as ov  # type: ignore[import-untyped]

    core = ov.Core()
    model = core.read_model(str(args.model))
    names = [next(n for n in port.get_names() if n in feed) for port in model.inputs]
    model.reshape({n: list(feed[n].shape) for n in names})
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": args.threads}
    if args.precision == "fp32":
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()

    def call() -> list[np.ndarray]:
        found = request.infer(feed, share_inputs=True, share_outputs=True)
        return [found[port] for port in compiled.outputs]

    precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    return call, {"version": ov.__version__.split("-")[0], "precision": precision}


ENGINES = {"tactix": tactix, "onnxruntime": onnxruntime, "openvino": openvino}
TITLES = {"tactix": "tactix", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def installed(engine: str) -> bool:
    return find_spec(engine) is not None


def time_round(call: Call, seconds: float) -> float:
    """The median call's seconds, after one that is not counted."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < LEAST_CALLS or (time.perf_counter() < end and len(times) < MOST_CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def answer(found: Any) -> None:
    print(MARK + json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model", type=Path)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--outputs", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), default="fp32")
    parser.add_argument("--level", type=int, default=3, help="optimization level of a tactix build")
    args = parser.parse_args()
    feed = dict(np.load(args.inputs))
    start = time.perf_counter()
    call, facts = ENGINES[args.engine](args, feed)
    facts["build_seconds"] = time.perf_counter() - start
    np.savez(args.outputs, **{str(i): y for i, y in enumerate(call())})  # type: ignore[arg-type]
    answer(facts)
    for line in sys.stdin:
        answer(time_round(call, float(line)))


if __name__ == "__main__":
    main()
