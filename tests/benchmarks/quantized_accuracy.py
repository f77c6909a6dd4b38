"""What 8 bits cost a network of 24 layers in accuracy, that is trained here: a residual network of
matrix products on the 8x8 digits that scikit-learn ships (1,797 images), by numpy alone.

    python tests/benchmarks/quantized_accuracy.py [--save digits24.onnx]

Prints the accuracy on images that were neither trained on nor samples, in floats, in integers, as
tactix (and ONNX Runtime, where it is installed) computes the file of ``tactix quantize``, and in
8-bit floats; and with these and weights of 4 bits, by method of rounding, how large the noise of the
scores is beside them. Exits with 1 if integers or 8-bit floats lose more than ALLOWED.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tactix
from tactix.base.arrays import Array
from tactix_tools import cli

ALLOWED = 0.005
"""Share of images."""
BLOCKS, WIDTH, CLASSES = 11, 64, 10
EPOCHS, BATCH, RATE = 30, 64, 1e-3
TRAINED, SAMPLES = 1000, 128
"""Images to train on, and how many of them calibrate; the rest tests."""


@dataclass
class Dense:
    """A product and its bias, with what Adam keeps of each."""

    w: Array
    b: Array

    @classmethod
    def made(cls, rng: np.random.Generator, rows: int, columns: int, gain: float) -> Dense:
        spread = gain * np.sqrt(2 / rows)
        w = (rng.standard_normal((rows, columns)) * spread).astype(np.float32)
        return cls(w, np.zeros(columns, np.float32))


class Network:
    """x -> first -> BLOCKS times x + Relu(x @ a) @ b -> last."""

    def __init__(self, rng: np.random.Generator) -> None:
        inner = [Dense.made(rng, WIDTH, WIDTH, gain) for _ in range(BLOCKS) for gain in (1.0, 0.3)]
        ends = [Dense.made(rng, WIDTH, columns, 1.0) for columns in (WIDTH, CLASSES)]
        self.layers = [ends[0], *inner, ends[1]]

    @property
    def blocks(self) -> Iterator[tuple[Dense, Dense]]:
        inner = self.layers[1:-1]
        yield from zip(inner[::2], inner[1::2], strict=True)

    def gradients(self, x: Array, labels: Array) -> list[Array]:
        """Of the mean cross entropy, by weights and bias of each layer in order."""
        first, last = self.layers[0], self.layers[-1]
        h = x @ first.w + first.b
        kept = []
        for a, b in self.blocks:
            inner = np.maximum(h @ a.w + a.b, 0)
            kept.append((h, inner))
            h = h + inner @ b.w + b.b
        scores = h @ last.w + last.b
        d = np.exp(scores - scores.max(1, keepdims=True))
        d /= d.sum(1, keepdims=True)
        d[np.arange(len(labels)), labels] -= 1
        d /= len(labels)
        found = [d.sum(0), h.T @ d]
        d = d @ last.w.T
        for (a, b), (before, inner) in zip(
            reversed(list(self.blocks)), reversed(kept), strict=True
        ):
            found += [d.sum(0), inner.T @ d]
            behind = (d @ b.w.T) * (inner > 0)
            found += [behind.sum(0), before.T @ behind]
            d = d + behind @ a.w.T
        return [*found, d.sum(0), x.T @ d][::-1]

    def train(self, x: Array, labels: Array, rng: np.random.Generator) -> None:
        """Adam, with usual constants."""
        values = [v for layer in self.layers for v in (layer.w, layer.b)]
        means, squares = ([np.zeros_like(v) for v in values] for _ in range(2))
        step = 0
        for _ in range(EPOCHS):
            for chosen in np.array_split(rng.permutation(len(x)), len(x) // BATCH):
                step += 1
                rate = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                found = self.gradients(x[chosen], labels[chosen])
                for v, g, m, s in zip(values, found, means, squares, strict=True):
                    m += 0.1 * (g - m)
                    s += 0.001 * (g * g - s)
                    v -= (rate * m / (np.sqrt(s) + 1e-8)).astype(np.float32)

    def model(self) -> onnx.ModelProto:
        """``image`` (n, 64) to ``scores`` (n, 10)."""
        nodes, stored, h = [], [], "image"

        def gemm(layer: Dense, x: str) -> str:
            name = f"dense_{len(stored) // 2}"
            for kind, array in (("w", layer.w), ("b", layer.b)):
                stored.append(numpy_helper.from_array(array, f"{name}/{kind}"))
            nodes.append(
                helper.make_node("Gemm", [x, f"{name}/w", f"{name}/b"], [f"{name}/y"], name)
            )
            return f"{name}/y"

        h = gemm(self.layers[0], h)
        for i, (a, b) in enumerate(self.blocks):
            inner = gemm(a, h)
            nodes.append(helper.make_node("Relu", [inner], [f"relu_{i}"]))
            nodes.append(helper.make_node("Add", [gemm(b, f"relu_{i}"), h], [f"sum_{i}"]))
            h = f"sum_{i}"
        scores = gemm(self.layers[-1], h)
        nodes.append(helper.make_node("Identity", [scores], ["scores"]))
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
            for name, size in (("image", WIDTH), ("scores", CLASSES))
        ]
        graph = helper.make_graph(nodes, "digits24", ends[:1], ends[1:], stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def accuracy(scores: Array, labels: Array) -> float:
    return float((scores.argmax(1) == labels).mean())


def by_onnxruntime(model: Path, images: Array) -> Array | None:
    """None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    found: Array = onnxruntime.InferenceSession(model).run(None, {"image": images})[0]
    return found


def quantized(model: Path, out: Path, options: Sequence[str], images: Array) -> Array:
    """Scores of what ``tactix quantize`` writes, by tactix."""
    if cli.main(["quantize", str(model), "-o", str(out), *options]):
        raise SystemExit(1)
    found: Array = tactix.build(str(out), timing_cache=False)(images)
    return found


def by_few_bits(model: Path, method: str, samples: Path, images: Array) -> Array:
    """Scores with weights of 4 bits in blocks of 32, rounded by a method of ``tactix quantize``."""
    data = [] if method == "rtn" else ["--data", str(samples)]
    options = ["--weights", "int4", "--method", method, *data]
    return quantized(model, model.with_suffix(f".{method}.onnx"), options, images)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--save", type=Path, help="keep the float model there")
    save = parser.parse_args(words).save
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    network = Network(rng)
    network.train(images[:TRAINED], labels[:TRAINED], rng)
    rest, wanted = images[TRAINED:], labels[TRAINED:]
    with tempfile.TemporaryDirectory() as folder:
        model, whole = save or Path(folder) / "m.onnx", Path(folder) / "q.onnx"
        onnx.save(network.model(), model)
        samples = Path(folder) / "samples.npy"
        np.save(samples, images[:SAMPLES])
        data = ["--data", str(samples)]
        by_integers = quantized(model, whole, data, rest)
        by_float8 = quantized(model, Path(folder) / "f.onnx", [*data, "--precision", "fp8"], rest)
        scores = by_onnxruntime(whole, rest)
        four = {m: by_few_bits(model, m, samples, rest) for m in ("rtn", "gptq", "awq")}
        exact = tactix.build(str(model), timing_cache=False)(rest)
    floats, integers, float8 = (accuracy(x, wanted) for x in (exact, by_integers, by_float8))
    noisy = {"integers": by_integers, "8-bit floats": by_float8}
    noisy |= {f"weights of 4 bits, {method}": found for method, found in four.items()}
    for way, found in noisy.items():
        noise = float(np.square(found - exact).sum() / np.square(exact).sum())
        print(f"{way}: {accuracy(found, wanted):.2%}, noise {noise:.2e}")
    other = "" if scores is None else f", by ONNX Runtime {accuracy(scores, wanted):.2%}"
    print(f"{len(network.layers)} layers, {len(rest)} images: floats {floats:.2%}, ", end="")
    print(f"integers {integers:.2%}{other}")
    return int(floats - min(integers, float8) > ALLOWED)


if __name__ == "__main__":
    raise SystemExit(main())
