"""Tactics for the CPU, and the C compiler that they need."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic

MODULES = (
    "c_pointwise", "c_reduce", "c_softmax", "c_norm", "c_move", "c_gather", "c_generate", "c_pool", "c_reformat",
    "c_gemm", "c_gemm_amx", "c_attention", "c_rnn",
    "c_conv", "c_conv_amx", "c_winograd", "c_depthwise", "c_conv_transpose", "c_conv_general",
    "c_int8_amx", "c_int8_amx_conv", "c_int8_gemm", "c_int8_conv", "c_int8_depthwise",
    "c_bf16_gemm", "c_bf16_conv", "c_bf16_amx_conv",
    "c_int8_pointwise", "c_int8_pool", "c_int8_quantize",
)  # fmt: skip
"""Those with tactics."""


def all_tactics() -> list[Tactic]:
    """Every built-in CPU tactic."""
    from importlib import import_module

    return [t for name in MODULES for t in import_module(f"{__name__}.{name}").tactics()]
