"""The tactics of sm_90a on the GPU: variants that are offered over the whole table, and every flow
on a few nodes.
"""

from __future__ import annotations

from dataclasses import replace

import gpu_cases
import hopper_cases
import product_cases as pc
import pytest

from tactix.base.tensor import NHWC
from tactix_cuda.device import CudaDevice
from tactix_cuda.tactics.hopper import flow as hopper

pytestmark = pytest.mark.gpu

OFTEN = 20_000
"""Runs of a kernel of some microseconds, which a fault that comes now and then has to survive."""


@pytest.fixture(autouse=True)
def _hopper(device: CudaDevice) -> None:
    if not device.properties().has(hopper.FEATURE):
        pytest.skip(f"the device lacks {hopper.FEATURE}")


@pytest.mark.parametrize("name", hopper_cases.TABLE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(device: CudaDevice, name: str) -> None:
    gpu_cases.check_all(device, hopper_cases.TABLE[name]())


@pytest.mark.parametrize(
    "make", [hopper_cases.gemms, hopper_cases.convs, hopper_cases.stems], ids=lambda m: m.__name__
)
def test_every_flow(
    device: CudaDevice, make: hopper_cases.Callable[[str], list[hopper_cases.simt.Case]]
) -> None:
    gpu_cases.check_all(device, [hopper_cases.every_flow(c) for c in make("f16")[:2]])


def test_blocks_take_several_tiles(device: CudaDevice) -> None:
    gpu_cases.check_all(device, [hopper_cases.every_flow(c) for c in hopper_cases.large("f16")])


def test_pairs_of_blocks_leave_together(device: CudaDevice) -> None:
    """Kernels of one stage for each tile, run back to back: an arrival at a block that has left ended
    about one build in ten.
    """
    image = ((8, 16, 112, 112), 64, (1, 1), {})
    (case,) = pc.images(hopper_cases.CONV, "f16", [image])
    pairs = replace(case, only=hopper.variants(hopper.pairs(), (NHWC,), (NHWC,)))
    gpu_cases.check_all(device, [pairs], runs=OFTEN)
