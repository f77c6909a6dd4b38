"""Every variant of the attention tactics on the GPU, within the budget of the reference."""

from __future__ import annotations

import gpu_cases
import hopper_cases
import numpy as np
import product_cases as pc
import pytest
from product_cases import ATTENTIONS

from tactix_cuda.device import CudaDevice
from tactix_cuda.tactics import attention
from tactix_cuda.tactics.hopper import flow as hopper

pytestmark = pytest.mark.gpu
CAUSAL = [(3, 700, 700, 64), (2, 515, 1030, 128), (1, 1024, 1024, 96), (40, 300, 333, 64)]


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(device: CudaDevice, name: str) -> None:
    gpu_cases.check_all(device, ATTENTIONS[name]())


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("batch", "s", "t", "dim"), CAUSAL)
@pytest.mark.parametrize("cached", [attention.CACHED, 1 << 18])
def test_causal_masks(
    device: CudaDevice,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    batch: int,
    s: int,
    t: int,
    dim: int,
    cached: int,
) -> None:
    """More blocks than run at a time, keys for many turns of the stages, teams that leave out the
    last ones.
    """
    monkeypatch.setattr(attention, "CACHED", cached)
    tactics = [
        pc.ATTENTION,
        *([hopper_cases.ATTENTION] if device.properties().has(hopper.FEATURE) else []),
    ]
    arrays = [pc.real(dtype, batch, 3, n, dim) for n in (s, t, t)]
    mask = np.ascontiguousarray(pc.causal(dtype, t)[t - s :])
    gpu_cases.check_all(
        device, [pc.plain(x, "Attention", [*arrays, mask], [3], scale=dim**-0.5) for x in tactics]
    )
