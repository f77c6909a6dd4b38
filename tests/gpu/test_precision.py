"""Float32 models under FP16, BF16 and TF32 on the device: as the CPU's float32, within the
precision's budget.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_networks import MODELS, NAMES, feed, outputs

import tactix
from tactix.base.dtypes import DType
from tactix.select.accuracy import departure

pytestmark = pytest.mark.gpu

BUDGETS = {"tf32": DType.FP16, "fp16": DType.FP16, "bf16": DType.BF16}


def built(path: Path, **options: Any) -> tactix.Engine:
    return tactix.build(path, timing_cache=False, level=1, **options)


@pytest.mark.parametrize("precision", BUDGETS)
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_float32(name: str, precision: str, device: Any) -> None:
    """Every layer is lowered that can be, faster or not."""
    wanted = {} if precision == "tf32" else {"*": precision}
    path = MODELS / f"{name}.onnx"
    gpu = built(path, device=device.key, precision=precision, layer_precisions=wanted)
    cpu = built(path)
    for batch, length in ((1, 16), (3, 7)):
        arrays = feed(cpu, batch, length)
        want, got = outputs(cpu, arrays), outputs(gpu, arrays)
        for k, w in want.items():
            assert got[k].dtype == w.dtype
            assert departure(got[k], w, BUDGETS[precision]) <= 1, (k, batch, length)


def test_tf32_products_pass_the_gate_by_measuring(device: Any) -> None:
    """Of a product large enough to gain; the ledger holds their errors in units of tf32's budget."""
    rng = np.random.default_rng(3)
    builder = tactix.Builder()
    net = builder.create_network()
    w = net.add_constant(rng.standard_normal((1024, 1024), dtype=np.float32))
    net.mark_output(
        net.add_layer("tactix.MatMul", [net.add_input("x", "f32", (1024, 1024)), w])[0], "y"
    )
    flags = {tactix.BuilderFlag.TF32}
    plan = builder.build_plan(
        net, tactix.BuilderConfig(device=device.key, timing_cache=False, flags=flags)
    )
    (rows,) = (n["candidates"] for n in plan.ledger["nodes"].values())
    measured = [r for r in rows if "tf32" in r["tactic"] and r["status"] == "measured"]
    assert measured
    assert all(0.01 < r["error"] < 1 for r in measured)
    assert "tf32" in next(r["tactic"] for r in rows if r["chosen"])
