#!/usr/bin/env python3
"""Export further architectures to ONNX, with random weights from a fixed seed: models that nothing
here was tuned for.

Each is a class of transformers or a function of torchvision, made from a configuration, so that
nothing is downloaded. They go through torch's own exporters, unsimplified, and are checked with
ONNX Runtime. It needs torch, transformers, onnx, onnxscript and onnxruntime (torchvision for those
that come from it), in an environment of their own::

    python tests/models/architectures.py --out DIR [--models llama,segformer] [--list]

Beside ``NAME.onnx`` it writes ``NAME.npz``: the inputs by name, the answers of torch in float32 as
``out:0``, ``out:1``..., and, where there is a GPU, those in float16 as ``half:0``...: what float16
costs by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

SEED = 7


@dataclass(frozen=True)
class Input:
    """One input: its shape with names for open dimensions, and how its values are drawn.

    ``kind``: ``normal``, ``ids`` below ``high``, or ``ones`` (integers).
    """

    shape: tuple[int | str, ...]
    kind: str = "normal"
    high: int = 1000


@dataclass(frozen=True)
class Architecture:
    """A class of transformers with the fields of its configuration, and how it is called and
    exported.
    """

    model: str
    config: str
    inputs: Mapping[str, Input]
    outputs: Sequence[str]
    fields: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    dynamo: bool = True
    sizes: Mapping[str, int] = field(default_factory=lambda: {"batch": 1, "seq": 64})


def image(side: int, channels: int = 3) -> dict[str, Input]:
    return {"pixel_values": Input(("batch", channels, side, side))}


def tokens(vocabulary: int = 1000) -> dict[str, Input]:
    return {"input_ids": Input(("batch", "seq"), "ids", vocabulary)}


NO_CACHE = {"use_cache": False}
DECODER = {
    "vocab_size": 8000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 6,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64, "max_position_embeddings": 1024,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

ARCHITECTURES: dict[str, Architecture] = {
    # rotary language models with RMSNorm and gated MLPs
    "llama": Architecture(
        "LlamaForCausalLM", "LlamaConfig", tokens(8000), ("logits",), DECODER, NO_CACHE
    ),
    "qwen3": Architecture(
        "Qwen3ForCausalLM", "Qwen3Config", tokens(8000), ("logits",), DECODER, NO_CACHE
    ),
    "modernbert": Architecture(
        "ModernBertModel", "ModernBertConfig", tokens(8000), ("last_hidden_state",),
        {"vocab_size": 8000, "num_hidden_layers": 6, "hidden_size": 768, "pad_token_id": 0},
    ),
    # encoders with position biases, and disentangled attention
    "t5_encoder": Architecture(
        "T5EncoderModel", "T5Config", tokens(8000), ("last_hidden_state",),
        {"vocab_size": 8000, "d_model": 512, "num_layers": 6, "feed_forward_proj": "gated-gelu"},
    ),
    # vision: depthwise, windows that shift, squeeze and excitation, hybrids
    "convnext": Architecture(
        "ConvNextForImageClassification", "ConvNextConfig", image(224), ("logits",),
        {"num_labels": 1000},
    ),
    "swin": Architecture(
        "SwinForImageClassification", "SwinConfig", image(224), ("logits",), {"num_labels": 1000}
    ),
    "regnet": Architecture(
        "RegNetForImageClassification", "RegNetConfig", image(224), ("logits",),
        {"layer_type": "y", "embedding_size": 32, "hidden_sizes": [48, 120, 336, 888],
         "depths": [2, 6, 17, 2], "groups_width": 24, "num_labels": 1000}, dynamo=False,
    ),
    "mobilevit": Architecture(
        "MobileViTForImageClassification", "MobileViTConfig", image(256), ("logits",),
        {"num_labels": 1000}, dynamo=False,
    ),
    # segmentation and detection
    "segformer": Architecture(
        "SegformerForSemanticSegmentation", "SegformerConfig", image(512), ("logits",),
        {"num_labels": 150},
    ),
    "yolos": Architecture(
        "YolosForObjectDetection", "YolosConfig", {"pixel_values": Input((1, 3, 256, 320))},
        ("logits", "pred_boxes"),
        {"image_size": [256, 320], "hidden_size": 192, "num_attention_heads": 3,
         "intermediate_size": 768},
    ),
    "deformable_detr": Architecture(
        "DeformableDetrForObjectDetection", "DeformableDetrConfig",
        {"pixel_values": Input((1, 3, 256, 320))}, ("logits", "pred_boxes"),
        {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
         "backbone_config": {"model_type": "resnet", "out_features": ["stage2", "stage3", "stage4"]},
         "encoder_layers": 3, "decoder_layers": 3}, dynamo=False,
    ),
    # audio
    "wav2vec2": Architecture(
        "Wav2Vec2ForCTC", "Wav2Vec2Config", {"input_values": Input(("batch", 16000))}, ("logits",),
        {"num_hidden_layers": 6, "vocab_size": 32},
    ),
    "whisper_encoder": Architecture(
        "WhisperEncoder", "WhisperConfig", {"input_features": Input(("batch", 80, 3000))},
        ("last_hidden_state",), {"encoder_layers": 4, "d_model": 384, "encoder_attention_heads": 6,
                                 "encoder_ffn_dim": 1536},
    ),
    "hifigan": Architecture(
        "SpeechT5HifiGan", "SpeechT5HifiGanConfig", {"spectrogram": Input((1, 80, 80))}, (),
        dynamo=False,
    ),
    # another dozen and a half: attention with two kinds of windows, disentangled, in states, by
    # Fourier transforms
    "gemma3": Architecture(
        "Gemma3ForCausalLM", "Gemma3TextConfig", tokens(8000), ("logits",), DECODER, NO_CACHE
    ),
    "phi3": Architecture(
        "Phi3ForCausalLM", "Phi3Config", tokens(8000), ("logits",),
        {k: v for k, v in DECODER.items() if k != "head_dim"}, NO_CACHE,
    ),
    "deberta_v2": Architecture(
        "DebertaV2Model", "DebertaV2Config", tokens(8000), ("last_hidden_state",),
        {"vocab_size": 8000, "hidden_size": 768, "num_hidden_layers": 4, "num_attention_heads": 12,
         "intermediate_size": 3072, "relative_attention": True, "position_buckets": 256,
         "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True},
        dynamo=False,
    ),
    "mixtral": Architecture(
        "MixtralForCausalLM", "MixtralConfig", tokens(8000), ("logits",),
        {**DECODER, "num_hidden_layers": 2, "num_local_experts": 4, "intermediate_size": 1024}, NO_CACHE,
    ),
    "mamba": Architecture(
        "MambaForCausalLM", "MambaConfig", {"input_ids": Input((1, 32), "ids", 1000)}, ("logits",),
        {"vocab_size": 1000, "hidden_size": 384, "num_hidden_layers": 2}, NO_CACHE, dynamo=False,
    ),
    "fnet": Architecture(
        "FNetModel", "FNetConfig", {"input_ids": Input((1, 64), "ids", 1000)},
        ("last_hidden_state",), {"num_hidden_layers": 4}, dynamo=False,
    ),
    "dinov2": Architecture(
        "Dinov2Model", "Dinov2Config", image(224), ("last_hidden_state", "pooler_output"),
        {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 6,
         "use_swiglu_ffn": True, "image_size": 224, "patch_size": 14},
    ),
    "poolformer": Architecture(
        "PoolFormerForImageClassification", "PoolFormerConfig", image(224), ("logits",), {"num_labels": 1000},
        dynamo=False,
    ),
    "levit": Architecture(
        "LevitForImageClassification", "LevitConfig", image(224), ("logits",), {"num_labels": 1000},
        dynamo=False,
    ),
    "pvt_v2": Architecture(
        "PvtV2ForImageClassification", "PvtV2Config", image(224), ("logits",), {"num_labels": 1000}
    ),
    "focalnet": Architecture(
        "FocalNetForImageClassification", "FocalNetConfig", image(224), ("logits",), {"num_labels": 1000}
    ),
    "efficientnet_hf": Architecture(
        "EfficientNetForImageClassification", "EfficientNetConfig", image(224), ("logits",),
        {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280,
         "num_labels": 1000}, dynamo=False,
    ),
    "dpt": Architecture(
        "DPTForDepthEstimation", "DPTConfig", image(384), ("predicted_depth",),
        {"num_hidden_layers": 12, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536,
         "neck_hidden_sizes": [48, 96, 192, 384], "fusion_hidden_size": 64}, dynamo=False,
    ),
    "swin2sr": Architecture(
        "Swin2SRForImageSuperResolution", "Swin2SRConfig", {"pixel_values": Input((1, 3, 64, 64))},
        ("reconstruction",), {"depths": [2, 2, 2], "num_heads": [6, 6, 6]}, dynamo=False,
    ),
    "rt_detr": Architecture(
        "RTDetrForObjectDetection", "RTDetrConfig", {"pixel_values": Input((1, 3, 320, 320))},
        ("logits", "pred_boxes"), {"decoder_layers": 3, "num_queries": 100}, dynamo=False,
    ),
    "clip_vision": Architecture(
        "CLIPVisionModelWithProjection", "CLIPVisionConfig", image(224), ("image_embeds",),
        {"num_hidden_layers": 6},
    ),
    "superpoint": Architecture(
        "SuperPointForKeypointDetection", "SuperPointConfig", {"pixel_values": Input((1, 3, 120, 160))},
        (), dynamo=False,
    ),
    "univnet": Architecture(
        "UnivNetModel", "UnivNetConfig",
        {"input_features": Input((1, 50, 100)), "noise_sequence": Input((1, 50, 64))}, (), dynamo=False,
    ),
    "encodec": Architecture(
        "EncodecModel", "EncodecConfig", {"input_values": Input((1, 1, 8000))}, ("audio_values",), dynamo=False,
    ),
    "wavlm": Architecture(
        "WavLMModel", "WavLMConfig", {"input_values": Input((1, 8000))}, ("last_hidden_state",),
        {"num_hidden_layers": 4}, dynamo=False,
    ),
    "ast": Architecture(
        "ASTForAudioClassification", "ASTConfig", {"input_values": Input(("batch", 1024, 128))}, ("logits",),
        {"num_hidden_layers": 4},
    ),
    "patchtst": Architecture(
        "PatchTSTForPrediction", "PatchTSTConfig", {"past_values": Input((2, 512, 7))}, ("prediction_outputs",),
        {"num_input_channels": 7, "context_length": 512, "patch_length": 16, "patch_stride": 8}, dynamo=False,
    ),
}  # fmt: skip

CONVOLUTIONAL = (
    "mobilenet_v3_large", "shufflenet_v2_x1_0", "densenet121", "efficientnet_v2_s", "mnasnet1_0", "regnet_y_400mf",
    "squeezenet1_1", "swin_v2_t", "maxvit_t", "segmentation.deeplabv3_mobilenet_v3_large",
    "segmentation.lraspp_mobilenet_v3_large",
)  # fmt: skip
ARCHITECTURES |= {
    name.rpartition(".")[2]: Architecture(
        f"torchvision.models.{name}", "", image(224), (), dynamo=False
    )
    for name in CONVOLUTIONAL
}


class Called(nn.Module):
    """A model called with named tensors that returns a tuple of the outputs that are asked for."""

    def __init__(self, model: nn.Module, architecture: Architecture) -> None:
        super().__init__()
        self.model, self.architecture = model, architecture

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        named = dict(zip(self.architecture.inputs, tensors, strict=True))
        if self.architecture.model.startswith("torchvision."):
            result = self.model(*tensors)
        else:
            result = self.model(**named, **self.architecture.arguments)
        if isinstance(result, torch.Tensor):
            return (result,)
        if isinstance(result, dict) and not hasattr(result, "to_tuple"):
            return (result["out"],)
        picked = [getattr(result, o) for o in self.architecture.outputs] or list(result.to_tuple())
        return tuple(t for t in picked if isinstance(t, torch.Tensor))


def build(a: Architecture) -> nn.Module:
    """The model with weights that are not trivial: norms and biases are drawn, too."""
    torch.manual_seed(SEED)
    model = _from_torchvision(a) if a.model.startswith("torchvision.") else _from_transformers(a)
    drawn = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim <= 1:
                p += 0.1 * torch.randn(p.shape, generator=drawn)
        for name, b in model.named_buffers():
            if name.endswith("running_var"):
                b.copy_(0.5 + torch.rand(b.shape, generator=drawn))
            elif name.endswith("running_mean"):
                b.copy_(0.2 * torch.randn(b.shape, generator=drawn))
    return model.eval()


def _from_torchvision(a: Architecture) -> nn.Module:
    module, _, function = a.model.rpartition(".")
    options = {"weights_backbone": None} if "segmentation" in module else {}
    return getattr(importlib.import_module(module), function)(weights=None, **options)


def _from_transformers(a: Architecture) -> nn.Module:
    import transformers

    transformers.logging.set_verbosity_error()
    config = getattr(transformers, a.config)(**a.fields)
    config._attn_implementation = "eager" if not a.dynamo else "sdpa"
    if a.model == "WhisperEncoder":
        from transformers.models.whisper.modeling_whisper import WhisperEncoder as made
    else:
        made = getattr(transformers, a.model)
    try:
        return made(config)
    except ValueError:  # a class that has no fused attention
        config._attn_implementation = "eager"
        return made(config)


def arrays(a: Architecture, seed: int = SEED) -> dict[str, np.ndarray]:
    """Inputs by name, the same for the same seed."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, spec in a.inputs.items():
        shape = tuple(a.sizes[d] if isinstance(d, str) else d for d in spec.shape)
        if spec.kind == "normal":
            out[name] = rng.standard_normal(shape).astype(np.float32)
        elif spec.kind == "ids":
            out[name] = rng.integers(3, spec.high, shape)
        else:
            out[name] = np.ones(shape, np.int64)
    return out


def export(name: str, a: Architecture, folder: Path) -> str:
    """Write one model; returns a line about it."""
    model, given = Called(build(a), a), arrays(a)
    tensors = tuple(torch.from_numpy(x) for x in given.values())
    path = folder / f"{name}.onnx"
    opened = {
        k: {i: d for i, d in enumerate(v.shape) if isinstance(d, str)} for k, v in a.inputs.items()
    }
    start = time.monotonic()
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        answers = [t.numpy() for t in model(*tensors)]
        outputs = [f"out{i}" for i in range(len(answers))]
        if a.dynamo:
            dims = {d: torch.export.Dim.DYNAMIC for o in opened.values() for d in o.values()}
            shapes = (tuple({i: dims[d] for i, d in o.items()} for o in opened.values()),)
            doubled = tuple(  # a batch of one would become a constant
                torch.cat([t, t]) if isinstance(s.shape[0], str) else t
                for t, s in zip(tensors, a.inputs.values(), strict=True)
            )
            torch.onnx.export(
                model,
                doubled,
                str(path),
                dynamo=True,
                opset_version=18,
                dynamic_shapes=shapes,
                input_names=list(given),
                output_names=outputs,
                external_data=False,
            )
        else:
            torch.onnx.export(
                model,
                tensors,
                str(path),
                dynamo=False,
                opset_version=17,
                input_names=list(given),
                output_names=outputs,
                dynamic_axes=opened,
            )
    halves = half_answers(model, tensors) if torch.cuda.is_available() else []
    named = {f"out:{i}": x for i, x in enumerate(answers)} | {
        f"half:{i}": x for i, x in enumerate(halves)
    }
    np.savez(folder / f"{name}.npz", **given, **named)
    size, seconds = path.stat().st_size / 1e6, time.monotonic() - start
    return f"{name}: {size:.1f} MB, {checked(path, given, answers)}, {seconds:.1f} s"


def half_answers(model: nn.Module, tensors: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """What the model gives in float16 on the GPU; nothing where torch cannot."""
    try:
        halved = copy.deepcopy(model).half().cuda()
        given = [t.cuda().half() if t.is_floating_point() else t.cuda() for t in tensors]
        return [t.float().cpu().numpy() for t in halved(*given)]
    except RuntimeError:
        return []


def checked(path: Path, given: Mapping[str, np.ndarray], answers: Sequence[np.ndarray]) -> str:
    """How far ONNX Runtime departs from torch, relative to the largest magnitude."""
    import onnxruntime

    got = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(
        None, dict(given)
    )
    worst = max(
        float(np.abs(g.astype(np.float64) - w).max() / max(np.abs(w).max(), 1e-3))
        for g, w in zip(got, answers)
    )
    return f"ONNX Runtime departs by {worst:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--models", help="names, with commas between; all if left out")
    parser.add_argument("--list", action="store_true", help="say what there is")
    options = parser.parse_args()
    if options.list:
        print("\n".join(ARCHITECTURES))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.models.split(",") if options.models else ARCHITECTURES:
        try:
            print(export(name, ARCHITECTURES[name], options.out), flush=True)
        except Exception as e:
            print(
                f"{name}: not exported: {type(e).__name__}: {str(e).strip().splitlines()[:1]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
