#!/usr/bin/env python3
"""Twelve more architectures with random weights, as ONNX files, whose first runs are reported.

    python tests/benchmarks/fresh_models.py MODELS [--only hrnet,conformer]

They were written once all of the rest had been measured, and nothing was changed before their first
figures. What is needed is as of ``unseen_models.py``; ``cpu_peers.py --models MODELS`` times them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn import functional as f
from unseen_models import Example, FirstOutput, convolution, export, image, settle


def activated(*sizes: int, **more: int) -> nn.Sequential:
    """A convolution with its normalization and a ReLU."""
    return nn.Sequential(*convolution(*sizes, **more), nn.ReLU())


class PointNet(nn.Module):
    """A cloud of points: an MLP for each, a learned rotation, the maximum over all of them."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()
        self.rotate = nn.Sequential(self.shared(3, 64, 256), nn.AdaptiveMaxPool1d(1), nn.Flatten())
        self.angles = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 9))
        self.points = self.shared(3, 64, 128, 1024)
        self.head = nn.Sequential(nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, classes))

    @staticmethod
    def shared(*widths: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            layers += [nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, cloud: Tensor) -> Tensor:
        turn = self.angles(self.rotate(cloud)).reshape(-1, 3, 3) + torch.eye(3)
        return self.head(self.points(turn @ cloud).amax(2))


class HighResolution(nn.Module):
    """HRNet: branches of three resolutions side by side, which are added to each other twice."""

    def __init__(self, widths: Sequence[int] = (18, 36, 72)) -> None:
        super().__init__()
        self.stem = nn.Sequential(activated(3, 64, stride=2), activated(64, 64, stride=2))
        self.enter = nn.ModuleList(
            activated(64, w, stride=2**i, kernel=3) for i, w in enumerate(widths)
        )
        self.stages = nn.ModuleList(self.stage(widths) for _ in range(2))
        self.head = nn.Conv2d(sum(widths), 17, 1)

    @staticmethod
    def stage(widths: Sequence[int]) -> nn.ModuleDict:
        branches = nn.ModuleList(
            nn.Sequential(*(activated(w, w) for _ in range(3))) for w in widths
        )
        joins = nn.ModuleList(
            nn.ModuleList(
                nn.Identity()
                if i == j
                else nn.Sequential(
                    *convolution(a, b, 1 if i > j else 3, 1 if i > j else 2 ** (j - i))
                )
                for i, a in enumerate(widths)
            )
            for j, b in enumerate(widths)
        )
        return nn.ModuleDict({"branches": branches, "joins": joins})

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        parts = [enter(x) for enter in self.enter]
        for stage in self.stages:
            parts = [branch(y) for branch, y in zip(stage["branches"], parts)]
            parts = [self.join(row, parts, parts[j]) for j, row in enumerate(stage["joins"])]
        fine = [f.interpolate(y, size=parts[0].shape[2:], mode="bilinear") for y in parts]
        return self.head(torch.cat(fine, 1))

    @staticmethod
    def join(row: nn.ModuleList, parts: list[Tensor], like: Tensor) -> Tensor:
        sums = torch.zeros_like(like)
        for layer, y in zip(row, parts):
            y = layer(y)
            if y.shape != like.shape:
                y = f.interpolate(y, size=like.shape[2:], mode="nearest")
            sums = sums + y
        return sums.relu()


class AtrousPyramid(nn.Module):
    """DeepLab v3: dilated windows at four rates beside an average of the image, then bilinear."""

    def __init__(self, width: int = 64, classes: int = 21) -> None:
        super().__init__()
        self.body = nn.Sequential(
            activated(3, 32, stride=2),
            activated(32, width, stride=2),
            activated(width, 128, stride=2),
        )
        self.rates = nn.ModuleList(
            nn.Sequential(nn.Conv2d(128, width, 3, padding=r, dilation=r, bias=False),
                          nn.BatchNorm2d(width), nn.ReLU())
            for r in (1, 6, 12, 18)
        )  # fmt: skip
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(128, width, 1), nn.ReLU())
        self.head = nn.Sequential(activated(5 * width, width, 1), nn.Conv2d(width, classes, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        mean = self.mean(y).expand(-1, -1, *y.shape[2:])
        y = self.head(torch.cat([*(rate(y) for rate in self.rates), mean], 1))
        return f.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=False)


class RadianceField(nn.Module):
    """NeRF: sines and cosines of places, an MLP with a skip, colours and densities of samples,
    which are joined along each ray.
    """

    def __init__(self, octaves: int = 8, width: int = 128) -> None:
        super().__init__()
        self.register_buffer("scales", 2.0 ** torch.arange(octaves))
        inputs = 3 + 6 * octaves
        self.first = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.second = nn.Sequential(
            nn.Linear(width + inputs, width), nn.ReLU(), nn.Linear(width, 4)
        )

    def forward(self, points: Tensor, steps: Tensor) -> Tensor:
        """Colours (rays, 3) of points (rays, samples, 3) that are ``steps`` apart."""
        waves = (points[..., None] * self.scales).flatten(-2)
        places = torch.cat([points, waves.sin(), waves.cos()], -1)
        found = self.second(torch.cat([self.first(places), places], -1))
        colour, depth = found[..., :3].sigmoid(), f.softplus(found[..., 3]) * steps
        left = (depth - depth.cumsum(1)).exp()  # of the light, before each sample
        return (colour * (left * (1 - (-depth).exp()))[..., None]).sum(1)


class TextRecognizer(nn.Module):
    """CRNN: convolutions down to one line, two directions of LSTM, probabilities of characters."""

    def __init__(self, classes: int = 37) -> None:
        super().__init__()
        self.body = nn.Sequential(
            activated(1, 64), nn.MaxPool2d(2), activated(64, 128), nn.MaxPool2d(2),
            activated(128, 256), nn.MaxPool2d((2, 1)), activated(256, 256), nn.MaxPool2d((4, 1)),
        )  # fmt: skip
        self.memory = nn.LSTM(256, 128, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).squeeze(2).transpose(1, 2)
        return self.head(self.memory(y)[0]).log_softmax(2)


class ShuffleUnit(nn.Module):
    """ShuffleNet v2: half of the channels through a depthwise unit, then both shuffled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.body = nn.Sequential(
            activated(half, half, 1),
            *convolution(half, half, 3, groups=half),
            activated(half, half, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, given = x.chunk(2, 1)
        y = torch.stack([kept, self.body(given)], 2)
        return y.flatten(1, 2)


def shuffle_net() -> nn.Module:
    layers: list[nn.Module] = [activated(3, 24, stride=2), nn.MaxPool2d(3, 2, 1)]
    for a, b in ((24, 116), (116, 232), (232, 464)):
        layers += [activated(a, b, stride=2), *(ShuffleUnit(b) for _ in range(3))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(464, 1000))


class RecurrentConvolution(nn.Module):
    """ConvLSTM over eight frames, unrolled, then a frame that comes next."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.Conv2d(1 + width, 4 * width, 3, padding=1)
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, frames: Tensor) -> Tensor:
        h = torch.zeros(frames.shape[0], self.width, *frames.shape[3:])
        c = h
        for t in range(frames.shape[1]):
            i, o, g, k = self.gates(torch.cat([frames[:, t], h], 1)).chunk(4, 1)
            c = k.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.last(h).sigmoid()


class CrossNetwork(nn.Module):
    """DCN v2, a recommender: tables, products of features with themselves, an MLP beside."""

    def __init__(self, tables: int = 12, width: int = 16, numbers: int = 13) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5000, width) for _ in range(tables))
        size = tables * width + numbers
        self.cross = nn.ModuleList(nn.Linear(size, size) for _ in range(3))
        self.deep = nn.Sequential(nn.Linear(size, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
        self.head = nn.Linear(size + 64, 1)

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        x = torch.cat([numbers, *(t(kinds[:, i]) for i, t in enumerate(self.tables))], 1)
        y = x
        for layer in self.cross:
            y = x * layer(y) + y
        return self.head(torch.cat([y, self.deep(x)], 1)).sigmoid()


def conformer() -> Example:
    config = hf.Wav2Vec2ConformerConfig(
        hidden_size=144, num_hidden_layers=4, num_attention_heads=4, intermediate_size=576,
        conv_dim=[128] * 7, num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=4,
        position_embeddings_type="rotary", attn_implementation="eager",
    )  # fmt: skip
    return FirstOutput(hf.Wav2Vec2ConformerModel(config), "input_values"), (torch.randn(1, 32000),)


def mobile_vit() -> Example:
    config = hf.MobileViTConfig(
        hidden_sizes=[96, 120, 144], neck_hidden_sizes=[16, 32, 64, 96, 128, 160, 640]
    )
    model = FirstOutput(hf.MobileViTModel(config), "pixel_values")
    settle(model, torch.randn(2, 3, 256, 256))  # its values would vanish
    return model, image(256)


def patch_tst() -> Example:
    config = hf.PatchTSTConfig(
        num_input_channels=7, context_length=512, patch_length=16, patch_stride=8, d_model=128,
        num_hidden_layers=3, num_attention_heads=8, ffn_dim=256, attn_implementation="eager",
    )  # fmt: skip
    return FirstOutput(hf.PatchTSTModel(config), "past_values"), (torch.randn(1, 512, 7),)


def pool_former() -> Example:
    config = hf.PoolFormerConfig(depths=[2, 2, 4, 2], hidden_sizes=[64, 128, 256, 384])
    return FirstOutput(hf.PoolFormerModel(config), "pixel_values"), image(224)


FRESH: dict[str, Callable[[], Example]] = {
    "pointnet": lambda: (PointNet(), (torch.randn(1, 3, 2048),)),
    "hrnet": lambda: (HighResolution(), image(256)),
    "deeplab": lambda: (AtrousPyramid(), image(256)),
    "nerf": lambda: (RadianceField(), (torch.rand(256, 32, 3), torch.rand(256, 32))),
    "crnn": lambda: (TextRecognizer(), (torch.randn(1, 1, 32, 160),)),
    "shufflenet": lambda: (shuffle_net(), image(224)),
    "convlstm": lambda: (RecurrentConvolution(), (torch.rand(1, 8, 1, 64, 64),)),
    "dcn": lambda: (CrossNetwork(), (torch.rand(64, 13), torch.randint(0, 5000, (64, 12)))),
    "conformer": conformer,
    "mobilevit": mobile_vit,
    "patchtst": patch_tst,
    "poolformer": pool_former,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, make in FRESH.items():
        if not args.only or name in args.only:
            export(name, make, args.folder)
            print(name, flush=True)


if __name__ == "__main__":
    main()
