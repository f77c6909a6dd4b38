"""A layer whose reference gives something else than its infer says is named by a build."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tactix
from tactix.base.errors import PluginError
from tactix.plugins.session import Session
from tactix_sdk import Kernel, Pack, TensorSpec

BODY = "if (tid == 0) for (int64_t i = 0; i < n; i++) TX_STORE(i, TX_IN0(i));"


def built(function: Any, infer: Any = None, folded: bool = False, behind: str = "") -> Any:
    """A network of that layer, of a constant or with another layer fused behind."""
    pack = Pack("acme")
    made = pack.layer("Odd", infer=infer, takes_epilogue=True)(function)

    @made.kernel("c", name="copied")
    def copied(op: Any) -> Kernel:
        return Kernel(BODY, sizes={"n": op.output.numel})

    builder = tactix.Builder(session=Session(plugins=[("acme", pack)], enable=["acme"]))
    net = builder.create_network("odd")
    x = (
        net.add_constant(np.ones((4, 3), np.float32))
        if folded
        else net.add_input("x", "f32", (4, 3))
    )
    y = net.add_layer("acme.Odd", [x], name="node")[0]
    net.mark_output(net.add_layer(behind, [y])[0] if behind else y)
    return builder.build_plan(net, tactix.BuilderConfig(timing_cache=False, threads=1))


def wider(x: Any) -> TensorSpec:
    return TensorSpec(x.dtype, (*x.shape[:-1], x.shape[-1] + 1))


CASES = {
    "a column too many": (lambda x: x, wider, "f32(4, 3), inference says f32(4, 4)"),
    "a row alone": (lambda x: x[:1], None, "f32(1, 3), inference says f32(4, 3)"),
    "another dtype": (lambda x: x.astype("f8"), None, "f64(4, 3), inference says f32(4, 3)"),
    "another rank": (lambda x: x[0], None, "inference says f32(4, 3)"),
    "two outputs": (lambda x: (x, x), None, "it gives 2 outputs, inference says 1"),
}


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("what", CASES)
def test_the_layer_is_named(what: str, folded: bool) -> None:
    reference, infer, said = CASES[what]
    with pytest.raises(PluginError, match=rf"acme\.Odd@1: the reference.*{re.escape(said)}"):
        built(lambda x: reference(x), infer, folded)


def test_the_layer_is_named_in_a_fused_group() -> None:
    with pytest.raises(PluginError, match=r"node: acme\.Odd@1: the reference disagrees"):
        built(lambda x: x[:1], behind="tactix.Relu")


def test_what_agrees_is_built() -> None:
    assert built(lambda x: x).steps
