"""The example pack, installed by pip into a folder of its own: it fuses, it is right; without it
the error says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sdk_site import pip_install

import tactix
import tactix_ops
import tactix_sdk

SOURCE = Path(__file__).parents[2] / "examples" / "acme_mish"
ROOTS = [str(Path(m.__file__).parents[1]) for m in (tactix, tactix_ops, tactix_sdk)]

BUILD_AND_RUN = """
import json, sys
import numpy as np
import tactix
model, plan, data = sys.argv[1:]
try:
    engine = tactix.build(model, level=0, timing_cache=False)
except tactix.TactixError as e:
    print(json.dumps({"type": type(e).__name__, "message": str(e)}))
else:
    engine.save(plan)
    x = np.load(data)
    np.save(data, tactix.load(plan)(x))
    print(json.dumps({"steps": engine.inspect()["steps"]}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the pack as pip installs it."""
    return pip_install(SOURCE, tmp_path_factory.mktemp("acme"))


def run(args: list[str], *more_paths: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([*map(str, more_paths), *ROOTS, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *args],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )


def conv_mish(path: Path, weight: np.ndarray, bias: np.ndarray) -> None:
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], "conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        ),
        helper.make_node("Mish", ["c"], ["y"], "mish1", domain="acme"),
    ]
    graph = helper.make_graph(
        nodes, "conv_mish",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 7, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 5, 7, 9])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def expected(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    c = np.einsum("nchwij,kcij->nkhw", windows, weight) + bias[:, None, None]
    return c * np.tanh(np.logaddexp(0, c))


@pytest.fixture
def case(tmp_path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(11)
    weight = rng.standard_normal((5, 3, 3, 3)).astype(np.float32) / 3
    bias = rng.standard_normal(5).astype(np.float32)
    x = rng.standard_normal((2, 3, 7, 9)).astype(np.float32)
    conv_mish(tmp_path / "m.onnx", weight, bias)
    np.save(tmp_path / "x.npy", x)
    args = ["-c", BUILD_AND_RUN, *(str(tmp_path / n) for n in ("m.onnx", "m.plan", "x.npy"))]
    return {"args": args, "folder": tmp_path, "want": expected(x, weight, bias)}


def test_fuses_into_the_convolution_and_is_right(installed: Path, case: dict[str, Any]) -> None:
    done = run(case["args"], installed)
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    fused = [s for s in steps if "acme.Mish@1" in s["layers"]]
    assert len(fused) == 1
    assert fused[0]["layers"][0].startswith("tactix.Conv")
    got = np.load(case["folder"] / "x.npy")
    np.testing.assert_allclose(got, case["want"], rtol=1e-4, atol=1e-5)


def test_without_the_pack_the_error_names_the_operator(case: dict[str, Any]) -> None:
    done = run(case["args"])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["type"] == "UnsupportedOperator"
    assert "acme::Mish" in found["message"]
    assert "mish1" in found["message"]


def test_the_list_of_plugins_shows_it(installed: Path) -> None:
    done = run(["-m", "tactix", "plugins", "list", "--json"], installed)
    assert done.returncode == 0, done.stderr
    packs = {p["namespace"]: p for p in json.loads(done.stdout)["packs"]}
    assert packs["acme"]["distribution"] == "acme-mish"
    assert packs["acme"]["version"] == "1.0.0"
    assert "acme.Mish@1" in packs["acme"]["provides"]["layers"]
