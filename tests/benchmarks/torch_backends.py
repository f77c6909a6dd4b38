#!/usr/bin/env python3
"""torch.compile with tactix beside torch.compile with its own backend, on the processor.

    python tests/benchmarks/torch_backends.py [--only resnet18,bert] [--threads 1] [--level 3]
        [--rounds 5] [--seconds 0.5]

Needs torch, onnxscript, and torchvision or transformers for their models; weights are random. Each
model is compiled by both in one process; rounds are interleaved, and a figure is the median over
rounds of a round's median call. The ratio is of tactix's time to the other's. The error is the
largest difference to eager torch, over the largest magnitude there. Prints a Markdown table, and
the geometric mean. Exits 1 where a result is wrong, or a graph was left to torch.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

TOLERANCE = 1e-3
"""Of float32 networks with random weights: sums are taken in another order."""

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A model in evaluation mode, and what it is called with."""

    model: nn.Module
    inputs: Tensors


@dataclass(frozen=True)
class Measured:
    """Seconds of a call, of the first call, and the error of tactix."""

    tactix: float
    inductor: float
    built: float
    compiled: float
    error: float

    @property
    def ratio(self) -> float:
        return self.tactix / self.inductor


# -- models -----------------------------------------------------------------------------------


def _vision(name: str, size: int = 224) -> Callable[[], Case]:
    def make() -> Case:
        import torchvision

        model = torchvision.models.get_model(name, weights=None)
        return Case(model.eval(), (torch.randn(1, 3, size, size),))

    return make


class FirstResult(nn.Module):
    """A model of transformers, which gives an object, with the first tensor of it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        first: torch.Tensor = self.model(*inputs, return_dict=False)[0]
        return first


def _text(config_name: str, length: int = 128, **sizes: int) -> Callable[[], Case]:
    """A network over token numbers, of the sizes of its configuration but those given."""

    def make() -> Case:
        import transformers

        config = getattr(transformers, config_name)(**sizes)
        if config.model_type in ("gpt2", "llama"):
            config.use_cache = False
        model = transformers.AutoModel.from_config(config)
        tokens = torch.randint(0, config.vocab_size, (1, length))
        return Case(FirstResult(model.eval()), (tokens,))

    return make


def _image(config_name: str, **sizes: int) -> Callable[[], Case]:
    def make() -> Case:
        import transformers

        config = getattr(transformers, config_name)(**sizes)
        model = transformers.AutoModel.from_config(config)
        return Case(FirstResult(model.eval()), (torch.randn(1, 3, 224, 224),))

    return make


MODELS: dict[str, Callable[[], Case]] = {
    "resnet18": _vision("resnet18"),
    "mobilenet_v3_large": _vision("mobilenet_v3_large"),
    "efficientnet_b0": _vision("efficientnet_b0"),
    "shufflenet_v2_x1_0": _vision("shufflenet_v2_x1_0"),
    "densenet121": _vision("densenet121"),
    "convnext_tiny": _vision("convnext_tiny"),
    "swin_t": _vision("swin_t"),
    "bert": _text("BertConfig", num_hidden_layers=6),
    "distilbert": _text("DistilBertConfig"),
    "gpt2": _text("GPT2Config", n_layer=6),
    "llama": _text(
        "LlamaConfig",
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        vocab_size=8000,
    ),
    "vit": _image("ViTConfig", num_hidden_layers=6),
}


# -- measuring --------------------------------------------------------------------------------


def _compiled(
    case: Case, backend: str, options: dict[str, object] | None
) -> Callable[[], torch.Tensor]:
    torch._dynamo.reset()
    model = torch.compile(case.model, backend=backend, options=options)
    return lambda: model(*case.inputs)


def _first_call(call: Callable[[], torch.Tensor]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _median_call(call: Callable[[], torch.Tensor], seconds: float) -> float:
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measured(case: Case, args: argparse.Namespace) -> Measured:
    """Both backends on one model, in turns. Raises ConfigError where a graph cannot be built."""
    ours = _compiled(case, "tactix", {"fallback": "error", "level": args.level})
    built = _first_call(ours)
    theirs = _compiled(case, "inductor", None)
    compiled = _first_call(theirs)
    wanted = case.model(*case.inputs)
    error = float((ours() - wanted).abs().max() / wanted.abs().max())
    calls = (ours, theirs)
    rounds: list[list[float]] = [[], []]
    for i in range(args.rounds):
        for k in (0, 1) if i % 2 else (1, 0):
            rounds[k].append(_median_call(calls[k], args.seconds))
    ours_s, theirs_s = (statistics.median(r) for r in rounds)
    return Measured(ours_s, theirs_s, built, compiled, error)


def _row(name: str, m: Measured) -> str:
    times = f"{m.tactix * 1e3:.3g} | {m.inductor * 1e3:.3g} | {m.ratio:.2f}"
    return f"| {name} | {times} | {m.built:.1f} | {m.compiled:.1f} | {m.error:.1e} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(MODELS), help="names, with commas between")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    ratios, wrong = [], []
    print("| model | tactix ms | inductor ms | ratio | first call s | inductor's s | error |")
    print("|---|---|---|---|---|---|---|")
    with torch.inference_mode():
        for name in args.only.split(","):
            m = measured(MODELS[name](), args)
            print(_row(name, m), flush=True)
            ratios.append(m.ratio)
            wrong += [name] if m.error > TOLERANCE else []
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(
        f"\nGeometric mean of the ratios: {mean:.2f}, {args.threads} threads, torch {torch.__version__}."
    )
    if wrong:
        print(f"wrong: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
