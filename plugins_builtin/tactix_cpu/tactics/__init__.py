"""Tactics for the CPU, and the C compiler that they need."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic

MODULES = (
    "pointwise.tactic",
    "reduce.tactic",
    "reduce.lines",
    "reduce.told",
    "norm.softmax",
    "norm.norm",
    "norm.lrn",
    "move.move",
    "move.gather",
    "move.mapped",
    "move.told_shapes",
    "move.told_split",
    "move.generate",
    "select.topk",
    "select.extreme",
    "select.nonzero",
    "select.unique",
    "select.suppression",
    "select.lookup",
    "scatter.scatter",
    "scatter.rows",
    "scan.cumulative",
    "pool.tactic",
    "pool.windows",
    "pool.unpool",
    "pool.told_columns",
    "pool.power",
    "sample.resize",
    "sample.dynamic_resize",
    "sample.grid",
    "sample.affine",
    "sample.regions",
    "sample.deform",
    "move.reformat",
    "rotary",
    "matmul.gemm",
    "matmul.gemm_amx",
    "matmul.gemv",
    "attention",
    "attention_bf16",
    "rnn.tactic",
    "conv.direct",
    "conv.amx",
    "conv.winograd",
    "conv.depthwise",
    "conv.transpose",
    "conv.general",
    "matmul.int8_amx",
    "conv.int8_amx",
    "matmul.int8",
    "conv.int8",
    "conv.int8_depthwise",
    "matmul.bf16",
    "conv.bf16",
    "conv.bf16_amx",
    "pointwise.int8",
    "pool.int8",
    "quantize",
    "plain_integer",
    "scaling",
    "trees",
    "matrices",
    "coupling",
    "draws",
    "signal.fourier",
    "signal.told_fourier",
    "signal.mel",
    "signal.linear_attention",
)
"""Those with tactics."""


def all_tactics() -> list[Tactic]:
    """Every built-in CPU tactic."""
    from importlib import import_module

    return [t for name in MODULES for t in import_module(f"{__name__}.{name}").tactics()]
