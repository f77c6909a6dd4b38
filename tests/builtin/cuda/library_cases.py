"""Nodes for libraries: every way a product lies, every epilogue that folds and some that do not,
1x1 convolutions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import harness as h
import numpy as np
import simt
from product_cases import (
    GROUPED,
    IMAGES,
    SIZES,
    causal,
    epilogues,
    group,
    images,
    plain,
    real,
    symbolic,
    turned,
)

from tactix.base.dtypes import DType
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.tactic import Tactic
from tactix.plan.decode import BlobTable, decode_artifact
from tactix.plan.encode import encode_artifact
from tactix.plan.reader import Reader

__all__ = ["EIGHTS", "ERF", "attentions", "cases", "convolutions", "kept", "real", "tokens"]

BATCHES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 20, 24), (2, 3, 24, 17)), ((2, 3, 20, 24), (24, 17)), ((20, 24), (2, 3, 24, 8)), ((1, 5, 7, 8), (5, 8, 3)),
    ((2, 20, 24), (24,)), ((24,), (2, 24, 5)), ((7,), (7,)),
]  # fmt: skip
Cases = Callable[[Tactic], list[simt.Case]]
GELU: dict[str, dict[str, Any]] = {"tanh": {"approximate": "tanh"}, "erf": {}}
PIXELS: list[tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = [
    ((1, 24, 8, 8), 9, (1, 1), {}),
    ((3, 40, 7, 9), 33, (1, 1), {}),
    ((2, 8, 20), 16, (1,), {}),
]


def kept(artifact: KernelArtifact) -> KernelArtifact:
    """The artifact as a plan's file gives it back."""
    blob_table = BlobTable()
    text = json.dumps(encode_artifact(artifact, blob_table))
    return decode_artifact(Reader(json.loads(text)), BlobTable(blob_table.blobs))


def ways(dtype: str, tactic: Tactic) -> list[simt.Case]:
    sizes = [(17, 33, 19), (5, 2, 3), (40, 24, 72)]
    batch = [
        plain(tactic, "MatMul", [real(dtype, *a), real(dtype, *b)], c)
        for a, b in BATCHES
        for c in ((), (1,))
    ]
    return [
        *(c for s in sizes for c in turned(tactic, dtype, *s)),
        *batch,
        *symbolic(tactic, dtype, SIZES[:2]),  # a library has no product of nothing
    ]


def folds(dtype: str, tactic: Tactic, m: int = 37, k: int = 64, n: int = 48) -> list[simt.Case]:
    """Sums of the product, a row, and a tensor, in all orders, before relu and GELU; and longer
    ones.
    """
    arrays = [real(dtype, *s) for s in ((m, k), (k, n), (n,), (m, n))]
    relu, gelu = ("Relu", (-1,), {}), ("Gelu", (-1,), GELU["tanh"])
    bodies: list[list[Any]] = [
        [("Add", (-1, 2), {})],
        [("Add", (2, -1), {}), relu],
        [("Add", (-1, 3), {}), relu],
        [("Add", (-1, 2), {}), ("Add", (3, -1), {})],
        [("Add", (-1, 3), {}), ("Add", (-1, 2), {}), relu],
        [("Sub", (-1, 3), {}), ("Add", (-1, 2), {})],
        [("Add", (-1, 2), {}), gelu],
        [gelu],
    ]
    out = [_chain(tactic, arrays, b, constants) for b in bodies for constants in ((1, 2), (1,))]
    batch = [real(dtype, *s) for s in ((2, 5, 24), (2, 24, 16), (16,), (2, 5, 16))]
    return [
        *out,
        _chain(tactic, batch, bodies[4], ()),
        *epilogues(tactic, dtype, m, k, n),
        *exact(dtype, tactic),
    ]


def _chain(
    tactic: Tactic, arrays: Sequence[Any], nodes: Sequence[Any], constants: Sequence[int]
) -> simt.Case:
    """-1 is what was made before."""
    body: list[Any] = [("MatMul", (0, 1), {})]
    for name, ids, attrs in nodes:
        body.append((name, tuple(len(arrays) + len(body) - 1 if i < 0 else i for i in ids), attrs))
    return group(tactic, arrays, body, constants)


def exact(dtype: str, tactic: Tactic) -> list[simt.Case]:
    """The GELU that no library knows."""
    arrays = [real(dtype, *s) for s in ((37, 64), (64, 48), (48,))]
    return [_chain(tactic, arrays, [("Add", (-1, 2), {}), ("Gelu", (-1,), GELU["erf"])], (1, 2))]


ERF: Cases = partial(exact, "f16")


def eights(dtype: str, tactic: Tactic) -> list[simt.Case]:
    """Results that become floats of 8 bits."""
    arrays = [real(dtype, *s) for s in ((37, 64), (64, 48), (48,))]
    behind = [("Add", (-1, 2), {}), ("Cast", (-1,), {"to": DType.FP8})]
    return [_chain(tactic, arrays, behind, (1, 2))]


EIGHTS: Cases = partial(eights, "f16")


def pixels(dtype: str, tactic: Tactic) -> list[simt.Case]:
    """1x1 convolutions, and what follows them in a residual network."""
    shapes = [(2, 16, 9, 7), (24, 16, 1, 1), (24,), (2, 24, 9, 7)]
    nodes: list[Any] = [("Convolution", (0, 1, 2), {}), ("Add", (4, 3), {}), ("Relu", (5,), {})]
    chain = group(tactic, [real(dtype, *s) for s in shapes], nodes, [1, 2])
    gated = group(
        tactic, [real(dtype, *s) for s in (*shapes, (2, 24, 1, 1))],
        [("Convolution", (0, 1, 2), {}), ("Mul", (5, 4), {}), ("Add", (6, 3), {})], [1, 2],
    )  # fmt: skip
    return [*images(tactic, dtype, PIXELS), chain, gated]


def convolutions(dtype: str, tactic: Tactic) -> list[simt.Case]:
    """Windows of all kinds, groups, and residual blocks: what a library may do as one."""
    arrays = [real(dtype, *s) for s in ((2, 16, 9, 7), (24, 16, 3, 3), (24,), (2, 24, 9, 7))]
    pads: dict[str, Any] = {"pads": (1, 1, 1, 1)}
    bodies: list[list[Any]] = [
        [("Convolution", (0, 1, 2), pads), ("Relu", (4,), {})],
        [("Convolution", (0, 1, 2), pads), ("Add", (4, 3), {}), ("Relu", (5,), {})],
        [("Convolution", (0, 1), pads), ("Add", (3, 4), {})],
        [("Convolution", (0, 1), pads)],
    ]
    chains = [group(tactic, arrays, b, [1, 2]) for b in bodies]
    return [*chains, *images(tactic, dtype, IMAGES), *images(tactic, dtype, GROUPED[:2])]


def attentions(dtype: str, tactic: Tactic) -> list[simt.Case]:
    """Matrices and rows of tokens of many sizes, keys that heads share, masks along each axis, one
    that hides all.
    """

    def make(q: Any, k: Any, e: int, *mask: Any, constants: Sequence[int] = ()) -> simt.Case:
        arrays = [real(dtype, *q), real(dtype, *k), real(dtype, *k[:3], e), *mask]
        given = len(mask) > len(constants)  # such a mask may hide all keys
        return plain(tactic, "Attention", arrays, constants, scale=0.2, nan_to_zero=given)

    square, wide, nearly = causal(dtype, 40), causal(dtype, 70)[30:], causal(dtype, 40)
    nearly[5, 3] = 1
    blind = real(dtype, 1, 1, 20, 30)
    blind[0, 0, 3] = -np.inf
    return [
        make((2, 2, 70, 64), (2, 2, 90, 64), 64),
        make((1, 1, 1, 8), (1, 1, 1, 8), 8),
        make((3, 2, 1, 128), (3, 2, 130, 128), 128),
        make((1, 2, 33, 40), (1, 1, 150, 40), 24, real(dtype, 1, 1, 1, 150)),
        make((1, 1, 5, 128), (1, 1, 200, 128), 96, real(dtype, 5, 200)),
        make((2, 1, 20, 32), (2, 1, 20, 32), 8, real(dtype, 2, 1, 20, 1)),
        make((2, 3, 20, 64), (2, 3, 31, 64), 64, real("f32", 2, 3, 20, 31)),
        make((2, 3, 64, 64), (2, 3, 64, 64), 64, real(dtype, 2, 1, 1, 64)),
        make((1, 2, 20, 32), (1, 2, 30, 32), 32, blind),
        make((1, 2, 40, 32), (1, 2, 40, 32), 32, square, constants=[3]),
        make((2, 2, 40, 32), (2, 2, 70, 32), 32, wide, constants=[3]),
        make((1, 2, 40, 32), (1, 2, 40, 32), 32, nearly, constants=[3]),
        tokens(dtype, tactic, 2, 70, 2, 32),
        tokens(dtype, tactic, 1, 33, 3, 64),
        simt.Case(
            h.node(
                "TokenAttention",
                apart := [real(dtype, 2, n, w) for n, w in ((20, 72), (90, 96), (90, 64))],
                heads=2,
                dim=32,
                value_dim=24,
                columns=(0, 8, 16),
                scale=0.2,
            ),
            tactic,
            apart,
        ),
    ]


def tokens(dtype: str, tactic: Tactic, batch: int, s: int, heads: int, dim: int) -> simt.Case:
    """One tensor that holds the rows of q, k and v beside each other."""
    width = heads * dim
    attrs = {
        "heads": heads,
        "dim": dim,
        "value_dim": dim,
        "columns": (0, width, 2 * width),
        "scale": dim**-0.5,
    }
    return group(
        tactic, [real(dtype, batch, s, 3 * width)], [("TokenAttention", (0, 0, 0), attrs)], []
    )


def cases() -> dict[str, Cases]:
    """Groups by name."""
    makers = {"ways": ways, "folds": folds, "pixels": pixels}
    return {
        f"{name} {t}": partial(make, t)
        for name, make in makers.items()
        for t in ("f16", "bf16", "f32")
    }
