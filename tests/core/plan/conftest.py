"""A plan that uses every field of the schema."""

from __future__ import annotations

import numpy as np
import pytest

from tactix.base.dims import ceildiv, sym
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, TensorSpec, blocked
from tactix.contracts.artifact import (
    Binary,
    KernelArtifact,
    Launch,
    Packed,
    constant,
    scalar,
    tensor_in,
    tensor_out,
    workspace,
)
from tactix.contracts.launcher import Operand, Step
from tactix.plan import container
from tactix.plan.schema import Buffer, Plan, Profile, Requirement, TensorIO

BATCH = sym("batch")


F32, C16 = DType.FP32, blocked(16)
SCRATCH = BATCH * 8 + ceildiv(BATCH, 2)
X, MID = TensorSpec(F32, (BATCH, 3)), TensorSpec(F32, (BATCH, 20))


def _buffers() -> tuple[Buffer, ...]:
    return (
        Buffer("input", "x", F32, X.shape, LINEAR, X.nbytes()),
        Buffer("weight", "w", F32, (3, 20), LINEAR, 240, blob="w"),
        Buffer("arena", "mid", F32, MID.shape, C16, MID.nbytes(C16), 0, 1),
        Buffer("workspace", "fc/workspace", DType.UINT8, (SCRATCH,), LINEAR, SCRATCH, 0, 0),
        Buffer("output", "y", F32, MID.shape, LINEAR, MID.nbytes()),
        Buffer("weight", "empty", F32, (0,), LINEAR, 0, blob="nothing"),
    )


def _native() -> Step:
    args = (
        tensor_in(0),
        constant("w"),
        workspace(BATCH * 8),
        tensor_out(0),
        scalar(ceildiv(BATCH, 4)),
        scalar(-7),
    )
    packing = (("cast", "f32"), ("reshape", (3, 20)), ("pad", ((0, 0), (0, 0))))
    artifact = KernelArtifact(
        "tactix.cpu.elf@1",
        launches=(Launch(args), Launch(args[:1], (BATCH, 2), (32,), (1,), BATCH * 4, "second")),
        code=Binary(b"\x7fELF not really", "kernel_0", "void kernel_0() {} /* \u00fc */"),
        workspace=SCRATCH,
        constants=(("w", Packed(1, packing)),),
        requires=("avx2", "fma"),
        host_code=True,
    )
    inputs = (Operand(0, X, LINEAR), Operand(-1, TensorSpec(F32, (3, 20)), LINEAR))
    info = {"tactic": "t.gemm@1", "seconds": 1e-6, "origin": ["n0"]}
    return Step("fc", artifact, inputs, (Operand(2, MID, C16),), {"w": 1}, 3, info)


def make_plan(seed: int = 0) -> Plan:
    """Two steps over a symbolic batch: a native one with all kinds of arguments, a numpy one with a
    blocked input.
    """
    params = {"layer": "test.Tanh@1", "attrs": {"scale": {"float": "inf"}, "dim": {"dim": "batch"}}}
    numpy = KernelArtifact("tactix.numpy@1", params=params, host_code=True)
    weight = np.random.default_rng(seed).standard_normal((3, 20), dtype=np.float32)
    return Plan(
        name="two steps",
        inputs=(TensorIO("x", 0, F32, X.shape),),
        outputs=(TensorIO("y", 4, F32, MID.shape),),
        profiles=(Profile("a", {"batch": (1, 4, 16)}), Profile("open", {"batch": (0, 1, None)})),
        buffers=_buffers(),
        steps=(_native(), Step("tanh", numpy, (Operand(2, MID, C16),), (Operand(4, MID, LINEAR),))),
        blobs={"w": memoryview(weight).cast("B"), "nothing": b"", "note": b"kept"},
        ledger={"rows": (1, 2.5, None, True), "best": float("inf")},
        requirements=(Requirement("test.Tanh@1", "test-pack", "1.2", "abc", False, True),),
        device={"kind": "cpu", "name": "some cpu", "features": ["avx2"]},
        meta={"tactix": "0.1.0", "threads": 2},
    )


@pytest.fixture
def plan() -> Plan:
    return make_plan()


@pytest.fixture(scope="session")
def data() -> bytes:
    """The file of that plan."""
    return container.dump(make_plan())
