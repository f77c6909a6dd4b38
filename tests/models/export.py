#!/usr/bin/env python3
"""Export small relatives of real networks, as torch's two exporters write them: the test suite's
models.

    pip install torch transformers onnx onnxscript && python export.py [--out DIR]

Random weights of a fixed seed; batch norms carry statistics that differ from the identity. The
files are committed, so tests need neither torch nor transformers.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import onnx
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Residual bottleneck with a strided middle convolution."""

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        cout = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(cin, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )
        same = stride == 1 and cin == cout
        self.skip = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.skip(x))


def residual() -> nn.Module:
    """A stem with a pooled 7x7 convolution, three bottlenecks, a classifier."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Block(16, 8, 1),
        Block(32, 8, 1),
        Block(32, 12, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 10),
    )


class Inverted(nn.Module):
    """Expand, depthwise, project, with a residual where the shapes allow."""

    def __init__(
        self, cin: int, cout: int, stride: int, expand: int, act: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        hidden = cin * expand
        self.residual = stride == 1 and cin == cout
        self.body = nn.Sequential(
            nn.Conv2d(cin, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            act(),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            act(),
            nn.Conv2d(hidden, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def mobile() -> nn.Module:
    """Depthwise-separable blocks with relu6 and silu, channel counts that are no multiple of a
    vector.
    """
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, 2, 1, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU6(),
        Inverted(12, 12, 1, 2, nn.ReLU6),
        Inverted(12, 20, 2, 3, nn.ReLU6),
        Inverted(20, 20, 1, 3, nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(20, 10),
    )


class UNet(nn.Module):
    """Two levels down and up, with a concatenated skip."""

    def __init__(self) -> None:
        super().__init__()

        def double(i: int, o: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(i, o, 3, 1, 1),
                nn.BatchNorm2d(o),
                nn.ReLU(),
                nn.Conv2d(o, o, 3, 1, 1),
                nn.ReLU(),
            )

        self.down, self.deep, self.up = (
            double(3, 16),
            double(16, 32),
            nn.ConvTranspose2d(32, 16, 2, 2),
        )
        self.join, self.head = double(32, 16), nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down(x)
        b = self.up(self.deep(functional.max_pool2d(a, 2)))
        return self.head(self.join(torch.cat([a, b], 1)))


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.f1, self.f2 = nn.Linear(400, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.c1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.c2(x)), 2)
        return functional.log_softmax(
            self.f2(functional.relu(self.f1(x.view(x.size(0), -1)))), dim=1
        )


class Tagger(nn.Module):
    """Embedding, recurrent layers, a classifier per step."""

    def __init__(self, kind: str, bidirectional: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.rnn = getattr(nn, kind)(12, 20, 2, batch_first=True, bidirectional=bidirectional)
        self.out = nn.Linear(40 if bidirectional else 20, 7)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.rnn(self.embedding(input_ids))[0])


class Recommender(nn.Module):
    """Embeddings of categories, pairwise dot products, dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40, 8) for _ in range(5))
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        li, lj = torch.tril_indices(6, 6, -1)
        self.register_buffer("li", li)
        self.register_buffer("lj", lj)
        self.top = nn.Sequential(nn.Linear(8 + 15, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.bottom(dense))
        t = torch.cat([x] + [e(sparse[:, i]) for i, e in enumerate(self.tables)], 1).view(
            x.size(0), 6, -1
        )
        z = torch.bmm(t, t.transpose(1, 2))[:, self.li, self.lj]
        return torch.sigmoid(self.top(torch.cat([x, z], 1)))


class Encoder(nn.Module):
    """A masked text encoder of the BERT family."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        small = BertConfig(
            vocab_size=60,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
        )
        self.model = BertModel._from_config(small, attn_implementation="sdpa")

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> Any:
        r = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return r.last_hidden_state, r.pooler_output


class Decoder(nn.Module):
    """A causal language model of the GPT-2 family."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        small = GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=2, n_positions=64)
        self.model = GPT2LMHeadModel._from_config(small, attn_implementation="sdpa")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).logits


class Vision(nn.Module):
    """A vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification

        small = ViTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            image_size=32,
            patch_size=8,
        )
        self.model = ViTForImageClassification._from_config(small, attn_implementation="sdpa")

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values).logits


def image(c: int, h: int, w: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(2, c, h, w)


def tokens(high: int, length: int = 9) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, high, (2, length))


def ones() -> torch.Tensor:
    return torch.ones(2, 9, dtype=torch.int64)


def dense() -> torch.Tensor:
    return torch.randn(2, 6)


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Callable[[], torch.Tensor]], str]] = {
    "residual": (residual, {"x": image(3, 64, 64)}, "torchscript"),
    "mobile": (mobile, {"x": image(3, 32, 32)}, "batchnorm"),
    "unet": (UNet, {"x": image(3, 32, 32)}, "dynamo"),
    "lenet": (LeNet, {"x": image(1, 28, 28)}, "torchscript"),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(40, 24), nn.ReLU(), nn.Linear(24, 5)),
        {"x": lambda: torch.randn(2, 40)},
        "dynamo",
    ),
    "lstm": (lambda: Tagger("LSTM", True), {"input_ids": tokens(50)}, "torchscript"),
    "gru": (lambda: Tagger("GRU", False), {"input_ids": tokens(50)}, "torchscript"),
    "recommender": (Recommender, {"dense": dense, "sparse": tokens(40, 5)}, "dynamo"),
    "encoder": (
        Encoder,
        {"input_ids": tokens(60), "attention_mask": ones, "token_type_ids": lambda: ones() * 0},
        "torchscript",
    ),
    "decoder": (Decoder, {"input_ids": tokens(60), "attention_mask": ones}, "dynamo"),
    "vision": (Vision, {"pixel_values": image(3, 32, 32)}, "dynamo"),
}
SEQUENCES = {"input_ids", "attention_mask", "token_type_ids"}


def randomise(model: nn.Module) -> None:
    """Parameters and statistics that no rule can mistake for the identity."""
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            nn.init.uniform_(m.weight, 0.6, 1.4)
            nn.init.normal_(m.bias, std=0.1)
            nn.init.normal_(m.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(m.running_var, 0.5, 1.5)  # type: ignore[arg-type]
        elif isinstance(m, nn.LayerNorm):
            nn.init.uniform_(m.weight, 0.6, 1.4)
            nn.init.normal_(m.bias, std=0.1)
        elif isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.normal_(m.bias, std=0.1)


class Greedy(nn.Module):
    """Greedy decoding with a recurrent cell: a while loop with a growing state, a branch, and an
    early end.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(50, 16), nn.Linear(16, 16)
        self.carry, self.head = nn.Linear(16, 16), nn.Linear(16, 50)

    def forward(
        self, tokens: torch.Tensor, steps: int, end: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.zeros_like(self.embed(tokens))
        found = tokens.unsqueeze(0)
        i, done = 0, False
        while i < steps and not done:
            hidden = torch.tanh(self.read(self.embed(tokens)) + self.carry(hidden))
            tokens = self.head(hidden).argmax(1)
            if bool(tokens.max() > 40):
                hidden = hidden * 0.5
            found = torch.cat([found, tokens.unsqueeze(0)], 0)
            done = bool((tokens == end).all())
            i += 1
        return found, hidden


def export_loop(path: Path) -> None:
    """Write Greedy as torch's scripting exporter does: Loop and If."""
    torch.manual_seed(0)
    args = (torch.tensor([1, 2, 3]), 7, torch.tensor(3))
    path.parent.mkdir(exist_ok=True)
    torch.onnx.export(
        torch.jit.script(Greedy().eval()),
        args,
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=["tokens", "steps", "end"],
        output_names=["found", "hidden"],
        dynamic_axes={"tokens": {0: "batch"}},
    )
    strip(path)


def export(name: str, path: Path) -> None:
    """Write one model in one file."""
    make, inputs, exporter = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    model = make().eval()
    randomise(model)
    args = tuple(f() for f in inputs.values())
    axes = {k: {0: "batch", 1: "seq"} if k in SEQUENCES else {0: "batch"} for k in inputs}
    with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        if exporter == "dynamo":
            dims = {n: torch.export.Dim(n, min=1, max=60) for n in ("batch", "seq")}
            shapes = tuple({i: dims[n] for i, n in a.items()} for a in axes.values())
            options: dict[str, Any] = {
                "dynamo": True,
                "dynamic_shapes": shapes,
                "opset_version": 18,
                "external_data": False,
            }
        else:
            mode = (
                torch.onnx.TrainingMode.PRESERVE
                if exporter == "batchnorm"
                else torch.onnx.TrainingMode.EVAL
            )
            options = {"dynamo": False, "dynamic_axes": axes, "opset_version": 17, "training": mode}
        torch.onnx.export(model, args, str(path), input_names=list(inputs), **options)
    strip(path)


def strip(path: Path) -> None:
    """Remove traces of the exporting machine's files."""
    proto = onnx.load(str(path))
    graphs = [proto.graph]
    for graph in graphs:
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    for node in (node for graph in graphs for node in graph.node):
        node.doc_string = ""
        del node.metadata_props[:]
    del proto.metadata_props[:]
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output):
        del value.metadata_props[:]
    onnx.save(proto, str(path))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out
    for name in MODELS:
        path = out / f"{name}.onnx"
        export(name, path)
        print(f"{name}: {path.stat().st_size / 1e3:.0f} kB")
    export_loop(out / "loops" / "greedy.onnx")


if __name__ == "__main__":
    main()
