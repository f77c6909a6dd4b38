"""The pack's tactic: MatMul by a constant matrix, with bias, residual, and relu or the exact GELU
behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tactix.base.dims import evaluate, symbols
from tactix_sdk import Dim, DType, Follower, Operation, Pack, Reject, ceildiv, prod
from tactix_sdk.triton import Call

TILES = (
    (128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 128, 4, 3), (32, 64, 128, 4, 4),
    (16, 64, 128, 4, 4),
)  # fmt: skip
"""Rows, columns, depth, warps, stages."""
FLOPS, START = 4e14, 3e-6

pack = Pack("acme_triton")


@dataclass(frozen=True)
class Product:
    """``y = act(a b + bias + rest)``: given inputs by index (-1: absent), sizes, what to do last."""

    a: int
    b: int
    bias: int
    rest: int
    m: Dim
    n: int
    k: int
    act: str


def matmul_kernel() -> Any:
    """The kernel; imported when it is compiled, as plans run without Triton."""
    from acme_triton.kernels import matmul

    return matmul


def seconds(op: Operation, sizes: Mapping[str, int], tile: tuple[int, ...]) -> float | None:
    """An estimate: waves of tiles at a rate."""
    p = product(op)
    if isinstance(p, Reject) or not symbols(p.m) <= set(sizes):
        return None
    tiles = -(-evaluate(p.m, sizes) // tile[0]) * -(-p.n // tile[1])
    return (
        START + -(-tiles // op.device.cores) * op.device.cores * 2 * tile[0] * tile[1] * p.k / FLOPS
    )


@pack.kernel(
    "triton",
    "tactix.MatMul@1",
    kernel=matmul_kernel,
    knobs={"tile": TILES},
    fused=True,
    cost=seconds,
)
def matmul(op: Operation, tile: tuple[int, ...]) -> Call | Reject:
    """float16 and bfloat16, summed in float32, of any sizes; for sm_80 and newer. Needs Triton to
    build, not to run.
    """
    p, (rows, columns, depth, warps, stages) = product(op), tile
    if isinstance(p, Reject):
        return p
    if stages * (rows + columns) * depth * 2 > op.device.facts["shared_per_block"]:
        return Reject("a tile larger than the device's shared memory")
    inputs = {"a": p.a, "b": p.b, "bias": p.bias, "rest": p.rest}
    arguments = {name: op.given(i) if i >= 0 else None for name, i in inputs.items()}
    constants = {
        "N": p.n, "K": p.k, "BM": rows, "BN": columns, "BK": depth, "GROUP": 8,
        "BIAS": p.bias >= 0, "REST": p.rest >= 0, "ACT": p.act,
    }  # fmt: skip
    grid = ceildiv(p.m, rows) * -(-p.n // columns)
    return Call(arguments | {"y": op.result(), "m": p.m}, constants, grid, warps, stages)


def product(op: Operation) -> Product | Reject:
    """The node as a product of this pack, or why it is none."""
    (a, b), node, followers = op.inputs, op.node, op.followers()
    types = (DType.FP16, DType.BF16)
    if a.dtype not in types or any(
        v.spec.dtype is not a.dtype for v in (*node.given, *node.outputs)
    ):
        return Reject("all of float16, or all of bfloat16")
    if b.const is None or b.rank != 2 or a.rank < 2 or 0 in (*a.shape, *b.shape):
        return Reject("a given matrix times a constant one")
    if isinstance(followers, Reject):
        return followers
    k, n = (int(d) for d in b.const.shape)
    return _behind(op, Product(*op.ids, -1, -1, prod(a.shape[:-1]), n, k, ""), followers)


def _behind(op: Operation, p: Product, followers: Sequence[Follower]) -> Product | Reject:
    """What follows, layer by layer: a row and a tensor of the result's shape are added, then an
    activation.
    """
    for f in followers:
        shape = op.node.given[f.other].spec.shape if f.other >= 0 else None
        if p.act:
            return Reject("something follows the activation")
        if f.key == "tactix.Add@1" and shape == op.output.shape and p.rest < 0:
            p = replace(p, rest=f.other)
        elif f.key == "tactix.Add@1" and shape == (p.n,) and p.bias < 0:
            p = replace(p, bias=f.other)
        elif f.key == "tactix.Relu@1" or (
            f.key == "tactix.Gelu@1" and f.attrs.approximate == "none"
        ):
            p = replace(p, act=f.key[len("tactix.") : -len("@1")].lower())
        else:
            return Reject(f"{f.key} behind the product")
    return p
