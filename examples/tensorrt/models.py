"""Write the models that the programs read: small ones with random weights, of onnx alone.

python models.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32
IMAGE, CLASSES = 64, 3
STRIDES = (8, 16)
WORDS, HIDDEN, HEADS, LAYERS, LONGEST = 500, 32, 4, 2, 64


class Graph:
    """Nodes and weights of a model under construction; each method gives the name of its output."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int) -> str:
        """Random numbers, the smaller the more of them meet in a sum."""
        scale = 1.0 / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 1.0)
        return self.constant(name, self.rng.normal(0.0, scale, shape).astype(np.float32))

    def constant(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(
        self, op: str, inputs: list[str], name: str, outputs: int = 1, **attributes: object
    ) -> str:
        """A node; its output has its name, several have a number behind it."""
        names = [name] if outputs == 1 else [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name, **attributes))
        return names[0]

    def linear(self, x: str, name: str, width: int, out: int) -> str:
        product = self.add(
            "MatMul", [x, self.weight(f"{name}.weight", width, out)], f"{name}.product"
        )
        return self.add("Add", [product, self.weight(f"{name}.bias", out)], name)

    def conv(
        self, x: str, name: str, width: int, out: int, kernel: int = 3, stride: int = 1
    ) -> str:
        """A convolution with the same size of image, divided by the stride."""
        inputs = [
            x,
            self.weight(f"{name}.weight", out, width, kernel, kernel),
            self.weight(f"{name}.bias", out),
        ]
        pads = [kernel // 2] * 4
        return self.add(
            "Conv", inputs, name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads
        )

    def silu(self, x: str) -> str:
        return self.add("Mul", [x, self.add("Sigmoid", [x], f"{x}.sigmoid")], f"{x}.silu")

    def save(
        self, path: Path, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
    ) -> None:
        graph = helper.make_graph(self.nodes, path.stem, inputs, outputs, self.weights)
        domains = {"": 17} | {node.domain: 1 for node in self.nodes if node.domain}
        opsets = [helper.make_opsetid(*domain) for domain in domains.items()]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def tensor(name: str, dtype: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def detector(path: Path) -> None:
    """images (1, 3, 64, 64) to output0 (1, 4 + classes, cells): centres and sizes in pixels, scores."""
    g = Graph(0)
    x = g.silu(g.conv("images", "stem", 3, 8, stride=2))
    x = g.silu(g.conv(x, "down0", 8, 12, stride=2))
    parts = []
    for i, stride in enumerate(STRIDES):
        x = g.silu(g.conv(x, f"down{i + 1}", 12, 12, stride=2))
        inner = g.silu(g.conv(x, f"block{i}", 12, 12))
        x = g.add("Add", [x, inner], f"sum{i}")
        head = g.conv(x, f"head{i}", 12, 4 + CLASSES, kernel=1)
        cells = (IMAGE // stride) ** 2
        shape = g.constant(f"shape{i}", np.array([1, 4 + CLASSES, cells]))
        parts.append(g.add("Reshape", [head, shape], f"flat{i}"))
    joined = g.add("Concat", parts, "joined", axis=2)
    score = g.add("Sigmoid", [joined], "score")
    g.add("Split", [score, g.constant("sizes", np.array([4, CLASSES]))], "split", outputs=2, axis=1)
    scale, offset = anchors()
    scaled = g.add("Mul", ["split_0", g.constant("scale", scale)], "scaled")
    boxes = g.add("Add", [scaled, g.constant("offset", offset)], "boxes")
    g.add("Concat", [boxes, "split_1"], "output0", axis=1)
    cells = scale.shape[2]
    g.save(
        path,
        [tensor("images", FLOAT, 1, 3, IMAGE, IMAGE)],
        [tensor("output0", FLOAT, 1, 4 + CLASSES, cells)],
    )


def anchors() -> tuple[np.ndarray, np.ndarray]:
    """What numbers of 0 to 1 become boxes by: centres within a cell's neighbours, sizes up to 4 strides."""
    scales, offsets = [], []
    for stride in STRIDES:
        centre = np.arange(IMAGE // stride) * stride
        y, x = (c.ravel() for c in np.meshgrid(centre, centre, indexing="ij"))
        ones = np.ones_like(x)
        scales.append(
            np.stack([stride * ones, stride * ones, 4 * stride * ones, 4 * stride * ones])
        )
        offsets.append(np.stack([x, y, 0 * x, 0 * y]))
    both = (np.concatenate(part, axis=1)[None].astype(np.float32) for part in (scales, offsets))
    scale, offset = both
    return scale, offset


def reader(path: Path) -> None:
    """input_ids, attention_mask (batch, tokens) int32 to start_logits, end_logits: a small BERT."""
    g = Graph(1)
    words = g.add("Gather", [g.weight("words", WORDS, HIDDEN), "input_ids"], "embedded")
    length = g.add(
        "Gather",
        [g.add("Shape", ["input_ids"], "shape"), g.constant("one", np.array([1]))],
        "length",
    )
    zero = g.constant("zero", np.array([0]))
    places = g.add("Slice", [g.weight("places", LONGEST, HIDDEN), zero, length, zero], "placed")
    x = normalized(g, g.add("Add", [words, places], "placed_words"), "embeddings.norm")
    mask = g.add("Cast", ["attention_mask"], "mask", to=FLOAT)
    mask = g.add("Unsqueeze", [mask, g.constant("mask_axes", np.array([1, 2]))], "mask4")
    absent = g.add("Sub", [g.constant("present", np.float32([1])), mask], "absent")
    mask = g.add("Mul", [absent, g.constant("never", np.float32([-1e4]))], "masked")
    for i in range(LAYERS):
        x = encoder(g, x, mask, f"layer{i}")
    g.linear(x, "logits", HIDDEN, 2)
    g.add("Split", ["logits"], "span", outputs=2, axis=2)
    last = g.constant("last", np.array([2]))
    for i, name in enumerate(("start_logits", "end_logits")):
        g.add("Squeeze", [f"span_{i}", last], name)
    sizes = ("batch", "tokens")
    inputs = [tensor(name, INT32, *sizes) for name in ("input_ids", "attention_mask")]
    g.save(path, inputs, [tensor(name, FLOAT, *sizes) for name in ("start_logits", "end_logits")])


def encoder(g: Graph, x: str, mask: str, name: str) -> str:
    """Self-attention and two products, each with a residual and a normalization."""
    size = HIDDEN // HEADS
    split = g.constant(f"{name}.split", np.array([0, 0, HEADS, size]))

    def heads(kind: str, perm: list[int]) -> str:
        made = g.add(
            "Reshape",
            [g.linear(x, f"{name}.{kind}", HIDDEN, HIDDEN), split],
            f"{name}.{kind}.heads",
        )
        return g.add("Transpose", [made], f"{name}.{kind}.moved", perm=perm)

    query, key, value = (
        heads("query", [0, 2, 1, 3]),
        heads("key", [0, 2, 3, 1]),
        heads("value", [0, 2, 1, 3]),
    )
    scores = g.add("MatMul", [query, key], f"{name}.scores")
    root = g.constant(f"{name}.root", np.float32([size**-0.5]))
    scores = g.add("Add", [g.add("Mul", [scores, root], f"{name}.scaled"), mask], f"{name}.allowed")
    seen = g.add(
        "MatMul", [g.add("Softmax", [scores], f"{name}.weights", axis=-1), value], f"{name}.seen"
    )
    seen = g.add("Transpose", [seen], f"{name}.back", perm=[0, 2, 1, 3])
    joined = g.add(
        "Reshape", [seen, g.constant(f"{name}.join", np.array([0, 0, HIDDEN]))], f"{name}.joined"
    )
    x = normalized(
        g,
        g.add("Add", [x, g.linear(joined, f"{name}.out", HIDDEN, HIDDEN)], f"{name}.sum"),
        f"{name}.norm",
    )
    wide = g.add("Relu", [g.linear(x, f"{name}.wide", HIDDEN, 2 * HIDDEN)], f"{name}.relu")
    narrow = g.linear(wide, f"{name}.narrow", 2 * HIDDEN, HIDDEN)
    return normalized(g, g.add("Add", [x, narrow], f"{name}.sum2"), f"{name}.norm2")


def normalized(g: Graph, x: str, name: str) -> str:
    scale = g.constant(f"{name}.scale", np.ones(HIDDEN, np.float32))
    shift = g.constant(f"{name}.shift", np.zeros(HIDDEN, np.float32))
    return g.add("LayerNormalization", [x, scale, shift], name, axis=-1)


def classifier(path: Path) -> None:
    """images (batch, 3, 32, 32) to scores (batch, 10)."""
    g = Graph(2)
    x = g.add("Relu", [g.conv("images", "conv1", 3, 8, stride=2)], "relu1")
    x = g.add("Relu", [g.conv(x, "conv2", 8, 16, stride=2)], "relu2")
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x], "pool")], "flat")
    g.add("Gemm", [x, g.weight("fc.weight", 16, 10), g.weight("fc.bias", 10)], "scores")
    g.save(
        path, [tensor("images", FLOAT, "batch", 3, 32, 32)], [tensor("scores", FLOAT, "batch", 10)]
    )


def selector(path: Path) -> None:
    """signal (samples,) to indices (found, 1) and values (found,) of what is above 1."""
    g = Graph(3)
    above = g.add("Greater", ["signal", g.constant("limit", np.float32([1]))], "above")
    g.add("Transpose", [g.add("NonZero", [above], "found")], "indices", perm=[1, 0])
    g.add("GatherND", ["signal", "indices"], "values")
    outputs = [tensor("indices", TensorProto.INT64, "found", 1), tensor("values", FLOAT, "found")]
    g.save(path, [tensor("signal", FLOAT, "samples")], outputs)


def panorama(path: Path) -> None:
    """images (batch, 3, height, width) to features (batch, 4, height, width): rows go on at their other end."""
    g = Graph(4)
    x = g.add("CircularPad", ["images"], "wide", domain="examples", pads=[1, 1])
    x = g.add(
        "Conv", [x, g.weight("weight", 4, 3, 3, 3)], "conv", kernel_shape=[3, 3], pads=[1, 0, 1, 0]
    )
    g.add("Relu", [x], "features")
    size = ("height", "width")
    g.save(
        path,
        [tensor("images", FLOAT, "batch", 3, *size)],
        [tensor("features", FLOAT, "batch", 4, *size)],
    )


def filters(path: Path) -> None:
    """signal (batch, 1, samples) to bands (batch, 4, samples)."""
    g = Graph(5)
    g.add("Conv", ["signal", g.weight("weight", 4, 1, 7)], "bands", kernel_shape=[7], pads=[3, 3])
    g.save(
        path,
        [tensor("signal", FLOAT, "batch", 1, "samples")],
        [tensor("bands", FLOAT, "batch", 4, "samples")],
    )


MODELS = {
    "detector": detector,
    "reader": reader,
    "classifier": classifier,
    "selector": selector,
    "panorama": panorama,
    "filters": filters,
}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in MODELS.items():
        write(folder / f"{name}.onnx")
        print(folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
