"""Tensor maps in a run: encoded when addresses are known, and again when one changes."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_steps import LAUNCHER, operand
from fake_driver import FakeApi, FakeKernel, fake_device
from test_graph_arguments import linked, types

from tactix.base.dims import sym
from tactix.base.dtypes import DType
from tactix.base.errors import InvalidArgument
from tactix.contracts.artifact import Binary, KernelArtifact, Launch, scalar, tensor_in, tensor_out
from tactix.contracts.launcher import Step
from tactix_cuda.device import CudaDevice
from tactix_cuda.tensor_maps import ALIGNMENT, MapMemory, TensorMap, maps_of

N = sym("n")
ROWS = TensorMap(DType.FP16, (64, N), (128,), (64, 128))
WINDOWS = TensorMap(
    DType.BF16, (8, N, 5, 2), (16, 16 * N, 80 * N), (64, 32), (1, 2, 2, 1), ((-1, -1), (1, 0))
)


def step(maps: Any) -> Step:
    args = (tensor_in(0), tensor_in(1), tensor_out(), scalar(N))
    params = {"maps": [[m.to_json() for m in maps]]}
    artifact = KernelArtifact(
        LAUNCHER, (Launch(args, (1,), (32,)),), Binary(b"code", "k"), params=params
    )
    return Step("mapped", artifact, (operand(0), operand(1)), (operand(2),))


@pytest.fixture(params=types(), ids=lambda t: getattr(t, "__name__", "binding"))
def here(request: pytest.FixtureRequest) -> tuple[CudaDevice, FakeApi]:
    return fake_device({"k": FakeKernel(4)}, request.param)


def test_a_kernel_gets_maps_of_its_tensors(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    run = linked(device, [step([ROWS, WINDOWS])])
    run.bind({"n": 7}, [0x1000, 0x2000, 0x3000])
    run()
    assert api.ran[-1].args == (0x1000, 0x2000, 0x3000, 7)
    first, second = api.maps
    assert first == ("tiled", 0x1000, (64, 7), (128,), (64, 128), (1, 1))
    assert second == (
        "windows",
        0x2000,
        (8, 7, 5, 2),
        (16, 112, 560),
        (-1, -1),
        (1, 0),
        64,
        32,
        (1, 2, 2, 1),
    )


def test_a_new_address_or_shape_means_a_new_map(here: tuple[CudaDevice, FakeApi]) -> None:
    device, api = here
    run = linked(device, [step([ROWS])])
    run.bind({"n": 7}, [0, 0x2000, 0x3000])
    assert api.maps == []
    run.rebind(0, 0x1000)
    run()
    assert api.ran[-1].args[0] == 0x1000
    run.rebind(0, 0x5000)
    run.rebind(1, 0x6000)
    run()
    assert api.ran[-1].args == (0x5000, 0x6000, 0x3000, 7)
    run.bind({"n": 0}, [0x7000, 0x2000, 0x3000])
    run()
    assert [(m[1], m[2]) for m in api.maps] == [
        (0x1000, (64, 7)),
        (0x5000, (64, 7)),
        (0x7000, (64, 1)),
    ]


@pytest.mark.parametrize("made", [ROWS, WINDOWS])
def test_json(made: TensorMap) -> None:
    assert TensorMap.from_json(made.to_json()) == made
    with pytest.raises(InvalidArgument, match="not a tensor map"):
        TensorMap.from_json({**made.to_json(), "dtype": "f17"})


def test_maps_must_fit_the_launches() -> None:
    good = step([ROWS]).artifact
    assert maps_of(good) == [[ROWS]]
    for bad in ([], [[], []], [[ROWS.to_json()] * 5]):
        with pytest.raises(InvalidArgument, match="other launches"):
            maps_of(KernelArtifact(LAUNCHER, good.launches, good.code, params={"maps": bad}))


def test_maps_are_a_list() -> None:
    with pytest.raises(InvalidArgument, match="tensor maps are no list but 3"):
        maps_of(KernelArtifact(LAUNCHER, params={"maps": 3}))


def test_memory_of_maps() -> None:
    memory = MapMemory(3)
    assert all(p % ALIGNMENT == 0 for p in memory.places)
    assert len(set(memory.places)) == 3
