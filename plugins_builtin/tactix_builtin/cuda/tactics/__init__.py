"""Tactics for CUDA devices."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic


def all_tactics() -> list[Tactic]:
    """Every built-in CUDA tactic."""
    from tactix_builtin.cuda.cublaslt import tactic as cublaslt
    from tactix_builtin.cuda.cudnn import tactic as cudnn
    from tactix_builtin.cuda.tactics import (
        attention,
        attention_f32,
        conv,
        depthwise,
        direct_conv,
        gather,
        gemm,
        gemv,
        generate,
        hopper_conv,
        hopper_gemm,
        hopper_stem,
        host,
        integer,
        lines,
        move,
        plain_conv,
        plain_product,
        pointwise,
        pool,
        quantize,
        reduce,
        reformat,
        rnn,
        rows,
        sample,
        scatter,
    )

    modules = (pointwise, rows, reduce, move, gather, pool, depthwise, generate, reformat)
    products = (gemm, hopper_gemm, gemv, conv, hopper_conv, hopper_stem, direct_conv, attention, attention_f32)
    libraries = (cublaslt, cudnn)
    rarer = (plain_conv, plain_product, rnn, lines, scatter, sample, quantize, integer)
    return [t for module in (*modules, *products, *rarer, *libraries, host) for t in module.tactics()]
