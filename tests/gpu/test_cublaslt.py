"""Products by cuBLASLt on the GPU, kernels behind them included, within the budget of the
reference.
"""

from __future__ import annotations

from pathlib import Path

import asked
import gpu_cases
import numpy as np
import pytest
from library_cases import cases, real

import tactix
from tactix_cublaslt.tactic import CublasLtTactic, Tf32CublasLtTactic
from tactix_cuda.device import CudaDevice

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", cases())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_are_those_of_the_reference(device: CudaDevice, name: str) -> None:
    some = cases()[name](CublasLtTactic())
    for case in some:
        if case.env:  # how many algorithms there are depends on the sizes
            case.only = asked.variants(case.tactic, case.node, device.properties())[:2]  # type: ignore[index]
    gpu_cases.check_all(device, some)


def test_tf32_is_within_its_own_budget(device: CudaDevice) -> None:
    from product_cases import TF32_BUDGET

    some = cases()["folds f32"](Tf32CublasLtTactic())
    for case in some:
        case.budget = TF32_BUDGET
    gpu_cases.check_all(device, some)


@pytest.mark.parametrize("flags", [(), (tactix.BuilderFlag.VERSION_COMPATIBLE,)])
def test_an_engine_of_products_and_kernels(
    device: CudaDevice, flags: tuple[tactix.BuilderFlag, ...], tmp_path: Path
) -> None:
    builder = tactix.Builder()
    network = builder.create_network("two")
    x = network.add_input("x", "f16", ("n", 512))
    first, second = real("f16", 512, 1024) / np.float16(16), real("f16", 1024, 256)
    (y,) = network.add_layer("tactix.MatMul", [x, network.add_constant(first)])
    (y,) = network.add_layer("tactix.Softmax", [y], axis=-1)
    (y,) = network.add_layer("tactix.MatMul", [y, network.add_constant(second)])
    network.mark_output(y, "y")
    profile = tactix.OptimizationProfile().set_shape("x", (1, 512), (300, 512), (700, 512))
    config = tactix.BuilderConfig(
        device="tactix.cuda@1",
        timing_cache=False,
        profiles=[profile],
        flags=set(flags),
        tactic_sources=None if flags else {"cuda_c", "cublaslt"},
    )
    plan = builder.build_plan(network, config)
    used = {s.artifact.launcher for s in plan.steps}
    assert used <= {"tactix.cuda.cubin@1", "tactix.cuda.cublaslt@1"}
    assert not flags or used == {"tactix.cuda.cubin@1"}
    tactix.Runtime().load(plan).save(tmp_path / "two.plan")
    engine = tactix.load(tmp_path / "two.plan")
    for n in (1, 300, 37, 700):
        values = real("f16", n, 512)
        hidden = values.astype(np.float32) @ first.astype(np.float32)
        hidden = np.exp(hidden - hidden.max(-1, keepdims=True))
        want = (hidden / hidden.sum(-1, keepdims=True)) @ second.astype(np.float32)
        np.testing.assert_allclose(np.asarray(engine(values), np.float32), want, atol=2e-2)
