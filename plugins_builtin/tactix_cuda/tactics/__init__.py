"""Tactics for CUDA devices.

Estimates (``cost``) put candidates in order: what is offered is timed where a GPU is here, and the
first is taken where none is. Numbers in them, blocks and thresholds that name no source were chosen
by hand; the history keeps no measurement of them by themselves.
"""

from __future__ import annotations

from tactix.contracts.tactic import Tactic

MODULES = (
    "tactics.pointwise",
    "tactics.rows",
    "tactics.group_norm",
    "tactics.reduce",
    "tactics.move",
    "tactics.pad",
    "tactics.gather",
    "tactics.reverse",
    "tactics.pool",
    "tactics.unpool",
    "tactics.depthwise",
    "tactics.generate",
    "tactics.reformat",
    "tactics.gemm",
    "tactics.hopper.gemm",
    "tactics.gemv",
    "tactics.few_bits",
    "tactics.few_bits_gemv",
    "tactics.few_bits_rows",
    "tactics.conv",
    "tactics.hopper.conv",
    "tactics.hopper.stem",
    "tactics.direct_conv",
    "tactics.few_channels",
    "tactics.halo_conv",
    "tactics.pooled_conv",
    "tactics.attention",
    "tactics.hopper.attention",
    "tactics.attention_f32",
    "tactics.rotary",
    "tactics.plain_conv",
    "tactics.plain_product",
    "tactics.rnn",
    "tactics.lines",
    "tactics.top",
    "tactics.scatter",
    "tactics.sample",
    "tactics.affine",
    "tactics.regions",
    "tactics.deform",
    "tactics.draws",
    "tactics.linear_attention",
    "tactics.fourier",
    "tactics.quantize",
    "tactics.integer",
    "tactics.host",
)
"""Those with tactics, in the package of CUDA."""


def all_tactics() -> list[Tactic]:
    """Every built-in CUDA tactic."""
    from importlib import import_module

    return [t for name in MODULES for t in import_module(f"tactix_cuda.{name}").tactics()]
