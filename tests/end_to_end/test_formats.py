"""Images of one pixel lie alike in all formats: no step moves them from one to another."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import builder

from tactix.contracts.region import REFORMAT
from tactix_cpu.compiler import CCompiler
from tactix_sdk.evaluate import evaluate

pytestmark = pytest.mark.skipif(bool(CCompiler().available()), reason="no C compiler")


def test_squeezed_images_are_not_moved() -> None:
    """Channels are weighted by two convolutions of the means of an image, as in MobileNetV3."""
    rng = np.random.default_rng(4)
    net = builder().create_network("squeeze")
    x = net.add_input("x", "f32", ("n", 32, 12, 12))

    def convolution(v: object, *shape: int) -> object:
        w = net.add_constant(rng.standard_normal(shape, dtype=np.float32) / 9)
        return net.add_layer("tactix.Convolution", [v, w], pads=(shape[-1] // 2,) * 4)[0]

    (y,) = net.add_layer("tactix.Relu", [convolution(x, 32, 32, 3, 3)])
    (s,) = net.add_layer("tactix.ReduceMean", [y], axes=(2, 3), keepdims=True)
    (s,) = net.add_layer("tactix.Relu", [convolution(s, 16, 32, 1, 1)])
    (s,) = net.add_layer("tactix.HardSigmoid", [convolution(s, 32, 16, 1, 1)])
    (y,) = net.add_layer("tactix.Mul", [y, s])
    net.mark_output(convolution(y, 32, 32, 3, 3), "y")
    want = {n: rng.standard_normal((n, 32, 12, 12), dtype=np.float32) for n in (1, 3)}
    config = builder().create_builder_config()
    config.builder_optimization_level = 1
    engine = builder().build(net, config)
    small = [
        step
        for step in engine.plan.steps
        if step.info["kind"] == REFORMAT.key and step.inputs[0].spec.shape[2:] == (1, 1)
    ]
    assert not small
    for given in want.values():
        got = engine(given)
        (expected,) = evaluate(net, {"x": given}).values()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
