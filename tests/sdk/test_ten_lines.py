"""A whole pack in ten lines of Python: it fuses behind anchors and among pointwise layers, on the
CPU and on CUDA.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sdk_site import Site

import tactix
from tactix_cuda import nvrtc
from tactix_sdk.testing import FAILED, PASSED, Subject, outcomes

SOURCE = Path(__file__).parents[2] / "examples" / "acme_mish"
RNG = np.random.default_rng(4)
ON = {
    "cpu": {},
    "cuda": {"device": "tactix.cuda@1", "target": "sm_90"},
}


@pytest.fixture
def site(site: Site) -> Site:
    """With the example in it."""
    site.install(SOURCE, "acme_mish")
    return site


def code_lines(path: Path) -> int:
    """Lines with code: without comments, docstrings and blank lines."""
    tree, text = ast.parse(path.read_text()), path.read_text().splitlines()
    words = [
        n.body[0]
        for n in ast.walk(tree)
        if isinstance(n, ast.Module | ast.FunctionDef) and ast.get_docstring(n) is not None
    ]
    said = {i for w in words for i in range(w.lineno, (w.end_lineno or w.lineno) + 1)}
    return sum(bool(line.split("#")[0].strip()) for i, line in enumerate(text, 1) if i not in said)


def test_it_has_at_most_ten_lines() -> None:
    assert 0 < sum(code_lines(p) for p in (SOURCE / "acme_mish").glob("*.py")) <= 10


def test_it_passes_every_check(site: Site) -> None:
    found = list(outcomes(Subject("acme-mish")))
    assert [(o.check.name, o.said) for o in found if o.state == FAILED] == []
    done = {o.check.name for o in found if o.state == PASSED}
    assert {
        "layer-inference",
        "symbolic-shapes",
        "attributes",
        "onnx",
        "import-light",
        "deterministic",
    } <= done


def conv(net: Any, x: Any) -> tuple[Any, ...]:
    w = net.add_constant(RNG.standard_normal((16, 3, 3, 3)).astype(np.float32))
    (y,) = net.add_layer("tactix.Convolution", [x, w], "conv", pads=(1, 1, 1, 1))
    return net.add_layer("acme.Mish", [y], "mish")  # type: ignore[no-any-return]


def group(net: Any, x: Any) -> tuple[Any, ...]:
    (y,) = net.add_layer("tactix.Tanh", [x], "before")
    (y,) = net.add_layer("acme.Mish", [y], "mish")
    return net.add_layer("tactix.Mul", [y, x], "after")  # type: ignore[no-any-return]


FUSED = {
    conv: ["tactix.Convolution@1", "acme.Mish@1"],
    group: ["tactix.Tanh@1", "acme.Mish@1", "tactix.Mul@1"],
}


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("make", FUSED, ids=lambda f: f.__name__)
def test_it_fuses(site: Site, make: Any, device: str) -> None:
    if device == "cuda" and nvrtc.why_missing():
        pytest.skip(nvrtc.why_missing())
    builder = tactix.Builder(session=tactix.Session())
    net = builder.create_network("net")
    net.mark_output(*make(net, net.add_input("x", "f32", (2, 3, 9, 7))), name="y")
    config = tactix.BuilderConfig(timing_cache=False, builder_optimization_level=1, **ON[device])
    plan = builder.build_plan(net, config)
    (step,) = (s for s in plan.steps if "acme.Mish@1" in s.info["layers"])
    assert step.info["layers"] == FUSED[make]
    assert step.artifact.launcher == (
        "tactix.cuda.cubin@1" if device == "cuda" else "tactix.cpu.elf@1"
    )
    assert [r.dist for r in plan.requirements if r.dist == "acme-mish"] == []
    if device == "cpu":
        x = RNG.standard_normal((2, 3, 9, 7)).astype(np.float32)
        want = tactix_reference(net, x)
        np.testing.assert_allclose(
            tactix.Runtime().load(plan)(x), want, rtol=0, atol=2e-5 * np.abs(want).max()
        )


def tactix_reference(net: Any, x: Any) -> Any:
    from tactix_sdk.evaluate import evaluate

    return evaluate(net, {"x": x})["y"]


def test_the_plan_runs_without_the_pack(site: Site, tmp_path: Path) -> None:
    builder = tactix.Builder(session=tactix.Session())
    net = builder.create_network("net")
    net.mark_output(*conv(net, net.add_input("x", "f32", (1, 3, 5, 5))), name="y")
    plan = builder.build_plan(
        net, tactix.BuilderConfig(timing_cache=False, builder_optimization_level=0)
    )
    x = RNG.standard_normal((1, 3, 5, 5)).astype(np.float32)
    want = tactix.Runtime().load(plan)(x)
    only = tactix.Session(group="runtime", only=["tactix"])
    assert "acme.Mish@1" not in only.layers
    assert "acme_mish" in sys.modules
    np.testing.assert_array_equal(tactix.Runtime(session=only).load(plan)(x), want)
