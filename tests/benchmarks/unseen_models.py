#!/usr/bin/env python3
"""Sixteen architectures that no kernel or rule was made for, with random weights, as ONNX files.

    python tests/benchmarks/unseen_models.py MODELS [--only yolo,tcn] [--kept]

Needs torch, onnxscript and transformers (2.13, 0.7 and 5.24 were used). ``--kept`` exports the
half that was kept aside until everything else was measured, else the other half is. ``cpu_peers.py --models MODELS``
times them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as f

Example = tuple[nn.Module, tuple[Tensor, ...]]


def image(size: int, channels: int = 3) -> tuple[Tensor]:
    return (torch.randn(1, channels, size, size),)


def tokens(length: int) -> Tensor:
    return torch.randint(0, 100, (1, length))


def convolution(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """With a batch normalization behind it."""
    conv = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )
    return [conv, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """``x + body(x)``."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class CrossStage(nn.Module):
    """Half of the channels through bottlenecks, all intermediate results joined (YOLOv8's C2f)."""

    def __init__(self, inputs: int, outputs: int, depth: int) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = nn.Sequential(*convolution(inputs, outputs, 1), nn.SiLU())
        self.blocks = nn.ModuleList(
            Residual(*convolution(half, half), nn.SiLU(), *convolution(half, half), nn.SiLU())
            for _ in range(depth)
        )
        self.leave = nn.Sequential(*convolution((2 + depth) * half, outputs, 1), nn.SiLU())

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Yolo(nn.Module):
    """An anchor-free detector: backbone, feature pyramid, boxes from distributions, suppression."""

    def __init__(self, size: int, classes: int = 20, bins: int = 16) -> None:
        super().__init__()
        self.bins = bins
        self.stem = nn.Sequential(
            *convolution(3, 16, 3, 2), nn.SiLU(), *convolution(16, 32, 3, 2), nn.SiLU()
        )
        self.stages = nn.ModuleList(
            nn.Sequential(*convolution(c, 2 * c, 3, 2), nn.SiLU(), CrossStage(2 * c, 2 * c, depth))
            for c, depth in ((32, 2), (64, 2), (128, 1))
        )
        self.up = nn.ModuleList([CrossStage(384, 128, 1), CrossStage(192, 64, 1)])
        self.heads = nn.ModuleList(
            nn.Sequential(*convolution(c, 64), nn.SiLU(), nn.Conv2d(64, 4 * bins + classes, 1))
            for c in (64, 128, 256)
        )
        centres = [
            torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).reshape(-1, 2)
            for s in (8, 16, 32)
            for at in [(torch.arange(size // s) + 0.5) * s]
        ]
        strides = [torch.full((len(c), 1), float(s)) for c, s in zip(centres, (8, 16, 32))]
        for head in self.heads:  # so that no two scores are alike
            nn.init.normal_(head[-1].weight, std=0.5)
        self.register_buffer("centres", torch.cat(centres))
        self.register_buffer("strides", torch.cat(strides))

    def boxes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Corners (batch, places, 4) and best scores (batch, places)."""
        fine, middle, coarse = self._features(x)
        middle = self.up[0](torch.cat([f.interpolate(coarse, scale_factor=2.0), middle], 1))
        fine = self.up[1](torch.cat([f.interpolate(middle, scale_factor=2.0), fine], 1))
        found = torch.cat(
            [head(y).flatten(2) for head, y in zip(self.heads, (fine, middle, coarse))], 2
        )
        sides, scores = found.split([4 * self.bins, found.shape[1] - 4 * self.bins], 1)
        sides = sides.reshape(len(x), 4, self.bins, -1).softmax(2)
        steps = torch.arange(self.bins, device=x.device)[:, None]
        sides = (sides * steps).sum(2).transpose(1, 2) * self.strides
        boxes = torch.cat([self.centres - sides[..., :2], self.centres + sides[..., 2:]], 2)
        return boxes, scores.sigmoid().amax(1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        boxes, best = self.boxes(x)
        kept = torch.onnx.ops.symbolic(
            "NonMaxSuppression",
            [boxes, best[:, None], torch.tensor([50]), torch.tensor([0.5]), torch.tensor([0.01])],
            dtype=torch.int64,
            shape=(torch.sym_int(50), 3),
            version=20,
        )
        chosen = kept[:, 2]
        return boxes[0, chosen], best[0, chosen]

    def _features(self, x: Tensor) -> list[Tensor]:
        found = [self.stem(x)]
        for stage in self.stages:
            found.append(stage(found[-1]))
        return found[1:]


class Attention(nn.Module):
    """Multi-head attention over ``(batch, length, width)``, to another sequence if one is given."""

    def __init__(self, width: int, heads: int, other: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = nn.Linear(other or width, width), nn.Linear(other or width, width)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        memory = x if other is None else other
        q, k, v = (
            y.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for y in (self.q(x), self.k(memory), self.v(memory))
        )
        return self.o(f.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class TimedResidual(nn.Module):
    """A residual block of a diffusion model: group normalizations, shifted by the time's vector."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1)
        )
        self.shift = nn.Sequential(nn.SiLU(), nn.Linear(time, outputs))
        self.second = nn.Sequential(
            nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1)
        )
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.first(x) + self.shift(time)[:, :, None, None]
        return self.skip(x) + self.second(y)


class SpatialTransformer(nn.Module):
    """Self-attention, attention to a text, and a gated MLP over the pixels of an image."""

    def __init__(self, width: int, text: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.alone, self.across = Attention(width, 4), Attention(width, 4, text)
        self.gated, self.out = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.norm(x).flatten(2).transpose(1, 2)
        y = y + self.alone(self.norms[0](y))
        y = y + self.across(self.norms[1](y), text)
        value, gate = self.gated(self.norms[2](y)).chunk(2, 2)
        y = y + self.out(value * f.gelu(gate))
        return x + y.transpose(1, 2).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """A U-Net that denoises a latent image, given a time and a text."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 192), time: int = 256) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(4, widths[0], 3, padding=1)
        pairs = list(zip((widths[0], *widths), widths))
        self.down = nn.ModuleList(TimedResidual(a, b, time) for a, b in pairs)
        self.attend = nn.ModuleList(SpatialTransformer(w, 128) for w in widths)
        self.shrink = nn.ModuleList(nn.Conv2d(w, w, 3, 2, padding=1) for w in widths[:-1])
        self.middle = TimedResidual(widths[-1], widths[-1], time)
        self.rise = nn.ModuleList(TimedResidual(2 * b, a, time) for a, b in reversed(pairs))
        self.leave = nn.Sequential(
            nn.GroupNorm(8, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], 4, 3, padding=1)
        )

    def forward(self, x: Tensor, step: Tensor, text: Tensor) -> Tensor:
        rates = torch.exp(-0.3 * torch.arange(32, device=step.device)).to(step.dtype)
        angles = step[:, None] * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        y, kept = self.enter(x), []
        for level, (block, attend) in enumerate(zip(self.down, self.attend)):
            y = attend(block(y, time), text)
            kept.append(y)
            y = self.shrink[level](y) if level < len(self.shrink) else y
        y = self.middle(y, time)
        for level, block in enumerate(self.rise):
            y = block(torch.cat([y, kept.pop()], 1), time)
            y = f.interpolate(y, scale_factor=2.0) if level < len(self.shrink) else y
        return self.leave(y)


class GraphAttention(nn.Module):
    """A layer of a graph attention network: softmax over each node's edges, by scatters."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(inputs, outputs, bias=False)
        self.source = nn.Parameter(torch.randn(heads, outputs // heads) * 0.1)
        self.target = nn.Parameter(torch.randn(heads, outputs // heads) * 0.1)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        y = self.project(x).unflatten(1, (self.heads, -1))
        scores = (y * self.source).sum(2)[source] + (y * self.target).sum(2)[target]
        weights = f.leaky_relu(scores, 0.2).exp()
        sums = weights.new_zeros(len(x), self.heads).index_add(0, target, weights)
        messages = y[source] * (weights / (sums[target] + 1e-9))[:, :, None]
        return torch.zeros_like(y).index_add(0, target, messages).flatten(1)


class GraphNetwork(nn.Module):
    """Three graph attention layers over nodes and an edge list, and a mean over all nodes."""

    def __init__(self, inputs: int = 64, width: int = 128) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GraphAttention(c, width, 4) for c in (inputs, width, width))
        self.out = nn.Linear(width, 10)

    def forward(self, x: Tensor, edge_ids: Tensor) -> Tensor:
        for layer in self.layers:
            x = f.elu(layer(x, edge_ids[0], edge_ids[1]))
        return self.out(x.mean(0))


class TemporalBlock(nn.Module):
    """Two causal dilated convolutions and a residual (the TCN of Bai et al.)."""

    def __init__(self, inputs: int, outputs: int, dilation: int, kernel: int = 5) -> None:
        super().__init__()
        self.pad = (kernel - 1) * dilation
        self.first = nn.Conv1d(inputs, outputs, kernel, dilation=dilation)
        self.second = nn.Conv1d(outputs, outputs, kernel, dilation=dilation)
        self.skip = nn.Identity() if inputs == outputs else nn.Conv1d(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(f.pad(x, (self.pad, 0))).relu()
        y = self.second(f.pad(y, (self.pad, 0))).relu()
        return (y + self.skip(x)).relu()


class TemporalNetwork(nn.Sequential):
    """Six blocks with dilations of 1 to 32 over a long signal."""

    def __init__(self, width: int = 96) -> None:
        blocks = [TemporalBlock(16 if i == 0 else width, width, 2**i) for i in range(6)]
        super().__init__(*blocks, nn.Conv1d(width, 8, 1))


class Squeeze(nn.Module):
    """Squeeze and excitation, with a hard sigmoid."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // 4, 1),
            nn.ReLU(),
            nn.Conv2d(channels // 4, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


def mobilenet_v3() -> nn.Module:
    """MobileNetV3-Small's kind of blocks: kernel, expanded, outputs, gated, hard swish, stride."""
    rows = (
        (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
        (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 120, 48, True, True, 1),
        (5, 288, 96, True, True, 2), (5, 576, 96, True, True, 1),
    )  # fmt: skip
    layers: list[nn.Module] = [*convolution(3, 16, 3, 2), nn.Hardswish()]
    width = 16
    for kernel, middle, outputs, gated, swish, stride in rows:
        act = nn.Hardswish if swish else nn.ReLU
        body = [
            *convolution(width, middle, 1), act(),
            *convolution(middle, middle, kernel, stride, middle), act(),
            *([Squeeze(middle)] if gated else []),
            *convolution(middle, outputs, 1),
        ]  # fmt: skip
        layers += [Residual(*body)] if stride == 1 and width == outputs else body
        width = outputs
    layers += [*convolution(width, 576, 1), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000))


class Video(nn.Sequential):
    """A 3-D network whose convolutions are split into space and time (R(2+1)D)."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [*self.split(3, 32, 2), nn.ReLU()]
        for inputs, outputs in ((32, 32), (32, 64), (64, 128)):
            if inputs != outputs:
                layers += [*self.split(inputs, outputs, 2), nn.ReLU()]
            body = [*self.split(outputs, outputs, 1), nn.ReLU(), *self.split(outputs, outputs, 1)]
            layers += [Residual(*body), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(128, 50))

    @staticmethod
    def split(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        middle = max(inputs, outputs)
        space = nn.Conv3d(inputs, middle, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False)
        time = nn.Conv3d(middle, outputs, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False)
        return [space, nn.BatchNorm3d(middle), nn.ReLU(), time, nn.BatchNorm3d(outputs)]


class EncoderLayer(nn.Module):
    """A transformer's layer with normalization first; the MLP is whatever is given."""

    def __init__(self, width: int, heads: int, mlp: nn.Module) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attend, self.mlp = Attention(width, heads), mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class TabularTransformer(nn.Module):
    """FT-Transformer: a token for each number and category, and one for the answer."""

    def __init__(self, numbers: int = 24, categories: int = 8, width: int = 192) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(numbers, width))
        self.bias = nn.Parameter(torch.randn(numbers, width))
        self.table = nn.Embedding(100 * categories, width)
        self.register_buffer("offsets", 100 * torch.arange(categories))
        self.answer = nn.Parameter(torch.randn(1, 1, width))
        self.layers = nn.Sequential(
            *(EncoderLayer(width, 8, RegluMlp(width, 256)) for _ in range(3))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, numbers: Tensor, category_ids: Tensor) -> Tensor:
        x = numbers[:, :, None] * self.weight + self.bias
        x = torch.cat(
            [self.answer.expand(len(x), -1, -1), x, self.table(category_ids + self.offsets)], 1
        )
        return self.head(self.layers(x)[:, 0])


class RegluMlp(nn.Module):
    """``(a * relu(b)) W``."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(width, 2 * hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.enter(x).chunk(2, 2)
        return self.leave(value * gate.relu())


def super_resolution(width: int = 48) -> nn.Module:
    """EDSR: residual convolutions without normalization, and two shuffles of pixels."""
    body = [
        Residual(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )
        for _ in range(6)
    ]
    grow = [
        layer
        for _ in range(2)
        for layer in (nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2))
    ]
    last = nn.Conv2d(width, 3, 3, padding=1)
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), Residual(*body), *grow, last)


class Experts(nn.Module):
    """A mixture of experts: each token through the two MLPs of highest probability, weighed."""

    def __init__(self, width: int, hidden: int, experts: int = 8) -> None:
        super().__init__()
        self.route = nn.Linear(width, experts, bias=False)
        self.enter = nn.Parameter(torch.randn(experts, width, hidden) * width**-0.5)
        self.leave = nn.Parameter(torch.randn(experts, hidden, width) * hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        best, which = self.route(x).softmax(2).topk(2, 2)
        best = best / best.sum(2, keepdim=True)
        share = torch.zeros_like(self.route(x)).scatter(2, which, best)
        hidden = f.silu(torch.einsum("blw,ewh->eblh", x, self.enter))
        return torch.einsum("eblh,ehw,ble->blw", hidden, self.leave, share)


class ExpertTransformer(nn.Module):
    """A small language model whose MLPs are mixtures of experts."""

    def __init__(self, width: int = 192) -> None:
        super().__init__()
        self.table = nn.Embedding(100, width)
        self.layers = nn.Sequential(
            *(EncoderLayer(width, 6, Experts(width, 256)) for _ in range(3))
        )

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.layers(self.table(input_ids)) @ self.table.weight.T


class AudioCodec(nn.Module):
    """SEANet: strided 1-D convolutions down, an LSTM, and transposed ones up to a waveform."""

    def __init__(self, width: int = 24, strides: tuple[int, ...] = (2, 4, 5)) -> None:
        super().__init__()
        down: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
        up: list[nn.Module] = []
        for s in strides:
            down += [self.unit(width), nn.ELU(), nn.Conv1d(width, 2 * width, 2 * s, s, s // 2)]
            back = nn.ConvTranspose1d(2 * width, width, 2 * s, s, s // 2)
            up = [nn.ELU(), back, self.unit(width), *up]
            width *= 2
        self.down, self.up = nn.Sequential(*down), nn.Sequential(*up)
        self.memory = nn.LSTM(width, width, 2, batch_first=True)
        self.last = nn.Conv1d(width // 2 ** len(strides), 1, 7, padding=3)

    @staticmethod
    def unit(width: int) -> nn.Module:
        first = nn.Conv1d(width, width // 2, 3, padding=1)
        return Residual(nn.ELU(), first, nn.ELU(), nn.Conv1d(width // 2, width, 1))

    def forward(self, wave: Tensor) -> Tensor:
        y = self.down(wave).transpose(1, 2)
        y = (y + self.memory(y)[0]).transpose(1, 2)
        return self.last(self.up(y)).tanh()


class FirstOutput(nn.Module):
    """A transformers model with its first output alone; arguments by the given names."""

    def __init__(self, model: nn.Module, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, args)), return_dict=True)[0]


def segformer() -> Example:
    config = hf.SegformerConfig(num_labels=19)
    return FirstOutput(hf.SegformerForSemanticSegmentation(config), "pixel_values"), image(192)


def t5() -> Example:
    config = hf.T5Config(
        vocab_size=100,
        d_model=256,
        d_kv=32,
        d_ff=512,
        num_layers=3,
        num_heads=8,
        use_cache=False,
        attn_implementation="eager",
    )
    names = "input_ids", "decoder_input_ids"
    return FirstOutput(hf.T5Model(config), *names), (tokens(96), tokens(24))


def mamba() -> Example:
    config = hf.MambaConfig(
        vocab_size=100, hidden_size=192, num_hidden_layers=4, state_size=16, use_cache=False
    )
    return FirstOutput(hf.MambaModel(config), "input_ids"), (tokens(48),)


def swin() -> Example:
    config = hf.SwinConfig(
        embed_dim=64, depths=[2, 2, 4], num_heads=[2, 4, 8], attn_implementation="eager"
    )
    return FirstOutput(hf.SwinModel(config), "pixel_values"), image(224)


def whisper_encoder() -> Example:
    config = hf.WhisperConfig(
        d_model=256, encoder_layers=3, encoder_attention_heads=4, encoder_ffn_dim=1024,
        decoder_attention_heads=4, max_source_positions=750,
    )  # fmt: skip
    model = hf.WhisperModel(config).encoder
    return FirstOutput(model, "input_features"), (torch.randn(1, 80, 1500),)


def regnet() -> Example:
    config = hf.RegNetConfig(
        hidden_sizes=[48, 104, 208, 440], depths=[1, 3, 6, 6], groups_width=8, layer_type="y"
    )
    return FirstOutput(hf.RegNetModel(config), "pixel_values"), image(224)


MEASURED: dict[str, Callable[[], Example]] = {
    "yolo": lambda: (Yolo(320), image(320)),
    "segformer": segformer,
    "t5": t5,
    "diffusion_unet": lambda: (
        DiffusionUNet(),
        (*image(32, 4), torch.tensor([7.0]), torch.randn(1, 20, 128)),
    ),
    "gnn": lambda: (GraphNetwork(), (torch.randn(1000, 64), torch.randint(0, 100, (2, 8000)))),
    "tcn": lambda: (TemporalNetwork(), (torch.randn(1, 16, 2000),)),
    "mobilenet_v3": lambda: (mobilenet_v3(), image(224)),
    "mamba": mamba,
}
KEPT: dict[str, Callable[[], Example]] = {
    "swin": swin,
    "whisper_encoder": whisper_encoder,
    "audio_codec": lambda: (AudioCodec(), (torch.randn(1, 1, 8000),)),
    "r2plus1d": lambda: (Video(), (torch.randn(1, 3, 16, 96, 96),)),
    "ft_transformer": lambda: (
        TabularTransformer(),
        (torch.randn(16, 24), torch.randint(0, 100, (16, 8))),
    ),
    "regnet": regnet,
    "super_resolution": lambda: (super_resolution(), image(64)),
    "experts": lambda: (ExpertTransformer(), (tokens(64),)),
}


def settle(model: nn.Module, *inputs: Tensor) -> None:
    """Let batch norms fit what they see, so that outputs keep their scale."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    model.eval()
    for norm in norms:
        norm.train()
        norm.momentum = 1.0  # one batch tells all
    if norms:
        with torch.no_grad():
            model(*inputs)


def export(name: str, make: Callable[[], Example], folder: Path) -> None:
    """Writes ``NAME.onnx``; sizes are fixed to those of the inputs."""
    torch.manual_seed(0)
    model, inputs = make()
    model.eval()
    program = torch.onnx.export(model, inputs, dynamo=True, verbose=False, optimize=True)
    program.save(folder / f"{name}.onnx", external_data=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--kept", action="store_true", help="the half kept aside")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, make in (KEPT if args.kept else MEASURED).items():
        if not args.only or name in args.only:
            export(name, make, args.folder)
            print(name, flush=True)


if __name__ == "__main__":
    main()
