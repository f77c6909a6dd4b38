"""The networks of gpu_peers.py as torch modules with random weights: torchvision's, transformers of
this file, and those of gpu_unseen_models.py.

BERT has the exact (erf) GELU and no mask, GPT-2 the tanh one, a causal mask and its tied head.
Attention is torch's ``scaled_dot_product_attention``, so that torch may take its fastest kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SEQUENCE = 128
IMAGES = ("resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b_16")
TEXTS = {"bert_base": (12, 768, 12), "bert_large": (24, 1024, 16), "gpt2": (12, 768, 12)}
"""Layers, width, heads."""


def heads_of(x: Tensor, heads: int) -> Tensor:
    """(batch, sequence, width) to (batch, heads, sequence, width / heads)."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention over three products and an output product."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part(x), self.heads) for part in (self.query, self.key, self.value))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.causal and torch.onnx.is_in_onnx_export():
            mask = torch.full(
                (SEQUENCE, SEQUENCE), -torch.inf, dtype=q.dtype, device=q.device
            ).triu(1)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Block(nn.Module):
    """One transformer layer; ``causal`` ones normalise before, as GPT-2 does, others after, as BERT
    does.
    """

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.causal, self.gelu = causal, "tanh" if causal else "none"

    def feed(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate=self.gelu))

    def forward(self, x: Tensor) -> Tensor:
        if self.causal:
            x = x + self.attention(self.first(x))
            return x + self.feed(self.second(x))
        x = self.first(x + self.attention(x))
        return self.second(x + self.feed(x))


class Transformer(nn.Module):
    """Token ids (batch, sequence) to hidden states and BERT's pooled state, or to GPT-2's logits."""

    def __init__(self, layers: int, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.words, self.places = (
            nn.Embedding(50257 if causal else 30522, width),
            nn.Embedding(1024, width),
        )
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.norm, self.pooler, self.causal = nn.LayerNorm(width), nn.Linear(width, width), causal

    def forward(self, ids: Tensor) -> Any:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        if self.causal:
            return self.norm(self.blocks(x)) @ self.words.weight.t()
        y = self.blocks(self.norm(x))
        return y, torch.tanh(self.pooler(y[:, 0]))


def make(name: str, batch: int, device: str = "cuda") -> tuple[nn.Module, Tensor]:
    """A network in evaluation mode and float32, and an input of that batch. Raises KeyError for a
    name that is none.
    """
    torch.manual_seed(0)
    if name in TEXTS:
        with torch.device(device):
            model = Transformer(*TEXTS[name], causal=name == "gpt2").eval()
            return model, torch.randint(0, 30522, (batch, SEQUENCE))
    if name not in IMAGES:
        import gpu_unseen_models

        return gpu_unseen_models.make(name, batch, device)
    import torchvision

    model = getattr(torchvision.models, name)(weights=None).to(device)
    if name == "vit_b_16":
        nn.init.normal_(model.heads.head.weight, std=0.02)  # zeros by default, which show no error
    settle(model, device)
    return model.eval(), torch.randn(batch, 3, 224, 224, device=device)


def settle(model: nn.Module, device: str) -> None:
    """Let batch norms fit what they see, so that outputs keep their scale."""
    with torch.no_grad():
        for _ in range(20):
            model(torch.randn(16, 3, 224, 224, device=device))
