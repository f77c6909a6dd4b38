"""Greedy decoding with a cache that grows by a token in each step: tactix beside ONNX Runtime and
OpenVINO, as far as they are installed.

    python examples/generate/generate.py [gpt2|llama] [--tokens 256] [--prompt 16] [--threads 1]
        [--precision fp32] [--weights int4] [--level 3] [--model FILE]

``--model``: a decoder of your own, with inputs and outputs named as in model.py. ``--weights int4``
runs the file that ``tactix quantize`` makes of it, with weights of 4 bits and leave to round
activations to int8; OpenVINO is left out then. Steps of the engines are taken in turns. Prints
tokens per second (of the steps behind the prompt, by the median) and whether all engines wrote the
same tokens; exit code 1 if tactix and ONNX Runtime did not, in float32.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from model import DECODERS, write

import tactix

Step = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


@dataclass
class Writer:
    """An engine, its cache if the caller keeps that, and what it has written so far."""

    name: str
    step: Step
    cache: dict[str, np.ndarray]
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def advance(self, ids: np.ndarray) -> None:
        """One step: the most likely next token, and the cache grown by what was read."""
        start = time.perf_counter()
        found = self.step({"input_ids": ids, **self.cache})
        self.seconds.append(time.perf_counter() - start)
        for name in self.cache:
            self.cache[name] = found[name.replace("past_key_values", "present")]
        self.tokens.append(int(found["logits"][0, -1].argmax()))


def tactix_step(path: Path, options: argparse.Namespace) -> Step:
    """Tuned for steps of one token, as for every model whose state grows; a prompt runs, too. The
    context keeps the cache, with room for all tokens. Weights are copied to huge pages, as a step
    is mostly reading them.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "decoder.plan")
        tactix.build(
            path,
            threads=options.threads,
            level=options.level,
            precision=options.precision,
            flags={tactix.BuilderFlag.RESERVE_STATES},
        ).save(plan)
        engine = tactix.load(plan.read_bytes(), max_threads=options.threads, copy_weights=True)
    context = engine.create_execution_context()
    context.reserve(options.prompt + options.tokens)
    return context.run


def onnxruntime_step(path: Path, options: argparse.Namespace) -> Step:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    names = [y.name for y in session.get_outputs()]
    return lambda feed: dict(zip(names, session.run(names, dict(feed)), strict=True))


def openvino_step(path: Path, options: argparse.Namespace) -> Step:
    import openvino as ov  # type: ignore[import-untyped]

    settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": options.threads}
    if options.precision == "fp32":
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    model = ov.Core().compile_model(ov.Core().read_model(str(path)), "CPU", settings)

    def step(feed: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        found = model(dict(feed))
        arrays = [(port.get_names(), np.array(found[port])) for port in model.outputs]
        return {name: array for names, array in arrays for name in names}  # a port may have several

    return step


ENGINES = {"tactix": tactix_step, "onnxruntime": onnxruntime_step, "openvino": openvino_step}


def in_four_bits(path: Path, folder: Path) -> Path:
    """The decoder with weights of 4 bits, in blocks of 32."""
    small = Path(folder, "int4.onnx")
    command = [sys.executable, "-m", "tactix", "quantize", str(path), "--weights", "int4"]
    subprocess.run([*command, "-o", str(small), "--quiet"], check=True, capture_output=True)
    return small


def empty_cache(path: Path) -> dict[str, np.ndarray]:
    """Of the length 0."""
    import onnx

    inputs = onnx.load(str(path), load_external_data=False).graph.input
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
    return {n: np.zeros(s, np.float32) for n, s in shapes.items() if n.startswith("past")}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("decoder", nargs="?", choices=DECODERS, default="gpt2")
    parser.add_argument("--model", type=Path, help="an ONNX file instead")
    parser.add_argument("--tokens", type=int, default=256, help="to write (default: 256)")
    parser.add_argument("--prompt", type=int, default=16, help="tokens before (default: 16)")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of tactix")
    parser.add_argument("--weights", choices=("as they are", "int4"), default="as they are")
    parser.add_argument("--level", type=int, default=3, help="of tactix's build (default: 3)")
    options = parser.parse_args()
    if options.tokens < 2 or options.prompt < 1:
        parser.error("there are at least 2 tokens to write, and one before them")
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or write(DECODERS[options.decoder], Path(folder, "decoder.onnx"))
        engines = dict(ENGINES)
        if options.weights == "int4":
            path = in_four_bits(path, Path(folder))
            del engines["openvino"]
        writers = [
            Writer(name, make(path, options), {} if name == "tactix" else empty_cache(path))
            for name, make in engines.items()
            if importlib.util.find_spec(name)
        ]
        run(writers, options)
    return report(writers, options)


def run(writers: list[Writer], options: argparse.Namespace) -> None:
    """All of it, in turns."""
    prompt = np.random.default_rng(0).integers(0, 1000, (1, options.prompt))
    for turn in range(options.tokens):
        first = turn % len(writers)
        for writer in (*writers[first:], *writers[:first]):
            ids = prompt if turn == 0 else np.array([[writer.tokens[-1]]])
            writer.advance(ids)


def report(writers: list[Writer], options: argparse.Namespace) -> int:
    """Prints the table; the exit code."""
    own, *others = writers
    print("| engine | tokens per second | us per step | us for the prompt | same tokens |")
    print("|---|---|---|---|---|")
    for w in writers:
        step = statistics.median(w.seconds[1:])
        same = sum(a == b for a, b in zip(w.tokens, own.tokens, strict=True))
        print(
            f"| {w.name} | {1 / step:,.0f} | {step * 1e6:,.0f} | {w.seconds[0] * 1e6:,.0f} "
            f"| {same} of {options.tokens} |"
        )
    exact = options.precision == "fp32" and options.weights != "int4"
    peers = [w for w in others if w.name == "onnxruntime" and exact]
    return int(any(w.tokens != own.tokens for w in peers))


if __name__ == "__main__":
    sys.exit(main())
