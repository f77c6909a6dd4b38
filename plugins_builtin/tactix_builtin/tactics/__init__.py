"""Tactics for the CPU, and the C compiler that they need."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic


def all_tactics() -> list[Tactic]:
    """Every built-in CPU tactic."""
    from tactix_builtin.tactics import (
        c_attention,
        c_conv,
        c_conv_general,
        c_conv_transpose,
        c_depthwise,
        c_gather,
        c_gemm,
        c_generate,
        c_move,
        c_norm,
        c_pointwise,
        c_pool,
        c_reduce,
        c_reformat,
        c_rnn,
        c_softmax,
        control,
        numpy_ref,
        view,
    )

    own = (c_pointwise, c_reduce, c_softmax, c_norm, c_move, c_gather, c_generate, c_pool, c_reformat)
    hosts = (control, numpy_ref, view)
    products = (c_gemm, c_conv, c_depthwise, c_conv_transpose, c_conv_general, c_attention, c_rnn)
    return [t for module in (*own, *products, *hosts) for t in module.tactics()]
