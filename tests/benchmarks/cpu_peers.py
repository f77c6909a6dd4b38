#!/usr/bin/env python3
"""tactix beside ONNX Runtime on exported models: the same inputs, threads and run; medians and agreement.

    python tests/benchmarks/cpu_peers.py --models DIR [--names resnet50,mlp] [--batch 1] [--threads 1] [--json out.json]

Each engine runs in a process of its own; rounds of the two are interleaved. DIR holds NAME.onnx files.
Prints a Markdown table; exits 1 if an output departs from ONNX Runtime by more than 1e-4 relative.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("resnet50", "mobilenet_v2", "bert_base", "gpt2", "unet32", "lstm_tagger", "dlrm", "lenet", "mlp")
LENGTHS = {"lstm_tagger": 64, "gru_tagger": 64}
VOCABULARY = {"bert_base": 30522, "gpt2": 50257, "lstm_tagger": 10000, "gru_tagger": 10000, "dlrm": 10000}


def make_inputs(path: Path, batch: int, seed: int = 3, length: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of a model: normal floats, token ids below the vocabulary, a mask with a padded tail."""
    import onnx

    name = path.name.split(".")[0]
    rng = np.random.default_rng(seed)
    graph = onnx.load(str(path), load_external_data=False).graph
    known = {t.name for t in graph.initializer}
    out: dict[str, np.ndarray] = {}
    for value in graph.input:
        if value.name in known:
            continue
        kind = value.type.tensor_type
        dims = [
            d.dim_value or (batch if i == 0 else length or LENGTHS.get(name, 128)) for i, d in enumerate(kind.shape.dim)
        ]
        if kind.elem_type == onnx.TensorProto.FLOAT:
            out[value.name] = rng.standard_normal(dims, dtype=np.float32)
        elif "mask" in value.name:
            out[value.name] = np.ones(dims, np.int64)
            out[value.name][1:, dims[1] * 3 // 4 :] = 0
        elif "type" in value.name:
            out[value.name] = np.zeros(dims, np.int64)
        else:
            out[value.name] = rng.integers(0, VOCABULARY.get(name, 100), dims)
    return out


class Peer:
    """One engine in a child process: ``ready`` seconds, then timed rounds on request."""

    def __init__(self, engine: str, args: argparse.Namespace, path: Path, inputs: Path, outputs: Path) -> None:
        command = [sys.executable, __file__, "--child", engine, "--models", str(path), "--inputs", str(inputs)]
        command += ["--outputs", str(outputs), "--threads", str(args.threads), "--level", str(args.level)]
        env = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "TACTIX_NUM_THREADS": str(args.threads)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.facts = self._read()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a benchmark process ended with code {self.process.wait()}")
        return json.loads(line)

    def round(self) -> list[float]:
        """Seconds of single calls."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        found: list[float] = self._read()
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def child(args: argparse.Namespace) -> None:
    """Load the engine, save its outputs, then time a round for every line on stdin."""
    feed = dict(np.load(args.inputs))
    start = time.perf_counter()
    call, facts = (_tactix if args.child == "tactix" else _onnxruntime)(args, feed)
    facts["build_seconds"] = time.perf_counter() - start
    np.savez(args.outputs, **{str(i): y for i, y in enumerate(call())})
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        times: list[float] = []
        end = time.perf_counter() + 0.7
        while len(times) < 3 or (time.perf_counter() < end and len(times) < 20000):
            t = time.perf_counter()
            call()
            times.append(time.perf_counter() - t)
        print(json.dumps(times), flush=True)


def _tactix(args: argparse.Namespace, feed: dict[str, np.ndarray]) -> Any:
    import tactix

    shapes = _open_shapes(args.models, {k: v.shape for k, v in feed.items()})
    engine = tactix.build(args.models, threads=args.threads, level=args.level, shapes=shapes)
    memory = engine.inspect()["memory"]
    names = [io.name for io in engine.outputs]

    def call() -> list[np.ndarray]:
        y = engine(**feed)
        return [y[n] for n in names] if isinstance(y, dict) else [y]

    return call, {"version": tactix.__version__, "memory": memory}


def _open_shapes(path: Path, shapes: dict[str, tuple[int, ...]]) -> Any:
    """Tune for these shapes, but take from 1 to twice as much on every open axis."""
    import onnx

    out = {}
    for value in onnx.load(str(path), load_external_data=False).graph.input:
        if value.name in shapes:
            fixed = [d.dim_value for d in value.type.tensor_type.shape.dim]
            opt = shapes[value.name]
            low = tuple(f or 1 for f in fixed)
            high = tuple(f or 2 * n for f, n in zip(fixed, opt, strict=True))
            out[value.name] = (low, opt, high)
    return out


def _onnxruntime(args: argparse.Namespace, feed: dict[str, np.ndarray]) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.log_severity_level = 3
    session = ort.InferenceSession(str(args.models), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed), {"version": ort.__version__}


def compare(a: Path, b: Path) -> float:
    """Largest difference relative to the reference's largest magnitude."""
    x, y = np.load(a), np.load(b)
    return max(float(np.abs(x[k] - y[k]).max() / max(np.abs(y[k]).max(), 1e-12)) for k in y.files)


def measure(args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """One model: both engines, interleaved rounds."""
    with tempfile.TemporaryDirectory() as folder:
        inputs, ours, theirs = (Path(folder) / f for f in ("in.npz", "tactix.npz", "ort.npz"))
        np.savez(inputs, **make_inputs(path, args.batch))
        peers = [Peer("tactix", args, path, inputs, ours), Peer("onnxruntime", args, path, inputs, theirs)]
        samples: list[list[float]] = [[], []]
        for _ in range(args.rounds):
            for i, p in enumerate(peers):
                samples[i].append(statistics.median(p.round()))
        error = compare(ours, theirs)
        for p in peers:
            p.close()
    tactix, ort = (statistics.median(s) for s in samples)
    memory = peers[0].facts["memory"]
    return {
        "model": path.stem,
        "batch": args.batch,
        "threads": args.threads,
        "tactix_ms": tactix * 1e3,
        "ort_ms": ort * 1e3,
        "ratio": tactix / ort,
        "error": error,
        "build_seconds": peers[0].facts["build_seconds"],
        "memory": memory,
        "versions": {"tactix": peers[0].facts["version"], "onnxruntime": peers[1].facts["version"]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path(os.environ.get("TACTIX_MODELS", "models")), help="folder")
    parser.add_argument("--names", default=",".join(NAMES), help="comma-separated models")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--level", type=int, default=3, help="builder optimization level")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--child", choices=["tactix", "onnxruntime"], help=argparse.SUPPRESS)
    parser.add_argument("--inputs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--outputs", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return 0
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {args.threads} threads, batch {args.batch}\n")
    print("| model | tactix ms | ONNX Runtime ms | ratio | largest error | build s | arena / bound |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for name in args.names.split(","):
        r = measure(args, args.models / f"{name}.onnx")
        rows.append(r)
        print(
            f"| {r['model']} | {r['tactix_ms']:.4g} | {r['ort_ms']:.4g} | {r['ratio']:.2f} | {r['error']:.1e} "
            f"| {r['build_seconds']:.1f} | {r['memory']['ratio']:.2f} |",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return int(any(r["error"] > 1e-4 for r in rows))


if __name__ == "__main__":
    sys.exit(main())
