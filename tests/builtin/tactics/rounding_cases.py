"""Groups in which a rounding to 16 bits shows: in a wider output, or in what a jump decides.

Each operation before it is exact or correctly rounded, so that every right kernel gives the
reference's bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import harness as h
import numpy as np

from tactix.base.dtypes import DType
from tactix.contracts.graph import Node

KINDS = ("f16", "bf16")
WIDER: Mapping[str, Any] = {"to": DType.FP32}
Nodes = Sequence[tuple[str, Sequence[int], Mapping[str, Any]]]
GROUPS: Mapping[str, tuple[Nodes, tuple[int, ...]]] = {
    "floor": ([("Mul", [0, 1], {}), ("Floor", [2], {})], (3,)),
    "round": ([("Add", [0, 1], {}), ("Round", [2], {})], (3,)),
    "sign": ([("Sub", [0, 1], {}), ("Sign", [2], {})], (3,)),
    "compare": ([("Mul", [0, 1], {}), ("Less", [2, 0], {})], (3,)),
    "equal": ([("Add", [0, 1], {}), ("Sub", [2, 1], {}), ("Equal", [3, 0], {})], (4,)),
    "choose": ([("Mul", [0, 1], {}), ("Greater", [2, 1], {}), ("Where", [3, 0, 1], {})], (4,)),
    "whole": ([("Mul", [0, 1], {}), ("Cast", [2], {"to": DType.INT32})], (3,)),
    "remainder": ([("Mul", [0, 1], {}), ("Mod", [2, 1], {"fmod": True})], (3,)),
    "wider": ([("Mul", [0, 1], {}), ("Cast", [2], WIDER)], (3,)),
    "wider of a sum": ([("Add", [0, 1], {}), ("Neg", [2], {}), ("Cast", [3], WIDER)], (4,)),
    "both widths": ([("Sub", [0, 1], {}), ("Cast", [2], WIDER)], (2, 3)),
    "beside a reader": ([("Mul", [0, 1], {}), ("Cast", [2], WIDER), ("Relu", [2], {})], (3, 4)),
    "wide and on": ([("Add", [0, 1], {}), ("Cast", [2], WIDER), ("Mul", [3, 3], {})], (3, 4)),
    "decided in float32": (
        [("Mul", [0, 1], {}), ("Add", [2, 0], {}), ("Cast", [3], WIDER), ("Ceil", [4], {})],
        (5,),
    ),
    "decided after two": ([("Mul", [0, 1], {}), ("Add", [2, 1], {}), ("Floor", [3], {})], (4,)),
    "narrow to narrow": (
        [("Mul", [0, 1], {}), ("Cast", [2], {"to": DType.FP16}), ("Cast", [3], WIDER)],
        (4,),
    ),
}
"""Pointwise layers over two inputs, and which values are results."""


def group(name: str, kind: str) -> tuple[Node, list[Any]]:
    """A group over two arrays of 16-bit floats, and these arrays."""
    nodes, results = GROUPS[name]
    rng = np.random.default_rng(len(name))
    arrays = [(rng.standard_normal((5, 203)) * 3).astype(DType(kind).numpy) for _ in range(2)]
    return h.fused(arrays, nodes, results), arrays
