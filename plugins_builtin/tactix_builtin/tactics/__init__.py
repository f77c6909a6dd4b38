"""Tactics for the CPU, and the C compiler that they need."""

from __future__ import annotations

from tactix.contracts.tactic import Tactic


def all_tactics() -> list[Tactic]:
    """Every built-in CPU tactic."""
    from tactix_builtin.tactics import (
        c_gather,
        c_move,
        c_norm,
        c_pointwise,
        c_pool,
        c_reduce,
        c_reformat,
        c_softmax,
        numpy_ref,
    )

    own = (c_pointwise, c_reduce, c_softmax, c_norm, c_move, c_gather, c_pool, c_reformat, numpy_ref)
    return [t for module in own for t in module.tactics()]
