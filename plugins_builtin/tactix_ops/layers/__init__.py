"""What every built-in operation means: attributes, shape inference, numpy reference. One file per
family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.layer import Layer

FAMILIES = (
    "elementwise", "activation", "logic", "conv", "matmul", "pool", "norm", "reduce", "softmax",
    "shape", "index", "attention", "rnn", "generate", "sort", "resize", "sampling", "quantize",
    "integer", "wide", "dynamic", "dynamic_resize", "selection", "detection", "signal", "unpool",
    "bits", "trees", "linear_attention", "text", "text_features", "random", "image", "sequences",
    "control", "few_bits", "float8",
)  # fmt: skip


def all_layers() -> list[Layer]:
    """Every built-in layer."""
    from importlib import import_module

    return [layer for family in FAMILIES for layer in import_module(f"{__name__}.{family}").LAYERS]
