"""Networks of many kinds that no kernel for GPUs was made for, at their usual sizes, with random
weights: one input each, so that gpu_peers.py may time them.

``KEPT`` are those that nobody looked at while kernels and rules were made, ``FRESH`` those that came
last and whose first runs are reported. Needs transformers and
torchvision (5.24 and 0.28 were used).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torchvision
import transformers as hf
import unseen_models
from torch import Tensor, nn

TOKENS = 128
WORDS = 1000
"""Words of the vocabulary that inputs are drawn from; the vocabularies themselves are larger."""


@dataclass(frozen=True)
class Network:
    """How to make the module, and an input of some batch.

    ``plain`` ones are exported with attention of plain operators, since torch's exporter cannot
    write them with ``scaled_dot_product_attention``; torch itself runs that.
    """

    module: Callable[[], nn.Module]
    example: Callable[[int], Tensor]
    plain: bool = False


def image(size: int) -> Callable[[int], Tensor]:
    """(batch, 3, size, size)."""
    return lambda batch: torch.randn(batch, 3, size, size)


def tokens(length: int = TOKENS) -> Callable[[int], Tensor]:
    """(batch, length) of int64."""
    return lambda batch: torch.randint(0, WORDS, (batch, length))


def features(*shape: int) -> Callable[[int], Tensor]:
    """(batch, *shape)."""
    return lambda batch: torch.randn(batch, *shape)


class First(nn.Module):
    """A transformers model with its first output alone; ``fixed`` are its other arguments."""

    def __init__(self, model: nn.Module, name: str = "input_ids", **fixed: object) -> None:
        super().__init__()
        self.model, self.name, self.fixed = model, name, fixed

    def forward(self, x: Tensor) -> Tensor:
        return self.model(**{self.name: x}, **self.fixed, return_dict=True)[0]


class EncoderDecoder(nn.Module):
    """Half of the tokens through the encoder, the others through the decoder."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=1)
        return self.model(input_ids=first, decoder_input_ids=second, return_dict=True)[0]


class Detector(nn.Module):
    """Boxes and their scores; none is suppressed, which torch has no CUDA kernel for by itself."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.model = unseen_models.Yolo(size)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.boxes(x)


class Denoiser(nn.Module):
    """A diffusion network at one time step and with one text, which are its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = unseen_models.DiffusionUNet()
        self.register_buffer("time", torch.tensor([7.0]))
        self.register_buffer("text", torch.randn(1, 20, 128))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, self.time, self.text.expand(x.shape[0], -1, -1))


class Segmenter(nn.Module):
    """A network of torchvision's for segmentation: classes of pixels."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)["out"]


def vision(name: str, size: int = 224) -> Network:
    """A classifier of torchvision's."""
    return Network(lambda: getattr(torchvision.models, name)(weights=None), image(size))


def llama(config: type, **more: object) -> nn.Module:
    """A decoder with four queries a key, its logits of all tokens."""
    sizes = {
        "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4,
        "use_cache": False,
    }  # fmt: skip
    return hf.AutoModelForCausalLM.from_config(config(**sizes, **more))


def rtdetr() -> nn.Module:
    backbone = hf.RTDetrResNetConfig(out_features=["stage2", "stage3", "stage4"])
    config = hf.RTDetrConfig(
        use_timm_backbone=False,
        backbone=None,
        backbone_config=backbone,
        use_pretrained_backbone=False,
    )
    return First(hf.RTDetrForObjectDetection(config), "pixel_values")


def detr() -> nn.Module:
    config = hf.DetrConfig(
        use_timm_backbone=False,
        backbone=None,
        backbone_config=hf.ResNetConfig(out_features=["stage4"]),
        use_pretrained_backbone=False,
    )
    return First(hf.DetrForObjectDetection(config), "pixel_values")


MEASURED: dict[str, Network] = {
    "llama": Network(lambda: First(llama(hf.LlamaConfig)), tokens()),
    "t5": Network(
        lambda: EncoderDecoder(hf.T5Model(hf.T5Config(d_model=768, d_ff=3072, num_layers=12,
                                                      num_heads=12, use_cache=False))),
        tokens(2 * TOKENS), plain=True,
    ),
    "whisper": Network(
        lambda: First(hf.WhisperModel(hf.WhisperConfig(
            d_model=768, encoder_layers=12, encoder_attention_heads=12, encoder_ffn_dim=3072,
        )).encoder, "input_features"),
        features(80, 3000),
    ),
    "swin": Network(lambda: First(hf.SwinModel(hf.SwinConfig()), "pixel_values"), image(224), plain=True),
    "convnext": vision("convnext_tiny"),
    "segformer": Network(
        lambda: First(hf.SegformerForSemanticSegmentation(hf.SegformerConfig()), "pixel_values"),
        image(512),
    ),
    "yolo": Network(lambda: Detector(640), image(640)),
    "rtdetr": Network(rtdetr, image(640)),
    "detr": Network(detr, image(640)),
    "mobilenet_v3": vision("mobilenet_v3_large"),
    "denoiser": Network(Denoiser, features(4, 64, 64)),
    "inception": Network(
        lambda: torchvision.models.inception_v3(weights=None, aux_logits=False, init_weights=False),
        image(299),
    ),
}  # fmt: skip

KEPT: dict[str, Network] = {
    "mistral": Network(lambda: First(llama(hf.MistralConfig, sliding_window=64)), tokens()),
    "dinov2": Network(lambda: First(hf.Dinov2Model(hf.Dinov2Config()), "pixel_values"), image(224)),
    "deberta_v2": Network(
        lambda: First(hf.DebertaV2Model(hf.DebertaV2Config(
            vocab_size=32000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
            intermediate_size=3072, relative_attention=True, pos_att_type=["p2c", "c2p"],
        ))),
        tokens(),
    ),
    "maxvit": vision("maxvit_t"),
    "regnet": vision("regnet_y_3_2gf"),
    "efficientnet_v2": vision("efficientnet_v2_s", 384),
    "resnext": vision("resnext50_32x4d"),
    "densenet": vision("densenet121"),
    "wav2vec2": Network(
        lambda: First(hf.Wav2Vec2Model(hf.Wav2Vec2Config()), "input_values"), features(16000)
    ),
    "mamba": Network(
        lambda: First(hf.MambaModel(hf.MambaConfig(
            vocab_size=32000, hidden_size=768, num_hidden_layers=2, use_cache=False,
        ))),
        tokens(),
    ),
    "video": Network(
        lambda: torchvision.models.video.r2plus1d_18(weights=None), features(3, 16, 112, 112)
    ),
    "clip_text": Network(
        lambda: First(hf.CLIPTextModel(hf.CLIPTextConfig())), tokens(77)
    ),
}  # fmt: skip

FRESH: dict[str, Network] = {
    "mobilevit": Network(
        lambda: First(hf.MobileViTModel(hf.MobileViTConfig()), "pixel_values"), image(256)
    ),
    "poolformer": Network(
        lambda: First(hf.PoolFormerModel(hf.PoolFormerConfig()), "pixel_values"), image(224)
    ),
    "conformer": Network(
        lambda: First(hf.Wav2Vec2ConformerModel(hf.Wav2Vec2ConformerConfig(
            num_hidden_layers=6, hidden_size=512, num_attention_heads=8, intermediate_size=2048,
            position_embeddings_type="rotary",
        )), "input_values"),
        features(16000),
    ),
    "albert": Network(
        lambda: First(hf.AlbertModel(hf.AlbertConfig(
            hidden_size=768, num_attention_heads=12, intermediate_size=3072,
        ))),
        tokens(),
    ),
    "qwen": Network(
        lambda: First(hf.Qwen3Model(hf.Qwen3Config(
            vocab_size=32000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=12,
            num_attention_heads=16, num_key_value_heads=8, head_dim=64, use_cache=False,
        ))),
        tokens(),
    ),
    "depth": Network(
        lambda: First(hf.DPTForDepthEstimation(hf.DPTConfig()), "pixel_values"), image(384)
    ),
    "shufflenet": vision("shufflenet_v2_x1_0"),
    "deeplab": Network(
        lambda: Segmenter(torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, aux_loss=False,
        )),
        image(384),
    ),
}  # fmt: skip
NETWORKS = {**MEASURED, **KEPT, **FRESH}


def make(name: str, batch: int, device: str) -> tuple[nn.Module, Tensor]:
    """A network in evaluation mode and float32, and an input of that batch. Raises KeyError for a
    name that is none.
    """
    network = NETWORKS[name]
    model, x = network.module().to(device), network.example(batch).to(device)
    unseen_models.settle(model, network.example(2).to(device))
    return model.eval(), x


def export(name: str, model: nn.Module, x: Tensor, path: Path) -> None:
    """Writes the network as an ONNX file for inputs of that shape."""
    plain = NETWORKS[name].plain
    attention(model, "eager" if plain else "sdpa")
    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False, input_names=["x"])
    program.save(path, external_data=True)
    attention(model, "sdpa")


def attention(model: nn.Module, kind: str) -> None:
    """Let transformers' networks compute attention in that way, where they can."""
    for part in model.modules():
        if isinstance(part, hf.PreTrainedModel):
            with contextlib.suppress(ValueError):
                part.set_attn_implementation(kind)
