"""What is rewritten before tactics are chosen. One file per topic; ``canonical`` rules first, then
fusion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tactix.contracts.rule import Rule

TOPICS = (
    "fold", "canonical", "broadcast", "reshape", "movement", "affine", "index", "quantize",
    "quantized_movement", "dequantized_weights", "blocks", "conv", "channels_as_pixels",
    "padded_pool", "einsum",
    "matmul", "integer_products",
    "gelu", "norm", "attention", "heads", "rotary", "sinking", "lifted", "enlarged", "tokens",
    "rnn", "epilogue", "pointwise",
)  # fmt: skip


def all_rules() -> list[Rule]:
    """Every built-in rule for all devices that does not lower precision."""
    from importlib import import_module

    return [rule for topic in TOPICS for rule in import_module(f"{__name__}.{topic}").RULES]


def processor_rules() -> list[Rule]:
    """The built-in rules for processors alone, which change no number."""
    from tactix_ops.rules import (
        chains,
        half,
        integer_products,
        prologue,
        quantized_movement,
        rnn,
    )

    topics = (half.RULES, prologue.RULES, chains.RULES, quantized_movement.PROCESSOR_RULES)
    parts = (rnn.PROCESSOR_RULES, integer_products.PROCESSOR_RULES)
    return [rule for rules in (*topics, *parts) for rule in rules]


def graphics_rules() -> list[Rule]:
    """The built-in rules for GPUs alone, which change no number."""
    from tactix_ops.rules import (
        channel_moves,
        eight_bit_heads,
        epilogue,
        few_bits,
        float8,
        lifted,
        one_pixel,
        quantized_movement,
        row_moves,
    )

    return [
        *few_bits.RULES,
        *float8.RULES,
        *one_pixel.RULES,
        *channel_moves.RULES,
        *lifted.GRAPHICS_RULES,
        *row_moves.RULES,
        *epilogue.GRAPHICS_RULES,
        *eight_bit_heads.RULES,
        *quantized_movement.GRAPHICS_RULES,
    ]


def reordering_rules() -> list[Rule]:
    """The built-in rules for processors alone, which change the order of sums."""
    from tactix_ops.rules import (
        affine_grid,
        pixel_products,
        pool,
        quantized_pointwise,
        quantized_products,
        summary,
        transposed,
    )

    products = (*quantized_products.PROCESSOR_RULES, *quantized_pointwise.PROCESSOR_RULES)
    images = (*affine_grid.RULES, *pixel_products.RULES, *pool.RULES, *transposed.RULES)
    return [*images, *summary.RULES, *products]


def lowering_rules() -> list[Rule]:
    """The built-in rules that lower precision: they fire only where a build allows it."""
    from tactix_ops.rules import few_bits, lower_precision, rounded, sixteen

    rules = (lower_precision.RULES, rounded.RULES, sixteen.RULES, few_bits.LOWERING_RULES)
    return [rule for topic in rules for rule in topic]
