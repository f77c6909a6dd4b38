"""Tactics for the CPU, and the C compiler that they need."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic


def all_tactics() -> list[Tactic]:
    """Every built-in CPU tactic."""
    from tactix_builtin.tactics import (
        c_attention,
        c_bf16_amx_conv,
        c_bf16_conv,
        c_bf16_gemm,
        c_conv,
        c_conv_amx,
        c_conv_general,
        c_conv_transpose,
        c_depthwise,
        c_gather,
        c_gemm,
        c_gemm_amx,
        c_generate,
        c_int8_amx,
        c_int8_amx_conv,
        c_int8_conv,
        c_int8_depthwise,
        c_int8_gemm,
        c_int8_pointwise,
        c_int8_pool,
        c_int8_quantize,
        c_move,
        c_norm,
        c_pointwise,
        c_pool,
        c_reduce,
        c_reformat,
        c_rnn,
        c_softmax,
        c_winograd,
        control,
        numpy_ref,
        view,
    )

    own = (
        c_pointwise,
        c_reduce,
        c_softmax,
        c_norm,
        c_move,
        c_gather,
        c_generate,
        c_pool,
        c_reformat,
        control,
        numpy_ref,
        view,
    )
    products = (c_gemm, c_gemm_amx, c_attention, c_rnn)
    convolutions = (c_conv, c_conv_amx, c_winograd, c_depthwise, c_conv_transpose, c_conv_general)
    dots = (c_int8_amx, c_int8_amx_conv, c_int8_gemm, c_int8_conv, c_int8_depthwise)
    halves = (c_bf16_gemm, c_bf16_conv, c_bf16_amx_conv)
    bytes_ = (c_int8_pointwise, c_int8_pool, c_int8_quantize)
    return [t for module in (*own, *products, *convolutions, *dots, *halves, *bytes_) for t in module.tactics()]
