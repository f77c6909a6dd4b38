"""Steps of numpy references: formats, dtypes, fused bodies, errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tactix.base.dims import Dim, sym
from tactix.base.dtypes import DType
from tactix.base.errors import ExecutionError
from tactix.base.tensor import LINEAR, NHWC, Format, TensorSpec, blocked
from tactix.contracts import region
from tactix.contracts.artifact import KernelArtifact
from tactix.contracts.launcher import LinkContext, Operand, Step
from tactix.contracts.layer import Layer
from tactix_cpu.device import CpuDevice
from tactix_sdk.numpy_launcher import NumpyLauncher

N = sym("n")
F32 = DType.FP32


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _context(layer: Layer | None = None) -> LinkContext:
    return LinkContext(CpuDevice(), 1, ({layer.key: layer} if layer else {}).__getitem__)


@dataclass(frozen=True)
class _RollAttrs:
    by: Dim = 0
    names: tuple[str, ...] = ()


class _Roll(Layer):
    """x rolled along its last axis, and the sum of x and an optional y."""

    key = "test.Roll@1"
    Attrs = _RollAttrs

    def reference(self, attrs: _RollAttrs, *inputs: Any) -> tuple[Any, ...]:
        assert type(attrs.by) is int
        x, y = (*inputs, None)[:2]
        return np.roll(x, attrs.by, -1), x if y is None else x + y


ROLL = _Roll()


def _roll_step(
    fmt: Format, dtype: DType, layer: Layer, attrs: Any, inputs: int = 2, rank: int = 4
) -> Step:
    spec = TensorSpec(dtype, (N, 19, 3, 5)[:rank])
    artifact = KernelArtifact("tactix.numpy@1", params=region.encode(layer, attrs))
    ids = [Operand(i, spec, fmt) for i in range(4)]
    return Step("roll", artifact, tuple(ids[:inputs]), tuple(ids[2:]))


def _run_roll(step: Step, rows: int, dtype: DType) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs as linear arrays; buffers 0, 1 are inputs, 2, 3 outputs."""
    rng = np.random.default_rng(rows)
    fmt, spec = step.outputs[0].format, step.outputs[0].spec
    shape = spec.at({"n": rows})
    arrays = [rng.integers(0, 3, shape).astype(dtype.numpy) for _ in range(2)]
    memory = [fmt.pack(a) for a in arrays] + [
        fmt.pack(np.ones(shape, dtype.numpy)) for _ in range(2)
    ]
    run = NumpyLauncher().link([step], _context(ROLL))
    run.bind({"n": rows}, [0, 0, *(_address(m) for m in memory[2:])])
    for i in range(2):
        run.rebind(i, _address(memory[i]))
    run.repeat(2)
    return arrays, memory[2:]


@pytest.mark.parametrize("fmt", [LINEAR, NHWC, blocked(16), blocked(8)])
@pytest.mark.parametrize(
    "dtype", [F32, DType.BF16, DType.INT8, DType.INT4, DType.FP8, DType.BOOL, DType.FP64]
)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_formats_and_dtypes(fmt: Format, dtype: DType, rows: int) -> None:
    step = _roll_step(fmt, dtype, ROLL, _RollAttrs(N + 1))
    (x, y), stored = _run_roll(step, rows, dtype)
    want = [np.roll(x, rows + 1, -1), x + y]
    for got, w in zip(stored, want, strict=True):
        np.testing.assert_array_equal(fmt.unpack(got, w.shape), w)
        np.testing.assert_array_equal(got, fmt.pack(w))  # the lanes past the channels are zero


def test_symbols_inside_fused_bodies_and_absent_inputs() -> None:
    inner = region.Body(1, (region.BodyNode("a", ROLL, _RollAttrs(N * 2), (0, -1), 2),), (1, 2))
    outer = region.Body(
        2,
        (
            region.BodyNode("f", region.FUSED, inner, (0,), 2),
            region.BodyNode("b", ROLL, _RollAttrs(1), (2, 1), 2),
        ),
        (4, 5),
    )
    step = _roll_step(LINEAR, F32, region.FUSED, outer)
    (x, y), (rolled, total) = _run_roll(step, 4, F32)
    np.testing.assert_array_equal(rolled, np.roll(x, 9, -1))
    np.testing.assert_array_equal(total, np.roll(x, 8, -1) + y)


def test_a_reference_cannot_write_its_inputs() -> None:
    class Writes(Layer):
        key = ROLL.key
        Attrs = _RollAttrs

        def reference(self, attrs: Any, *inputs: Any) -> tuple[Any, ...]:
            inputs[0][...] = 0
            return inputs

    step = _roll_step(LINEAR, F32, ROLL, _RollAttrs())
    run = NumpyLauncher().link([step], _context(Writes()))
    memory = [np.ones((2, 19, 3, 5), np.float32) for _ in range(4)]
    run.bind({"n": 2}, [_address(m) for m in memory])
    with pytest.raises(ExecutionError, match=r"roll: test.Roll@1 failed.*read-only"):
        run()


def test_an_unknown_layer_or_attribute_is_told_when_linking() -> None:
    step = _roll_step(LINEAR, F32, ROLL, _RollAttrs())
    with pytest.raises(ExecutionError, match="roll"):
        NumpyLauncher().link([step], _context())
    params = {"layer": ROLL.key, "attrs": {"nobody": 1}}
    with pytest.raises(ExecutionError, match="roll"):
        NumpyLauncher().link(
            [Step("roll", KernelArtifact("", params=params), (), ())], _context(ROLL)
        )
