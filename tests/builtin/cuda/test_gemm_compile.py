"""Kernels of the products table compile for every architecture, keep to its shared memory, and
spill no registers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import asked
import pytest
import simt
from product_cases import BYTE_GEMM, GEMM, TABLE, plain, real, whole

from tactix.base import dims
from tactix.base.dtypes import DType
from tactix.base.tensor import TensorSpec
from tactix.contracts.artifact import KernelArtifact, Source
from tactix.contracts.device import DeviceProperties
from tactix.contracts.tactic import CompileContext, Reject, Variant
from tactix_codegen.cuda.target import architecture, target
from tactix_cuda import nvrtc
from tactix_cuda.tactics import tile

TARGETS = ("sm_80", "sm_90")
pytestmark = pytest.mark.skipif(bool(nvrtc.why_missing()), reason="needs NVRTC")


def usage(artifact: KernelArtifact, device: DeviceProperties) -> tuple[list[int], list[int]]:
    """Registers and bytes spilled of every kernel, as the assembler tells."""
    from cuda.bindings import nvrtc as api

    assert isinstance(artifact.code, Source)
    _, program = api.nvrtcCreateProgram(
        nvrtc.unit_text(artifact.code).encode(), b"kernel.cu", 0, [], []
    )
    options = [
        f"--gpu-architecture={architecture(device)}",
        *nvrtc.FLAGS,
        "--ptxas-options=-v",
        "-w",
    ]
    (status,) = api.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    _, size = api.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    api.nvrtcGetProgramLog(program, log)
    api.nvrtcDestroyProgram(program)
    text = log.decode()
    assert not int(status), text[:3000]
    assert "serialized" not in text, text[:3000]  # matrix instructions that wait for each other
    registers, spilled = (
        re.findall(rf"{what}", text) for what in (r"Used (\d+) registers", r"(\d+) bytes spill")
    )
    return [int(n) for n in registers], [int(n) for n in spilled]


def fits(artifact: KernelArtifact, device: DeviceProperties, env: dict[str, int]) -> None:
    """What a launch asks for is there."""
    for launch in artifact.launches:
        (threads,) = launch.block
        assert isinstance(threads, int)
        assert threads % 32 == 0
        assert threads <= 1024
        shared = dims.evaluate(launch.shared_bytes, env)
        assert shared <= device.facts["shared_per_block"]
        assert all(1 <= dims.evaluate(g, env) < 1 << 31 for g in launch.grid)
    registers, spilled = usage(artifact, device)
    assert len(registers) == len(artifact.launches)
    for n, launch in zip(
        sorted(registers), sorted(artifact.launches, key=lambda x: str(x.block)), strict=True
    ):
        assert n * max(int(b) for x in artifact.launches for b in x.block) <= 65536, launch  # type: ignore[arg-type]
    assert not any(spilled), spilled


def fit_in_turns(cases: Sequence[simt.Case]) -> None:
    """Each case for one of TARGETS: nearly all texts are the same for both, and those of a group
    use the same instructions.
    """
    for arch, case in zip(cycle(TARGETS), cases, strict=False):
        device, env = target(arch), dict(case.env)
        offered = asked.variants(case.tactic, case.node, device)
        assert not isinstance(offered, Reject)
        context = CompileContext(device, env)
        fits(asked.artifact(case.tactic, case.node, offered[0], context), device, env)


@pytest.mark.parametrize("name", TABLE)
def test_the_table_compiles(name: str) -> None:
    fit_in_turns(TABLE[name]()[::4])


@pytest.mark.parametrize("kind", ["f16", "f32", "u8"])
def test_no_tile_spills(kind: str) -> None:
    """Each tile for one of TARGETS, in turns."""
    if kind == "u8":
        arrays = [whole(kind, 300, 768), whole("i8", 768, 320)]
        case: Any = plain(BYTE_GEMM, "IntegerMatMul", arrays, [1])
    else:
        case = plain(GEMM, "MatMul", [real(kind, 300, 768), real(kind, 768, 320)], [1])
    tiles = tile.tiles(kind, target(TARGETS[0]))
    assert tiles == tile.tiles(kind, target(TARGETS[1]))
    for arch, t in zip(cycle(TARGETS), tiles, strict=False):
        device = target(arch)
        artifact = asked.artifact(
            case.tactic, case.node, Variant.of(**vars(t), split=1), CompileContext(device)
        )
        fits(artifact, device, {})


def test_grids_of_odd_shapes() -> None:
    s = dims.sym("s")
    const = TensorSpec(DType.FP16, (40, 130), const=real("f16", 40, 130))
    node = simt.h.node("MatMul", [TensorSpec(DType.FP16, (s, 40)), const])
    t = next(t for t in tile.tiles("f16", simt.DEVICE) if (t.rows, t.cols) == (128, 128))
    made = asked.artifact(GEMM, node, Variant.of(**vars(t), split=2), CompileContext(simt.DEVICE))
    product, reduce = made.launches
    assert [dims.evaluate(product.grid[0], {"s": n}) for n in (1, 128, 129)] == [4, 4, 8]
    assert [dims.evaluate(reduce.grid[0], {"s": n}) for n in (1, 129)] == [1, -(-129 * 17 // 128)]
    assert dims.evaluate(made.workspace, {"s": 3}) == 3 * 136 * 4 * 2
    assert product.shared_bytes == t.shared_bytes
