"""Tactics for CUDA devices."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic


def all_tactics() -> list[Tactic]:
    """Every built-in CUDA tactic."""
    from tactix_builtin.cuda.tactics import (
        attention,
        conv,
        depthwise,
        direct_conv,
        gather,
        gemm,
        gemv,
        generate,
        move,
        pointwise,
        pool,
        reduce,
        reformat,
        rows,
    )

    modules = (pointwise, rows, reduce, move, gather, pool, depthwise, generate, reformat)
    products = (gemm, gemv, conv, direct_conv, attention)
    return [t for module in (*modules, *products) for t in module.tactics()]
