"""Every variant of the conv tactics on the GPU, within the budget of the reference."""

from __future__ import annotations

import gpu_cases
import pytest
from product_cases import CONVOLUTIONS

from tactix_cuda.device import CudaDevice

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(device: CudaDevice, name: str) -> None:
    gpu_cases.check_all(device, CONVOLUTIONS[name]())
