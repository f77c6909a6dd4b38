"""Train the example model: a small residual CNN on scikit-learn's digits (8x8 images, ten classes).

    python examples/digits/train.py

writes ``digits.onnx`` (dynamic batch, BatchNormalization kept) and ``digits_test.npz`` (held-out
images and labels) beside this file. Needs torch, scikit-learn, onnx, onnxscript and onnxruntime.
These files were made with torch 2.13.0 (CPU), scikit-learn 1.9.1, onnx 1.23.2, onnxscript 0.7.2 and
Python 3.11. The seed is fixed and one CPU thread is used: a second run on the same versions gives
the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import sklearn
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from onnxscript.optimizer import fold_constants
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
SEED, EPOCHS, BATCH, HELD_OUT, OPSET = 7, 60, 64, 360, 18


class ConvBlock(nn.Sequential):
    """Convolution and batch normalisation, with a ReLU or without."""

    def __init__(self, inputs: int, outputs: int, relu: bool = True) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        super().__init__(*layers, *([nn.ReLU()] if relu else []))


class Residual(nn.Module):
    """``relu(x + f(x))``, f being two convolution blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (
            ConvBlock(channels, channels),
            ConvBlock(channels, channels, relu=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.second(self.first(x)))


class DigitsNet(nn.Module):
    """(batch, 1, 8, 8) pixels in [0, 1] to (batch, 10) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvBlock(1, 16),
            Residual(16),
            nn.MaxPool2d(2),
            ConvBlock(16, 32),
            Residual(32),
            nn.AdaptiveAvgPool2d(1),
        )
        self.dense = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.flatten(self.features(x), 1))


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, held-out images and labels; images (n, 1, 8, 8) float32 in [0,
    1].
    """
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    a, b, c, d = train_test_split(
        images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    return a, c, b, d


def shifted(images: torch.Tensor) -> torch.Tensor:
    """The batch moved by up to one pixel each way: all the augmentation there is."""
    dy, dx = (int(v) for v in torch.randint(0, 3, (2,)))
    return F.pad(images, (1, 1, 1, 1))[:, :, dy : dy + 8, dx : dx + 8]


def train(model: DigitsNet, images: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-2)
    steps = EPOCHS * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    model.train()
    for epoch in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            loss = F.cross_entropy(
                model(shifted(images[batch])), labels[batch], label_smoothing=0.05
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")


def export(model: DigitsNet, path: Path) -> None:
    """Write ONNX with constants folded and BatchNormalization kept; notes on source files are
    dropped.
    """
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        model.eval(), (torch.zeros(2, 1, 8, 8),), input_names=["image"], output_names=["logits"],
        dynamic_shapes={"x": {0: batch}}, opset_version=OPSET, dynamo=True, optimize=False, verbose=False,
    )  # fmt: skip
    fold_constants(program.model)
    RemoveUnusedNodesPass()(program.model)
    proto = program.model_proto
    graph = proto.graph
    for holder in (proto, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        del holder.metadata_props[:]
        holder.ClearField("doc_string")
    for node in graph.node:
        node.name = node.output[0].replace("getitem", "batch_norm")
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, path)


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    train_images, train_labels, test_images, test_labels = load()
    model = DigitsNet()
    train(model, torch.from_numpy(train_images), torch.from_numpy(train_labels))
    export(model, HERE / "digits.onnx")
    np.savez_compressed(HERE / "digits_test.npz", images=test_images, labels=test_labels)
    session = onnxruntime.InferenceSession(
        str(HERE / "digits.onnx"), providers=["CPUExecutionProvider"]
    )
    (logits,) = session.run(None, {"image": test_images})
    accuracy = float((logits.argmax(1) == test_labels).mean())
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{parameters} parameters, accuracy {accuracy:.4f} on {len(test_labels)} held-out images (ONNX Runtime)"
    )
    print(f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, onnx {onnx.__version__}")
    if accuracy <= 0.97:
        raise SystemExit("accuracy is not above 0.97")


if __name__ == "__main__":
    main()
