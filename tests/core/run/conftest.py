"""Small plans of numpy steps, and a session that knows what they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tactix.base.dims import Dim, sym
from tactix.base.dtypes import DType
from tactix.base.tensor import LINEAR, TensorSpec, blocked
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import Operand, Step
from tactix.contracts.layer import Layer, NoAttrs
from tactix.contracts.region import encode
from tactix.plan.schema import Buffer, Plan, Profile, TensorIO
from tactix_cpu.allocator import ArenaAllocator
from tactix_cpu.device import CpuDevice
from tactix_cpu.launcher import ElfLauncher
from tactix_runtime.default import DefaultFlavour
from tactix_sdk.numpy_launcher import NumpyLauncher


class MatMul(Layer):
    key = "test.MatMul@1"

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return (inputs[0] @ inputs[1],)


@dataclass(frozen=True)
class ScaleAttrs:
    factor: float = 1.0
    plus: Dim = 0


class ScaleAdd(Layer):
    """x * factor + plus + bias[:, None]."""

    key = "test.ScaleAdd@1"
    Attrs = ScaleAttrs

    def reference(self, attrs: ScaleAttrs, *inputs: Any) -> tuple[Any, ...]:
        x, bias = inputs
        return (
            (x * np.float32(attrs.factor) + np.float32(attrs.plus) + bias[:, None]).astype(
                np.float32
            ),
        )


class Fails(Layer):
    key = "test.Fails@1"

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        raise ZeroDivisionError("on purpose")


class WrongDType(Layer):
    key = "test.WrongDType@1"

    def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
        return (inputs[0].astype(np.float64),)


LAYERS: tuple[Layer, ...] = (MatMul(), ScaleAdd(), Fails(), WrongDType())


def numpy_step(
    name: str, layer: Layer, attrs: Any, inputs: Sequence[Operand], outputs: Sequence[Operand]
) -> Step:
    artifact = KernelArtifact("tactix.numpy@1", params=encode(layer, attrs))
    return Step(name, artifact, tuple(inputs), tuple(outputs), info={"tactic": "test.numpy@1"})


F32, C16 = DType.FP32, blocked(16)
W = TensorSpec(F32, (3, 20))


def _affine_steps(x: TensorSpec, bias: TensorSpec, h: TensorSpec, depth: int) -> list[Step]:
    reads = [Operand(0, x, LINEAR), Operand(2, W, LINEAR)]
    steps = [numpy_step("fc", LAYERS[0], NoAttrs(), reads, [Operand(5, h, C16)])]
    for i in range(depth):
        target = Operand(6 + i, h, C16) if i + 1 < depth else Operand(4, h, LINEAR)
        chain = [Operand(5 + i, h, C16), Operand(1, bias, LINEAR)]
        steps.append(numpy_step(f"add{i}", LAYERS[1], ScaleAttrs(2.0, x.shape[0]), chain, [target]))
    return [*steps, numpy_step("again", LAYERS[0], NoAttrs(), reads, [Operand(3, h, LINEAR)])]


def affine_plan(
    rows: int | str = "batch", depth: int = 1, profile: tuple[int, int, int | None] = (0, 2, 64)
) -> Plan:
    """``h = x @ w`` in c16, then ``depth`` times ``y = y * 2 + rows + bias``, beginning with ``h``;
    outputs y and h.
    """
    n: Dim = sym(rows) if isinstance(rows, str) else rows
    x, bias, h = TensorSpec(F32, (n, 3)), TensorSpec(F32, (n,)), TensorSpec(F32, (n, 20))
    buffers = [
        Buffer("input", "x", F32, x.shape, LINEAR, x.nbytes()),
        Buffer("input", "bias", F32, bias.shape, LINEAR, bias.nbytes()),
        Buffer("weight", "w", F32, W.shape, LINEAR, 240, blob="w"),
        Buffer("output", "h", F32, h.shape, LINEAR, h.nbytes()),
        Buffer("output", "y", F32, h.shape, LINEAR, h.nbytes()),
        *(
            Buffer("arena", f"t{i}", F32, h.shape, C16, h.nbytes(C16), i, i + 1)
            for i in range(depth)
        ),
    ]
    return Plan(
        name="affine",
        inputs=(TensorIO("x", 0, F32, x.shape), TensorIO("bias", 1, F32, bias.shape)),
        outputs=(TensorIO("y", 4, F32, h.shape), TensorIO("h", 3, F32, h.shape)),
        profiles=(Profile("default", {rows: profile}),) if isinstance(rows, str) else (),
        buffers=tuple(buffers),
        steps=tuple(_affine_steps(x, bias, h, depth)),
        blobs={"w": (np.arange(60, dtype=np.float32) / 10).tobytes()},
        device={"kind": "cpu"},
    )


def affine(x: Any, bias: Any, depth: int = 1) -> tuple[Any, Any]:
    """What that plan computes."""
    h = x @ (np.arange(60, dtype=np.float32) / 10).reshape(3, 20)
    y = h
    for _ in range(depth):
        y = y * np.float32(2) + np.float32(len(x)) + bias[:, None]
    return y, h


def make_session(**more: Any) -> Any:
    device, allocator, flavour = CpuDevice(), ArenaAllocator(), DefaultFlavour()
    launchers: list[Any] = [NumpyLauncher(), ElfLauncher()]
    made = {
        "layers": {x.key: x for x in LAYERS},
        "launchers": {x.key: x for x in launchers},
        "devices": {device.key: device},
        "allocators": {allocator.key: allocator},
        "flavours": {flavour.key: flavour},
        "trust_stores": {},
        "trusted_by": lambda seal: "",
        "signer": None,
        "why_missing": lambda namespace, hook: ("", ""),
        "why_unused": lambda namespace, hook: ("", ""),
    }
    return SimpleNamespace(**{**made, **more})


@pytest.fixture
def session() -> Any:
    return make_session()


@pytest.fixture
def sample() -> Any:
    """The helpers above, for tests that make plans of their own."""
    return SimpleNamespace(
        plan=affine_plan, expected=affine, session=make_session, step=numpy_step, layers=LAYERS
    )


@pytest.fixture
def feeds() -> Callable[[int, int], dict[str, Any]]:
    def make(rows: int, seed: int = 0) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        shape = {"x": (rows, 3), "bias": (rows,)}
        return {k: rng.standard_normal(s, dtype=np.float32) for k, s in shape.items()}

    return make  # type: ignore[return-value]


@pytest.fixture
def in_four_threads() -> Callable[[Callable[[int], None]], None]:
    """Calls ``work(seed)`` in four threads at once, and raises what any of them raises."""

    def run(work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(work, seed) for seed in range(4)]:
                done.result()

    return run
