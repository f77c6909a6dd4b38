"""A plan that uses every field of the schema."""

from __future__ import annotations

import numpy as np
import pytest

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
from tactix.words.dims import ceildiv, sym
from tactix.words.dtypes import DType
from tactix.words.tensor import LINEAR, TensorSpec, blocked

BATCH = sym("batch")


def make_plan(seed: int = 0) -> Plan:
    """Two steps over a symbolic batch: a native one with all kinds of arguments, a numpy one with a blocked input."""
    rng = np.random.default_rng(seed)
    f32, c16 = DType.FP32, blocked(16)
    weight = rng.standard_normal((3, 20), dtype=np.float32)
    x, mid, y = (TensorSpec(f32, (BATCH, n)) for n in (3, 20, 20))
    scratch = BATCH * 8 + ceildiv(BATCH, 2)
    buffers = (
        Buffer("input", "x", f32, x.shape, LINEAR, x.nbytes()),
        Buffer("weight", "w", f32, (3, 20), LINEAR, 240, blob="w"),
        Buffer("arena", "mid", f32, mid.shape, c16, mid.nbytes(c16), 0, 1),
        Buffer("workspace", "fc/workspace", DType.UINT8, (scratch,), LINEAR, scratch, 0, 0),
        Buffer("output", "y", f32, y.shape, LINEAR, y.nbytes()),
        Buffer("weight", "empty", f32, (0,), LINEAR, 0, blob="nothing"),
    )
    args = (tensor_in(0), constant("w"), workspace(BATCH * 8), tensor_out(0), scalar(ceildiv(BATCH, 4)), scalar(-7))
    packing = (("cast", "f32"), ("reshape", (3, 20)), ("pad", ((0, 0), (0, 0))))
    native = KernelArtifact(
        "tactix.cpu.elf@1",
        launches=(Launch(args), Launch(args[:1], (BATCH, 2), (32,), (1,), BATCH * 4, "second")),
        code=Binary(b"\x7fELF not really", "kernel_0", "void kernel_0() {} /* \u00fc */"),
        workspace=scratch,
        constants=(("w", Packed(1, packing)),),
        requires=("avx2", "fma"),
        host_code=True,
    )
    params = {"layer": "test.Tanh@1", "attrs": {"scale": {"float": "inf"}, "dim": {"dim": "batch"}}}
    numpy = KernelArtifact("tactix.numpy@1", params=params, host_code=True)
    steps = (
        Step("fc", native, (Operand(0, x, LINEAR), Operand(-1, TensorSpec(f32, (3, 20)), LINEAR)),
             (Operand(2, mid, c16),), {"w": 1}, 3, {"tactic": "t.gemm@1", "seconds": 1e-6, "origin": ["n0"]}),
        Step("tanh", numpy, (Operand(2, mid, c16),), (Operand(4, y, LINEAR),)),
    )  # fmt: skip
    return Plan(
        name="two steps",
        inputs=(TensorIO("x", 0, f32, x.shape),),
        outputs=(TensorIO("y", 4, f32, y.shape),),
        profiles=(Profile("a", {"batch": (1, 4, 16)}), Profile("open", {"batch": (0, 1, None)})),
        buffers=buffers,
        steps=steps,
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
